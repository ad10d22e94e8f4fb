//! Addresses and networks, read as upstream has always read them.

use std::{collections::BTreeSet, net::IpAddr};

use capstan_api::{
    field::{Error, ErrorList, Path},
    validation::{validate_legacy_cidr, validate_legacy_ip},
};

const ANY: Path<'static> = Path::new("");
/// Whether new values of old fields must be written canonically.
const STRICT: bool = true;

/// What a field has already, and may keep.
pub(super) type Known<'a> = BTreeSet<&'a str>;

/// An address in a field that is older than the strict rules; what is known is let through.
pub(super) fn legacy_ip(errors: &mut ErrorList, path: &Path<'_>, value: &str, known: &Known<'_>) {
    if !known.contains(value) {
        errors.extend(validate_legacy_ip(path, value, STRICT, &[]));
    }
}

/// A network in a field that is older than the strict rules; what is known is let through.
pub(super) fn legacy_cidr(errors: &mut ErrorList, path: &Path<'_>, value: &str, known: &Known<'_>) {
    if !known.contains(value) {
        errors.extend(validate_legacy_cidr(path, value, STRICT, &[]));
    }
}

/// An address, whose numbers may have zeros in front. An IPv4 address in IPv6 form counts as IPv4.
pub(super) fn parse_ip(text: &str) -> Option<IpAddr> {
    if !validate_legacy_ip(&ANY, text, false, &[]).is_empty() {
        return None;
    }
    let plain = || text.split('.').map(without_zeros).collect::<Vec<_>>().join(".");
    text.parse().ok().or_else(|| plain().parse().ok()).map(|ip: IpAddr| ip.to_canonical())
}

fn without_zeros(number: &str) -> &str {
    match number.trim_start_matches('0') {
        "" => "0",
        rest => rest,
    }
}

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cidr {
    ip: IpAddr,
    pub(super) length: u32,
}

/// A network, whose numbers may have zeros in front.
pub(super) fn parse_cidr(text: &str) -> Option<Cidr> {
    if !validate_legacy_cidr(&ANY, text, false, &[]).is_empty() {
        return None;
    }
    let (address, length) = text.split_once('/')?;
    Some(Cidr { ip: parse_ip(address)?, length: without_zeros(length).parse().ok()? })
}

impl Cidr {
    /// Whether the first address of `other` is in this network.
    pub(super) fn contains(self, other: Cidr) -> bool {
        let shift = |bits: u32| bits.saturating_sub(self.length);
        match (self.ip, other.ip) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(shift(32)).unwrap_or(0) == 0,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).checked_shr(shift(128)).unwrap_or(0) == 0,
            _ => false,
        }
    }

    pub(super) fn is_ipv6(self) -> bool {
        self.ip.is_ipv6()
    }
}

/// An address that traffic can be sent to.
pub(super) fn endpoint_ip(errors: &mut ErrorList, path: &Path<'_>, value: &str) {
    let mut wrong = |detail: &str| errors.push(Error::invalid(path, value, detail));
    let Some(ip) = parse_ip(value) else { return wrong("must be a valid IP address") };
    let (link_local, link_local_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), ip.segments()[0] & 0xff0f == 0xff02),
    };
    if ip.is_unspecified() {
        wrong(&format!("may not be unspecified ({value})"));
    }
    if ip.is_loopback() {
        wrong("may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if link_local {
        wrong("may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if link_local_multicast {
        wrong("may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}
