//! The resources that are served, and the commits behind them.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use capstan_api::{GroupResource, GroupVersionKind, GroupVersionResource, Map, Status, Time, Value, builtin, json};
use capstan_clock::{SharedClock, SharedIds};
use capstan_storage::{CommitError, Conflict, InputError, Op, Revision, SharedStore, Ttl};

use super::{
    resource::{Resource, Stored},
    strategy::Strategy,
};
use crate::{
    cache::{CacheError, Object},
    objects::Objects,
};

/// All resources, by what a request names.
type Table = HashMap<GroupVersionResource, Arc<Resource>>;

/// How often a cache that is being filled is waited for, each time as long as a read waits.
const FILL_ATTEMPTS: u32 = 200;

/// What is served, over one store.
pub struct Registry {
    /// The store.
    pub store: SharedStore,
    /// The time.
    pub clock: SharedClock,
    /// Names and identities.
    pub ids: SharedIds,
    builtin: Table,
    custom: RwLock<Table>,
    stored: HashMap<GroupResource, Arc<Stored>>,
}

/// Why nothing was committed.
#[derive(Debug)]
pub enum Refused {
    /// Somebody else wrote in between.
    Conflict(Conflict),
    /// It cannot be.
    Status(Status),
}

/// The version that a built-in resource is stored in: of those with several the newest, and events as those of the
/// core group, whichever group they were sent to.
fn storage_kind(resource: &GroupResource) -> Option<GroupVersionKind> {
    let group = if resource.resource == *"events" { "" } else { resource.group.as_str() };
    let of = |kind: &&builtin::Kind| kind.group_version.group == *group && kind.resource == resource.resource;
    builtin::kinds()
        .filter(of)
        .max_by(|a, b| a.group_version.version.cmp(&b.group_version.version))
        .map(builtin::Kind::gvk)
}

impl Registry {
    /// Serves the built-in resources and follows the store, on the runtime of the caller.
    #[must_use]
    pub fn start(store: SharedStore, clock: SharedClock, ids: SharedIds, event_ttl: Option<Ttl>) -> Self {
        let mut stored: HashMap<GroupResource, Arc<Stored>> = HashMap::new();
        for strategy in Strategy::all() {
            let resource = GroupResource::from_static(strategy.group, strategy.resource);
            if (strategy.group, strategy.resource) == ("events.k8s.io", "events") {
                continue;
            }
            let Some(gvk) = storage_kind(&resource) else { continue };
            let mut one = Stored::start(gvk, strategy, Arc::clone(&store), Arc::clone(&clock));
            if strategy.resource == "events" {
                one.ttl = event_ttl;
            }
            stored.insert(resource, Arc::new(one));
        }
        if let Some(events) = stored.get(&GroupResource::from_static("", "events")).cloned() {
            stored.insert(GroupResource::from_static("events.k8s.io", "events"), events);
        }
        let mut served = Table::new();
        for row in builtin::kinds() {
            let at = stored.get(&row.gvr().group_resource()).cloned();
            served.extend(Resource::builtin(row, at).map(|resource| (resource.gvr.clone(), Arc::new(resource))));
        }
        Registry { store, clock, ids, builtin: served, custom: RwLock::default(), stored }
    }

    /// The resource that a request names.
    #[must_use]
    pub fn resource(&self, gvr: &GroupVersionResource) -> Option<Arc<Resource>> {
        let custom = || self.custom.read().unwrap_or_else(PoisonError::into_inner).get(gvr).cloned();
        self.builtin.get(gvr).cloned().or_else(custom)
    }

    /// From now on `new` is served instead of `old`: the versions of one custom resource, all at once.
    pub fn replace_custom(&self, old: &[Arc<Resource>], new: &[Arc<Resource>]) {
        let mut custom = self.custom.write().unwrap_or_else(PoisonError::into_inner);
        old.iter().for_each(|resource| drop(custom.remove(&resource.gvr)));
        custom.extend(new.iter().map(|resource| (resource.gvr.clone(), Arc::clone(resource))));
    }

    /// The custom resources that are served now, each in each of its versions.
    #[must_use]
    pub fn custom(&self) -> Vec<Arc<Resource>> {
        self.custom.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The objects of a resource.
    #[must_use]
    pub fn stored(&self, resource: &GroupResource) -> Option<&Arc<Stored>> {
        self.stored.get(resource)
    }

    /// All resources whose objects are stored, events once.
    pub fn all_stored(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.stored.iter().filter(|(resource, stored)| **resource == stored.resource).map(|(_, stored)| stored)
    }

    /// Waits until all reads can be answered.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn filled(&self) -> Result<(), CacheError> {
        for stored in self.all_stored() {
            let mut attempts = FILL_ATTEMPTS;
            // A large store takes longer to read than a request would wait.
            while let Err(error) = stored.filled().await {
                attempts -= 1;
                if attempts == 0 || !matches!(error, CacheError::Behind { .. }) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Commits, and waits until those who read the objects of `touched` see it.
    ///
    /// # Errors
    /// See [`Refused`].
    pub async fn commit(&self, ops: Vec<Op>, touched: &[&Stored]) -> Result<Revision, Refused> {
        let committed = self.store.commit(ops).await.map_err(|error| match error {
            CommitError::Conflict(conflict) => Refused::Conflict(conflict),
            CommitError::Input(error) => Refused::Status(input_error(&error)),
            CommitError::Fault(fault) => Refused::Status(Status::internal_error(fault)),
            CommitError::Uncertain(fault) => {
                Refused::Status(Status::timeout(format!("it is not known whether this was stored: {fault}"), 1))
            }
        })?;
        for stored in touched {
            stored.cache.follow(committed.revision).await.map_err(|error| Refused::Status(cache_status(error)))?;
        }
        Ok(committed.revision)
    }

    /// The present time, as objects have it.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from(self.clock.now())
    }
}

impl Objects for Registry {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        self.stored.get(resource)?.cache.peek(namespace, name)
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Object>> {
        self.stored.get(resource).map_or_else(Vec::new, |stored| stored.cache.peek_all(namespace))
    }
}

fn input_error(error: &InputError) -> Status {
    match error {
        InputError::ValueTooLarge { .. } | InputError::CommitTooLarge { .. } => {
            Status::request_entity_too_large("etcdserver: request is too large")
        }
        other => Status::internal_error(other),
    }
}

/// What a client is told when the read side has no answer.
#[must_use]
pub fn cache_status(error: CacheError) -> Status {
    match error {
        CacheError::TooLarge { asked, current } => Status::too_large_resource_version(asked.0, current.0, 1),
        CacheError::Expired { .. } => Status::resource_expired(error.to_string()),
        CacheError::Behind { .. } => Status::timeout(error, 1),
        CacheError::TooManyWatchers => Status::too_many_requests(error.to_string(), 1),
        CacheError::Closed => Status::service_unavailable("the server is shutting down"),
        CacheError::Store(error) => Status::internal_error(error),
    }
}

/// The object whose JSON the store or a cache has.
///
/// # Errors
/// 500 when it is not one; nothing of ours writes that.
pub fn parse(bytes: &[u8]) -> Result<Map, Status> {
    match json::parse(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Status::internal_error("what is stored is not an object")),
        Err(error) => Err(Status::internal_error(error)),
    }
}
