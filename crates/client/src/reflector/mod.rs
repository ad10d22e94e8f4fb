//! Keeping a store as the server has it: list, then watch.

pub mod backoff;
pub mod machine;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind,
    object::{Encoded, Object},
    watch_event::{EventType, WatchEvent},
};
use capstan_clock::{SharedClock, SharedIds, Sleep};

use crate::{
    Error, Kept, Key, ListPage, ListerWatcher, WatchStream,
    beat::{Either, race},
    failure,
    kept::{self, Decode, Named, Packing},
};
use machine::{Config, Effect, Input, Machine, Next};

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How many different failures are known to have been told of.
const TOLD: usize = 8;

/// How much longer than it should a watch may last before it is given up: who asked for its end may be gone.
const WATCH_GRACE: Duration = Duration::from_secs(30);

/// Changes an object before anybody sees it, to save memory for instance.
pub type TransformFunc<K> = Arc<dyn Fn(K) -> Result<K, String> + Send + Sync>;

/// Hears of failures. None of them ends a reflector.
pub type WatchErrorHandler = Arc<dyn Fn(&ReflectorError) + Send + Sync>;

/// What went wrong in a reflector.
#[derive(Clone, Debug, PartialEq)]
pub enum ReflectorError {
    /// The list or the watch failed; it will be tried again.
    Source(Error),
    /// An object could not be read. If an older state of it is known, that one stays.
    BadObject {
        /// Which, if that much could be read.
        key: Option<Key>,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for ReflectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReflectorError::Source(error) => error.fmt(f),
            ReflectorError::BadObject { key: Some(key), reason } => write!(f, "unable to understand {key}: {reason}"),
            ReflectorError::BadObject { key: None, reason } => write!(f, "unable to understand an object: {reason}"),
        }
    }
}

impl std::error::Error for ReflectorError {}

/// Where a reflector puts what it sees. Calls come one at a time, in the order of the server.
pub trait ReflectorStore<K>: Send {
    /// Whether nothing is known.
    fn is_empty(&self) -> bool;
    /// What is known under a key.
    fn get(&self, key: &str) -> Option<Kept<K>>;
    /// An object came.
    fn add(&mut self, key: Key, object: Kept<K>);
    /// An object changed.
    fn update(&mut self, key: Key, object: Kept<K>);
    /// An object is gone; without its last state if that could not be read.
    fn delete(&mut self, key: Key, object: Option<Kept<K>>);
    /// These are all objects.
    fn replace(&mut self, objects: BTreeMap<Key, Kept<K>>);
    /// Everything up to this version is known.
    fn synced_to(&mut self, resource_version: &str);
}

/// Keeps a store as the server has it.
pub struct Reflector<K, S> {
    source: Arc<dyn ListerWatcher>,
    store: S,
    machine: Machine,
    clock: SharedClock,
    decode: Decode,
    packing: Option<Packing>,
    on_error: Option<WatchErrorHandler>,
    /// What was told since a watch last worked: failures that go on are told of once.
    told: VecDeque<Error>,
    collected: BTreeMap<Key, Kept<K>>,
}

impl<K, S> fmt::Debug for Reflector<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("source", &self.source)
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

/// What could be read of an object.
enum Read<K> {
    Whole(Named<K>),
    Bad { key: Option<Key>, resource_version: String },
}

impl<K: Object, S: ReflectorStore<K>> Reflector<K, S> {
    /// One that does nothing until it runs.
    pub fn new(source: Arc<dyn ListerWatcher>, store: S, config: Config, clock: SharedClock, ids: SharedIds) -> Self {
        Reflector::with_decode(source, store, config, clock, ids, kept::decoder::<K>(None))
    }

    /// Changes every object before the store gets it.
    #[must_use]
    pub fn with_transform(mut self, transform: Option<TransformFunc<K>>) -> Self {
        self.decode = kept::decoder(transform);
        self
    }
}

impl<K, S: ReflectorStore<K>> Reflector<K, S> {
    /// One that leaves it to others to know of which type objects are.
    pub(crate) fn with_decode(
        source: Arc<dyn ListerWatcher>,
        store: S,
        config: Config,
        clock: SharedClock,
        ids: SharedIds,
        decode: Decode,
    ) -> Self {
        Reflector {
            source,
            store,
            machine: Machine::new(config, ids),
            clock,
            decode,
            packing: None,
            on_error: None,
            told: VecDeque::new(),
            collected: BTreeMap::new(),
        }
    }

