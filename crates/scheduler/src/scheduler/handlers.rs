//! What the informers tell, brought into the cache and the queue.

use std::{future::Future, pin::Pin, sync::Arc};

use capstan_api::{Resource, object::Object};
use capstan_client::{HandlerFuncs, SharedInformerFactory};
use k8s_openapi::api::{
    apps::v1::{ReplicaSet, StatefulSet},
    core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service},
    policy::v1::PodDisruptionBudget,
    resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
    storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment},
};

use super::{Shared, State};
use crate::{
    event::{ActionType, ClusterEvent, EventObject, EventResource, node_changes, pod_changes},
    pod_info::PodInfo,
    world::Known,
};

type Synced = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What hints are shown of a change, before and after.
type ToObject<K> = fn(Option<&Arc<K>>, Option<&Arc<K>>) -> EventObject;

/// Listens to everything that decisions depend on. The future ends when all that was there first is known.
pub(super) fn register(factory: &SharedInformerFactory, shared: &Arc<Shared>) -> Synced {
    use EventResource as R;
    let other = |_: Option<&Arc<_>>, _: Option<&Arc<_>>| EventObject::Other;
    let all: Vec<Synced> = vec![
        nodes(factory, shared),
        pods(factory, shared),
        world::<Namespace>(factory, shared, None, |_, _| EventObject::Other),
        world::<Service>(factory, shared, None, |_, _| EventObject::Other),
        world::<ReplicationController>(factory, shared, None, |_, _| EventObject::Other),
        world::<ReplicaSet>(factory, shared, None, |_, _| EventObject::Other),
        world::<StatefulSet>(factory, shared, None, |_, _| EventObject::Other),
        world::<PodDisruptionBudget>(factory, shared, None, |_, _| EventObject::Other),
        world::<PersistentVolumeClaim>(factory, shared, Some(R::PersistentVolumeClaim), |old, new| {
            EventObject::Claim(old.cloned(), new.cloned())
        }),
        world::<PersistentVolume>(factory, shared, Some(R::PersistentVolume), |_, _| EventObject::Other),
        world::<StorageClass>(factory, shared, Some(R::StorageClass), |old, new| {
            EventObject::StorageClass(old.cloned(), new.cloned())
        }),
        world::<CSINode>(factory, shared, Some(R::CSINode), |old, new| {
            EventObject::CSINode(old.cloned(), new.cloned())
        }),
        world::<CSIDriver>(factory, shared, Some(R::CSIDriver), |_, _| EventObject::Other),
        world::<CSIStorageCapacity>(factory, shared, Some(R::CSIStorageCapacity), |_, _| EventObject::Other),
        world::<VolumeAttachment>(factory, shared, Some(R::VolumeAttachment), other),
        world::<ResourceClaim>(factory, shared, Some(R::ResourceClaim), |old, new| {
            EventObject::ResourceClaim(old.cloned(), new.cloned())
        }),
        world::<ResourceSlice>(factory, shared, Some(R::ResourceSlice), |_, _| EventObject::Other),
        world::<DeviceClass>(factory, shared, Some(R::DeviceClass), |old, new| {
            EventObject::DeviceClass(old.cloned(), new.cloned())
        }),
    ];
    Box::pin(async move {
        for synced in all {
            synced.await;
        }
    })
}

impl State {
    fn notify(&mut self, shared: &Shared, resource: EventResource, action: ActionType, object: &EventObject) {
        self.queue.notify(ClusterEvent::new(resource, action), object, shared.clock.monotonic(), |_| true);
        shared.wake.notify_one();
    }

    /// Pods that are as important as one that gave up a place, or less, may want it.
    fn place_freed(&mut self, shared: &Shared, pod: &Arc<PodInfo>) {
        let object = EventObject::Pod(Some(Arc::clone(pod)), None);
        let event = ClusterEvent::new(EventResource::Pod, ActionType::DELETE);
        let priority = pod.priority;
        self.queue.notify(event, &object, shared.clock.monotonic(), |other| other.priority <= priority);
        shared.wake.notify_one();
    }
}

