//! What the containers of a pod share: its names, its namespaces, the engine's handler for it, its range of users.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::PoisonError,
};

use capstan_client::Api;
use k8s_openapi::api::{
    core::v1::{Pod, PodSpec},
    node::v1::RuntimeClass,
};
use serde_json::{Value, json};

use super::{
    dns::{self, Resolver},
    security,
    shared::Shared,
};
use crate::runtime::{SandboxConfig, USER_IDS};

/// The longest name that the kernel takes for a machine, and the longest that is made of a pod's.
const MAX_NODE_NAME: usize = 64;
const MAX_HOSTNAME: usize = 63;
/// The file that says which users of the node are a pod's.
const USERS_FILE: &str = "userns";

/// What the containers of a pod share, as far as the pod itself and the node's files say.
pub(super) fn config(shared: &Shared, pod: &Pod, attempt: u32) -> SandboxConfig {
    let spec = pod.spec.clone().unwrap_or_default();
    let own = spec.security_context.clone().unwrap_or_default();
    let meta = &pod.metadata;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (hostname, domain) = names(pod, &shared.dns.domain);
    let ports = spec.containers.iter().flat_map(|c| c.ports.iter().flatten()).filter_map(|port| {
        let number = |n: i32| u16::try_from(n).ok();
        let host = number(port.host_port.filter(|n| *n > 0)?)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        Some((protocol, number(port.container_port)?, host, port.host_ip.clone().unwrap_or_default()))
    });
    let host_network = spec.host_network.unwrap_or(false) || shared.runtime.shares_host_network();
    let node = Resolver::of_node(shared.dns.resolv_conf.as_deref());
    let (dns, warnings) = dns::of_pod(pod, &shared.dns, node, host_network);
    for (reason, message) in warnings {
        shared.event(pod, None, true, reason, message);
    }
    let users_file = shared.pod_dir(&text(&meta.uid)).join(USERS_FILE);
    SandboxConfig {
        namespace: text(&meta.namespace),
        name: text(&meta.name),
        uid: text(&meta.uid),
        attempt,
        hostname,
        fqdn_as_hostname: spec.set_hostname_as_fqdn == Some(true) && !domain.is_empty(),
        domain,
        labels: meta.labels.clone().unwrap_or_default(),
        annotations: meta.annotations.clone().unwrap_or_default(),
        log_directory: shared.log_dir(pod),
        host_network,
        host_pid: spec.host_pid.unwrap_or(false),
        host_ipc: spec.host_ipc.unwrap_or(false),
        share_process_namespace: spec.share_process_namespace.unwrap_or(false),
        ports: ports.collect(),
        dns,
        handler: String::new(),
        privileged: security::containers(&spec).any(|security| security.privileged == Some(true)),
        user: own.run_as_user,
        group: own.run_as_group,
        groups: security::groups(&own),
        strict_groups: own.supplemental_groups_policy.as_deref() == Some("Strict"),
        selinux: own.se_linux_options.map(security::selinux),
        users: has_own_users(&spec).then(|| recorded(&users_file)).flatten(),
        sysctls: own.sysctls.into_iter().flatten().map(|sysctl| (sysctl.name, sysctl.value)).collect(),
    }
}

/// The same for a sandbox that is to be made: with what others say of it, and what has to be allotted.
pub(super) async fn complete(shared: &Shared, pod: &Pod, config: &mut SandboxConfig) -> Result<(), String> {
    let spec = pod.spec.clone().unwrap_or_default();
    let name = config.node_name();
    if name.len() > MAX_NODE_NAME {
        return Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {name} is too long ({MAX_NODE_NAME} \
             characters is the max, {} characters requested)",
            name.len()
        ));
    }
    if let Some(class) = spec.runtime_class_name.as_deref().filter(|class| !class.is_empty()) {
        let found = Api::<RuntimeClass>::all(&shared.client).get(class).await;
        config.handler = found.map_err(|error| error.to_string())?.handler;
    }
    if has_own_users(&spec) {
        let features = shared.runtime.features(&config.handler).await.map_err(|error| error.to_string())?;
        if !features.user_namespaces {
            let who = match config.handler.as_str() {
                "" => "runtime".to_owned(),
                handler => format!("RuntimeClass handler \"{handler}\""),
            };
            return Err(format!("can't set `spec.hostUsers: false`, {who} does not support user namespaces"));
        }
        let file = shared.pod_dir(&config.uid).join(USERS_FILE);
        // Two pods must not be given the same.
        let _one_at_a_time = shared.users.lock().unwrap_or_else(PoisonError::into_inner);
        let users =
            allot(&shared.root.join("pods"), &file).map_err(|error| format!("create user namespace: {error}"))?;
        config.users = Some(users);
    }
    Ok(())
}

