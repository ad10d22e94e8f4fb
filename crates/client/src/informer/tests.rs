//! Informers on a source with faults, on virtual time.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use capstan_api::{GroupResource, Status, Unstructured, object::Object};
use capstan_clock::{ManualClock, SeededIds};
use proptest::prelude::*;

use super::{
    Change, Deleted, Gone, HandlerFuncs, ResourceEventHandler, SharedIndexInformer, buffer::Buffer,
    notification::Notification,
};
use crate::{
    Error, Kept, Key, Registration,
    delta_fifo::{Delta, DeltaFIFO},
    kept::Erased,
    reflector::machine::Config,
    store::Indexer,
    testing::{Source, object},
};

type View = Arc<Mutex<BTreeMap<String, u64>>>;

fn version(object: &Unstructured) -> u64 {
    object.identity().resource_version.parse().unwrap()
}

pub(super) fn name(object: &Unstructured) -> String {
    object.identity().name.to_owned()
}

/// A handler that keeps what it hears, and refuses what does not fit.
fn handler(view: &View) -> HandlerFuncs<Unstructured> {
    fn hear(view: &View, fits: impl FnOnce(&mut BTreeMap<String, u64>) -> bool) {
        let mut view = view.lock().unwrap();
        // A panic would be caught: what does not fit is left where the end of the test finds it.
        if !fits(&mut view) {
            view.insert("does not fit".to_owned(), 0);
        }
    }
    let (a, b, c) = (Arc::clone(view), Arc::clone(view), Arc::clone(view));
    HandlerFuncs::new()
        .on_add(move |new, _| hear(&a, |view| view.insert(name(new), version(new)).is_none()))
        .on_update(move |old, new| {
            hear(&b, |view| view.insert(name(new), version(new)) == Some(version(old)));
        })
        .on_delete(move |gone| hear(&c, |view| view.remove(&name(gone.object())).is_some()))
}

pub(super) struct World {
    pub(super) source: Source,
    pub(super) clock: ManualClock,
    pub(super) informer: SharedIndexInformer<Unstructured>,
}

pub(super) fn world(no_watch_list: bool) -> World {
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let source = Source::default();
    let config = Config { no_watch_list, ..Config::default() };
    let ids = Arc::new(SeededIds::new(1));
    let informer = SharedIndexInformer::new(Arc::new(source.clone()), config, Arc::new(clock.clone()), ids);
    World { source, clock, informer }
}

/// How often other tasks get a turn before it counts as quiet.
const TURNS: usize = 200;

pub(super) async fn turns() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

impl World {
    pub(super) fn start(&self) {
        let informer = self.informer.clone();
        tokio::spawn(async move { informer.run().await });
    }

    /// Lets everything happen that is to happen within some minutes.
    pub(super) async fn settle(&self) {
        for _ in 0..12 {
            turns().await;
            self.clock.advance(Duration::from_secs(61));
        }
        turns().await;
    }

    fn store(&self) -> BTreeMap<String, u64> {
        self.informer.indexer().list().iter().map(|object| (name(object), version(object))).collect()
    }
}

#[tokio::test]
async fn the_store_is_first_and_late_handlers_hear_all() {
    let world = world(false);
    world.source.put("a");
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let listener = |who: &'static str| {
        let (add, update, delete) = (Arc::clone(&heard), Arc::clone(&heard), Arc::clone(&heard));
        let indexer = Arc::clone(world.informer.indexer());
        HandlerFuncs::new()
            .on_add(move |new: &Arc<Unstructured>, initial| {
                assert!(indexer.get_by_key(Key::of(&**new).as_str()).is_some());
                add.lock().unwrap().push(format!("{who} add {} {initial}", new.name()));
            })
            .on_update(move |old, new| {
                update.lock().unwrap().push(format!("{who} update {} {}", version(old), version(new)));
            })
            .on_delete(move |gone: &Deleted<Unstructured>| {
                delete.lock().unwrap().push(format!("{who} delete {}", gone.object().name()));
            })
    };
    let first = world.informer.add_event_handler(listener("one"));
    assert!(!first.has_synced() && !world.informer.has_synced());
    world.start();
    assert!(world.informer.wait_for_sync().await);
    first.wait_for_sync().await;
    world.source.put("b");
    world.source.put("a");
    turns().await;
    let second = world.informer.add_event_handler(listener("two"));
    second.wait_for_sync().await;
    world.source.delete("b");
    turns().await;
    first.remove();
    world.source.delete("a");
    turns().await;
    let expected = "one add a true, one add b false, one update 1 3, two add a true, two add b true, one delete b, \
                    two delete b, two delete a";
    assert_eq!(heard.lock().unwrap().join(", "), expected);
    world.informer.shut_down();
    assert_eq!(world.source.with(|model| (model.lists, model.watches)), (0, 1), "one watch serves all");
}

