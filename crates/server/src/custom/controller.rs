//! The task that follows the definitions: which names they get, what is served, what discovery says, and their
//! conditions.
//!
//! A definition is served before its conditions say so: who sees that it is established finds it served. All is decided
//! from the present state of the cache, whatever events led to it, and written with the revision that was seen.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use capstan_api::{GroupVersion, GroupVersionKind, Map, Name, Str, Value};
use capstan_storage::Op;
use tokio::task::JoinSet;

use super::{
    DEFINITIONS, SCALE, SUBRESOURCE_VERBS, TERMINATING_VERBS, VERBS, conditions,
    definition::{Definition, Served},
    deletion,
    names::{Names, Taken},
};
use crate::{
    cache::{CacheError, Object, ReadAt, WatchItem, WatchQuery, WatchStart, Watcher},
    discovery::{ApiResource, ApiSubresource, Discovery},
    handlers::managed,
    registry::{
        Registry, Resource, Stored, encode,
        live::{Refused, parse},
        paths,
    },
};

/// How long until a write that went wrong is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Serves the definitions that there are, and follows them in a task.
pub(crate) async fn start(
    registry: &Arc<Registry>,
    discovery: &Arc<Discovery>,
    tasks: &mut JoinSet<()>,
) -> Result<(), CacheError> {
    let Some(stored) = registry.stored(&DEFINITIONS).cloned() else { return Ok(()) };
    let mut controller = Controller {
        registry: Arc::clone(registry),
        discovery: Arc::clone(discovery),
        definitions: Arc::clone(&stored),
        known: HashMap::new(),
        taken: HashMap::new(),
        refused: HashMap::new(),
        deletions: JoinSet::new(),
    };
    for object in stored.cache.peek_all("") {
        if let Ok(crd) = parse(&object.json) {
            controller.observe(&crd, &object);
        }
    }
    let watcher = watch(&stored).await?;
    tasks.spawn(controller.run(watcher));
    Ok(())
}

pub(super) fn watch(stored: &Stored) -> impl Future<Output = Result<Watcher, CacheError>> {
    stored.cache.watch(WatchQuery::all(WatchStart::State { at: ReadAt::Any, closing_bookmark: false }))
}

struct Controller {
    registry: Arc<Registry>,
    discovery: Arc<Discovery>,
    definitions: Arc<Stored>,
    /// What is known of each definition, by name.
    known: HashMap<Str, Known>,
    /// The names that are taken, by group.
    taken: HashMap<Name, Taken>,
    /// The definitions that did not get all their names, by group.
    refused: HashMap<Name, BTreeSet<Str>>,
    deletions: JoinSet<Str>,
}

/// A definition as it was last seen.
struct Known {
    group: Name,
    accepted: Names,
    generation: i64,
    uid: Str,
    served: Option<Serving>,
    deleting: bool,
}

/// A definition that is served.
struct Serving {
    definition: Arc<Definition>,
    stored: Arc<Stored>,
    resources: Vec<Arc<Resource>>,
}

/// What wakes the controller.
enum Wakeup {
    Changed(Str),
    Deleted(Str),
    Retry,
    Nothing,
    End,
}

impl Controller {
    async fn run(mut self, mut watcher: Watcher) {
        let mut queue: VecDeque<Str> = VecDeque::new();
        let mut queued: HashSet<Str> = HashSet::new();
        let mut later: BTreeSet<Str> = BTreeSet::new();
        loop {
            while let Some(name) = queue.pop_front() {
                queued.remove(&name);
                let mut others = BTreeSet::new();
                if self.sync(&name, &mut others).await.is_err() {
                    later.insert(name);
                }
                queue.extend(others.into_iter().filter(|name| queued.insert(name.clone())));
            }
            match self.wait(&mut watcher, !later.is_empty()).await {
                Wakeup::Changed(name) => {
                    if queued.insert(name.clone()) {
                        queue.push_back(name);
                    }
                }
                Wakeup::Deleted(name) => {
                    if let Some(known) = self.known.get_mut(&name) {
                        known.deleting = false;
                    }
                    later.insert(name);
                }
                Wakeup::Retry => {
                    queue.extend(std::mem::take(&mut later).into_iter().filter(|name| queued.insert(name.clone())));
                }
                Wakeup::Nothing => {}
                Wakeup::End => return,
            }
        }
    }

    /// Waits for the next thing that happens.
    async fn wait(&mut self, watcher: &mut Watcher, retry: bool) -> Wakeup {
        let clock = Arc::clone(&self.registry.clock);
        let item = tokio::select! {
            item = watcher.next() => item,
            Some(name) = self.deletions.join_next() => {
                return name.map_or(Wakeup::Nothing, Wakeup::Deleted);
            }
            () = clock.sleep(RETRY), if retry => return Wakeup::Retry,
        };
        match item {
            Ok(WatchItem::Event(event)) => Wakeup::Changed(Str::from(event.object().name())),
            Ok(WatchItem::Bookmark { .. }) => Wakeup::Nothing,
            Err(CacheError::Closed) => Wakeup::End,
            Err(_) => match watch(&self.definitions).await {
                Ok(again) => {
                    *watcher = again;
                    Wakeup::Nothing
                }
                Err(_) => Wakeup::End,
            },
        }
    }

