//! What discovery knows of one resource.

use capstan_api::{GroupVersion, GroupVersionKind, Name, builtin};

use crate::{base64, sha256::sha256};

/// A resource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// The group and version that it is served in.
    pub group_version: GroupVersion,
    /// The kind: `Deployment`.
    pub kind: Name,
    /// The resource: `deployments`.
    pub resource: Name,
    /// The resource in the singular: `deployment`.
    pub singular: Name,
    /// Its objects live in namespaces.
    pub namespaced: bool,
    /// Shorter names: `deploy`.
    pub short_names: Vec<Name>,
    /// Groups of resources that it belongs to: `all`.
    pub categories: Vec<Name>,
    /// What can be done with it, in the order in which it is told.
    pub verbs: Vec<Name>,
    /// Its parts that are served on their own, in the order in which they are told.
    pub subresources: Vec<ApiSubresource>,
    /// The kind as which its objects are stored; nothing if they are not.
    pub storage: Option<GroupVersionKind>,
    /// It came with a custom resource definition: then aggregated discovery says groups and versions in full.
    pub custom: bool,
}

/// A part of a resource that is served on its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSubresource {
    /// Its name: `scale`.
    pub name: Name,
    /// The kind that is read and written there.
    pub kind: GroupVersionKind,
    /// What can be done with it.
    pub verbs: Vec<Name>,
}

/// The kinds that upstream stores in another group or version than they are served in: group, version, kind, then as
/// what.
const STORED_AS: [(&str, &str, &str, &str, &str); 5] = [
    ("events.k8s.io", "v1", "Event", "", "v1"),
    ("autoscaling", "v1", "HorizontalPodAutoscaler", "autoscaling", "v2"),
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "admissionregistration.k8s.io", "v1beta1"),
    ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding", "admissionregistration.k8s.io", "v1beta1"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "apiextensions.k8s.io", "v1beta1"),
];

impl From<&builtin::Kind> for ApiResource {
    fn from(kind: &builtin::Kind) -> Self {
        let subresource = |sub: &builtin::Subresource| ApiSubresource {
            name: sub.name.clone(),
            kind: sub.kind.clone(),
            verbs: sub.verbs.to_vec(),
        };
        // What can be watched is stored; the rest is made up when it is asked for.
        let stored = kind.verbs.iter().any(|verb| *verb == *"watch");
        ApiResource {
            group_version: kind.group_version.clone(),
            kind: kind.kind.clone(),
            resource: kind.resource.clone(),
            singular: kind.singular.clone(),
            namespaced: kind.namespaced,
            short_names: kind.short_names.to_vec(),
            categories: kind.categories.to_vec(),
            verbs: kind.verbs.to_vec(),
            subresources: kind.subresources.iter().map(subresource).collect(),
            storage: stored.then(|| storage_of(kind.gvk())),
            custom: false,
        }
    }
}

fn storage_of(gvk: GroupVersionKind) -> GroupVersionKind {
    let is = |(group, version, kind, ..): &&(&str, &str, &str, _, _)| {
        (&*gvk.group, &*gvk.version, &*gvk.kind) == (*group, *version, *kind)
    };
    match STORED_AS.iter().find(is) {
        Some(&(_, _, kind, group, version)) => GroupVersionKind::from_static(group, version, kind),
        None => gvk,
    }
}

/// A word that changes when objects are stored as another kind, so that clients can tell that they must be migrated.
#[must_use]
pub fn storage_version_hash(stored: &GroupVersionKind) -> String {
    let name = format!("{}/{}/{}", stored.group, stored.version, stored.kind);
    base64::encode(&sha256(name.as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes that upstream has given out.
    #[test]
    fn hashes_of_upstream() {
        for (group, version, kind, expected) in [
            ("", "v1", "ConfigMap", "qFsyl6wFWjQ="),
            ("", "v1", "Event", "r2yiGXH7wu8="),
            ("autoscaling", "v2", "HorizontalPodAutoscaler", "qwQve8ut294="),
            ("stable.example.com", "v1", "CronTab", "EdX2FP+L0js="),
        ] {
            assert_eq!(storage_version_hash(&GroupVersionKind::from_static(group, version, kind)), expected);
        }
    }
}
