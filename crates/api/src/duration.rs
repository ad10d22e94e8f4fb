//! Spans of time: `1h30m0s`, read and written as Go does, and told to people as kubectl tells ages.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Value, time::quote};

/// A span of time in nanoseconds, about 292 years at most, before or after.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub i64);

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The units; the micro sign comes as µ, as the Greek letter, and as u.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", MICROSECOND),
    ("\u{b5}s", MICROSECOND),
    ("\u{3bc}s", MICROSECOND),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
];

impl Duration {
    /// So many seconds; what is longer than a duration can be is the longest duration.
    #[must_use]
    pub const fn from_secs(seconds: i64) -> Self {
        Duration(seconds.saturating_mul(1_000_000_000))
    }

    /// The whole seconds, without the fraction.
    #[must_use]
    pub const fn as_secs(self) -> i64 {
        self.0 / 1_000_000_000
    }

    /// The number of `unit`s as Go computes it, in floating point.
    #[expect(clippy::cast_precision_loss, reason = "Go loses it too, and the result must be the same")]
    fn in_units(self, unit: u64) -> f64 {
        let unit = unit.cast_signed();
        (self.0 / unit) as f64 + (self.0 % unit) as f64 / unit as f64
    }

    /// An age in one unit: `5d`.
    #[must_use]
    pub fn short_human(self) -> String {
        let (seconds, minutes, hours) = (whole(self.in_units(SECOND)), self.in_units(MINUTE), self.in_units(HOUR));
        match (seconds, whole(minutes), whole(hours)) {
            (..-1, ..) => "<invalid>".to_owned(),
            (-1, ..) => "0s".to_owned(),
            (..60, ..) => format!("{seconds}s"),
            (_, minutes @ ..60, _) => format!("{minutes}m"),
            (_, _, hours @ ..24) => format!("{hours}h"),
            (_, _, days @ ..8760) => format!("{}d", days / 24),
            _ => format!("{}y", whole(hours / 24.0 / 365.0)),
        }
    }

    /// An age in two or three digits: `119s`, `2m5s`, `179m`, `7h59m`, `47h`, `7d23h`, `729d`, `7y364d`, `8y`.
    #[must_use]
    pub fn human(self) -> String {
        // Clocks of two machines differ a little: what is not two seconds ahead is now.
        let seconds = whole(self.in_units(SECOND));
        if seconds < -1 {
            return "<invalid>".to_owned();
        }
        let (minutes, hours) = (self.as_secs() / 60, self.as_secs() / 3600);
        let two = |large, large_unit, small, small_unit| match small {
            0 => format!("{large}{large_unit}"),
            small => format!("{large}{large_unit}{small}{small_unit}"),
        };
        match (seconds, minutes, hours) {
            (..0, ..) => "0s".to_owned(),
            (..120, ..) => format!("{seconds}s"),
            (_, ..10, _) => two(minutes, 'm', self.as_secs() % 60, 's'),
            (_, ..180, _) => format!("{minutes}m"),
            (_, _, ..8) => two(hours, 'h', minutes % 60, 'm'),
            (_, _, ..48) => format!("{hours}h"),
            (_, _, ..192) => two(hours / 24, 'd', hours % 24, 'h'),
            (_, _, ..17_520) => format!("{}d", hours / 24),
            (_, _, ..70_080) => two(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
            _ => format!("{}y", hours / 24 / 365),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "cutting off is the point, and no duration has that many seconds")]
fn whole(n: f64) -> i64 {
    n as i64
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let (unit, size) = match total {
            0 => return f.write_str("0s"),
            1..MICROSECOND => ("ns", 1),
            MICROSECOND..MILLISECOND => ("\u{b5}s", MICROSECOND),
            MILLISECOND..SECOND => ("ms", MILLISECOND),
            SECOND.. => {
                if total >= HOUR {
                    write!(f, "{}h", total / HOUR)?;
                }
                if total >= MINUTE {
                    write!(f, "{}m", total / MINUTE % 60)?;
                }
                ("s", SECOND)
            }
        };
        let below = if size == SECOND { total % MINUTE } else { total };
        write!(f, "{}", below / size)?;
        if below % size != 0 {
            // One digit for each zero of the size, without the zeros at the end.
            let fraction = format!("{:0width$}", below % size, width = size.ilog10() as usize);
            write!(f, ".{}", fraction.trim_end_matches('0'))?;
        }
        f.write_str(unit)
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    text: String,
    wrong: Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    Invalid,
    MissingUnit,
    UnknownUnit(String),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = quote(&self.text);
        match &self.wrong {
            Wrong::Invalid => write!(f, "time: invalid duration {text}"),
            Wrong::MissingUnit => write!(f, "time: missing unit in duration {text}"),
            Wrong::UnknownUnit(unit) => write!(f, "time: unknown unit {} in duration {text}", quote(unit)),
        }
    }
}

impl std::error::Error for ParseError {}

impl FromStr for Duration {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text).map(Duration).map_err(|wrong| ParseError { text: text.to_owned(), wrong })
    }
}

