//! Networks of pods' own: a namespace a pod, with an address on a bridge of this node.
//!
//! A namespace lives as long as somebody has it: this process by a descriptor, the pod's containers by being in it. A
//! node that is killed takes its containers along, and so the namespaces with the interfaces in them; only the bridge
//! is left, which says whose it was, and the next node that starts takes it away.

mod netlink;
mod nft;
mod relay;

use std::{
    collections::BTreeSet,
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_clock::SharedClock;
use netlink::{Link, Netlink};
use nft::Masquerade;
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use tokio::{
    net::TcpStream,
    sync::oneshot,
    task::{AbortHandle, JoinSet},
};

use crate::runtime::SandboxConfig;

/// What bridges are called, with a number.
const BRIDGE: &str = "capstan";
/// How many nodes one machine may have bridges of.
const MAX_BRIDGES: u32 = 256;
/// What the interface of a pod is called inside.
const INSIDE: &str = "eth0";
/// The number of the loopback in every namespace.
const LOOPBACK: u32 = 1;
/// Where ranges for pods are looked for, each by its first two numbers, when none is said.
const BASES: [(u8, u8); 3] = [(10, 244), (172, 30), (192, 168)];
/// How much a packet holds where no way out says less.
const MTU: u32 = 1500;

/// A range of addresses: the first, and how many bits are common to all.
pub type Range = (Ipv4Addr, u8);

/// What the network of pods is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkConfig {
    /// The addresses of pods; a range that nothing else of this machine has when not said.
    pub range: Option<Range>,
    /// Where pods look for the API server, and where it is.
    pub api_server: Option<(SocketAddr, SocketAddr)>,
}

/// The network of the pods of one node.
pub struct Network {
    config: NetworkConfig,
    bridge: String,
    index: u32,
    mtu: u32,
    range: Range,
    /// The addresses that are taken, as numbers, and the one that was given last.
    taken: Mutex<(BTreeSet<u32>, u32)>,
    /// The way out, or why there is none.
    out: Result<WayOut, String>,
    clock: SharedClock,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("bridge", &self.bridge).field("range", &self.range).finish_non_exhaustive()
    }
}

/// The network of one pod; it is gone with this.
#[derive(Debug)]
pub(super) struct PodNetwork {
    namespace: Arc<OwnedFd>,
    pub(super) address: Ipv4Addr,
    of: Arc<Network>,
    outside: String,
    doors: JoinSet<()>,
}

impl Network {
    /// Makes the bridge of this node, and takes away those that killed nodes have left.
    ///
    /// # Errors
    /// Why this machine does not allow it.
    pub fn open(config: NetworkConfig, clock: SharedClock) -> Result<Self, String> {
        let step = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        // Whether namespaces may be made is asked first: it leaves nothing behind.
        std::thread::spawn(new_namespace)
            .join()
            .map_err(|_| "network namespace: the thread ended".to_owned())?
            .map_err(step("network namespace"))?;
        let mut netlink = Netlink::route().map_err(step("netlink"))?;
        let inherited = remove_left_over(&mut netlink);
        let mtu = uplinks().iter().filter_map(|name| mtu_of(name)).min().unwrap_or(MTU).min(MTU);
        let mut avoided = BTreeSet::new();
        loop {
            let range = match config.range {
                Some(range) => range,
                None => free_range(&routes(), &avoided).ok_or("no range of addresses is free for pods")?,
            };
            let gateway = gateway(range);
            let [_, second, third, fourth] = gateway.octets();
            // Of its own, so that it doesn't change with the pods that come and go.
            let hardware = [0x02, 0x42, gateway.octets()[0], second, third, fourth];
            let bridge = add_bridge(&mut netlink, hardware, mtu).map_err(step("bridge"))?;
            let made = (|| {
                let index = netlink.index(&bridge)?;
                netlink.add_address(index, gateway.into(), range.1)?;
                netlink.set_up(index)?;
                Ok(index)
            })();
            let index = made.map_err(|error: io::Error| {
                let _ = netlink.delete(&bridge);
                format!("{bridge}: {error}")
            })?;
            // Another node may have chosen the same at the same time: the one whose name comes first keeps it.
            let lost = |route: &Route| overlap(route.to, range) && route.by < bridge && route.by.starts_with(BRIDGE);
            if config.range.is_none() && routes().iter().any(lost) {
                let _ = netlink.delete(&bridge);
                avoided.insert(range);
                continue;
            }
            let out = WayOut::open(&bridge, index, range, inherited);
            if let Ok(out) = &out {
                // Whoever finds this bridge without its node makes things be as they were.
                let _ = netlink.set_alias(index, &format!("{} {}", own_alias(), out.changed.join(",")));
            }
            let taken = Mutex::new((BTreeSet::new(), u32::from(gateway)));
            return Ok(Network { config, bridge, index, mtu, range, taken, out, clock });
        }
    }

