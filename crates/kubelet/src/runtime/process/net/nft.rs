//! The way out for pods: what leaves this machine has its address, and only answers come back in.
//!
//! The rules are a table of nftables that belongs to the socket which made it: it is gone when the node is, however
//! the node ends.

use std::{io, net::Ipv4Addr};

use rustix::net::netlink::NETFILTER;

use super::netlink::{ACK, APPEND, Attributes, CREATE, Message, Netlink};

const NF_TABLES: u16 = 10;
const IPV4: u8 = 2;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEW_TABLE: u16 = 0;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
/// The table goes with its socket.
const OWNED: u32 = 2;

const FORWARD: u32 = 2;
const POSTROUTING: u32 = 4;
/// Where sources are rewritten, among what is done after routing.
const SOURCE_NAT: i32 = 100;

const REGISTER: u32 = 1;
const VERDICT: u32 = 0;
const EQUAL: u32 = 0;
const DIFFERENT: u32 = 1;
const INPUT_INTERFACE: u32 = 4;
const OUTPUT_INTERFACE: u32 = 5;
const NETWORK_HEADER: u32 = 1;
/// Where the sender is in a packet of IPv4.
const SOURCE_OFFSET: u32 = 12;
/// States of connections that began on the other side: established and related.
const KNOWN: u32 = 0x2 | 0x4;

/// Rules that are there as long as this is.
#[derive(Debug)]
pub(super) struct Masquerade {
    _owner: Netlink,
}

impl Masquerade {
    /// For the pods of `range` behind the interface number `bridge`; `name` is the table's.
    pub(super) fn new(name: &str, bridge: u32, range: (Ipv4Addr, u8)) -> io::Result<Self> {
        let mut netlink = Netlink::open(Some(NETFILTER))?;
        let mask = u32::MAX.checked_shl(32 - u32::from(range.1)).unwrap_or(0).to_be_bytes();
        let out = [
            expression("payload", payload(SOURCE_OFFSET, 4)),
            expression("bitwise", and(&mask)),
            expression("cmp", compare(EQUAL, &range.0.octets())),
            expression("meta", interface(OUTPUT_INTERFACE)),
            expression("cmp", compare(DIFFERENT, &bridge.to_ne_bytes())),
            expression("masq", Attributes::default()),
        ];
        let into = [
            expression("meta", interface(OUTPUT_INTERFACE)),
            expression("cmp", compare(EQUAL, &bridge.to_ne_bytes())),
            expression("meta", interface(INPUT_INTERFACE)),
            expression("cmp", compare(DIFFERENT, &bridge.to_ne_bytes())),
            expression("ct", Attributes::default().put(1, &REGISTER.to_be_bytes()).put(2, &0_u32.to_be_bytes())),
            expression("bitwise", and(&KNOWN.to_ne_bytes())),
            expression("cmp", compare(EQUAL, &0_u32.to_ne_bytes())),
            expression("immediate", drop_packet()),
        ];
        let table = Attributes::default().text(1, name).put(2, &OWNED.to_be_bytes());
        netlink.send(&[
            batch(BATCH_BEGIN),
            message(NEW_TABLE, CREATE, table),
            message(NEW_CHAIN, CREATE, chain(name, "out", "nat", POSTROUTING, SOURCE_NAT)),
            message(NEW_CHAIN, CREATE, chain(name, "in", "filter", FORWARD, 0)),
            message(NEW_RULE, CREATE | APPEND, rule(name, "out", &out)),
            message(NEW_RULE, CREATE | APPEND, rule(name, "in", &into)),
            batch(BATCH_END),
        ])?;
        Ok(Masquerade { _owner: netlink })
    }
}

fn batch(kind: u16) -> Message {
    let about = [&[0, 0][..], &NF_TABLES.to_be_bytes()].concat();
    Message { kind, flags: 0, about, attributes: Attributes::default() }
}

fn message(kind: u16, flags: u16, attributes: Attributes) -> Message {
    Message { kind: NF_TABLES << 8 | kind, flags: flags | ACK, about: vec![IPV4, 0, 0, 0], attributes }
}

fn chain(table: &str, name: &str, kind: &str, hook: u32, priority: i32) -> Attributes {
    let hook = Attributes::default().put(1, &hook.to_be_bytes()).put(2, &priority.to_be_bytes());
    Attributes::default().text(1, table).text(3, name).nest(4, &hook).text(7, kind)
}

fn rule(table: &str, chain: &str, expressions: &[Attributes]) -> Attributes {
    let list = expressions.iter().fold(Attributes::default(), |list, one| list.nest(1, one));
    Attributes::default().text(1, table).text(2, chain).nest(4, &list)
}

fn expression(name: &str, particulars: Attributes) -> Attributes {
    Attributes::default().text(1, name).nest(2, &particulars)
}

fn payload(offset: u32, length: u32) -> Attributes {
    [REGISTER, NETWORK_HEADER, offset, length]
        .into_iter()
        .zip(1..)
        .fold(Attributes::default(), |all, (value, kind)| all.put(kind, &value.to_be_bytes()))
}

fn interface(key: u32) -> Attributes {
    Attributes::default().put(1, &REGISTER.to_be_bytes()).put(2, &key.to_be_bytes())
}

fn value(bytes: &[u8]) -> Attributes {
    Attributes::default().put(1, bytes)
}

fn compare(how: u32, with: &[u8]) -> Attributes {
    Attributes::default().put(1, &REGISTER.to_be_bytes()).put(2, &how.to_be_bytes()).nest(3, &value(with))
}

/// Keeps the bits of a mask.
fn and(mask: &[u8; 4]) -> Attributes {
    [REGISTER, REGISTER, 4]
        .into_iter()
        .zip(1..)
        .fold(Attributes::default(), |all, (value, kind)| all.put(kind, &value.to_be_bytes()))
        .nest(4, &value(mask))
        .nest(5, &value(&[0; 4]))
}

fn drop_packet() -> Attributes {
    const DROP: u32 = 0;
    let verdict = Attributes::default().nest(2, &Attributes::default().put(1, &DROP.to_be_bytes()));
    Attributes::default().put(1, &VERDICT.to_be_bytes()).nest(2, &verdict)
}
