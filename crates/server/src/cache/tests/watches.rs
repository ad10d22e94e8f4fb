//! WATCH.

use std::time::Duration;

use super::*;
use crate::cache::{bookmark_frame, limits::BOOKMARK_EVERY};

const STATE: WatchStart = WatchStart::State { at: ReadAt::Any, closing_bookmark: false };

#[tokio::test]
async fn watchers_see_what_their_selectors_select() {
    let world = World::new();
    world.commit("a/1 r,b/1 r").await; // 2
    let check = async |namespace: &str, labels: &str, fields: &str, expected: &[&str]| {
        let start = WatchStart::After(Revision(2));
        let mut watcher = world.cache.watch(query(namespace, labels, fields, start)).await.unwrap();
        assert_eq!(world.drain(&mut watcher).await, expected, "{namespace} {labels} {fields}");
    };
    world.commit("a/1 s,b/2 s").await; // 3
    world.commit("a/1 t,-b/1").await; // 4
    world.commit("-a/1,ab/1 r").await; // 5
    world.commit("ab/1 r").await; // 6
    let all = [
        "MODIFIED a/1 s@3",
        "ADDED b/2 s@3",
        "MODIFIED a/1 t@4",
        "DELETED b/1 r@4",
        "DELETED a/1 t@5",
        "ADDED ab/1 r@5",
        "MODIFIED ab/1 r@6",
    ];
    check("", "", "", &all).await;
    check("a", "", "", &[all[0], all[2], all[4]]).await;
    check("b", "", "", &[all[1], all[3]]).await;
    check("", "", "metadata.name=2", &[all[1]]).await;
    check("ab", "", "metadata.name=1", &all[5..]).await;
    check("", "x=s", "", &["ADDED a/1 s@3", all[1], "DELETED a/1 s@4"]).await;
    check("", "", "spec.nodeName=s", &["ADDED a/1 s@3", all[1], "DELETED a/1 s@4"]).await;
    check("a", "", "spec.nodeName=s", &["ADDED a/1 s@3", "DELETED a/1 s@4"]).await;
    check("a", "x notin (r,t)", "", &["ADDED a/1 s@3", "DELETED a/1 s@4"]).await;
    check("", "x=r", "", &["DELETED a/1 r@3", all[3], all[5], all[6]]).await;
    check("", "y", "", &[]).await;
}

#[tokio::test]
async fn watches_begin_where_asked() {
    let world = World::new();
    world.commit("a/1 r,b/1 s").await; // 2
    world.commit("a/1 s").await; // 3
    let watch = async |start| world.cache.watch(query("", "x=s", "", start)).await.unwrap();
    let closing = WatchStart::State { at: ReadAt::Consistent, closing_bookmark: true };
    let mut watchers = [
        watch(WatchStart::Now).await,
        watch(WatchStart::After(Revision(2))).await,
        watch(WatchStart::After(Revision(5))).await,
        watch(STATE).await,
        watch(closing).await,
    ];
    world.commit("b/1 s").await; // 4
    world.commit("b/1 s").await; // 5
    world.commit("-b/1").await; // 6
    let later = ["MODIFIED b/1 s@4", "MODIFIED b/1 s@5", "DELETED b/1 s@6"];
    let expected = [
        later.to_vec(),
        [&["ADDED a/1 s@3"], &later[..]].concat(),
        later[2..].to_vec(),
        [&["ADDED a/1 s@3", "ADDED b/1 s@2"], &later[..]].concat(),
        [&["ADDED a/1 s@3", "ADDED b/1 s@2", "end 3"], &later[..]].concat(),
    ];
    for (watcher, expected) in watchers.iter_mut().zip(expected) {
        assert_eq!(world.drain(watcher).await, expected);
    }
    assert_eq!(world.cache.watchers(), 5);
    drop(watchers);
    assert_eq!(world.cache.watchers(), 0);
}

