//! The checks of the restricted level.

use capstan_api::{Map, Value};

use super::{
    baseline::{added_capabilities, is_seccomp, seccomp_profile as set_profiles, seccomp_type, security, violation},
    checks::{Pod, Violation},
    words::{Set, containers, plural, quoted, setters},
};
use crate::validation::read::{at, int, is_set, list, objects, text};

fn boolean(security: &Map, field: &str) -> Option<bool> {
    security.get(field).and_then(Value::as_bool)
}

pub(super) fn allow_privilege_escalation(pod: Pod<'_>) -> Option<Violation> {
    let bad = |container| boolean(security(container), "allowPrivilegeEscalation") != Some(false);
    let who = setters(false, &pod.where_container(bad))?;
    let detail = format!("{who} must set securityContext.allowPrivilegeEscalation=false");
    violation("allowPrivilegeEscalation != false", detail)
}

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Violation> {
    let keep = pod.where_container(|container| {
        let dropped = list(at(security(container), "capabilities"), "drop");
        !dropped.iter().any(|name| name.as_str() == Some("ALL"))
    });
    let must = |who| format!(r#"{who} must set securityContext.capabilities.drop=["ALL"]"#);
    let missing = setters(false, &keep).map(must);
    let details: Vec<_> = missing.into_iter().chain(added_capabilities(pod, &["NET_BIND_SERVICE"])).collect();
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// In the order in which the first that is set gives a volume its name.
const RESTRICTED_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn volumes(pod: Pod<'_>) -> Option<Violation> {
    let (mut names, mut types) = (Vec::new(), Set::new());
    for (_, volume) in objects(pod.spec, "volumes") {
        if !ALLOWED_VOLUMES.iter().any(|ty| is_set(volume, ty)) {
            names.push(text(volume, "name"));
            types.insert(RESTRICTED_VOLUMES.into_iter().find(|ty| is_set(volume, ty)).unwrap_or("unknown"));
        }
    }
    if names.is_empty() {
        return None;
    }
    let volumes = plural(names.len(), "volume", "volumes");
    let uses = plural(names.len(), "uses", "use");
    let what = plural(types.len(), "restricted volume type", "restricted volume types");
    let detail = format!("{volumes} {} {uses} {what} {}", quoted(&names), quoted(&types));
    violation("restricted volume types", detail)
}

pub(super) fn run_as_non_root(pod: Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of = |security| boolean(security, "runAsNonRoot");
    let on_pod = of(pod.security());
    let names = pod.where_container(|container| of(security(container)) == Some(false));
    if let Some(who) = setters(on_pod == Some(false), &names) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let unset = pod.where_container(|container| on_pod.is_none() && of(security(container)).is_none());
    if unset.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&unset)))
}

pub(super) fn run_as_user(pod: Pod<'_>) -> Option<Violation> {
    let is_root = |security| int(security, "runAsUser") == Some(0);
    let names = pod.where_container(|container| is_root(security(container)));
    let who = setters(is_root(pod.security()), &names)?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}

pub(super) fn seccomp_profile(pod: Pod<'_>) -> Option<Violation> {
    let bad = set_profiles(pod);
    if bad.is_some() || seccomp_type(pod.security()).is_some_and(is_seccomp) {
        return bad;
    }
    let unset = pod.where_container(|container| seccomp_type(security(container)).is_none());
    if unset.is_empty() {
        return None;
    }
    let who = containers(&unset);
    let must = r#"must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#;
    violation("seccompProfile", format!("pod or {who} {must}"))
}
