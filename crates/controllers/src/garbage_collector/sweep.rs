//! What is done about one object, by what the server says now.

use capstan_api::{
    GroupVersionKind, GroupVersionResource,
    object::{OwnerReference, Scope},
    options::{DeleteOptions, Preconditions},
};
use capstan_client::{Api, Error, Patch};
use capstan_runtime::{DEFAULT_RETRY, retry_on_conflict};
use serde_json::{Value, json};

use super::{
    Collector,
    graph::{FOREGROUND, Identity, Node, ORPHAN},
};
use crate::metadata::ObjectMetadata;

/// Why an object was not dealt with.
#[derive(Debug)]
pub(super) enum SweepError {
    /// It is not there, or another one has its name.
    Absent(Identity),
    /// An object of the cluster says that it belongs to one of a namespace.
    NamespacedOwner,
    /// Nobody knows the kind.
    NoMapping(String),
    /// The server refuses or cannot be reached.
    Request(Error),
}

impl From<Error> for SweepError {
    fn from(error: Error) -> Self {
        SweepError::Request(error)
    }
}

/// Deals with one object, as the graph had it.
pub(super) struct Sweep<'a> {
    pub(super) collector: &'a Collector,
    pub(super) node: &'a Node,
}

/// The owners that an object says it has.
#[derive(Default)]
struct Owners {
    /// Those that are there.
    solid: Vec<OwnerReference>,
    /// Those that are not.
    dangling: Vec<OwnerReference>,
    /// Those that are going and wait for the object.
    waiting: Vec<OwnerReference>,
}

