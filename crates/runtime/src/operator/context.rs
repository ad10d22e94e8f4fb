//! What a reconciler works with: reads come from caches, writes go to the server.

use std::{fmt, sync::Arc, time::Duration};

use capstan_api::{
    GroupVersionResource, Resource, Unstructured,
    object::{Metadata as _, Object},
    options::DeleteOptions,
    selector::Selector,
};
use capstan_client::{
    Api, Client, Error, Key, Lister, Patch, SharedIndexInformer, SharedInformerFactory,
    beat::{Either, race},
};
use capstan_clock::{SharedClock, SharedIds, Timestamp};
use serde::Serialize;

use crate::{EventRecorder, ReconcileError, Stop, record::Referent};

/// How long [`Context::wait_for_cache`] waits.
pub const CACHE_WAIT: Duration = Duration::from_secs(10);

/// What a reconciler works with: reads come from caches, writes go to the server. Clones are the same.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    informers: Arc<SharedInformerFactory>,
    clock: SharedClock,
    ids: SharedIds,
    recorder: EventRecorder,
    stop: Stop,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("client", &self.inner.client).finish_non_exhaustive()
    }
}

/// A number that grows with each write, as all servers give them out.
fn version(text: &str) -> Option<u64> {
    text.parse().ok()
}

impl Context {
    pub(super) fn new(
        client: Client,
        informers: Arc<SharedInformerFactory>,
        clock: SharedClock,
        ids: SharedIds,
        recorder: EventRecorder,
        stop: Stop,
    ) -> Self {
        let inner = Inner { client, informers, clock, ids, recorder, stop };
        Context { inner: Arc::new(inner) }
    }