#[tokio::test]
async fn what_is_missed_is_inferred() {
    let world = world(true);
    for name in ["a", "b"] {
        world.source.put(name);
    }
    let unknown: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
    let to = Arc::clone(&unknown);
    let funcs = HandlerFuncs::new().on_delete(move |gone: &Deleted<Unstructured>| {
        to.lock().unwrap().push((name(gone.object()), gone.is_final_state_unknown()));
    });
    world.informer.add_event_handler(funcs);
    world.start();
    world.informer.wait_for_sync().await;
    world.source.delete("a");
    world.source.compact();
    world.source.drop_watches();
    world.settle().await;
    world.source.delete("b");
    world.settle().await;
    assert_eq!(*unknown.lock().unwrap(), [("a".to_owned(), true), ("b".to_owned(), false)]);
    assert_eq!(world.source.with(|model| model.lists), 2);
}

#[tokio::test]
async fn a_bad_object_is_told_of_and_stops_nothing() {
    for no_watch_list in [true, false] {
        let world = world(no_watch_list);
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let to = Arc::clone(&told);
        world.informer.set_watch_error_handler(Arc::new(move |error| to.lock().unwrap().push(error.to_string())));
        world.informer.set_transform(|mut object| {
            if object.name() == "odd" {
                return Err("is odd".to_owned());
            }
            object.set_generation(7);
            Ok(object)
        });
        world.source.put("bad");
        world.source.put("good");
        world.start();
        world.informer.wait_for_sync().await;
        world.source.put("odd");
        world.source.put("bad");
        world.source.put("fine");
        turns().await;
        assert_eq!(world.store().keys().collect::<Vec<_>>(), ["fine", "good"]);
        assert_eq!(world.informer.indexer().get_by_key("ns/fine").unwrap().generation(), 7);
        assert_eq!(world.informer.last_sync_resource_version(), "5");
        assert!(told.lock().unwrap().contains(&"unable to understand ns/odd: is odd".to_owned()), "{told:?}");
        assert_eq!(told.lock().unwrap().len(), 3, "{told:?}");
    }
}

#[tokio::test]
async fn a_kind_that_is_not_there_yet_is_told_of_once_and_nothing_spins() {
    let world = world(false);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    world.informer.set_watch_error_handler(Arc::new(move |error| to.lock().unwrap().push(error.to_string())));
    let missing: Error = Status::not_found(&GroupResource::new("", "things"), "x").into();
    world.source.with(|model| model.faults.extend(vec![missing.clone(); 20]));
    world.start();
    turns().await;
    let asked = || world.source.with(|model| model.lists + model.watches);
    assert_eq!(asked(), 2, "a watch and a list, then a wait");
    world.settle().await;
    assert_eq!(*told.lock().unwrap(), [missing.to_string()]);
    assert!(world.informer.has_synced());
    assert!(asked() <= 24, "{}", asked());
}

#[tokio::test]
async fn a_server_that_is_away_for_a_minute_is_asked_now_and_then() {
    let world = world(false);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    world.informer.set_watch_error_handler(Arc::new(move |error| to.lock().unwrap().push(error.to_string())));
    world.source.put("a");
    world.start();
    assert!(world.informer.wait_for_sync().await);
    let away = Error::Transport("connection refused".to_owned());
    world.source.with(|model| model.faults.extend(vec![away.clone(); 1_000]));
    world.source.drop_watches();
    let asked = || world.source.with(|model| model.lists + model.watches);
    let before = asked();
    for _ in 0..60 {
        turns().await;
        world.clock.advance(Duration::from_secs(1));
    }
    turns().await;
    let during = asked() - before;
    assert!((3..=30).contains(&during), "{during} requests in a minute");
    assert_eq!(*told.lock().unwrap(), [away.to_string()], "it is said once");
    assert_eq!(world.store(), BTreeMap::from([("a".to_owned(), 1)]), "what was known stays");
    world.source.delete("a");
    world.source.put("b");
    world.source.with(|model| model.faults.clear());
    world.settle().await;
    assert_eq!(world.store(), world.source.expected());
}

