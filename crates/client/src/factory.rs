//! One informer for each kind, however many ask for it.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_api::{GroupVersionResource, Resource, Unstructured, object::Object};
use capstan_clock::{SharedClock, SharedIds};

use crate::{BoxFuture, ListerWatcher, SharedIndexInformer, reflector::machine::Config};

/// Knows how to list and watch any resource.
pub trait ListerWatchers: fmt::Debug + Send + Sync + 'static {
    /// What lists and watches a resource in a namespace, or in all of them when that is empty.
    fn lister_watcher(&self, resource: &GroupVersionResource, namespace: &str) -> Arc<dyn ListerWatcher>;
}

/// What all informers can do, whatever their objects are.
trait AnyInformer: Send + Sync {
    fn run(&self) -> BoxFuture<'static, ()>;
    fn wait_for_sync(&self) -> BoxFuture<'static, bool>;
    fn shut_down(&self);
    fn as_any(&self) -> &dyn Any;
}

impl<K: Object> AnyInformer for SharedIndexInformer<K> {
    fn run(&self) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move { this.run().await })
    }

    fn wait_for_sync(&self) -> BoxFuture<'static, bool> {
        let this = self.clone();
        Box::pin(async move { this.wait_for_sync().await })
    }

    fn shut_down(&self) {
        SharedIndexInformer::shut_down(self);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Entry {
    informer: Box<dyn AnyInformer>,
    started: bool,
}

/// Makes informers, and makes each only once: who asks twice for a kind gets the same one.
///
/// Dropping it shuts down what it has started.
pub struct SharedInformerFactory {
    source: Arc<dyn ListerWatchers>,
    clock: SharedClock,
    ids: SharedIds,
    config: Config,
    namespace: String,
    resync: Option<Duration>,
    informers: Mutex<HashMap<(GroupVersionResource, TypeId), Entry>>,
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory").field("source", &self.source).finish_non_exhaustive()
    }
}

impl SharedInformerFactory {
    /// A factory for all namespaces.
    pub fn new(source: Arc<dyn ListerWatchers>, clock: SharedClock, ids: SharedIds) -> Self {
        SharedInformerFactory {
            source,
            clock,
            ids,
            config: Config::default(),
            namespace: String::new(),
            resync: None,
            informers: Mutex::default(),
        }
    }

    /// Only this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// How to ask: selectors for instance.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// How often handlers hear of all objects again, if they do not say.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// The informer of a type.
    pub fn informer<K: Object + Resource>(&self) -> SharedIndexInformer<K> {
        self.informer_of(K::gvr())
    }

    /// The informer of any resource, without its type.
    pub fn for_resource(&self, resource: GroupVersionResource) -> SharedIndexInformer<Unstructured> {
        self.informer_of(resource)
    }

    /// The informer of a resource, whose objects are read as `K`; metadata alone, for instance.
    pub fn informer_of<K: Object>(&self, resource: GroupVersionResource) -> SharedIndexInformer<K> {
        let new = || {
            let source = self.source.lister_watcher(&resource, &self.namespace);
            let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
            SharedIndexInformer::<K>::with_resync(source, self.config.clone(), clock, ids, self.resync)
        };
        let mut informers = self.lock();
        let entry = informers
            .entry((resource.clone(), TypeId::of::<K>()))
            .or_insert_with(|| Entry { informer: Box::new(new()), started: false });
        let known = entry.informer.as_any().downcast_ref::<SharedIndexInformer<K>>();
        known.cloned().expect("the type is part of the key")
    }

    /// Starts, in tasks on the caller's runtime, the informers that have not been started.
    pub fn start(&self) {
        for entry in self.lock().values_mut() {
            if !std::mem::replace(&mut entry.started, true) {
                tokio::spawn(entry.informer.run());
            }
        }
    }

    /// Waits until the stores of all informers that were started have all of their first lists. False when one was shut
    /// down before.
    pub async fn wait_for_cache_sync(&self) -> bool {
        let waits: Vec<_> =
            self.lock().values().filter(|entry| entry.started).map(|entry| entry.informer.wait_for_sync()).collect();
        let mut all = true;
        for wait in waits {
            all &= wait.await;
        }
        all
    }

    /// Ends all informers.
    pub fn shut_down(&self) {
        self.lock().values().for_each(|entry| entry.informer.shut_down());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(GroupVersionResource, TypeId), Entry>> {
        // A source that panics leaves no entry behind.
        self.informers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedInformerFactory {
    fn drop(&mut self) {
        self.shut_down();
    }
}
