//! Tries many interleavings of threads on the locks that are ours, and what must hold in each of them.
//!
//! `cargo test -p capstan-storage --features shuttle --lib interleavings`. The seeds are fixed: a finding belongs to
//! the change that brings it. A failure prints its schedule, which `shuttle::replay` takes. Who waits for ever is found
//! as a deadlock. What is tried here: the hub, by an engine that is as small as one can be and by broken ones; beside
//! the engines (`memory::interleavings`, `embedded::interleavings`) what is theirs.

use std::{collections::BTreeMap, sync::Arc};

use shuttle::{
    Config, Runner,
    future::block_on,
    scheduler::{PctScheduler, RandomScheduler},
    thread,
};

use crate::{
    At, Batch, Event, Fault, FaultKind, Key, KeyValue, Op, ReadError, Revision, Store, Watch, WatchItem, WatchRequest,
    hub::{self, History, Hub, Reading, Stretch},
    sync::Mutex,
};

/// How many interleavings are tried by each of the two schedulers.
const ITERATIONS: usize = 200;

const SEED: u64 = 20_260_101;

/// How many times the second scheduler takes the turn from whoever it favours.
const SWITCHES: usize = 3;

/// What a thread of the scheduler has for its frames; those of debug builds are large.
const STACK_BYTES: usize = 512 * 1024;

/// Runs `body` in many interleavings.
pub(crate) fn explore(body: impl Fn() + Send + Sync + 'static) {
    let body = Arc::new(body);
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    let again = Arc::clone(&body);
    Runner::new(RandomScheduler::new_from_seed(SEED, ITERATIONS), config.clone()).run(move || again());
    Runner::new(PctScheduler::new_from_seed(SEED, SWITCHES, ITERATIONS), config).run(move || body());
}

/// What a watch delivered, and how it ended.
#[derive(Debug)]
pub(crate) struct Seen {
    after: Revision,
    revisions: Vec<Revision>,
    end: Option<ReadError>,
}

impl Seen {
    /// Follows a watch until it ends, or until `last` is put.
    pub(crate) fn follow(mut watch: Watch, after: Revision, last: &str, mut check: impl FnMut(Revision)) -> Self {
        let (mut at, mut seen) = (after, Seen { after, revisions: Vec::new(), end: None });
        watch.request_progress();
        loop {
            match block_on(watch.next()) {
                Ok(WatchItem::Batch(batch)) => {
                    assert!(batch.revision > at, "{} comes after {at}", batch.revision);
                    at = batch.revision;
                    check(at);
                    seen.revisions.push(at);
                    if batch.events.iter().any(|event| event.key == last) {
                        return seen;
                    }
                }
                Ok(WatchItem::Progress(revision)) => {
                    assert!(revision >= at, "progress goes back from {at} to {revision}");
                    at = revision;
                }
                Err(end) => return Seen { end: Some(end), ..seen },
            }
        }
    }

    /// Checks that every change under `prefix` came, once and in order, up to the end of all or to what was compacted.
    pub(crate) fn check(&self, prefix: &str, committed: &BTreeMap<Revision, Key>) {
        let all = committed.range(self.after.next()..).filter(|(_, key)| key.starts_with(prefix.as_bytes()));
        let all: Vec<_> = all.map(|(revision, _)| *revision).collect();
        let expected = match self.end {
            Some(ReadError::Compacted { .. }) => &all[..self.revisions.len().min(all.len())],
            _ => &all[..],
        };
        assert_eq!(self.revisions, expected, "a watch of {prefix:?} missed changes: {self:?}");
    }
}