    /// The address of the node on the network of its pods.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        gateway(self.range)
    }

    /// What it can't do, in plain words.
    pub(super) fn limitations(&self) -> Vec<String> {
        let mut all = vec!["pods' own network: IPv4 alone, hostPort for TCP alone".to_owned()];
        if let Err(why) = &self.out {
            all.push(format!("pods reach this machine and each other, but nothing beyond: {why}"));
        }
        all
    }

    fn take_address(&self) -> Option<Ipv4Addr> {
        let mut guard = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, last) = &mut *guard;
        let first = u32::from(self.gateway()) + 1;
        let end = u32::from(self.range.0) | !mask(self.range.1);
        // The one after the last: an address that has just been given back may still be known to others.
        let next = (last.saturating_add(1)..end).chain(first..end).find(|one| *one >= first && !taken.contains(one))?;
        taken.insert(next);
        *last = next;
        Some(next.into())
    }

    fn give_back(&self, address: Ipv4Addr) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).0.remove(&address.into());
    }

    /// A network for a pod.
    pub(super) async fn attach(self: &Arc<Self>, pod: &SandboxConfig) -> Result<PodNetwork, String> {
        let step = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let namespace = on_thread(new_namespace).await.map_err(step("network namespace"))?;
        let address = self.take_address().ok_or("no address is free for the pod")?;
        let outside = format!("cap{:08x}", u32::from(address));
        let mut network =
            PodNetwork { namespace: Arc::new(namespace), address, of: self.clone(), outside, doors: JoinSet::new() };
        let mut netlink = Netlink::route().map_err(step("netlink"))?;
        let mut pair = || netlink.add_pair(&network.outside, self.index, INSIDE, network.namespace.as_fd(), self.mtu);
        match pair() {
            // Of a node that has just been killed: its end is on its way.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Netlink::route().and_then(|mut netlink| netlink.delete(&network.outside)).map_err(step("veth"))?;
                pair()
            }
            done => done,
        }
        .map_err(step("veth"))?;
        let (gateway, prefix, api) = (self.gateway(), self.range.1, self.config.api_server);
        let sysctls: Vec<_> = pod.sysctls.iter().map(|(name, value)| (sysctl_file(name), value.clone())).collect();
        let listener = network.within(move || {
            set_up_inside(address, prefix, gateway)?;
            for (file, value) in sysctls.into_iter().filter_map(|(file, value)| Some((file?, value))) {
                fs::write(file, value)?;
            }
            let Some((told, _)) = api else { return Ok(None) };
            let host_bits = if told.is_ipv4() { 32 } else { 128 };
            Netlink::route()?.add_address(LOOPBACK, told.ip(), host_bits)?;
            std::net::TcpListener::bind(told).map(Some)
        });
        let listener = listener.await.map_err(step("pod's network"))?;
        if let (Some(listener), Some((_, real))) = (listener, api) {
            network.open_door(listener, real).map_err(step("way to the API server"))?;
        }
        for (protocol, port, host_port, host_ip) in &pod.ports {
            if protocol != "TCP" {
                continue;
            }
            let on: IpAddr = host_ip.parse().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            let listener = std::net::TcpListener::bind((on, *host_port));
            let to = SocketAddr::new(address.into(), *port);
            let opened = listener.and_then(|listener| network.open_door(listener, to).map(drop));
            opened.map_err(|error| format!("hostPort {host_port}: {error}"))?;
        }
        Ok(network)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let Ok(mut netlink) = Netlink::route() else { return };
        let _ = netlink.delete(&self.bridge);
        if let (Ok(out), Ok(links)) = (&self.out, netlink.links()) {
            out.close(&links);
        }
    }
}

