//! What built-in kinds demand beyond their schema, in the order and with the words that clients know.
//!
//! The functions take objects that are decoded and have their defaults; fields of the wrong type count as not set, for
//! decoding has refused them before. Maps are gone through in the order of their keys, where upstream has no order.

mod address;
mod admission_policy;
mod apps;
mod claim;
mod claim_status;
mod classes;
mod config;
mod crd;
mod crd_root;
mod cron;
mod csr;
mod device;
mod device_capacity;
mod device_parts;
mod diff;
mod endpoints;
mod event;
mod expressions;
mod flow;
mod go_url;
mod hpa;
mod ingress;
mod internal;
mod job;
mod job_status;
mod lease;
mod limits;
mod network;
mod node;
mod pod;
mod policy;
mod rbac;
pub(crate) mod read;
mod review;
mod rules;
mod schedule;
mod service;
mod service_ips;
mod shape;
mod show;
mod slice;
mod status;
mod storage;
mod subresource;
mod volume;
mod webhook;
mod workloads;

use capstan_api::{
    GroupResource, GroupVersionKind, Map, builtin,
    field::{ErrorList, Path},
    validation::{
        Messages, is_path_segment_name, is_path_segment_prefix, name_is_dns_label, name_is_dns_subdomain,
        validate_object_meta, validate_object_meta_update,
    },
};

use crate::registry::{Strategy, names::NameRule};

/// A part of what is looked at when an object is updated.
enum Step {
    /// What must not change in the metadata.
    MetaUpdate,
    /// The metadata, as for a new object.
    Meta,
    /// As `MetaUpdate`, for kinds that take finalizers of any name.
    PlainMetaUpdate,
    /// As `Meta`, for kinds that take finalizers of any name.
    PlainMeta,
    /// The rest, as for a new object.
    Body,
    /// What must not change in the rest.
    Change(fn(new: &Map, old: &Map, errors: &mut ErrorList)),
}
use Step::{Body, Change, Meta, MetaUpdate, PlainMeta, PlainMetaUpdate};

/// How a kind is validated.
struct Kind {
    group: &'static str,
    kind: &'static str,
    namespaced: bool,
    name: fn(&str, bool) -> Messages,
    body: fn(&Map, &mut ErrorList),
    create: &'static [Step],
    update: &'static [Step],
}

/// The name of kinds whose rules are declared: the same, but what is too long is counted in bytes.
fn long_name(name: &str, prefix: bool) -> Messages {
    let messages = name_is_dns_subdomain(name, prefix).into_iter();
    messages.map(|message| message.replace("253 characters", "253 bytes")).collect()
}

const fn kind(
    (group, kind, namespaced): (&'static str, &'static str, bool),
    name: fn(&str, bool) -> Messages,
    body: fn(&Map, &mut ErrorList),
    update: &'static [Step],
) -> Kind {
    Kind { group, kind, namespaced, name, body, create: &[Meta, Body], update }
}

