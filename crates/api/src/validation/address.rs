//! IP addresses and CIDRs, as new fields take them and as old fields took them.

use std::net::{IpAddr, Ipv6Addr};

use crate::{
    field::{Error, ErrorList, Path},
    go,
};

/// Takes zeros away that do not count: old fields take `010.0.0.1` for `10.0.0.1`.
fn without_leading_zeros(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut group_begins = true;
    for (at, c) in text.char_indices() {
        let more = text.as_bytes().get(at + 1).is_some_and(u8::is_ascii_hexdigit);
        if group_begins && c == '0' && more {
            continue;
        }
        group_begins = matches!(c, '.' | ':');
        out.push(c);
    }
    out
}

/// Reads an address as old fields take it: zeros in front of a number don't count.
#[must_use]
pub fn parse_ip_sloppy(text: &str) -> Option<IpAddr> {
    without_leading_zeros(text).parse().ok()
}

/// Prints as Go does, where an IPv4 address in IPv6 is an IPv4 address.
fn print(ip: IpAddr) -> String {
    ip.to_canonical().to_string()
}

fn is_4_in_6(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

fn parse_ip(path: &Path<'_>, value: &str, strict: bool) -> Result<IpAddr, ErrorList> {
    let invalid = |detail: &str| vec![Error::invalid(path, value, detail)];
    let ip = parse_ip_sloppy(value)
        .ok_or_else(|| invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"))?;
    if strict {
        // What only the sloppy parser reads has zeros that some programs take for octal.
        let ip: IpAddr = value.parse().map_err(|_| invalid("must not have leading 0s"))?;
        if is_4_in_6(ip) {
            return Err(invalid("must not be an IPv4-mapped IPv6 address"));
        }
    }
    Ok(ip)
}

fn canonical(path: &Path<'_>, value: &str, canonical: &str) -> ErrorList {
    if value == canonical {
        return ErrorList::new();
    }
    vec![Error::invalid(path, value, format!("must be in canonical form ({})", go::quote(canonical)))]
}

/// An IP address in canonical form.
#[must_use]
pub fn is_valid_ip(path: &Path<'_>, value: &str) -> ErrorList {
    match parse_ip(path, value, true) {
        Ok(ip) => canonical(path, value, &print(ip)),
        Err(errors) => errors,
    }
}

/// An IP address in a field that is older than the strict rules; what `old` has is let through.
#[must_use]
pub fn validate_legacy_ip(path: &Path<'_>, value: &str, strict: bool, old: &[&str]) -> ErrorList {
    if old.contains(&value) { ErrorList::new() } else { parse_ip(path, value, strict).err().unwrap_or_default() }
}

/// Reads an address and a prefix length as upstream has always read it.
fn parse_cidr_sloppy(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let ip = parse_ip_sloppy(address)?;
    let digits = !length.is_empty() && length.bytes().all(|c| c.is_ascii_digit());
    let length: u8 = length
        .trim_start_matches('0')
        .parse()
        .or_else(|_| {
            // Nothing but zeros is zero.
            if length.bytes().all(|c| c == b'0') { Ok(0) } else { Err(()) }
        })
        .ok()?;
    (digits && length <= bits(ip)).then_some((ip, length))
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// The address without the bits beyond the prefix length.
fn masked(ip: IpAddr, length: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() & u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0)).into()),
        IpAddr::V6(ip) => {
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)))
        }
    }
}

fn parse_cidr(path: &Path<'_>, value: &str, strict: bool) -> Result<(IpAddr, u8), ErrorList> {
    let invalid = |detail: &str| vec![Error::invalid(path, value, detail)];
    let (ip, length) = parse_cidr_sloppy(value)
        .ok_or_else(|| invalid("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"))?;
    if strict {
        let (address, prefix) = value.split_once('/').unwrap_or_default();
        if address.parse::<IpAddr>().is_err() || (prefix.len() > 1 && prefix.starts_with('0')) {
            return Err(invalid("must not have leading 0s in IP or prefix length"));
        }
        if is_4_in_6(ip) {
            return Err(invalid("must not have an IPv4-mapped IPv6 address"));
        }
        if masked(ip, length) != ip {
            return Err(invalid("must not have bits set beyond the prefix length"));
        }
    }
    Ok((ip, length))
}

