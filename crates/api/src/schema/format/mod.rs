//! Formats: their names, and for those of strings what upstream's checks accept.

mod email;
mod net;

use std::sync::LazyLock;

use regex::Regex;

use super::Format;

/// The formats and their names; of two names for one format the first is the usual one.
const FORMATS: [(Format, &str); 35] = [
    (Format::Int32, "int32"),
    (Format::Int64, "int64"),
    (Format::Float, "float"),
    (Format::Double, "double"),
    (Format::Byte, "byte"),
    (Format::Date, "date"),
    (Format::DateTime, "date-time"),
    (Format::DateTime, "datetime"),
    (Format::Quantity, "quantity"),
    (Format::IntOrString, "int-or-string"),
    (Format::MicroTime, "micro-time"),
    (Format::Duration, "duration"),
    (Format::Password, "password"),
    (Format::BsonObjectId, "bsonobjectid"),
    (Format::Uri, "uri"),
    (Format::Email, "email"),
    (Format::Hostname, "hostname"),
    (Format::Ipv4, "ipv4"),
    (Format::Ipv6, "ipv6"),
    (Format::Cidr, "cidr"),
    (Format::Mac, "mac"),
    (Format::Uuid, "uuid"),
    (Format::Uuid3, "uuid3"),
    (Format::Uuid4, "uuid4"),
    (Format::Uuid5, "uuid5"),
    (Format::Isbn, "isbn"),
    (Format::Isbn10, "isbn10"),
    (Format::Isbn13, "isbn13"),
    (Format::CreditCard, "creditcard"),
    (Format::Ssn, "ssn"),
    (Format::HexColor, "hexcolor"),
    (Format::RgbColor, "rgbcolor"),
    (Format::K8sShortName, "k8s-short-name"),
    (Format::K8sLongName, "k8s-long-name"),
    (Format::None, ""),
];

impl Format {
    /// The format called `name`, dashes aside, as upstream takes names; one that is not known is none.
    #[must_use]
    pub fn parse(name: &str) -> Format {
        let letters = |name: &'static str| name.bytes().filter(|&b| b != b'-');
        let known = FORMATS.iter().find(|(_, known)| letters(known).eq(name.bytes().filter(|&b| b != b'-')));
        known.map_or(Format::None, |(format, _)| *format)
    }

    /// The usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        FORMATS.iter().find(|(format, _)| *format == self).map_or("", |(_, name)| name)
    }

    /// Whether this is a format of strings in custom resources.
    #[must_use]
    pub fn is_of_strings(self) -> bool {
        use Format::{Double, Float, Int32, Int64, IntOrString, MicroTime, None, Quantity};
        !matches!(self, None | Int32 | Int64 | Float | Double | Quantity | IntOrString | MicroTime)
    }

    /// Whether `text` is of this format. Formats that are not of strings accept all.
    #[must_use]
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Format::Byte => is_base64(text.as_bytes()),
            Format::Date => is_date(text),
            Format::DateTime | Format::MicroTime => is_date_time(text),
            Format::Duration => is_duration(text),
            Format::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Format::Uri => net::is_request_uri(text),
            Format::Email => email::is_email(text),
            Format::Hostname => is_hostname(text),
            Format::Ipv4 => text.contains('.') && net::is_sloppy_ip(text),
            Format::Ipv6 => text.parse::<std::net::Ipv6Addr>().is_ok(),
            Format::Cidr => net::is_sloppy_cidr(text),
            Format::Mac => net::is_mac(text.as_bytes()),
            Format::Uuid => is_uuid(text, None, false),
            Format::Uuid3 => is_uuid(text, Some(b'3'), false),
            Format::Uuid4 => is_uuid(text, Some(b'4'), true),
            Format::Uuid5 => is_uuid(text, Some(b'5'), true),
            Format::Isbn => is_isbn10(text) || is_isbn13(text),
            Format::Isbn10 => is_isbn10(text),
            Format::Isbn13 => is_isbn13(text),
            Format::CreditCard => is_credit_card(text),
            Format::Ssn => is_ssn(text.as_bytes()),
            Format::HexColor => {
                let digits = text.strip_prefix('#').unwrap_or(text);
                matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
            }
            Format::RgbColor => RGB_COLOR.is_match(text),
            Format::K8sShortName => text.len() <= SHORT_NAME_MAX && is_short_name(text),
            Format::K8sLongName => text.len() <= LONG_NAME_MAX && text.split('.').all(is_short_name),
            Format::None
            | Format::Int32
            | Format::Int64
            | Format::Float
            | Format::Double
            | Format::Quantity
            | Format::IntOrString
            | Format::Password => true,
        }
    }
}

