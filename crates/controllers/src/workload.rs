//! What the drivers of workload loops share: indices, and handlers that find the owner.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::{
    GroupVersion, Resource, Str,
    object::{Object, controller_of},
    selector::Selector,
};
use capstan_client::{
    Deleted, Key, Lister, ResourceEventHandler, SharedIndexInformer,
    store::{IndexFunc, Indexer, Indexers},
};
use capstan_runtime::workqueue::PriorityQueue;

/// The index of objects by the uid of who controls them.
const CONTROLLER_INDEX: &str = "controllerUID";

/// How many keys of one kind are worked on at the same time, as upstream has it for workloads.
pub(crate) const WORKERS: usize = 5;

/// The value of the index for those of a namespace whom nobody controls. No uid has a slash.
fn orphans_of(namespace: &str) -> String {
    format!("{namespace}/")
}

/// Adds the index by controller. Any number of loops may ask for it.
pub(crate) fn index_by_controller<K: Object>(informer: &SharedIndexInformer<K>) {
    let func: IndexFunc<K> = Arc::new(|object| {
        let value = match controller_of(&object.owners()) {
            Some(reference) => Str::from(reference.uid.as_str()),
            None => Str::from(orphans_of(object.identity().namespace).as_str()),
        };
        vec![value]
    });
    informer.add_indexers(Indexers::from([(CONTROLLER_INDEX.into(), func)]));
}

/// The objects that an owner controls.
pub(crate) fn controlled_by<K: Object>(store: &Indexer<K>, uid: &str) -> Vec<Arc<K>> {
    store.by_index(CONTROLLER_INDEX, uid).unwrap_or_default()
}

/// The objects that an owner controls, and those of its namespace that nobody controls and that it might adopt.
pub(crate) fn candidates<K: Object, O: Object>(store: &Indexer<K>, owner: &O, selector: &Selector) -> Vec<Arc<K>> {
    let owner = owner.identity();
    let snapshot = store.snapshot();
    let mut found = snapshot.by_index(CONTROLLER_INDEX, owner.uid).unwrap_or_default();
    let orphans = snapshot.by_index(CONTROLLER_INDEX, &orphans_of(owner.namespace)).unwrap_or_default();
    found.extend(orphans.into_iter().filter(|object| object.is_selected(selector)));
    found
}

/// Enqueues whoever controls an object that changed or, if nobody does, whoever might adopt it.
pub(crate) struct EnqueueController<O> {
    pub(crate) queue: PriorityQueue<Key>,
    pub(crate) owners: Lister<O>,
    /// Which objects an owner selects.
    pub(crate) selector: fn(&O) -> Option<Selector>,
}

impl<O: Resource + Object> EnqueueController<O> {
    /// The key of the owner, if it is of our kind.
    fn controller<K: Object>(object: &K) -> Option<Option<Key>> {
        let owners = object.owners();
        let reference = controller_of(&owners)?;
        let gvk = O::gvk();
        let ours = *reference.kind == *gvk.kind
            && reference.api_version.parse::<GroupVersion>().is_ok_and(|version| version.group == gvk.group);
        Some(ours.then(|| Key::new(object.identity().namespace, &reference.name)))
    }

    fn enqueue<K: Object>(&self, object: &K) {
        match Self::controller(object) {
            Some(key) => key.into_iter().for_each(|key| self.queue.add(key)),
            None => self.enqueue_adopters(object),
        }
    }

    fn enqueue_adopters<K: Object>(&self, object: &K) {
        for owner in self.owners.namespace(object.identity().namespace).list(&Selector::everything()) {
            let selects = (self.selector)(&owner)
                .is_some_and(|selector| !selector.is_everything() && object.is_selected(&selector));
            if selects {
                self.queue.add(Key::of(&*owner));
            }
        }
    }
}

impl<K: Object + Resource, O: Resource + Object> ResourceEventHandler<K> for EnqueueController<O> {
    fn on_add(&mut self, object: &Arc<K>, _: bool) {
        self.enqueue(&**object);
    }

    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>) {
        if old.identity().resource_version == new.identity().resource_version {
            return;
        }
        let (was, is) = (Self::controller(&**old), Self::controller(&**new));
        let moved = was != is;
        if moved && let Some(Some(key)) = was {
            self.queue.add(key);
        }
        match is {
            Some(key) => key.into_iter().for_each(|key| self.queue.add(key)),
            None if moved || labels(&**old) != labels(&**new) => self.enqueue_adopters(&**new),
            None => {}
        }
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        if let Some(Some(key)) = Self::controller(&**object.object()) {
            self.queue.add(key);
        }
    }
}

fn labels<K: Resource>(object: &K) -> &BTreeMap<String, String> {
    object.labels()
}
