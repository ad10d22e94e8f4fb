//! Asking the kernel for interfaces, addresses and routes: messages of netlink, each acknowledged.
//!
//! Only what pods need. A socket speaks for the network namespace of the thread that opened it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType,
    netlink::SocketAddrNetlink,
    sockopt::{Timeout, set_socket_timeout},
};

/// The kernel answers at once; who waits longer asked something that is never answered.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The largest answer: what a dump sends at once.
const MAX_ANSWER: usize = 64 * 1024;
/// The length of a message's head.
const HEAD: usize = 16;

// Flags of messages.
pub(super) const REQUEST: u16 = 0x1;
pub(super) const ACK: u16 = 0x4;
pub(super) const EXCL: u16 = 0x200;
pub(super) const DUMP: u16 = 0x300;
pub(super) const CREATE: u16 = 0x400;
pub(super) const APPEND: u16 = 0x800;
/// The bit of attributes that hold others.
const NESTED: u16 = 0x8000;

// Kinds of messages.
const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;

// Attributes of links.
const LINK_ADDRESS: u16 = 1;
const LINK_NAME: u16 = 3;
const LINK_MTU: u16 = 4;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const LINK_INFO_KIND: u16 = 1;
const LINK_INFO_DATA: u16 = 2;
const LINK_ALIAS: u16 = 20;
const LINK_NAMESPACE: u16 = 28;
const VETH_PEER: u16 = 1;
const UP: u32 = 1;

/// Attributes, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn put(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.put(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn nest(self, kind: u16, inner: &Attributes) -> Self {
        self.put(kind | NESTED, &inner.0)
    }
}

/// One message: what it asks for, about what, and the particulars.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) about: Vec<u8>,
    pub(super) attributes: Attributes,
}

/// An interface that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: String,
    pub(super) alias: String,
}