/// What a compact informer keeps is what another one keeps, its indices too, and what cannot be read is told of.
#[tokio::test]
async fn compact_informers_keep_the_same() {
    let world = world(false);
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    world.informer.set_watch_error_handler(Arc::new(move |error| to.lock().unwrap().push(error.to_string())));
    world.informer.compact();
    let odd: crate::store::IndexFunc<Unstructured> =
        Arc::new(|object| vec![if version(object).is_multiple_of(2) { "even".into() } else { "odd".into() }]);
    world.informer.add_indexers([("parity".into(), odd)].into());
    for name in ["a", "b", "bad", "c"] {
        world.source.put(name);
    }
    world.start();
    assert!(world.informer.wait_for_sync().await);
    let names = |value: &str| {
        let found = world.informer.indexer().by_index("parity", value).unwrap();
        found.iter().map(|object| name(object)).collect::<String>()
    };
    assert_eq!((names("odd"), names("even")), ("a".to_owned(), "bc".to_owned()));
    world.source.put("b");
    world.source.delete("c");
    turns().await;
    assert_eq!((names("odd"), names("even")), ("ab".to_owned(), String::new()));
    assert_eq!(told.lock().unwrap().len(), 1, "{told:?}");
    let (one, two) = (world.informer.indexer().kept("ns/a").unwrap(), world.informer.indexer().get_by_key("ns/a"));
    assert_eq!(format!("{one:?}"), format!("Packed({} bytes)", object("a", 1).len()));
    assert!(Arc::ptr_eq(&one.object().unwrap(), &two.unwrap()), "unpacked once for both");
    assert!(one.is_at("u", "1") && !one.is_at("u", "2") && one.is_same(&one.object().unwrap().into()));
}

/// Whom keys are enough.
struct Keys(Arc<Mutex<Vec<String>>>);

impl ResourceEventHandler<Unstructured> for Keys {
    fn on_add(&mut self, _: &Arc<Unstructured>, _: bool) {
        self.0.lock().unwrap().push("an object".to_owned());
    }

    fn on_update(&mut self, _: &Arc<Unstructured>, _: &Arc<Unstructured>) {
        self.0.lock().unwrap().push("an object".to_owned());
    }

    fn on_delete(&mut self, _: &Deleted<Unstructured>) {
        self.0.lock().unwrap().push("an object".to_owned());
    }

    fn on_key(&mut self, key: &Key, change: Change) -> bool {
        let change = match change {
            Change::Added { is_in_initial_list } => format!("added {is_in_initial_list}"),
            Change::Updated { unchanged } => format!("updated {unchanged}"),
            Change::Deleted => "deleted".to_owned(),
        };
        self.0.lock().unwrap().push(format!("{} {change}", key.name()));
        true
    }
}

#[tokio::test]
async fn keys_are_enough_for_some() {
    let world = world(false);
    world.informer.compact();
    world.source.put("a");
    let all = Arc::new(Mutex::new(Vec::<String>::new()));
    let added = Arc::new(Mutex::new(Vec::<String>::new()));
    world.informer.add_event_handler_with_resync_period(Keys(Arc::clone(&all)), Some(Duration::from_secs(60)));
    let (keys, changed, gone) = (Arc::clone(&added), Arc::clone(&added), Arc::clone(&added));
    world.informer.add_event_handler(
        HandlerFuncs::<Unstructured>::new()
            .on_add_key(move |key, initial| keys.lock().unwrap().push(format!("{} {initial}", key.name())))
            .on_change(move |object| changed.lock().unwrap().push(format!("{} now", object.name())))
            .on_delete(move |object| gone.lock().unwrap().push(format!("{} went", object.object().name()))),
    );
    world.start();
    world.informer.wait_for_sync().await;
    turns().await;
    world.source.put("b");
    turns().await;
    world.source.put("b");
    turns().await;
    world.source.delete("b");
    turns().await;
    world.clock.advance(Duration::from_secs(60));
    turns().await;
    let heard = std::mem::take(&mut *all.lock().unwrap());
    assert_eq!(heard, ["a added true", "b added false", "b updated false", "b deleted", "a updated true"]);
    assert_eq!(*added.lock().unwrap(), ["a true", "b false", "b now", "b went"]);
}

