//! Quantities: exact decimal numbers with suffixes, as `100m` of a CPU or `1Gi` of memory.

mod decimal;
mod parse;
mod suffix;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, cmp::Ordering, fmt, str::FromStr};

use decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use parse::ParseError;
pub use suffix::Format;

use crate::{Str, Value};

/// The power of ten of the smallest part that a quantity has.
pub const NANO: i32 = -9;
/// The power of ten of a thousandth.
pub const MILLI: i32 = -3;

/// An exact amount and the way it is written.
///
/// Quantities compare by amount, so `1000m` equals `1`. Arithmetic is exact; what does not fit 64 bits takes a slower
/// road. Nothing smaller than a nano unit is read: it is rounded up. Binary suffixes are read up to 2^63-1 and capped
/// there.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    amount: Amount,
    format: Format,
    /// As it was written, where that is near enough to canonical. Empty when it is to be put together.
    text: Str,
}

#[derive(Clone, Debug)]
enum Amount {
    /// `value * 10^scale`.
    Int { value: i64, scale: i32 },
    /// What does not fit, or did not at some time.
    Big(Box<Decimal>),
}

impl Default for Amount {
    fn default() -> Self {
        Amount::Int { value: 0, scale: 0 }
    }
}

impl Amount {
    fn to_decimal(&self) -> Decimal {
        match self {
            Amount::Int { value, scale } => Decimal::new(*value, (*scale).into()),
            Amount::Big(decimal) => Decimal::clone(decimal),
        }
    }

    fn compare(&self, other: &Amount) -> Ordering {
        if let (&Amount::Int { value: a, scale: x }, &Amount::Int { value: b, scale: y }) = (self, other) {
            // Within 18 digits the product of both fits twice 64 bits.
            let wide = |n: i64, by: i64| i128::from(n) * 10_i128.pow(u32::try_from(by).unwrap_or(0));
            match i64::from(x) - i64::from(y) {
                0 => return a.cmp(&b),
                by @ 1..=18 => return wide(a, by).cmp(&b.into()),
                by @ -18..0 => return i128::from(a).cmp(&wide(b, -by)),
                _ => {}
            }
        }
        self.to_decimal().compare(&other.to_decimal())
    }
}

/// `value * 10^by`, if it fits.
fn scale_up(value: i64, by: i64) -> Option<i64> {
    if value == 0 {
        return Some(0);
    }
    value.checked_mul(10_i64.checked_pow(u32::try_from(by).ok()?)?)
}

/// What upstream returns for a product that does not fit: for the usual suffixes what is left of it, otherwise nothing.
fn overflowed(value: i64, by: i64) -> i64 {
    match by {
        1 | 2 | 3 | 6 | 9 if value != i64::MIN => value.wrapping_mul(10_i64.pow(u32::try_from(by).unwrap_or(0))),
        _ => 0,
    }
}

/// `value / 10^by`, rounded away from zero, and whether it is exact.
fn scale_down(value: i64, by: i64) -> (i64, bool) {
    let divisor = u32::try_from(by).ok().and_then(|by| 10_i64.checked_pow(by));
    let Some(divisor) = divisor else { return (value.signum(), value == 0) };
    match value % divisor {
        0 => (value / divisor, true),
        rest => (value / divisor + rest.signum(), false),
    }
}

impl Quantity {
    /// `value`, to be written in `format`.
    #[must_use]
    pub const fn new(value: i64, format: Format) -> Self {
        Quantity::new_scaled(value, 0, format)
    }

    /// `value` thousandths, to be written in `format`.
    #[must_use]
    pub const fn new_milli(value: i64, format: Format) -> Self {
        Quantity::new_scaled(value, MILLI, format)
    }

    /// `value * 10^scale`, to be written in `format`.
    #[must_use]
    pub const fn new_scaled(value: i64, scale: i32, format: Format) -> Self {
        Quantity { amount: Amount::Int { value, scale }, format, text: Str::const_new("") }
    }

