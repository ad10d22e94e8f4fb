//! What a scalar without quotes means, by the rules of YAML 1.1 as Go's decoder has them.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{Error, nodes::Hint};
use crate::{Str, Value, json};

/// What a scalar means.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that only fits without sign.
    Uint(u64),
    Float(f64),
    /// A string: the text itself.
    Str,
    /// A point in time, which stays the text that it is.
    Timestamp,
    /// The bytes behind base64, as text.
    Binary(String),
}

impl Scalar {
    fn tag(&self) -> &'static str {
        match self {
            Scalar::Null => "!!null",
            Scalar::Bool(_) => "!!bool",
            Scalar::Int(_) | Scalar::Uint(_) => "!!int",
            Scalar::Float(_) => "!!float",
            Scalar::Str => "!!str",
            Scalar::Timestamp => "!!timestamp",
            Scalar::Binary(_) => "!!binary",
        }
    }

    /// The value, as it is after a way through JSON; `text` is the scalar's own.
    pub(super) fn into_value(self, text: &str) -> Result<Value, Error> {
        Ok(match self {
            Scalar::Null => Value::Null,
            Scalar::Bool(b) => Value::Bool(b),
            Scalar::Int(n) => Value::Int(n),
            Scalar::Uint(n) => Value::Float(n as f64),
            Scalar::Float(n) if n.is_nan() => return Err(Error::Number("NaN")),
            Scalar::Float(n) if n.is_infinite() => return Err(Error::Number(if n > 0.0 { "+Inf" } else { "-Inf" })),
            // JSON has one kind of numbers: a float without fraction comes back as an integer.
            Scalar::Float(n) => json::to_string(&Value::Float(n)).parse().map_or(Value::Float(n), Value::Int),
            Scalar::Str | Scalar::Timestamp => Value::String(text.into()),
            Scalar::Binary(text) => Value::String(text.into()),
        })
    }

    /// The scalar as a key, which is a string whatever it was; `text` is the scalar's own.
    pub(super) fn into_key(self, text: &str) -> Result<Str, Error> {
        Ok(match self {
            Scalar::Null => return Err(Error::UnsupportedKey("%!s(<nil>)")),
            Scalar::Uint(_) => return Err(Error::UnsupportedKey("uint64")),
            Scalar::Bool(b) => Str::from(if b { "true" } else { "false" }),
            Scalar::Int(n) => n.to_string().into(),
            // Go prints it with the precision of 32 bits.
            Scalar::Float(n) => match n as f32 {
                n if n.is_nan() => ".nan".into(),
                n if n.is_infinite() => Str::from(if n > 0.0 { ".inf" } else { "-.inf" }),
                n => format_float(&format!("{n:e}")).into(),
            },
            Scalar::Str | Scalar::Timestamp => text.into(),
            Scalar::Binary(text) => text.into(),
        })
    }
}

/// What `text` means, given what the document says about its type.
pub(super) fn resolve(text: &str, hint: Hint) -> Result<Scalar, Error> {
    let wanted = match hint {
        Hint::Str | Hint::Merge => return Ok(Scalar::Str),
        Hint::Plain => return Ok(plain(text, true)),
        Hint::Binary => {
            // Go's decoder of base64 passes over line breaks.
            let letters: Vec<u8> = text.bytes().filter(|c| !matches!(c, b'\r' | b'\n')).collect();
            let bytes = STANDARD.decode(letters).map_err(|_| Error::Base64)?;
            return Ok(Scalar::Binary(json::lossy(&bytes).into_owned()));
        }
        Hint::Null => "!!null",
        Hint::Bool => "!!bool",
        Hint::Int => "!!int",
        Hint::Float => "!!float",
        Hint::Timestamp => "!!timestamp",
    };
    match plain(text, hint == Hint::Timestamp) {
        Scalar::Int(n) if hint == Hint::Float => Ok(Scalar::Float(n as f64)),
        scalar if scalar.tag() == wanted => Ok(scalar),
        scalar => Err(Error::Tag { found: scalar.tag(), value: text.to_owned(), tag: wanted }),
    }
}

/// What `text` means when only its letters decide.
pub(super) fn plain(text: &str, timestamps: bool) -> Scalar {
    let Some(first) = text.bytes().next() else { return Scalar::Null };
    if let Some(scalar) = word(text) {
        return scalar;
    }
    match first {
        // Here underscores may only stand between digits.
        b'.' if has_stray_underscore(text) => Scalar::Str,
        b'.' => float(&text.replace('_', "")).map_or(Scalar::Str, Scalar::Float),
        b'0'..=b'9' | b'+' | b'-' => {
            if timestamps && is_timestamp(text) {
                return Scalar::Timestamp;
            }
            number(&text.replace('_', "")).unwrap_or(Scalar::Str)
        }
        _ => Scalar::Str,
    }
}