#[tokio::test]
async fn handlers_resync_each_at_its_own_time() {
    let world = world(false);
    world.source.put("a");
    world.start();
    world.informer.wait_for_sync().await;
    let count = |period: Option<u64>| {
        let heard: Arc<Mutex<usize>> = Arc::default();
        let to = Arc::clone(&heard);
        let funcs = HandlerFuncs::new().on_update(move |old: &Arc<Unstructured>, new| {
            assert!(Arc::ptr_eq(old, new));
            *to.lock().unwrap() += 1;
        });
        world.informer.add_event_handler_with_resync_period(funcs, period.map(Duration::from_secs));
        heard
    };
    let (none, often, seldom) = (count(None), count(Some(10)), count(Some(30)));
    for _ in 0..6 {
        turns().await;
        world.clock.advance(Duration::from_secs(10));
    }
    turns().await;
    let heard = |counter: &Arc<Mutex<usize>>| *counter.lock().unwrap();
    assert_eq!((heard(&none), heard(&often), heard(&seldom)), (0, 6, 2));
}

#[tokio::test]
async fn a_handler_that_panics_hears_the_next() {
    let world = world(false);
    let heard: Arc<Mutex<usize>> = Arc::default();
    let to = Arc::clone(&heard);
    world.informer.add_event_handler(HandlerFuncs::new().on_add(move |new: &Arc<Unstructured>, _| {
        *to.lock().unwrap() += 1;
        assert_ne!(new.name(), "a", "a panic that the test wants");
    }));
    world.source.put("a");
    world.source.put("b");
    world.start();
    world.settle().await;
    assert_eq!(*heard.lock().unwrap(), 2);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8),
    Delete(u8),
    Compact,
    DropWatches,
    Fault(u8),
    Advance(u8),
    Turns(u8),
    Join,
    Leave,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..5u8).prop_map(Op::Put),
        4 => (0..5u8).prop_map(Op::Delete),
        2 => Just(Op::Compact),
        2 => Just(Op::DropWatches),
        2 => (0..4u8).prop_map(Op::Fault),
        2 => (0..100u8).prop_map(Op::Advance),
        6 => (0..8u8).prop_map(Op::Turns),
        1 => Just(Op::Join),
        1 => Just(Op::Leave),
    ]
}

async fn play(no_watch_list: bool, refused: bool, compact: bool, ops: Vec<Op>) {
    let world = world(no_watch_list);
    if compact {
        world.informer.compact();
    }
    world.source.with(|model| model.no_watch_list = refused);
    let mut views: Vec<(View, Registration<Unstructured>)> = Vec::new();
    world.start();
    for op in ops {
        match op {
            Op::Put(at) => world.source.put(&format!("o{at}")),
            Op::Delete(at) => world.source.delete(&format!("o{at}")),
            Op::Compact => world.source.compact(),
            Op::DropWatches => world.source.drop_watches(),
            Op::Fault(which) => world.source.with(|model| {
                model.faults.push_back(match which {
                    0 => Status::resource_expired("too old").into(),
                    1 => Status::too_many_requests("slow", 3).into(),
                    2 => Status::internal_error("oops").into(),
                    _ => Error::Transport("reset".to_owned()),
                });
            }),
            Op::Advance(seconds) => world.clock.advance(Duration::from_secs(seconds.into())),
            Op::Turns(count) => {
                for _ in 0..count {
                    tokio::task::yield_now().await;
                }
            }
            Op::Join => {
                let view = View::default();
                let registration = world.informer.add_event_handler(handler(&view));
                views.push((view, registration));
            }
            Op::Leave => {
                if let Some((_, registration)) = views.pop() {
                    registration.remove();
                }
            }
        }
    }
    world.settle().await;
    let expected = world.source.expected();
    assert_eq!(world.store(), expected);
    for (view, registration) in views {
        assert_eq!(*view.lock().unwrap(), expected);
        assert!(registration.has_synced() && registration.pending() == 0);
    }
    assert_eq!(world.informer.last_sync_resource_version(), world.source.with(|model| model.version).to_string());
}

fn decoded(at: u8, version: u64) -> Arc<Unstructured> {
    Arc::new(Unstructured::decode(object(&format!("o{at}"), version).as_bytes()).unwrap())
}

fn kept(object: Arc<Unstructured>) -> Kept<Erased> {
    Kept::from(object).cast()
}

