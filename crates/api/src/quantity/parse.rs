//! Reading quantities.

use std::fmt;

use super::{
    Amount, Format, NANO, Quantity,
    decimal::{Decimal, MAX_DIGITS},
    suffix,
};
use crate::Str;

/// Text that is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// It does not look like a number and a suffix.
    Format,
    /// The number cannot be read, or has more digits than anybody needs.
    Numeric,
    /// There is no such suffix.
    Suffix,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ParseError::Format => {
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            ParseError::Numeric => "unable to parse numeric part of quantity",
            ParseError::Suffix => "unable to parse quantity's suffix",
        })
    }
}

impl std::error::Error for ParseError {}

/// The parts of a quantity's text.
struct Parts<'a> {
    negative: bool,
    /// The digits before the point, without zeros in front.
    whole: &'a str,
    /// The digits behind the point.
    fraction: &'a str,
    /// Whether there was a digit at all: upstream reads `Ki` as 0, but not everywhere.
    has_digits: bool,
    suffix: &'a str,
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

fn split(text: &str) -> Result<Parts<'_>, ParseError> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (all, rest) = digits(unsigned);
    let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
    let letters = suffix.trim_start_matches(['e', 'E', 'i', 'n', 'u', 'm', 'k', 'K', 'M', 'G', 'T', 'P']);
    let (_, behind) = digits(letters.strip_prefix(['-', '+']).unwrap_or(letters));
    if !behind.is_empty() {
        return Err(ParseError::Format);
    }
    Ok(Parts {
        negative: text.starts_with('-'),
        whole: all.trim_start_matches('0'),
        fraction,
        has_digits: !all.is_empty() || !fraction.is_empty(),
        suffix,
    })
}

pub(super) fn parse(text: &str) -> Result<Quantity, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Format);
    }
    let parts = split(text)?;
    let (format, exponent) = suffix::interpret(parts.suffix).ok_or(ParseError::Suffix)?;
    match fast(text, &parts, format, exponent) {
        Some(quantity) => Ok(quantity),
        None => slow(&parts, format, exponent),
    }
}

/// How many digits always fit 64 bits.
const MAX_INT_DIGITS: usize = 18;

/// The road of nearly all quantities: what fits 64 bits, and needs no rounding, is not put into pieces of memory.
fn fast(text: &str, parts: &Parts<'_>, format: Format, exponent: i32) -> Option<Quantity> {
    let (whole, fraction) = (if parts.whole.is_empty() { "0" } else { parts.whole }, parts.fraction);
    let count = whole.len() + fraction.len();
    let number = || whole.bytes().chain(fraction.bytes()).fold(0, |n, digit| n * 10 + i64::from(digit - b'0'));
    let (value, scale, as_written) = if format == Format::BinarySI {
        // A suffix stands for three digits and a little: these are sure to fit.
        if !fraction.is_empty() || count + usize::try_from(exponent * 3 / 10).unwrap_or(usize::MAX) > 14 {
            return None;
        }
        let number = number();
        (number << exponent, 0, number & 7 != 0)
    } else {
        let scale = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        if count > MAX_INT_DIGITS || scale < NANO {
            return None;
        }
        let (first, last) = (whole.as_bytes()[0], if fraction.is_empty() { whole } else { fraction });
        // Three zeros at the end would be a larger suffix; they may straddle the point.
        let zeros = match last.len() {
            0..3 => number() % 1000 == 0 && count >= 3,
            _ => last.ends_with("000"),
        };
        (number(), scale, scale % 3 == 0 && !zeros && first != b'0')
    };
    let value = if parts.negative { -value } else { value };
    // What is not far from canonical is kept as it was written, as upstream does.
    let text = if as_written { Str::from(text) } else { Str::default() };
    Some(Quantity { amount: Amount::Int { value, scale }, format, text })
}

fn slow(parts: &Parts<'_>, mut format: Format, exponent: i32) -> Result<Quantity, ParseError> {
    if !parts.has_digits {
        return Err(ParseError::Numeric);
    }
    let digits = [parts.whole, parts.fraction].concat();
    let digits = digits.trim_start_matches('0').as_bytes();
    if i64::try_from(digits.len()).is_ok_and(|count| count > MAX_DIGITS) {
        return Err(ParseError::Numeric);
    }
    let point = i64::try_from(parts.fraction.len()).unwrap_or(i64::MAX);
    let mut amount;
    if format == Format::BinarySI {
        amount = Decimal::from_digits(false, digits, -point);
        for _ in 0..exponent / 10 {
            amount.times(1024);
        }
    } else {
        amount = Decimal::from_digits(false, digits, i64::from(exponent) - point);
    }
    if !amount.is_zero() {
        // Who asks for a little gets a little, however little it was.
        amount.round_up(NANO.into());
    }
    if format == Format::BinarySI {
        let max = Decimal::new(i64::MAX, 0);
        if amount.compare(&max).is_gt() {
            amount = max;
        }
        if !amount.is_zero() && amount.compare(&Decimal::new(1, 0)).is_lt() {
            format = Format::DecimalSI;
        }
    }
    if parts.negative {
        amount.negate();
    }
    Ok(Quantity { amount: Amount::Big(Box::new(amount)), format, text: Str::default() })
}
