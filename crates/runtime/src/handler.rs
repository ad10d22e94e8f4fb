//! From changes to keys.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use capstan_api::{GroupKind, GroupVersion, Scope, object::Object};
use capstan_client::{Change, Deleted, Key, ResourceEventHandler};

use crate::workqueue::{AddOpts, LOW_PRIORITY, PriorityQueue};

/// Adds keys to a queue for each object that comes, changes or goes.
///
/// What is only listed, or looked at again without a change, is less urgent than what happens.
pub struct Enqueue<F> {
    queue: PriorityQueue<Key>,
    keys: F,
    /// Its own key is all that an object brings, so nobody has to look at it.
    only_itself: bool,
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
    Enqueue { queue, keys: |object: &K| vec![Key::of(object)], only_itself: true }
}

/// Adds the owners of a kind; only the one that controls the object if `only_controller`. Where the owners live is
/// theirs to say: those of the cluster own objects in any namespace.
pub fn enqueue_request_for_owner<K: Object>(
    queue: PriorityQueue<Key>,
    owner: GroupKind,
    scope: Scope,
    only_controller: bool,
) -> Enqueue<impl Fn(&K) -> Vec<Key> + Send + 'static> {
    enqueue_requests_from_map_func(queue, move |object: &K| {
        let namespace = if scope == Scope::Namespaced { object.identity().namespace } else { "" };
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
    Enqueue { queue, keys, only_itself: false }
}

impl<F> Enqueue<F> {
    /// None if the function panics, of which the panic hook has told: what the other state says still counts.
    fn keys_of<K>(&self, object: &K) -> Vec<Key>
    where
        F: Fn(&K) -> Vec<Key>,
    {
        catch_unwind(AssertUnwindSafe(|| (self.keys)(object))).unwrap_or_default()
    }

    fn add(&self, keys: Vec<Key>, low: bool) {
        let priority = if low { LOW_PRIORITY } else { 0 };
        for key in keys {
            self.queue.add_with_opts(AddOpts { priority, ..AddOpts::default() }, key);
        }
    }
}

impl<K: Object, F: Fn(&K) -> Vec<Key> + Send + 'static> ResourceEventHandler<K> for Enqueue<F> {
    fn on_add(&mut self, object: &Arc<K>, is_in_initial_list: bool) {
        self.add(self.keys_of(object), is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>) {
        let unchanged = old.identity().resource_version == new.identity().resource_version;
        // One that used to point elsewhere concerns both.
        let mut keys = self.keys_of(new);
        for key in self.keys_of(old) {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        self.add(keys, unchanged);
    }

    fn on_delete(&mut self, object: &Deleted<K>) {
        self.add(self.keys_of(object.object()), false);
    }

    fn on_key(&mut self, key: &Key, change: Change) -> bool {
        if self.only_itself {
            let low =
                matches!(change, Change::Added { is_in_initial_list: true } | Change::Updated { unchanged: true });
            self.add(vec![key.clone()], low);
        }
        self.only_itself
    }
}

#[cfg(test)]
mod tests {
    use capstan_api::Unstructured;
    use capstan_clock::ManualClock;

    use super::*;
    use crate::workqueue::default_item_based_rate_limiter;

    fn queue() -> PriorityQueue<Key> {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        PriorityQueue::new(Arc::new(clock), default_item_based_rate_limiter())
    }

    /// An object and its owners, each as `apiVersion kind name`, with a `*` if it controls.
    fn object(version: u8, owners: &[&str]) -> Arc<Unstructured> {
        let owners: Vec<_> = owners
            .iter()
            .map(|owner| {
                let words: Vec<_> = owner.split(' ').collect();
                let name = words[2].trim_end_matches('*');
                let controller = words[2].ends_with('*');
                format!(
                    r#"{{"apiVersion":"{}","kind":"{}","name":"{name}","uid":"u","controller":{controller}}}"#,
                    words[0], words[1]
                )
            })
            .collect();
        let text = format!(
            r#"{{"kind":"Pod","metadata":{{"namespace":"ns","name":"p","resourceVersion":"{version}","ownerReferences":[{}]}}}}"#,
            owners.join(",")
        );
        Arc::new(Unstructured::decode(text.as_bytes()).unwrap())
    }

    async fn check(tell: impl FnOnce(PriorityQueue<Key>), expected: &[(&str, i32)]) {
        let queue = queue();
        tell(queue.clone());
        queue.shut_down();
        let mut found = Vec::new();
        while let Some((key, priority)) = queue.get_with_priority().await {
            found.push((key.to_string(), priority));
        }
        let expected: Vec<_> = expected.iter().map(|(key, priority)| ((*key).to_owned(), *priority)).collect();
        assert_eq!(found, expected);
    }

    #[tokio::test]
    async fn changes_become_keys() {
        let (old, new) = (object(1, &[]), object(2, &[]));
        let itself = enqueue_request_for_object::<Unstructured>;
        check(|queue| itself(queue).on_add(&new, false), &[("ns/p", 0)]).await;
        check(|queue| itself(queue).on_add(&new, true), &[("ns/p", LOW_PRIORITY)]).await;
        check(|queue| itself(queue).on_update(&old, &new), &[("ns/p", 0)]).await;
        check(|queue| itself(queue).on_update(&new, &new), &[("ns/p", LOW_PRIORITY)]).await;
        check(|queue| itself(queue).on_delete(&Deleted::DeletedFinalStateUnknown(old)), &[("ns/p", 0)]).await;
    }

    #[tokio::test]
    async fn owners_are_asked() {
        let of = GroupKind::new("apps", "ReplicaSet");
        let owner = |queue, only| enqueue_request_for_owner::<Unstructured>(queue, of.clone(), Scope::Namespaced, only);
        let one =
            object(1, &["apps/v1 ReplicaSet a*", "apps/v2 ReplicaSet b", "v1 ReplicaSet c", "apps/v1 Deployment d"]);
        let other = object(2, &["apps/v1 ReplicaSet e*"]);
        check(|queue| owner(queue, false).on_add(&one, false), &[("ns/a", 0), ("ns/b", 0)]).await;
        check(|queue| owner(queue, true).on_add(&one, false), &[("ns/a", 0)]).await;
        check(|queue| owner(queue, true).on_update(&one, &other), &[("ns/e", 0), ("ns/a", 0)]).await;
        let cluster = |queue| enqueue_request_for_owner::<Unstructured>(queue, of.clone(), Scope::Cluster, true);
        check(|queue| cluster(queue).on_add(&one, false), &[("a", 0)]).await;
    }
}
