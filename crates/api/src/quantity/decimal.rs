//! Decimal numbers of any size, for the few quantities that do not fit 64 bits.

use std::{cmp::Ordering, fmt::Write as _};

/// How many digits a number may have. Sums of numbers that lie further apart are rounded up to this many; nobody has
/// that much.
pub(super) const MAX_DIGITS: i64 = 10_000;

/// The base of the limbs: nine decimal digits each, so that shifting by digits and printing are cheap.
const BASE: u32 = 1_000_000_000;

/// `limbs * 10^exponent`, the limbs beginning with the lowest. Zero has none.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    negative: bool,
    limbs: Vec<u32>,
    pub(super) exponent: i64,
}

impl Decimal {
    pub(super) fn new(value: i64, exponent: i64) -> Self {
        let mut decimal = Decimal { negative: value < 0, limbs: Vec::new(), exponent };
        let mut rest = value.unsigned_abs();
        while rest > 0 {
            decimal.limbs.push(u32::try_from(rest % u64::from(BASE)).expect("less than the base"));
            rest /= u64::from(BASE);
        }
        decimal
    }

    /// From digits, the highest first.
    pub(super) fn from_digits(negative: bool, digits: &[u8], exponent: i64) -> Self {
        let limb = |digits: &[u8]| digits.iter().fold(0, |n, digit| n * 10 + u32::from(digit - b'0'));
        let mut decimal = Decimal { negative, limbs: digits.rchunks(9).map(limb).collect(), exponent };
        decimal.trim();
        decimal
    }

    fn trim(&mut self) {
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
        self.negative &= !self.limbs.is_empty();
    }

    pub(super) fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    pub(super) fn is_negative(&self) -> bool {
        self.negative
    }

    pub(super) fn negate(&mut self) {
        self.negative = !self.negative && !self.is_zero();
    }

    pub(super) fn abs(mut self) -> Self {
        self.negative = false;
        self
    }

    fn digits(&self) -> i64 {
        let Some(top) = self.limbs.last() else { return 0 };
        i64::try_from((self.limbs.len() - 1) * 9).unwrap_or(i64::MAX).saturating_add(i64::from(top.ilog10()) + 1)
    }

    pub(super) fn times(&mut self, factor: u32) {
        let mut carry = 0;
        for limb in &mut self.limbs {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            *limb = u32::try_from(product % u64::from(BASE)).expect("less than the base");
            carry = product / u64::from(BASE);
        }
        while carry > 0 {
            self.limbs.push(u32::try_from(carry % u64::from(BASE)).expect("less than the base"));
            carry /= u64::from(BASE);
        }
        self.trim();
    }