fn nodes(factory: &SharedInformerFactory, shared: &Arc<Shared>) -> Synced {
    let (adds, updates, deletes) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let handler = HandlerFuncs::new()
        .on_add(move |node: &Arc<Node>, _| {
            let mut state = adds.lock();
            state.core.cache.put_node(Arc::clone(node));
            let object = EventObject::Node(None, Some(Arc::clone(node)));
            state.notify(&adds, EventResource::Node, ActionType::ADD, &object);
        })
        .on_update(move |old, new| {
            let mut state = updates.lock();
            state.core.cache.put_node(Arc::clone(new));
            let object = EventObject::Node(Some(Arc::clone(old)), Some(Arc::clone(new)));
            for event in node_changes(old, new) {
                state.notify(&updates, event.resource, event.action, &object);
            }
        })
        .on_delete(move |gone| {
            let mut state = deletes.lock();
            let node = gone.object();
            let object = EventObject::Node(Some(Arc::clone(node)), None);
            state.notify(&deletes, EventResource::Node, ActionType::DELETE, &object);
            state.core.cache.remove_node(node.metadata.name.as_deref().unwrap_or_default());
        });
    let registration = factory.informer::<Node>().add_event_handler(handler);
    Box::pin(async move {
        registration.wait_for_sync().await;
    })
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// A pod is there in a new state.
fn pod_seen(shared: &Shared, pod: &Arc<Pod>) {
    // Reading takes longest and needs no lock.
    let info = Arc::new(PodInfo::new(Arc::clone(pod)));
    if is_finished(pod) {
        return pod_gone(shared, &info);
    }
    let mut state = shared.lock();
    let now = shared.clock.monotonic();
    if !info.node_name().is_empty() {
        let known = state.core.cache.placed(&info.uid).map(|(known, _)| Arc::clone(known));
        let (uid, terminating) = (Arc::clone(&info.uid), info.is_terminating());
        let confirmed = known.is_none() || state.core.cache.is_assumed(&info.uid);
        state.core.cache.put_pod(&info);
        state.core.nominator.remove(&info.uid);
        if state.pending.remove(&info.uid).is_some() {
            state.queue.remove(&info.uid);
        }
        if confirmed {
            state.notify(shared, EventResource::Pod, ActionType::ADD, &EventObject::Pod(None, Some(info)));
        } else if let Some(old) = known {
            let events = pod_changes(&old, &info);
            let object = EventObject::Pod(Some(old), Some(info));
            for event in events {
                state.notify(shared, event.resource, event.action, &object);
            }
        }
        if terminating {
            state.leaves(shared, &uid);
        }
        return;
    }
    if shared.profile_at(&info).is_none() {
        return;
    }
    let old = state.pending.insert(Arc::clone(&info.uid), Arc::clone(&info));
    if state.core.cache.is_assumed(&info.uid) {
        // It is on its way to its node; only that it is to go after all matters.
        if info.is_terminating() && old.is_none_or(|old| !old.is_terminating()) {
            state.core.cache.forget(&info.uid);
            state.place_freed(shared, &info);
        }
        return;
    }
    state.core.nominator.update(&info);
    match &old {
        None => state.queue.add(Arc::clone(&info), now),
        Some(old) => state.queue.update(Some(old), Arc::clone(&info), now),
    }
    if let Some(old) = old
        && !old.nominated_node_name().is_empty()
        && old.nominated_node_name() != info.nominated_node_name()
    {
        state.place_freed(shared, &old);
    }
    shared.wake.notify_one();
}

fn pod_gone(shared: &Shared, info: &Arc<PodInfo>) {
    let mut state = shared.lock();
    state.queue.remove(&info.uid);
    let nominated = state.core.nominator.remove(&info.uid).is_some();
    let pending = state.pending.remove(&info.uid);
    let placed = state.core.cache.placed(&info.uid).map(|(known, _)| Arc::clone(known));
    if state.core.cache.remove_pod(&info.uid).is_some() {
        // What was only assumed does not know its node; whoever asks whether it had one looks at the node's name.
        let known = placed.filter(|known| !known.node_name().is_empty()).unwrap_or_else(|| assigned(info));
        state.notify(shared, EventResource::Pod, ActionType::DELETE, &EventObject::Pod(Some(known), None));
    } else if nominated && let Some(pod) = pending {
        state.place_freed(shared, &pod);
    }
    state.leaves(shared, &info.uid);
}

/// The pod as if it said that it has a node.
fn assigned(info: &Arc<PodInfo>) -> Arc<PodInfo> {
    if !info.node_name().is_empty() {
        return Arc::clone(info);
    }
    let mut pod = (*info.pod).clone();
    pod.spec.get_or_insert_default().node_name = Some("assumed".to_owned());
    Arc::new(PodInfo::new(Arc::new(pod)))
}

fn pods(factory: &SharedInformerFactory, shared: &Arc<Shared>) -> Synced {
    let (adds, updates, deletes) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let handler = HandlerFuncs::new()
        .on_add(move |pod: &Arc<Pod>, _| pod_seen(&adds, pod))
        .on_update(move |old, new| {
            if old.metadata.resource_version == new.metadata.resource_version {
                return;
            }
            if old.metadata.uid != new.metadata.uid {
                pod_gone(&updates, &Arc::new(PodInfo::new(Arc::clone(old))));
            }
            pod_seen(&updates, new);
        })
        .on_delete(move |gone| pod_gone(&deletes, &Arc::new(PodInfo::new(Arc::clone(gone.object())))));
    let registration = factory.informer::<Pod>().add_event_handler(handler);
    Box::pin(async move {
        registration.wait_for_sync().await;
    })
}

/// Objects that are only looked up, and that pods may wait for if there is a resource.
fn world<K: Known + Object + Resource>(
    factory: &SharedInformerFactory,
    shared: &Arc<Shared>,
    resource: Option<EventResource>,
    object: ToObject<K>,
) -> Synced {
    let (adds, updates, deletes) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let notify = move |shared: &Shared, state: &mut State, action, object| {
        if let Some(resource) = resource {
            state.notify(shared, resource, action, &object);
        }
    };
    let handler = HandlerFuncs::new()
        .on_add(move |new: &Arc<K>, _| {
            let mut state = adds.lock();
            state.core.cache.world.put(Arc::clone(new));
            notify(&adds, &mut state, ActionType::ADD, object(None, Some(new)));
        })
        .on_update(move |old, new| {
            let mut state = updates.lock();
            state.core.cache.world.put(Arc::clone(new));
            notify(&updates, &mut state, ActionType::UPDATE, object(Some(old), Some(new)));
        })
        .on_delete(move |gone| {
            let mut state = deletes.lock();
            state.core.cache.world.remove(&**gone.object());
            notify(&deletes, &mut state, ActionType::DELETE, object(Some(gone.object()), None));
        });
    let registration = factory.informer::<K>().add_event_handler(handler);
    Box::pin(async move {
        registration.wait_for_sync().await;
    })
}
