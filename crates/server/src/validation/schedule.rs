//! Schedules of cron jobs and the names of time zones.

use capstan_api::{Duration, go};

/// All zones of the tz database, between spaces and line breaks.
static ZONES: &str = include_str!("zones.txt");

/// A field of a schedule: its lowest and highest number, and the names of the numbers from the lowest on.
struct Bounds {
    min: u64,
    max: u64,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[] },
    Bounds { min: 0, max: 23, names: &[] },
    Bounds { min: 1, max: 31, names: &[] },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];
const DESCRIPTORS: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Whether the tz database has a zone of this name.
pub(super) fn is_zone(name: &str) -> bool {
    matches!(name, "" | "UTC" | "Local") || ZONES.split_ascii_whitespace().any(|zone| zone == name)
}

/// What is wrong with a schedule, in the words of the parser that upstream uses.
pub(super) fn schedule_error(schedule: &str) -> Option<String> {
    parse(schedule).err()
}

fn parse(schedule: &str) -> Result<(), String> {
    if schedule.is_empty() {
        return Err("empty spec string".to_owned());
    }
    let mut rest = schedule;
    if let Some(zoned) = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        let Some((zone, fields)) = zoned.split_once(' ') else {
            // What Go says of the parser's slip.
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
        };
        if !is_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = fields.trim();
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<_> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        let (wanted, found) = (FIELDS.len(), fields.len());
        return Err(format!("expected exactly {wanted} fields, found {found}: [{}]", fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for expression in field.split(',').filter(|expression| !expression.is_empty()) {
            range(expression, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        None => Err(format!("unrecognized descriptor: {text}")),
        Some(span) => {
            span.parse::<Duration>().map(|_| ()).map_err(|error| format!("failed to parse duration {text}: {error}"))
        }
    }
}

fn range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let mut range_and_step = expression.split('/');
    let limits: Vec<_> = range_and_step.next().unwrap_or("").split('-').collect();
    let (start, mut end) = match limits[..] {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [start] => {
            let start = number_or_name(start, bounds)?;
            (start, start)
        }
        [start, end] => (number_or_name(start, bounds)?, number_or_name(end, bounds)?),
        _ => {
            number_or_name(limits[0], bounds)?;
            return Err(format!("too many hyphens: {expression}"));
        }
    };
    let step = match (range_and_step.next(), range_and_step.next()) {
        (None, _) => 1,
        (Some(step), None) => {
            let step = number(step)?;
            if limits.len() == 1 {
                end = bounds.max;
            }
            step
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {expression}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {expression}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let lower = text.to_lowercase();
    let named = (bounds.min..).zip(bounds.names).find(|(_, name)| **name == lower);
    named.map_or_else(|| number(text), |(number, _)| Ok(number))
}

fn number(text: &str) -> Result<u64, String> {
    let number = go::atoi(text).map_err(|error| format!("failed to parse int from {text}: {error}"))?;
    u64::try_from(number).map_err(|_| format!("negative number ({number}) not allowed: {text}"))
}
