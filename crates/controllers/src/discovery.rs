//! What resources a server has, as it tells in two documents.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use capstan_api::{GroupVersion, GroupVersionKind, GroupVersionResource, object::Scope};
use capstan_client::{Client, Error};
use http::{Request, header};
use serde::Deserialize;

/// Asks for everything at once; servers that cannot do that answer with an older document, which has no items.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A resource that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiResource {
    pub(crate) gvr: GroupVersionResource,
    pub(crate) kind: GroupVersionKind,
    pub(crate) scope: Scope,
    verbs: Vec<String>,
}

impl ApiResource {
    /// Whether it can do all of these.
    pub(crate) fn supports(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|own| own == verb))
    }
}

/// The resources of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Discovery {
    /// Each resource once, in the version that the server prefers.
    pub(crate) preferred: Vec<ApiResource>,
    /// The groups and versions that somebody else serves who does not answer.
    pub(crate) stale: BTreeSet<GroupVersion>,
    kinds: HashMap<GroupVersionKind, (GroupVersionResource, Scope)>,
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Named,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

impl Discovery {
    /// Asks a server.
    ///
    /// # Errors
    /// The server refuses or cannot be reached, or its answer makes no sense.
    pub(crate) async fn of(client: &Client) -> Result<Self, Error> {
        let mut discovery = Discovery::default();
        for path in ["/api", "/apis"] {
            let request = Request::get(path).header(header::ACCEPT, AGGREGATED).body(Bytes::new());
            let request = request.map_err(|error| Error::Transport(error.to_string()))?;
            let text = client.call(request).await?.into_body().bytes().await?;
            discovery.read(&text)?;
        }
        Ok(discovery)
    }

    fn read(&mut self, text: &[u8]) -> Result<(), Error> {
        let groups: Groups = serde_json::from_slice(text).map_err(|error| Error::Decode(error.to_string()))?;
        for Group { metadata, versions } in groups.items {
            // Versions come in the order of preference, so the first that has a resource is the one to use.
            let mut preferred: BTreeMap<String, ApiResource> = BTreeMap::new();
            for Version { version, freshness, resources } in versions {
                let group_version = GroupVersion::new(metadata.name.clone(), version);
                if freshness == "Stale" {
                    self.stale.insert(group_version.clone());
                }
                for resource in resources {
                    let resource = resource.of(&group_version);
                    self.kinds.entry(resource.kind.clone()).or_insert((resource.gvr.clone(), resource.scope));
                    preferred.entry(resource.gvr.resource.to_string()).or_insert(resource);
                }
            }
            self.preferred.extend(preferred.into_values());
        }
        Ok(())
    }

    /// The resource whose objects say that they are of this kind.
    pub(crate) fn mapping(&self, kind: &GroupVersionKind) -> Option<&(GroupVersionResource, Scope)> {
        self.kinds.get(kind)
    }

    /// Why not everything is known, if so.
    pub(crate) fn failure(&self) -> Option<String> {
        if self.stale.is_empty() {
            return None;
        }
        let each =
            |group_version: &GroupVersion| format!("{group_version}: stale GroupVersion discovery: {group_version}");
        let each: Vec<_> = self.stale.iter().map(each).collect();
        Some(format!("unable to retrieve the complete list of server APIs: {}", each.join(", ")))
    }
}

impl Resource {
    fn of(self, group_version: &GroupVersion) -> ApiResource {
        let kind = self.response_kind.unwrap_or_default();
        // Old servers leave the group and version of the kind out when they are those of the document.
        let own =
            if kind.version.is_empty() { group_version.clone() } else { GroupVersion::new(kind.group, kind.version) };
        ApiResource {
            gvr: group_version.with_resource(self.resource),
            kind: own.with_kind(kind.kind),
            scope: if self.scope == "Namespaced" { Scope::Namespaced } else { Scope::Cluster },
            verbs: self.verbs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_chosen() {
        let text = br#"{"items":[{"metadata":{"name":"x.io"},"versions":[
            {"version":"v2","freshness":"Current","resources":[
                {"resource":"as","responseKind":{"group":"x.io","version":"v2","kind":"A"},"scope":"Namespaced","verbs":["get","list"]}]},
            {"version":"v1","freshness":"Stale","resources":[
                {"resource":"as","responseKind":{"group":"x.io","version":"v1","kind":"A"},"scope":"Namespaced","verbs":["get"]},
                {"resource":"bs","responseKind":{"kind":"B"},"scope":"Cluster","verbs":[]}]}]}]}"#;
        let mut discovery = Discovery::default();
        discovery.read(text).unwrap();
        let found: Vec<_> = discovery.preferred.iter().map(|resource| resource.gvr.to_string()).collect();
        assert_eq!(found, ["x.io/v2, Resource=as", "x.io/v1, Resource=bs"]);
        assert!(discovery.preferred[0].supports(&["list", "get"]) && !discovery.preferred[0].supports(&["delete"]));
        let mapped = discovery.mapping(&GroupVersionKind::new("x.io", "v1", "A")).unwrap();
        assert_eq!((mapped.0.to_string().as_str(), mapped.1), ("x.io/v1, Resource=as", Scope::Namespaced));
        assert_eq!(discovery.mapping(&GroupVersionKind::new("x.io", "v1", "B")).unwrap().1, Scope::Cluster);
        assert_eq!(
            discovery.failure().unwrap(),
            "unable to retrieve the complete list of server APIs: x.io/v1: stale GroupVersion discovery: x.io/v1"
        );
    }
}
