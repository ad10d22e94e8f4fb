//! How many pods those who own pods want.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::{
    GroupVersionKind, Unstructured,
    object::{OwnerReference, controller_of},
    options::GetOptions,
};
use capstan_client::{Api, Client, Lister};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::ReplicationController,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{discovery::Discovery, metadata::MetadataInformers, pod::Pod};

/// Finds out how many pods are wanted.
pub(super) struct Scales {
    pub(super) client: Client,
    pub(super) metadata: Arc<MetadataInformers>,
    pub(super) replication_controllers: Lister<ReplicationController>,
    pub(super) replica_sets: Lister<ReplicaSet>,
    pub(super) deployments: Lister<Deployment>,
    pub(super) stateful_sets: Lister<StatefulSet>,
}

/// What is wanted of all pods together.
#[derive(Debug, Default)]
pub(super) struct Expected {
    pub(super) scale: i64,
    /// Whether pods belong to nobody.
    pub(super) has_unmanaged: bool,
    /// Whether somebody had to be asked who does not tell when it changes.
    pub(super) asked: bool,
}

fn controller(metadata: &ObjectMeta) -> Option<OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true)).cloned().map(OwnerReference::from)
}

/// The kind of an owner, if it is one of those that are watched.
fn kind(owner: &OwnerReference) -> &str {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    match (group, owner.kind.as_str()) {
        ("", "ReplicationController") | ("apps", "StatefulSet") => &owner.kind,
        ("apps" | "extensions", "ReplicaSet" | "Deployment") => &owner.kind,
        _ => "",
    }
}

impl Scales {
    /// How many pods the owners of these want together.
    ///
    /// # Errors
    /// An owner cannot be found.
    pub(super) async fn of(&self, pods: &[Arc<Pod>]) -> Result<Expected, String> {
        let mut expected = Expected::default();
        let mut scales: BTreeMap<String, i64> = BTreeMap::new();
        for pod in pods {
            let Some(owner) = controller_of(pod.metadata.owners()) else {
                expected.has_unmanaged = true;
                continue;
            };
            if scales.contains_key(&owner.uid) {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let found = match self.known(owner, namespace) {
                Some(found) => Some(found),
                None => {
                    expected.asked = true;
                    self.ask(owner, namespace).await?
                }
            };
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            let (uid, scale) = found.ok_or_else(|| format!("found no controllers for pod {pod:?}"))?;
            scales.insert(uid, scale);
        }
        expected.scale = scales.values().sum();
        Ok(expected)
    }

    /// The owner, or who owns the owner, of the kinds that are watched.
    fn known(&self, owner: &OwnerReference, namespace: &str) -> Option<(String, i64)> {
        let is = |metadata: &ObjectMeta, owner: &OwnerReference| metadata.uid.as_deref() == Some(owner.uid.as_str());
        let scale = |replicas: Option<i32>| i64::from(replicas.unwrap_or(1));
        match kind(owner) {
            "ReplicationController" => {
                let found = self.replication_controllers.namespace(namespace).get(&owner.name)?;
                let replicas = found.spec.as_ref().and_then(|spec| spec.replicas);
                is(&found.metadata, owner).then(|| (owner.uid.clone(), scale(replicas)))
            }
            "StatefulSet" => {
                let found = self.stateful_sets.namespace(namespace).get(&owner.name)?;
                let replicas = found.spec.as_ref().and_then(|spec| spec.replicas);
                is(&found.metadata, owner).then(|| (owner.uid.clone(), scale(replicas)))
            }
            "ReplicaSet" => {
                let found = self.replica_sets.namespace(namespace).get(&owner.name)?;
                if !is(&found.metadata, owner) {
                    return None;
                }
                match controller(&found.metadata).filter(|above| kind(above) == "Deployment") {
                    None => Some((owner.uid.clone(), scale(found.spec.as_ref().and_then(|spec| spec.replicas)))),
                    Some(above) => {
                        let found = self.deployments.namespace(namespace).get(&above.name)?;
                        let replicas = found.spec.as_ref().and_then(|spec| spec.replicas);
                        is(&found.metadata, &above).then(|| (above.uid.clone(), scale(replicas)))
                    }
                }
            }
            _ => None,
        }
    }

    /// Asks any other owner for its `scale`.
    async fn ask(&self, owner: &OwnerReference, namespace: &str) -> Result<Option<(String, i64)>, String> {
        let gvk = GroupVersionKind::from_api_version_and_kind(&owner.api_version, &owner.kind);
        let mut mapping = self.metadata.discovery().mapping(&gvk).cloned();
        if mapping.is_none() {
            let discovery = Discovery::of(&self.client).await.map_err(|error| error.to_string())?;
            mapping = discovery.mapping(&gvk).cloned();
        }
        let Some((resource, scope)) = mapping else {
            return Err(format!("no matches for kind {:?} in version {:?}", owner.kind, owner.api_version));
        };
        let group_resource = resource.group_resource();
        let api = Api::<Unstructured>::of(&self.client, resource, scope, namespace);
        match api.get_with(&owner.name, "scale", &GetOptions::default()).await {
            Ok(scale) => {
                let replicas = scale.nested_i64(["spec", "replicas"]).ok().flatten().unwrap_or(0);
                Ok((scale.uid() == owner.uid).then(|| (owner.uid.clone(), replicas)))
            }
            Err(error) if error.is_not_found() => {
                let has_scale = error.status().and_then(|status| status.details.as_ref());
                if has_scale.is_some_and(|details| !details.name.is_empty()) {
                    return Ok(None);
                }
                Err(format!("{group_resource} does not implement the scale subresource"))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
