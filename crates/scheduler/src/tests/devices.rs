//! Devices: what claims get, and what is said when they get nothing.

use std::sync::Arc;

use super::outcome;
use crate::{
    core::Outcome,
    plugin::{Cycle, Plugin},
    plugins::{DynamicResources, defaults},
    profile::Profile,
    testing::{cluster, info},
};

/// What follows a refusal of one node that has devices in it.
const USELESS: &str =
    "still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

fn slice(node: &str, devices: &str) -> String {
    format!(
        "slice {{metadata: {{name: s-{node}}}, spec: {{driver: d.io, nodeName: {node}, \
         pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}, devices: [{devices}]}}}}"
    )
}

fn claim(name: &str, devices: &str) -> String {
    format!(
        "resourceclaim {{metadata: {{name: {name}, namespace: default, uid: {name}}}, spec: {{devices: {devices}}}}}"
    )
}

const CLASS: &str = "devices {metadata: {name: gpu}, spec: {}}";

/// One pod, `p`, with the claim `c`: the devices that it gets, or what is said.
#[track_caller]
fn check(lines: &[String], expected: &str) {
    let mut core = cluster(&lines.join("\n"));
    let devices = Arc::new(DynamicResources::default());
    let plugins = defaults().into_iter().map(|(plugin, weight)| match plugin.name() {
        "DynamicResources" => (Arc::clone(&devices) as Arc<dyn Plugin>, weight),
        _ => (plugin, weight),
    });
    let profile = Profile::new("default-scheduler", plugins);
    let pod = info("p yaml:resourceClaims: [{name: c, resourceClaimName: c}]");
    let Outcome::Placed { slot, .. } = core.schedule(&profile, &pod) else {
        assert_eq!(outcome(&mut core, &profile, &pod), expected, "{lines:?}");
        return;
    };
    let node = core.cache.node(slot);
    devices.reserve(Cycle { pod: &pod, cache: &core.cache }, node).unwrap();
    let got = format!("{}: {}", node.name(), devices.set_aside(&pod).join(" "));
    assert_eq!(got, expected, "{lines:?}");
    // Whoever comes next finds the claim on its way.
    let next = info("q yaml:resourceClaims: [{name: c, resourceClaimName: c}]");
    let waits = "resource claim default/c is in the process of being allocated";
    assert!(outcome(&mut core, &profile, &next).contains(waits));
    devices.unreserve(&pod, "");
    assert!(!outcome(&mut core, &profile, &next).contains(waits));
}

#[track_caller]
fn refused(lines: &[String], reason: &str) {
    check(lines, &format!("0/1 nodes are available: 1 {reason}. {USELESS}"));
}

fn lines(devices: &str, of_claim: &str) -> Vec<String> {
    vec!["node a".to_owned(), CLASS.to_owned(), slice("a", devices), claim("c", of_claim)]
}