/// A kind that takes finalizers of any name.
const fn plain(
    names: (&'static str, &'static str, bool),
    body: fn(&Map, &mut ErrorList),
    update: &'static [Step],
) -> Kind {
    Kind { create: &[PlainMeta, Body], ..kind(names, name_is_dns_subdomain, body, update) }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";
const DEVICES: &str = "resource.k8s.io";
const NETWORKING: &str = "networking.k8s.io";

/// All kinds that are validated here.
static KINDS: &[Kind] = &[
    kind(
        ("", "ConfigMap", true),
        name_is_dns_subdomain,
        config::config_map,
        &[MetaUpdate, Change(config::config_map_update), Meta, Body],
    ),
    kind(
        ("", "Secret", true),
        name_is_dns_subdomain,
        config::secret,
        &[MetaUpdate, Change(config::secret_update), Meta, Body],
    ),
    kind(("", "Namespace", false), name_is_dns_label, config::namespace, &[Meta, Body, MetaUpdate]),
    kind(("", "ServiceAccount", true), name_is_dns_subdomain, |_, _| {}, &[MetaUpdate, Meta, Body]),
    kind(("", "Pod", true), name_is_dns_subdomain, pod::create, &[MetaUpdate, Meta, Change(pod::update)]),
    kind(("", "Service", true), name_is_dns_label, service::service, &[MetaUpdate, Change(service::update)]),
    kind(
        ("apps", "Deployment", true),
        name_is_dns_subdomain,
        apps::deployment,
        &[MetaUpdate, Body, Change(apps::immutable_selector)],
    ),
    kind(
        ("apps", "ReplicaSet", true),
        name_is_dns_subdomain,
        apps::replica_set,
        &[MetaUpdate, Body, Change(apps::immutable_selector)],
    ),
    kind(
        ("apps", "DaemonSet", true),
        name_is_dns_subdomain,
        apps::daemon_set,
        &[MetaUpdate, Change(apps::immutable_selector), Body],
    ),
    kind(
        ("apps", "StatefulSet", true),
        name_is_dns_label,
        workloads::stateful_set,
        &[MetaUpdate, Change(workloads::stateful_set_update)],
    ),
    kind(
        ("apps", "ControllerRevision", true),
        name_is_dns_subdomain,
        workloads::controller_revision,
        &[MetaUpdate, Meta, Change(workloads::controller_revision_update)],
    ),
    kind(("", "ReplicationController", true), long_name, workloads::replication_controller, &[MetaUpdate, Body]),
    kind(("", "PodTemplate", true), name_is_dns_subdomain, workloads::pod_template, &[MetaUpdate, Body]),
    kind(("batch", "Job", true), name_is_dns_subdomain, job::job, &[Meta, Body, MetaUpdate, Change(job::update)]),
    kind(("batch", "CronJob", true), name_is_dns_subdomain, cron::cron_job, &[MetaUpdate, Change(cron::update)]),
    Kind { create: &[Body], ..kind(("policy", "PodDisruptionBudget", true), path_segment, policy::budget, &[Body]) },
    kind(
        ("autoscaling", "HorizontalPodAutoscaler", true),
        name_is_dns_subdomain,
        hpa::autoscaler,
        &[MetaUpdate, Change(hpa::update)],
    ),
    kind(("autoscaling", "Scale", true), name_is_dns_subdomain, status::scale, &[Meta, Body]),
    Kind { create: &[Body], ..kind(("", "Binding", true), path_segment, pod::binding, &[]) },
    Kind { create: &[], ..kind(("policy", "Eviction", true), path_segment, |_, _| {}, &[]) },
    Kind {
        create: &[PlainMeta, Body],
        ..kind(("coordination.k8s.io", "Lease", true), name_is_dns_subdomain, lease::lease, &[PlainMetaUpdate, Body])
    },
    kind(
        ("scheduling.k8s.io", "PriorityClass", false),
        name_is_dns_subdomain,
        classes::priority_class,
        &[MetaUpdate, Change(classes::priority_class_update)],
    ),
    Kind {
        create: &[PlainMeta, Body],
        ..kind(
            ("node.k8s.io", "RuntimeClass", false),
            name_is_dns_subdomain,
            classes::runtime_class,
            &[PlainMeta, Body, PlainMetaUpdate, Change(classes::runtime_class_update)],
        )
    },
    kind((RBAC, "Role", true), path_segment, rbac::role, &[Meta, Body, MetaUpdate]),
    kind((RBAC, "ClusterRole", false), path_segment, rbac::cluster_role, &[Meta, Body, MetaUpdate]),
    kind(
        (RBAC, "RoleBinding", true),
        path_segment,
        rbac::role_binding,
        &[Meta, Body, MetaUpdate, Change(rbac::immutable_role)],
    ),
    kind(
        (RBAC, "ClusterRoleBinding", false),
        path_segment,
        rbac::cluster_role_binding,
        &[Meta, Body, MetaUpdate, Change(rbac::immutable_role)],
    ),
    kind(
        (NETWORKING, "Ingress", true),
        name_is_dns_subdomain,
        ingress::create,
        &[MetaUpdate, Meta, Change(ingress::update)],
    ),
    kind(
        (NETWORKING, "IngressClass", false),
        name_is_dns_subdomain,
        ingress::class,
        &[MetaUpdate, Change(ingress::class_update), Meta, Body],
    ),
    kind(
        (NETWORKING, "NetworkPolicy", true),
        name_is_dns_subdomain,
        network::policy,
        &[MetaUpdate, Change(network::policy_update)],
    ),
    kind(
        (NETWORKING, "IPAddress", false),
        network::ip_address_name,
        network::ip_address,
        &[MetaUpdate, Change(network::ip_address_update)],
    ),
    kind(
        (NETWORKING, "ServiceCIDR", false),
        name_is_dns_subdomain,
        network::service_cidr,
        &[MetaUpdate, Change(network::service_cidr_update)],
    ),
    kind(
        ("", "Endpoints", true),
        name_is_dns_subdomain,
        endpoints::endpoints,
        &[MetaUpdate, Meta, Change(endpoints::endpoints_update)],
    ),
    kind(
        ("discovery.k8s.io", "EndpointSlice", true),
        name_is_dns_subdomain,
        endpoints::slice,
        &[Meta, Change(endpoints::slice_update)],
    ),
    kind(
        ("", "PersistentVolume", false),
        name_is_dns_subdomain,
        volume::volume,
        &[Meta, Body, Meta, Body, Change(volume::volume_update)],
    ),
    kind(
        ("", "PersistentVolumeClaim", true),
        name_is_dns_subdomain,
        claim::claim,
        &[MetaUpdate, Meta, Change(claim::claim_update)],
    ),
    kind(
        (STORAGE, "StorageClass", false),
        name_is_dns_subdomain,
        storage::class,
        &[Meta, Body, MetaUpdate, Change(storage::class_update)],
    ),
    kind(
        (STORAGE, "VolumeAttachment", false),
        name_is_dns_subdomain,
        storage::attachment,
        &[Meta, Change(storage::attachment_update)],
    ),
    kind(
        (STORAGE, "CSIDriver", false),
        name_is_dns_subdomain,
        storage::driver,
        &[MetaUpdate, Body, Change(storage::driver_update)],
    ),
    kind((STORAGE, "CSINode", false), name_is_dns_subdomain, storage::node, &[Meta, Change(storage::node_update)]),
    kind(
        (STORAGE, "CSIStorageCapacity", true),
        name_is_dns_subdomain,
        storage::capacity,
        &[Meta, Body, MetaUpdate, Change(storage::capacity_update)],
    ),
    kind(
        (STORAGE, "VolumeAttributesClass", false),
        name_is_dns_subdomain,
        storage::attributes_class,
        &[MetaUpdate, Change(storage::attributes_class_update), Meta, Body],
    ),
    kind(("", "LimitRange", true), name_is_dns_subdomain, limits::limit_range, &[Meta, Body]),
    kind(
        ("", "ResourceQuota", true),
        name_is_dns_subdomain,
        limits::quota,
        &[MetaUpdate, Change(limits::quota_update)],
    ),
    kind(("", "Node", false), name_is_dns_subdomain, node::node, &[Meta, Body, MetaUpdate, Change(node::node_update)]),
    Kind { create: &[PlainMeta, Body], ..kind(("", "Event", true), path_segment, event::core, &[Body]) },
    kind(
        ("events.k8s.io", "Event", true),
        name_is_dns_subdomain,
        event::event,
        &[Change(event::event_legacy), MetaUpdate, Change(event::event_update)],
    ),
    kind(
        ("certificates.k8s.io", "CertificateSigningRequest", false),
        path_segment,
        csr::create,
        &[Meta, Change(csr::update), MetaUpdate],
    ),
    plain(
        ("apiextensions.k8s.io", "CustomResourceDefinition", false),
        crd::create,
        &[PlainMetaUpdate, Change(crd::update)],
    ),
    Kind {
        create: &[PlainMeta, Body],
        ..kind(
            ("apiregistration.k8s.io", "APIService", false),
            path_segment,
            review::api_service,
            &[PlainMetaUpdate, PlainMeta, Body],
        )
    },
    plain(
        (ADMISSION, "ValidatingWebhookConfiguration", false),
        webhook::configuration,
        &[PlainMeta, Change(webhook::configuration_update)],
    ),
    plain(
        (ADMISSION, "MutatingWebhookConfiguration", false),
        webhook::configuration,
        &[PlainMeta, Change(webhook::configuration_update)],
    ),
    plain((ADMISSION, "ValidatingAdmissionPolicy", false), admission_policy::validating, &[PlainMeta, Body]),
    plain(
        (ADMISSION, "ValidatingAdmissionPolicyBinding", false),
        admission_policy::validating_binding,
        &[PlainMeta, Body],
    ),
    plain((ADMISSION, "MutatingAdmissionPolicy", false), admission_policy::mutating, &[PlainMeta, Body]),
    plain((ADMISSION, "MutatingAdmissionPolicyBinding", false), admission_policy::mutating_binding, &[PlainMeta, Body]),
    kind(("flowcontrol.apiserver.k8s.io", "FlowSchema", false), name_is_dns_subdomain, flow::schema, &[Meta, Body]),
    kind(
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", false),
        name_is_dns_subdomain,
        flow::priority_level,
        &[Meta, Body],
    ),
    kind(
        (DEVICES, "ResourceClaim", true),
        name_is_dns_subdomain,
        device::claim,
        &[Meta, MetaUpdate, Change(device::claim_update)],
    ),
    kind(
        (DEVICES, "ResourceClaimTemplate", true),
        name_is_dns_subdomain,
        device::template,
        &[Meta, Body, MetaUpdate, Change(device::template_update)],
    ),
    kind((DEVICES, "DeviceClass", false), long_name, device::class, &[Meta, MetaUpdate, Body]),
    kind((DEVICES, "ResourceSlice", false), name_is_dns_subdomain, slice::create, &[MetaUpdate, Change(slice::update)]),
];

/// What is looked at when a part of an object is updated that is served on its own.
static SUBRESOURCES: &[(&str, &str, &str, &[Step])] = &[
    ("", "Pod", "status", &[MetaUpdate, Change(pod::status)]),
    ("", "Pod", "ephemeralcontainers", &[MetaUpdate, Meta, Change(pod::ephemeral_containers)]),
    ("", "Pod", "resize", &[MetaUpdate, Meta, Change(pod::resize)]),
    ("", "ReplicationController", "status", &[MetaUpdate, Change(status::replica_set)]),
    ("apps", "Deployment", "status", &[MetaUpdate, Change(status::deployment)]),
    ("apps", "ReplicaSet", "status", &[MetaUpdate, Change(status::replica_set)]),
    ("apps", "StatefulSet", "status", &[Change(status::stateful_set), MetaUpdate]),
    ("apps", "DaemonSet", "status", &[MetaUpdate, Change(status::daemon_set)]),
    ("batch", "Job", "status", &[MetaUpdate, Change(job_status::update)]),
    ("batch", "CronJob", "status", &[]),
    ("policy", "PodDisruptionBudget", "status", &[Change(status::budget)]),
    (DEVICES, "ResourceClaim", "status", &[MetaUpdate, Change(claim_status::update)]),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema", "status", &[Change(flow::status)]),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", "status", &[Change(flow::status)]),
    ("autoscaling", "HorizontalPodAutoscaler", "status", &[MetaUpdate, Change(status::autoscaler)]),
];