impl Sweep<'_> {
    fn mapping(&self, api_version: &str, kind: &str) -> Result<(GroupVersionResource, Scope), SweepError> {
        let gvk = GroupVersionKind::from_api_version_and_kind(api_version, kind);
        let discovery = self.collector.metadata.discovery();
        let mapping = discovery.mapping(&gvk).cloned();
        mapping.ok_or_else(|| SweepError::NoMapping(format!("{kind}.{api_version}")))
    }

    /// The object where it says it is.
    fn api(&self, identity: &Identity) -> Result<Api<ObjectMetadata>, SweepError> {
        let mapping = self.mapping(&identity.api_version, &identity.kind)?;
        if mapping.1 == Scope::Namespaced && identity.namespace.is_empty() {
            return Err(SweepError::NamespacedOwner);
        }
        Ok(self.collector.metadata.api(&mapping, &identity.namespace))
    }

    pub(super) async fn attempt_to_delete(&self) -> Result<(), SweepError> {
        let (node, identity) = (self.node, &self.node.identity);
        // Who is going already is not ours to delete again.
        if node.is_being_deleted && !node.is_deleting_dependents {
            return Ok(());
        }
        let absent = || SweepError::Absent(identity.clone());
        let api = self.api(identity)?;
        let latest = api.get_opt(&identity.name).await?.filter(|latest| latest.uid == identity.uid);
        let latest = latest.ok_or_else(absent)?;
        if node.is_deleting_dependents {
            return self.wait_for_dependents().await;
        }
        if latest.owner_references.is_empty() {
            return Ok(());
        }
        let owners = self.classify(&latest.owner_references).await?;
        if !owners.solid.is_empty() {
            let gone: Vec<_> = owners.dangling.iter().chain(&owners.waiting).map(|owner| owner.uid.clone()).collect();
            return if gone.is_empty() { Ok(()) } else { self.release(identity, &gone).await };
        }
        let policy = if !owners.waiting.is_empty() && !node.dependents.is_empty() {
            self.break_circles(identity).await?;
            "Foreground"
        } else if latest.has_finalizer(ORPHAN) {
            "Orphan"
        } else if latest.has_finalizer(FOREGROUND) {
            "Foreground"
        } else {
            "Background"
        };
        match delete(&api, &latest, policy).await {
            Err(error) if error.is_not_found() => Err(absent()),
            other => Ok(other?),
        }
    }

    /// Sorts the owners by what the server says of them.
    async fn classify(&self, references: &[OwnerReference]) -> Result<Owners, SweepError> {
        let mut owners = Owners::default();
        for reference in references {
            match self.owner(reference).await? {
                None => owners.dangling.push(reference.clone()),
                Some(owner) if owner.is_being_deleted && owner.has_finalizer(FOREGROUND) => {
                    owners.waiting.push(reference.clone());
                }
                Some(_) => owners.solid.push(reference.clone()),
            }
        }
        Ok(owners)
    }

    /// The owner that a reference means, if it is there.
    async fn owner(&self, reference: &OwnerReference) -> Result<Option<ObjectMetadata>, SweepError> {
        let namespace = &self.node.identity.namespace;
        let (of_cluster, of_namespace) = (Identity::of(reference, ""), Identity::of(reference, namespace));
        let is_absent = self.collector.with(|graph| graph.absent.has(&of_cluster) || graph.absent.has(&of_namespace));
        if is_absent {
            return Ok(None);
        }
        let mapping = self.mapping(&reference.api_version, &reference.kind)?;
        let is_namespaced = mapping.1 == Scope::Namespaced;
        if is_namespaced && namespace.is_empty() {
            return Err(SweepError::NamespacedOwner);
        }
        let api = self.collector.metadata.api(&mapping, namespace);
        let owner = api.get_opt(&reference.name).await?.filter(|owner| *owner.uid == *reference.uid);
        if owner.is_none() {
            let absent = if is_namespaced { of_namespace } else { of_cluster };
            self.collector.with(|graph| graph.absent.add(absent));
        }
        Ok(owner)
    }

    /// The object is going once those that keep it are gone.
    async fn wait_for_dependents(&self) -> Result<(), SweepError> {
        let blocking: Vec<_> = self.collector.with(|graph| {
            let Some(node) = graph.get(&self.node.identity.uid) else { return Vec::new() };
            graph
                .blocking(node)
                .map(|dependent| (dependent.identity.clone(), dependent.is_deleting_dependents))
                .collect()
        });
        if blocking.is_empty() {
            return self.remove_finalizer(FOREGROUND).await;
        }
        for (dependent, is_deleting_dependents) in blocking {
            if !is_deleting_dependents {
                self.collector.to_delete.add(capstan_client::Key::new("", &dependent.uid));
            }
        }
        Ok(())
    }

    pub(super) async fn attempt_to_orphan(&self) -> Result<(), SweepError> {
        let dependents: Vec<_> = self.collector.with(|graph| {
            let node = graph.get(&self.node.identity.uid);
            node.map(|node| graph.dependents(node).map(|dependent| dependent.identity.clone()).collect())
                .unwrap_or_default()
        });
        let owner = [self.node.identity.uid.to_string()];
        let mut failed = None;
        for dependent in dependents {
            match self.release(&dependent, &owner).await {
                Err(SweepError::Request(error)) if error.is_not_found() => {}
                Err(error) => failed = Some(error),
                Ok(()) => {}
            }
        }
        match failed {
            Some(error) => Err(error),
            None => self.remove_finalizer(ORPHAN).await,
        }
    }

    /// Removes references to owners.
    async fn release(&self, identity: &Identity, owners: &[String]) -> Result<(), SweepError> {
        let each: Vec<_> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
        let strategic = json!({"metadata": {"uid": &*identity.uid, "ownerReferences": each}});
        let keeps = |reference: &OwnerReference| (!owners.contains(&reference.uid)).then(|| reference.clone());
        self.change_owners(identity, strategic, keeps).await
    }

    /// Of two objects that wait for each other, one must not.
    async fn break_circles(&self, identity: &Identity) -> Result<(), SweepError> {
        let waits = self.collector.with(|graph| {
            let node = graph.get(&identity.uid);
            node.is_some_and(|node| graph.dependents(node).any(|dependent| dependent.is_deleting_dependents))
        });
        if !waits {
            return Ok(());
        }
        let unblock =
            |reference: &OwnerReference| OwnerReference { block_owner_deletion: Some(false), ..reference.clone() };
        let blocking = self.node.owners.iter().filter(|owner| owner.block_owner_deletion == Some(true));
        let blocking: Vec<_> = blocking.map(unblock).collect();
        let strategic = json!({"metadata": {"uid": &*identity.uid, "ownerReferences": blocking}});
        self.change_owners(identity, strategic, |reference| Some(unblock(reference))).await
    }

    /// Changes references by a strategic merge; custom resources know no such thing and get the whole list.
    async fn change_owners(
        &self,
        identity: &Identity,
        strategic: Value,
        change: impl Fn(&OwnerReference) -> Option<OwnerReference>,
    ) -> Result<(), SweepError> {
        let api = self.api(identity)?;
        match api.patch(&identity.name, &Patch::Strategic(strategic)).await {
            Err(error) if error.status().is_some_and(|status| status.code == 415) => {}
            other => return other.map(drop).map_err(SweepError::from),
        }
        let latest = api.get(&identity.name).await?;
        if latest.uid != identity.uid {
            return Ok(());
        }
        let references: Vec<_> = latest.owner_references.iter().filter_map(change).collect();
        let merge = json!({
            "metadata": {"resourceVersion": latest.resource_version, "ownerReferences": references}
        });
        api.patch(&identity.name, &Patch::Merge(merge)).await?;
        Ok(())
    }

    async fn remove_finalizer(&self, finalizer: &str) -> Result<(), SweepError> {
        let identity = &self.node.identity;
        let api = &self.api(identity)?;
        let (clock, ids) = (&*self.collector.clock, &*self.collector.ids);
        retry_on_conflict(DEFAULT_RETRY, clock, ids, || async move {
            let latest = api.get_opt(&identity.name).await?;
            let latest = latest.filter(|latest| latest.uid == identity.uid && latest.has_finalizer(finalizer));
            let Some(latest) = latest else { return Ok(()) };
            let others: Vec<_> = latest.finalizers.iter().filter(|own| *own != finalizer).collect();
            let merge = json!({"metadata": {"resourceVersion": latest.resource_version, "finalizers": others}});
            api.patch(&identity.name, &Patch::Merge(merge)).await.map(drop)
        })
        .await?;
        Ok(())
    }
}

/// Deletes exactly this object, unless its owners have changed.
async fn delete(api: &Api<ObjectMetadata>, latest: &ObjectMetadata, policy: &str) -> Result<(), Error> {
    let options = |resource_version| DeleteOptions {
        preconditions: Some(Preconditions { uid: Some(latest.uid.to_string()), resource_version }),
        propagation_policy: Some(policy.to_owned()),
        ..DeleteOptions::default()
    };
    let error = match api.delete(&latest.name, &options(Some(latest.resource_version.to_string()))).await {
        Err(error) if error.is_conflict() => error,
        other => return other,
    };
    let live = api.get(&latest.name).await?;
    let same = live.uid == latest.uid && live.owner_references == latest.owner_references;
    // Changes that have nothing to do with owners must not keep it alive.
    if same && live.resource_version != latest.resource_version {
        return api.delete(&latest.name, &options(None)).await;
    }
    Err(error)
}
