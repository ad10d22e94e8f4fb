//! Semantic versions.

use std::{cmp::Ordering, fmt};

use super::{Call, Impl, fail, int, yes};
use crate::value::Val;

/// A version.
#[derive(Debug)]
pub struct Version {
    numbers: [u64; 3],
    pre: Vec<String>,
    build: Vec<String>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre.join("."))?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build.join("."))?;
        }
        Ok(())
    }
}

impl Version {
    /// The order; builds do not count.
    pub(crate) fn compare(&self, other: &Version) -> Ordering {
        let numbers = self.numbers.cmp(&other.numbers);
        if numbers != Ordering::Equal {
            return numbers;
        }
        match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        for (a, b) in self.pre.iter().zip(&other.pre) {
            let order = match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            };
            if order != Ordering::Equal {
                return order;
            }
        }
        self.pre.len().cmp(&other.pre.len())
    }
}

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "semver" => |call| match parse_call(call)? {
            Ok(version) => Some(Ok(Val::Semver(version.into()))),
            Err(error) => fail(error),
        },
        "isSemver" => |call| yes(parse_call(call)?.is_ok()),
        "major" => |call| number(call, 0),
        "minor" => |call| number(call, 1),
        "patch" => |call| number(call, 2),
        _ => return None,
    })
}

fn number<'a>(call: &Call<'_, 'a>, which: usize) -> Option<crate::value::Outcome<'a>> {
    match call.args {
        [Val::Semver(version)] => int(version.numbers[which]),
        _ => None,
    }
}

fn parse_call(call: &Call<'_, '_>) -> Option<Result<Version, String>> {
    match call.args {
        [Val::String(text)] | [Val::String(text), Val::Bool(false)] => Some(parse(text)),
        [Val::String(text), Val::Bool(true)] => Some(normalize(text).and_then(|text| parse(&text))),
        _ => None,
    }
}

/// Makes a version of what is nearly one: a `v` in front, zeros in front of numbers, numbers that are missing.
fn normalize(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
    for part in parts.iter_mut().filter(|part| part.len() > 1) {
        let stripped = part.trim_start_matches('0');
        let zero = if stripped.starts_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
        *part = format!("{zero}{stripped}");
    }
    if parts.len() < 3 {
        if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err("short version cannot contain PreRelease/Build meta data".to_owned());
        }
        parts.resize(3, "0".to_owned());
    }
    Ok(parts.join("."))
}

fn parse_number(name: &str, text: &str) -> Result<u64, String> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {} number \"{text}\"", name.to_ascii_lowercase()));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{name} number must not contain leading zeroes \"{text}\""));
    }
    text.parse().map_err(|error: std::num::ParseIntError| match error.kind() {
        std::num::IntErrorKind::Empty => "strconv.ParseUint: parsing \"\": invalid syntax".to_owned(),
        _ => format!("strconv.ParseUint: parsing \"{text}\": value out of range"),
    })
}

pub(crate) fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts[..] else {
        return Err("No Major.Minor.Patch elements found".to_owned());
    };
    let (major, minor) = (parse_number("Major", major)?, parse_number("Minor", minor)?);
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let patch = parse_number("Patch", patch)?;
    let is_part = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let mut version = Version { numbers: [major, minor, patch], pre: Vec::new(), build: Vec::new() };
    for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
        if part.is_empty() {
            return Err("Prerelease is empty".to_owned());
        }
        if part.bytes().all(|b| b.is_ascii_digit()) {
            if part.len() > 1 && part.starts_with('0') {
                return Err(format!("Numeric PreRelease version must not contain leading zeroes \"{part}\""));
            }
        } else if !is_part(part) {
            return Err(format!("Invalid character(s) found in prerelease \"{part}\""));
        }
        version.pre.push(part.to_owned());
    }
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !is_part(part) {
            return Err(format!("Invalid character(s) found in build meta data \"{part}\""));
        }
        version.build.push(part.to_owned());
    }
    Ok(version)
}
