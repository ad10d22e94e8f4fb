//! What is looked at when a part of an object is written: its status, its finalizers, its approval.

use capstan_api::{
    GroupVersionKind, Map,
    field::{ErrorList, Path},
    validation::{validate_object_meta, validate_object_meta_update},
};

use super::{
    Step, claim, config, crd, csr, find, ingress, limits, node, path_segment, read, review, service_ips, storage,
};

/// The kind, the subresource and what is looked at beside the metadata.
type Rule = ((&'static str, &'static str), &'static str, fn(new: &Map, old: &Map, errors: &mut ErrorList));

static RULES: &[Rule] = &[
    (("networking.k8s.io", "Ingress"), "status", ingress::status),
    (("", "Service"), "status", service_ips::status),
    (("", "PersistentVolumeClaim"), "status", claim::status),
    (("", "ResourceQuota"), "status", limits::quota_status),
    (("", "Node"), "status", node::node_update),
    (("", "Namespace"), "status", node::namespace_status),
    (("", "Namespace"), "finalize", node::namespace_finalize),
    (("certificates.k8s.io", "CertificateSigningRequest"), "status", csr::status),
    (("certificates.k8s.io", "CertificateSigningRequest"), "approval", csr::approval),
    (("apiextensions.k8s.io", "CustomResourceDefinition"), "status", crd::status),
    (("apiregistration.k8s.io", "APIService"), "status", review::api_service_status),
    (("storage.k8s.io", "VolumeAttachment"), "status", storage::attachment_update),
];

/// What is wrong with an object that is written through a subresource, if it has rules here.
pub(super) fn validate(gvk: &GroupVersionKind, subresource: &str, new: &Map, old: &Map) -> Option<ErrorList> {
    let is_it = |rule: &&Rule| (gvk.group.as_str(), gvk.kind.as_str()) == rule.0 && rule.1 == subresource;
    let (_, _, rules) = RULES.iter().find(is_it)?;
    let kind = find(gvk)?;
    let mut errors = ErrorList::new();
    let (path, metadata) = (Path::new("metadata"), read::at(new, "metadata"));
    errors.extend(validate_object_meta(metadata, kind.namespaced, path_segment, &path));
    // What holds for all kinds is told first, and then again.
    for _ in 0..2 {
        errors.extend(validate_object_meta_update(metadata, read::at(old, "metadata"), &path));
    }
    if !kind.create.iter().any(|step| matches!(step, Step::PlainMeta)) {
        config::finalizers(metadata, &path.child("finalizers"), &mut errors);
    }
    rules(new, old, &mut errors);
    Some(errors)
}
