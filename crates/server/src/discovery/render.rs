//! The documents of discovery, from the resources there are.

use std::collections::BTreeMap;

use capstan_api::{GroupVersion, Name};

use super::{
    ApiResource, Services,
    json::Json,
    resource::{ApiSubresource, storage_version_hash},
    version::compare,
};

/// A group with its versions, the preferred one first.
pub(super) struct Group<'a> {
    /// The name, empty for the core group.
    pub(super) name: Name,
    /// The versions.
    pub(super) versions: Vec<Version<'a>>,
}

/// A version of a group.
pub(super) struct Version<'a> {
    /// The group and version.
    pub(super) group_version: GroupVersion,
    /// The resources, by name.
    pub(super) resources: Vec<&'a ApiResource>,
    /// What another server has instead.
    pub(super) remote: Option<&'a [u8]>,
}

/// Where groups and versions stand that no APIService speaks of, as those of custom resources do.
const UNSAID: (i64, i64) = (1000, 100);

/// The group that has no APIService, and comes before all others.
const FIRST: (&str, i64) = ("apiregistration.k8s.io", 20_001);

/// The groups in the order of discovery: by what their APIServices say, then by name. Likewise the versions of each,
/// except that those which stand at the same place are sorted as versions are.
pub(super) fn groups<'a>(resources: &[&'a ApiResource], services: &'a Services) -> Vec<Group<'a>> {
    let mut versions: BTreeMap<&GroupVersion, Version<'a>> = BTreeMap::new();
    for (group_version, service) in services {
        if let Some(remote) = &service.remote {
            let version = Version { group_version: group_version.clone(), resources: Vec::new(), remote: Some(remote) };
            versions.insert(group_version, version);
        }
    }
    for &resource in resources {
        let group_version = &resource.group_version;
        let version = versions.entry(group_version).or_insert_with(|| Version {
            group_version: group_version.clone(),
            resources: Vec::new(),
            remote: None,
        });
        if version.remote.is_none() {
            version.resources.push(resource);
        }
    }
    let priorities = |group_version: &GroupVersion| match services.get(group_version) {
        Some(service) => (service.group_priority, service.version_priority),
        None if *group_version.group == *FIRST.0 => (FIRST.1, UNSAID.1),
        None => UNSAID,
    };
    // What is sorted by group comes in groups.
    let mut groups: Vec<(i64, Group<'a>)> = Vec::new();
    for (group_version, mut version) in versions {
        version.resources.sort_by(|a, b| a.resource.cmp(&b.resource));
        let (priority, _) = priorities(group_version);
        match groups.last_mut().filter(|(_, group)| group.name == group_version.group) {
            Some((highest, group)) => {
                *highest = priority.max(*highest);
                group.versions.push(version);
            }
            None => groups.push((priority, Group { name: group_version.group.clone(), versions: vec![version] })),
        }
    }
    groups.sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| left.name.cmp(&right.name)));
    let mut groups: Vec<Group<'a>> = groups.into_iter().map(|(_, group)| group).collect();
    for group in &mut groups {
        group.versions.sort_by(|a, b| {
            let (left, right) = (&a.group_version, &b.group_version);
            let by_priority = priorities(right).1.cmp(&priorities(left).1);
            by_priority.then_with(|| compare(&left.version, &right.version))
        });
    }
    groups
}

/// `/api`.
pub(super) fn api_versions(core: &Group<'_>, server_address: &str, json: &mut Json) {
    json.object(|json| {
        json.field("kind", "APIVersions");
        let versions: Vec<_> = core.versions.iter().map(|version| &*version.group_version.version).collect();
        json.texts("versions", &versions);
        json.key("serverAddressByClientCIDRs");
        json.array([server_address], |json, address| {
            json.object(|json| {
                json.field("clientCIDR", "0.0.0.0/0");
                json.field("serverAddress", address);
            });
        });
    });
}

