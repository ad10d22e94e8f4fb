//! Pods with networks of their own, on a real node: the same port twice, probes, port-forward, the files of names.

use std::{path::Path, sync::Arc, time::Duration};

use capstan_clock::{OsIds, RealClock};
use capstan_kubelet::runtime::{
    Runtime,
    process::{Network, NetworkConfig, Process},
};
use capstan_runtime::Stopper;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{World, build, directory, ready, sh, shim};

/// None where this machine allows no such thing, or has no program that listens.
async fn with_networks(dir: &Path, config: NetworkConfig) -> Option<Arc<dyn Runtime>> {
    let clock = Arc::new(RealClock::new());
    let ips = vec!["192.0.2.77".to_owned()];
    let network = Network::open(config, clock.clone());
    let runtime = Process::new(&dir.join("run"), &shim(), ips, clock, Arc::new(OsIds)).await.unwrap();
    let runtime = runtime.with_network(network);
    if runtime.shares_host_network() || !Path::new("/usr/bin/python3").exists() {
        eprintln!("skipped: {:?}", runtime.limitations());
        return None;
    }
    Some(Arc::new(runtime))
}

fn address(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap();
    assert_eq!(status.pod_ips.unwrap()[0].ip, status.pod_ip.clone().unwrap());
    assert_eq!(status.host_ip.as_deref(), Some("127.0.0.1"));
    status.pod_ip.unwrap()
}

async fn first_line(mut stream: tokio::net::TcpStream) -> String {
    stream.write_all(b"GET /etc/hostname HTTP/1.0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_have_the_same_port() {
    let dir = directory("networks");
    let Some(runtime) = with_networks(&dir, NetworkConfig::default()).await else { return };
    let mut world = World::with(dir, runtime).await;
    let serve = |probe: &str| {
        let mut container = json!({"name": "c", "image": "python", "command": ["python3", "-m", "http.server", "8080"],
            "ports": [{"containerPort": 8080}]});
        container["readinessProbe"] = match probe {
            "tcp" => json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1}),
            _ => json!({"httpGet": {"port": 8080}, "periodSeconds": 1}),
        };
        let other = json!({"name": "beside", "image": "busybox", "command": ["sleep", "1000"]});
        json!({"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "subdomain": "sub", "hostAliases": [{"ip": "192.0.2.5", "hostnames": ["elsewhere"]}], "containers": [container, other]})
    };
    world.create("a", serve("tcp")).await;
    world.create("b", serve("http")).await;
    let mut host = serve("none");
    host["hostNetwork"] = json!(true);
    host["containers"] = json!([{"name": "c", "image": "busybox", "command": ["sleep", "1000"]}]);
    world.create("on-node", host).await;
    let (a, b) = (address(&world.until("a", ready).await), address(&world.until("b", ready).await));
    assert!(a != b && a != "192.0.2.77" && a != "127.0.0.1", "{a} {b}");
    assert_eq!(address(&world.until("on-node", ready).await), "127.0.0.1");

    let handle = world.shared.pod("default", "a").unwrap();
    let runtime = world.shared.runtime();
    let run = async |container: &str, script: &str| {
        let id = &handle.containers[container].id;
        let command: Vec<String> = serde_json::from_value(sh(script)).unwrap();
        let (exit, output) = runtime.exec_sync(id, &command, Duration::from_secs(60)).await.unwrap();
        let text = String::from_utf8(output).unwrap();
        assert_eq!(exit.code, 0, "{script}: {text}");
        text
    };
    // From beside it by the loopback, from it to the other, from the node, and by a forwarded port.
    let get = |host: &str| {
        format!("python3 -c \"import urllib.request as r; print(r.urlopen('http://{host}:8080/etc/').status)\"")
    };
    assert_eq!(run("beside", &get("127.0.0.1")).await, "200\n");
    assert_eq!(run("c", &get(&b)).await, "200\n");
    let direct = tokio::net::TcpStream::connect((b.as_str(), 8080)).await.unwrap();
    assert_eq!(first_line(direct).await, "HTTP/1.0 200 OK");
    let forwarded = runtime.port_forward(handle.sandbox.as_ref().unwrap(), 8080).await.unwrap();
    assert_eq!(first_line(forwarded).await, "HTTP/1.0 200 OK");
    // Its files say who it is, and it sees its own interfaces alone.
    let hosts = run("c", "cat /etc/hosts").await;
    assert!(
        hosts.contains(&format!("\n{a}\ta.sub.default.svc.cluster.local\ta\n"))
            && hosts.contains("192.0.2.5\telsewhere\n"),
        "{hosts}"
    );
    assert_eq!(run("c", "ls /sys/class/net").await, "eth0\nlo\n");
    let number = u32::from(a.parse::<std::net::Ipv4Addr>().unwrap());
    let outside = Path::new("/sys/class/net").join(format!("cap{number:08x}"));
    assert!(outside.exists());
    world.stopper.stop();
    world.node.take().unwrap().await.unwrap();
    assert!(!outside.exists());

    // When the node returns, pods have other addresses, and no more than before.
    let range = Some(([10, 93, 7, 0].into(), 24));
    let runtime = with_networks(&world.dir, NetworkConfig { range, ..NetworkConfig::default() }).await.unwrap();
    let node = build(&world.client, &world.dir, runtime);
    let (stopper, stop) = Stopper::new();
    world.shared = node.shared();
    world.node = Some(tokio::spawn(node.run(stop)));
    world.stopper = stopper;
    let moved = |pod: &Pod| ready(pod) && address(pod).starts_with("10.93.7.");
    let pod = world.until("a", moved).await;
    assert_eq!(pod.status.unwrap().pod_ips.unwrap().len(), 1);
    world.end().await;
}
