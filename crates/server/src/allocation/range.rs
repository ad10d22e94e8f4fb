//! The ranges that service addresses come from.

use std::{fmt, net::IpAddr, str::FromStr};

use super::Family;

/// The part of a range below this many addresses is not set aside for addresses that clients choose.
const MIN_BAND: u128 = 16;
/// No more addresses than these are set aside.
const MAX_BAND: u128 = 256;
/// One in so many addresses is set aside.
const BAND_STEP: u128 = 16;
/// What is longer than this in host bits is refused, as upstream does: nobody needs more than 2^64 addresses.
const MAX_HOST_BITS: u32 = 64;

/// No address at all.
#[expect(clippy::reversed_empty_ranges, reason = "it is meant to be empty")]
const EMPTY: std::ops::RangeInclusive<u128> = 1..=0;

/// A network that service addresses are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceCidr {
    family: Family,
    network: u128,
    prefix: u8,
}

/// A text that is no network which services could use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidCidr(pub String);

impl fmt::Display for InvalidCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a range for service addresses", self.0)
    }
}

impl std::error::Error for InvalidCidr {}

impl FromStr for ServiceCidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let read = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let family = Family::of(address);
            let host_bits = family.bits().checked_sub(u32::from(prefix))?;
            if host_bits > MAX_HOST_BITS {
                return None;
            }
            let network = number(address) & !hosts(host_bits);
            Some(ServiceCidr { family, network, prefix })
        };
        read().ok_or_else(|| InvalidCidr(text.to_owned()))
    }
}

impl fmt::Display for ServiceCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.family.address(self.network), self.prefix)
    }
}

impl ServiceCidr {
    /// The family of its addresses.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// The first address that can be given to a service; the `kubernetes` service has it.
    #[must_use]
    pub fn first(&self) -> IpAddr {
        self.family.address(self.network.saturating_add(1))
    }

    /// Whether a service may have this address: neither the network's own nor, in IPv4, the broadcast address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family && self.usable().contains(&number(address))
    }

    /// First and last usable address, as numbers.
    fn usable(&self) -> std::ops::RangeInclusive<u128> {
        let hosts = hosts(self.family.bits() - u32::from(self.prefix));
        let last = if self.family == Family::V4 { hosts.saturating_sub(1) } else { hosts };
        if last == 0 { EMPTY } else { self.network + 1..=self.network + last }
    }

    /// The bands that addresses are chosen from, in the order in which they are tried: the upper one first, so that the
    /// lower one stays free for those who choose for themselves.
    pub(super) fn bands(&self) -> [std::ops::RangeInclusive<u128>; 2] {
        let (first, last) = (*self.usable().start(), *self.usable().end());
        let size = hosts(self.family.bits() - u32::from(self.prefix)).saturating_add(1);
        let offset = if size <= MIN_BAND { 0 } else { (size / BAND_STEP).clamp(MIN_BAND, MAX_BAND) };
        if self.usable().is_empty() {
            return [EMPTY, EMPTY];
        }
        let lower = if offset == 0 { EMPTY } else { first..=first + offset - 1 };
        [first + offset..=last, lower]
    }

    pub(super) fn address(&self, number: u128) -> IpAddr {
        self.family.address(number)
    }
}

fn hosts(bits: u32) -> u128 {
    (1u128 << bits) - 1
}

pub(super) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}
