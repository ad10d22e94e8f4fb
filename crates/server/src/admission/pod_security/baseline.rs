//! The checks of the baseline level.

use capstan_api::{Map, go};

use super::{
    checks::{Pod, Violation, is_true},
    words::{Set, containers, plural, quoted, setters},
};
use crate::validation::read::{at, flag, int, is_set, list, object, objects, text};

pub(super) fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

pub(super) fn security(container: &Map) -> &Map {
    at(container, "securityContext")
}

fn annotation(key: &str, value: &str) -> String {
    format!("{key}={}", go::quote(value))
}

const APP_ARMOR_PREFIX: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(super) fn app_armor_profile(pod: Pod<'_>) -> Option<Violation> {
    let mut values = Set::new();
    let mut is_bad = |security| {
        let profile = object(security, "appArmorProfile").map(|profile| text(profile, "type"));
        let bad = profile.filter(|profile| !["RuntimeDefault", "Localhost"].contains(profile));
        values.extend(bad);
        bad.is_some()
    };
    let on_pod = is_bad(pod.security());
    let names = pod.where_container(|container| is_bad(security(container)));
    let allowed = |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let annotations = pod.annotations.iter().map(|(key, value)| (key, value.as_str().unwrap_or("")));
    let mut annotations: Vec<_> = annotations
        .filter(|(key, value)| key.starts_with(APP_ARMOR_PREFIX) && !allowed(value))
        .map(|(key, value)| annotation(key, value))
        .collect();
    annotations.sort();
    let word = (!annotations.is_empty()).then(|| plural(annotations.len(), "annotation", "annotations").to_owned());
    let who: Vec<_> = setters(on_pod, &names).into_iter().chain(word).collect();
    if who.is_empty() {
        return None;
    }
    let values: Vec<_> = values.into_iter().map(str::to_owned).chain(annotations).collect();
    violation(
        plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(values)),
    )
}

/// What containers have anyway.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add capabilities beyond these, and what they must not do.
pub(super) fn added_capabilities(pod: Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut forbidden = Set::new();
    let names = pod.where_container(|container| {
        let added = list(at(security(container), "capabilities"), "add").iter();
        let before: Vec<_> = added.filter_map(|value| value.as_str()).filter(|name| !allowed.contains(name)).collect();
        forbidden.extend(&before);
        !before.is_empty()
    });
    let what = || quoted(&forbidden);
    (!names.is_empty())
        .then(|| format!("{} must not include {} in securityContext.capabilities.add", containers(&names), what()))
}

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", added_capabilities(pod, &DEFAULT_CAPABILITIES)?)
}

pub(super) fn host_namespaces(pod: Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| flag(pod.spec, field));
    let shared: Vec<_> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

pub(super) fn host_path_volumes(pod: Pod<'_>) -> Option<Violation> {
    let volumes = objects(pod.spec, "volumes").map(|(_, volume)| volume).filter(|volume| is_set(volume, "hostPath"));
    let names: Vec<_> = volumes.map(|volume| text(volume, "name")).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural(names.len(), "volume", "volumes"), quoted(&names)))
}

pub(super) fn host_ports(pod: Pod<'_>) -> Option<Violation> {
    let mut forbidden = std::collections::BTreeSet::new();
    let names = pod.where_container(|container| {
        let ports = objects(container, "ports").filter_map(|(_, port)| int(port, "hostPort")).filter(|port| *port != 0);
        let ports: Vec<_> = ports.map(|port| port.to_string()).collect();
        let bad = !ports.is_empty();
        forbidden.extend(ports);
        bad
    });
    if names.is_empty() {
        return None;
    }
    let uses = plural(names.len(), "uses", "use");
    let ports = plural(forbidden.len(), "hostPort", "hostPorts");
    let which: Vec<_> = forbidden.into_iter().collect();
    violation("hostPort", format!("{} {uses} {ports} {}", containers(&names), which.join(", ")))
}

