//! Addresses of networks, and URIs.

use std::net::Ipv6Addr;

/// An IPv4 or IPv6 address; parts may have leading zeros, as they had before Go took offence.
pub(super) fn is_sloppy_ip(text: &str) -> bool {
    match text.find(['.', ':']) {
        Some(at) if text.as_bytes()[at] == b'.' => is_sloppy_v4(text),
        Some(_) => is_sloppy_v6(text),
        None => false,
    }
}

pub(super) fn is_sloppy_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let bits = if address.find(['.', ':']).is_some_and(|at| address.as_bytes()[at] == b'.') { 32 } else { 128 };
    is_sloppy_ip(address) && number(length, 10).is_some_and(|length| length <= bits)
}

/// A number; Go counts no further than this.
fn number(text: &str, radix: u32) -> Option<u32> {
    const BIG: u32 = 0xFF_FFFF;
    if text.is_empty() {
        return None;
    }
    text.chars().try_fold(0, |n, c| Some(n * radix + c.to_digit(radix)?).filter(|&n| n < BIG))
}

fn is_sloppy_v4(text: &str) -> bool {
    let mut parts = 0;
    text.split('.').all(|part| {
        parts += 1;
        number(part, 10).is_some_and(|n| n <= 0xFF)
    }) && parts == 4
}

fn is_sloppy_v6(text: &str) -> bool {
    // Leading zeros are all that is sloppy; without them the strict parser decides.
    let mut strict = String::new();
    for (at, part) in text.split(':').enumerate() {
        if at > 0 {
            strict.push(':');
        }
        if part.contains('.') {
            if !is_sloppy_v4(part) {
                return false;
            }
            strict.push_str("1.1.1.1");
        } else if !part.is_empty() {
            match number(part, 16) {
                Some(n) if n <= 0xFFFF => strict.push('1'),
                _ => return false,
            }
        }
    }
    strict.parse::<Ipv6Addr>().is_ok()
}

pub(super) fn is_mac(text: &[u8]) -> bool {
    let (separator, every) = match text {
        [_, _, b @ (b':' | b'-'), ..] => (Some(*b), 2),
        [_, _, _, _, b'.', ..] => (Some(b'.'), 4),
        _ => (None, 2),
    };
    let mut digits = 0;
    let right = text.iter().enumerate().all(|(at, &b)| match separator {
        Some(separator) if at % (every + 1) == every => b == separator,
        _ => {
            digits += 1;
            b.is_ascii_hexdigit()
        }
    });
    let whole = separator.is_none() || (text.len() + 1).is_multiple_of(every + 1);
    right && whole && matches!(digits, 12 | 16 | 40)
}

/// What Go's `url.ParseRequestURI` takes: an absolute URI or an absolute path.
pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let (scheme, rest) = match split_scheme(text) {
        Some(split) => split,
        None => return false,
    };
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    let mut path = rest;
    if !scheme.is_empty()
        && let Some(behind) = rest.strip_prefix("//")
    {
        let end = behind.find('/').unwrap_or(behind.len());
        path = &behind[end..];
        if !is_authority(&scheme.to_ascii_lowercase(), &behind[..end]) {
            return false;
        }
    }
    are_escapes_right(path)
}

/// The scheme (may be empty) and what follows; nothing when the text begins with a colon.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (at, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return None,
            b':' => return Some((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Some(("", text))
}

fn are_escapes_right(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.len() >= 2 && part.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

fn is_authority(scheme: &str, authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let user_letter = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    is_host(scheme, host) && user.is_none_or(|user| user.bytes().all(user_letter) && are_user_escapes_right(user))
}

/// The escapes of a name and of a password are looked at apart.
fn are_user_escapes_right(user: &str) -> bool {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    are_escapes_right(name) && are_escapes_right(password)
}

fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit()))
}

fn is_host(scheme: &str, host: &str) -> bool {
    if host.rfind('[').is_some_and(|at| at > 0) {
        return false;
    }
    if let Some(inner) = host.strip_prefix('[') {
        let Some((address, port)) = inner.rsplit_once(']') else {
            return false;
        };
        let (address, zone) =
            address.split_once("%25").map_or((address, None), |(address, zone)| (address, Some(zone)));
        let zone_right = zone.is_none_or(|zone| !zone.is_empty() && are_host_letters(zone, true));
        return is_port(port) && zone_right && address.parse::<Ipv6Addr>().is_ok();
    }
    // More than one colon is an old habit that only web addresses have given up.
    let colon = if matches!(scheme, "http" | "https") { host.find(':') } else { host.rfind(':') };
    colon.is_none_or(|at| is_port(&host[at..])) && are_host_letters(host, false)
}

fn is_host_letter(b: u8) -> bool {
    !b.is_ascii() || b.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&b)
}

/// In a host only bytes beyond ASCII may be escaped; in a zone also those that may be written plainly, and the space.
fn are_host_letters(text: &str, zone: bool) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            if !is_host_letter(bytes[at]) {
                return false;
            }
            at += 1;
            continue;
        }
        let digits = text.get(at + 1..at + 3).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(value) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) else {
            return false;
        };
        let right = if zone { value == b' ' || (value.is_ascii() && is_host_letter(value)) } else { !value.is_ascii() };
        if !right && value != b'%' {
            return false;
        }
        at += 3;
    }
    true
}