    /// Makes everything as the definition says. `others` gets those that may get names now which they did not get.
    async fn sync(&mut self, name: &Str, others: &mut BTreeSet<Str>) -> Result<(), ()> {
        let Some(object) = self.definitions.cache.peek("", name) else {
            self.forget(name, others);
            return Ok(());
        };
        let Ok(crd) = parse(&object.json) else { return Ok(()) };
        let before = self.known.get(name).map(|known| known.accepted.clone());
        self.observe(&crd, &object);
        let group = Name::from(paths::text(&crd, "spec.group"));
        if before.is_some_and(|before| before != Names::of(paths::get(&crd, "status.acceptedNames"))) {
            others.extend(self.refused.get(&group).into_iter().flatten().filter(|other| *other != name).cloned());
        }
        if object.deletion_timestamp.is_some() {
            self.delete(name, &object);
            return Ok(());
        }
        let new = self.with_conditions(name, &group, crd.clone());
        if new == crd {
            return Ok(());
        }
        self.serve(name, &new, &object);
        let mut new = new;
        managed::track_own(self.definitions.as_ref(), "status", Some(&crd), &mut new, self.registry.now());
        paths::remove(&mut new, "metadata.resourceVersion");
        let op = Op::update(self.definitions.key("", name), encode(&new), object.revision);
        match self.registry.commit(vec![op], &[&self.definitions]).await {
            // The write comes back as an event; so does what stood in its way.
            Ok(_) | Err(Refused::Conflict(_)) => Ok(()),
            Err(Refused::Status(_)) => Err(()),
        }
    }

    /// The definition with the names that it gets and the conditions that hold.
    fn with_conditions(&mut self, name: &Str, group: &Name, mut crd: Map) -> Map {
        let now = self.registry.now();
        let wanted = Names::of(paths::get(&crd, "spec.names"));
        let has = Names::of(paths::get(&crd, "status.acceptedNames"));
        let waits = self.refused.entry(group.clone()).or_default();
        if wanted != has {
            let (names, conflict) = self.taken.entry(group.clone()).or_default().accept(&wanted, &has);
            if conflict.is_some() {
                waits.insert(name.clone())
            } else {
                waits.remove(name)
            };
            paths::set(&mut crd, "status.acceptedNames", to_map(&names));
            conditions::naming(&mut crd, conflict.as_ref(), now);
        } else {
            waits.remove(name);
            if conditions::is_true(&crd, "NamesAccepted") {
                conditions::naming(&mut crd, None, now);
            }
        }
        if self.refused.get(group).is_some_and(BTreeSet::is_empty) {
            self.refused.remove(group);
        }
        conditions::non_structural(&mut crd, now);
        conditions::approval(&mut crd, now);
        crd
    }

    /// Takes note of a definition as it is.
    fn observe(&mut self, crd: &Map, object: &Arc<Object>) {
        let name = Str::from(object.name());
        let group = Name::from(paths::text(crd, "spec.group"));
        let accepted = Names::of(paths::get(crd, "status.acceptedNames"));
        let taken = self.taken.entry(group.clone()).or_default();
        if let Some(known) = self.known.get(&name) {
            taken.remove(&known.accepted);
        }
        taken.add(&accepted);
        let (generation, uid) = (paths::number(crd, "metadata.generation"), object.uid.clone());
        let known = self.known.entry(name.clone()).or_insert_with(|| Known {
            group,
            accepted: Names::default(),
            generation,
            uid: uid.clone(),
            served: None,
            deleting: false,
        });
        known.accepted = accepted;
        if known.uid != uid {
            known.deleting = false;
            known.uid = uid;
        }
        self.serve(&name, crd, object);
    }

    /// Serves a definition as it is, if its names are accepted.
    fn serve(&mut self, name: &Str, crd: &Map, object: &Arc<Object>) {
        let Some(known) = self.known.get_mut(name) else { return };
        let accepted = conditions::is_true(crd, "NamesAccepted") || conditions::is_true(crd, "Established");
        let generation = paths::number(crd, "metadata.generation");
        let old = known.served.take();
        if !accepted {
            self.replace(old, None);
            return;
        }
        let definition = Definition::new(crd, Arc::clone(object));
        let before = std::mem::replace(&mut known.generation, generation);
        let same = old.as_ref().is_some_and(|Serving { definition: old, .. }| {
            before == generation && old.uid == definition.uid && old.names == definition.names
        });
        if same && old.as_ref().is_some_and(|old| old.definition.terminating == definition.terminating) {
            known.served = old;
            return;
        }
        let definition = Arc::new(definition);
        let kept = old.as_ref().filter(|_| same).map(|old| Arc::clone(&old.stored));
        let stored = kept.unwrap_or_else(|| {
            let (store, clock) = (Arc::clone(&self.registry.store), Arc::clone(&self.registry.clock));
            Arc::new(Stored::custom(&definition, store, clock))
        });
        let resources = Served::all(&definition).map(|served| Arc::new(Resource::custom(served, Arc::clone(&stored))));
        let new = Serving { resources: resources.collect(), stored, definition };
        self.replace(old, Some(new));
    }

