//! Reading dates as Go's `time.Parse` reads them: what it accepts, what it refuses, and its words for it.

use std::fmt;

use super::{Time, civil};

/// Text that is not a date in the form that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    layout: &'static str,
    value: String,
    wrong: Wrong,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wrong {
    /// This rest of the text does not begin with this element of the form.
    Element { rest: String, element: &'static str },
    /// This part is a number that it cannot have.
    Range(&'static str),
    /// More text behind the end.
    Extra(String),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "parsing time {}", quote(&self.value))?;
        match &self.wrong {
            Wrong::Element { rest, element } => {
                let (layout, rest, element) = (quote(self.layout), quote(rest), quote(element));
                write!(f, " as {layout}: cannot parse {rest} as {element}")
            }
            Wrong::Range(part) => write!(f, ": {part} out of range"),
            Wrong::Extra(rest) => write!(f, ": extra text: {}", quote(rest)),
        }
    }
}

impl std::error::Error for ParseError {}

/// How Go's `time` quotes: byte by byte, anything but printable ASCII as `\x..`.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.bytes() {
        match c {
            b'"' | b'\\' => out.extend(['\\', char::from(c)]),
            0..0x20 | 0x80.. => out.push_str(&format!("\\x{c:02x}")),
            _ => out.push(char::from(c)),
        }
    }
    out.push('"');
    out
}

/// A date with the seconds, whatever their fraction.
pub(super) const RFC3339: &str = "2006-01-02T15:04:05Z07:00";
/// A date with microseconds, exactly six digits of them.
pub(super) const RFC3339_MICRO: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Reads `text` in the form of `layout`, which is one of the two above.
pub(super) fn parse(layout: &'static str, text: &str) -> Result<Time, ParseError> {
    let mut input = Input { rest: text };
    input.time(layout == RFC3339_MICRO).map_err(|wrong| ParseError { layout, value: text.to_owned(), wrong })
}

struct Input<'a> {
    rest: &'a str,
}

fn digit(text: &[u8], at: usize) -> Option<i64> {
    text.get(at).filter(|c| c.is_ascii_digit()).map(|c| i64::from(c - b'0'))
}

impl<'a> Input<'a> {
    fn time(&mut self, micro: bool) -> Result<Time, Wrong> {
        let year = self.year()?;
        self.skip("-")?;
        let month = self.number("01", true)?;
        in_range(1, month, 12, "month")?;
        self.skip("-")?;
        let day = self.number("02", true)?;
        self.skip("T")?;
        // An hour may have one digit: odd, but that is what Go accepts.
        let hour = self.number("15", false)?;
        in_range(0, hour, 23, "hour")?;
        self.skip(":")?;
        let minute = self.number("04", true)?;
        in_range(0, minute, 59, "minute")?;
        self.skip(":")?;
        let second = self.number("05", true)?;
        in_range(0, second, 59, "second")?;
        let nanos = if micro { self.six_digits()? } else { self.fraction() };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(Wrong::Extra(self.rest.to_owned()));
        }
        // Only now it is known how long the month is.
        in_range(1, day, civil::days_in(year, month), "day")?;
        let seconds = civil::days(year, month, day) * civil::DAY + hour * 3600 + minute * 60 + second - offset;
        Ok(Time { seconds, nanos })
    }

    fn wrong(&self, element: &'static str) -> Wrong {
        Wrong::Element { rest: self.rest.to_owned(), element }
    }

    fn skip(&mut self, text: &'static str) -> Result<(), Wrong> {
        self.rest = self.rest.strip_prefix(text).ok_or_else(|| self.wrong(text))?;
        Ok(())
    }

    fn year(&mut self) -> Result<i64, Wrong> {
        let (year, rest) = self.rest.split_at_checked(4).ok_or_else(|| self.wrong("2006"))?;
        if !year.bytes().all(|c| c.is_ascii_digit()) {
            return Err(self.wrong("2006"));
        }
        self.rest = rest;
        Ok(year.bytes().fold(0, |n, c| n * 10 + i64::from(c - b'0')))
    }

    /// Two digits, or one where that is enough.
    fn number(&mut self, element: &'static str, two: bool) -> Result<i64, Wrong> {
        let bytes = self.rest.as_bytes();
        let (number, size) = match (digit(bytes, 0), digit(bytes, 1)) {
            (Some(ten), Some(one)) => (ten * 10 + one, 2),
            (Some(one), None) if !two => (one, 1),
            _ => return Err(self.wrong(element)),
        };
        self.rest = &self.rest[size..];
        Ok(number)
    }

    /// A fraction of any length, if there is one; beyond nanoseconds it is cut off.
    fn fraction(&mut self) -> u32 {
        let bytes = self.rest.as_bytes();
        let digits = bytes.iter().skip(1).take_while(|c| c.is_ascii_digit()).count();
        if !matches!(bytes.first(), Some(b'.' | b',')) || digits == 0 {
            return 0;
        }
        let nanos = (1..=9).fold(0, |n, at| n * 10 + if at <= digits { u32::from(bytes[at] - b'0') } else { 0 });
        self.rest = &self.rest[1 + digits..];
        nanos
    }

    /// A fraction of exactly six digits. Go reads it as a number that may have a sign.
    fn six_digits(&mut self) -> Result<u32, Wrong> {
        let element = ".000000";
        let (text, rest) = self.rest.split_at_checked(element.len()).ok_or_else(|| self.wrong(element))?;
        let number = text.strip_prefix(['.', ',']).and_then(|digits| digits.parse::<i32>().ok());
        let micros = number.ok_or_else(|| self.wrong(element))?;
        self.rest = rest;
        u32::try_from(micros).map(|micros| micros * 1000).map_err(|_| Wrong::Range("fractional second"))
    }

    /// `Z` or `+07:00`, in seconds east.
    fn offset(&mut self) -> Result<i64, Wrong> {
        let element = "Z07:00";
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let &[sign, h1, h2, b':', m1, m2, ..] = self.rest.as_bytes() else { return Err(self.wrong(element)) };
        let two = |tens, ones| Some(digit(&[tens], 0)? * 10 + digit(&[ones], 0)?);
        let (hours, minutes) = (two(h1, h2), two(m1, m2));
        // Go looks at the numbers before it looks at the sign, and at the minutes only behind good hours. The last
        // range that is wrong is the one it tells.
        let minutes = hours.and(minutes);
        if minutes.is_some_and(|m| m > 60) {
            return Err(Wrong::Range("time zone offset minute"));
        }
        if hours.is_some_and(|h| h > 24) {
            return Err(Wrong::Range("time zone offset hour"));
        }
        let sign = match sign {
            b'+' => 1,
            b'-' => -1,
            _ => return Err(self.wrong(element)),
        };
        let (Some(hours), Some(minutes)) = (hours, minutes) else { return Err(self.wrong(element)) };
        self.rest = &self.rest[element.len()..];
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

fn in_range(min: i64, n: i64, max: i64, part: &'static str) -> Result<(), Wrong> {
    if (min..=max).contains(&n) { Ok(()) } else { Err(Wrong::Range(part)) }
}
