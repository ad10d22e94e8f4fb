//! What must hold in the embedded engine however its threads interleave: its leader and its upkeep run as they are, on
//! a disk in memory.

use std::{collections::HashSet, task::Waker};

use capstan_clock::ManualClock;
use shuttle::{future::block_on, thread};

use super::{
    faults::{Call, SimDisk},
    *,
};
use crate::{
    Ttl,
    interleavings::{check_watches, explore},
};

/// So small that a few commits begin segments, write checkpoints and clear old segments.
const TINY: Tuning = Tuning { segment_bytes: 1024, first_spare_bytes: 512, checkpoint_bytes: 1024 };

fn clock() -> ManualClock {
    ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
}

fn open(disk: &SimDisk, clock: &ManualClock) -> Arc<Embedded> {
    let options = Options::with_clock(Arc::new(clock.clone()));
    Arc::new(Embedded::open_on(Arc::new(disk.clone()), options, TINY).unwrap())
}

fn put(store: &Embedded, key: &str, value: &str) -> Result<Committed, CommitError> {
    block_on(store.commit(vec![Op::put(key.to_owned(), value.to_owned())]))
}

fn value(store: &Embedded, key: &str, at: At) -> Option<Vec<u8>> {
    let found = block_on(store.get(key.to_owned().into(), at)).unwrap();
    found.item.map(|item| item.value.to_vec())
}

#[test]
fn watches_see_each_revision_once_and_in_order() {
    explore(|| check_watches(&open(&SimDisk::default(), &clock())));
}

/// Commits at once on a disk whose next sync fails or not: everyone gets an answer, and it is the right one, also after
/// the store was closed and opened again.
fn check_commits(disk: &SimDisk, fails: bool) {
    let store = open(disk, &clock());
    if fails {
        disk.fail(Call::Sync, "log", std::io::ErrorKind::Other);
    }
    let committers = [0, 1, 2].map(|n| {
        let store = Arc::clone(&store);
        thread::spawn(move || {
            let (own, shared) = (format!("own/{n}"), Op::create("shared", format!("{n}")));
            (block_on(store.commit(vec![Op::put(own, "v".repeat(300))])), block_on(store.commit(vec![shared])))
        })
    });
    let outcomes = committers.map(|committer| committer.join().unwrap());
    let check = |store: &Embedded| {
        let mut revisions = HashSet::new();
        for (n, (own, shared)) in outcomes.iter().enumerate() {
            match own {
                Ok(committed) => {
                    assert!(revisions.insert(committed.revision), "a revision is one commit's: {outcomes:?}");
                    let found = block_on(store.get(format!("own/{n}").into(), At::Present)).unwrap();
                    assert_eq!(found.item.map(|item| item.mod_revision), Some(committed.revision), "{outcomes:?}");
                }
                Err(error) => {
                    assert!(fails && matches!(error, CommitError::Fault(_)), "{error}");
                    assert_eq!(value(store, &format!("own/{n}"), At::Present), None, "what was refused did not happen");
                }
            }
            match shared {
                Ok(committed) => {
                    assert!(revisions.insert(committed.revision), "a revision is one commit's: {outcomes:?}");
                    assert_eq!(value(store, "shared", At::Present), Some(format!("{n}").into()), "{outcomes:?}");
                }
                Err(CommitError::Conflict(conflict)) => {
                    let current = conflict.failed[0].current.as_ref().expect("there is what conflicts");
                    assert_eq!(Some(current.value.to_vec()), value(store, "shared", At::Present));
                }
                Err(error) => assert!(fails && matches!(error, CommitError::Fault(_)), "{error}"),
            }
        }
        let created = outcomes.iter().filter(|(_, shared)| shared.is_ok()).count();
        assert!(created == 1 || fails && created == 0, "one of them creates: {outcomes:?}");
    };
    check(&store);
    drop(store);
    check(&open(disk, &clock()));
}

#[test]
fn everyone_who_commits_gets_their_own_answer() {
    explore(|| check_commits(&SimDisk::default(), false));
}

#[test]
fn everyone_who_commits_gets_their_own_answer_when_a_sync_fails() {
    explore(|| check_commits(&SimDisk::default(), true));
}

