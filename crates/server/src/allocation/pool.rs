//! What is taken: addresses and ports, each with the service that has it.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    ops::{Bound, RangeInclusive},
    sync::Arc,
};

use capstan_clock::Ids;

use super::{
    fields::Family,
    range::{ServiceCidr, number},
};

/// Who has an address or a port: `namespace/name`.
pub(super) type Owner = Arc<str>;

/// The part of the ports below this many is not set aside for ports that clients choose.
const MIN_PORT_BAND: u64 = 16;
/// No more ports than these are set aside.
const MAX_PORT_BAND: u64 = 128;
/// One in so many ports is set aside.
const PORT_BAND_STEP: u64 = 32;

/// Why an address or a port can't be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    IpTaken,
    IpOutOfRange,
    PortTaken,
    PortOutOfRange(RangeInclusive<u16>),
    Full,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::IpTaken => f.write_str("provided IP is already allocated"),
            Refused::IpOutOfRange => f.write_str("the provided network does not match the current range"),
            Refused::PortTaken => f.write_str("provided port is already allocated"),
            Refused::PortOutOfRange(range) => {
                let (first, last) = (range.start(), range.end());
                let text = "provided port is not in the valid range. The range of valid ports is";
                write!(f, "{text} {first}-{last}")
            }
            Refused::Full => f.write_str("range is full"),
        }
    }
}

/// A ServiceCIDR object.
#[derive(Clone, Debug)]
pub(super) struct Cidrs {
    pub ranges: Vec<ServiceCidr>,
    pub ready: bool,
}

/// All that is taken.
#[derive(Debug)]
pub(super) struct Pool {
    pub cidrs: BTreeMap<String, Cidrs>,
    pub ips: BTreeMap<IpAddr, Owner>,
    pub ports: BTreeMap<u16, Owner>,
    pub port_range: RangeInclusive<u16>,
}

impl Pool {
    fn ready(&self) -> impl Iterator<Item = &ServiceCidr> {
        self.cidrs.values().filter(|cidrs| cidrs.ready).flat_map(|cidrs| &cidrs.ranges)
    }

    /// The range that is asked first.
    pub(super) fn first_range(&self) -> Option<&ServiceCidr> {
        self.ready().next()
    }

    pub(super) fn take_ip(&mut self, ip: IpAddr, owner: &Owner) -> Result<(), Refused> {
        if !self.ready().any(|range| range.contains(ip)) {
            return Err(Refused::IpOutOfRange);
        }
        if self.ips.contains_key(&ip) {
            return Err(Refused::IpTaken);
        }
        self.ips.insert(ip, Arc::clone(owner));
        Ok(())
    }

    /// Any address that is free, from the upper band of a range as long as there is one.
    pub(super) fn take_next_ip(&mut self, family: Family, owner: &Owner, ids: &dyn Ids) -> Result<IpAddr, Refused> {
        let free = |range: &ServiceCidr| range.bands().iter().find_map(|band| self.free_ip(range, band, ids));
        let ip = self.ready().filter(|range| range.family() == family).find_map(free).ok_or(Refused::Full)?;
        self.ips.insert(ip, Arc::clone(owner));
        Ok(ip)
    }

    /// The first free address at or after a random place, going round once. Looks at no more addresses than are taken.
    fn free_ip(&self, range: &ServiceCidr, band: &RangeInclusive<u128>, ids: &dyn Ids) -> Option<IpAddr> {
        if band.is_empty() {
            return None;
        }
        let (first, last) = (*band.start(), *band.end());
        let size = u64::try_from(last - first).unwrap_or(u64::MAX).saturating_add(1);
        let start = first + u128::from(ids.below(size));
        let free_in = |mut from: u128, to: u128| {
            let bounds = (Bound::Included(range.address(from)), Bound::Included(range.address(to)));
            for (taken, _) in self.ips.range(bounds) {
                if number(*taken) != from {
                    break;
                }
                from += 1;
            }
            (from <= to).then(|| range.address(from))
        };
        free_in(start, last).or_else(|| (start > first).then(|| free_in(first, start - 1)).flatten())
    }

    pub(super) fn take_port(&mut self, port: i64, owner: &Owner) -> Result<u16, Refused> {
        let inside = u16::try_from(port).ok().filter(|port| self.port_range.contains(port));
        let port = inside.ok_or_else(|| Refused::PortOutOfRange(self.port_range.clone()))?;
        if self.ports.contains_key(&port) {
            return Err(Refused::PortTaken);
        }
        self.ports.insert(port, Arc::clone(owner));
        Ok(port)
    }

    /// Any port that is free, from the upper band as long as there is one.
    pub(super) fn take_next_port(&mut self, owner: &Owner, ids: &dyn Ids) -> Result<u16, Refused> {
        let base = u64::from(*self.port_range.start());
        let size = u64::from(*self.port_range.end()).saturating_add(1).saturating_sub(base);
        let band = if size <= MIN_PORT_BAND { 0 } else { (size / PORT_BAND_STEP).clamp(MIN_PORT_BAND, MAX_PORT_BAND) };
        let free_in = |offset: u64, count: u64| {
            let start = ids.below(count);
            let port = |i: u64| u16::try_from(base + offset + (start + i) % count).ok();
            (0..count).filter_map(port).find(|port| !self.ports.contains_key(port))
        };
        let port = free_in(band, size - band).or_else(|| free_in(0, band)).ok_or(Refused::Full)?;
        self.ports.insert(port, Arc::clone(owner));
        Ok(port)
    }

    pub(super) fn give_back_ip(&mut self, ip: IpAddr, owner: &str) {
        if self.ips.get(&ip).is_some_and(|have| **have == *owner) {
            self.ips.remove(&ip);
        }
    }

    pub(super) fn give_back_port(&mut self, port: u16, owner: &str) {
        if self.ports.get(&port).is_some_and(|have| **have == *owner) {
            self.ports.remove(&port);
        }
    }
}