fn read(kept: Kept<Erased>) -> Arc<Unstructured> {
    kept.cast().object().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn store_and_handlers_end_up_as_the_source(
        no_watch_list in any::<bool>(), refused in any::<bool>(), compact in any::<bool>(),
        ops in proptest::collection::vec(op(), 0..60)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(play(no_watch_list, refused, compact, ops));
    }

    /// A handler of any pace: what it hears fits together, and in the end it knows all.
    #[test]
    fn a_slow_handler_converges(steps in proptest::collection::vec((0..3u8, 0..4u8), 0..80)) {
        let buffer = Buffer::default();
        let (mut truth, mut view) = (BTreeMap::new(), BTreeMap::new());
        let hear = |view: &mut BTreeMap<String, u64>| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (_, notification) = runtime.block_on(buffer.next()).unwrap();
            let gone = |view: &mut BTreeMap<String, u64>, old: Gone<Erased>| {
                assert!(view.remove(&name(&read(old.last))).is_some());
            };
            let put = |view: &mut BTreeMap<String, u64>, new: Kept<Erased>| {
                let new = read(new);
                view.insert(name(&new), version(&new))
            };
            match notification {
                Notification::Add { new, .. } => assert_eq!(put(view, new), None),
                Notification::Update { old, new } => {
                    assert_eq!(put(view, new), Some(version(&read(old))));
                }
                Notification::Delete(old) => gone(view, old),
                Notification::Recreate { old, new } => {
                    gone(view, old);
                    assert_eq!(put(view, new), None);
                }
            }
            buffer.told();
        };
        for (count, (what, at)) in steps.into_iter().enumerate() {
            let key = Key::new("ns", &format!("o{at}"));
            let new = decoded(at, count as u64);
            let old = truth.get(&name(&new)).map(|version| decoded(at, *version));
            match (what, old) {
                (0, old) => {
                    truth.insert(name(&new), count as u64);
                    buffer.push(&key, match old {
                        Some(old) => Notification::Update { old: kept(old), new: kept(new) },
                        None => Notification::Add { new: kept(new), is_in_initial_list: false },
                    });
                }
                (1, Some(old)) => {
                    truth.remove(&name(&old));
                    buffer.push(&key, Notification::Delete(Gone { last: kept(old), final_state_unknown: false }));
                }
                _ if buffer.len() > 0 => hear(&mut view),
                _ => {}
            }
            prop_assert!(buffer.len() <= 4);
        }
        while buffer.len() > 0 {
            hear(&mut view);
        }
        prop_assert_eq!(truth, view);
    }

    /// The queue alone: whoever pops at any time ends up with what happened, and no key waits twice.
    #[test]
    fn the_queue_ends_up_as_the_source(steps in proptest::collection::vec((0..6u8, 0..4u8), 0..80)) {
        let (mut fifo, known) = (DeltaFIFO::default(), Indexer::default());
        let mut truth: BTreeMap<Key, Arc<Unstructured>> = BTreeMap::new();
        let pop = |fifo: &mut DeltaFIFO<Unstructured>| {
            let Some(popped) = fifo.pop() else { return };
            for delta in popped.deltas.in_order() {
                match delta {
                    Delta::Deleted(_) => drop(known.remove(&popped.key)),
                    other => drop(known.insert(&popped.key, other.object().clone())),
                }
            }
        };
        for (count, (what, at)) in steps.into_iter().enumerate() {
            let key = Key::new("ns", &format!("o{at}"));
            let new = decoded(at, count as u64);
            match what {
                0 => {
                    match truth.insert(key.clone(), Arc::clone(&new)) {
                        Some(_) => fifo.update(&key, new.into()),
                        None => fifo.add(&key, new.into()),
                    }
                }
                1 => {
                    let last = truth.remove(&key).map(Kept::from);
                    fifo.delete(&key, last, &known);
                }
                2 => {
                    // Something happens that only a list shows.
                    truth.remove(&key);
                    let listed = truth.iter().map(|(key, object)| (key.clone(), Arc::clone(object).into())).collect();
                    fifo.replace(&listed, &known);
                }
                3 => fifo.resync(&known),
                _ => pop(&mut fifo),
            }
            prop_assert!(fifo.len() <= 4);
        }
        while !fifo.is_empty() {
            pop(&mut fifo);
        }
        let found: BTreeMap<_, _> = known.snapshot().iter().map(|(key, object)| (key.clone(), object)).collect();
        prop_assert_eq!(found, truth);
    }
}
