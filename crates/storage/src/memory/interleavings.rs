//! What must hold in the memory engine however its threads interleave.

use std::time::Duration;

use capstan_clock::ManualClock;
use shuttle::{future::block_on, thread};

use super::*;
use crate::{
    Ttl,
    interleavings::{check_watches, explore},
};

fn memory(clock: &ManualClock, recent_bytes: usize) -> Arc<Memory> {
    let options = Options::with_clock(Arc::new(clock.clone()));
    Arc::new(Memory::from_state(State::new(Revision::INITIAL), options, recent_bytes))
}

fn clock() -> ManualClock {
    ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
}

#[test]
fn watches_see_each_revision_once_and_in_order() {
    for recent_bytes in [0, hub::RECENT_BYTES] {
        explore(move || check_watches(&memory(&clock(), recent_bytes)));
    }
}

#[test]
fn a_read_that_waits_for_a_revision_is_answered() {
    explore(|| {
        let store = memory(&clock(), hub::RECENT_BYTES);
        let wanted = Revision::INITIAL.next().next();
        let readers = [0, 1].map(|_| {
            let store = Arc::clone(&store);
            thread::spawn(move || block_on(store.get("k1".into(), At::NotOlderThan(wanted))).unwrap())
        });
        let committers = ["k0", "k1"].map(|key| {
            let store = Arc::clone(&store);
            thread::spawn(move || block_on(store.commit(vec![Op::put(key, "v")])).unwrap())
        });
        assert!(committers.into_iter().all(|committer| committer.join().unwrap().changed));
        for reader in readers {
            let found = reader.join().unwrap();
            assert!(found.revision >= wanted && found.item.is_some(), "{found:?}");
        }
    });
}

#[test]
fn the_end_of_a_lifetime_takes_nothing_that_was_put_since() {
    explore(|| {
        let clock = clock();
        let store = memory(&clock, hub::RECENT_BYTES);
        let ttl = Ttl::seconds(10).unwrap();
        block_on(store.commit(vec![Op::put("k", "old").expiring(ttl)])).unwrap();
        let (expiring, overwriting) = (Arc::clone(&store), Arc::clone(&store));
        let threads = [
            thread::spawn(move || _ = expiring.inner.expire_due()),
            thread::spawn(move || clock.advance(Duration::from_secs(60))),
            thread::spawn(move || _ = block_on(overwriting.commit(vec![Op::put("k", "new")])).unwrap()),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        store.inner.expire_due();
        let found = block_on(store.get("k".into(), At::Present)).unwrap();
        assert_eq!(found.item.expect("what was put last has no lifetime").value, "new");
    });
}

#[test]
fn a_watch_learns_that_the_store_is_gone() {
    explore(|| {
        let store = memory(&clock(), hub::RECENT_BYTES);
        let watchers = [0, 1].map(|_| {
            let request = WatchRequest { prefix: Key::new(), after: Revision::INITIAL };
            let mut watch = block_on(store.watch(request)).unwrap();
            thread::spawn(move || {
                while let Ok(item) = block_on(watch.next()) {
                    assert!(matches!(item, crate::WatchItem::Batch(_)), "{item:?}");
                }
            })
        });
        block_on(store.commit(vec![Op::put("k", "v")])).unwrap();
        drop(store);
        watchers.into_iter().for_each(|watcher| watcher.join().unwrap());
    });
}