fn path_segment(name: &str, prefix: bool) -> Messages {
    if prefix { is_path_segment_prefix(name) } else { is_path_segment_name(name) }
}

fn find(gvk: &GroupVersionKind) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| gvk.kind.as_str() == kind.kind && gvk.group.as_str() == kind.group)
}

/// What a stored built-in kind without rules of its own demands of its metadata: where it lives and what its names are.
fn stored(gvk: &GroupVersionKind) -> Option<(bool, NameRule)> {
    let kind = builtin::kind(gvk)?;
    let resource = GroupResource { group: gvk.group.clone(), resource: kind.resource.clone() };
    Some((kind.namespaced, Strategy::of(&resource)?.name))
}

/// What is wrong with an object that is to be created.
///
/// Every stored built-in kind has at least its metadata looked at. What is not stored and has no rules here has nothing
/// wrong; custom resources are looked at by [`validate_custom_create`].
#[must_use]
pub fn validate_create(gvk: &GroupVersionKind, object: &Map) -> ErrorList {
    if let Some(errors) = review::validate(gvk, object) {
        return errors;
    }
    let mut errors = ErrorList::new();
    if let Some(kind) = find(gvk) {
        run(kind, kind.create, object, read::empty(), &mut errors);
        // No kind lets more pass as a name than what holds for all.
        if kind.create.iter().any(|step| matches!(step, Meta | PlainMeta)) {
            return errors;
        }
    } else if let Some((namespaced, rule)) = stored(gvk) {
        return validate_metadata(object, namespaced, rule);
    }
    // What holds for all kinds is only told if nothing else is wrong.
    if let Some((namespaced, _)) = stored(gvk).filter(|_| errors.is_empty()) {
        errors = validate_metadata(object, namespaced, NameRule::PathSegment);
    }
    errors
}

