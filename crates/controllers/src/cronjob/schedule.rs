//! When a CronJob runs: schedules as robfig's cron reads them.

use std::time::Duration;

use capstan_clock::Timestamp;
use k8s_openapi::jiff::{Span, civil, tz::TimeZone};

/// A schedule that does not come within these years never comes.
const YEARS: i16 = 5;

/// The descriptors that stand for schedules.
const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A field: what it may be, and the names that its values have.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds { min: 1, max: 12, names: &MONTHS },
    Bounds { min: 0, max: 6, names: &DAYS },
];

/// The values of a field as bits, and whether all were asked for by a star.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    bits: u64,
    star: bool,
}

impl Field {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.bits >> value & 1 == 1)
    }
}

/// When something is to happen.
#[derive(Clone, Debug)]
pub(super) enum Schedule {
    /// At certain minutes, in a time zone.
    Calendar {
        /// Minute, hour, day of month, month, day of week.
        fields: [Field; 5],
        /// Where.
        zone: TimeZone,
    },
    /// So long after the last time.
    Every(Duration),
}

impl Schedule {
    /// Reads a schedule, which may begin with `TZ=` or `CRON_TZ=` and a time zone.
    ///
    /// # Errors
    /// In robfig's words.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let (mut zone, mut spec) = (TimeZone::UTC, text);
        if let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            zone = time_zone(name).map_err(|error| format!("provided bad location {name}: {error}"))?;
            spec = rest.trim();
        }
        if let Some(every) = spec.strip_prefix("@every ") {
            let every: capstan_api::Duration =
                every.parse().map_err(|error| format!("failed to parse duration {spec}: {error}"))?;
            let seconds = every.as_secs().max(1);
            return Ok(Schedule::Every(Duration::from_secs(seconds.unsigned_abs())));
        }
        if spec.starts_with('@') {
            let known = DESCRIPTORS.iter().find(|(name, _)| *name == spec);
            spec = known.ok_or_else(|| format!("unrecognized descriptor: {spec}"))?.1;
        }
        let words: Vec<&str> = spec.split_whitespace().collect();
        let Ok(words) = <[&str; 5]>::try_from(words.as_slice()) else {
            let found = words.join(" ");
            return Err(format!("expected exactly 5 fields, found {}: [{found}]", words.len()));
        };
        let mut fields = [Field { bits: 0, star: false }; 5];
        for ((field, word), bounds) in fields.iter_mut().zip(words).zip(&FIELDS) {
            *field = parse_field(word, bounds)?;
        }
        Ok(Schedule::Calendar { fields, zone })
    }

    /// The first time after another one; none if there is none for years.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Schedule::Every(every) => Timestamp::from_second(after.as_second()).ok()?.checked_add(*every).ok(),
            Schedule::Calendar { fields, zone } => next_minute(fields, zone, after),
        }
    }
}

/// The time zone of a name.
pub(super) fn time_zone(name: &str) -> Result<TimeZone, String> {
    match name {
        "" | "UTC" => Ok(TimeZone::UTC),
        name => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}")),
    }
}

fn parse_field(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let mut field = Field { bits: 0, star: false };
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let range = parse_range(part, bounds)?;
        field.bits |= range.bits;
        field.star |= range.star;
    }
    Ok(field)
}

/// `number`, `*`, `first-last`, each with `/step`.
fn parse_range(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let (range, step) = match text.split_once('/') {
        None => (text, None),
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {text}")),
        Some((range, step)) => (range, Some(parse_number(step)?)),
    };
    let star = range == "*" || range == "?";
    let (first, last) = if star {
        (bounds.min, bounds.max)
    } else {
        match range.split_once('-') {
            Some((_, last)) if last.contains('-') => return Err(format!("too many hyphens: {text}")),
            Some((first, last)) => (parse_value(first, bounds)?, parse_value(last, bounds)?),
            None => {
                let first = parse_value(range, bounds)?;
                // A number with a step goes on to the end.
                (first, if step.is_some() { bounds.max } else { first })
            }
        }
    };
    let step_by = step.unwrap_or(1);
    if first < bounds.min {
        return Err(format!("beginning of range ({first}) below minimum ({}): {text}", bounds.min));
    }
    if last > bounds.max {
        return Err(format!("end of range ({last}) above maximum ({}): {text}", bounds.max));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {text}"));
    }
    if step_by == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let bits = (first..=last).step_by(usize::try_from(step_by).unwrap_or(usize::MAX)).fold(0, |bits, n| bits | 1 << n);
    Ok(Field { bits, star: star && step_by == 1 })
}