#[tokio::test]
async fn what_has_no_namespace_goes_by_its_name() {
    let World { clock, store, .. } = World::new();
    let options = CacheOptions::with_clock(Arc::new(clock.clone()));
    let cache = ResourceCache::start(Arc::clone(&store) as _, CachedResource::new(PREFIX, false), options);
    let world = World { clock, store, cache };
    world.commit("n1 r,n2 r").await;
    assert!(world.cache.get("", "n1", ReadAt::Consistent).await.unwrap().object.is_some());
    let asked = query("", "", "metadata.name=n1", STATE);
    let fields = asked.fields.clone();
    assert_eq!(world.list(ListQuery { fields, ..ListQuery::default() }).await.unwrap(), ["n1@2"]);
    let mut watcher = world.cache.watch(asked).await.unwrap();
    world.commit("n2 s,n1 s").await;
    assert_eq!(world.drain(&mut watcher).await, ["ADDED n1 r@2", "MODIFIED n1 s@3"]);
}

#[tokio::test]
async fn an_event_has_one_frame_for_all() {
    let world = World::new();
    let mut watchers = Vec::new();
    for (namespace, labels) in [("", ""), ("a", ""), ("", "x=s"), ("a", "x=s")] {
        watchers.push(world.cache.watch(query(namespace, labels, "", WatchStart::Now)).await.unwrap());
    }
    for change in ["a/1 s", "a/1 s", "-a/1"] {
        world.commit(change).await;
        let mut frames = Vec::new();
        for watcher in &mut watchers {
            let Ok(WatchItem::Event(event)) = watcher.next().await else { panic!("{change}") };
            frames.push(event.frame().as_ptr());
        }
        frames.dedup();
        assert_eq!(frames.len(), 1, "{change}");
    }
}

#[tokio::test]
async fn a_watcher_is_woken_only_by_what_can_concern_it() {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        task::Wake,
    };
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let world = World::new();
    let asked = [("", ""), ("a", ""), ("b", ""), ("a", "metadata.name=1"), ("", "spec.nodeName=s")];
    let mut watchers = Vec::new();
    for (namespace, fields) in asked {
        watchers.push((
            Arc::new(Count::default()),
            world.cache.watch(query(namespace, "", fields, WatchStart::Now)).await.unwrap(),
        ));
    }
    let mut wakes = async |change: &str| {
        for (count, watcher) in &mut watchers {
            let waker = Waker::from(Arc::clone(count));
            while watcher.poll_next(&mut Context::from_waker(&waker)).is_ready() {}
        }
        world.commit(change).await;
        world.cache.snapshot(ReadAt::Consistent).await.unwrap();
        watchers.iter().map(|(count, _)| count.0.swap(0, Ordering::Relaxed)).collect::<Vec<_>>()
    };
    assert_eq!(wakes("a/1 r").await, [1, 1, 0, 1, 0]);
    assert_eq!(wakes("a/2 r").await, [1, 1, 0, 0, 0]);
    assert_eq!(wakes("b/1 s").await, [1, 0, 1, 0, 1]);
    assert_eq!(wakes("b/1 r").await, [1, 0, 1, 0, 1]);
    assert_eq!(wakes("c/1 r,c/2 r").await, [1, 0, 0, 0, 0]);
}