/// A conversation with the kernel.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// About interfaces, addresses and routes.
    pub(super) fn route() -> io::Result<Self> {
        Netlink::open(None)
    }

    pub(super) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends messages at once and waits until each that wants to be acknowledged is.
    pub(super) fn send(&mut self, messages: &[Message]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for message in messages {
            self.sequence += 1;
            let length = HEAD + message.about.len().next_multiple_of(4) + message.attributes.0.len();
            bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
            bytes.extend(message.kind.to_ne_bytes());
            bytes.extend((message.flags | REQUEST).to_ne_bytes());
            bytes.extend(self.sequence.to_ne_bytes());
            bytes.extend([0; 4]);
            bytes.extend(&message.about);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend(&message.attributes.0);
        }
        rustix::net::sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut waited_for = messages.iter().filter(|message| message.flags & ACK != 0).count();
        while waited_for > 0 {
            for (kind, body) in self.receive()? {
                if kind == ERROR {
                    match i32::from_ne_bytes(array(&body, 0)) {
                        0 => waited_for = waited_for.saturating_sub(1),
                        code => return Err(io::Error::from_raw_os_error(-code)),
                    }
                }
            }
        }
        Ok(())
    }

    /// The next messages from the kernel: kind and what follows the head.
    fn receive(&mut self) -> io::Result<Vec<(u16, Vec<u8>)>> {
        let mut buffer = vec![0; MAX_ANSWER];
        let (_, length) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..length.min(MAX_ANSWER)];
        let mut found = Vec::new();
        while rest.len() >= HEAD {
            let length = usize::try_from(u32::from_ne_bytes(array(rest, 0))).unwrap_or(0);
            if length < HEAD || length > rest.len() {
                break;
            }
            found.push((u16::from_ne_bytes(array(rest, 4)), rest[HEAD..length].to_vec()));
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        Ok(found)
    }

    fn link(&mut self, kind: u16, flags: u16, index: u32, up: bool, attributes: Attributes) -> io::Result<()> {
        let about = link_head(index, up);
        self.send(&[Message { kind, flags: flags | ACK, about, attributes }])
    }

    /// All interfaces.
    pub(super) fn links(&mut self) -> io::Result<Vec<Link>> {
        let about = link_head(0, false);
        self.send(&[Message { kind: GET_LINK, flags: DUMP, about, attributes: Attributes::default() }])?;
        let mut links = Vec::new();
        loop {
            for (kind, body) in self.receive()? {
                match kind {
                    DONE => return Ok(links),
                    ERROR => return Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(array(&body, 0)))),
                    NEW_LINK => links.push(parse_link(&body)),
                    _ => {}
                }
            }
        }
    }

    /// The number of an interface.
    pub(super) fn index(&self, name: &str) -> io::Result<u32> {
        // Any socket of this namespace will do, but for those of netlink.
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
    }

    /// Makes a bridge, with words that say whose it is.
    pub(super) fn add_bridge(&mut self, name: &str, alias: &str, hardware: [u8; 6], mtu: u32) -> io::Result<()> {
        let attributes = Attributes::default()
            .text(LINK_NAME, name)
            .put(LINK_ADDRESS, &hardware)
            .put(LINK_MTU, &mtu.to_ne_bytes())
            .nest(LINK_INFO, &Attributes::default().put(LINK_INFO_KIND, b"bridge"));
        self.link(NEW_LINK, CREATE | EXCL, 0, false, attributes)?;
        let index = self.index(name)?;
        self.set_alias(index, alias)
    }

    /// Words that go with an interface.
    pub(super) fn set_alias(&mut self, index: u32, alias: &str) -> io::Result<()> {
        self.link(NEW_LINK, 0, index, false, Attributes::default().put(LINK_ALIAS, alias.as_bytes()))
    }

    /// Makes two interfaces that lead to each other: one here, in a bridge, the other in another namespace.
    pub(super) fn add_pair(
        &mut self,
        name: &str,
        bridge: u32,
        inside: &str,
        namespace: BorrowedFd<'_>,
        mtu: u32,
    ) -> io::Result<()> {
        let mut peer = Attributes(link_head(0, false));
        peer = peer
            .text(LINK_NAME, inside)
            .put(LINK_MTU, &mtu.to_ne_bytes())
            .put(LINK_NAMESPACE, &namespace.as_raw_fd().to_ne_bytes());
        let info = Attributes::default()
            .put(LINK_INFO_KIND, b"veth")
            .nest(LINK_INFO_DATA, &Attributes::default().nest(VETH_PEER, &peer));
        let attributes = Attributes::default()
            .text(LINK_NAME, name)
            .put(LINK_MTU, &mtu.to_ne_bytes())
            .put(LINK_MASTER, &bridge.to_ne_bytes())
            .nest(LINK_INFO, &info);
        self.link(NEW_LINK, CREATE | EXCL, 0, true, attributes)
    }

    pub(super) fn set_up(&mut self, index: u32) -> io::Result<()> {
        self.link(NEW_LINK, 0, index, true, Attributes::default())
    }

    /// Takes an interface away; one that is not there is away already.
    pub(super) fn delete(&mut self, name: &str) -> io::Result<()> {
        match self.link(DELETE_LINK, 0, 0, false, Attributes::default().text(LINK_NAME, name)) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => Ok(()),
            done => done,
        }
    }

    pub(super) fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        /// An address of IPv6 is there at once, without asking whether somebody else has it.
        const NO_DETECTION: u8 = 0x2;
        let (family, flags) = (family(address), if address.is_ipv6() { NO_DETECTION } else { 0 });
        let mut about = vec![family, prefix, flags, 0];
        about.extend(index.to_ne_bytes());
        let bytes = octets(address);
        let attributes = Attributes::default().put(1, &bytes).put(2, &bytes);
        self.send(&[Message { kind: NEW_ADDRESS, flags: CREATE | EXCL | ACK, about, attributes }])
    }

    /// The way to everything else.
    pub(super) fn add_default_route(&mut self, index: u32, gateway: Ipv4Addr) -> io::Result<()> {
        const MAIN_TABLE: u8 = 254;
        const BOOT: u8 = 3;
        const UNICAST: u8 = 1;
        let gateway = IpAddr::V4(gateway);
        let about = vec![family(gateway), 0, 0, 0, MAIN_TABLE, BOOT, 0, UNICAST, 0, 0, 0, 0];
        let attributes = Attributes::default().put(5, &octets(gateway)).put(4, &index.to_ne_bytes());
        self.send(&[Message { kind: NEW_ROUTE, flags: CREATE | EXCL | ACK, about, attributes }])
    }
}

/// What a message about a link begins with.
fn link_head(index: u32, up: bool) -> Vec<u8> {
    let flags = if up { UP } else { 0 };
    [0, index, flags, flags].into_iter().flat_map(u32::to_ne_bytes).collect()
}

fn parse_link(body: &[u8]) -> Link {
    let mut link = Link::default();
    let mut rest = body.get(HEAD..).unwrap_or_default();
    while rest.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes(array(rest, 0)));
        if length < 4 || length > rest.len() {
            break;
        }
        let text = || String::from_utf8_lossy(&rest[4..length]).trim_end_matches('\0').to_owned();
        match u16::from_ne_bytes(array(rest, 2)) {
            LINK_NAME => link.name = text(),
            LINK_ALIAS => link.alias = text(),
            _ => {}
        }
        rest = &rest[length.next_multiple_of(4).min(rest.len())..];
    }
    link
}

fn family(address: IpAddr) -> u8 {
    u8::try_from(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }.as_raw()).unwrap_or(0)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// So many bytes from there on; zeros where there are none.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    let found = bytes.get(at..).unwrap_or_default();
    let count = found.len().min(N);
    out[..count].copy_from_slice(&found[..count]);
    out
}
