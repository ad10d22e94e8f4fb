//! In a network namespace of the test's own, so that the machine's network stays as it is.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
};

use capstan_clock::RealClock;

use super::*;

fn clock() -> SharedClock {
    Arc::new(RealClock::new())
}

/// Runs a test as if on another machine, which has a loopback alone; not at all where namespaces can't be made.
fn on_other_machine(test: impl FnOnce(&tokio::runtime::Runtime) + Send + 'static) {
    let ran = std::thread::spawn(|| {
        if let Err(error) = new_namespace() {
            eprintln!("skipped: this machine allows no network namespaces: {error}");
            return;
        }
        // A new namespace takes this over from the machine, where other engines may have turned it on.
        fs::write(FORWARDING, "0").unwrap();
        Netlink::route().unwrap().set_up(LOOPBACK).unwrap();
        test(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    });
    ran.join().unwrap();
}

/// What somebody who connects is told.
fn heard(address: impl std::net::ToSocketAddrs) -> io::Result<String> {
    let mut text = String::new();
    std::net::TcpStream::connect(address)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Tells everybody who connects the same, in the network of this thread.
fn tell(on: SocketAddr, words: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(on).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.and_then(|mut stream| stream.write_all(words.as_bytes()));
        }
    });
    address
}

#[test]
fn pods_have_networks_of_their_own() {
    on_other_machine(|runtime| {
        let api = tell("127.0.0.1:0".parse().unwrap(), "the API server");
        let told: SocketAddr = "10.0.0.1:443".parse().unwrap();
        let config = NetworkConfig { api_server: Some((told, api)), ..NetworkConfig::default() };
        let network = Arc::new(Network::open(config, clock()).unwrap());
        assert_eq!((network.bridge.as_str(), network.range), ("capstan0", (Ipv4Addr::new(10, 244, 0, 0), 24)));
        assert_eq!(network.out.as_ref().err(), None);
        runtime.block_on(async {
            let ports = vec![("TCP".to_owned(), 80, 18080, "127.0.0.1".to_owned())];
            let pod = SandboxConfig { ports, ..SandboxConfig::default() };
            let one = network.attach(&pod).await.unwrap();
            let sysctls = [("net.ipv4.ip_unprivileged_port_start".to_owned(), "7".to_owned())].into();
            let other = network.attach(&SandboxConfig { sysctls, ..SandboxConfig::default() }).await.unwrap();
            assert_eq!([one.address, other.address].map(|ip| ip.to_string()), ["10.244.0.2", "10.244.0.3"]);
            // Both have the same port, and each is reached by its own address, from here and from the other.
            let everywhere: SocketAddr = "0.0.0.0:80".parse().unwrap();
            one.within(move || Ok(tell(everywhere, "one"))).await.unwrap();
            other.within(move || Ok(tell(everywhere, "other"))).await.unwrap();
            assert_eq!(on_thread(|| heard("10.244.0.2:80")).await.unwrap(), "one");
            assert_eq!(on_thread(|| heard("10.244.0.3:80")).await.unwrap(), "other");
            assert_eq!(one.within(|| heard("10.244.0.3:80")).await.unwrap(), "other");
            assert_eq!(one.within(|| heard("127.0.0.1:80")).await.unwrap(), "one");
            // The API server is where pods look for it, though it listens on the node's loopback alone.
            assert_eq!(one.within(|| heard("10.0.0.1:443")).await.unwrap(), "the API server");
            assert_eq!(other.within(|| heard("10.0.0.1:443")).await.unwrap(), "the API server");
            // A port of the node leads to the pod; what port-forward does arrives at the pod's loopback.
            assert_eq!(on_thread(|| heard("127.0.0.1:18080")).await.unwrap(), "one");
            let inside = other.connect_inside(80).await.unwrap();
            let mut text = String::new();
            tokio::io::AsyncReadExt::read_to_string(&mut { inside }, &mut text).await.unwrap();
            assert_eq!(text, "other");
            assert_eq!(other.connect_inside(81).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            // Settings of the kernel are the pod's own.
            let read = || fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
            assert_eq!(other.within(read).await.unwrap().trim(), "7");
            assert_eq!(one.within(read).await.unwrap().trim(), "1024");
            let taken = network.attach(&pod).await.unwrap_err();
            assert!(taken.starts_with("hostPort 18080: "), "{taken}");
            drop((one, other));
        });
        let left = || -> Vec<String> {
            Netlink::route().unwrap().links().unwrap().into_iter().map(|link| link.name).collect()
        };
        assert!(!left().iter().any(|name| name.starts_with("cap0")), "{:?}", left());
        drop(network);
        assert!(!left().iter().any(|name| name.starts_with(BRIDGE)), "{:?}", left());
    });
}

#[test]
fn pods_reach_beyond_the_machine_in_its_name_and_nobody_comes_in() {
    on_other_machine(|runtime| {
        runtime.block_on(async {
            // Another machine on a cable, by which everything else is reached.
            let beyond = Arc::new(on_thread(new_namespace).await.unwrap());
            let mut netlink = Netlink::route().unwrap();
            netlink.add_bridge("lan", "", [2, 0, 0, 0, 0, 1], MTU).unwrap();
            let lan = netlink.index("lan").unwrap();
            netlink.add_address(lan, "198.51.100.1".parse().unwrap(), 24).unwrap();
            netlink.set_up(lan).unwrap();
            netlink.add_pair("cable", lan, INSIDE, beyond.as_fd(), MTU).unwrap();
            let (address, gateway) = (Ipv4Addr::new(198, 51, 100, 2), Ipv4Addr::new(198, 51, 100, 1));
            netlink.add_default_route(lan, address).unwrap();
            let network = Arc::new(Network::open(NetworkConfig::default(), clock()).unwrap());
            let pod = network.attach(&SandboxConfig::default()).await.unwrap();
            let there = PodNetwork {
                namespace: beyond,
                address,
                of: network.clone(),
                outside: "cable".to_owned(),
                doors: JoinSet::new(),
            };
            // The other machine knows the way to pods, and tells each who it seems to be.
            there.within(move || set_up_inside(address, 24, gateway)).await.unwrap();
            let listener = there.within(move || TcpListener::bind((address, 80))).await.unwrap();
            std::thread::spawn(move || {
                let (mut stream, from) = listener.accept().unwrap();
                stream.write_all(from.ip().to_string().as_bytes()).unwrap();
            });
            assert_eq!(pod.within(|| heard("198.51.100.2:80")).await.unwrap(), "198.51.100.1");
            pod.within(|| Ok(tell("0.0.0.0:80".parse().unwrap(), "a secret"))).await.unwrap();
            let short = std::time::Duration::from_millis(300);
            let to = SocketAddr::new(pod.address.into(), 80);
            let refused = there.within(move || std::net::TcpStream::connect_timeout(&to, short)).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
            assert_eq!(on_thread(move || heard(to)).await.unwrap(), "a secret");
            // What was changed for this is as it was.
            let file = "/proc/sys/net/ipv4/conf/lan/forwarding";
            assert!(!is_off(file));
            drop((pod, there, network));
            assert!(is_off(file));
        });
    });
}

#[test]
fn what_a_killed_node_left_goes_and_what_others_have_stays() {
    on_other_machine(|_| {
        let mut netlink = Netlink::route().unwrap();
        let (living, here) = (own_alias(), process_namespace());
        for (name, alias) in [
            ("capstan0", format!("capstan 4194304 77 {here} lo")),
            ("capstan1", living.replace(&began(std::process::id()).unwrap(), "1")),
            ("capstan2", living),
            ("capstan3", "capstan 4194304 77 pid:[1]".to_owned()),
            ("capstan4", "somebody's".to_owned()),
        ] {
            netlink.add_bridge(name, &alias, [2, 0, 0, 0, 0, 1], MTU).unwrap();
        }
        let network = Network::open(NetworkConfig::default(), clock()).unwrap();
        assert_eq!(network.out.as_ref().ok().map(|out| out.changed.clone()), Some(vec!["lo".to_owned()]));
        assert_eq!(network.bridge, "capstan0");
        let names: Vec<_> = netlink.links().unwrap().into_iter().map(|link| link.name).collect();
        assert_eq!(names.iter().filter(|name| name.starts_with(BRIDGE)).count(), 4, "{names:?}");
        assert!(!names.contains(&"capstan1".to_owned()), "{names:?}");
    });
}

#[test]
fn addresses_are_given_in_turn_until_there_is_none() {
    on_other_machine(|_| {
        let range = Some((Ipv4Addr::new(10, 9, 8, 0), 29));
        let network = Network::open(NetworkConfig { range, ..NetworkConfig::default() }, clock()).unwrap();
        let all: Vec<_> = std::iter::from_fn(|| network.take_address()).map(|ip| ip.octets()[3]).collect();
        assert_eq!((network.gateway().octets()[3], all), (1, vec![2, 3, 4, 5, 6]));
        network.give_back(Ipv4Addr::new(10, 9, 8, 4));
        assert_eq!(network.take_address(), Some(Ipv4Addr::new(10, 9, 8, 4)));
    });
}

#[test]
fn ranges_avoid_the_routes_of_the_machine() {
    let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                tun0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FEFFFF\t0\t0\t0\n";
    let routes = parse_routes(text);
    let of = |by: &str, to: [u8; 4], prefix, through_gateway| Route {
        by: by.into(),
        to: (to.into(), prefix),
        through_gateway,
    };
    let expected = [
        of("eth0", [0, 0, 0, 0], 0, true),
        of("eth0", [192, 0, 2, 0], 24, false),
        of("tun0", [10, 244, 0, 0], 23, false),
    ];
    assert_eq!(routes, expected);
    let check = |routes: &[Route], avoided: &[Range], expected: Option<[u8; 4]>| {
        let avoided = avoided.iter().copied().collect();
        assert_eq!(free_range(routes, &avoided), expected.map(|first| (first.into(), 24)));
    };
    check(&[], &[], Some([10, 244, 0, 0]));
    check(&routes, &[], Some([10, 244, 2, 0]));
    check(&routes, &[([10, 244, 2, 0].into(), 24)], Some([10, 244, 3, 0]));
    check(&[of("tun0", [10, 0, 0, 0], 8, false)], &[], Some([172, 30, 0, 0]));
    check(&[of("tun0", [0, 0, 0, 0], 1, false), of("tun0", [128, 0, 0, 0], 1, false)], &[], None);
}

#[test]
fn only_settings_of_the_network_are_the_pods_own() {
    for (name, file) in [
        ("net.ipv4.tcp_syncookies", Some("/proc/sys/net/ipv4/tcp_syncookies")),
        ("net/ipv4/ip_forward", Some("/proc/sys/net/ipv4/ip_forward")),
        ("kernel.shm_rmid_forced", None),
        ("net..x", None),
        ("net/../kernel/x", None),
    ] {
        assert_eq!(sysctl_file(name), file.map(PathBuf::from), "{name}");
    }
}