    /// Keeps objects packed.
    #[must_use]
    pub(crate) fn with_packing(mut self, packing: Option<Packing>) -> Self {
        self.packing = packing;
        self
    }

    /// Tells of failures.
    #[must_use]
    pub fn with_error_handler(mut self, handler: Option<WatchErrorHandler>) -> Self {
        self.on_error = handler;
        self
    }

    /// Lists and watches until it is dropped.
    pub async fn run(mut self) {
        let source = Arc::clone(&self.source);
        let mut watch: Option<(WatchStream, Sleep)> = None;
        let mut next = self.machine.start(self.clock.monotonic());
        loop {
            next = match next {
                Next::Wait(wait) => {
                    watch = None;
                    self.clock.sleep(wait).await;
                    self.step(&Input::Waited, |_, _| {})
                }
                Next::List(options) => {
                    watch = None;
                    match source.list(options).await {
                        Ok(page) => self.page(&page),
                        Err(error) => self.failed(error),
                    }
                }
                Next::Watch(options) => {
                    drop(watch.take());
                    let seconds = options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok());
                    let lasts = seconds.map_or(Duration::MAX, |seconds| Duration::from_secs(seconds) + WATCH_GRACE);
                    match source.watch(options).await {
                        Ok(stream) => {
                            watch = Some((stream, self.clock.sleep(lasts)));
                            self.step(&Input::Started, |_, _| {})
                        }
                        Err(error) => self.failed(error),
                    }
                }
                Next::Read => match &mut watch {
                    None => self.step(&Input::Ended, |_, _| {}),
                    Some((stream, over)) => match race(stream.next(), over).await {
                        Either::First(Some(Ok(event))) => self.event(&event),
                        Either::First(Some(Err(error))) => self.failed(error),
                        Either::First(None) | Either::Second(()) => self.step(&Input::Ended, |_, _| {}),
                    },
                },
            };
        }
    }

    /// Asks the machine and does to the store what it says; `apply` is what came.
    fn step(&mut self, input: &Input<'_>, apply: impl FnOnce(&mut Self, bool)) -> Next {
        let (effect, next) = self.machine.step(self.clock.monotonic(), input);
        match effect {
            Effect::Nothing => {}
            Effect::Collect => apply(self, true),
            Effect::Discard => self.collected.clear(),
            Effect::Replace(_) => {
                apply(self, true);
                let objects = std::mem::take(&mut self.collected);
                self.store.replace(objects);
            }
            Effect::Apply => apply(self, false),
        }
        self.store.synced_to(self.machine.last_sync_resource_version());
        next
    }

    fn failed(&mut self, error: Error) -> Next {
        let next = self.step(&Input::Failed(&error), |_, _| {});
        // What needs no wait was no failure, and versions expire in the course of things.
        if matches!(next, Next::Wait(_)) && !error.is_expired() && !self.told.contains(&error) {
            self.told.truncate(TOLD - 1);
            self.told.push_front(error.clone());
            self.tell(&ReflectorError::Source(error));
        }
        next
    }

    fn tell(&self, error: &ReflectorError) {
        if let Some(on_error) = &self.on_error {
            on_error(error);
        }
    }

    fn page(&mut self, page: &ListPage) -> Next {
        let (resource_version, continue_token) = (page.resource_version.as_str(), page.continue_token.as_str());
        self.step(&Input::Page { resource_version, continue_token }, |this, _| {
            for item in &page.items {
                this.collect(page.encoded(item), page.item_kind.as_ref());
            }
        })
    }

    /// Puts an object of a list to the others. What the store has already in this version is not read again, and of
    /// what cannot be read the state that the store has stays: it is not gone.
    fn collect(&mut self, item: Encoded<'_>, kind: Option<&GroupVersionKind>) {
        match self.known(item).map_or_else(|| self.read(item, kind), Read::Whole) {
            Read::Whole(Named { key, object, .. }) => drop(self.collected.insert(key, object)),
            Read::Bad { key: Some(key), .. } => {
                if let Some(known) = self.store.get(key.as_str()) {
                    self.collected.insert(key, known);
                }
            }
            Read::Bad { key: None, .. } => {}
        }
    }

    /// The object that the store has, if it is in the same state.
    fn known(&self, item: Encoded<'_>) -> Option<Named<K>> {
        if self.store.is_empty() {
            return None;
        }
        let metadata = item.metadata().ok().filter(|metadata| !metadata.resource_version.is_empty())?;
        let key = Key::new(&metadata.namespace, &metadata.name);
        let object = self.store.get(key.as_str())?;
        let same = object.is_at(&metadata.uid, &metadata.resource_version);
        same.then(|| Named { key, object, resource_version: metadata.resource_version.into_owned() })
    }

    fn read(&self, encoded: Encoded<'_>, kind: Option<&GroupVersionKind>) -> Read<K> {
        let mut encoded = encoded;
        if self.machine.config().no_managed_fields {
            encoded = encoded.without_managed_fields();
        }
        // What is not ours may panic: then it is this object that cannot be had, and no other.
        let read = catch_unwind(AssertUnwindSafe(|| (self.decode)(encoded, kind, self.packing.as_ref())));
        match read.unwrap_or_else(|_| Err("reading it panicked".to_owned())) {
            Ok(Named { key, resource_version, object }) if !key.name().is_empty() => {
                Read::Whole(Named { key, resource_version, object: object.cast() })
            }
            other => {
                let reason = other.err().unwrap_or_else(|| "it has no name".to_owned());
                let metadata = encoded.metadata().unwrap_or_default();
                let key = (!metadata.name.is_empty()).then(|| Key::new(&metadata.namespace, &metadata.name));
                self.tell(&ReflectorError::BadObject { key: key.clone(), reason });
                Read::Bad { key, resource_version: metadata.resource_version.into_owned() }
            }
        }
    }

    fn event(&mut self, event: &WatchEvent<Bytes>) -> Next {
        let event_type = event.event_type;
        if event_type == EventType::Error {
            return self.failed(failure::of_event(&event.object));
        }
        if !self.machine.is_collecting() {
            self.told.clear();
        }
        if event_type == EventType::Bookmark {
            let metadata = Encoded::new(&event.object).metadata().unwrap_or_default();
            let initial_events_end =
                metadata.annotations.iter().any(|(key, value)| key == INITIAL_EVENTS_END && value == "true");
            let resource_version = metadata.resource_version.as_ref();
            return self.step(&Input::Event { event_type, resource_version, initial_events_end }, |_, _| {});
        }
        let encoded = Encoded::new(&event.object);
        // When everything is sent again, what has not changed is not read again.
        let known = if self.machine.is_collecting() { self.known(encoded) } else { None };
        let read = known.map_or_else(|| self.read(encoded, None), Read::Whole);
        let (Read::Whole(Named { resource_version, .. }) | Read::Bad { resource_version, .. }) = &read;
        let resource_version = resource_version.clone();
        let input = Input::Event { event_type, resource_version: &resource_version, initial_events_end: false };
        self.step(&input, |this, collecting| this.apply(event_type, read, collecting))
    }

    fn apply(&mut self, event_type: EventType, read: Read<K>, collecting: bool) {
        let gone = event_type == EventType::Deleted;
        match read {
            Read::Whole(Named { key, .. }) | Read::Bad { key: Some(key), .. } if collecting && gone => {
                self.collected.remove(&key);
            }
            Read::Whole(Named { key, object, .. }) if collecting => {
                let known = self.store.get(key.as_str()).filter(|known| known.is_same(&object));
                self.collected.insert(key, known.unwrap_or(object));
            }
            Read::Whole(Named { key, object, .. }) if gone => self.store.delete(key, Some(object)),
            Read::Whole(Named { key, object, .. }) if event_type == EventType::Added => self.store.add(key, object),
            Read::Whole(Named { key, object, .. }) => self.store.update(key, object),
            Read::Bad { key: Some(key), .. } if gone => self.store.delete(key, None),
            Read::Bad { key: Some(key), .. } if collecting => {
                if let Some(known) = self.store.get(key.as_str()) {
                    self.collected.insert(key, known);
                }
            }
            Read::Bad { .. } => {}
        }
    }
}
