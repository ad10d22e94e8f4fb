//! Points in time and spans of time.

use std::fmt;

use capstan_api::{Duration, Time, go, time::ParseError};

use super::{Call, Impl, fail, int};
use crate::value::{Outcome, Val};

const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;
const NANOS: i64 = 1_000_000_000;
const DAY: i64 = 86_400;

/// A point in time, and how far from UTC it was written.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds on top of them.
    pub nanos: u32,
    /// Seconds east of UTC.
    pub offset: i32,
}

impl Stamp {
    pub(crate) fn new(seconds: i64, nanos: u32, offset: i32) -> Option<Self> {
        Stamp { seconds, nanos, offset }.in_range()
    }

    pub(crate) fn in_range(self) -> Option<Self> {
        (MIN_SECONDS..=MAX_SECONDS).contains(&self.seconds).then_some(self)
    }

    pub(crate) fn instant(self) -> (i64, u32) {
        (self.seconds, self.nanos)
    }

    pub(crate) fn is_zero(self) -> bool {
        self.instant() == (MIN_SECONDS, 0)
    }

    fn total(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOS) + i128::from(self.nanos)
    }

    pub(crate) fn plus(self, nanos: i64) -> Option<Self> {
        let total = self.total() + i128::from(nanos);
        let seconds = i64::try_from(total.div_euclid(NANOS.into())).ok()?;
        let nanos = u32::try_from(total.rem_euclid(NANOS.into())).ok()?;
        Stamp::new(seconds, nanos, self.offset)
    }

    pub(crate) fn since(self, other: Stamp) -> Option<i64> {
        i64::try_from(self.total() - other.total()).ok()
    }

    /// As messages show it.
    pub(crate) fn show(self) -> String {
        self.to_string()
    }
}

/// RFC 3339 with as much of a fraction as there is.
impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = Fields::of(*self, self.offset);
        write!(f, "{:04}-{:02}-{:02}T", fields.year, fields.month, fields.day)?;
        write!(f, "{:02}:{:02}:{:02}", fields.hour, fields.minute, fields.second)?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let minutes = self.offset.abs() / 60;
        write!(f, "{}{:02}:{:02}", if self.offset < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
    }
}