#[tokio::test]
async fn bookmarks_come_on_time_and_tell_the_truth() {
    let world = World::new();
    world.commit("a/1 r").await; // 2
    let mut watchers = Vec::new();
    for (namespace, bookmarks) in [("", true), ("b", true), ("a", false)] {
        let asked = WatchQuery { bookmarks, ..query(namespace, "", "", WatchStart::Now) };
        watchers.push(world.cache.watch(asked).await.unwrap());
    }
    let mut all = async || {
        let mut told = Vec::new();
        for watcher in &mut watchers {
            told.push(world.drain(watcher).await);
        }
        told
    };
    assert_eq!(all().await, [[""; 0]; 3]);
    world.clock.advance(BOOKMARK_EVERY - Duration::from_secs(1));
    assert_eq!(all().await, [[""; 0]; 3]);
    world.commit("a/1 s").await; // 3
    world.commit_elsewhere().await; // 4
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(all().await, [vec!["MODIFIED a/1 s@3", "bookmark 4"], vec!["bookmark 4"], vec!["MODIFIED a/1 s@3"]]);
    world.clock.advance(BOOKMARK_EVERY - Duration::from_secs(1));
    assert_eq!(all().await, [[""; 0]; 3]);
    // The store is asked ahead of the bookmark.
    world.commit_elsewhere().await; // 5
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(all().await, [vec!["bookmark 5"], vec!["bookmark 5"], vec![]]);
    let kind = capstan_api::GroupVersionKind::from_static("", "v1", "Pod");
    let line = r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"5""#;
    assert_eq!(bookmark_frame(&kind, Revision(5), false), format!("{line}}}}}}}\n"));
    let end = r#","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    assert_eq!(bookmark_frame(&kind, Revision(5), true), format!("{line}{end}\n"));
}

#[tokio::test]
async fn a_watcher_ahead_of_the_store_gets_no_early_bookmark() {
    let world = World::new();
    let asked = WatchQuery { bookmarks: true, ..WatchQuery::all(WatchStart::After(Revision(4))) };
    let mut watcher = world.cache.watch(asked).await.unwrap();
    for expected in [vec![], vec![], vec!["bookmark 4"], vec!["ADDED a/4 r@5", "bookmark 5"]] {
        let n = world.store.revision().await.unwrap();
        world.commit(&format!("a/{n} r")).await;
        world.clock.advance(BOOKMARK_EVERY - Duration::from_secs(1));
        let mut told = world.drain(&mut watcher).await;
        world.clock.advance(Duration::from_secs(1));
        told.extend(world.drain(&mut watcher).await);
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn who_is_too_slow_is_told_and_hurts_nobody() {
    let world = World::with(|options| options.history_events = 4);
    let mut slow = world.cache.watch(query("", "", "", WatchStart::Now)).await.unwrap();
    let mut quiet = world.cache.watch(query("b", "", "", WatchStart::Now)).await.unwrap();
    let mut quick = world.cache.watch(query("a", "", "", WatchStart::Now)).await.unwrap();
    for n in 2..12 {
        world.commit(&format!("a/1 {n}")).await;
        assert_eq!(world.drain(&mut quick).await.len(), 1);
        assert!(world.cache.history() <= 4);
    }
    let expired = ["error too old resource version: 1 (7)"];
    assert_eq!(world.drain(&mut slow).await, expired);
    assert_eq!(world.drain(&mut slow).await, expired);
    // Nothing of what this one waits for is gone.
    world.commit("b/1 r").await;
    assert_eq!(world.drain(&mut quiet).await, ["ADDED b/1 r@12"]);
    let late = world.cache.watch(query("b", "", "", WatchStart::After(Revision(7)))).await.unwrap_err();
    assert_eq!(late, CacheError::Expired { asked: Revision(7), oldest: Revision(8) });
}

#[tokio::test]
async fn history_is_bounded_by_bytes_too() {
    let world = World::with(|options| options.history_bytes = 4_000);
    for n in 0..20 {
        world.commit(&format!("a/1 {n}")).await;
    }
    world.cache.snapshot(ReadAt::Consistent).await.unwrap();
    assert!((1..6).contains(&world.cache.history()), "{}", world.cache.history());
}

#[tokio::test]
async fn the_end_of_the_cache_ends_its_watches() {
    let world = World::new();
    let mut watcher = world.cache.watch(query("a", "", "", WatchStart::Now)).await.unwrap();
    let World { cache, .. } = world;
    let (ended, ()) = tokio::join!(watcher.next(), async { drop(cache) });
    assert_eq!(ended.unwrap_err(), CacheError::Closed);
}
