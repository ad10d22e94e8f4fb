//! What the cache does when the store fails it.

use super::*;
use crate::cache::limits::RETRY_LAST;

impl World {
    /// Breaks the cache's watch, and returns when the cache has noticed.
    pub(super) async fn cut_off(&self) {
        self.store.break_watches(true);
        while self.store.open_watches() > 0 {
            self.cache.shared.ask_progress();
            tokio::task::yield_now().await;
        }
    }

    /// Mends it, and lets the cache try again.
    pub(super) async fn join_up(&self) {
        self.store.break_watches(false);
        while self.store.open_watches() == 0 {
            tokio::task::yield_now().await;
            self.clock.advance(RETRY_LAST);
        }
    }
}

#[tokio::test]
async fn after_a_fault_it_goes_on() {
    let world = World::new();
    world.commit("a/1 r").await; // 2
    let mut watcher = world.cache.watch(query("", "", "", WatchStart::Now)).await.unwrap();
    world.cut_off().await;
    world.commit("a/1 s,a/2 s").await;
    world.commit("-a/1").await;
    assert_eq!(world.cache.len(), 1);
    world.join_up().await;
    let expected = ["MODIFIED a/1 s@3", "ADDED a/2 s@3", "DELETED a/1 s@4"];
    assert_eq!(world.drain(&mut watcher).await, expected);
}

#[tokio::test]
async fn after_a_compaction_that_it_missed_it_tells_the_differences() {
    let world = World::new();
    world.commit("a/1 r,a/2 r,a/3 r,a/4 r").await; // 2
    let mut watcher = world.cache.watch(query("", "", "", WatchStart::Now)).await.unwrap();
    let mut selecting = world.cache.watch(query("a", "x=r", "", WatchStart::Now)).await.unwrap();
    world.cut_off().await;
    world.commit("-a/1").await; // 3
    world.commit("b/2 r,a/2 s").await; // 4
    world.commit("b/1 r").await; // 5
    world.commit("-b/1,-a/4").await; // 6
    world.commit("a/4 New").await; // 7
    world.store.compact(Revision(7)).await.unwrap();
    world.join_up().await;
    let expected = ["MODIFIED a/2 s@4", "ADDED b/2 r@4", "DELETED a/4 r@7", "ADDED a/4 New@7", "DELETED a/1 r@7"];
    assert_eq!(world.drain(&mut watcher).await, expected);
    assert_eq!(world.drain(&mut selecting).await, ["DELETED a/2 r@4", "DELETED a/4 r@7", "DELETED a/1 r@7"]);
    // Between the two ends nobody can begin: what came and went there is not known.
    for after in 3..7 {
        let error = world.cache.watch(WatchQuery::all(WatchStart::After(Revision(after)))).await.unwrap_err();
        assert_eq!(error, CacheError::Expired { asked: Revision(after), oldest: Revision(7) });
    }
    let mut resumed = world.cache.watch(WatchQuery::all(WatchStart::After(Revision(2)))).await.unwrap();
    assert_eq!(world.drain(&mut resumed).await, expected);
}

#[tokio::test]
async fn watchers_resume_across_a_restart() {
    let world = World::new();
    for n in 2..8 {
        world.commit(&format!("a/{n} r")).await;
    }
    world.store.compact(Revision(4)).await.unwrap();
    let World { clock, store, cache } = world;
    drop(cache);
    let cache = start(&clock, &store, |_| {});
    let world = World { clock, store, cache };
    // Reads see nothing older than what was there before.
    assert_eq!(world.cache.snapshot(ReadAt::Any).await.unwrap().revision, Revision(7));
    let mut watcher = world.cache.watch(WatchQuery::all(WatchStart::After(Revision(5)))).await.unwrap();
    assert_eq!(world.drain(&mut watcher).await, ["ADDED a/6 r@6", "ADDED a/7 r@7"]);
    let error = world.cache.watch(WatchQuery::all(WatchStart::After(Revision(3)))).await.unwrap_err();
    assert_eq!(error, CacheError::Expired { asked: Revision(3), oldest: Revision(4) });
}

#[tokio::test]
async fn reads_do_not_wait_for_ever() {
    let world = World::new();
    world.cache.filled().await.unwrap();
    world.cut_off().await;
    world.commit("a/1 r").await;
    let mut read = std::pin::pin!(world.cache.snapshot(ReadAt::Consistent));
    assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    world.clock.advance(crate::cache::limits::FRESHNESS_WAIT);
    let error = CacheError::Behind { wanted: Revision(2), current: Revision(1) };
    assert_eq!(read.await.unwrap_err(), error);
    assert!(world.cache.snapshot(ReadAt::Any).await.unwrap().objects.is_empty());
}

#[tokio::test]
async fn what_is_no_object_is_left_out_and_counted() {
    let world = World::new();
    world.commit("a/1 r").await;
    let mut watcher = world.cache.watch(query("", "", "", WatchStart::Now)).await.unwrap();
    let bad =
        [("a/1", "not JSON"), ("a/2", "{}"), ("a/3", "[1]")].map(|(key, text)| Op::put(format!("{PREFIX}{key}"), text));
    let key = [PREFIX.as_bytes(), b"\xff"].concat();
    world.store.commit(bad.into_iter().chain([Op::put(key, object("a/1", "r"))]).collect()).await.unwrap();
    assert_eq!(world.drain(&mut watcher).await, ["DELETED a/1 r@3"]);
    assert_eq!((world.cache.len(), world.cache.malformed()), (0, 4));
    world.commit("a/1 s,-a/2").await;
    assert_eq!(world.drain(&mut watcher).await, ["ADDED a/1 s@4"]);
}

#[tokio::test]
async fn a_panic_ends_the_watches() {
    struct Trap;
    impl crate::cache::SelectableFields for Trap {
        fn extract(&self, object: &[u8]) -> Vec<(capstan_api::Name, capstan_api::Str)> {
            assert!(!object.windows(4).any(|text| text == b"trap"), "a trap");
            Vec::new()
        }
    }
    let World { clock, store, .. } = World::new();
    let resource = CachedResource::new(PREFIX, true).with_fields(Trap);
    let options = CacheOptions::with_clock(Arc::new(clock.clone()));
    let cache = ResourceCache::start(Arc::clone(&store) as _, resource, options);
    let world = World { clock, store, cache };
    let mut watcher = world.cache.watch(query("", "", "", WatchStart::Now)).await.unwrap();
    world.commit("a/1 trap").await;
    assert_eq!(watcher.next().await.unwrap_err(), CacheError::Closed);
}