fn parse_value(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| *name == lower) {
        Some(at) => Ok(u32::try_from(at).unwrap_or_default() + bounds.min),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Result<u32, String> {
    text.parse::<i64>()
        .map_err(|_| format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"))
        .and_then(|number| u32::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}")))
}

/// Goes from what does not fit to the next that might: months, days, hours, minutes. Hours and minutes are counted in
/// real time, so that an hour that comes twice counts twice and one that is left out does not count.
fn next_minute(fields: &[Field; 5], zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let [minute, hour, day, month, weekday] = *fields;
    let second = after.as_second().checked_add(60)?;
    let mut now = Timestamp::from_second(second - second.rem_euclid(60)).ok()?.to_zoned(zone.clone());
    let last_year = now.year().saturating_add(YEARS);
    while now.year() <= last_year {
        let date = now.date();
        let of_week = weekday.has(date.weekday().to_sunday_zero_offset());
        let of_month = day.has(date.day());
        let day_fits = if day.star || weekday.star { of_week && of_month } else { of_week || of_month };
        let start = |date: civil::Date| date.to_zoned(zone.clone()).ok();
        now = if !month.has(date.month()) {
            start(date.first_of_month().checked_add(Span::new().months(1)).ok()?)?
        } else if !day_fits {
            start(date.tomorrow().ok()?)?
        } else if !hour.has(now.hour()) {
            let left = i64::from(60 - now.minute());
            now.checked_add(Span::new().minutes(left)).ok()?
        } else if !minute.has(now.minute()) {
            now.checked_add(Span::new().minutes(1)).ok()?
        } else {
            return Some(now.timestamp());
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times that follow one another, in UTC without seconds.
    fn check(schedule: &str, after: &str, expected: &[&str]) {
        let schedule = Schedule::parse(schedule).unwrap();
        let mut now: Timestamp = after.parse().unwrap();
        for expected in expected {
            now = schedule.next(now).unwrap();
            assert_eq!(now.to_string(), *expected, "{schedule:?} after {after}");
        }
    }

    #[test]
    fn times() {
        check("*/15 * * * *", "2026-07-09T14:45:00Z", &["2026-07-09T15:00:00Z", "2026-07-09T15:15:00Z"]);
        check("20-35/15 * * * *", "2026-07-09T14:45:30Z", &["2026-07-09T15:20:00Z", "2026-07-09T15:35:00Z"]);
        check("5/20 3 * * *", "2026-07-09T03:06:00Z", &["2026-07-09T03:25:00Z", "2026-07-09T03:45:00Z"]);
        check("30 08 ? Jul Sun", "2026-07-15T00:00:00Z", &["2026-07-19T08:30:00Z", "2026-07-26T08:30:00Z"]);
        check("0 0 29 Feb ?", "2026-07-15T00:00:00Z", &["2028-02-29T00:00:00Z"]);
        // A day of the month or a day of the week, if both are given.
        check("0 0 1,15 * Sun", "2026-07-09T00:00:00Z", &["2026-07-12T00:00:00Z", "2026-07-15T00:00:00Z"]);
        check("0 0 */10 * Sun", "2026-07-09T00:00:00Z", &["2026-07-11T00:00:00Z", "2026-07-12T00:00:00Z"]);
        check("@hourly", "2026-12-31T23:30:00Z", &["2027-01-01T00:00:00Z"]);
        check("@every 1h30m", "2026-01-01T00:10:07.5Z", &["2026-01-01T01:40:07Z", "2026-01-01T03:10:07Z"]);
        check("TZ=Asia/Tokyo 0 9 * * *", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]);
        // New York: half past two is left out in March, half past one comes twice in November.
        check("TZ=America/New_York 30 2 * * *", "2026-03-08T00:00:00Z", &["2026-03-09T06:30:00Z"]);
        let twice = ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"];
        check("CRON_TZ=America/New_York 30 1 * * *", "2026-11-01T04:00:00Z", &twice);
        assert_eq!(Schedule::parse("59 23 31 2 *").unwrap().next("2026-01-01T00:00:00Z".parse().unwrap()), None);
    }

    #[test]
    fn nonsense() {
        for (text, expected) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
            ("TZ=Nowhere * * * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        ] {
            assert_eq!(Schedule::parse(text).unwrap_err(), expected, "{text}");
        }
    }
}
