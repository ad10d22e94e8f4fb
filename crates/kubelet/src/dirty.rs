//! Pods that have changed and were not looked at yet: informers put their names in, one loop takes them out.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_client::{HandlerFuncs, SharedIndexInformer};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Notify;

/// Namespaces and names, each once.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    names: Mutex<BTreeSet<(String, String)>>,
    notify: Notify,
}

impl Dirty {
    /// What an informer sees from now on.
    pub(crate) fn of(informer: &SharedIndexInformer<Pod>) -> Arc<Self> {
        let dirty = Arc::new(Dirty::default());
        let (added, updated, deleted) = (dirty.clone(), dirty.clone(), dirty.clone());
        let handler = HandlerFuncs::new()
            .on_add(move |pod: &Arc<Pod>, _| added.add(pod))
            .on_update(move |_, pod: &Arc<Pod>| updated.add(pod))
            .on_delete(move |pod| deleted.add(pod.object()));
        // It lives as long as the informer.
        let _registration = informer.add_event_handler(handler);
        dirty
    }

    fn add(&self, pod: &Pod) {
        let meta = &pod.metadata;
        let key = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.notify.notify_one();
    }

    /// Waits until there are some.
    pub(crate) async fn notified(&self) {
        self.notify.notified().await;
    }

    /// All that there are.
    pub(crate) fn take(&self) -> BTreeSet<(String, String)> {
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
