//! What a server serves: its version, groups and resources.

mod cached;
mod wire;

use std::sync::Arc;

use capstan_api::{
    GroupVersion, GroupVersionKind, GroupVersionResource, Name, Scope,
    mapper::{ResourceInfo, ResourceMapper},
};
use http::HeaderValue;
use serde::Deserialize;

pub use cached::{CachedDiscovery, DeferredRESTMapper, MIN_REFRESH, MappingError};

use crate::{Client, Error};

/// Everything that is served at a path in one answer, where the server knows how; else what it always knew.
const AGGREGATED: HeaderValue = HeaderValue::from_static(
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
);

/// The version of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServerVersion {
    /// `1`.
    pub major: String,
    /// `36`.
    pub minor: String,
    /// `v1.36.0`.
    pub git_version: String,
    /// For which machines it was built.
    pub platform: String,
}

/// A group, its preferred version first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiGroup {
    /// The name; empty for the core group.
    pub name: Name,
    /// Its versions.
    pub versions: Vec<ApiVersion>,
}

/// A version of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiVersion {
    /// The version.
    pub version: Name,
    /// What is served in it.
    pub resources: Vec<ApiResource>,
    /// Why nothing, or only what was known before, could be learnt of it.
    pub unavailable: Option<String>,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    /// How it is called.
    pub info: ResourceInfo,
    /// The verbs that it has.
    pub verbs: Vec<Name>,
    /// Its subresources.
    pub subresources: Vec<ApiSubresource>,
}

/// A subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiSubresource {
    /// The name: `scale`.
    pub name: Name,
    /// The kind of its documents.
    pub gvk: GroupVersionKind,
    /// The verbs that it has.
    pub verbs: Vec<Name>,
}

impl ApiResource {
    /// The full name.
    #[must_use]
    pub fn gvr(&self) -> GroupVersionResource {
        self.info.gvr()
    }

    /// Whether it has a verb.
    #[must_use]
    pub fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// Everything that a server serves, as of one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerResources {
    /// The groups, in the order of the server's preference.
    pub groups: Vec<ApiGroup>,
}

impl ServerResources {
    /// All resources, those of preferred groups and versions first.
    pub fn resources(&self) -> impl Iterator<Item = &ApiResource> {
        self.groups.iter().flat_map(|group| &group.versions).flat_map(|version| &version.resources)
    }

    /// Each resource once: in the version that its group prefers, or in the first that has it.
    #[must_use]
    pub fn preferred(&self) -> Vec<&ApiResource> {
        let mut found: Vec<&ApiResource> = Vec::new();
        for resource in self.resources() {
            let same = |other: &&ApiResource| {
                other.info.gvk.group == resource.info.gvk.group && other.info.plural == resource.info.plural
            };
            if !found.iter().any(same) {
                found.push(resource);
            }
        }
        found
    }

    /// What is served in a group and version; nothing if it is not served.
    #[must_use]
    pub fn group_version(&self, gv: &GroupVersion) -> Option<&ApiVersion> {
        let group = self.groups.iter().find(|group| group.name == gv.group)?;
        group.versions.iter().find(|version| version.version == gv.version)
    }

    /// Maps kinds to resources and back.
    #[must_use]
    pub fn mapper(&self) -> ResourceMapper {
        ResourceMapper::new(self.resources().map(|resource| resource.info.clone()).collect())
    }
}

/// Asks a server what it serves, anew each time.
#[derive(Clone, Debug)]
pub struct DiscoveryClient {
    client: Client,
}

impl Client {
    /// Asks what is served, anew each time.
    #[must_use]
    pub fn discovery(&self) -> DiscoveryClient {
        DiscoveryClient { client: self.clone() }
    }
}

impl DiscoveryClient {
    /// The version of the server.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn server_version(&self) -> Result<ServerVersion, Error> {
        read(&self.client.get_raw("/version").await?)
    }

    /// Everything that is served, in two requests where the server knows how. A version that is unavailable does not
    /// hide the others.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn server_groups_and_resources(&self) -> Result<ServerResources, Error> {
        let mut groups = self.groups("/api").await?;
        groups.extend(self.groups("/apis").await?);
        Ok(ServerResources { groups })
    }

    /// Each resource once, in the version that its group prefers.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn server_preferred_resources(&self) -> Result<Vec<ApiResource>, Error> {
        Ok(self.server_groups_and_resources().await?.preferred().into_iter().cloned().collect())
    }

    /// What is served in a group and version.
    ///
    /// # Errors
    /// It is not served, the server refuses or cannot be reached.
    pub async fn server_resources_for_group_version(&self, gv: &GroupVersion) -> Result<ApiVersion, Error> {
        let list: wire::ApiResourceList = read(&self.client.get_raw(&gv.path()).await?)?;
        Ok(ApiVersion { version: gv.version.clone(), resources: list.resources(gv), unavailable: None })
    }

    /// A client that remembers.
    #[must_use]
    pub fn cached(&self) -> Arc<CachedDiscovery> {
        Arc::new(CachedDiscovery::new(self.clone()))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    async fn groups(&self, path: &str) -> Result<Vec<ApiGroup>, Error> {
        let answer = match self.client.bytes(self.client.read_request(path, AGGREGATED)?).await {
            // A server may have no groups but the core one, or not even that.
            Err(error) if error.is_not_found() => return Ok(Vec::new()),
            answer => answer?,
        };
        let listed = match read::<wire::Answer>(&answer)? {
            wire::Answer::Aggregated(list) => return Ok(list.items.into_iter().map(ApiGroup::from).collect()),
            wire::Answer::Groups(groups) => groups.groups(),
            wire::Answer::Core(core) => core.groups(),
        };
        let mut groups = Vec::new();
        for (name, versions) in listed {
            let mut group = ApiGroup { name: name.into(), versions: Vec::new() };
            for version in versions {
                let gv = GroupVersion { group: group.name.clone(), version: version.into() };
                group.versions.push(match self.server_resources_for_group_version(&gv).await {
                    Ok(version) => version,
                    Err(error) => {
                        ApiVersion { version: gv.version, resources: Vec::new(), unavailable: Some(error.to_string()) }
                    }
                });
            }
            groups.push(group);
        }
        Ok(groups)
    }
}

fn read<T: serde::de::DeserializeOwned>(text: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Decode(format!("unable to understand discovery: {error}")))
}

fn scope(namespaced: bool) -> Scope {
    if namespaced { Scope::Namespaced } else { Scope::Cluster }
}
