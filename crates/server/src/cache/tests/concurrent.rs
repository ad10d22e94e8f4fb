//! Readers, watchers and writers at the same time, on several threads.

use std::collections::BTreeMap;

use capstan_api::watch_event::EventType;

use super::*;

const WRITERS: usize = 3;
const COMMITS: usize = 200;

/// Lists, then watches until the last object has come, and returns what that makes.
async fn follow(
    cache: Arc<ResourceCache>,
    namespace: &'static str,
    labels: &'static str,
) -> BTreeMap<String, bytes::Bytes> {
    let WatchQuery { namespace: wanted, labels: selector, .. } = query(namespace, labels, "", WatchStart::Now);
    let listed = ListQuery { namespace: wanted, labels: selector, ..ListQuery::default() };
    let page = cache.list(&listed).await.unwrap();
    let mut objects: BTreeMap<_, _> =
        page.items.iter().map(|object| (object.key.to_string(), object.json.clone())).collect();
    let mut watcher = cache.watch(query(namespace, labels, "", WatchStart::After(page.revision))).await.unwrap();
    while !objects.contains_key("a/last") {
        let Ok(WatchItem::Event(event)) = watcher.next().await else { panic!("no bookmarks were wanted") };
        let key = event.object().key.to_string();
        match event.event_type() {
            EventType::Deleted => objects.remove(&key),
            _ => objects.insert(key, event.object().json.clone()),
        };
    }
    objects
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_arrives_at_the_same() {
    let world = World::new();
    let (store, cache) = (Arc::clone(&world.store), Arc::new(world.cache));
    let asked = [("", ""), ("a", ""), ("", "x=r"), ("a", "x in (r,s)")];
    let followers: Vec<_> = (0..4 * asked.len())
        .map(|n| {
            (
                n % asked.len(),
                tokio::spawn(follow(Arc::clone(&cache), asked[n % asked.len()].0, asked[n % asked.len()].1)),
            )
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, cache) = (Arc::clone(&store), Arc::clone(&cache));
            tokio::spawn(async move {
                for n in 0..COMMITS {
                    let key = format!("{}/{}", ["a", "b"][n % 2], (n * 7 + writer) % 5);
                    let op = match n % 6 {
                        5 => Op::delete(format!("{PREFIX}{key}")),
                        n => Op::put(format!("{PREFIX}{key}"), object(&key, ["r", "s", "t"][n % 3])),
                    };
                    let revision = store.commit(vec![op]).await.unwrap().revision;
                    // Whoever has written sees it.
                    let seen = cache.get("a", "0", ReadAt::Consistent).await.unwrap().revision;
                    assert!(seen >= revision, "{seen} {revision}");
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    store.commit(vec![Op::put(format!("{PREFIX}a/last"), object("a/last", "r"))]).await.unwrap();
    for (at, follower) in followers {
        let WatchQuery { namespace, labels, .. } = query(asked[at].0, asked[at].1, "", WatchStart::Now);
        let page = cache.list(&ListQuery { namespace, labels, ..ListQuery::default() }).await.unwrap();
        let listed: BTreeMap<_, _> =
            page.items.iter().map(|object| (object.key.to_string(), object.json.clone())).collect();
        assert_eq!(follower.await.unwrap(), listed, "{:?}", asked[at]);
    }
}
