//! Services of the real server, and properties of the pool.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{GroupKind, GroupResource, GroupVersionKind, Time, builtin, json};
use capstan_clock::SeededIds;
use capstan_storage::{Memory, Options};
use proptest::prelude::*;

use super::*;
use crate::{InProcessUser, Server, authorization::UserInfo, http::Body, registry, validation};

/// Services written to a running server, one case a line: the steps, and what came back. `*4`, `*6` and `*p` stand for
/// addresses and ports that the server has chosen.
const CASES: &str = include_str!("cases.jsonl");

fn allocator(primary: &str, secondary: Option<&str>, seed: u64) -> Allocator {
    let config = Config {
        primary: primary.parse().unwrap(),
        secondary: secondary.map(|range| range.parse().unwrap()),
        node_ports: DEFAULT_NODE_PORTS,
    };
    Allocator::new(&config, Arc::new(SeededIds::new(seed)))
}

fn object(text: &str) -> Map {
    match json::parse(text.as_bytes()).unwrap() {
        Value::Object(map) => map,
        other => panic!("not an object: {other:?}"),
    }
}

fn service(name: &str, spec: Map) -> Map {
    let mut service = object(&format!(
        r#"{{"apiVersion":"v1","kind":"Service","metadata":{{"name":"{name}","namespace":"default","resourceVersion":"1"}}}}"#
    ));
    service.insert("spec", spec);
    service
}

/// The road of a write up to the commit.
fn write(allocator: &Allocator, mut new: Map, old: Option<&Map>) -> Result<Map, String> {
    let gvk = GroupVersionKind::from_static("", "v1", "Service");
    let mut value = Value::from(new);
    builtin::default(&builtin::schema(&gvk).unwrap(), &mut value);
    new = value.as_object().unwrap().clone();
    let allocation = allocator.allocate(&mut new, old, false).map_err(|status| status.message.clone())?;
    let strategy = registry::Strategy::of(&GroupResource::from_static("", "services")).unwrap();
    let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut errors = match old {
        None => {
            registry::prepare_for_create(strategy, &mut new, "uid", now);
            validation::validate_create(&gvk, &new)
        }
        Some(old) => {
            registry::prepare_for_update(strategy, "", &mut new, old, now);
            validation::validate_update(&gvk, &new, old)
        }
    };
    if let Some(old) = old {
        errors.extend(validate_allocated_update(&new, old));
    }
    errors.extend(validate_allocated(&new, old));
    if !errors.is_empty() {
        let kind = GroupKind::from_static("", "Service");
        return Err(Status::invalid(&kind, Fields::read(&new).name.as_str(), &errors).message);
    }
    allocation.commit();
    Ok(new)
}