fn has_stray_underscore(text: &str) -> bool {
    let is_digit = |at: Option<usize>| at.and_then(|at| text.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    text.match_indices('_').any(|(at, _)| !is_digit(at.checked_sub(1)) || !is_digit(Some(at + 1)))
}

fn word(text: &str) -> Option<Scalar> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Scalar::Bool(false),
        "~" | "null" | "Null" | "NULL" => Scalar::Null,
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ => return None,
    })
}

/// A number, from whose text the underscores have been removed.
fn number(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.as_bytes()[..] {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // Rust's parser takes a sign of its own, which Go's does not.
    if !digits.starts_with(['+', '-'])
        && let Ok(size) = u64::from_str_radix(digits, radix)
    {
        match i64::try_from(i128::from(size) * if negative { -1 } else { 1 }) {
            Ok(n) => return Some(Scalar::Int(n)),
            Err(_) if !text.starts_with(['+', '-']) => return Some(Scalar::Uint(size)),
            Err(_) => {}
        }
    }
    if let Some(n) = float(text) {
        return Some(Scalar::Float(n));
    }
    // Go looks at binary numbers twice, and the second time lets a sign stand behind the prefix.
    let digits = text.strip_prefix("0b")?;
    i64::from_str_radix(digits, 2).ok().map(Scalar::Int)
}

/// A number with fraction or exponent, in decimal digits only. One that is too large is none.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let formed = all_digits(whole)
        && all_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && all_digits(exponent)
        && !exponent.is_empty();
    if formed { text.parse().ok().filter(|n: &f64| n.is_finite()) } else { None }
}

/// Whether `text` is a point in time in one of the forms that Go's decoder knows: `2006-1-2`, `2006-1-2 15:4:5` or
/// `2006-1-2T15:4:5Z`, with fractions of seconds.
pub(super) fn is_timestamp(text: &str) -> bool {
    let mut rest = text;
    let timestamp = |rest: &mut &str| {
        let year = digits(rest, 4, 4)?;
        let month = digits(skip(rest, "-")?, 1, 2)?;
        let day = digits(skip(rest, "-")?, 1, 2)?;
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + u32::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        if !(1..=days).contains(&day) || rest.is_empty() {
            return (1..=days).contains(&day).then_some(());
        }
        let zoned = skip(rest, " ").is_none();
        if zoned && skip(rest, "T").is_none() {
            skip(rest, "t")?;
        }
        let hour = digits(rest, 1, 2)?;
        let minute = digits(skip(rest, ":")?, 1, 2)?;
        let second = digits(skip(rest, ":")?, 1, 2)?;
        if rest.starts_with(['.', ',']) {
            *rest = &rest[1..];
            digits(rest, 1, usize::MAX)?;
        }
        if zoned && skip(rest, "Z").is_none() {
            *rest = rest.strip_prefix(['+', '-'])?;
            let (hours, minutes) = (digits(rest, 2, 2)?, digits(skip(rest, ":")?, 2, 2)?);
            (hours <= 24 && minutes <= 60).then_some(())?;
        }
        (hour < 24 && minute < 60 && second < 60 && rest.is_empty()).then_some(())
    };
    timestamp(&mut rest).is_some()
}

fn skip<'a, 'b>(rest: &'a mut &'b str, prefix: &str) -> Option<&'a mut &'b str> {
    *rest = rest.strip_prefix(prefix)?;
    Some(rest)
}

/// Reads between `min` and `max` digits; of very many only whether they are there counts.
fn digits(rest: &mut &str, min: usize, max: usize) -> Option<u32> {
    let count = rest.bytes().take(max).take_while(u8::is_ascii_digit).count();
    let (digits, behind) = rest.split_at(count);
    *rest = behind;
    (count >= min).then(|| digits.parse().unwrap_or(0))
}

/// The shortest `%g` of Go: `text` is the number in Rust's `{:e}`, and gets an exponent, of two digits at least, only
/// below 1e-4 and from 1e6 on.
pub(super) fn format_float(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').expect("the format has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent of a float is small");
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let digits = mantissa.replace('.', "");
    if !(-4..6).contains(&exponent) {
        let e = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{e}{:02}", exponent.abs());
    }
    match usize::try_from(exponent) {
        Err(_) => format!("{sign}0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1)),
        Ok(whole) if digits.len() <= whole + 1 => format!("{sign}{digits}{}", "0".repeat(whole + 1 - digits.len())),
        Ok(whole) => format!("{sign}{}.{}", &digits[..=whole], &digits[whole + 1..]),
    }
}