#[test]
fn closing_waits_for_what_is_under_way_and_ends_what_waits() {
    explore(|| {
        let disk = SimDisk::default();
        let store = open(&disk, &clock());
        let watchers = [0, 1].map(|_| {
            let request = WatchRequest { prefix: Key::new(), after: Revision::INITIAL };
            let mut watch = block_on(store.watch(request)).unwrap();
            thread::spawn(move || {
                loop {
                    if let Err(error) = block_on(watch.next()) {
                        return error;
                    }
                }
            })
        });
        let committers = [0, 1].map(|n| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                put(&store, &format!("k/{n}"), &"v".repeat(600)).unwrap();
                // Queued, and then whoever asked is gone.
                let mut cancelled = store.commit(vec![Op::put(format!("cancelled/{n}"), "v".repeat(600))]);
                let _ = cancelled.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
            })
        });
        drop(store);
        committers.into_iter().for_each(|committer| committer.join().unwrap());
        for watcher in watchers {
            let error = watcher.join().unwrap();
            assert!(matches!(&error, ReadError::Fault(fault) if fault.kind == FaultKind::Closed), "{error}");
        }
        let store = open(&disk, &clock());
        for key in ["k/0", "k/1", "cancelled/0", "cancelled/1"] {
            assert!(value(&store, key, At::Present).is_some(), "{key} was queued before the store was closed");
        }
    });
}

#[test]
fn the_end_of_a_lifetime_takes_nothing_that_was_put_since() {
    explore(|| {
        let clock = clock();
        let store = open(&SimDisk::default(), &clock);
        let old = Op::put("k", "old").expiring(Ttl::seconds(10).unwrap());
        let gone = Op::put("gone", "old").expiring(Ttl::seconds(10).unwrap());
        block_on(store.commit(vec![old, gone])).unwrap();
        let queue = store.queue.as_ref().unwrap().downgrade();
        let expirer = expirer::expire(Arc::downgrade(&store.shared), queue, Arc::clone(&store.expirer.changed));
        let expirer = shuttle::future::spawn(expirer);
        let passing = thread::spawn(move || clock.advance(Duration::from_secs(60)));
        let overwriting = Arc::clone(&store);
        let overwriter = thread::spawn(move || put(&overwriting, "k", "new").unwrap());
        // The key that nobody puts again goes, and the watch tells.
        let request = WatchRequest { prefix: "gone".into(), after: Revision::INITIAL.next() };
        let mut watch = block_on(store.watch(request)).unwrap();
        let crate::WatchItem::Batch(batch) = block_on(watch.next()).unwrap() else { panic!("a batch is due") };
        assert_eq!(batch.events[0].current, None);
        passing.join().unwrap();
        overwriter.join().unwrap();
        assert_eq!(value(&store, "k", At::Present), Some("new".into()), "what was put last has no lifetime");
        drop(watch);
        drop(store);
        block_on(expirer).expect("the task ends with the store");
    });
}

#[test]
fn upkeep_that_is_due_is_asked_for() {
    explore(|| {
        let signal = Arc::new(UpkeepSignal::default());
        signal.schedule(4);
        let keeping = Arc::clone(&signal);
        let keeper = thread::spawn(move || {
            while keeping.wait() {
                if keeping.is_due() {
                    // As after a checkpoint that failed: sooner than the last time.
                    keeping.schedule(2);
                }
            }
        });
        for _ in 0..3 {
            signal.appended(3);
        }
        signal.stop();
        keeper.join().unwrap();
        assert!(!signal.is_due() || signal.is_asked(), "a checkpoint is due, and nobody will look: {signal:?}");
    });
}

#[test]
fn what_is_asked_while_upkeep_looks_is_looked_at() {
    explore(|| {
        let signal = Arc::new(UpkeepSignal::default());
        let (work, done) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let keeper = {
            let (signal, work, done) = (Arc::clone(&signal), Arc::clone(&work), Arc::clone(&done));
            thread::spawn(move || {
                // Ends when all is done: a nudge that is lost leaves it waiting for ever.
                while *done.lock().unwrap() < 2 && signal.wait() {
                    let found = std::mem::take(&mut *work.lock().unwrap());
                    *done.lock().unwrap() += found;
                }
            })
        };
        let askers = [0, 1].map(|_| {
            let (signal, work) = (Arc::clone(&signal), Arc::clone(&work));
            thread::spawn(move || {
                *work.lock().unwrap() += 1;
                signal.nudge();
            })
        });
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        keeper.join().unwrap();
        assert_eq!(*done.lock().unwrap(), 2);
    });
}
