//! From changes to keys.

use std::sync::Arc;

use capstan_api::{GroupKind, GroupVersion, object::Object};
use capstan_client::{Deleted, Key, ResourceEventHandler};

use crate::workqueue::{AddOpts, LOW_PRIORITY, PriorityQueue};

/// Adds keys to a queue for each object that comes, changes or goes.
///
/// What is only listed, or looked at again without a change, is less urgent than what happens.
pub struct Enqueue<F> {
    queue: PriorityQueue<Key>,
    keys: F,
}

impl<F> std::fmt::Debug for Enqueue<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Enqueue")
    }
}

/// Adds the object itself.
pub fn enqueue_request_for_object<K: Object>(
    queue: PriorityQueue<Key>,
) -> Enqueue<impl Fn(&K) -> Vec<Key> + Send + 'static> {
    enqueue_requests_from_map_func(queue, |object: &K| vec![Key::of(object)])
}

/// Adds the owners of a kind; only the one that controls the object if `only_controller`.
pub fn enqueue_request_for_owner<K: Object>(
    queue: PriorityQueue<Key>,
    owner: GroupKind,
    only_controller: bool,
) -> Enqueue<impl Fn(&K) -> Vec<Key> + Send + 'static> {
    enqueue_requests_from_map_func(queue, move |object: &K| {
        let namespace = object.identity().namespace;
        let owners = object.owners();
        let owners = owners.iter().filter(|reference| {
            let group_version = reference.api_version.parse::<GroupVersion>();
            reference.kind == *owner.kind
                && group_version.is_ok_and(|group_version| group_version.group == owner.group)
                && (!only_controller || reference.controller == Some(true))
        });
        owners.map(|reference| Key::new(namespace, &reference.name)).collect()
    })
}

/// Adds what a function says.
pub fn enqueue_requests_from_map_func<K: Object, F: Fn(&K) -> Vec<Key> + Send + 'static>(
    queue: PriorityQueue<Key>,
    keys: F,
) -> Enqueue<F> {
    Enqueue { queue, keys }
}

impl<F> Enqueue<F> {
    fn add(&self, keys: Vec<Key>, low: bool) {
        let priority = if low { LOW_PRIORITY } else { 0 };
        for key in keys {
            self.queue.add_with_opts(AddOpts { priority, ..AddOpts::default() }, key);
        }
    }
}

impl<K: Object, F: Fn(&K) -> Vec<Key> + Send + 'static> ResourceEventHandler<K> for Enqueue<F> {
    fn on_add(&mut self, object: &Arc<K>, is_in_initial_list: bool) {
        self.add((self.keys)(object), is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>) {
        let unchanged = old.identity().resource_version == new.identity().resource_version;
        // One that used to point elsewhere concerns both.
        let mut keys = (self.keys)(new);
        for key in (self.keys)(old) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        self.add(keys, unchanged);
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        self.add((self.keys)(object.object()), false);
    }
}
