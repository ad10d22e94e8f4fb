//! Points in time: [`Time`] with seconds and [`MicroTime`] with microseconds, read and written as Go does.

mod civil;
mod parse;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub use parse::ParseError;
pub(crate) use parse::quote;

use crate::{Duration, Value};

/// A point in time that is written with seconds, in UTC: `2006-01-02T15:04:05Z`.
///
/// The zero value, the first second of the year 1, stands for "not set" and is written as `null`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    seconds: i64,
    nanos: u32,
}

impl Time {
    /// The time that stands for "not set".
    pub const ZERO: Time = Time { seconds: -62_135_596_800, nanos: 0 };

    /// So many seconds and nanoseconds after 1970. Nanoseconds beyond a second are cut off.
    #[must_use]
    pub const fn from_unix(seconds: i64, nanos: u32) -> Self {
        Time { seconds, nanos: if nanos < 1_000_000_000 { nanos } else { 999_999_999 } }
    }

    /// The whole seconds since 1970.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.seconds
    }

    /// The nanoseconds on top of the seconds.
    #[must_use]
    pub const fn subsec_nanos(self) -> u32 {
        self.nanos
    }

    /// Whether it is not set.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Time::ZERO
    }

    /// How long after `earlier` this is; what is longer than a duration can be is the longest duration.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        let nanos = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        let between = nanos(self) - nanos(earlier);
        Duration(i64::try_from(between).unwrap_or(if between < 0 { i64::MIN } else { i64::MAX }))
    }
}

impl Default for Time {
    fn default() -> Self {
        Time::ZERO
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_date(f, *self)?;
        f.write_str("Z")
    }
}

/// `2006-01-02T15:04:05`.
fn write_date(f: &mut fmt::Formatter<'_>, time: Time) -> fmt::Result {
    let (year, month, day) = civil::date(time.seconds.div_euclid(civil::DAY));
    let second = time.seconds.rem_euclid(civil::DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    if !(0..10_000).contains(&year) {
        let sign = if year < 0 { "-" } else { "" };
        return write!(f, "{sign}{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}", year.abs());
    }
    // Every object that is written has some: digit by digit is several times faster than by format strings.
    let mut text = *b"0000-00-00T00:00:00";
    let parts = [year / 100, year % 100, month, day, hour, minute, second];
    for (at, part) in [0, 2, 5, 8, 11, 14, 17].into_iter().zip(parts) {
        text[at] += (part / 10) as u8;
        text[at + 1] += (part % 10) as u8;
    }
    f.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?)
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&MicroTime(*self), f)
    }
}

impl FromStr for Time {
    type Err = ParseError;

    /// Reads RFC 3339 as Go reads it: any fraction and any offset, and a few forms that are not quite RFC 3339.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse::parse(parse::RFC3339, text)
    }
}

/// A point in time that is written with microseconds, in UTC: `2006-01-02T15:04:05.000000Z`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroTime(pub Time);

impl fmt::Display for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_date(f, self.0)?;
        write!(f, ".{:06}Z", self.0.nanos / 1000)
    }
}

impl fmt::Debug for MicroTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MicroTime {
    type Err = ParseError;

    /// Reads a date with exactly six digits of fraction.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse::parse(parse::RFC3339_MICRO, text).map(MicroTime)
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(timestamp: jiff::Timestamp) -> Self {
        let nanos = timestamp.as_nanosecond();
        let (seconds, nanos) = (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000));
        let seconds = i64::try_from(seconds).expect("a timestamp is within ten thousand years");
        Time::from_unix(seconds, u32::try_from(nanos).expect("less than a second"))
    }
}

impl From<jiff::Timestamp> for MicroTime {
    fn from(timestamp: jiff::Timestamp) -> Self {
        MicroTime(timestamp.into())
    }
}

impl From<Time> for jiff::Timestamp {
    /// A time beyond what a timestamp can be is the last, or first, timestamp.
    fn from(time: Time) -> Self {
        let nanos = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        let end = if nanos < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        jiff::Timestamp::from_nanosecond(nanos).unwrap_or(end)
    }
}

/// Both kinds of times are strings or `null` in JSON.
macro_rules! json {
    ($time:ty, $is_zero:expr) => {
        impl From<$time> for Value {
            fn from(time: $time) -> Self {
                if $is_zero(time) { Value::Null } else { time.to_string().into() }
            }
        }

        impl Serialize for $time {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if $is_zero(*self) { serializer.serialize_none() } else { serializer.collect_str(self) }
            }
        }

        impl<'de> Deserialize<'de> for $time {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)? {
                    None => Ok(<$time>::default()),
                    Some(text) => text.parse().map_err(de::Error::custom),
                }
            }
        }
    };
}

json!(Time, Time::is_zero);
json!(MicroTime, |time: MicroTime| time.0.is_zero());

#[cfg(test)]
mod tests;
