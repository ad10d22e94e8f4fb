//! The APIServices of what this server answers itself: those of custom resources come and go with their definitions,
//! those of extensions are made when there are none. Those of built-in groups are part of what a new cluster has.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, PoisonError},
};

use capstan_api::{GroupVersion, Map, Status, Str, Value};
use capstan_storage::Op;
use tokio::task::JoinSet;

use super::{API_SERVICES, Aggregator};
use crate::{
    cache::{CacheError, WatchItem, Watcher},
    custom::DEFINITIONS,
    objects::Objects as _,
    registry::{
        Stored,
        live::{Refused, parse},
        paths,
    },
    start,
};

/// Says by label that an APIService is this server's, and for how long it looks after it.
const AUTO_MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The value of that label for APIServices of custom resources.
const ALWAYS: &str = "true";
/// Where the groups of custom resources stand among others: far down.
const CUSTOM_PRIORITY: (i64, i64) = (1000, 100);
/// Where extensions stand, as metrics-server has it.
const EXTENSION_PRIORITY: (i64, i64) = (100, 100);

/// The APIService of a group version that this server answers.
fn api_service(group_version: &GroupVersion, (group, version): (i64, i64), managed: bool) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name", name_of(group_version));
    if managed {
        let mut labels = Map::new();
        labels.insert(AUTO_MANAGED, ALWAYS);
        metadata.insert("labels", labels);
    }
    let mut spec = Map::new();
    spec.insert("group", &*group_version.group);
    spec.insert("version", &*group_version.version);
    spec.insert("groupPriorityMinimum", group);
    spec.insert("versionPriority", version);
    let mut object = Map::new();
    object.insert("apiVersion", "apiregistration.k8s.io/v1");
    object.insert("kind", "APIService");
    object.insert("metadata", metadata);
    object.insert("spec", spec);
    object.into()
}

fn name_of(group_version: &GroupVersion) -> String {
    format!("{}.{}", group_version.version, group_version.group)
}

/// The group version that the name of an APIService stands for.
fn group_version_of(name: &str) -> GroupVersion {
    let (version, group) = name.split_once('.').unwrap_or((name, ""));
    GroupVersion::new(group, version)
}

/// An APIService that is this server's as it should be, if it is not.
pub(crate) fn revised(existing: &Value, expected: &Value) -> Option<Value> {
    let managed = existing.get("metadata")?.get("labels")?.get(AUTO_MANAGED).is_some();
    if !managed || existing.get("spec") == expected.get("spec") {
        return None;
    }
    let mut revised = existing.clone();
    revised.as_object_mut()?.insert("spec", expected.get("spec")?.clone());
    Some(revised)
}

/// Makes the APIServices of custom resources as they should be, now and in a task.
pub(super) async fn follow(aggregator: &Arc<Aggregator>, tasks: &mut JoinSet<()>) -> Result<(), CacheError> {
    let registry = Arc::clone(&aggregator.registry);
    let stored = |resource| registry.stored(resource).cloned();
    let (Some(definitions), Some(services)) = (stored(&DEFINITIONS), stored(&API_SERVICES)) else { return Ok(()) };
    let watchers = (start::watch_all(&definitions).await?, start::watch_all(&services).await?);
    let register = Register {
        aggregator: Arc::clone(aggregator),
        definitions,
        services,
        of: HashMap::new(),
        wanted: HashMap::new(),
    };
    tasks.spawn(register.run(watchers));
    Ok(())
}

struct Register {
    aggregator: Arc<Aggregator>,
    definitions: Arc<Stored>,
    services: Arc<Stored>,
    /// The names of the APIServices that each definition needs.
    of: HashMap<Str, BTreeSet<Str>>,
    /// How many definitions need an APIService.
    wanted: HashMap<Str, usize>,
}

/// What has changed.
enum Changed {
    Definition(Str),
    Service(Str),
    Nothing,
    Expired,
    End,
}