impl PodNetwork {
    /// Where another process finds the namespace.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd()).into()
    }

    fn open_door(&mut self, listener: std::net::TcpListener, to: SocketAddr) -> io::Result<AbortHandle> {
        Ok(self.doors.spawn(relay::relay(relay::listen(listener)?, to, self.of.clock.clone())))
    }

    /// Does something in the namespace: a socket that is made there stays there.
    async fn within<T: Send + 'static>(&self, work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let namespace = self.namespace.clone();
        on_thread(move || {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        })
        .await
    }

    /// A connection to the pod's own `localhost`.
    pub(super) async fn connect_inside(&self, port: u16) -> io::Result<TcpStream> {
        // On the loopback this is decided at once: nobody waits.
        let localhost = [SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from((Ipv6Addr::LOCALHOST, port))];
        let stream = self.within(move || std::net::TcpStream::connect(&localhost[..])).await?;
        stream.set_nonblocking(true)?;
        TcpStream::from_std(stream)
    }
}

impl Drop for PodNetwork {
    fn drop(&mut self) {
        // It would go with the namespace, but later: its name and address are to be free now.
        let _ = Netlink::route().and_then(|mut netlink| netlink.delete(&self.outside));
        self.of.give_back(self.address);
    }
}

/// Runs something on a thread of its own, which may change its namespaces.
async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (answer, answered) = oneshot::channel();
    std::thread::Builder::new().name("pod-network".to_owned()).spawn(move || answer.send(work()).ok())?;
    answered.await.map_err(io::Error::other)?
}

/// Moves this thread into a new network namespace.
#[expect(deprecated, reason = "unshare is unsafe only with CLONE_FILES, and the other form needs an unsafe block")]
fn new_namespace() -> io::Result<OwnedFd> {
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    Ok(fs::File::open("/proc/thread-self/ns/net")?.into())
}