    /// Serves one thing instead of another, all at once.
    fn replace(&mut self, old: Option<Serving>, new: Option<Serving>) {
        let resources = |serving: &Option<Serving>| serving.as_ref().map_or(Vec::new(), |one| one.resources.clone());
        self.registry.replace_custom(&resources(&old), &resources(&new));
        if let Some(old) = &old {
            let (group, plural) = (&old.definition.group, &old.definition.names.plural);
            let stays = new.as_ref().is_some_and(|new| new.definition.names.plural == *plural);
            if !stays {
                self.discovery.set_custom(group, plural, Vec::new());
            }
            // Those who watch begin again, under the new schema.
            let kept = new.as_ref().is_some_and(|new| Arc::ptr_eq(&new.stored, &old.stored));
            if let Some(cache) = old.stored.cache.started().filter(|_| !kept) {
                cache.end_watches();
            }
        }
        if let Some(new) = new {
            let definition = &new.definition;
            self.discovery.set_custom(&definition.group, &definition.names.plural, rows(definition));
            let name = format!("{}.{}", definition.names.plural, definition.group);
            if let Some(known) = self.known.get_mut(&*name) {
                known.served = Some(new);
            }
        }
    }

    /// A definition is gone, and so are its names.
    fn forget(&mut self, name: &Str, others: &mut BTreeSet<Str>) {
        let Some(mut known) = self.known.remove(name) else { return };
        let served = known.served.take();
        self.replace(served, None);
        if let Some(taken) = self.taken.get_mut(&known.group) {
            taken.remove(&known.accepted);
            if taken.is_empty() {
                self.taken.remove(&known.group);
            }
        }
        if let Some(refused) = self.refused.get_mut(&known.group) {
            refused.remove(name);
            others.extend(refused.iter().cloned());
        }
    }

    /// Deletes what is left of a definition, in a task of its own.
    fn delete(&mut self, name: &Str, object: &Object) {
        let holds = object.finalizers.iter().any(|finalizer| finalizer == deletion::FINALIZER);
        let Some(known) = self.known.get_mut(name).filter(|known| holds && !known.deleting) else { return };
        known.deleting = true;
        let instances = known.served.as_ref().map(|served| Arc::clone(&served.stored));
        let (registry, definitions) = (Arc::clone(&self.registry), Arc::clone(&self.definitions));
        let (name, uid) = (name.clone(), known.uid.clone());
        self.deletions.spawn(async move {
            let deletion = deletion::Deletion { registry, definitions, name: name.clone(), uid, instances };
            deletion.run().await;
            name
        });
    }
}

fn to_map(names: &Names) -> Map {
    let mut map = Map::new();
    let list = |names: &[Name]| names.iter().map(|name| Value::from(name.as_str())).collect::<Vec<_>>();
    map.insert("plural", names.plural.as_str());
    map.insert("kind", names.kind.as_str());
    for (key, name) in [("singular", &names.singular), ("listKind", &names.list_kind)] {
        if !name.is_empty() {
            map.insert(key, name.as_str());
        }
    }
    for (key, names) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        if !names.is_empty() {
            map.insert(key, list(names));
        }
    }
    map
}

/// What discovery says of a definition.
pub(crate) fn rows(definition: &Definition) -> Vec<ApiResource> {
    let names = &definition.names;
    let name_list = |names: &[&'static str]| names.iter().map(|name| Name::from_static(name)).collect::<Vec<_>>();
    let verbs = if definition.terminating { name_list(&TERMINATING_VERBS) } else { name_list(&VERBS) };
    let storage = definition.versions.get(definition.storage()).filter(|version| version.served);
    let storage = storage.map(|_| definition.storage_gvk());
    let served = definition.versions.iter().filter(|version| version.served);
    let row = |version: &super::Version| {
        let group_version = GroupVersion { group: definition.group.clone(), version: version.name.clone() };
        let part = |name: &'static str, kind: GroupVersionKind| ApiSubresource {
            name: Name::from_static(name),
            kind,
            verbs: name_list(&SUBRESOURCE_VERBS),
        };
        let status = version.status.then(|| part("status", group_version.with_kind(names.kind.clone())));
        let scale = version.scale.is_some().then(|| part("scale", SCALE.clone()));
        ApiResource {
            group_version,
            kind: names.kind.clone(),
            resource: names.plural.clone(),
            singular: names.singular.clone(),
            namespaced: definition.namespaced,
            short_names: names.short_names.clone(),
            categories: names.categories.clone(),
            verbs: verbs.clone(),
            subresources: status.into_iter().chain(scale).collect(),
            storage: storage.clone(),
            custom: true,
        }
    };
    served.map(row).collect()
}