    /// How it is written.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whether it is nothing.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.signum() == 0
    }

    /// -1, 0 or 1.
    #[must_use]
    pub fn signum(&self) -> i32 {
        match &self.amount {
            Amount::Int { value, .. } => i32::from(*value > 0) - i32::from(*value < 0),
            Amount::Big(decimal) if decimal.is_zero() => 0,
            Amount::Big(decimal) => 1 - 2 * i32::from(decimal.is_negative()),
        }
    }

    /// The amount as an integer, if that is quick to tell and exact; [`value`](Quantity::value) always tells, but may
    /// round.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        match self.amount {
            Amount::Int { value, scale: scale @ 0.. } => scale_up(value, scale.into()),
            _ => None,
        }
    }

    /// The amount as a floating point number, the nearest there is.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        let decimal = self.amount.to_decimal();
        format!("{}e{}", decimal.mantissa_text(), decimal.exponent)
            .parse()
            .expect("digits and an exponent are a number")
    }

    /// The amount, rounded up to an integer.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.scaled_value(0)
    }

    /// The amount in thousandths, rounded up.
    #[must_use]
    pub fn milli_value(&self) -> i64 {
        self.scaled_value(MILLI)
    }

    /// The amount in units of `10^scale`, rounded up.
    ///
    /// What does not fit 64 bits is nonsense, the same nonsense that upstream returns. Compare first if that matters.
    #[must_use]
    pub fn scaled_value(&self, scale: i32) -> i64 {
        match &self.amount {
            Amount::Int { value, scale: own } => match i64::from(*own) - i64::from(scale) {
                by @ 0.. => scale_up(*value, by).unwrap_or_else(|| overflowed(*value, by)),
                by => scale_down(*value, -by).0,
            },
            Amount::Big(decimal) => decimal.scaled(scale.into()),
        }
    }

    /// Rounds away from zero to a multiple of `10^scale`, and returns whether nothing was lost.
    pub fn round_up(&mut self, scale: i32) -> bool {
        match &mut self.amount {
            Amount::Int { scale: own, .. } if *own >= scale => true,
            Amount::Int { value, scale: own } => {
                let (rounded, exact) = scale_down(*value, i64::from(scale) - i64::from(*own));
                (*value, *own) = (rounded, scale);
                self.text.clear();
                exact
            }
            Amount::Big(decimal) => {
                self.text.clear();
                decimal.round_up(scale.into())
            }
        }
    }

    /// Adds. Nothing plus something is written as the something was.
    pub fn add(&mut self, other: &Quantity) {
        self.add_signed(other, false);
    }

    /// Subtracts. Nothing minus something is written as the something was.
    pub fn sub(&mut self, other: &Quantity) {
        self.add_signed(other, true);
    }

    fn add_signed(&mut self, other: &Quantity, negate: bool) {
        self.text.clear();
        if self.is_zero() {
            self.format = other.format;
        }
        if let (&Amount::Int { value: a, scale: x }, &Amount::Int { value: b, scale: y }) =
            (&self.amount, &other.amount)
            && let Some(b) = if negate { b.checked_neg() } else { Some(b) }
            && let Some((value, scale)) = add_ints((a, x), (b, y))
        {
            self.amount = Amount::Int { value, scale };
            return;
        }
        let (mut sum, mut addend) = (self.amount.to_decimal(), other.amount.to_decimal());
        if negate {
            addend.negate();
        }
        sum.add(addend);
        self.amount = Amount::Big(Box::new(sum));
    }

    /// Multiplies, and returns whether the result still is within 64 bits.
    pub fn mul(&mut self, factor: i64) -> bool {
        self.text.clear();
        if let Amount::Int { value, scale } = &mut self.amount {
            if *value == 0 {
                return true;
            }
            if factor == 0 {
                self.amount = Amount::default();
                return true;
            }
            let fits = |product: &i64| match *scale {
                0.. => scale_up(*product, (*scale).into()).is_some(),
                _ => scale_down(*product, -i64::from(*scale)).1,
            };
            if let Some(product) = value.checked_mul(factor).filter(fits) {
                *value = product;
                return true;
            }
        }
        let mut product = self.amount.to_decimal();
        product.multiply(factor);
        let fits = product.mantissa().is_some();
        self.amount = Amount::Big(Box::new(product));
        fits
    }

    /// Turns the sign.
    pub fn neg(&mut self) {
        self.text.clear();
        match &mut self.amount {
            Amount::Int { value: i64::MIN, .. } => {
                let mut decimal = self.amount.to_decimal();
                decimal.negate();
                self.amount = Amount::Big(Box::new(decimal));
            }
            Amount::Int { value, .. } => *value = -*value,
            Amount::Big(decimal) => decimal.negate(),
        }
    }

    /// The canonical text, put together anew.
    fn write_canonical(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        if let Amount::Int { value, scale } = self.amount
            && let Some((mantissa, exponent, format)) = canonical_int(value, scale, self.format)
        {
            write!(f, "{mantissa}")?;
            return suffix::write(format, exponent, f);
        }
        if self.format == Format::BinarySI
            && let Some((mantissa, exponent)) = self.base_1024()
        {
            f.write_str(&mantissa.mantissa_text())?;
            return suffix::write(Format::BinarySI, exponent * 10, f);
        }
        let mut decimal = self.amount.to_decimal();
        decimal.exponent += decimal.remove_factors(10);
        while decimal.exponent % 3 != 0 {
            decimal.times(10);
            decimal.exponent -= 1;
        }
        f.write_str(&decimal.mantissa_text())?;
        suffix::write(self.format.or_decimal(), decimal.exponent, f)
    }

    /// Mantissa and exponent to the base 1024; nothing for small amounts and fractions, which are written decimally.
    fn base_1024(&self) -> Option<(Decimal, i64)> {
        let mut decimal = self.amount.to_decimal();
        if decimal.clone().abs().compare(&Decimal::new(1024, 0)).is_lt() || !decimal.round_up(0) {
            return None;
        }
        let exponent = decimal.remove_factors(1024);
        Some((decimal, exponent))
    }
}