/// In the pod's namespace: its loopback, its address, and the way to everything else.
fn set_up_inside(address: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> io::Result<()> {
    let mut netlink = Netlink::route()?;
    let index = netlink.index(INSIDE)?;
    netlink.set_up(LOOPBACK)?;
    netlink.add_address(index, address.into(), prefix)?;
    netlink.set_up(index)?;
    netlink.add_default_route(index, gateway)
}

/// Where a setting of the kernel is that each network namespace has for itself.
fn sysctl_file(name: &str) -> Option<PathBuf> {
    let path = name.replace('.', "/");
    let is_plain = !path.split('/').any(|part| part.is_empty() || part == "..");
    (path.starts_with("net/") && is_plain).then(|| PathBuf::from("/proc/sys").join(path))
}

/// Makes a bridge under the first name that is free.
fn add_bridge(netlink: &mut Netlink, hardware: [u8; 6], mtu: u32) -> io::Result<String> {
    let alias = own_alias();
    for number in 0..MAX_BRIDGES {
        let name = format!("{BRIDGE}{number}");
        match netlink.add_bridge(&name, &alias, hardware, mtu) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are {MAX_BRIDGES} already")))
}

/// Whose a bridge is: a process, by its number, when it began, and where that number means it.
fn own_alias() -> String {
    let pid = std::process::id();
    format!("{BRIDGE} {pid} {} {}", began(pid).unwrap_or_default(), process_namespace())
}

/// When a process began, in the kernel's own count.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; what follows are numbers.
    stat.rsplit(')').next()?.split_whitespace().nth(19).map(str::to_owned)
}

fn process_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

/// Whether a bridge's words are those of a node that is not there any more.
fn is_left_over(alias: &str) -> bool {
    let words: Vec<&str> = alias.split(' ').collect();
    let [BRIDGE, pid, since, namespace, ..] = words[..] else { return false };
    let Ok(pid) = pid.parse() else { return false };
    namespace == process_namespace() && began(pid).as_deref() != Some(since)
}

/// Takes away what killed nodes have left; the interfaces that they made to forward.
fn remove_left_over(netlink: &mut Netlink) -> BTreeSet<String> {
    let mut changed = BTreeSet::new();
    for link in netlink.links().unwrap_or_default() {
        if is_left_over(&link.alias) {
            let _ = netlink.delete(&link.name);
            let names = link.alias.split(' ').nth(4).unwrap_or_default().split(',');
            changed.extend(names.filter(|name| !name.is_empty()).map(str::to_owned));
        }
    }
    changed
}

/// The way out for pods: what arrives by the bridge and by the ways out is passed on, in this machine's name.
struct WayOut {
    _rules: Masquerade,
    /// The interfaces that did not forward before.
    changed: Vec<String>,
}

/// Whether this machine passes packets on at all, whoever decided so.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";

impl WayOut {
    fn open(bridge: &str, index: u32, range: Range, inherited: BTreeSet<String>) -> Result<Self, String> {
        let rules = Masquerade::new(bridge, index, range).map_err(|error| format!("nftables: {error}"))?;
        let mut out = WayOut { _rules: rules, changed: inherited.into_iter().collect() };
        for name in uplinks().iter().map(String::as_str).chain([bridge]) {
            let file = forwarding(name);
            if !is_off(&file) {
                continue;
            }
            fs::write(&file, "1").map_err(|error| format!("{file}: {error}"))?;
            if name != bridge {
                out.changed.push(name.to_owned());
            }
        }
        Ok(out)
    }

    /// Makes things be as they were, unless somebody else relies on it now.
    fn close(&self, links: &[Link]) {
        if is_off(FORWARDING) && !links.iter().any(|link| link.name.starts_with(BRIDGE)) {
            for name in &self.changed {
                let _ = fs::write(forwarding(name), "0");
            }
        }
    }
}

/// Where it is said whether what arrives by an interface is passed on.
fn forwarding(interface: &str) -> String {
    format!("/proc/sys/net/ipv4/conf/{interface}/forwarding")
}

fn is_off(setting: &str) -> bool {
    fs::read_to_string(setting).is_ok_and(|text| text.trim() == "0")
}

/// A way that packets take from this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    by: String,
    to: Range,
    through_gateway: bool,
}

/// The routes of IPv4 in the main table.
fn routes() -> Vec<Route> {
    parse_routes(&fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default())
}

fn parse_routes(text: &str) -> Vec<Route> {
    const GATEWAY: u32 = 2;
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
        let address = number(1)?.to_ne_bytes();
        let prefix = u8::try_from(number(7)?.count_ones()).ok()?;
        let through_gateway = number(3)? & GATEWAY != 0;
        Some(Route { by: fields.first().copied()?.to_owned(), to: (address.into(), prefix), through_gateway })
    };
    text.lines().skip(1).filter_map(parse).collect()
}

/// The interfaces that lead on.
fn uplinks() -> BTreeSet<String> {
    routes().into_iter().filter(|route| route.through_gateway || route.to.1 == 0).map(|route| route.by).collect()
}

fn mtu_of(interface: &str) -> Option<u32> {
    fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).ok()?.trim().parse().ok()
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

fn gateway(range: Range) -> Ipv4Addr {
    (u32::from(range.0) + 1).into()
}

fn overlap(one: Range, other: Range) -> bool {
    let common = mask(one.1.min(other.1));
    u32::from(one.0) & common == u32::from(other.0) & common
}

/// The first range for pods that no route of this machine leads to.
fn free_range(routes: &[Route], avoided: &BTreeSet<Range>) -> Option<Range> {
    let all = BASES
        .into_iter()
        .flat_map(|(first, second)| (0..=255).map(move |third| (Ipv4Addr::new(first, second, third, 0), 24)));
    let is_free = |range: &Range| {
        // What leads everywhere leads nowhere in particular.
        !avoided.contains(range) && !routes.iter().any(|route| route.to.1 > 0 && overlap(route.to, *range))
    };
    let mut all = all;
    all.find(is_free)
}

#[cfg(test)]
mod tests;
