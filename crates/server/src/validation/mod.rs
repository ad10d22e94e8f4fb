//! What built-in kinds demand beyond their schema, in the order and with the words that clients know.
//!
//! The functions take objects that are decoded and have their defaults; fields of the wrong type count as not set, for
//! decoding has refused them before. Maps are gone through in the order of their keys, where upstream has no order.

mod address;
mod apps;
mod claim;
mod config;
mod crd;
mod csr;
mod device;
mod diff;
mod endpoints;
mod event;
mod flow;
mod ingress;
mod limits;
mod network;
mod node;
mod pod;
mod policy;
mod rbac;
pub(crate) mod read;
mod review;
mod rules;
mod service;
mod service_ips;
mod shape;
mod storage;
mod subresource;
mod volume;
mod webhook;

use capstan_api::{
    GroupVersionKind, Map,
    field::{ErrorList, Path},
    validation::{
        Messages, is_path_segment_name, is_path_segment_prefix, name_is_dns_label, name_is_dns_subdomain,
        validate_object_meta, validate_object_meta_update,
    },
};

pub use subresource::validate_subresource_update;

/// A part of what is looked at when an object is updated.
enum Step {
    /// What must not change in the metadata.
    MetaUpdate,
    /// The metadata, as for a new object.
    Meta,
    /// The rest, as for a new object.
    Body,
    /// What must not change in the rest.
    Change(fn(new: &Map, old: &Map, errors: &mut ErrorList)),
}
use Step::{Body, Change, Meta, MetaUpdate};

/// How a kind is validated.
struct Kind {
    group: &'static str,
    kind: &'static str,
    namespaced: bool,
    name: fn(&str, bool) -> Messages,
    body: fn(&Map, &mut ErrorList),
    update: &'static [Step],
}

const fn kind(
    (group, kind, namespaced): (&'static str, &'static str, bool),
    name: fn(&str, bool) -> Messages,
    body: fn(&Map, &mut ErrorList),
    update: &'static [Step],
) -> Kind {
    Kind { group, kind, namespaced, name, body, update }
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
    kind(("", "Namespace", false), name_is_dns_label, config::namespace, &[MetaUpdate]),
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
        &[MetaUpdate, Change(storage::capacity_update)],
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
    kind(("", "Event", true), path_segment, event::core, &[Body]),
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
    kind(
        ("apiextensions.k8s.io", "CustomResourceDefinition", false),
        name_is_dns_subdomain,
        crd::create,
        &[MetaUpdate, Change(crd::update)],
    ),
    kind(("apiregistration.k8s.io", "APIService", false), path_segment, review::api_service, &[MetaUpdate, Meta, Body]),
    kind(
        (ADMISSION, "ValidatingWebhookConfiguration", false),
        name_is_dns_subdomain,
        webhook::configuration,
        &[Meta, Change(webhook::configuration_update)],
    ),
    kind(
        (ADMISSION, "MutatingWebhookConfiguration", false),
        name_is_dns_subdomain,
        webhook::configuration,
        &[Meta, Change(webhook::configuration_update)],
    ),
    kind((ADMISSION, "ValidatingAdmissionPolicy", false), name_is_dns_subdomain, policy::validating, &[Meta, Body]),
    kind(
        (ADMISSION, "ValidatingAdmissionPolicyBinding", false),
        name_is_dns_subdomain,
        policy::validating_binding,
        &[Meta, Body],
    ),
    kind((ADMISSION, "MutatingAdmissionPolicy", false), name_is_dns_subdomain, policy::mutating, &[Meta, Body]),
    kind(
        (ADMISSION, "MutatingAdmissionPolicyBinding", false),
        name_is_dns_subdomain,
        policy::mutating_binding,
        &[Meta, Body],
    ),
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
        &[MetaUpdate, Change(device::template_update)],
    ),
    kind((DEVICES, "DeviceClass", false), name_is_dns_subdomain, device::class, &[MetaUpdate, Body]),
    kind(
        (DEVICES, "ResourceSlice", false),
        name_is_dns_subdomain,
        device::slice,
        &[MetaUpdate, Change(device::slice_update)],
    ),
];

fn path_segment(name: &str, prefix: bool) -> Messages {
    if prefix { is_path_segment_prefix(name) } else { is_path_segment_name(name) }
}

fn find(gvk: &GroupVersionKind) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| gvk.group.as_str() == kind.group && gvk.kind.as_str() == kind.kind)
}

/// What is wrong with an object that is to be created. Kinds that have no rules here have nothing wrong.
#[must_use]
pub fn validate_create(gvk: &GroupVersionKind, object: &Map) -> ErrorList {
    if let Some(errors) = review::validate(gvk, object) {
        return errors;
    }
    let mut errors = ErrorList::new();
    if let Some(kind) = find(gvk) {
        run(kind, &[Meta, Body], object, read::empty(), &mut errors);
    }
    errors
}

/// What is wrong with an object that is to replace `old`. Kinds that have no rules here have nothing wrong.
#[must_use]
pub fn validate_update(gvk: &GroupVersionKind, new: &Map, old: &Map) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(kind) = find(gvk) {
        // What holds for all kinds is told first, and then often again.
        let (path, metadata) = (Path::new("metadata"), read::at(new, "metadata"));
        errors.extend(validate_object_meta(metadata, kind.namespaced, path_segment, &path));
        errors.extend(validate_object_meta_update(metadata, read::at(old, "metadata"), &path));
        run(kind, kind.update, new, old, &mut errors);
    }
    errors
}

fn run(kind: &Kind, steps: &[Step], new: &Map, old: &Map, errors: &mut ErrorList) {
    let path = Path::new("metadata");
    let metadata = read::at(new, "metadata");
    for step in steps {
        match step {
            MetaUpdate => {
                errors.extend(validate_object_meta_update(metadata, read::at(old, "metadata"), &path));
                config::finalizers(metadata, &path.child("finalizers"), errors);
            }
            Meta => {
                errors.extend(validate_object_meta(metadata, kind.namespaced, kind.name, &path));
                config::finalizers(metadata, &path.child("finalizers"), errors);
            }
            Body => (kind.body)(new, errors),
            Change(rules) => rules(new, old, errors),
        }
    }
}

#[cfg(test)]
mod tests;