#[test]
fn by_class_and_expression() {
    let one = "{requests: [{name: r, exactly: {deviceClassName: gpu}}]}";
    check(&lines("{name: d0}", one), "a: d0");
    refused(&lines("", one), "cannot allocate all claims");
    let which = |expression: &str| {
        format!(
            "{{requests: [{{name: r, exactly: {{deviceClassName: gpu, selectors: [{{cel: {{expression: '{expression}'}}}}]}}}}]}}"
        )
    };
    let devices = "{name: d0, attributes: {model: {string: small}, cores: {int: 4}, v: {version: 1.0.0}}}, \
                   {name: d1, attributes: {model: {string: large}, other.io/x: {bool: true}}, \
                   capacity: {memory: {value: 40Gi}}}";
    for (expression, expected) in [
        (r#"device.attributes["d.io"].model == "large""#, "a: d1"),
        (r#"device.driver == "d.io""#, "a: d0"),
        (r#""x" in device.attributes["other.io"] && device.attributes["other.io"].x"#, "a: d1"),
        (
            r#""memory" in device.capacity["d.io"] && device.capacity["d.io"].memory.compareTo(quantity("1Gi")) > 0"#,
            "a: d1",
        ),
        (r#"has(device.attributes["d.io"].v) && device.attributes["d.io"].v.isGreaterThan(semver("0.9.0"))"#, "a: d0"),
        (r#"!("nobody.io" in device.attributes)"#, "a: d0"),
        (r#"cel.bind(d, device.attributes["d.io"], has(d.model) && d.model == "large")"#, "a: d1"),
        ("device.allowMultipleAllocations", "0/1 nodes are available: 1 cannot allocate all claims. USELESS"),
        (
            r#"device.attributes["d.io"].cores > 8 || device.attributes["d.io"].none == 1"#,
            "error: running \"DynamicResources\" filter plugin: claim default/c: selector #0: CEL runtime error: no such key: none",
        ),
    ] {
        check(&lines(devices, &which(expression)), &expected.replace("USELESS", USELESS));
    }
}

#[test]
fn several_and_all() {
    let count = |count: u32, more: &str| {
        format!("{{requests: [{{name: r, exactly: {{deviceClassName: gpu, count: {count}}}}}]{more}}}")
    };
    let devices = "{name: d0, attributes: {bus: {int: 1}}}, {name: d1, attributes: {bus: {int: 2}}}, \
                   {name: d2, attributes: {bus: {int: 2}}}";
    check(&lines(devices, &count(2, "")), "a: d0 d1");
    check(&lines(devices, &count(2, ", constraints: [{matchAttribute: d.io/bus}]")), "a: d1 d2");
    check(&lines(devices, &count(2, ", constraints: [{distinctAttribute: d.io/bus}]")), "a: d0 d1");
    refused(&lines(devices, &count(3, ", constraints: [{matchAttribute: d.io/bus}]")), "cannot allocate all claims");
    refused(&lines(devices, &count(2, ", constraints: [{matchAttribute: d.io/none}]")), "cannot allocate all claims");
    let all = "{requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: All}}]}";
    check(&lines(devices, all), "a: d0 d1 d2");
    refused(&lines("", all), "cannot allocate all claims");
    // Each of two requests gets its own, even if the first could have taken what only the second can use.
    let two = "{requests: [{name: r, exactly: {deviceClassName: gpu}}, {name: s, exactly: {deviceClassName: gpu, \
               selectors: [{cel: {expression: 'device.attributes[\"d.io\"].bus == 1'}}]}}]}";
    check(&lines(devices, two), "a: d1 d0");
    let large = count(33, "");
    check(
        &lines(devices, &large),
        "error: running \"DynamicResources\" filter plugin: claim default/c: number of requested devices 33 exceeds the claim limit of 32",
    );
}

#[test]
fn alternatives() {
    let first = "{requests: [{name: r, firstAvailable: [{name: big, deviceClassName: gpu, count: 2}, \
                 {name: small, deviceClassName: gpu}]}]}";
    check(&lines("{name: d0}", first), "a: d0");
    check(&lines("{name: d0}, {name: d1}, {name: d2}", first), "a: d0 d1");
    // The node with the first choice is better.
    let mut both = lines("{name: d0}", first);
    both.extend(["node b".to_owned(), slice("b", "{name: e0}, {name: e1}")]);
    check(&both, "b: e0 e1");
}

#[test]
fn taints_counters_and_shares() {
    let one = "{requests: [{name: r, exactly: {deviceClassName: gpu}}]}";
    let tainted = "{name: d0, taints: [{key: k, effect: NoSchedule}]}";
    refused(&lines(tainted, one), "cannot allocate all claims");
    let bears = "{requests: [{name: r, exactly: {deviceClassName: gpu, tolerations: [{key: k, operator: Exists}]}}]}";
    check(&lines(tainted, bears), "a: d0");

    let mut parts = lines("", "{requests: [{name: r, exactly: {deviceClassName: gpu, count: 2}}]}");
    let consumes = |name: &str, amount: u32| {
        format!("{{name: {name}, consumesCounters: [{{counterSet: card, counters: {{mem: {{value: {amount}}}}}}}]}}")
    };
    let devices = [consumes("whole", 40), consumes("half-0", 20), consumes("half-1", 20)].join(", ");
    parts[2] = slice("a", &devices).replace("resourceSliceCount: 1", "resourceSliceCount: 2");
    parts.push(
        "slice {metadata: {name: t-a}, spec: {driver: d.io, nodeName: a, \
         pool: {name: a, generation: 1, resourceSliceCount: 2}, sharedCounters: [{name: card, counters: {mem: {value: 40}}}]}}"
            .to_owned(),
    );
    check(&parts, "a: half-0 half-1");

    let shared = "{name: d0, allowMultipleAllocations: true, capacity: {mem: {value: 40}}}";
    let share = |amount: u32| {
        let request = |name: &str| {
            format!("{{name: {name}, exactly: {{deviceClassName: gpu, capacity: {{requests: {{mem: '{amount}'}}}}}}}}")
        };
        format!("{{requests: [{}, {}]}}", request("r"), request("s"))
    };
    check(&lines(shared, &share(20)), "a: d0 d0");
    refused(&lines(shared, &share(21)), "cannot allocate all claims");
}

#[test]
fn what_is_taken_is_not_given_twice() {
    let taken = |uid: &str, more: &str| {
        format!(
            "resourceclaim {{metadata: {{name: {uid}, namespace: default, uid: {uid}}}, spec: {{}}, status: {{allocation: \
             {{devices: {{results: [{{request: r, driver: d.io, pool: a, device: d0{more}}}]}}}}}}}}"
        )
    };
    let one = "{requests: [{name: r, exactly: {deviceClassName: gpu}}]}";
    let mut all = lines("{name: d0}", one);
    all.push(taken("x", ""));
    refused(&all, "cannot allocate all claims");
    all.pop();
    all.push(taken("x", ", adminAccess: true"));
    check(&all, "a: d0");
}

#[test]
fn what_is_missing_is_waited_for() {
    let one = "{requests: [{name: r, exactly: {deviceClassName: none}}]}";
    check(
        &lines("{name: d0}", one),
        "0/1 nodes are available: request r: device class none does not exist. no new claims to deallocate, \
         preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
    );
    let mut core = cluster("node a");
    let pod = info("p yaml:resourceClaims: [{name: c, resourceClaimName: c}]");
    let Outcome::Gated(status) = core.schedule(&Profile::default(), &pod) else { panic!("looked at") };
    assert_eq!(status.message(), "resourceclaim.resource.k8s.io \"c\" not found");
}

#[test]
fn devices_elsewhere_are_given_back() {
    let allocated = |users: &str| {
        format!(
            "resourceclaim {{metadata: {{name: c, namespace: default, uid: c}}, spec: {{}}, status: {{reservedFor: [{users}], \
             allocation: {{nodeSelector: {{nodeSelectorTerms: [{{matchFields: [{{key: metadata.name, operator: In, \
             values: [b]}}]}}]}}, devices: {{results: []}}}}}}}}"
        )
    };
    let nodes = |users: &str| vec!["node a".to_owned(), allocated(users)];
    refused(&nodes("{resource: pods, name: x, uid: x}"), "resourceclaim not available on the node");
    let reason = "0/1 nodes are available: 1 resourceclaim not available on the node. deallocation of ResourceClaim \
                  completed, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    check(&nodes(""), reason);
}

/// One pod that asks for extended resources: the node and the devices that it gets, or what is said.
#[track_caller]
fn extended(lines: &[String], pods: &[(&str, &str)]) {
    let mut core = cluster(&lines.join("\n"));
    let devices = Arc::new(DynamicResources::default());
    let plugins = defaults().into_iter().map(|(plugin, weight)| match plugin.name() {
        "DynamicResources" => (Arc::clone(&devices) as Arc<dyn Plugin>, weight),
        _ => (plugin, weight),
    });
    let profile = Profile::new("default-scheduler", plugins);
    for (line, expected) in pods {
        let pod = info(line);
        let Outcome::Placed { slot, .. } = core.schedule(&profile, &pod) else {
            let found = outcome(&mut core, &profile, &pod);
            assert!(found.contains(expected), "{line}: {found}");
            continue;
        };
        let node = core.cache.node(slot);
        devices.reserve(Cycle { pod: &pod, cache: &core.cache }, node).unwrap();
        let got = format!("{}: {}", node.name(), devices.set_aside(&pod).join(" "));
        assert_eq!(got, *expected, "{line}");
    }
}

const NAMED: &str = "devices {metadata: {name: gpu}, spec: {extendedResourceName: example.com/gpu}}";

#[test]
fn classes_stand_for_extended_resources() {
    let node = |node: &str, class: &str| vec![node.to_owned(), class.to_owned(), slice("a", "{name: d0}, {name: d1}")];
    extended(
        &node("node a", NAMED),
        &[("p gpu=1", "a: d0"), ("q gpu=1", "a: d1"), ("r gpu=1", "cannot allocate all claims")],
    );
    extended(&node("node a", NAMED), &[("p gpu=2", "a: d0 d1")]);
    extended(&node("node a", NAMED), &[("p gpu=3", "cannot allocate all claims"), ("q cpu=0", "a: ")]);
    // A node that has some to give itself gives those, and only those.
    extended(&node("node a gpu=1", NAMED), &[("p gpu=1", "a: "), ("q gpu=2", "Insufficient example.com/gpu")]);
    // Without a class it is a resource like any other.
    extended(&node("node a", CLASS), &[("p gpu=1", "Insufficient example.com/gpu")]);
}

#[test]
fn of_two_classes_for_a_resource_the_newer_counts() {
    let class = |name: &str, created: &str| {
        format!(
            "devices {{metadata: {{name: {name}, creationTimestamp: '2026-01-0{created}T00:00:00Z'}}, spec: \
             {{extendedResourceName: example.com/gpu, selectors: [{{cel: {{expression: \
             'device.attributes[\"d.io\"].of == \"{name}\"'}}}}]}}}}"
        )
    };
    let slice = slice("a", "{name: d0, attributes: {of: {string: v}}}, {name: d1, attributes: {of: {string: w}}}");
    for (x, y, expected) in [("1", "2", "a: d1"), ("2", "1", "a: d0"), ("1", "1", "a: d0")] {
        extended(&["node a".to_owned(), class("v", x), class("w", y), slice.clone()], &[("p gpu=1", expected)]);
    }
}

#[test]
fn a_claim_that_an_earlier_attempt_left_goes_first() {
    let claim = "resourceclaim {metadata: {name: p-extended-resources-x, namespace: default, uid: x, annotations: \
                 {resource.kubernetes.io/extended-resource-claim: 'true'}, ownerReferences: [{apiVersion: v1, kind: \
                 Pod, name: p, uid: default/p, controller: true}]}, spec: {devices: {requests: [{name: r, exactly: \
                 {deviceClassName: gpu}}]}}}";
    let lines = ["node a".to_owned(), NAMED.to_owned(), slice("a", "{name: d0}"), claim.to_owned()];
    extended(
        &lines,
        &[
            ("p gpu=1", "1 cannot schedule extended resource claim. deletion of ResourceClaim completed"),
            ("q gpu=1", "a: d0"),
        ],
    );
}
