//! What servers answer when they are asked what they serve.

use capstan_api::{GroupVersion, GroupVersionKind, Name, mapper::ResourceInfo};
use serde::Deserialize;

use super::{ApiGroup, ApiResource, ApiSubresource, ApiVersion, scope};

/// What comes from `/api` or `/apis`. Each has a field that the others lack.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Aggregated(Aggregated),
    Groups(Groups),
    Core(Core),
}

#[derive(Debug, Deserialize)]
pub(super) struct Aggregated {
    pub(super) items: Vec<Group>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Groups {
    groups: Vec<OldGroup>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Core {
    versions: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OldGroup {
    name: String,
    #[serde(default)]
    versions: Vec<OldVersion>,
    preferred_version: Option<OldVersion>,
}

#[derive(Debug, Deserialize)]
struct OldVersion {
    version: String,
}

impl Groups {
    /// The groups and their versions, the preferred one first.
    pub(super) fn groups(self) -> Vec<(String, Vec<String>)> {
        let group = |group: OldGroup| {
            let preferred = group.preferred_version.map(|preferred| preferred.version);
            let mut versions: Vec<String> = group.versions.into_iter().map(|version| version.version).collect();
            versions.sort_by_key(|version| Some(version) != preferred.as_ref());
            (group.name, versions)
        };
        self.groups.into_iter().map(group).collect()
    }
}

impl Core {
    pub(super) fn groups(self) -> Vec<(String, Vec<String>)> {
        vec![(String::new(), self.versions)]
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Group {
    #[serde(default)]
    metadata: GroupMeta,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupMeta {
    #[serde(default)]
    name: Name,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: Name,
    #[serde(default)]
    resources: Vec<Resource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    resource: Name,
    response_kind: Kind,
    scope: String,
    singular_resource: Name,
    verbs: Vec<Name>,
    short_names: Vec<Name>,
    categories: Vec<Name>,
    subresources: Vec<Subresource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Subresource {
    subresource: Name,
    response_kind: Kind,
    verbs: Vec<Name>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Kind {
    group: Name,
    version: Name,
    kind: Name,
}

impl From<Kind> for GroupVersionKind {
    fn from(kind: Kind) -> Self {
        GroupVersionKind { group: kind.group, version: kind.version, kind: kind.kind }
    }
}

impl From<Group> for ApiGroup {
    fn from(group: Group) -> Self {
        let name = group.metadata.name;
        let version = |version: Version| {
            let gv = GroupVersion { group: name.clone(), version: version.version };
            ApiVersion {
                resources: version.resources.into_iter().map(|resource| resource.of(&gv)).collect(),
                version: gv.version,
                unavailable: (version.freshness == "Stale").then(|| "what is known of it is old".to_owned()),
            }
        };
        let versions = group.versions.into_iter().map(version).collect();
        ApiGroup { versions, name }
    }
}

impl Resource {
    fn of(self, gv: &GroupVersion) -> ApiResource {
        let subresource = |sub: Subresource| ApiSubresource {
            name: sub.subresource,
            gvk: sub.response_kind.into(),
            verbs: sub.verbs,
        };
        ApiResource {
            info: ResourceInfo {
                // The kind of a resource is in the group and version that it is served in.
                gvk: gv.with_kind(self.response_kind.kind),
                plural: self.resource,
                singular: self.singular_resource,
                short_names: self.short_names,
                categories: self.categories,
                scope: scope(self.scope == "Namespaced"),
            },
            verbs: self.verbs,
            subresources: self.subresources.into_iter().map(subresource).collect(),
        }
    }
}

/// What comes from `/apis/GROUP/VERSION`.
#[derive(Debug, Deserialize)]
pub(super) struct ApiResourceList {
    #[serde(default)]
    resources: Vec<OldResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OldResource {
    name: String,
    singular_name: Name,
    namespaced: bool,
    group: Name,
    version: Name,
    kind: Name,
    verbs: Vec<Name>,
    short_names: Vec<Name>,
    categories: Vec<Name>,
}

impl ApiResourceList {
    pub(super) fn resources(self, gv: &GroupVersion) -> Vec<ApiResource> {
        let mut found: Vec<ApiResource> = Vec::new();
        let (subs, resources): (Vec<_>, Vec<_>) = self.resources.into_iter().partition(|one| one.name.contains('/'));
        for one in resources {
            found.push(ApiResource {
                info: ResourceInfo {
                    gvk: gv.with_kind(one.kind),
                    plural: one.name.into(),
                    singular: one.singular_name,
                    short_names: one.short_names,
                    categories: one.categories,
                    scope: scope(one.namespaced),
                },
                verbs: one.verbs,
                subresources: Vec::new(),
            });
        }
        for sub in subs {
            let Some((parent, name)) = sub.name.split_once('/') else { continue };
            let Some(parent) = found.iter_mut().find(|resource| resource.info.plural == *parent) else { continue };
            let gvk = match sub.version.is_empty() {
                true => gv.with_kind(sub.kind),
                false => GroupVersionKind { group: sub.group, version: sub.version, kind: sub.kind },
            };
            parent.subresources.push(ApiSubresource { name: name.into(), gvk, verbs: sub.verbs });
        }
        found
    }
}
