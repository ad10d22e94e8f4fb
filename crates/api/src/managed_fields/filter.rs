//! Fields that an endpoint does not write, whoever sends them.

use super::FieldSet;
use crate::{builtin, names::GroupVersionKind};

/// Kinds whose metadata cannot be written through `status`.
const METADATA_KEPT: [&str; 13] = [
    "APIService",
    "CustomResourceDefinition",
    "DeviceTaintRule",
    "FlowSchema",
    "PodGroup",
    "PriorityLevelConfiguration",
    "ResourceClaim",
    "ResourcePoolStatusRequest",
    "ServiceCIDR",
    "StorageVersion",
    "StorageVersionMigration",
    "ValidatingAdmissionPolicy",
    "VolumeAttachment",
];

/// The fields that writes through an endpoint can come to own.
#[derive(Clone, Debug, Default)]
pub enum Filter {
    /// All.
    #[default]
    All,
    /// All but these and what is in them: `status` on the main endpoint, `spec` on that of the status.
    Without(FieldSet),
}

impl Filter {
    /// All but the fields, each written with dots: `metadata.labels`.
    #[must_use]
    pub fn without(paths: &[&str]) -> Self {
        Filter::Without(FieldSet::of_fields(paths))
    }

    /// That of an endpoint of a user's kind, which has a `status` subresource or not.
    #[must_use]
    pub fn of_custom(subresource: &str, has_status: bool) -> Self {
        match subresource {
            "" if has_status => Filter::without(&["status"]),
            "status" => Filter::without(&["metadata", "spec"]),
            _ => Filter::All,
        }
    }

    /// That of an endpoint of a built-in kind.
    #[must_use]
    pub fn of_builtin(kind: &GroupVersionKind, subresource: &str) -> Self {
        match (&*kind.kind, subresource) {
            ("CertificateSigningRequest", "") => Filter::without(&["spec", "status"]),
            ("CertificateSigningRequest", "status") => Filter::without(&["spec", "status.conditions"]),
            ("CertificateSigningRequest", "approval") => Filter::without(&["spec", "status.certificate"]),
            ("PodCertificateRequest" | "ServiceCIDR", "") => Filter::All,
            ("Namespace", "finalize") => Filter::without(&["status"]),
            ("Deployment", "status") => Filter::without(&["metadata.labels", "spec"]),
            ("Pod", "status") => Filter::without(&["metadata.deletionTimestamp", "metadata.ownerReferences", "spec"]),
            (name, "status") if METADATA_KEPT.contains(&name) => Filter::without(&["metadata", "spec"]),
            (_, "status") => Filter::without(&["spec"]),
            (_, "") if has_status(kind) => Filter::without(&["status"]),
            _ => Filter::All,
        }
    }

    pub(super) fn apply(&self, set: FieldSet) -> FieldSet {
        match self {
            Filter::All => set,
            Filter::Without(fields) => set.recursive_difference(fields),
        }
    }
}

fn has_status(kind: &GroupVersionKind) -> bool {
    builtin::kind(kind).is_some_and(|kind| kind.subresources.iter().any(|subresource| subresource.name == "status"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let check = |kind: &str, subresource: &str, expected: &str| {
            let (group, kind) = kind.split_once('/').unwrap();
            let set = FieldSet::of_fields(&[
                "metadata.labels",
                "spec.containers.a.image",
                "spec.containers.a.resources.limits",
                "status.certificate",
                "status.conditions",
            ]);
            let filter = Filter::of_builtin(&GroupVersionKind::new(group, "v1", kind), subresource);
            let left = String::from_utf8(filter.apply(set).to_json()).unwrap();
            assert_eq!(left, expected, "{kind} {subresource}");
        };
        let metadata = r#""f:metadata":{"f:labels":{}}"#;
        let status = r#""f:status":{"f:certificate":{},"f:conditions":{}}"#;
        check("apps/Deployment", "status", &format!("{{{status}}}"));
        check("/Node", "status", &format!("{{{metadata},{status}}}"));
        check("storage.k8s.io/VolumeAttachment", "status", &format!("{{{status}}}"));
        check("certificates.k8s.io/CertificateSigningRequest", "", &format!("{{{metadata}}}"));
        check(
            "certificates.k8s.io/CertificateSigningRequest",
            "approval",
            &format!(r#"{{{metadata},"f:status":{{"f:conditions":{{}}}}}}"#),
        );
        let spec = r#""f:spec":{"f:containers":{"f:a":{"f:image":{},"f:resources":{"f:limits":{}}}}}"#;
        check("/Pod", "", &format!("{{{metadata},{spec}}}"));
        check("/ConfigMap", "", &format!("{{{metadata},{spec},{status}}}"));
        // Upstream writes down which fields these take and does not ask for it.
        check("/Pod", "resize", &format!("{{{metadata},{spec},{status}}}"));
        check("/Pod", "ephemeralcontainers", &format!("{{{metadata},{spec},{status}}}"));
    }
}