fn has_own_users(spec: &PodSpec) -> bool {
    spec.host_users == Some(false)
}

/// A pod's name for itself, and the domain that it is found in.
fn names(pod: &Pod, cluster_domain: &str) -> (String, String) {
    let spec = pod.spec.clone().unwrap_or_default();
    let given = |field: Option<String>| field.filter(|text| !text.is_empty());
    let whole = given(spec.hostname_override);
    let domain = match (&whole, given(spec.subdomain)) {
        (None, Some(subdomain)) => {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            format!("{subdomain}.{namespace}.svc.{cluster_domain}")
        }
        _ => String::new(),
    };
    let name = whole.or_else(|| given(spec.hostname)).or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    let short: String = name.chars().take(MAX_HOSTNAME).collect();
    let short = if short.len() < name.len() { short.trim_end_matches(['-', '.']).to_owned() } else { short };
    (short, domain)
}

/// The first of the node's users that a file says are a pod's.
fn recorded(file: &Path) -> Option<u32> {
    let document: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    document.pointer("/uidMappings/0/hostId")?.as_u64().and_then(|first| u32::try_from(first).ok())
}

/// The first of a range of the node's users that is the pod's alone, now and when the node returns.
fn allot(pods: &Path, file: &PathBuf) -> Result<u32, String> {
    if let Some(users) = recorded(file) {
        return Ok(users);
    }
    let others = fs::read_dir(pods).into_iter().flatten().flatten();
    let taken: BTreeSet<u32> = others.filter_map(|other| recorded(&other.path().join(USERS_FILE))).collect();
    // The first range is the node's own.
    let mut all = (1..u32::MAX / USER_IDS).map(|number| number * USER_IDS);
    let users = all.find(|first| !taken.contains(first)).ok_or("no range of users is free")?;
    let mapping = json!([{"hostId": users, "containerId": 0, "length": USER_IDS}]);
    let text = json!({"uidMappings": mapping, "gidMappings": mapping}).to_string();
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(|error| error.to_string())?;
    }
    fs::write(file, text).map_err(|error| error.to_string())?;
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::temporary;

    #[test]
    fn names_of_pods() {
        let check = |spec: Value, hostname: &str, domain: &str| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let pod = json!({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec});
            let (found, found_domain) = names(&serde_json::from_value(pod).unwrap(), "example.org");
            assert_eq!((found.as_str(), found_domain.as_str()), (hostname, domain), "{spec}");
        };
        check(json!({}), "p", "");
        check(json!({"hostname": "h", "subdomain": "sub"}), "h", "sub.ns.svc.example.org");
        check(json!({"subdomain": "sub"}), "p", "sub.ns.svc.example.org");
        check(json!({"hostnameOverride": "a.b", "subdomain": "sub"}), "a.b", "");
        let long = "x".repeat(62);
        check(json!({"hostname": format!("{long}-y")}), &long, "");
    }

    #[test]
    fn each_pod_has_users_of_its_own_and_keeps_them() {
        let pods = temporary("users");
        let file = |uid: &str| pods.join(uid).join(USERS_FILE);
        assert_eq!(allot(&pods, &file("a")), Ok(USER_IDS));
        assert_eq!(allot(&pods, &file("b")), Ok(2 * USER_IDS));
        assert_eq!(allot(&pods, &file("a")), Ok(USER_IDS));
        fs::remove_dir_all(pods.join("a")).unwrap();
        assert_eq!(allot(&pods, &file("c")), Ok(USER_IDS));
        assert_eq!(recorded(&file("b")), Some(2 * USER_IDS));
    }
}
