//! Which versions there are, and which come first.

use super::{RegisterError, Scheme};
use crate::{GroupKind, GroupVersion, Name, names::INTERNAL_VERSION};

fn is_external(version: &str) -> bool {
    !version.is_empty() && version != INTERNAL_VERSION
}

impl Scheme {
    pub(super) fn observe(&mut self, gv: GroupVersion) {
        if is_external(&gv.version) && !self.observed_versions.contains(&gv) {
            self.observed_versions.push(gv);
        }
    }

    /// Ranks the versions of a group, the preferred first. Versions that are not named come after, as they were
    /// registered.
    ///
    /// # Errors
    /// The versions are not of exactly one group, or one of them is the hub.
    pub fn set_version_priority(&mut self, versions: &[GroupVersion]) -> Result<(), RegisterError> {
        if let Some(gv) = versions.iter().find(|gv| !is_external(&gv.version)) {
            return Err(RegisterError::InternalPriority(gv.clone()));
        }
        let mut groups: Vec<Name> = versions.iter().map(|gv| gv.group.clone()).collect();
        groups.sort();
        groups.dedup();
        match <[Name; 1]>::try_from(groups) {
            Ok([group]) => {
                self.version_priority.insert(group, versions.iter().map(|gv| gv.version.clone()).collect());
                Ok(())
            }
            Err(groups) => Err(RegisterError::OneGroup(groups.iter().map(ToString::to_string).collect())),
        }
    }

    /// The versions of a group, the preferred first.
    #[must_use]
    pub fn prioritized_versions_for_group(&self, group: &str) -> Vec<GroupVersion> {
        let ranked = self.version_priority.get(group).into_iter().flatten();
        let mut versions: Vec<_> = ranked.map(|version| GroupVersion::new(group, version.clone())).collect();
        for gv in self.observed_versions.iter().filter(|gv| gv.group == group) {
            if !versions.contains(gv) {
                versions.push(gv.clone());
            }
        }
        versions
    }

    /// All versions: group by group as they were registered, the preferred version of each first.
    #[must_use]
    pub fn prioritized_versions_all_groups(&self) -> Vec<GroupVersion> {
        self.groups().flat_map(|group| self.prioritized_versions_for_group(group)).collect()
    }

    /// The preferred version of a group.
    #[must_use]
    pub fn preferred_version(&self, group: &str) -> Option<GroupVersion> {
        self.prioritized_versions_for_group(group).into_iter().next()
    }

    /// The preferred version of each group, in the order in which the groups were registered.
    #[must_use]
    pub fn preferred_version_all_groups(&self) -> Vec<GroupVersion> {
        self.groups().filter_map(|group| self.preferred_version(group)).collect()
    }

    fn groups(&self) -> impl Iterator<Item = &str> {
        let observed = self.observed_versions.iter().enumerate();
        let first = observed.filter(|(at, gv)| !self.observed_versions[..*at].iter().any(|old| old.group == gv.group));
        first.map(|(_, gv)| gv.group.as_str())
    }

    /// The versions in which a kind is registered, the preferred first; without the hub.
    #[must_use]
    pub fn versions_for_group_kind(&self, kind: &GroupKind) -> Vec<GroupVersion> {
        let mut versions = self.prioritized_versions_for_group(&kind.group);
        versions.retain(|gv| self.recognizes(&gv.with_kind(kind.kind.clone())));
        versions
    }

    /// Whether a type of the group is registered.
    #[must_use]
    pub fn is_group_registered(&self, group: &str) -> bool {
        self.observed_versions.iter().any(|gv| gv.group == group)
    }

    /// Whether a type of the group and version is registered.
    #[must_use]
    pub fn is_version_registered(&self, gv: &GroupVersion) -> bool {
        self.observed_versions.contains(gv)
    }
}