impl Register {
    async fn run(mut self, (mut definitions, mut services): (Watcher, Watcher)) {
        // What is managed may have lost its definition while nobody looked: all definitions are known before that is
        // decided.
        let mut names: BTreeSet<Str> = BTreeSet::new();
        for definition in self.definitions.cache.peek_all("") {
            names.extend(self.observe(&Str::from(definition.name())));
        }
        names.extend(self.services.cache.peek_all("").iter().map(|service| Str::from(service.name())));
        loop {
            for name in std::mem::take(&mut names) {
                // Who stands in the way comes back as an event.
                let _ = self.sync(&name).await;
            }
            let changed = tokio::select! {
                item = definitions.next() => changed(item, Changed::Definition),
                item = services.next() => changed(item, Changed::Service),
            };
            match changed {
                Changed::Definition(name) => names = self.observe(&name),
                Changed::Service(name) => _ = names.insert(name),
                Changed::Nothing => {}
                Changed::Expired => {
                    // A watch has ended: both begin again, from what there is.
                    let again = (start::watch_all(&self.definitions).await, start::watch_all(&self.services).await);
                    let (Ok(of_definitions), Ok(of_services)) = again else { return };
                    (definitions, services) = (of_definitions, of_services);
                }
                Changed::End => return,
            }
        }
    }

    /// Takes note of a definition as it is now; returns whose APIServices may have to change.
    fn observe(&mut self, name: &Str) -> BTreeSet<Str> {
        let crd = self.definitions.cache.peek("", name).and_then(|object| parse(&object.json).ok());
        let mut needs = BTreeSet::new();
        if let Some(crd) = &crd {
            let group = paths::text(crd, "spec.group");
            for version in paths::items(crd, "spec.versions") {
                if version.get("served").and_then(Value::as_bool) == Some(true) {
                    let version = version.get("name").and_then(Value::as_str).unwrap_or_default();
                    needs.insert(Str::from(name_of(&GroupVersion::new(group, version))));
                }
            }
        }
        let before = if needs.is_empty() { self.of.remove(name) } else { self.of.insert(name.clone(), needs.clone()) };
        let before = before.unwrap_or_default();
        for new in needs.difference(&before) {
            *self.wanted.entry(new.clone()).or_default() += 1;
        }
        for old in before.difference(&needs) {
            if let Some(count) = self.wanted.get_mut(old) {
                *count -= 1;
                if *count == 0 {
                    self.wanted.remove(old);
                }
            }
        }
        needs.symmetric_difference(&before).cloned().collect()
    }

    /// Makes an APIService as it should be.
    async fn sync(&self, name: &Str) -> Result<(), Status> {
        let registry = &self.aggregator.registry;
        let group_version = group_version_of(name);
        let wanted = self.wanted.contains_key(name);
        let expected = api_service(&group_version, CUSTOM_PRIORITY, true);
        let Some(found) = registry.get(&API_SERVICES, "", name) else {
            if wanted {
                return start::ensure_object(registry, expected).await;
            }
            return self.aggregator.ensure_extension(&group_version).await;
        };
        let is_ours = |(key, value): &(Str, Str)| *key == *AUTO_MANAGED && *value == *ALWAYS;
        if !found.labels.iter().any(is_ours) {
            return Ok(());
        }
        if !wanted {
            let op = Op::delete(self.services.key("", name)).expecting(found.revision);
            return match registry.commit(vec![op], &[&self.services]).await {
                Ok(_) | Err(Refused::Conflict(_)) => Ok(()),
                Err(Refused::Status(status)) => Err(status),
            };
        }
        start::ensure_object(registry, expected).await
    }
}

fn changed(item: Result<WatchItem, CacheError>, what: fn(Str) -> Changed) -> Changed {
    match item {
        Ok(WatchItem::Event(event)) => what(Str::from(event.object().name())),
        Err(CacheError::Closed) => Changed::End,
        Ok(WatchItem::Bookmark { .. }) => Changed::Nothing,
        Err(_) => Changed::Expired,
    }
}

impl Aggregator {
    /// This process answers for a group version itself, unless an APIService says otherwise.
    pub(crate) async fn extend(&self, group_version: &GroupVersion) -> Result<(), Status> {
        self.extended.lock().unwrap_or_else(PoisonError::into_inner).insert(group_version.clone());
        self.ensure_extension(group_version).await
    }

    /// Makes the APIService of an extension, if it is one and has none.
    async fn ensure_extension(&self, group_version: &GroupVersion) -> Result<(), Status> {
        let known = self.extended.lock().unwrap_or_else(PoisonError::into_inner).contains(group_version);
        if !known {
            return Ok(());
        }
        start::ensure_object(&self.registry, api_service(group_version, EXTENSION_PRIORITY, false)).await
    }
}