/// What is wrong with a custom resource that is to be created, but for what its schema says.
#[must_use]
pub fn validate_custom_create(namespaced: bool, object: &Map) -> ErrorList {
    validate_metadata(object, namespaced, NameRule::DnsSubdomain)
}

/// What is wrong with a custom resource that is to replace `old`, but for what its schema says.
#[must_use]
pub fn validate_custom_update(namespaced: bool, new: &Map, old: &Map) -> ErrorList {
    let mut errors = validate_any_update(new, old, namespaced);
    let path = Path::new("metadata");
    errors.extend(validate_object_meta_update(read::at(new, "metadata"), read::at(old, "metadata"), &path));
    errors
}

fn validate_metadata(object: &Map, namespaced: bool, rule: NameRule) -> ErrorList {
    let path = Path::new("metadata");
    validate_object_meta(read::at(object, "metadata"), namespaced, |name, prefix| rule.check(name, prefix), &path)
}

/// What holds for all kinds when they are updated.
fn validate_any_update(new: &Map, old: &Map, namespaced: bool) -> ErrorList {
    let mut errors = validate_metadata(new, namespaced, NameRule::PathSegment);
    let path = Path::new("metadata");
    errors.extend(validate_object_meta_update(read::at(new, "metadata"), read::at(old, "metadata"), &path));
    errors
}

