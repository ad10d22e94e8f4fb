//! What the scheduler knows besides nodes and pods: namespaces, what selects pods, budgets, storage.

use std::{collections::HashMap, sync::Arc};

use capstan_api::selector::Selector;
use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSet, StatefulSet},
        core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service},
        policy::v1::PodDisruptionBudget,
        resource::v1::{DeviceClass, ResourceClaim, ResourceSlice},
        storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{
    pod_info::{PodInfo, labels_of},
    resource::{CLASS_PREFIX, Resource, is_served_by_devices},
    selectors::{Labels, NO_LABELS, label_selector},
};

/// Objects of one kind, by namespace and name.
#[derive(Debug)]
pub struct Objects<K> {
    all: HashMap<(String, String), Arc<K>>,
    newest: u64,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Objects { all: HashMap::new(), newest: 0 }
    }
}

impl<K> Objects<K> {
    /// One of them.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        // Kinds of this sort are few, and asked for seldom: two strings are made to look up one.
        self.all.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.all.values()
    }

    /// The newest version of any of them that was seen.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }
}

/// A kind that the world knows.
pub trait Known: Sized + Send + Sync + 'static {
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;
    /// Where its objects are kept.
    fn objects(world: &mut World) -> &mut Objects<Self>;
    /// Whether a change is one that answers which are kept for a class of pods depend on: pods with volumes or devices
    /// are in no class, and counters in a status change all the time.
    fn matters(old: Option<&Self>, new: Option<&Self>) -> bool;
}

macro_rules! known {
    ($($kind:ident $field:ident $matters:expr;)*) => {
        /// What the scheduler knows besides nodes and pods.
        #[derive(Debug, Default)]
        pub struct World {
            $(#[doc = concat!("Objects of kind ", stringify!($kind), ".")] pub $field: Objects<$kind>,)*
            version: u64,
        }
        $(impl Known for $kind {
            fn metadata(&self) -> &ObjectMeta { &self.metadata }
            fn objects(world: &mut World) -> &mut Objects<Self> { &mut world.$field }
            fn matters(old: Option<&Self>, new: Option<&Self>) -> bool { $matters(old, new) }
        })*
    };
}

known! {
    Namespace namespaces differ(|namespace: &Namespace| namespace.metadata.labels.clone());
    Service services differ(|service: &Service| selector_of(service).cloned());
    ReplicationController replication_controllers differ(|owner: &ReplicationController| {
        owner.spec.as_ref().and_then(|spec| spec.selector.clone())
    });
    ReplicaSet replica_sets differ(|owner: &ReplicaSet| owner.spec.as_ref().map(|spec| spec.selector.clone()));
    StatefulSet stateful_sets differ(|owner: &StatefulSet| owner.spec.as_ref().map(|spec| spec.selector.clone()));
    PodDisruptionBudget budgets never;
    PersistentVolumeClaim claims never;
    PersistentVolume volumes never;
    StorageClass classes never;
    CSINode csi_nodes never;
    CSIDriver csi_drivers never;
    CSIStorageCapacity capacities never;
    VolumeAttachment attachments never;
    ResourceClaim resource_claims never;
    ResourceSlice resource_slices never;
    DeviceClass device_classes never;
}

fn never<K>(_old: Option<&K>, _new: Option<&K>) -> bool {
    false
}

/// Whether a part of the object changes, or the object comes or goes.
fn differ<K, T: PartialEq>(part: impl Fn(&K) -> T) -> impl Fn(Option<&K>, Option<&K>) -> bool {
    move |old, new| old.map(&part) != new.map(&part)
}

fn selector_of(service: &Service) -> Option<&Labels> {
    service.spec.as_ref().and_then(|spec| spec.selector.as_ref())
}

fn key(metadata: &ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

impl World {
    /// Takes in an object that is new or has changed.
    pub fn put<K: Known>(&mut self, object: Arc<K>) {
        let objects = K::objects(self);
        let version = object.metadata().resource_version.as_deref().and_then(|version| version.parse().ok());
        objects.newest = objects.newest.max(version.unwrap_or(0));
        let old = objects.all.insert(key(object.metadata()), Arc::clone(&object));
        self.version += u64::from(K::matters(old.as_deref(), Some(&object)));
    }

    /// Forgets an object.
    pub fn remove<K: Known>(&mut self, object: &K) {
        if let Some(old) = K::objects(self).all.remove(&key(object.metadata())) {
            self.version += u64::from(K::matters(Some(&old), None));
        }
    }

    /// Changes whenever something does that answers which are kept for a class of pods depend on.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The device class that stands for a resource: the newest, of two as new the one whose name is first.
    #[must_use]
    pub fn class_of(&self, resource: &str) -> Option<&Arc<DeviceClass>> {
        if let Some(name) = resource.strip_prefix(CLASS_PREFIX) {
            return self.device_classes.get("", name);
        }
        let stands = |class: &&Arc<DeviceClass>| class.spec.extended_resource_name.as_deref() == Some(resource);
        let age = |class: &&Arc<DeviceClass>| {
            (class.metadata.creation_timestamp.clone(), std::cmp::Reverse(class.metadata.name.clone()))
        };
        self.device_classes.iter().filter(stands).max_by_key(age)
    }

    /// Whether a device class stands for something that is asked for.
    #[must_use]
    pub fn serves(&self, requests: &Resource) -> bool {
        let mut wanted = requests.scalars.iter().filter(|(name, amount)| *amount != 0 && is_served_by_devices(name));
        wanted.any(|(name, _)| self.class_of(name).is_some())
    }

    /// The labels of a namespace; none when it is not known.
    #[must_use]
    pub fn namespace_labels(&self, name: &str) -> &Labels {
        let namespace = self.namespaces.get("", name);
        namespace.map_or(&NO_LABELS, |namespace| labels_of(namespace.metadata.labels.as_ref()))
    }

    /// Which pods belong together with one: those of its services and of its controller. None when nothing says so.
    #[must_use]
    pub fn default_selector(&self, pod: &PodInfo) -> Option<Selector> {
        let mut pairs = Labels::new();
        for service in self.services.iter().filter(|s| s.metadata.namespace.as_deref() == Some(pod.namespace())) {
            let Some(selector) = selector_of(service) else { continue };
            if selector.iter().all(|(key, value)| pod.labels().get(key) == Some(value)) {
                pairs.extend(selector.clone());
            }
        }
        let owners = pod.pod.metadata.owner_references.iter().flatten();
        let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
        let mut more = None;
        if let Some(owner) = owner {
            match (owner.api_version.as_str(), owner.kind.as_str()) {
                ("v1", "ReplicationController") => {
                    let owner = self.replication_controllers.get(pod.namespace(), &owner.name);
                    let selector = owner.and_then(|owner| owner.spec.as_ref()?.selector.clone());
                    pairs.extend(selector.unwrap_or_default());
                }
                ("apps/v1", "ReplicaSet") => {
                    let owner = self.replica_sets.get(pod.namespace(), &owner.name);
                    more = owner.and_then(|owner| label_selector(Some(&owner.spec.as_ref()?.selector)).ok());
                }
                ("apps/v1", "StatefulSet") => {
                    let owner = self.stateful_sets.get(pod.namespace(), &owner.name);
                    more = owner.and_then(|owner| label_selector(Some(&owner.spec.as_ref()?.selector)).ok());
                }
                _ => {}
            }
        }
        let mut selector = Selector::from_labels(pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        for requirement in more.iter().flat_map(Selector::requirements) {
            selector = selector.and(requirement.clone());
        }
        (!selector.is_everything()).then_some(selector)
    }
}