/// `/apis`.
pub(super) fn api_group_list(groups: &[Group<'_>], json: &mut Json) {
    json.object(|json| {
        json.field("kind", "APIGroupList");
        json.field("apiVersion", "v1");
        json.key("groups");
        json.array(groups, |json, group| json.object(|json| group_fields(group, json)));
    });
}

/// `/apis/GROUP`.
pub(super) fn api_group(group: &Group<'_>, json: &mut Json) {
    json.object(|json| {
        json.field("kind", "APIGroup");
        json.field("apiVersion", "v1");
        group_fields(group, json);
    });
}

fn group_fields(group: &Group<'_>, json: &mut Json) {
    let version = |json: &mut Json, version: &Version<'_>| {
        json.object(|json| {
            json.field("groupVersion", &version.group_version.to_string());
            json.field("version", &version.group_version.version);
        });
    };
    json.field("name", &group.name);
    json.key("versions");
    json.array(&group.versions, version);
    if let Some(preferred) = group.versions.first() {
        json.key("preferredVersion");
        version(json, preferred);
    }
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(super) fn api_resource_list(version: &Version<'_>, json: &mut Json) {
    json.object(|json| {
        json.field("kind", "APIResourceList");
        // The core group is older than this field, and has stayed without it.
        if !version.group_version.group.is_empty() {
            json.field("apiVersion", "v1");
        }
        json.field("groupVersion", &version.group_version.to_string());
        json.key("resources");
        json.array(resource_and_parts(version), |json, (resource, part)| {
            json.object(|json| match part {
                None => resource_fields(resource, json),
                Some(part) => part_fields(resource, part, json),
            });
        });
    });
}

type Row<'a> = (&'a ApiResource, Option<&'a ApiSubresource>);

fn resource_and_parts<'a>(version: &'a Version<'a>) -> impl Iterator<Item = Row<'a>> {
    version.resources.iter().flat_map(|&resource| {
        let parts = resource.subresources.iter().map(move |part| (resource, Some(part)));
        std::iter::once((resource, None)).chain(parts)
    })
}

fn resource_fields(resource: &ApiResource, json: &mut Json) {
    json.field("name", &resource.resource);
    json.field("singularName", &resource.singular);
    json.flag("namespaced", resource.namespaced);
    json.field("kind", &resource.kind);
    json.texts("verbs", &resource.verbs);
    json.some_texts("shortNames", &resource.short_names);
    json.some_texts("categories", &resource.categories);
    if let Some(stored) = &resource.storage {
        json.field("storageVersionHash", &storage_version_hash(stored));
    }
}

fn part_fields(resource: &ApiResource, part: &ApiSubresource, json: &mut Json) {
    json.field("name", &format!("{}/{}", resource.resource, part.name));
    json.field("singularName", "");
    json.flag("namespaced", resource.namespaced);
    // The group and version are told only where they are others than the resource's.
    if part.kind.group_version() != resource.group_version {
        if !part.kind.group.is_empty() {
            json.field("group", &part.kind.group);
        }
        json.field("version", &part.kind.version);
    }
    json.field("kind", &part.kind.kind);
    json.texts("verbs", &part.verbs);
}

/// `/api` and `/apis` when asked for everything in one document.
pub(super) fn aggregated(groups: &[Group<'_>], json: &mut Json) {
    json.object(|json| {
        json.field("kind", "APIGroupDiscoveryList");
        json.field("apiVersion", "apidiscovery.k8s.io/v2");
        json.key("metadata");
        json.object(|_| {});
        json.key("items");
        json.array(groups, |json, group| {
            json.object(|json| {
                json.key("metadata");
                json.object(|json| {
                    if !group.name.is_empty() {
                        json.field("name", &group.name);
                    }
                });
                json.key("versions");
                json.array(&group.versions, |json, version| match version.remote {
                    Some(remote) => json.raw(remote),
                    None => json.object(|json| version_discovery(version, json)),
                });
            });
        });
    });
}

fn version_discovery(version: &Version<'_>, json: &mut Json) {
    json.field("version", &version.group_version.version);
    json.key("resources");
    json.array(&version.resources, |json, resource| {
        json.object(|json| {
            json.field("resource", &resource.resource);
            response_kind(resource, &resource.group_version, &resource.kind, json);
            json.field("scope", if resource.namespaced { "Namespaced" } else { "Cluster" });
            json.field("singularResource", &resource.singular);
            json.texts("verbs", &resource.verbs);
            json.some_texts("shortNames", &resource.short_names);
            json.some_texts("categories", &resource.categories);
            if !resource.subresources.is_empty() {
                json.key("subresources");
                json.array(&resource.subresources, |json, part| {
                    json.object(|json| {
                        json.field("subresource", &part.name);
                        response_kind(resource, &part.kind.group_version(), &part.kind.kind, json);
                        json.texts("verbs", &part.verbs);
                    });
                });
            }
        });
    });
    json.field("freshness", "Current");
}

fn response_kind(resource: &ApiResource, group_version: &GroupVersion, kind: &str, json: &mut Json) {
    let full = resource.custom || *group_version != resource.group_version;
    let say = |text| if full { text } else { "" };
    json.key("responseKind");
    json.object(|json| {
        json.field("group", say(&group_version.group));
        json.field("version", say(&group_version.version));
        json.field("kind", kind);
    });
}
