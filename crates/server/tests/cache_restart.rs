//! The cache on the embedded engine: watchers go on across a restart.

use std::{path::Path, sync::Arc};

use capstan_clock::RealClock;
use capstan_server::cache::{
    CacheError, CacheOptions, CachedResource, ReadAt, ResourceCache, WatchItem, WatchQuery, WatchStart,
};
use capstan_storage::{Embedded, Op, Options, Revision, SharedStore};

const COMMITS: u64 = 40;

fn start(store: &SharedStore) -> ResourceCache {
    let options = CacheOptions::with_clock(Arc::new(RealClock::new()));
    ResourceCache::start(Arc::clone(store), CachedResource::new("/registry/configmaps/", true), options)
}

fn open(directory: &Path) -> SharedStore {
    Arc::new(Embedded::open(directory, Options::default()).expect("a fresh directory"))
}

async fn put(store: &SharedStore, n: u64) {
    let (key, value) = (format!("/registry/configmaps/a/{n}"), format!(r#"{{"metadata":{{"name":"{n}"}}}}"#));
    store.commit(vec![Op::put(key, value)]).await.expect("the disk takes it");
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_go_on_across_a_restart() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("cache-restart-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let store = open(&directory);
    let cache = start(&store);
    for n in 0..COMMITS / 2 {
        put(&store, n).await;
    }
    let mut watcher = cache.watch(WatchQuery::all(WatchStart::After(Revision::INITIAL))).await.unwrap();
    let mut seen = Vec::new();
    let mut last = Revision::INITIAL;
    while seen.len() < 5 {
        let WatchItem::Event(event) = watcher.next().await.unwrap() else { panic!("no bookmarks were wanted") };
        seen.push(event.object().name().to_owned());
        last = event.object().revision;
    }
    assert_eq!(watcher.delivered(), Some(last));
    drop(watcher);
    cache.close().await;
    drop(store);

    let store = open(&directory);
    let cache = start(&store);
    assert_eq!(cache.snapshot(ReadAt::Any).await.unwrap().objects.len() as u64, COMMITS / 2);
    let mut watcher = cache.watch(WatchQuery::all(WatchStart::After(last))).await.unwrap();
    for n in COMMITS / 2..COMMITS {
        put(&store, n).await;
    }
    while (seen.len() as u64) < COMMITS {
        let WatchItem::Event(event) = watcher.next().await.unwrap() else { panic!("no bookmarks were wanted") };
        seen.push(event.object().name().to_owned());
    }
    assert_eq!(seen, (0..COMMITS).map(|n| n.to_string()).collect::<Vec<_>>());
    let early = cache.watch(WatchQuery::all(WatchStart::After(Revision::ABSENT))).await.unwrap_err();
    assert!(matches!(early, CacheError::Expired { .. }), "{early}");
    drop(watcher);
    cache.close().await;
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
}