/// The largest number of nanoseconds there is on the negative side.
const LIMIT: u64 = 1 << 63;

fn parse(text: &str) -> Result<i64, Wrong> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(Wrong::Invalid);
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (nanos, behind) = one_unit(rest)?;
        rest = behind;
        total = total.checked_add(nanos).filter(|total| *total <= LIMIT).ok_or(Wrong::Invalid)?;
    }
    if text.starts_with('-') {
        // The limit itself is the smallest number, which has no positive counterpart.
        return Ok(0_i64.wrapping_sub_unsigned(total));
    }
    i64::try_from(total).map_err(|_| Wrong::Invalid)
}

/// Reads a number and its unit, in nanoseconds; returns what is behind them.
fn one_unit(text: &str) -> Result<(u64, &str), Wrong> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err(Wrong::Invalid);
    }
    let mut nanos: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| Wrong::Invalid)? };
    if nanos > LIMIT {
        return Err(Wrong::Invalid);
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    if unit.is_empty() {
        return Err(Wrong::MissingUnit);
    }
    let size = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(|| Wrong::UnknownUnit(unit.to_owned()))?.1;
    if nanos > LIMIT / size {
        return Err(Wrong::Invalid);
    }
    nanos = nanos * size + fraction_of(fraction, size);
    if nanos > LIMIT { Err(Wrong::Invalid) } else { Ok((nanos, rest)) }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `0.digits` of a unit in nanoseconds, computed in floating point as Go does; digits beyond what a number holds are
/// ignored.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as in Go")]
fn fraction_of(digits: &str, size: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        if number > (LIMIT - 1) / 10 {
            break;
        }
        let next = number * 10 + u64::from(digit - b'0');
        if next > LIMIT {
            break;
        }
        number = next;
        scale *= 10.0;
    }
    (number as f64 * (size as f64 / scale)) as u64
}

impl From<Duration> for Value {
    fn from(duration: Duration) -> Self {
        duration.to_string().into()
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden;

    #[test]
    fn as_go() {
        golden::check("duration.jsonl", |input| match input.parse::<Duration>() {
            Ok(duration) => duration.to_string(),
            Err(error) => error.to_string(),
        });
    }

    #[test]
    fn ages_as_kubectl() {
        golden::check("age.jsonl", |input| {
            let duration = Duration(input.parse().unwrap());
            format!("{} {}", duration.human(), duration.short_human())
        });
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(nanos: i64) {
            // A fraction of a second goes through floating point, which is exact for up to nine digits.
            prop_assert_eq!(Duration(nanos).to_string().parse(), Ok(Duration(nanos)));
        }

        #[test]
        fn never_panics(text in "[-+]?([0-9]{0,22}(\\.[0-9]{0,22})?[a-zµ]{0,2}){0,4}", any: String) {
            let _ = (text.parse::<Duration>(), any.parse::<Duration>());
        }
    }
}