/// Commits, joins, leaves and compacts on a store all at once, and checks every watch.
pub(crate) fn check_watches(store: &Arc<impl Store>) {
    const LAST: &str = "a/last";
    let put = |store: &dyn Store, key: &str| {
        let committed = block_on(store.commit(vec![Op::put(key.to_owned(), "v")])).unwrap();
        (committed.revision, Key::from(key.to_owned()))
    };
    let watch = |store: &dyn Store, prefix: &str, after| {
        block_on(store.watch(WatchRequest { prefix: prefix.to_owned().into(), after }))
    };
    let start = block_on(store.revision()).unwrap();
    let committers = [["a/1", "b/1"], ["a/2", "a/1"]].map(|keys| {
        let store = Arc::clone(store);
        thread::spawn(move || keys.map(|key| put(&*store, key)))
    });
    let watchers = [("a/", start), ("", start.next())].map(|(prefix, after)| {
        let store = Arc::clone(store);
        let follow = move || {
            block_on(store.get("a/1".into(), At::NotOlderThan(after))).unwrap();
            match watch(&*store, prefix, after) {
                Ok(watch) => Seen::follow(watch, after, LAST, |at| {
                    let present = block_on(store.revision()).unwrap();
                    assert!(present >= at, "a watch shows {at} when reads show {present}");
                }),
                Err(end) => Seen { after, revisions: Vec::new(), end: Some(end) },
            }
        };
        (prefix, thread::spawn(follow))
    });
    let leaving = Arc::clone(store);
    let leaver = thread::spawn(move || {
        let mut watch = watch(&*leaving, "a/", block_on(leaving.revision()).unwrap()).ok()?;
        watch.request_progress();
        block_on(watch.next()).ok()
    });
    let compacting = Arc::clone(store);
    let compactor = thread::spawn(move || {
        let revision = block_on(compacting.revision()).unwrap();
        block_on(compacting.compact(revision)).unwrap();
    });
    let mut all: Vec<_> = committers.into_iter().flat_map(|committer| committer.join().unwrap()).collect();
    all.push(put(&**store, LAST));
    let committed: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(committed.len(), all.len(), "every commit has a revision of its own: {all:?}");
    compactor.join().unwrap();
    leaver.join().unwrap();
    for (prefix, watcher) in watchers {
        watcher.join().unwrap().check(prefix, &committed);
    }
}

/// What can be wrong with an engine that uses the hub.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    None,
    /// It does not wake whom it is told to.
    Unwoken,
    /// It lets go of its lock before it publishes.
    PublishesUnlocked,
    /// It tells how far history was read by a second look at where it stands.
    LooksTwice,
}

/// An engine as small as one can be.
struct Engine {
    hub: Arc<Hub>,
    /// The commits since [`Revision::INITIAL`].
    log: Mutex<Vec<Arc<[Event]>>>,
    bug: Bug,
}

impl Engine {
    fn revision(&self) -> Revision {
        Revision(Revision::INITIAL.0 + self.log.lock().unwrap().len() as u64)
    }

    fn put(&self, key: &str) {
        let key = Key::from(key.to_owned());
        let mut log = self.log.lock().unwrap();
        let revision = Revision(Revision::INITIAL.0 + log.len() as u64 + 1);
        let item = KeyValue { key: key.clone(), value: "v".into(), mod_revision: revision };
        let events: Arc<[Event]> = [Event { key, current: Some(item), previous: None }].into();
        log.push(Arc::clone(&events));
        let log = (self.bug != Bug::PublishesUnlocked).then_some(log);
        let wakeups = self.hub.publish(revision, &events);
        drop(log);
        if self.bug != Bug::Unwoken {
            wakeups.wake();
        }
    }
}

impl History for Engine {
    fn read(&self, prefix: &Key, after: Revision) -> Reading {
        let log = self.log.lock().unwrap().clone();
        let commits = log.iter().zip(Revision::INITIAL.0 + 1..).map(|(events, revision)| (Revision(revision), events));
        let commits = commits.filter(|(revision, _)| *revision > after);
        let batches = commits.filter_map(|(revision, events)| {
            let events = hub::under(prefix, events)?;
            Some(Batch { revision, events })
        });
        let batches = batches.collect();
        let read = Revision(Revision::INITIAL.0 + log.len() as u64);
        let through = if self.bug == Bug::LooksTwice { self.revision() } else { read };
        Box::pin(std::future::ready(Ok(Stretch { batches, through })))
    }
}

