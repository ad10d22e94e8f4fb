//! Where objects live in storage: upstream's own keys, so that a store can be taken over from it.

use capstan_api::{GroupResource, Name, builtin};

/// What all keys begin with.
pub const ROOT: &str = "/registry";

/// Resources that are not stored under their own name.
const SPECIAL: &[(&str, &str, &str)] = &[
    ("", "endpoints", "services/endpoints"),
    ("", "nodes", "minions"),
    ("", "replicationcontrollers", "controllers"),
    ("", "services", "services/specs"),
    ("networking.k8s.io", "ingresses", "ingress"),
];

/// Groups whose built-in kinds are stored with their group, as all custom resources are.
const WITH_GROUP: &[&str] = &["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// An object's place, read off its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location<'k> {
    /// The resource. Events are those of the core group, by whichever group they were written.
    pub resource: GroupResource,
    /// The namespace; empty for objects of the cluster.
    pub namespace: &'k str,
    /// The name.
    pub name: &'k str,
}

/// What the keys of a resource begin with, without a slash at the end: `/registry/pods`.
#[must_use]
pub fn prefix(resource: &GroupResource) -> String {
    let (group, resource) = (resource.group.as_str(), resource.resource.as_str());
    if let Some((_, _, place)) = SPECIAL.iter().find(|(g, r, _)| (*g, *r) == (group, resource)) {
        return format!("{ROOT}/{place}");
    }
    if !WITH_GROUP.contains(&group) && builtin_groups().any(|builtin| builtin == group) {
        return format!("{ROOT}/{resource}");
    }
    format!("{ROOT}/{group}/{resource}")
}

/// The key of an object; `namespace` is empty for objects of the cluster.
#[must_use]
pub fn key(resource: &GroupResource, namespace: &str, name: &str) -> String {
    let mut key = list_prefix(resource, namespace);
    key.push_str(name);
    key
}

/// What the keys of the objects in a namespace begin with, or of all objects if `namespace` is empty. It ends with a
/// slash, so that `a` does not find what is in `ab`.
#[must_use]
pub fn list_prefix(resource: &GroupResource, namespace: &str) -> String {
    let mut start = prefix(resource);
    start.push('/');
    if !namespace.is_empty() {
        start.push_str(namespace);
        start.push('/');
    }
    start
}

/// What the keys of a custom resource begin with, whatever its group, with the slash at the end.
#[must_use]
pub fn custom_prefix(resource: &GroupResource) -> String {
    format!("{ROOT}/{}/{}/", resource.group, resource.resource)
}

/// The object that a key belongs to; `None` for keys that no served object has (`/registry/ranges/…`).
#[must_use]
pub fn parse(key: &str) -> Option<Location<'_>> {
    let rest = key.strip_prefix(ROOT)?.strip_prefix('/')?;
    for (group, resource, place) in SPECIAL {
        if let Some(rest) = rest.strip_prefix(place).and_then(|rest| rest.strip_prefix('/')) {
            return locate(GroupResource::from_static(group, resource), rest);
        }
    }
    let (first, rest) = rest.split_once('/')?;
    // Names of resources have no dots, groups of custom resources have at least one.
    if first.contains('.') {
        let (resource, rest) = rest.split_once('/')?;
        return locate(GroupResource::new(first, resource), rest);
    }
    let special = |kind: &builtin::Kind| prefix(&kind.gvr().group_resource()) != format!("{ROOT}/{first}");
    let mut kinds = builtin::kinds().filter(|kind| kind.resource == first && !special(kind));
    let found = kinds.next()?;
    let core = kinds.find(|kind| kind.group_version.group.is_empty()).unwrap_or(found);
    locate(core.gvr().group_resource(), rest)
}

fn locate(resource: GroupResource, rest: &str) -> Option<Location<'_>> {
    let (namespace, name) = rest.split_once('/').unwrap_or(("", rest));
    let kind = builtin::kinds().find(|kind| kind.gvr().group_resource() == resource);
    let fits = kind.is_none_or(|kind| kind.namespaced != namespace.is_empty());
    (fits && !name.is_empty() && !name.contains('/')).then_some(Location { resource, namespace, name })
}

fn builtin_groups() -> impl Iterator<Item = Name> {
    builtin::group_versions().map(|group_version| group_version.group)
}