    /// The client: what it reads comes from the server.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// The verbs on the objects of a kind in a namespace, on the server.
    #[must_use]
    pub fn api<K: Resource>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(&self.inner.client, namespace)
    }

    /// The clock.
    #[must_use]
    pub fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// Where names and jitter come from.
    #[must_use]
    pub fn ids(&self) -> &SharedIds {
        &self.inner.ids
    }

    /// The date and time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Tells people what happens.
    #[must_use]
    pub fn recorder(&self) -> &EventRecorder {
        &self.inner.recorder
    }

    /// Tells people what happened to an object, as good news.
    pub fn event(&self, object: &impl Referent, reason: &str, message: impl Into<String>) {
        self.inner.recorder.event(object, crate::EventType::Normal, reason, message);
    }

    /// Hears when it is time to go.
    #[must_use]
    pub fn stop(&self) -> &Stop {
        &self.inner.stop
    }

    /// The informers that all controllers share.
    #[must_use]
    pub fn informers(&self) -> &Arc<SharedInformerFactory> {
        &self.inner.informers
    }

    /// The informer of a kind, which is started if it was not. It may not have heard of all objects yet.
    pub fn informer<K: Object + Resource>(&self) -> SharedIndexInformer<K> {
        self.started(self.inner.informers.informer())
    }

    fn started<K: Object>(&self, informer: SharedIndexInformer<K>) -> SharedIndexInformer<K> {
        if !informer.has_synced() {
            self.inner.informers.start();
        }
        informer
    }

    /// The object under a key, from the cache.
    ///
    /// # Errors
    /// The cache has not heard of all objects yet, so that nothing can be said; to be tried again. Or it is not of the
    /// key's namespace.
    pub fn get<K: Object + Resource>(&self, key: &Key) -> Result<Option<Arc<K>>, ReconcileError> {
        let informer = self.informer::<K>();
        if !informer.has_namespace(key.namespace()) {
            return Err(unknown_namespace("get", key));
        }
        Ok(synced(&informer, &K::gvr())?.get(key))
    }

    /// The objects of a namespace that are selected, from the cache; of all namespaces that are in it when it is empty.
    ///
    /// # Errors
    /// The cache has not heard of all objects yet, so that nothing can be said; to be tried again. Or it is not of the
    /// namespace.
    pub fn list<K: Object + Resource>(
        &self,
        namespace: &str,
        selector: &Selector,
    ) -> Result<Vec<Arc<K>>, ReconcileError> {
        let informer = self.informer::<K>();
        if !namespace.is_empty() && !informer.has_namespace(namespace) {
            return Err(unknown_namespace("list", namespace));
        }
        Ok(synced(&informer, &K::gvr())?.namespace(namespace).list(selector))
    }

    /// Reads the cache of a kind.
    ///
    /// # Errors
    /// The cache has not heard of all objects yet, so that nothing can be said; to be tried again.
    pub fn lister<K: Object + Resource>(&self) -> Result<Lister<K>, ReconcileError> {
        synced(&self.informer::<K>(), &K::gvr())
    }

    /// Reads the cache of any resource, without its type.
    ///
    /// # Errors
    /// The cache has not heard of all objects yet, so that nothing can be said; to be tried again.
    pub fn dynamic_lister(&self, resource: GroupVersionResource) -> Result<Lister<Unstructured>, ReconcileError> {
        synced(&self.started(self.inner.informers.informer_of(resource.clone())), &resource)
    }

    /// Creates an object on the server.
    ///
    /// # Errors
    /// It is there already, the server refuses or cannot be reached.
    pub async fn create<K: Object + Resource + Serialize>(&self, object: &K) -> Result<K, Error> {
        self.api(object.meta().namespace()).create(object).await
    }

    /// Writes an object on the server, if nobody has changed it since it was read.
    ///
    /// # Errors
    /// Somebody has, the server refuses or cannot be reached.
    pub async fn update<K: Object + Resource + Serialize>(&self, object: &K) -> Result<K, Error> {
        self.api(object.meta().namespace()).update(object).await
    }

    /// Writes the status of an object on the server, if nobody has changed it since it was read.
    ///
    /// # Errors
    /// Somebody has, the server refuses or cannot be reached.
    pub async fn update_status<K: Object + Resource + Serialize>(&self, object: &K) -> Result<K, Error> {
        self.api(object.meta().namespace()).update_status(object).await
    }

    /// Changes an object on the server.
    ///
    /// # Errors
    /// The server refuses or cannot be reached.
    pub async fn patch<K: Object + Resource, P: Serialize>(&self, key: &Key, patch: &Patch<P>) -> Result<K, Error> {
        self.api(key.namespace()).patch(key.name(), patch).await
    }

    /// Deletes an object on the server, if it is still this one.
    ///
    /// # Errors
    /// The server refuses or cannot be reached. One that is gone already is no error.
    pub async fn delete<K: Object + Resource>(&self, object: &K) -> Result<(), Error> {
        let mut options = DeleteOptions::default();
        if !object.meta().uid().is_empty() {
            options.preconditions.get_or_insert_default().uid = Some(object.meta().uid().to_owned());
        }
        match self.api::<K>(object.meta().namespace()).delete(object.meta().name(), &options).await {
            Err(error) if error.is_not_found() => Ok(()),
            other => other,
        }
    }

    /// Waits until the cache shows a write: `written` is what the server answered. Then what is read from the cache is
    /// that state or a later one.
    ///
    /// # Errors
    /// It took longer than [`CACHE_WAIT`]; to be tried again. Or the cache is not of its namespace.
    pub async fn wait_for_cache<K: Object + Resource>(&self, written: &K) -> Result<(), ReconcileError> {
        let informer = self.informer::<K>();
        let (key, wanted) = (Key::of(written), version(written.identity().resource_version));
        let namespace = key.namespace();
        if !informer.has_namespace(namespace) {
            return Err(unknown_namespace("get", &key));
        }
        let seen = async {
            loop {
                // The store is ahead of its version, so who sees nothing new here waits for another version.
                let synced_to = informer.last_sync_resource_version_in(namespace);
                let found = informer.indexer().get_by_key(key.as_str());
                let shown = match &found {
                    Some(object) => version(object.identity().resource_version),
                    // It is not there yet, or no longer.
                    None => version(&synced_to),
                };
                if informer.has_synced() && shown >= wanted {
                    return;
                }
                informer.synced_beyond_in(namespace, &synced_to).await;
            }
        };
        match race(seen, self.inner.clock.sleep(CACHE_WAIT)).await {
            Either::First(()) => Ok(()),
            Either::Second(()) => Err(ReconcileError::retry(format_args!("the cache does not show {key} yet"))),
        }
    }
}

fn synced<K: Object>(
    informer: &SharedIndexInformer<K>,
    resource: &GroupVersionResource,
) -> Result<Lister<K>, ReconcileError> {
    if informer.has_synced() {
        return Ok(informer.lister());
    }
    Err(ReconcileError::retry(format_args!("the cache of {} has not synced yet", resource.resource)))
}

fn unknown_namespace(verb: &str, what: impl fmt::Display) -> ReconcileError {
    ReconcileError::retry(format_args!("unable to {verb}: {what} because of unknown namespace for the cache"))
}
