//! The mapper that chooses among what another one finds.

use super::{MatchError, RESTMapper, RESTMapping};
use crate::{GroupKind, GroupVersion, GroupVersionKind, GroupVersionResource, Name};

/// In a pattern: whatever.
pub const ANY: &str = "*";

/// Narrows what its delegate finds by patterns, one after the other, until one is left.
///
/// A pattern that nothing fits is passed over; one that several fit leaves these for the patterns after it. Parts of a
/// pattern may be [`ANY`].
#[derive(Clone, Debug, Default)]
pub struct PriorityRESTMapper<M> {
    /// Who finds.
    pub delegate: M,
    /// The patterns for resources.
    pub resource_priority: Vec<GroupVersionResource>,
    /// The patterns for kinds.
    pub kind_priority: Vec<GroupVersionKind>,
}

/// Narrows `found` pattern by pattern; the one that is left, if it comes to one.
fn choose<T: Clone, P>(found: &[T], patterns: impl IntoIterator<Item = P>, fits: impl Fn(&P, &T) -> bool) -> Option<T> {
    let mut rest: Vec<&T> = found.iter().collect();
    for pattern in patterns {
        if rest.len() == 1 {
            break;
        }
        let fitting: Vec<&T> = rest.iter().copied().filter(|one| fits(&pattern, one)).collect();
        if !fitting.is_empty() {
            rest = fitting;
        }
    }
    if let [one] = rest.as_slice() { Some((*one).clone()) } else { None }
}

fn part_fits(pattern: &Name, part: &Name) -> bool {
    pattern == ANY || pattern == part
}

fn kind_fits(pattern: &GroupVersionKind, kind: &GroupVersionKind) -> bool {
    part_fits(&pattern.group, &kind.group)
        && part_fits(&pattern.version, &kind.version)
        && part_fits(&pattern.kind, &kind.kind)
}

fn resource_fits(pattern: &GroupVersionResource, resource: &GroupVersionResource) -> bool {
    part_fits(&pattern.group, &resource.group)
        && part_fits(&pattern.version, &resource.version)
        && part_fits(&pattern.resource, &resource.resource)
}

impl<M: RESTMapper> RESTMapper for PriorityRESTMapper<M> {
    fn kinds_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionKind>, MatchError> {
        self.delegate.kinds_for(resource)
    }

    fn resources_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionResource>, MatchError> {
        self.delegate.resources_for(resource)
    }

    fn rest_mappings(&self, kind: &GroupKind, versions: &[&str]) -> Result<Vec<RESTMapping>, MatchError> {
        self.delegate.rest_mappings(kind, versions)
    }

    fn resource_singularizer(&self, resource: &str) -> Result<Name, MatchError> {
        self.delegate.resource_singularizer(resource)
    }

    fn kind_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionKind, MatchError> {
        let kinds = self.delegate.kinds_for(resource)?;
        let chosen = choose(&kinds, &self.kind_priority, |pattern, kind| kind_fits(pattern, kind));
        chosen.ok_or_else(|| MatchError::ambiguous_kinds(resource, kinds))
    }

    fn resource_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionResource, MatchError> {
        let found = self.delegate.resources_for(resource)?;
        let chosen = choose(&found, &self.resource_priority, |pattern, resource| resource_fits(pattern, resource));
        chosen.ok_or_else(|| MatchError::ambiguous_resources(resource, found))
    }

    fn rest_mapping(&self, kind: &GroupKind, versions: &[&str]) -> Result<RESTMapping, MatchError> {
        let mappings = self.delegate.rest_mappings(kind, versions)?;
        // The versions that were asked for come first.
        let asked = versions.iter().map(|version| GroupVersion::new(kind.group.clone(), *version).with_kind(ANY));
        let patterns = asked.chain(self.kind_priority.iter().cloned());
        choose(&mappings, patterns, |pattern, mapping| kind_fits(pattern, &mapping.gvk)).ok_or_else(|| {
            let kinds = mappings.into_iter().map(|mapping| mapping.gvk).collect();
            MatchError::AmbiguousKind { kind: kind.with_version(""), kinds }
        })
    }
}