/// Commits, joins and leaves at a hub that keeps `budget` bytes, and closes it while watches wait.
fn check_hub(bug: Bug, budget: usize) {
    let hub = Arc::new(Hub::new(Revision::INITIAL, budget));
    let engine = Arc::new(Engine { hub, log: Mutex::new(Vec::new()), bug });
    let watch = |engine: &Arc<Engine>, prefix: &str, after| {
        let request = WatchRequest { prefix: prefix.to_owned().into(), after };
        engine.hub.watch(request, Arc::clone(engine) as Arc<dyn History>).unwrap()
    };
    let committers = [["a/1", "b/1"], ["b/2", "a/2"]].map(|keys| {
        let engine = Arc::clone(&engine);
        thread::spawn(move || keys.into_iter().for_each(|key| engine.put(key)))
    });
    let watchers = ["a/", "a/", ""].map(|prefix| {
        let engine = Arc::clone(&engine);
        let follow = move || {
            let after = engine.revision();
            Seen::follow(watch(&engine, prefix, after), after, "", |_| {})
        };
        (prefix, thread::spawn(follow))
    });
    let leaving = Arc::clone(&engine);
    let leaver = thread::spawn(move || drop(watch(&leaving, "a/", Revision::INITIAL)));
    committers.into_iter().for_each(|committer| committer.join().unwrap());
    leaver.join().unwrap();
    engine.hub.close(Fault::new(FaultKind::Closed, "over")).wake();
    let log = engine.log.lock().unwrap().clone();
    let committed = (Revision::INITIAL.0 + 1..).map(Revision).zip(log.iter().map(|events| events[0].key.clone()));
    let committed = committed.collect();
    for (prefix, watcher) in watchers {
        let seen = watcher.join().unwrap();
        assert!(matches!(&seen.end, Some(ReadError::Fault(fault)) if fault.kind == FaultKind::Closed), "{seen:?}");
        seen.check(prefix, &committed);
    }
}

/// Keeps one commit or so: watches read history all the time.
const LITTLE: usize = 200;

#[test]
fn a_watch_of_the_hub_sees_each_revision_once_until_it_is_closed() {
    for budget in [0, LITTLE, hub::RECENT_BYTES] {
        explore(move || check_hub(Bug::None, budget));
    }
}

/// A commit that nobody follows with another: who waits for it must be woken by it.
fn check_wakeup(bug: Bug) {
    let hub = Arc::new(Hub::new(Revision::INITIAL, hub::RECENT_BYTES));
    let engine = Arc::new(Engine { hub, log: Mutex::new(Vec::new()), bug });
    let watching = Arc::clone(&engine);
    let watcher = thread::spawn(move || {
        let request = WatchRequest { prefix: Key::new(), after: Revision::INITIAL };
        let watch = watching.hub.watch(request, Arc::clone(&watching) as Arc<dyn History>).unwrap();
        Seen::follow(watch, Revision::INITIAL, "a/1", |_| {})
    });
    engine.put("a/1");
    assert_eq!(watcher.join().unwrap().revisions.len(), 1);
}

#[test]
fn no_wakeup_is_lost_between_registration_and_publication() {
    explore(|| check_wakeup(Bug::None));
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_engine_that_does_not_wake_is_found() {
    explore(|| check_wakeup(Bug::Unwoken));
}

#[test]
#[should_panic(expected = "published out of order")]
fn an_engine_that_publishes_without_its_lock_is_found() {
    explore(|| check_hub(Bug::PublishesUnlocked, hub::RECENT_BYTES));
}

#[test]
#[should_panic(expected = "missed changes")]
fn an_engine_that_looks_twice_is_found() {
    explore(|| check_hub(Bug::LooksTwice, 0));
}