/// What the server has chosen by itself in the course of a case.
#[derive(Default)]
struct Chosen(BTreeMap<String, &'static str>);

impl Chosen {
    fn learn(&mut self, written: &Map, known: &str) {
        let fields = Fields::read(written);
        for ip in fields.cluster_ips.iter().filter(|ip| !known.contains(&format!("\"{ip}\""))) {
            self.0.insert(ip.clone(), if ip.contains(':') { "*6" } else { "*4" });
        }
        for port in fields.all_node_ports().map(|port| port.to_string()).filter(|port| !known.contains(port)) {
            self.0.insert(port, "*p");
        }
    }

    fn hide(&self, mut text: String) -> String {
        for (value, name) in &self.0 {
            if *name == "*p" {
                text = text.replace(&format!(":{value}"), ":\"*p\"");
            } else {
                text = text.replace(value.as_str(), name);
            }
        }
        text
    }
}

fn print(map: &Map) -> String {
    json::to_string(&Value::from(map.clone()))
}

fn check(line: &str) -> Result<(), String> {
    let case = object(line);
    let dual = case.get("stack").unwrap().as_str() == Some("46");
    let allocator = allocator("10.0.0.0/24", dual.then_some("fd00:10::/112"), 1);
    let own = object(r#"{"ports":[{"port":443}],"clusterIP":"10.0.0.1"}"#);
    let mut live = BTreeMap::from([("kubernetes".to_owned(), write(&allocator, service("kubernetes", own), None)?)]);
    let mut chosen = Chosen::default();
    for (i, step) in case.get("steps").unwrap().as_array().unwrap().iter().enumerate() {
        let text = |key: &str| step.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let name = text("name");
        if text("op") == "delete" {
            allocator.release(&live.remove(&name).unwrap()).commit();
            continue;
        }
        let old = live.get(&name).filter(|_| text("op") != "create");
        let before = old.map(|old| old.get("spec").unwrap().as_object().unwrap().clone());
        let mut spec = before.clone().filter(|_| text("op") == "rmw").unwrap_or_default();
        for (key, value) in step.get("spec").unwrap().as_object().unwrap().iter() {
            if value.is_null() { drop(spec.remove(key)) } else { drop(spec.insert(key, value.clone())) }
        }
        let known = format!("{}{}", print(&spec), before.as_ref().map(print).unwrap_or_default());
        let expected = step.get("got").map(|got| print(got.as_object().unwrap()));
        match write(&allocator, service(&name, spec), old) {
            Ok(written) => {
                chosen.learn(&written, &known);
                let spec = written.get("spec").unwrap().as_object().unwrap();
                let mut got = spec.clone();
                got.retain(|key, _| {
                    !matches!(key, "selector" | "sessionAffinity" | "externalName" | "sessionAffinityConfig")
                });
                let got = chosen.hide(print(&got));
                if expected.as_ref() != Some(&got) {
                    return Err(format!("step {i}:\n got {got}\nwant {expected:?} {}", text("message")));
                }
                live.insert(name, written);
            }
            Err(message) => {
                let message = chosen.hide(message);
                if message != text("message") {
                    return Err(format!("step {i}:\n got {message}\nwant {expected:?} {}", text("message")));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn services_get_what_upstream_gives_them() {
    let failed: Vec<_> = CASES.lines().filter_map(|line| Some(format!("{line}\n{}", check(line).err()?))).collect();
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n\n"));
}

fn simple(name: &str, spec: &str) -> Map {
    service(name, object(&format!(r#"{{"type":"ClusterIP","selector":{{"a":"b"}},"ports":[{{"port":80}}],{spec}}}"#)))
}

fn ips(service: &Map) -> Vec<String> {
    Fields::read(service).cluster_ips
}

#[test]
fn an_allocation_says_what_belongs_into_the_commit() {
    let allocator = allocator("10.0.0.0/24", Some("fd00:10::/112"), 1);
    let mut new = simple("a", r#""clusterIP":"10.0.0.9","ipFamilyPolicy":"PreferDualStack""#);
    let allocation = allocator.allocate(&mut new, None, false).unwrap();
    let ips = ips(&new);
    let created: Vec<_> = allocation.created().iter().map(print).collect();
    let ip = |ip: &str, family: &str| {
        format!(
            r#"{{"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{{"labels":{{"ipaddress.kubernetes.io/ip-family":"{family}","ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}},"name":"{ip}"}},"spec":{{"parentRef":{{"name":"a","namespace":"default","resource":"services"}}}}}}"#
        )
    };
    assert_eq!(created, [ip("10.0.0.9", "IPv4"), ip(&ips[1], "IPv6")]);
    assert!(allocation.deleted().is_empty());
    allocation.commit();

    let mut single = new.clone();
    let spec = single.get_mut("spec").and_then(Value::as_object_mut).unwrap();
    spec.insert("ipFamilyPolicy", "SingleStack");
    let allocation = allocator.allocate(&mut single, Some(&new), false).unwrap();
    assert_eq!((allocation.created(), allocation.deleted()), (vec![], vec![ips[1].clone()]));
    allocation.commit();
    assert_eq!(allocator.release(&single).deleted(), ["10.0.0.9"]);
}

#[test]
fn what_is_not_committed_is_given_back() {
    let allocator = allocator("10.0.0.0/24", None, 1);
    let spec = r#""clusterIP":"10.0.0.9","type":"NodePort""#;
    let take = |dry_run| allocator.allocate(&mut simple("a", spec), None, dry_run);
    drop(take(false).unwrap());
    let held = take(false).unwrap();
    assert!(take(false).is_err(), "one at a time");
    drop(held);
    // A dry run takes nothing, and what it leaves behind has nothing to give back.
    let dry = take(true).unwrap();
    assert!(dry.created().is_empty());
    let kept = take(false).unwrap();
    dry.commit();
    kept.commit();
    assert!(take(true).is_err(), "a dry run is told of conflicts");
}

#[test]
fn a_deleted_service_keeps_what_it_has_until_the_commit() {
    let allocator = allocator("10.0.0.0/24", None, 1);
    let mut a = simple("a", r#""clusterIP":"10.0.0.9""#);
    allocator.allocate(&mut a, None, false).unwrap().commit();
    let take = || allocator.allocate(&mut simple("b", r#""clusterIP":"10.0.0.9""#), None, false);
    let release = allocator.release(&a);
    assert!(take().is_err());
    drop(release);
    assert!(take().is_err(), "the deletion has failed");
    allocator.release(&a).commit();
    take().unwrap().commit();
    // The news of the old service's end comes late: the address is another's by now.
    allocator.ip_address("10.0.0.9", None, Some(&objects::ip_address("10.0.0.9".parse().unwrap(), "default/a")));
    assert!(take().is_err());
}

#[test]
fn further_ranges_extend_the_first() {
    let allocator = allocator("10.0.0.0/30", None, 1);
    let take = |name: &str| {
        let mut new = simple(name, r#""clusterIP":"""#);
        allocator.allocate(&mut new, None, false).map(|allocation| (allocation.commit(), ips(&new)).1)
    };
    assert_eq!((take("a").unwrap(), take("b").unwrap()).0.len(), 1);
    let full = r#"Internal error occurred: failed to allocate a serviceIP for Service "c": range is full"#;
    assert_eq!(take("c").unwrap_err().message, full);
    let cidr = |status: &str| object(&format!(r#"{{"spec":{{"cidrs":["10.1.0.0/30"]}}{status}}}"#));
    let not_ready = r#","status":{"conditions":[{"type":"Ready","status":"False"}]}"#;
    allocator.service_cidr("more", Some(&cidr(not_ready)));
    assert_eq!(take("c").unwrap_err().message, full);
    allocator.service_cidr("more", Some(&cidr("")));
    assert!(take("c").unwrap()[0].starts_with("10.1.0."));
    allocator.service_cidr("more", None);
    assert_eq!(take("d").unwrap_err().message.replace("\"d\"", "\"c\""), full);
}

#[test]
fn the_lower_band_is_used_last() {
    // 16 of 64 addresses are set aside, and the network's own and the broadcast address are nobody's.
    let allocator = allocator("10.0.0.0/26", None, 3);
    let mut taken = Vec::new();
    for i in 0..62 {
        let mut new = simple(&format!("s{i}"), r#""clusterIP":"""#);
        allocator.allocate(&mut new, None, false).unwrap().commit();
        taken.push(ips(&new)[0].rsplit('.').next().unwrap().parse::<u8>().unwrap());
    }
    let (upper, lower) = taken.split_at(46);
    let sorted = |part: &[u8]| part.iter().copied().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    assert_eq!(sorted(upper), (17..=62).collect::<Vec<_>>());
    assert_eq!(sorted(lower), (1..=16).collect::<Vec<_>>());
}

#[test]
fn ranges_are_read_and_shown() {
    for (text, expected) in [
        ("10.0.0.0/24", Some("10.0.0.0/24")),
        ("10.0.0.7/24", Some("10.0.0.0/24")),
        ("0.0.0.0/0", Some("0.0.0.0/0")),
        ("10.0.0.1/32", Some("10.0.0.1/32")),
        ("255.255.255.255/32", Some("255.255.255.255/32")),
        ("fd00::/64", Some("fd00::/64")),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128", Some("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128")),
        ("fd00::/63", None),
        ("10.0.0.0/33", None),
        ("10.0.0.0", None),
        ("x/1", None),
    ] {
        let range = text.parse::<ServiceCidr>();
        assert_eq!(range.as_ref().ok().map(ToString::to_string).as_deref(), expected, "{text}");
        if let Ok(range) = range {
            let config = Config { primary: range, secondary: None, node_ports: DEFAULT_NODE_PORTS };
            let allocator = Allocator::new(&config, Arc::new(SeededIds::new(1)));
            let taken = allocator.allocate(&mut simple("a", r#""clusterIP":"""#), None, false);
            assert_eq!(taken.is_ok(), !text.ends_with("/32") && !text.ends_with("/128"), "{text}");
        }
    }
}

#[test]
fn a_repair_takes_from_services_and_tells_what_is_missing_or_left_over() {
    let allocator = allocator("10.0.0.0/24", None, 1);
    let stored = |name: &str, ip: &str, port: u16| {
        let ports = format!(r#""clusterIP":"{ip}","type":"NodePort","ports":[{{"port":80,"nodePort":{port}}}]"#);
        service(name, object(&format!("{{{ports}}}")))
    };
    let services = [stored("a", "10.0.0.5", 30005), stored("b", "10.0.0.6", 30006), stored("c", "10.0.0.6", 30006)];
    let address = |ip: &str, owner: &str| objects::ip_address(ip.parse().unwrap(), owner);
    let addresses = [address("10.0.0.5", "default/a"), address("10.0.0.7", "default/gone")];
    let repair = allocator.repair(&services, &addresses);
    assert_eq!(repair.create, [address("10.0.0.6", "default/b")]);
    assert_eq!(repair.delete, ["10.0.0.7"]);
    let conflict = |what: &str| (what.to_owned(), "default/b".to_owned(), "default/c".to_owned());
    assert_eq!(repair.conflicts, [conflict("10.0.0.6"), conflict("30006")]);
    for (ip, port, free) in [("10.0.0.5", 30001, false), ("10.0.0.8", 30005, false), ("10.0.0.8", 30001, true)] {
        let outcome = allocator.allocate(&mut stored("d", ip, port), None, true);
        assert_eq!(outcome.is_ok(), free, "{ip} {port}");
    }
}

#[test]
fn other_servers_writes_are_learned() {
    let allocator = allocator("10.0.0.0/24", None, 1);
    let other = |ports: &str| service("o", object(&format!(r#"{{"type":"NodePort","ports":[{ports}]}}"#)));
    let (two, one) = (other(r#"{"nodePort":30001},{"nodePort":30002}"#), other(r#"{"nodePort":30002}"#));
    let free = |port: u16| {
        let spec = format!(r#""type":"NodePort","ports":[{{"port":80,"nodePort":{port}}}]"#);
        allocator.allocate(&mut simple("a", &spec), None, true).is_ok()
    };
    allocator.service(Some(&two), None);
    assert_eq!((free(30001), free(30002), free(30003)), (false, false, true));
    allocator.service(Some(&one), Some(&two));
    assert_eq!((free(30001), free(30002)), (true, false));
    allocator.service(None, Some(&one));
    assert!(free(30002));
}

#[test]
fn services_from_before_there_were_families_are_read_with_them() {
    let allocator = allocator("10.0.0.0/24", Some("fd00:10::/112"), 1);
    for (stored, read) in [
        (
            r#"{"type":"ClusterIP","clusterIP":"10.0.0.5"}"#,
            r#"{"clusterIP":"10.0.0.5","clusterIPs":["10.0.0.5"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","type":"ClusterIP"}"#,
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"None"}"#,
            r#"{"clusterIP":"None","clusterIPs":["None"],"ipFamilies":["IPv4","IPv6"],"ipFamilyPolicy":"RequireDualStack","type":"ClusterIP"}"#,
        ),
        (
            r#"{"type":"ClusterIP","clusterIP":"None","selector":{"a":"b"}}"#,
            r#"{"clusterIP":"None","clusterIPs":["None"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","selector":{"a":"b"},"type":"ClusterIP"}"#,
        ),
        (r#"{"type":"ExternalName","internalTrafficPolicy":"Cluster"}"#, r#"{"type":"ExternalName"}"#),
    ] {
        let mut service = service("a", object(stored));
        allocator.default_on_read(&mut service);
        assert_eq!(print(service.get("spec").unwrap().as_object().unwrap()), read);
    }
}

/// One step of somebody who writes services.
#[derive(Clone, Debug)]
enum Op {
    Write { name: u8, ip: Option<u8>, ports: Vec<Option<u8>>, ty: u8, dual: bool, fails: bool },
    Delete { name: u8, fails: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let ports = proptest::collection::vec(proptest::option::weighted(0.4, 0..24u8), 1..3);
    let ip = proptest::option::weighted(0.4, 0..16u8);
    let write = (0..8u8, ip, ports, 0..4u8, any::<bool>(), any::<bool>())
        .prop_map(|(name, ip, ports, ty, dual, fails)| Op::Write { name, ip, ports, ty, dual, fails });
    let delete = (0..8u8, any::<bool>()).prop_map(|(name, fails)| Op::Delete { name, fails });
    prop_oneof![4 => write, 1 => delete]
}

proptest! {
    #[test]
    fn nothing_is_given_twice_and_all_comes_back(ops in proptest::collection::vec(op(), 1..60), seed: u64) {
        let config = Config {
            primary: "10.0.0.0/28".parse().unwrap(),
            secondary: Some("fd00::/125".parse().unwrap()),
            node_ports: 30_000..=30_020,
        };
        let allocator = Allocator::new(&config, Arc::new(SeededIds::new(seed)));
        let mut live: BTreeMap<u8, Map> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Delete { name, fails } => {
                    let Some(service) = live.get(&name) else { continue };
                    let release = allocator.release(service);
                    if !fails {
                        release.commit();
                        live.remove(&name);
                    }
                }
                Op::Write { name, ip, ports, ty, dual, fails } => {
                    let ty = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"][usize::from(ty)];
                    let port = |(i, port): (usize, &Option<u8>)| {
                        let node = port.filter(|_| ty != "ClusterIP").map(|port| u16::from(port) + 29_999);
                        let node = node.map(|port| format!(r#","nodePort":{port}"#)).unwrap_or_default();
                        format!(r#"{{"name":"p{i}","port":{i},"protocol":"TCP"{node}}}"#)
                    };
                    let ports = ports.iter().enumerate().map(port).collect::<Vec<_>>().join(",");
                    let ip = ip.filter(|_| ty != "ExternalName").map(|ip| format!(r#""clusterIP":"10.0.0.{ip}","#));
                    let policy = if dual && ty != "ExternalName" { r#""ipFamilyPolicy":"PreferDualStack","# } else { "" };
                    let local = if dual { r#""externalTrafficPolicy":"Local","# } else { "" };
                    let spec = format!(
                        r#"{{{}{policy}{local}"type":"{ty}","ports":[{ports}]}}"#, ip.unwrap_or_default()
                    );
                    let old = live.get(&name);
                    let mut new = service(&format!("s{name}"), object(&spec));
                    let Ok(allocation) = allocator.allocate(&mut new, old, false) else { continue };
                    let changes = old.is_some_and(|old| !validate_allocated_update(&new, old).is_empty());
                    if fails || changes || !validate_allocated(&new, old).is_empty() {
                        continue;
                    }
                    allocation.commit();
                    live.insert(name, new);
                }
            }
            // What is taken is what the services have, no more and no less, and nothing is there twice.
            let fields: Vec<_> = live.values().map(Fields::read).collect();
            let ips: Vec<_> = fields.iter().flat_map(Fields::addresses).collect();
            let pool = lock(&allocator.pool);
            prop_assert_eq!(ips.iter().copied().collect::<BTreeSet<_>>().len(), ips.len());
            prop_assert_eq!(ips.iter().copied().collect::<BTreeSet<_>>(), pool.ips.keys().copied().collect());
            // The ports of one service may be the same: they are of different protocols.
            let own = |service: &Fields| service.all_node_ports().collect::<BTreeSet<_>>();
            let ports: Vec<i64> = fields.iter().flat_map(own).collect();
            let set: BTreeSet<i64> = ports.iter().copied().collect();
            prop_assert_eq!(set.len(), ports.len());
            prop_assert_eq!(set, pool.ports.keys().map(|port| i64::from(*port)).collect());
        }
        for service in live.values() {
            allocator.release(service).commit();
        }
        let pool = lock(&allocator.pool);
        prop_assert!(pool.ips.is_empty() && pool.ports.is_empty());
    }
}

#[tokio::test]
async fn a_service_that_a_finalizer_held_gives_its_port_back() {
    let server = Server::start(Arc::new(Memory::new(Options::default())), crate::Config::default()).await.unwrap();
    let send = async |method: &str, path: &str, body: &str| {
        let request = http::Request::builder().method(method).uri(format!("/api/v1/namespaces/default/services{path}"));
        let patch = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let admin = InProcessUser(UserInfo::new("admin", ["system:masters"]));
        let request = request.header("content-type", patch).extension(admin).body(Body::from(body.to_owned()));
        server.answer(request.unwrap()).await.status().as_u16()
    };
    let service = r#"{"metadata": {"name": "web", "finalizers": ["example.com/held"]},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}}"#;
    for _ in 0..2 {
        assert_eq!(send("POST", "", service).await, 201);
        assert_eq!(send("DELETE", "/web", "").await, 200);
        assert_eq!(send("PATCH", "/web", r#"{"metadata": {"finalizers": null}}"#).await, 200);
        assert_eq!(send("GET", "/web", "").await, 404);
    }
}