/// Mantissa, exponent and format of the canonical text of an integer, if all of the way there fits 64 bits.
fn canonical_int(value: i64, scale: i32, format: Format) -> Option<(i64, i64, Format)> {
    if format == Format::BinarySI {
        let whole = match scale {
            0.. => Some(scale_up(value, scale.into())?),
            _ => Some(scale_down(value, -i64::from(scale))).filter(|(_, exact)| *exact).map(|(whole, _)| whole),
        };
        if let Some(mut whole) = whole.filter(|whole| whole.unsigned_abs() >= 1024) {
            let mut exponent = 0;
            while whole % 1024 == 0 {
                (whole, exponent) = (whole / 1024, exponent + 10);
            }
            return Some((whole, exponent, format));
        }
    }
    let (mut value, mut exponent) = (value, i64::from(scale));
    while value % 10 == 0 {
        (value, exponent) = (value / 10, exponent + 1);
    }
    let by = exponent.rem_euclid(3);
    Some((scale_up(value, by)?, exponent - by, format.or_decimal()))
}

/// The sum of two scaled integers, if it fits.
fn add_ints((a, x): (i64, i32), (b, y): (i64, i32)) -> Option<(i64, i32)> {
    if b == 0 {
        return Some((a, x));
    }
    if a == 0 {
        return Some((b, y));
    }
    let scale = x.min(y);
    let a = scale_up(a, i64::from(x) - i64::from(scale))?;
    let b = scale_up(b, i64::from(y) - i64::from(scale))?;
    Some((a.checked_add(b)?, scale))
}

impl FromStr for Quantity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse::parse(text)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.text.is_empty() { self.write_canonical(f) } else { f.write_str(&self.text) }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.amount.compare(&other.amount)
    }
}

impl From<&Quantity> for Value {
    fn from(quantity: &Quantity) -> Self {
        quantity.to_string().into()
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    /// Reads a string, a number, or `null` for nothing.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written<'a> {
            Int(i64),
            Float(f64),
            #[serde(borrow)]
            Text(Cow<'a, str>),
            Null(()),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Int(n) => Cow::Owned(n.to_string()),
            Written::Float(n) => Cow::Owned(n.to_string()),
            Written::Text(text) => text,
            Written::Null(()) => return Ok(Quantity::default()),
        };
        text.trim().parse().map_err(de::Error::custom)
    }
}
