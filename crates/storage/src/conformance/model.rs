//! Random operations against a model that keeps a whole copy of the keys for every revision, with shrinking.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    test_runner::{Config, TestRunner},
};

use super::world::{Engine, World, batches_through};
use crate::{
    Action, At, Batch, CommitError, ConsistencyHasher, Event, Key, KeyValue, Op, Page, Range, ReadError, Revision,
    SharedStore, Ttl, Watch, WatchItem, WatchRequest,
};

const KEYS: [&[u8]; 7] = [b"a", b"a/", b"a/1", b"a/2", b"b", b"b/\xff", b"\xff"];
const PREFIXES: [&[u8]; 6] = [b"", b"a", b"a/", b"b/", b"\xff", b"zz"];
const STARTS: [&[u8]; 6] = [b"", b"a/", b"a/1\0", b"b", b"b/\xff", b"\xff\xff"];

/// The most steps of one case.
const STEPS: usize = 40;

#[derive(Clone, Copy, Debug)]
enum Expect {
    Anything,
    Absent,
    Current,
    Stale(u64),
}

#[derive(Clone, Copy, Debug)]
enum Do {
    Put(u8, Option<u32>),
    Delete,
    Check,
}

/// Which revision, relative to where the store is when the step is taken.
#[derive(Clone, Copy, Debug)]
enum When {
    Present,
    NotOlderThan(u64),
    Back(u64),
    Zero,
    Ahead,
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(usize, Expect, Do)>),
    Get(usize, When),
    Range { prefix: usize, start: usize, limit: u32, count: bool, at: When },
    Hash(When),
    Compact(When),
    Watch { prefix: usize, after: When },
    Drain(usize),
    Advance(u64),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    let expect = prop_oneof![
        3 => Just(Expect::Anything),
        2 => Just(Expect::Absent),
        3 => Just(Expect::Current),
        1 => (0..9u64).prop_map(Expect::Stale),
    ];
    let change = prop_oneof![
        4 => any::<u8>().prop_map(|value| Do::Put(value, None)),
        1 => (any::<u8>(), 1..30u32).prop_map(|(value, ttl)| Do::Put(value, Some(ttl))),
        2 => Just(Do::Delete),
        1 => Just(Do::Check),
    ];
    let when = || {
        prop_oneof![
            3 => Just(When::Present),
            1 => (0..5u64).prop_map(When::NotOlderThan),
            5 => (0..12u64).prop_map(When::Back),
            1 => Just(When::Zero),
            1 => Just(When::Ahead),
        ]
    };
    prop_oneof![
        10 => vec((0..KEYS.len(), expect, change), 0..4).prop_map(Step::Commit),
        6 => (0..KEYS.len(), when()).prop_map(|(key, at)| Step::Get(key, at)),
        4 => (0..PREFIXES.len(), 0..STARTS.len(), 0..5u32, any::<bool>(), when())
            .prop_map(|(prefix, start, limit, count, at)| Step::Range { prefix, start, limit, count, at }),
        1 => when().prop_map(Step::Hash),
        1 => when().prop_map(Step::Compact),
        2 => (0..PREFIXES.len(), when()).prop_map(|(prefix, after)| Step::Watch { prefix, after }),
        2 => (0..4usize).prop_map(Step::Drain),
        1 => (1..20u64).prop_map(Step::Advance),
        1 => Just(Step::Snapshot),
    ]
}