pub(super) fn host_probes_and_host_lifecycle(pod: Pod<'_>) -> Option<Violation> {
    let (mut names, mut forbidden) = (Set::new(), Set::new());
    for container in pod.containers() {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| at(container, probe));
        let handlers = ["postStart", "preStop"].map(|handler| at(at(container, "lifecycle"), handler));
        for handler in probes.into_iter().chain(handlers) {
            for host in ["httpGet", "tcpSocket"].map(|kind| text(at(handler, kind), "host")) {
                if !host.is_empty() {
                    names.insert(text(container, "name"));
                    forbidden.insert(host);
                }
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Vec<_> = names.into_iter().collect();
    let uses = plural(names.len(), "uses", "use");
    let hosts = plural(forbidden.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    violation("probe or lifecycle host", format!("{} {uses} {hosts} {}", containers(&names), quoted(&forbidden)))
}

pub(super) fn privileged(pod: Pod<'_>) -> Option<Violation> {
    let who = setters(false, &pod.where_container(|container| flag(security(container), "privileged")))?;
    violation("privileged", format!("{who} must not set securityContext.privileged=true"))
}

pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Violation> {
    let mut forbidden = Set::new();
    let names = pod.where_container(|container| {
        let mount = security(container).get("procMount").and_then(|value| value.as_str());
        let bad = mount.filter(|mount| *mount != "Default");
        forbidden.extend(bad);
        bad.is_some()
    });
    let who = setters(false, &names)?;
    violation("procMount", format!("{who} must not set securityContext.procMount to {}", quoted(&forbidden)))
}

/// The types that are allowed, since which minor version.
const SE_LINUX_TYPES: [(&str, i64); 5] =
    [("", 0), ("container_t", 0), ("container_init_t", 0), ("container_kvm_t", 0), ("container_engine_t", 31)];

pub(super) fn se_linux_options(pod: Pod<'_>, version: i64) -> Option<Violation> {
    let (mut types, mut user, mut role) = (Set::new(), false, false);
    let mut is_bad = |security| {
        let Some(options) = object(security, "seLinuxOptions") else { return false };
        let ty = text(options, "type");
        let allowed = SE_LINUX_TYPES.iter().any(|(allowed, since)| *allowed == ty && *since <= version);
        types.extend((!allowed).then_some(ty));
        let [has_user, has_role] = ["user", "role"].map(|field| !text(options, field).is_empty());
        user |= has_user;
        role |= has_role;
        !allowed || has_user || has_role
    };
    let on_pod = is_bad(pod.security());
    let names = pod.where_container(|container| is_bad(security(container)));
    let who = setters(on_pod, &names)?;
    let bad = (!types.is_empty()).then(|| format!("{} {}", plural(types.len(), "type", "types"), quoted(&types)));
    let user = user.then(|| "user may not be set".to_owned());
    let role = role.then(|| "role may not be set".to_owned());
    let data: Vec<_> = bad.into_iter().chain(user).chain(role).collect();
    violation("seLinuxOptions", format!("{who} set forbidden securityContext.seLinuxOptions: {}", data.join("; ")))
}

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER_PREFIX: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// How profiles were told before there was a field.
pub(super) fn seccomp_annotations(pod: Pod<'_>) -> Option<Violation> {
    let of_containers =
        pod.containers().map(|container| format!("{SECCOMP_CONTAINER_PREFIX}{}", text(container, "name")));
    let mut forbidden = std::collections::BTreeSet::new();
    for key in [SECCOMP_POD.to_owned()].into_iter().chain(of_containers) {
        if let Some(value) = pod.annotations.get(&key).and_then(|value| value.as_str())
            && !["runtime/default", "docker/default"].contains(&value)
            && !value.starts_with("localhost/")
        {
            forbidden.insert(annotation(&key, value));
        }
    }
    if forbidden.is_empty() {
        return None;
    }
    let word = plural(forbidden.len(), "annotation", "annotations");
    let which: Vec<_> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {word} {}", which.join(", ")))
}

/// The type of the profile, if there is a profile.
pub(super) fn seccomp_type(security: &Map) -> Option<&str> {
    object(security, "seccompProfile").map(|profile| text(profile, "type"))
}

/// Whether this is a profile that confines.
pub(super) fn is_seccomp(ty: &str) -> bool {
    ["RuntimeDefault", "Localhost"].contains(&ty)
}

pub(super) fn seccomp_profile(pod: Pod<'_>) -> Option<Violation> {
    let mut values = Set::new();
    let mut is_bad = |security| {
        let bad = seccomp_type(security).filter(|ty| !is_seccomp(ty));
        values.extend(bad);
        bad.is_some()
    };
    let on_pod = is_bad(pod.security());
    let names = pod.where_container(|container| is_bad(security(container)));
    let who = setters(on_pod, &names)?;
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&values));
    violation("seccompProfile", detail)
}

/// The sysctls that are allowed, since which minor version.
const SYSCTLS: [(&str, i64); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

pub(super) fn sysctls(pod: Pod<'_>, version: i64) -> Option<Violation> {
    let allowed = |name: &str| SYSCTLS.iter().any(|(allowed, since)| *allowed == name && *since <= version);
    let names = objects(pod.security(), "sysctls").map(|(_, sysctl)| text(sysctl, "name"));
    let forbidden: Vec<_> = names.filter(|name| !allowed(name)).collect();
    if forbidden.is_empty() { None } else { violation("forbidden sysctls", forbidden.join(", ")) }
}

pub(super) fn windows_host_process(pod: Pod<'_>) -> Option<Violation> {
    let is_bad = |security| is_true(security, "windowsOptions", "hostProcess");
    let names = pod.where_container(|container| is_bad(security(container)));
    let who = setters(is_bad(pod.security()), &names)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
