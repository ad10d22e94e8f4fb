//! Pods, on their own and as templates.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{
    Map, Value,
    field::Path,
    go,
    validation::{is_dns1123_label, warnings_for_ip},
};

use super::{
    labels::{deprecated, node_selector_term},
    storage::{REMOVED_VOLUMES, claim_spec, fraction, overlapping_paths, volume_name},
};
use crate::validation::read;

const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    ("security.alpha.kubernetes.io/unsafe-sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APPARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
const APPARMOR: &str = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";
/// The lists of containers, in the order in which they are looked at.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

pub(super) fn pod_create(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    let (metadata, spec) = (read::at(object, "metadata"), read::at(object, "spec"));
    // Upstream says this when it copies the annotation to the field, which comes before all other warnings.
    if read::text(read::at(spec, "os"), "name") != "windows" {
        for (_, container) in CONTAINERS.iter().flat_map(|list| read::objects(spec, list)) {
            apparmor(metadata, spec, container, &Path::ROOT, out);
        }
    }
    name_of_hosts(object, "this is used in the Pod's hostname", out);
    pod_spec(metadata, spec, false, &Path::ROOT, out);
}

/// Names of objects that end up in the names of hosts.
pub(super) fn name_of_hosts(object: &Map, used: &str, out: &mut Vec<String>) {
    let messages = is_dns1123_label(read::text(read::at(object, "metadata"), "name"));
    if !messages.is_empty() {
        let messages = messages.join(" ");
        out.push(format!(
            "metadata.name: {used}, which can result in surprising behavior; a DNS label is recommended: [{messages}]"
        ));
    }
}

/// A template, at its place.
pub(super) fn template(template: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    pod_spec(read::at(template, "metadata"), read::at(template, "spec"), true, path, out);
}

fn pod_spec(metadata: &Map, spec: &Map, is_template: bool, path: &Path<'_>, out: &mut Vec<String>) {
    let annotations = read::at(metadata, "annotations");
    let annotations_path = path.child("metadata");
    let annotations_path = annotations_path.child("annotations");
    let spec_path = path.child("spec");

    node_selection(spec, &spec_path, out);
    for (key, message) in ANNOTATIONS.iter().filter(|(key, _)| annotations.contains_key(key)) {
        out.push(format!("{}: {message}", annotations_path.key(key)));
    }
    volumes(spec, &spec_path, out);
    duplicates(spec, "hostAliases", "ip", &spec_path, out);
    duplicates(spec, "imagePullSecrets", "name", &spec_path, out);
    let secrets_path = spec_path.child("imagePullSecrets");
    for (i, _) in read::objects(spec, "imagePullSecrets").filter(|(_, secret)| read::text(secret, "name").is_empty()) {
        out.push(format!("{}: invalid empty name \"\"", secrets_path.index(i).child("name")));
    }
    for resource in ["memory", "ephemeral-storage"] {
        fraction(read::at(spec, "overhead"), resource, &spec_path.child("overhead"), out);
    }
    if !read::is_set(read::at(spec, "securityContext"), "seccompProfile") && annotations.contains_key(SECCOMP_POD) {
        out.push(format!("{}: {SECCOMP}", annotations_path.key(SECCOMP_POD)));
    }
    for list in CONTAINERS {
        let list_path = spec_path.child(list);
        for (i, container) in read::objects(spec, list) {
            let key = format!("{SECCOMP_CONTAINER}{}", read::text(container, "name"));
            let context = read::at(container, "securityContext");
            if annotations.contains_key(&key) && !read::is_set(context, "seccompProfile") {
                out.push(format!("{}: {SECCOMP}", annotations_path.key(&key)));
            }
            if is_template {
                apparmor(metadata, spec, container, path, out);
            }
            resources(container, &list_path.index(i), out);
            environment(container, &list_path.index(i), out);
        }
    }
    ports(spec, &spec_path, out);
    port_names(spec, &spec_path, out);
    if read::int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        let path = spec_path.child("terminationGracePeriodSeconds");
        out.push(format!("{path}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    pod_affinity(spec, &spec_path, out);
    let dns_path = spec_path.child("dnsConfig");
    let dns_path = dns_path.child("nameservers");
    for (i, server) in read::list(read::at(spec, "dnsConfig"), "nameservers").iter().enumerate() {
        out.extend(warnings_for_ip(&dns_path.index(i), server.as_str().unwrap_or("")));
    }
    let aliases_path = spec_path.child("hostAliases");
    for (i, alias) in read::objects(spec, "hostAliases") {
        out.extend(warnings_for_ip(&aliases_path.index(i).child("ip"), read::text(alias, "ip")));
    }
}

fn node_selection(spec: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let selector_path = path.child("nodeSelector");
    for (label, _) in read::strings(spec, "nodeSelector") {
        out.extend(deprecated(label).map(|message| format!("{}: {message}", selector_path.key(label))));
    }
    let affinity = read::at(read::at(spec, "affinity"), "nodeAffinity");
    let affinity_path = path.child("affinity");
    let affinity_path = affinity_path.child("nodeAffinity");
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let required_path = affinity_path.child(required);
    let required_path = required_path.child("nodeSelectorTerms");
    for (i, term) in read::objects(read::at(affinity, required), "nodeSelectorTerms") {
        node_selector_term(term, false, &required_path.index(i), out);
    }
    let preferred_path = affinity_path.child(preferred);
    for (i, term) in read::objects(affinity, preferred) {
        node_selector_term(read::at(term, "preference"), true, &preferred_path.index(i).child("preference"), out);
    }
    let spread_path = path.child("topologySpreadConstraints");
    for (i, constraint) in read::objects(spec, "topologySpreadConstraints") {
        let (path, key) = (spread_path.index(i), read::text(constraint, "topologyKey"));
        out.extend(deprecated(key).map(|message| format!("{}: {key} is {message}", path.child("topologyKey"))));
        if !read::is_set(constraint, "labelSelector") {
            out.push(format!("{}: {NULL_SELECTOR}", path.child("labelSelector")));
        }
    }
}

fn volumes(spec: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("volumes");
    for (i, volume) in read::objects(spec, "volumes") {
        let path = path.index(i);
        for (field, message) in REMOVED_VOLUMES {
            if read::is_set(volume, field) {
                out.push(format!("{}: {message}", path.child(volume_name(field))));
            }
            // Two kinds have rules of their own and are told behind these.
            if field == "photonPersistentDisk" && read::is_set(volume, "gitRepo") {
                let path = path.child("gitRepo");
                out.push(format!("{path}: deprecated in v1.11, and disabled by default in v1.33+"));
            }
            if let Some(template) = read::object(read::at(volume, "ephemeral"), "volumeClaimTemplate")
                && field == "glusterfs"
            {
                let path = path.child("ephemeral");
                let path = path.child("volumeClaimTemplate");
                claim_spec(read::at(template, "spec"), &path.child("spec"), out);
            }
        }
    }
    for (_, volume) in read::objects(spec, "volumes") {
        overlapping_paths(volume, out);
    }
}

/// A list in which a field tells the elements apart.
fn duplicates(spec: &Map, list: &str, field: &str, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child(list);
    let mut seen = BTreeSet::new();
    for (i, item) in read::objects(spec, list) {
        let value = read::text(item, field);
        if !seen.insert(value) {
            out.push(format!("{}: duplicate {field} {}", path.index(i).child(field), go::quote(value)));
        }
    }
}

fn resources(container: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let (resources, path) = (read::at(container, "resources"), path.child("resources"));
    for resource in ["memory", "ephemeral-storage"] {
        for field in ["limits", "requests"] {
            fraction(read::at(resources, field), resource, &path.child(field), out);
        }
    }
}

/// Variables that are set twice, unless the second value is made from the first.
fn environment(container: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let path = path.child("env");
    let mut seen = BTreeSet::new();
    for (i, variable) in read::objects(container, "env") {
        let (name, value) = (read::text(variable, "name"), read::text(variable, "value"));
        if seen.insert(name) {
            continue;
        }
        let reference = format!("$({name})");
        if read::is_set(variable, "valueFrom") || value == reference || !value.contains(&reference) {
            let (path, name) = (path.index(i), go::quote(name));
            out.push(format!("{path}: hides previous definition of {name}, which may be dropped when using apply"));
        }
    }
}

/// An AppArmor annotation of a container that has no field for it, unless it says what the pod's field says.
fn apparmor(metadata: &Map, spec: &Map, container: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let key = format!("{APPARMOR_CONTAINER}{}", read::text(container, "name"));
    let Some(annotation) = read::at(metadata, "annotations").get(&key).and_then(Value::as_str) else { return };
    if read::is_set(read::at(container, "securityContext"), "appArmorProfile") {
        return;
    }
    let profile = match annotation.split_once('/') {
        Some(("runtime", "default")) => Some(("RuntimeDefault", "")),
        Some(("localhost", profile)) if !profile.is_empty() => Some(("Localhost", profile)),
        None if annotation == "unconfined" => Some(("Unconfined", "")),
        _ => None,
    };
    let of_pod = read::object(read::at(spec, "securityContext"), "appArmorProfile");
    let of_pod = of_pod.map(|profile| (read::text(profile, "type"), read::text(profile, "localhostProfile")));
    if profile.is_none() || of_pod != profile {
        out.push(format!("{}: {APPARMOR}", path.child("metadata").child("annotations").key(&key)));
    }
}

/// How many ports of a pod are compared with each other.
const MAX_PORTS: usize = 1000;

/// A port that is taken: where it stands, and its address and port on the host.
type TakenPort<'a> = (String, &'a str, i64);

fn ports(spec: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let mut taken: BTreeMap<(i64, &str), Vec<TakenPort<'_>>> = BTreeMap::new();
    for (count, (list, i, j, port)) in all_ports(spec).enumerate() {
        let field = path.child(list).index(i).child("ports").index(j).to_string();
        let number = |key| read::int(port, key).unwrap_or(0);
        let (host_ip, host_port, protocol) =
            (read::text(port, "hostIP"), number("hostPort"), read::text(port, "protocol"));
        if !host_ip.is_empty() && host_port == 0 {
            let (name, number) = (read::text(port, "name"), number("containerPort"));
            out.push(format!(
                "{field}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} \
                 Protocol:{protocol} HostIP:{host_ip}}}"
            ));
        }
        let others = taken.entry((number("containerPort"), protocol)).or_default();
        for (other, other_ip, other_port) in others.iter() {
            let problem = if (host_ip, host_port) == (*other_ip, *other_port) {
                "duplicate"
            } else if host_port == 0 || *other_port == 0 {
                "overlapping"
            } else if host_port == *other_port && host_ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            out.push(format!("{field}: {problem} port definition with {other}"));
        }
        if count < MAX_PORTS {
            others.push((field, host_ip, host_port));
        }
    }
}

fn port_names(spec: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let mut taken: BTreeMap<&str, String> = BTreeMap::new();
    for (list, i, j, port) in all_ports(spec).filter(|(.., port)| !read::text(port, "name").is_empty()) {
        let name = read::text(port, "name");
        let field = path.child(list).index(i).child("ports").index(j).to_string();
        match taken.get(name) {
            Some(other) => out.push(format!(
                "{field}: duplicate port name {} with {other}, services and probes that select ports by name will use \
                 {other}",
                go::quote(name)
            )),
            None => _ = taken.insert(name, field),
        }
    }
}

/// The ports of all containers, with the list and the places of both.
fn all_ports(spec: &Map) -> impl Iterator<Item = (&'static str, usize, usize, &Map)> {
    CONTAINERS.iter().flat_map(move |&list| {
        read::objects(spec, list)
            .flat_map(move |(i, container)| read::objects(container, "ports").map(move |(j, port)| (list, i, j, port)))
    })
}

fn pod_affinity(spec: &Map, path: &Path<'_>, out: &mut Vec<String>) {
    let (affinity, path) = (read::at(spec, "affinity"), path.child("affinity"));
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (terms, path) = (read::at(affinity, kind), path.child(kind));
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let required_path = path.child(required);
        for (i, term) in read::objects(terms, required) {
            if !read::is_set(term, "labelSelector") {
                out.push(format!("{}: {NULL_SELECTOR}", required_path.index(i).child("labelSelector")));
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        let preferred_path = path.child(preferred);
        for (i, term) in read::objects(terms, preferred) {
            if !read::is_set(read::at(term, "podAffinityTerm"), "labelSelector") {
                let path = preferred_path.index(i);
                out.push(format!("{}: {NULL_SELECTOR}", path.child("podAffinityTerm").child("labelSelector")));
            }
        }
    }
}
