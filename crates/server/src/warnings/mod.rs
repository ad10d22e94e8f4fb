//! What clients are warned of: APIs and fields that are deprecated, and what is allowed but hardly meant.
//!
//! The texts are upstream's, word for word. [`Warnings`] turns them into headers.

mod custom;
mod header;
mod labels;
mod network;
mod pod;
mod storage;
#[cfg(test)]
mod tests;
mod tls;
mod workload;

use capstan_api::{GroupVersionKind, Map, builtin};
pub use header::Warnings;

/// Tells what is to be said about an object, and about the change if there is an old one.
type Rule = fn(&Map, Option<&Map>, &mut Vec<String>);

struct Kind {
    group: &'static str,
    kind: &'static str,
    create: Option<Rule>,
    update: Option<Rule>,
    /// Updates of the status.
    status: Option<Rule>,
}

const fn kind(group: &'static str, kind: &'static str, rule: Rule) -> Kind {
    Kind { group, kind, create: Some(rule), update: Some(rule), status: None }
}

const ADMISSION: &str = "admissionregistration.k8s.io";

const KINDS: &[Kind] = &[
    Kind { update: None, status: Some(network::pod_status), ..kind("", "Pod", pod::pod_create) },
    kind("", "PodTemplate", workload::pod_template),
    kind("", "ReplicationController", workload::replication_controller),
    Kind { status: Some(network::load_balancer_status), ..kind("", "Service", network::service) },
    kind("", "ServiceAccount", network::service_account),
    kind("", "Secret", tls::secret),
    kind("", "Node", network::node),
    kind("", "Endpoints", network::endpoints),
    kind("", "PersistentVolume", storage::persistent_volume),
    kind("", "PersistentVolumeClaim", storage::persistent_volume_claim),
    Kind { update: None, ..kind("", "ResourceQuota", network::resource_quota) },
    kind("apps", "Deployment", workload::replicated),
    kind("apps", "ReplicaSet", workload::replicated),
    kind("apps", "DaemonSet", workload::daemon_set),
    kind("apps", "StatefulSet", workload::stateful_set),
    kind("batch", "Job", workload::job),
    kind("batch", "CronJob", workload::cron_job),
    kind("discovery.k8s.io", "EndpointSlice", network::endpoint_slice),
    Kind {
        update: None,
        status: Some(network::load_balancer_status),
        ..kind("networking.k8s.io", "Ingress", network::ingress)
    },
    kind("networking.k8s.io", "NetworkPolicy", network::network_policy),
    kind("node.k8s.io", "RuntimeClass", labels::runtime_class),
    kind("resource.k8s.io", "ResourceSlice", network::resource_slice),
    kind("storage.k8s.io", "StorageClass", labels::storage_class),
    kind("storage.k8s.io", "CSIStorageCapacity", labels::csi_storage_capacity),
    kind("storage.k8s.io", "CSIDriver", storage::csi_driver),
    kind("apiextensions.k8s.io", "CustomResourceDefinition", custom::definition),
    kind(ADMISSION, "MutatingWebhookConfiguration", custom::static_suffix),
    kind(ADMISSION, "ValidatingWebhookConfiguration", custom::static_suffix),
    kind(ADMISSION, "MutatingAdmissionPolicy", custom::static_suffix),
    kind(ADMISSION, "MutatingAdmissionPolicyBinding", custom::static_suffix),
    kind(ADMISSION, "ValidatingAdmissionPolicy", custom::static_suffix),
    kind(ADMISSION, "ValidatingAdmissionPolicyBinding", custom::static_suffix),
];

/// What somebody who deletes jobs without saying what becomes of their pods is told.
pub const JOB_DELETED: &str = "child pods are preserved by default when jobs are deleted; set \
                               propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress \
                               this warning";

/// What everybody who uses an API that is deprecated is told, whatever the verb.
#[must_use]
pub fn deprecated(gvk: &GroupVersionKind) -> Option<&'static str> {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("", "v1", "ComponentStatus" | "ComponentStatusList") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        ("", "v1", "Endpoints" | "EndpointsList") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        _ => None,
    }
}

fn collect(gvk: &GroupVersionKind, pick: fn(&Kind) -> Option<Rule>, new: &Map, old: Option<&Map>) -> Vec<String> {
    let known = KINDS.iter().find(|kind| gvk.kind.as_str() == kind.kind && gvk.group.as_str() == kind.group);
    let rule = match known {
        Some(kind) => pick(kind),
        None if is_builtin(gvk) => None,
        None => Some(custom::custom_resource as Rule),
    };
    let mut out = Vec::new();
    if let Some(rule) = rule {
        rule(new, old, &mut out);
    }
    out
}

fn is_builtin(gvk: &GroupVersionKind) -> bool {
    builtin::kind(gvk).is_some()
        || builtin::kinds().any(|kind| kind.group_version.group == gvk.group && kind.kind == gvk.kind)
}

/// What to say about an object that is created, after defaults and the strategy.
#[must_use]
pub fn warnings_on_create(gvk: &GroupVersionKind, object: &Map) -> Vec<String> {
    collect(gvk, |kind| kind.create, object, None)
}

/// What to say about an object that replaces `old`, after defaults and the strategy, which counts the generations.
#[must_use]
pub fn warnings_on_update(gvk: &GroupVersionKind, new: &Map, old: &Map) -> Vec<String> {
    collect(gvk, |kind| kind.update, new, Some(old))
}

/// What to say about an object whose status replaces that of `old`.
#[must_use]
pub fn warnings_on_status_update(gvk: &GroupVersionKind, new: &Map, old: &Map) -> Vec<String> {
    collect(gvk, |kind| kind.status, new, Some(old))
}
