//! Addresses and networks.

use std::{fmt, net::IpAddr};

use capstan_api::go;

use super::{Call, Impl, fail, int, yes};
use crate::value::Val;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// The bits that count.
    pub bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Cidr {
    fn masked(self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V4((u32::from(v4) & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                IpAddr::V6((u128::from(v6) & mask).into())
            }
        };
        Cidr { address, bits: self.bits }
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && self.masked().address == Cidr { address, bits: self.bits }.masked().address
    }
}

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "ip" => |call| match call.args {
            [Val::String(text)] => Some(parse_ip(text).map(Val::Ip).map_err(crate::value::EvalError::new)),
            [Val::Cidr(cidr)] => Some(Ok(Val::Ip(cidr.address))),
            _ => None,
        },
        "isIP" => |call| call.args[0].as_str().and_then(|text| yes(parse_ip(text).is_ok())),
        "ip.isCanonical" => |call| match parse_ip(call.args[0].as_str()?) {
            Ok(ip) => yes(call.args[0].as_str() == Some(ip.to_string().as_str())),
            Err(error) => fail(error),
        },
        "family" => |call| address(call).and_then(|ip| int(if ip.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |call| address(call).and_then(|ip| yes(ip.is_unspecified())),
        "isLoopback" => |call| address(call).and_then(|ip| yes(ip.is_loopback())),
        "isLinkLocalMulticast" => |call| address(call).and_then(|ip| yes(is_link_local_multicast(ip))),
        "isLinkLocalUnicast" => |call| address(call).and_then(|ip| yes(is_link_local_unicast(ip))),
        "isGlobalUnicast" => |call| {
            address(call).and_then(|ip| {
                let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
                let other = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local_unicast(ip);
                yes(!broadcast && !other)
            })
        },
        "cidr" => |call| match parse_cidr(call.args[0].as_str()?) {
            Ok(cidr) => Some(Ok(Val::Cidr(cidr))),
            Err(error) => fail(format!("network address parse error during conversion from string: {error}")),
        },
        "isCIDR" => |call| call.args[0].as_str().and_then(|text| yes(parse_cidr(text).is_ok())),
        "containsIP" => |call| match call.args {
            [Val::Cidr(cidr), Val::Ip(ip)] => yes(cidr.contains(*ip)),
            [Val::Cidr(cidr), Val::String(text)] => match parse_ip(text) {
                Ok(ip) => yes(cidr.contains(ip)),
                // Upstream hands the error on as a value of the wrong type.
                Err(_) => fail("no such overload"),
            },
            _ => None,
        },
        "containsCIDR" => |call| match call.args {
            [Val::Cidr(cidr), Val::Cidr(other)] => yes(cidr.bits <= other.bits && cidr.contains(other.address)),
            [Val::Cidr(cidr), Val::String(text)] => match parse_cidr(text) {
                Ok(other) => yes(cidr.bits <= other.bits && cidr.contains(other.address)),
                Err(error) => fail(format!("network address parse error during conversion from string: {error}")),
            },
            _ => None,
        },
        "prefixLength" => |call| network(call).and_then(|cidr| int(cidr.bits)),
        "masked" => |call| network(call).map(|cidr| Ok(Val::Cidr(cidr.masked()))),
        _ => return None,
    })
}

fn address(call: &Call<'_, '_>) -> Option<IpAddr> {
    match call.args {
        [Val::Ip(ip)] => Some(*ip),
        _ => None,
    }
}

fn network(call: &Call<'_, '_>) -> Option<Cidr> {
    match call.args {
        [Val::Cidr(cidr)] => Some(*cidr),
        _ => None,
    }
}

fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let (bare, zone) = text.split_once('%').unwrap_or((text, ""));
    let quoted = go::quote(text);
    let Ok(ip) = bare.parse::<IpAddr>() else {
        let why = why_no_ip(text);
        return Err(format!(
            "IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): {why}"
        ));
    };
    if !zone.is_empty() {
        return Err(format!("IP address {quoted} with zone value is not allowed"));
    }
    if matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("IPv4-mapped IPv6 address {quoted} is not allowed"));
    }
    Ok(ip)
}

/// Go's words for what is wrong with an address.
fn why_no_ip(text: &str) -> String {
    match text.find(['.', ':', '%']).map(|at| text.as_bytes()[at]) {
        Some(b'.') => why_no_ipv4(text),
        Some(b'%') => "missing IPv6 address".to_owned(),
        Some(_) => why_no_ipv6(text),
        None => "unable to parse IP".to_owned(),
    }
}

fn why_no_ipv4(text: &str) -> String {
    let (mut value, mut fields, mut digits) = (0_u32, 0, 0);
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        if byte.is_ascii_digit() {
            if digits == 1 && value == 0 {
                return "IPv4 field has octet with leading zero".to_owned();
            }
            value = value * 10 + u32::from(byte - b'0');
            digits += 1;
            if value > 255 {
                return "IPv4 field has value >255".to_owned();
            }
        } else if byte == b'.' {
            if at == 0 || at == bytes.len() - 1 || bytes[at - 1] == b'.' {
                return format!("IPv4 field must have at least one digit (at {})", go::quote(&text[at..]));
            }
            if fields == 3 {
                return "IPv4 address too long".to_owned();
            }
            (fields, value, digits) = (fields + 1, 0, 0);
        } else {
            return format!("unexpected character (at {})", go::quote(&text[at..]));
        }
    }
    "IPv4 address too short".to_owned()
}

fn why_no_ipv6(text: &str) -> String {
    match text.find(|c: char| !c.is_ascii_hexdigit() && !matches!(c, ':' | '.')) {
        Some(0) => format!("each colon-separated field must have at least one digit (at {})", go::quote(text)),
        Some(at) => format!("unexpected character, want colon (at {})", go::quote(&text[at..])),
        None => "address string too short".to_owned(),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    let quoted = go::quote(text);
    let wrong = |why: &str| {
        format!("network address parse error during conversion from string: netip.ParsePrefix({quoted}): {why}")
    };
    let Some((address, bits)) = text.rsplit_once('/') else { return Err(wrong("no '/'")) };
    let Ok(parsed) = address.parse::<IpAddr>() else {
        return Err(wrong(&format!("ParseAddr({}): {}", go::quote(address), why_no_ip(address))));
    };
    let bad = format!("bad bits after slash: {}", go::quote(bits));
    if bits.is_empty()
        || bits.len() > 1 && !matches!(bits.as_bytes()[0], b'1'..=b'9')
        || !bits.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(wrong(&bad));
    }
    let count: u32 = bits.parse().map_err(|_| wrong(&bad))?;
    if count > if parsed.is_ipv4() { 32 } else { 128 } {
        return Err(wrong("prefix length out of range"));
    }
    if matches!(parsed, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        return Err(format!("IPv4-mapped IPv6 address {quoted} is not allowed"));
    }
    Ok(Cidr { address: parsed, bits: u8::try_from(count).unwrap_or(u8::MAX) })
}

/// The bytes of standard base64.
pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        Some(u32::from(match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        }))
    };
    let bytes: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    let groups = bytes.len() / 4;
    for (index, group) in bytes.chunks_exact(4).enumerate() {
        let padding = if index + 1 == groups { group.iter().rev().take_while(|&&b| b == b'=').count() } else { 0 };
        if padding > 2 {
            return None;
        }
        let mut value = 0;
        for &byte in &group[..4 - padding] {
            value = value << 6 | digit(byte)?;
        }
        value <<= 6 * padding;
        out.extend_from_slice(&value.to_be_bytes()[1..4 - padding]);
    }
    Some(out)
}