/// What is wrong with an object that is to replace `old`. For kinds without rules of their own see
/// [`validate_create`].
#[must_use]
pub fn validate_update(gvk: &GroupVersionKind, new: &Map, old: &Map) -> ErrorList {
    let Some(kind) = find(gvk) else {
        let generic = stored(gvk).map(|(namespaced, _)| validate_custom_update(namespaced, new, old));
        return generic.unwrap_or_default();
    };
    // What holds for all kinds is told first, and then often again.
    let mut errors = validate_any_update(new, old, kind.namespaced);
    run(kind, kind.update, new, old, &mut errors);
    errors
}

/// What is wrong with an object whose `subresource` (`status`, `resize` …) is to be updated, where it is the whole
/// object that is written there. A subresource without rules of its own has its metadata looked at.
///
/// What is written as another kind, such as `Scale`, `Binding` or `Eviction`, goes to [`validate_create`] as that kind.
#[must_use]
pub fn validate_subresource_update(gvk: &GroupVersionKind, subresource: &str, new: &Map, old: &Map) -> ErrorList {
    let mut rows = SUBRESOURCES.iter().filter(|row| (row.0, row.1) == (gvk.group.as_str(), gvk.kind.as_str()));
    match (find(gvk), rows.find(|row| row.2 == subresource)) {
        (Some(kind), Some((_, _, _, steps))) => {
            let mut errors = validate_any_update(new, old, kind.namespaced);
            run(kind, steps, new, old, &mut errors);
            errors
        }
        (Some(kind), None) => subresource::validate(gvk, subresource, new, old)
            .unwrap_or_else(|| validate_custom_update(kind.namespaced, new, old)),
        (None, _) => validate_update(gvk, new, old),
    }
}

fn run(kind: &Kind, steps: &[Step], new: &Map, old: &Map, errors: &mut ErrorList) {
    let path = Path::new("metadata");
    let metadata = read::at(new, "metadata");
    for step in steps {
        match step {
            MetaUpdate | PlainMetaUpdate => {
                errors.extend(validate_object_meta_update(metadata, read::at(old, "metadata"), &path));
            }
            Meta | PlainMeta => errors.extend(validate_object_meta(metadata, kind.namespaced, kind.name, &path)),
            Body => (kind.body)(new, errors),
            Change(rules) => rules(new, old, errors),
        }
        if matches!(step, Meta | MetaUpdate) {
            config::finalizers(metadata, &path.child("finalizers"), errors);
        }
    }
}

#[cfg(test)]
mod tests;