/// Runs random operations on stores of the engine and compares every answer with the model's.
///
/// # Panics
/// With the shortest sequence of operations found for which they differ.
pub fn check(engine: impl Engine, cases: u32) {
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&vec(step(), 1..STEPS), |steps| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(super::watched("the model", async {
            let world = World::new(Arc::clone(&engine));
            let mut options = world.options();
            // What is compacted by itself, and when, is the engine's choice within bounds; the model does not follow
            // it.
            (options.retention.age, options.retention.bytes) = (Duration::MAX, u64::MAX);
            let store = world.open_with(options).await;
            let mut model = Model::new(world, store).await;
            for step in steps {
                model.take(step).await;
            }
        }));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

type State = BTreeMap<Key, (KeyValue, Option<u64>)>;

struct Model {
    world: World,
    store: SharedStore,
    base: Revision,
    compacted: Revision,
    /// The state after every revision, the last one being the present.
    states: BTreeMap<Revision, State>,
    batches: Vec<Batch>,
    watches: Vec<(Key, Revision, Watch)>,
    /// A watch of everything, read after every step.
    tap: Watch,
    /// Virtual milliseconds.
    time: u64,
}

impl Model {
    async fn new(world: World, store: SharedStore) -> Self {
        let base = store.revision().await.unwrap();
        let tap = store.watch(WatchRequest { prefix: Key::new(), after: base }).await.unwrap();
        let states = BTreeMap::from([(base, State::new())]);
        let (batches, watches) = (Vec::new(), Vec::new());
        Model { world, store, base, compacted: base, states, batches, watches, tap, time: 0 }
    }

    fn present(&self) -> (Revision, &State) {
        let (revision, state) = self.states.last_key_value().expect("there is always a state");
        (*revision, state)
    }

    fn at(&self, when: When) -> At {
        let now = self.present().0.0;
        // Not before the base: what an etcd that has seen others has there is not ours to know.
        let back = |by: u64| Revision(now.saturating_sub(by).max(self.base.0));
        match when {
            When::Present => At::Present,
            When::NotOlderThan(by) => At::NotOlderThan(back(by)),
            When::Back(by) => At::Exactly(back(by)),
            When::Zero => At::NotOlderThan(Revision::ABSENT),
            When::Ahead => At::Exactly(Revision(now + 1)),
        }
    }

    fn revision(&self, when: When) -> Revision {
        match self.at(when) {
            At::Present => self.present().0,
            At::NotOlderThan(revision) | At::Exactly(revision) => revision,
        }
    }

    /// The state that a read at `at` answers from, or its error. `answered` settles which one where the store has a
    /// choice.
    fn resolve(&self, at: At, answered: Option<Revision>) -> Result<(Revision, &State), ReadError> {
        let current = self.present().0;
        let revision = match at {
            At::Present => current,
            At::NotOlderThan(asked) => answered.filter(|answered| *answered >= asked).unwrap_or(current),
            At::Exactly(asked) if asked > current => return Err(ReadError::TooNew { asked, current }),
            At::Exactly(asked) if asked < self.compacted => {
                return Err(ReadError::Compacted { asked, compacted: self.compacted });
            }
            At::Exactly(asked) => asked,
        };
        Ok((revision, &self.states[&revision]))
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Commit(ops) => self.commit(&ops).await,
            Step::Get(key, when) => {
                let (key, at) = (Key::from_static(KEYS[key]), self.at(when));
                let found = self.store.get(key.clone(), at).await;
                let expected = self.resolve(at, found.as_ref().ok().map(|found| found.revision));
                let expected =
                    expected.map(|(revision, state)| (revision, state.get(&key).map(|(item, _)| item.clone())));
                assert_eq!(found.map(|found| (found.revision, found.item)), expected);
            }
            Step::Range { prefix, start, limit, count, at } => {
                let mut range = Range::prefix(PREFIXES[prefix]).starting(STARTS[start]).limited(limit).at(self.at(at));
                range.count = count;
                let page = self.store.range(range.clone()).await;
                let expected = self.resolve(range.at, page.as_ref().ok().map(|page| page.revision));
                assert_eq!(page, expected.map(|(revision, state)| range_of(state, &range, revision)));
            }
            Step::Hash(when) => {
                let at = self.at(when);
                let hash = self.store.hash(at).await;
                let expected = self.resolve(at, hash.as_ref().ok().map(|hash| hash.revision));
                let expected = expected.map(|(revision, state)| {
                    let mut hasher = ConsistencyHasher::default();
                    state.values().for_each(|(item, _)| hasher.add(item));
                    hasher.at(revision)
                });
                assert_eq!(hash, expected);
            }
            Step::Compact(when) => {
                let (asked, current) = (self.revision(when), self.present().0);
                let expected = if asked > current { Err(ReadError::TooNew { asked, current }) } else { Ok(()) };
                assert_eq!(self.store.compact(asked).await, expected);
                if expected.is_ok() {
                    self.compacted = self.compacted.max(asked);
                }
            }
            Step::Watch { prefix, after } => {
                let (prefix, after) = (Key::from_static(PREFIXES[prefix]), self.revision(after));
                let watch = self.store.watch(WatchRequest { prefix: prefix.clone(), after }).await;
                // Zero is before any window.
                let expected = self.resolve(At::Exactly(after), None).map(|_| ());
                assert_eq!(watch.as_ref().map(|_| ()).map_err(Clone::clone), expected);
                self.watches.extend(watch.ok().map(|watch| (prefix, after, watch)));
            }
            Step::Drain(index) => self.drain(index).await,
            Step::Advance(seconds) => self.advance(seconds).await,
            Step::Snapshot => {
                let info = self.store.snapshot(&self.world.path("snapshot")).await.unwrap();
                assert_eq!(info.hash, self.store.hash(At::Present).await.unwrap());
            }
        }
    }

    async fn commit(&mut self, steps: &[(usize, Expect, Do)]) {
        let (current, state) = self.present();
        let mut used = BTreeSet::new();
        let unique = steps.iter().filter(|(key, ..)| used.insert(*key));
        let ops: Vec<Op> = unique
            .map(|&(key, expect, change)| {
                let key = Key::from_static(KEYS[key]);
                let at = state.get(&key).map_or(Revision::ABSENT, |(item, _)| item.mod_revision);
                let action = match change {
                    Do::Put(value, ttl) => Action::Put {
                        value: vec![value].into(),
                        expires: ttl.and_then(|ttl| Ttl::seconds(self.ttl(ttl))),
                    },
                    Do::Delete => Action::Delete,
                    Do::Check => Action::Check,
                };
                let expected = match expect {
                    Expect::Anything => None,
                    Expect::Absent => Some(Revision::ABSENT),
                    Expect::Current => Some(at),
                    Expect::Stale(by) => Some(Revision(current.0.saturating_sub(by))),
                };
                Op { key, expected, action }
            })
            .collect();
        let failed: Vec<_> = (ops.iter().enumerate())
            .filter_map(|(index, op)| {
                let current = state.get(&op.key).map(|(item, _)| item.clone());
                let at = current.as_ref().map_or(Revision::ABSENT, |item| item.mod_revision);
                op.expected.is_some_and(|expected| expected != at).then_some((index, current))
            })
            .collect();
        let answer = self.store.commit(ops.clone()).await;
        match answer {
            Err(CommitError::Conflict(conflict)) => {
                let told: Vec<_> = conflict.failed.into_iter().map(|failed| (failed.index, failed.current)).collect();
                assert_eq!((conflict.revision, told), (current, failed));
            }
            Ok(committed) => {
                assert_eq!(failed, [], "a precondition did not hold");
                let changed = self.apply(&ops);
                assert_eq!((committed.changed, committed.revision), (changed, self.present().0));
                assert_eq!(self.store.revision().await, Ok(committed.revision));
                let seen = batches_through(&mut self.tap, committed.revision).await;
                assert_eq!(seen, self.batches[self.batches.len() - usize::from(changed)..]);
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Where time is real nothing expires while a case runs.
    fn ttl(&self, seconds: u32) -> u32 {
        if self.world.engine().virtual_time() { seconds } else { 3600 }
    }

    /// Applies what is known to succeed; returns whether it changed anything.
    fn apply(&mut self, ops: &[Op]) -> bool {
        let (current, state) = self.present();
        let (revision, mut state, mut events) = (current.next(), state.clone(), Vec::new());
        for op in ops {
            let key = op.key.clone();
            let (previous, current) = match &op.action {
                Action::Check => continue,
                Action::Delete => (state.remove(&key), None),
                Action::Put { value, expires } => {
                    let item = KeyValue { key: key.clone(), value: value.clone(), mod_revision: revision };
                    let deadline = expires.map(|ttl| self.time + ttl.duration().as_millis() as u64);
                    (state.insert(key.clone(), (item.clone(), deadline)), Some(item))
                }
            };
            if previous.is_some() || current.is_some() {
                events.push(Event { key, current, previous: previous.map(|(item, _)| item) });
            }
        }
        if events.is_empty() {
            return false;
        }
        self.states.insert(revision, state);
        self.batches.push(Batch { revision, events: events.into() });
        true
    }

    async fn drain(&mut self, index: usize) {
        if index >= self.watches.len() {
            return;
        }
        let current = self.present().0;
        let (prefix, mut position, mut watch) = self.watches.swap_remove(index);
        let expected = |position: Revision| {
            let next = self.batches.iter().filter(move |batch| batch.revision > position);
            next.map(|batch| {
                let events: Vec<_> =
                    batch.events.iter().filter(|event| event.key.starts_with(&prefix)).cloned().collect();
                Batch { revision: batch.revision, events: events.into() }
            })
            .find(|batch| !batch.events.is_empty())
        };
        watch.request_progress();
        loop {
            match watch.next().await {
                Ok(WatchItem::Batch(batch)) => {
                    assert_eq!(Some(&batch), expected(position).as_ref());
                    position = batch.revision;
                }
                Ok(WatchItem::Progress(revision)) => {
                    assert!(expected(position).is_none_or(|next| next.revision > revision), "progress was early");
                    position = position.max(revision);
                    if revision >= current {
                        break;
                    }
                    watch.request_progress();
                }
                Err(ReadError::Compacted { compacted, .. }) => {
                    assert!(compacted == self.compacted && position < compacted, "lost without a reason");
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.watches.push((prefix, position, watch));
    }

    async fn advance(&mut self, seconds: u64) {
        if !self.world.engine().virtual_time() {
            return;
        }
        // The odd milliseconds keep the time off all deadlines, whose rounding is the engine's.
        let by = seconds * 1_000 + 7;
        self.time += by;
        self.world.advance(Duration::from_millis(by));
        let time = self.time;
        let due = |state: &State| -> BTreeSet<Key> {
            let due = state.iter().filter(|(_, (_, deadline))| deadline.is_some_and(|deadline| deadline < time));
            due.map(|(key, _)| key.clone()).collect()
        };
        loop {
            let due = due(self.present().1);
            let reached = self.store.revision().await.unwrap();
            for expired in batches_through(&mut self.tap, reached).await {
                let keys: Vec<_> = expired.events.iter().map(|event| event.key.clone()).collect();
                assert!(keys.iter().all(|key| due.contains(key)), "expired early: {keys:?}");
                self.apply(&keys.into_iter().map(Op::delete).collect::<Vec<_>>());
                assert_eq!(Some(&expired), self.batches.last());
            }
            assert!(reached <= self.present().0, "a change was not delivered");
            if due.iter().all(|key| !self.present().1.contains_key(key)) {
                break;
            }
            tokio::task::yield_now().await;
        }
        let current = self.present().0;
        assert_eq!(batches_through(&mut self.tap, current).await, []);
    }
}

fn range_of(state: &State, range: &Range, revision: Revision) -> Page {
    let matching = state.values().map(|(item, _)| item);
    let all: Vec<_> = matching.filter(|item| item.key.starts_with(&range.prefix) && item.key >= range.start).collect();
    let limit = range.limit.map_or(usize::MAX, |limit| limit.get() as usize);
    Page {
        revision,
        items: all.iter().take(limit).map(|item| (*item).clone()).collect(),
        more: all.len() > limit,
        count: range.count.then_some(all.len() as u64),
    }
}
