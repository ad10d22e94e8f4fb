//! Removing all that a namespace has, and seeing what is left.

use std::collections::BTreeMap;

use capstan_api::{
    GroupVersionResource,
    object::Scope,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{Api, Client, Error};
use k8s_openapi::api::core::v1::Pod;

use crate::{
    discovery::{ApiResource, Discovery},
    metadata::ObjectMetadata,
};

/// How long finalizers are given, in seconds.
const FINALIZER_ESTIMATE: i64 = 15;

/// What came of an attempt to remove everything.
#[derive(Debug, Default)]
pub(super) struct Removal {
    /// Why not all kinds are known.
    pub(super) discovery_failure: Option<String>,
    /// Why objects could not be removed.
    pub(super) content_failures: Vec<String>,
    /// How many objects are left, by their resource.
    pub(super) remaining: BTreeMap<GroupVersionResource, usize>,
    /// How many objects a finalizer keeps.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Whether pods are left, for which all else waits; what is left is not told then.
    pub(super) waits_for_pods: bool,
    /// In how many seconds to look again; 0 when nothing is left.
    pub(super) estimate: i64,
    /// All that went wrong.
    pub(super) errors: Vec<String>,
}

/// The content of a namespace.
pub(super) struct Content<'a> {
    pub(super) client: &'a Client,
    pub(super) metadata: &'a Client,
    pub(super) namespace: &'a str,
}

/// What is left of one kind.
#[derive(Default)]
struct Left {
    estimate: i64,
    count: usize,
    finalizers: BTreeMap<String, usize>,
}

impl Removal {
    fn add(&mut self, resource: &GroupVersionResource, left: Left) {
        self.estimate = self.estimate.max(left.estimate);
        if left.count > 0 {
            self.remaining.insert(resource.clone(), left.count);
            for (finalizer, count) in left.finalizers {
                *self.finalizers.entry(finalizer).or_default() += count;
            }
        }
    }
}

impl Content<'_> {
    /// Removes the pods first, and all else once they are gone.
    pub(super) async fn remove(
        &self,
        discovery: Result<Discovery, Error>,
        since: k8s_openapi::jiff::SignedDuration,
    ) -> Removal {
        let mut removal = Removal::default();
        let discovery = discovery.unwrap_or_else(|error| {
            removal.errors.push(error.to_string());
            removal.discovery_failure = Some(error.to_string());
            Discovery::default()
        });
        if let Some(failure) = discovery.failure() {
            let failing = discovery.stale.len();
            removal.discovery_failure = Some(format!("Discovery failed for some groups, {failing} failing: {failure}"));
            removal.errors.push(failure);
        }
        let deletable = |resource: &&ApiResource| resource.scope == Scope::Namespaced && resource.supports(&["delete"]);
        let (pods, others): (Vec<_>, Vec<_>) = discovery
            .preferred
            .iter()
            .filter(deletable)
            .partition(|resource| resource.gvr.group.is_empty() && &*resource.gvr.resource == "pods");
        for resource in pods {
            let (left, error) = self.remove_pods(resource, since).await;
            if let Some(error) = error {
                removal.errors.push(format!("failed to delete pods for namespace: {}, err: {error}", self.namespace));
                removal.content_failures.push(error);
            }
            removal.add(&resource.gvr, left);
        }
        if !removal.remaining.is_empty() {
            removal.waits_for_pods = true;
            return removal;
        }
        for resource in others {
            let (left, error) = self.remove_kind(resource, 0).await;
            if let Some(error) = error {
                removal.errors.push(error.clone());
                removal.content_failures.push(error);
            }
            removal.add(&resource.gvr, left);
        }
        removal
    }

    async fn remove_pods(
        &self,
        resource: &ApiResource,
        since: k8s_openapi::jiff::SignedDuration,
    ) -> (Left, Option<String>) {
        let pods = Api::<Pod>::namespaced(self.client, self.namespace);
        match pods.list(&ListOptions::default()).await {
            Err(error) => (Left::default(), Some(error.to_string())),
            Ok(pods) => {
                let estimate = estimate(&pods.items);
                let estimate = if since.as_secs() >= estimate { 0 } else { estimate };
                self.remove_kind(resource, estimate).await
            }
        }
    }

    /// Removes all objects of a kind. The estimate is how long those that end gracefully may take.
    async fn remove_kind(&self, resource: &ApiResource, estimate: i64) -> (Left, Option<String>) {
        let failed = |error: Error| (Left { estimate, ..Left::default() }, Some(error.to_string()));
        let api = Api::<ObjectMetadata>::of(self.metadata, resource.gvr.clone(), resource.scope, self.namespace);
        let lists = resource.supports(&["list"]);
        // Most namespaces have nothing of most kinds, and looking is cheaper than deleting.
        let before = if lists { self.list(&api).await } else { Ok(None) };
        match before {
            Ok(Some(left)) if left.is_empty() => return (Left::default(), None),
            Ok(_) => {}
            Err(error) => return failed(error),
        }
        let background =
            DeleteOptions { propagation_policy: Some("Background".to_owned()), ..DeleteOptions::default() };
        let deleted = if resource.supports(&["deletecollection"]) {
            api.delete_collection(&background, &ListOptions::default()).await
        } else {
            self.delete_each(&api, &background).await
        };
        match deleted {
            Err(error) if !is_not_supported(&error) => return failed(error),
            _ => {}
        }
        let left = match self.list(&api).await {
            _ if !lists => return (Left { estimate, ..Left::default() }, None),
            Ok(None) => return (Left { estimate, ..Left::default() }, None),
            Ok(Some(left)) => left,
            Err(error) => return failed(error),
        };
        let mut finalizers = BTreeMap::new();
        for finalizer in left.iter().flat_map(|object| &object.finalizers) {
            *finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        let count = left.len();
        if count == 0 {
            return (Left::default(), None);
        }
        if estimate != 0 {
            return (Left { estimate, count, finalizers }, None);
        }
        if !finalizers.is_empty() {
            return (Left { estimate: FINALIZER_ESTIMATE, count, finalizers }, None);
        }
        let namespace = self.namespace;
        let why = format!("unexpected items still remain in namespace: {namespace} for gvr: {}", resource.gvr);
        (Left { estimate, count, finalizers }, Some(why))
    }

    async fn list(&self, api: &Api<ObjectMetadata>) -> Result<Option<Vec<ObjectMetadata>>, Error> {
        match api.list(&ListOptions::default()).await {
            Err(error) if is_not_supported(&error) => Ok(None),
            other => other.map(|list| Some(list.items)),
        }
    }

    async fn delete_each(&self, api: &Api<ObjectMetadata>, options: &DeleteOptions) -> Result<(), Error> {
        for object in self.list(api).await?.unwrap_or_default() {
            match api.delete(&object.name, options).await {
                Err(error) if !is_not_supported(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What is announced but cannot be done, or is gone.
fn is_not_supported(error: &Error) -> bool {
    error.is_not_found() || error.status().is_some_and(|status| status.code == 405)
}

/// The longest time that a pod may take to end, in seconds.
fn estimate(pods: &[Pod]) -> i64 {
    let runs = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    let grace = |pod: &Pod| pod.spec.as_ref()?.termination_grace_period_seconds;
    pods.iter().filter(runs).filter_map(grace).max().unwrap_or(0)
}