/// A point in time as a calendar and a clock show it.
struct Fields {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Fields {
    fn of(stamp: Stamp, offset: i32) -> Self {
        let local = stamp.seconds + i64::from(offset);
        let (days, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        let (year, month, day) = civil(days);
        Fields {
            year,
            month,
            day,
            day_of_year: days - days_until(year),
            weekday: (days + 4).rem_euclid(7),
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

/// The days from 1970 to the first day of a year.
fn days_until(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

/// Year, month and day. Years begin in March here, so that the leap day comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

/// Reads RFC 3339.
pub(crate) fn parse(text: &str) -> Result<Stamp, ParseError> {
    let time: Time = text.parse()?;
    Ok(Stamp { seconds: time.unix_seconds(), nanos: time.subsec_nanos(), offset: offset_of(text) })
}

/// How far from UTC a date that was read says it is.
fn offset_of(text: &str) -> i32 {
    let Some(at) = text.len().checked_sub(6) else { return 0 };
    let Some(zone) = text.get(at..) else { return 0 };
    let sign = match zone.as_bytes()[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return 0,
    };
    let number = |from: usize, to: usize| zone.get(from..to).and_then(|text| text.parse::<i32>().ok()).unwrap_or(0);
    sign * (number(1, 3) * 3600 + number(4, 6) * 60)
}

/// Reads a date without a time.
pub(crate) fn parse_date(text: &str) -> Result<Stamp, String> {
    let wrong = || {
        format!(
            "parsing time {} as \"2006-01-02\": cannot parse {} as \"2006-01-02\"",
            go::quote(text),
            go::quote(text)
        )
    };
    if text.len() != 10 {
        return Err(wrong());
    }
    parse(&format!("{text}T00:00:00Z")).map_err(|_| wrong())
}

/// Reads a date and a time as OpenAPI's formats have them.
pub(crate) fn open_api_date_time(text: &str) -> Result<Stamp, String> {
    if text.is_empty() {
        return Ok(Stamp { seconds: 0, nanos: 0, offset: 0 });
    }
    // Several forms are tried upstream, and the message is about the last of them, which has no zone.
    let last = |error: ParseError| error.to_string().replacen("05Z07:00", "05", 1);
    parse(text).map_err(last).or_else(|error| parse(&format!("{text}Z")).map_err(|_| error))
}

/// The names of units that Go does not know, in nanoseconds.
const UNITS: [(&str, i64); 15] = [
    ("ns", 1),
    ("nano", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("micro", 1_000),
    ("ms", 1_000_000),
    ("milli", 1_000_000),
    ("s", NANOS),
    ("sec", NANOS),
    ("m", 60 * NANOS),
    ("min", 60 * NANOS),
    ("h", 3600 * NANOS),
    ("hr", 3600 * NANOS),
    ("d", DAY * NANOS),
    ("w", 7 * DAY * NANOS),
];

/// Reads a span of time as OpenAPI's formats have it: Go's durations, or numbers before units.
pub(crate) fn open_api_duration(text: &str) -> Result<i64, String> {
    if let Ok(duration) = text.parse::<Duration>() {
        return Ok(duration.0);
    }
    let wrong = || format!("unable to parse {text} as duration");
    let (mut total, mut found, mut rest) = (0_i64, false, text);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[at..];
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let unit = number[end..].trim_start();
        let length = unit.find(|c: char| !c.is_alphabetic()).unwrap_or(unit.len());
        let name = &unit[..length];
        let size = match name {
            "hour" | "hours" => 3600 * NANOS,
            "day" | "days" => DAY * NANOS,
            "wk" | "week" | "weeks" => 7 * DAY * NANOS,
            _ => {
                UNITS
                    .iter()
                    .find(|(known, _)| *known == name.trim_end_matches('s') || *known == name)
                    .ok_or_else(wrong)?
                    .1
            }
        };
        let number: i64 = number[..end].parse().map_err(|_| wrong())?;
        total = total.saturating_add(number.saturating_mul(size));
        (found, rest) = (true, &unit[length..]);
    }
    if found { Ok(total) } else { Err(wrong()) }
}

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "getFullYear" => |call| field(call, |fields| fields.year),
        "getMonth" => |call| field(call, |fields| fields.month - 1),
        "getDayOfYear" => |call| field(call, |fields| fields.day_of_year),
        "getDayOfMonth" => |call| field(call, |fields| fields.day - 1),
        "getDate" => |call| field(call, |fields| fields.day),
        "getDayOfWeek" => |call| field(call, |fields| fields.weekday),
        "getHours" => |call| match call.args {
            [Val::Duration(nanos)] => int(nanos / (3600 * NANOS)),
            _ => field(call, |fields| fields.hour),
        },
        "getMinutes" => |call| match call.args {
            [Val::Duration(nanos)] => int(nanos / (60 * NANOS)),
            _ => field(call, |fields| fields.minute),
        },
        "getSeconds" => |call| match call.args {
            [Val::Duration(nanos)] => int(nanos / NANOS),
            _ => field(call, |fields| fields.second),
        },
        "getMilliseconds" => |call| match call.args {
            [Val::Duration(nanos)] => int(nanos / 1_000_000),
            [Val::Timestamp(stamp)] | [Val::Timestamp(stamp), _] => int(stamp.nanos / 1_000_000),
            _ => None,
        },
        _ => return None,
    })
}

fn field<'a>(call: &Call<'_, 'a>, of: fn(&Fields) -> i64) -> Option<Outcome<'a>> {
    match call.args {
        [Val::Timestamp(stamp)] => int(of(&Fields::of(*stamp, 0))),
        [Val::Timestamp(stamp), Val::String(zone)] => match zone_offset(zone) {
            Ok(offset) => int(of(&Fields::of(*stamp, offset))),
            Err(error) => fail(error),
        },
        _ => None,
    }
}

/// How far from UTC a zone is. Only UTC and offsets are known: what names of places mean changes with the years.
fn zone_offset(zone: &str) -> Result<i32, String> {
    let Some((hours, minutes)) = zone.split_once(':') else {
        return match zone {
            "" | "UTC" => Ok(0),
            _ => Err(format!("unknown time zone {zone}")),
        };
    };
    let number = |text: &str| go::atoi(text).map_err(|error| error.to_string());
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    let minutes = if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes };
    i32::try_from(minutes.saturating_mul(60)).map_err(|_| format!("unknown time zone {zone}"))
}