const SHORT_NAME_MAX: usize = 63;
const LONG_NAME_MAX: usize = 253;

fn is_short_name(text: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = |b: Option<&u8>| b.is_some_and(|&b| letter(b));
    let bytes = text.as_bytes();
    ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(|&b| letter(b) || b == b'-')
}

/// Standard base64, whole groups, at least one of them.
fn is_base64(text: &[u8]) -> bool {
    let Some((last, groups)) = text.split_last_chunk::<4>().map(|(groups, last)| (last, groups)) else {
        return false;
    };
    let digit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    let padding = last.iter().rev().take_while(|&&b| b == b'=').count();
    groups.len() % 4 == 0 && groups.iter().all(digit) && padding <= 2 && last[..4 - padding].iter().all(digit)
}

fn digits(text: &[u8]) -> Option<u32> {
    text.iter().all(u8::is_ascii_digit).then(|| text.iter().fold(0, |n, b| n * 10 + u32::from(b - b'0')))
}

fn is_date(text: &str) -> bool {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *text.as_bytes() else {
        return false;
    };
    let (Some(year), Some(month), Some(day)) = (digits(&[y1, y2, y3, y4]), digits(&[m1, m2]), digits(&[d1, d2])) else {
        return false;
    };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=last).contains(&day)
}

/// A date, `t`, a time of day. What follows a second `t` is not looked at.
fn is_date_time(text: &str) -> bool {
    let mut parts = text.split(['t', 'T']);
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    let Some(found) = TIME_OF_DAY.captures(time) else {
        return false;
    };
    is_date(date) && found[1] <= *"23" && found[2] <= *"59" && found[3] <= *"59"
}

static TIME_OF_DAY: LazyLock<Regex> =
    LazyLock::new(|| expression("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?([zZ]|([+-][0-9]{2}:[0-9]{2}))$"));

static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"[\t\n\x0C\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\x0C\r ]*";
    expression(&format!(r"^rgb\({part},{part},{part}\)$"))
});

static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    expression(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}\
         |(?:2131|1800|35[0-9]{3})[0-9]{11})$",
    )
});

/// A letter or symbol beyond ASCII.
static SYMBOL: LazyLock<Regex> = LazyLock::new(|| expression(r"^[\p{S}\p{L}]$"));
static LETTER: LazyLock<Regex> = LazyLock::new(|| expression(r"^\p{L}$"));

fn expression(text: &str) -> Regex {
    Regex::new(text).expect("the expressions of formats are right")
}

const UNITS: [&[&str]; 8] = [
    &["ns", "nano"],
    &["us", "µs", "micro"],
    &["ms", "milli"],
    &["s", "sec"],
    &["m", "min"],
    &["h", "hr", "hour"],
    &["d", "day"],
    &["w", "wk", "week"],
];

/// Go's durations, or any text with numbers before units in it.
fn is_duration(text: &str) -> bool {
    if is_go_duration(text) {
        return true;
    }
    let (mut rest, mut found) = (text, false);
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[at..];
        let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, behind) = number.split_at(end);
        let spaced = behind.trim_start_matches(['\t', '\n', '\x0c', '\r', ' ']);
        let end = spaced.find(|c: char| !c.is_ascii_alphabetic() && c != 'µ').unwrap_or(spaced.len());
        let (unit, behind_unit) = spaced.split_at(end);
        if unit.is_empty() {
            rest = behind;
            continue;
        }
        if number.parse::<i64>().is_err() {
            return false;
        }
        let unit = unit.to_ascii_lowercase();
        found |= UNITS.iter().any(|variants| {
            let (last, others) = variants.split_last().expect("every unit has names");
            unit.starts_with(last) || others.contains(&unit.as_str())
        });
        rest = behind_unit;
    }
    found
}