/// A CIDR that means a network, in canonical form.
#[must_use]
pub fn is_valid_cidr(path: &Path<'_>, value: &str) -> ErrorList {
    match parse_cidr(path, value, true) {
        Ok((ip, length)) => canonical(path, value, &format!("{}/{length}", print(ip))),
        Err(errors) => errors,
    }
}

/// A CIDR in a field that is older than the strict rules; what `old` has is let through.
#[must_use]
pub fn validate_legacy_cidr(path: &Path<'_>, value: &str, strict: bool, old: &[&str]) -> ErrorList {
    if old.contains(&value) { ErrorList::new() } else { parse_cidr(path, value, strict).err().unwrap_or_default() }
}

/// What clients are warned of about an IP address in an old field; nothing about what is not an address at all.
#[must_use]
pub fn warnings_for_ip(path: &Path<'_>, value: &str) -> Vec<String> {
    let Some(ip) = parse_ip_sloppy(value) else { return Vec::new() };
    let (shown, printed) = (go::quote(value), go::quote(&print(ip)));
    if value.parse::<IpAddr>().is_err() || is_4_in_6(ip) {
        return vec![format!("{path}: non-standard IP address {shown} is invalid: use {printed}")];
    }
    if ip.is_ipv6() && print(ip) != value {
        return vec![format!("{path}: IPv6 address {shown} should be in RFC 5952 canonical format ({printed})")];
    }
    Vec::new()
}

/// What clients are warned of about a CIDR in an old field; nothing about what is not a CIDR at all.
#[must_use]
pub fn warnings_for_cidr(path: &Path<'_>, value: &str) -> Vec<String> {
    let Some((ip, length)) = parse_cidr_sloppy(value) else { return Vec::new() };
    let mut warnings = Vec::new();
    let shown = go::quote(value);
    // Go takes the network of an IPv4 address in IPv6 for one of IPv4, if the prefix says no less.
    let (network, size) = match is_4_in_6(ip) {
        true if length >= 96 => (format!("{}/{}", print(masked(ip, length)), length - 96), 128),
        _ => (format!("{}/{length}", print(masked(ip, length))), bits(ip)),
    };
    let network = go::quote(&network);
    if masked(ip, length) != ip {
        let single = go::quote(&format!("{}/{size}", print(ip)));
        warnings.push(format!(
            "{path}: CIDR value {shown} is ambiguous in this context (should be {network} or {single}?)"
        ));
    }
    let (address, prefix) = value.split_once('/').unwrap_or_default();
    if address.parse::<IpAddr>().is_err() || prefix.len() > 1 && prefix.starts_with('0') || is_4_in_6(ip) {
        warnings.push(format!("{path}: non-standard CIDR value {shown} is invalid: use {network}"));
    }
    if warnings.is_empty() && ip.is_ipv6() && format!("{}/{length}", print(ip)) != value {
        warnings.push(format!("{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format ({network})"));
    }
    warnings
}

/// A CIDR that means an address in its network, in canonical form.
#[must_use]
pub fn is_valid_interface_address(path: &Path<'_>, value: &str) -> ErrorList {
    let Some((ip, length)) = parse_cidr_sloppy(value) else {
        let detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
        return vec![Error::invalid(path, value, detail)];
    };
    // Upstream subtracts what IPv6 is longer, even if that is more than there is.
    let length = if is_4_in_6(ip) && length > 32 { i16::from(length) - 96 } else { length.into() };
    canonical(path, value, &format!("{}/{length}", print(ip)))
}
