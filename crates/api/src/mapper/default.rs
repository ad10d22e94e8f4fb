//! The mapper that knows names and does not choose.

use std::collections::HashMap;

use super::{MatchError, RESTMapper, RESTMapping, unsafe_guess_kind_to_resource};
use crate::{GroupKind, GroupVersion, GroupVersionKind, GroupVersionResource, Name, Scope, names::INTERNAL_VERSION};

/// Maps by exact names: plural, singular, kind. Where several groups or versions fit, all of them do.
#[derive(Clone, Debug, Default)]
pub struct DefaultRESTMapper {
    default_group_versions: Vec<GroupVersion>,
    resource_to_kind: HashMap<GroupVersionResource, GroupVersionKind>,
    kind_to_plural: HashMap<GroupVersionKind, (GroupVersionResource, Scope)>,
    plural_to_singular: HashMap<GroupVersionResource, GroupVersionResource>,
    /// Per name, plural or singular: the full names that have it, and the plurals that they belong to.
    by_name: HashMap<Name, Vec<Entry>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    resource: GroupVersionResource,
    plural: GroupVersionResource,
}

impl DefaultRESTMapper {
    /// A mapper that knows nothing yet. `default_group_versions` are preferred in this order, and the only ones in
    /// which kinds are looked for that are named without a version.
    #[must_use]
    pub fn new(default_group_versions: Vec<GroupVersion>) -> Self {
        DefaultRESTMapper { default_group_versions, ..DefaultRESTMapper::default() }
    }

    /// Adds a kind whose resource is guessed.
    pub fn add(&mut self, kind: GroupVersionKind, scope: Scope) {
        let (plural, singular) = unsafe_guess_kind_to_resource(&kind);
        self.add_specific(kind, plural, singular, scope);
    }

    /// Adds a kind with its resource.
    pub fn add_specific(
        &mut self,
        kind: GroupVersionKind,
        plural: GroupVersionResource,
        singular: GroupVersionResource,
        scope: Scope,
    ) {
        for resource in [&plural, &singular] {
            let entry = Entry { resource: resource.clone(), plural: plural.clone() };
            let entries = self.by_name.entry(resource.resource.clone()).or_default();
            if !entries.contains(&entry) {
                entries.push(entry);
            }
            self.resource_to_kind.insert(resource.clone(), kind.clone());
        }
        self.plural_to_singular.insert(plural.clone(), singular);
        self.kind_to_plural.insert(kind, (plural, scope));
    }

    /// The singular that was added for a plural.
    pub(super) fn singular(&self, plural: &GroupVersionResource) -> Option<&Name> {
        self.plural_to_singular.get(plural).map(|singular| &singular.resource)
    }

    /// The entries that fit a resource named in part. A group that none has stands for all that begin so: `storage` for
    /// `storage.k8s.io`.
    fn matching(&self, input: &GroupVersionResource) -> Result<Vec<&Entry>, MatchError> {
        let GroupVersionResource { group, version, .. } = input;
        let version = if version == INTERNAL_VERSION { "" } else { version.as_str() };
        let resource = input.resource.to_lowercase();
        if resource.is_empty() {
            let version = Name::from(version);
            return Err(MatchError::ResourceRequired(GroupVersionResource { version, ..input.clone() }));
        }
        let named = self.by_name.get(resource.as_str()).map(Vec::as_slice).unwrap_or_default();
        let of_version = |entry: &&Entry| version.is_empty() || entry.resource.version == version;
        let of_group = |entry: &&Entry| group.is_empty() || entry.resource.group == *group;
        let mut found: Vec<&Entry> = named.iter().filter(of_group).filter(of_version).collect();
        if found.is_empty() && !group.is_empty() && version.is_empty() {
            found = named.iter().filter(|entry| entry.resource.group.starts_with(group.as_str())).collect();
        }
        if found.is_empty() {
            return Err(MatchError::NoResource(input.clone()));
        }
        Ok(found)
    }

    /// Where a group and version stands in the order of preference.
    fn rank(&self, gv: &GroupVersion) -> usize {
        self.default_group_versions.iter().position(|default| default == gv).unwrap_or(usize::MAX)
    }
}

impl RESTMapper for DefaultRESTMapper {
    fn kinds_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionKind>, MatchError> {
        let mut kinds = Vec::new();
        for entry in self.matching(resource)? {
            if let Some(kind) = self.resource_to_kind.get(&entry.resource)
                && !kinds.contains(kind)
            {
                kinds.push(kind.clone());
            }
        }
        kinds.sort_by_cached_key(|kind| (self.rank(&kind.group_version()), kind.kind.clone()));
        Ok(kinds)
    }

    fn resources_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionResource>, MatchError> {
        let mut resources = Vec::new();
        for entry in self.matching(resource)? {
            if !resources.contains(&entry.plural) {
                resources.push(entry.plural.clone());
            }
        }
        resources.sort_by_cached_key(|found| (self.rank(&found.group_version()), found.resource.clone()));
        Ok(resources)
    }

    fn rest_mappings(&self, kind: &GroupKind, versions: &[&str]) -> Result<Vec<RESTMapping>, MatchError> {
        let mapping = |gvk: GroupVersionKind| {
            let (resource, scope) = self.kind_to_plural.get(&gvk)?;
            Some(RESTMapping { resource: resource.clone(), gvk, scope: *scope })
        };
        let mut named =
            versions.iter().filter(|version| !version.is_empty() && **version != INTERNAL_VERSION).peekable();
        if named.peek().is_some() {
            let found = named.find_map(|version| mapping(kind.with_version(*version)));
            return found.map(|found| vec![found]).ok_or_else(|| MatchError::no_kind(kind, versions));
        }
        let mut defaults = self.default_group_versions.iter().filter(|gv| gv.group == kind.group).peekable();
        if defaults.peek().is_none() {
            return Err(MatchError::no_kind(kind, versions));
        }
        let found: Vec<_> = defaults.filter_map(|gv| mapping(kind.with_version(gv.version.clone()))).collect();
        if found.is_empty() {
            let resource = GroupVersionResource::new(kind.group.clone(), "", kind.kind.clone());
            return Err(MatchError::NoResource(resource));
        }
        Ok(found)
    }

    fn resource_singularizer(&self, resource: &str) -> Result<Name, MatchError> {
        let resources = self.resources_for(&GroupVersionResource::new("", "", resource))?;
        let mut singulars = resources.iter().filter_map(|found| self.singular(found));
        let first = singulars.next().ok_or_else(|| MatchError::NoSingular(resource.to_owned()))?;
        if singulars.any(|other| other != first) {
            return Err(MatchError::ManySingulars { resource: resource.to_owned(), resources });
        }
        Ok(first.clone())
    }
}