    /// Divides in place and returns the rest.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0;
        for limb in self.limbs.iter_mut().rev() {
            let dividend = rest * u64::from(BASE) + u64::from(*limb);
            *limb = u32::try_from(dividend / u64::from(divisor)).expect("the rest is less than the divisor");
            rest = dividend % u64::from(divisor);
        }
        self.trim();
        u32::try_from(rest).expect("less than the divisor")
    }

    /// Multiplies the digits by `10^by`.
    fn shift_up(&mut self, by: usize) {
        if self.is_zero() {
            return;
        }
        self.times(10_u32.pow(u32::try_from(by % 9).expect("less than nine")));
        self.limbs.splice(0..0, std::iter::repeat_n(0, by / 9));
    }

    /// Divides the digits by `10^by`, and returns whether something was cut off.
    fn shift_down(&mut self, by: usize) -> bool {
        let whole = (by / 9).min(self.limbs.len());
        let lost = self.limbs.drain(..whole).any(|limb| limb != 0);
        let rest = self.divide(10_u32.pow(u32::try_from(by % 9).expect("less than nine")));
        lost || rest != 0
    }

    /// Sets the exponent, rounding away from zero. Returns whether the value is still the same.
    ///
    /// An exponent that would take more than [`MAX_DIGITS`] is not set.
    pub(super) fn round_up(&mut self, exponent: i64) -> bool {
        let negative = self.negative;
        if exponent <= self.exponent {
            let by = self.exponent.saturating_sub(exponent);
            if self.is_zero() || by.saturating_add(self.digits()) <= MAX_DIGITS {
                self.shift_up(usize::try_from(by).unwrap_or(0));
                self.exponent = exponent;
            }
            return true;
        }
        let by = exponent.saturating_sub(self.exponent);
        let lost = self.shift_down(usize::try_from(by).unwrap_or(usize::MAX));
        self.exponent = exponent;
        if lost {
            self.add_magnitude(&[1]);
            self.negative = negative;
        }
        !lost
    }

    fn add_magnitude(&mut self, other: &[u32]) {
        let mut carry = 0;
        for at in 0..self.limbs.len().max(other.len()) {
            if at == self.limbs.len() {
                self.limbs.push(0);
            }
            let sum = self.limbs[at] + other.get(at).unwrap_or(&0) + carry;
            self.limbs[at] = sum % BASE;
            carry = sum / BASE;
        }
        if carry > 0 {
            self.limbs.push(carry);
        }
    }

    /// Takes `other`, which is not larger, away.
    fn subtract_magnitude(&mut self, other: &[u32]) {
        let mut borrow = 0;
        for at in 0..self.limbs.len() {
            let less = other.get(at).unwrap_or(&0) + borrow;
            borrow = u32::from(self.limbs[at] < less);
            self.limbs[at] = self.limbs[at] + borrow * BASE - less;
        }
        self.trim();
    }

    fn compare_magnitude(&self, other: &[u32]) -> Ordering {
        self.limbs.len().cmp(&other.len()).then_with(|| self.limbs.iter().rev().cmp(other.iter().rev()))
    }

    pub(super) fn add(&mut self, mut other: Decimal) {
        // The one with the higher exponent is expanded, as far as that may go; the other gives way by what is left.
        let (high, low) = if self.exponent >= other.exponent { (&*self, &other) } else { (&other, &*self) };
        let exponent = if high.is_zero() {
            low.exponent
        } else {
            low.exponent.max(high.exponent.saturating_sub((MAX_DIGITS - high.digits()).max(0)))
        };
        self.round_up(exponent);
        other.round_up(exponent);
        if self.negative == other.negative {
            self.add_magnitude(&other.limbs);
        } else if self.compare_magnitude(&other.limbs) == Ordering::Less {
            std::mem::swap(self, &mut other);
            self.subtract_magnitude(&other.limbs);
        } else {
            self.subtract_magnitude(&other.limbs);
        }
        if self.is_zero() {
            self.negative = false;
        }
    }

    /// Multiplies by any integer.
    pub(super) fn multiply(&mut self, factor: i64) {
        let copy = self.clone();
        let (negative, other) = (self.negative != (factor < 0), Decimal::new(factor, 0));
        self.limbs.clear();
        for (at, limb) in other.limbs.iter().enumerate() {
            let mut part = copy.clone();
            part.times(*limb);
            if !part.is_zero() {
                part.limbs.splice(0..0, std::iter::repeat_n(0, at));
            }
            self.add_magnitude(&part.limbs);
        }
        self.negative = negative && !self.is_zero();
    }

    /// Takes a factor out as often as it is in, and returns how often.
    pub(super) fn remove_factors(&mut self, factor: u32) -> i64 {
        let mut times = 0;
        while !self.is_zero() {
            let mut quotient = self.clone();
            if quotient.divide(factor) != 0 {
                break;
            }
            *self = quotient;
            times += 1;
        }
        times
    }

    /// The digits without the exponent, as an integer of 64 bits that lost what did not fit.
    fn low_bits(&self) -> i64 {
        let low = self
            .limbs
            .iter()
            .rev()
            .fold(0_u64, |n, limb| n.wrapping_mul(u64::from(BASE)).wrapping_add(u64::from(*limb)));
        let low = low.cast_signed();
        if self.negative { low.wrapping_neg() } else { low }
    }

    /// The digits without the exponent, if they fit.
    pub(super) fn mantissa(&self) -> Option<i64> {
        let low = self.low_bits();
        let same = Decimal::new(low, 0);
        (same.limbs == self.limbs && same.negative == self.negative).then_some(low)
    }

    /// The value in units of `10^scale`, with upstream's rounding and upstream's overflow.
    pub(super) fn scaled(&self, scale: i64) -> i64 {
        let by = scale.saturating_sub(self.exponent);
        if by <= 0 {
            // Upstream gets the power from floating point, and what is beyond 64 bits becomes the smallest number.
            let power = u32::try_from(-by).ok().and_then(|by| 10_i64.checked_pow(by)).unwrap_or(i64::MIN);
            return self.low_bits().wrapping_mul(power);
        }
        let small = self.negative || self.mantissa().is_some_and(|n| n < i64::MAX);
        if small && by < 19 {
            let divisor = 10_i64.pow(u32::try_from(by).expect("less than nineteen"));
            let (quotient, rest) = (self.low_bits() / divisor, self.low_bits() % divisor);
            return quotient + i64::from(rest != 0);
        }
        // Upstream divides towards the lower number here and adds one: that is rounding up, also below zero.
        let mut quotient = self.clone();
        let lost = quotient.shift_down(usize::try_from(by).unwrap_or(usize::MAX));
        quotient.low_bits().wrapping_add(i64::from(lost && !self.negative))
    }

    /// The digits without the exponent.
    pub(super) fn mantissa_text(&self) -> String {
        let mut out = if self.negative { "-".to_owned() } else { String::new() };
        let top = self.limbs.last().unwrap_or(&0);
        write!(out, "{top}").expect("memory takes all");
        for limb in self.limbs.iter().rev().skip(1) {
            write!(out, "{limb:09}").expect("memory takes all");
        }
        out
    }

    pub(super) fn compare(&self, other: &Decimal) -> Ordering {
        let sign = |d: &Decimal| if d.is_zero() { 0 } else { 1 - 2 * i8::from(d.negative) };
        let signs = sign(self).cmp(&sign(other));
        if signs != Ordering::Equal || self.is_zero() {
            return signs;
        }
        // How many digits stand before the point decides, unless they are as many.
        let size = |d: &Decimal| d.digits().saturating_add(d.exponent);
        let magnitude = size(self).cmp(&size(other)).then_with(|| {
            let (mut a, mut b) = (self.clone(), other.clone());
            // Equally many digits before the point: the longer one tells how much the other grows.
            match a.exponent.cmp(&b.exponent) {
                Ordering::Greater => a.shift_up(usize::try_from(a.exponent - b.exponent).unwrap_or(0)),
                Ordering::Less => b.shift_up(usize::try_from(b.exponent - a.exponent).unwrap_or(0)),
                Ordering::Equal => {}
            }
            a.compare_magnitude(&b.limbs)
        });
        if self.negative { magnitude.reverse() } else { magnitude }
    }
}