fn is_go_duration(text: &str) -> bool {
    const NANOSECONDS: [(&str, u64); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("μs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("m", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let negative = text.starts_with('-');
    let mut total = 0u64;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, behind) = rest.split_at(number_end);
        let unit_end = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let Some((_, scale)) = NANOSECONDS.iter().find(|(name, _)| *name == unit) else {
            return false;
        };
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return false;
        }
        let whole = if whole.is_empty() { Some(0) } else { whole.parse::<u64>().ok() };
        let part = format!("0.{fraction}0").parse::<f64>().unwrap_or_default() * *scale as f64;
        let value = whole.and_then(|whole| whole.checked_mul(*scale)).and_then(|value| value.checked_add(part as u64));
        match value.and_then(|value| total.checked_add(value)).filter(|&total| total <= 1 << 63) {
            Some(sum) => total = sum,
            None => return false,
        }
        rest = behind;
    }
    !text.is_empty() && text != "-" && text != "+" && (negative || total < 1 << 63)
}

/// One label (in which only the second character may be a dash), or labels and a top-level domain of letters.
fn is_hostname(text: &str) -> bool {
    const MAX: usize = 255;
    const LABEL_MAX: usize = 63;
    if text.len() > MAX || text.split('.').any(|label| label.len() > LABEL_MAX) {
        return false;
    }
    let beyond = |c: char, class: &Regex| !c.is_ascii() && class.is_match(c.encode_utf8(&mut [0; 4]));
    let symbol = |c: char| c.is_ascii_alphanumeric() || "$+<=>^`|~".contains(c) || beyond(c, &SYMBOL);
    let Some((labels, top)) = text.rsplit_once('.') else {
        let mut letters = text.chars();
        let first = letters.next();
        let rest = letters.as_str();
        return first.is_some_and(symbol) && rest.strip_prefix('-').unwrap_or(rest).chars().all(symbol);
    };
    let label = |label: &str| {
        let mut ends = label.chars();
        let first = ends.next();
        let last = ends.next_back().or(first);
        first.is_some_and(symbol) && last.is_some_and(symbol) && label.chars().all(|c| c == '-' || symbol(c))
    };
    let top_letter = |c: char| c.is_ascii_alphabetic() || beyond(c, &LETTER);
    labels.split('.').all(label) && top.chars().count() >= 2 && top.chars().all(top_letter)
}

/// Hexadecimal digits in groups, with dashes between them or without.
fn is_uuid(text: &str, version: Option<u8>, variant: bool) -> bool {
    let mut bytes = text.as_bytes();
    for (group, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if group > 0 {
            bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
        }
        let Some((digits, rest)) = bytes.split_at_checked(length) else {
            return false;
        };
        let right = match group {
            2 => version.is_none_or(|version| digits[0] == version),
            3 => !variant || matches!(digits[0], b'8' | b'9' | b'a' | b'b' | b'A' | b'B'),
            _ => true,
        };
        if !right || !digits.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        bytes = rest;
    }
    bytes.is_empty()
}

fn without_spaces_and_dashes(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !matches!(b, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ' | b'-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let text = without_spaces_and_dashes(text);
    let value = |(at, b): (usize, &u8)| match b {
        b'0'..=b'9' => Some((at + 1) * usize::from(b - b'0')),
        b'X' if at == 9 => Some(100),
        _ => None,
    };
    text.len() == 10 && text.iter().enumerate().map(value).sum::<Option<usize>>().is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let text = without_spaces_and_dashes(text);
    let value = |(at, b): (usize, &u8)| b.is_ascii_digit().then(|| [1, 3][at % 2] * usize::from(b - b'0'));
    text.len() == 13 && text.iter().enumerate().map(value).sum::<Option<usize>>().is_some_and(|sum| sum % 10 == 0)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let luhn = |(at, b): (usize, u8)| {
        let doubled = u32::from(b - b'0') * if at % 2 == 1 { 2 } else { 1 };
        doubled / 10 + doubled % 10
    };
    CREDIT_CARD.is_match(&digits) && digits.bytes().rev().enumerate().map(luhn).sum::<u32>() % 10 == 0
}

fn is_ssn(text: &[u8]) -> bool {
    let right = |(at, b): (usize, &u8)| if at == 3 || at == 6 { matches!(b, b'-' | b' ') } else { b.is_ascii_digit() };
    text.len() == 11 && text.iter().enumerate().all(right)
}

#[cfg(test)]
mod tests;
