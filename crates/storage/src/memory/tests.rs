//! What is the memory engine's own: forks, and what its hub does when readers fall behind.

use std::{sync::Arc, task::Poll, time::Duration};

use capstan_clock::ManualClock;

use super::*;
use crate::{Ttl, WatchItem, limits::MAX_WATCHES};

fn clock() -> ManualClock {
    ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
}

fn memory() -> Memory {
    Memory::new(Options::with_clock(Arc::new(clock())))
}

async fn put(store: &Memory, key: &str, value: &str) -> Revision {
    store.commit(vec![Op::put(key.to_owned(), value.to_owned())]).await.unwrap().revision
}

async fn value(store: &Memory, key: &str, at: At) -> Option<String> {
    let item = store.get(key.to_owned().into(), at).await.unwrap().item;
    item.map(|item| String::from_utf8(item.value.to_vec()).unwrap())
}

async fn watch(store: &Memory, prefix: &str, after: Revision) -> Watch {
    store.watch(WatchRequest { prefix: prefix.to_owned().into(), after }).await.unwrap()
}

#[tokio::test]
async fn forks_go_their_own_ways_from_one_history() {
    let original = memory();
    let first = put(&original, "k", "1").await;
    let second = put(&original, "k", "2").await;
    let fork = original.fork();
    assert_eq!(fork.hash(At::Present).await, original.hash(At::Present).await);
    assert_eq!(put(&fork, "k", "fork").await, second.next());
    assert_eq!(put(&original, "k", "original").await, second.next());
    for (store, present) in [(&original, "original"), (&fork, "fork")] {
        assert_eq!(value(store, "k", At::Present).await.as_deref(), Some(present));
        assert_eq!(value(store, "k", At::Exactly(first)).await.as_deref(), Some("1"));
        let mut watch = watch(store, "", first).await;
        for expected in ["2", present] {
            let WatchItem::Batch(batch) = watch.next().await.unwrap() else { panic!("a batch is due") };
            assert_eq!(batch.events[0].current.as_ref().unwrap().value, expected);
        }
    }
    original.compact(second.next()).await.unwrap();
    assert!(fork.get("k".into(), At::Exactly(first)).await.is_ok(), "compaction is each one's own");
}

#[tokio::test]
async fn a_fork_copies_nothing() {
    let original = memory();
    for n in 0..100 {
        let ops = (0..100).map(|m| Op::put(format!("k{n:02}{m:02}"), "v")).collect();
        original.commit(ops).await.unwrap();
    }
    let fork = original.fork();
    let (ours, theirs) = (original.inner.lock(), fork.inner.lock());
    assert_eq!(theirs.present.len(), 10_000);
    assert!(ours.present.ptr_eq(&theirs.present) && ours.log.ptr_eq(&theirs.log));
}

#[tokio::test]
async fn a_fork_has_a_clock_of_its_own() {
    let (ours, theirs) = (clock(), clock());
    let original = Memory::new(Options::with_clock(Arc::new(ours.clone())));
    let ops = vec![Op::put("k", "v").expiring(Ttl::seconds(10).unwrap())];
    let put = original.commit(ops).await.unwrap().revision;
    let fork = original.fork_with(Options::with_clock(Arc::new(theirs.clone())));
    let (mut of_original, mut of_fork) = (watch(&original, "", put).await, watch(&fork, "", put).await);
    theirs.advance(Duration::from_secs(11));
    assert!(matches!(of_fork.next().await, Ok(WatchItem::Batch(_))));
    assert_eq!(value(&fork, "k", At::Present).await, None);
    assert_eq!(value(&original, "k", At::Present).await.as_deref(), Some("v"));
    ours.advance(Duration::from_secs(11));
    assert!(matches!(of_original.next().await, Ok(WatchItem::Batch(_))));
}

#[test]
fn lifetimes_outlive_the_runtime_that_began_them() {
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let clock = clock();
    let store = Memory::new(Options::with_clock(Arc::new(clock.clone())));
    let lasting = |key: &'static str| vec![Op::put(key, "v").expiring(Ttl::seconds(10).unwrap())];
    runtime().block_on(async { store.commit(lasting("first")).await.unwrap() });
    runtime().block_on(async {
        let last = store.commit(lasting("second")).await.unwrap().revision;
        let mut watch = watch(&store, "", last).await;
        clock.advance(Duration::from_secs(11));
        let WatchItem::Batch(batch) = watch.next().await.unwrap() else { panic!("a batch is due") };
        assert_eq!(batch.events.len(), 2);
    });
}

#[tokio::test]
async fn watches_end_with_their_store() {
    let store = memory();
    let mut caught_up = watch(&store, "", Revision::INITIAL).await;
    let mut behind = watch(&store, "", Revision::INITIAL).await;
    put(&store, "k", "v").await;
    assert!(caught_up.next().await.is_ok());
    let waiting = tokio::spawn(async move { caught_up.next().await });
    tokio::task::yield_now().await;
    drop(store);
    let closed = |answer: Result<WatchItem, ReadError>| {
        matches!(answer, Err(ReadError::Fault(Fault { kind: FaultKind::Closed, .. })))
    };
    assert!(closed(waiting.await.unwrap()));
    assert!(behind.next().await.is_ok(), "what was published before is still delivered");
    assert!(closed(behind.next().await));
}

/// A store whose hub keeps only this many bytes, with some commits that nobody has read.
async fn lagging(recent_bytes: usize, commits: u64) -> (Memory, Watch) {
    let options = Options::with_clock(Arc::new(clock()));
    let store = Memory::from_state(State::new(Revision::INITIAL), options, recent_bytes);
    let watch = watch(&store, "k", Revision::INITIAL).await;
    for n in 0..commits {
        put(&store, ["k", "other"][(n % 2) as usize], "v").await;
    }
    (store, watch)
}

#[tokio::test]
async fn a_watch_that_is_behind_reads_on_from_history() {
    // With no room at all, with a little, and with enough; more commits than a stretch of history holds.
    for recent_bytes in [0, 2_000, 1 << 20] {
        let commits = 3 * STRETCH_COMMITS as u64;
        let (store, mut watch) = lagging(recent_bytes, commits).await;
        watch.request_progress();
        let mut seen = Vec::new();
        let progress = loop {
            match watch.next().await.unwrap() {
                WatchItem::Batch(batch) => seen.push(batch.revision.0),
                WatchItem::Progress(revision) => break revision,
            }
        };
        assert_eq!(seen, (2..2 + commits).step_by(2).collect::<Vec<_>>(), "{recent_bytes}");
        assert_eq!(progress, store.revision().await.unwrap());
    }
}

#[tokio::test]
async fn a_watch_whose_history_is_gone_is_told_so() {
    // The first revision after the start of the watch is the first that it may miss.
    for compacted in [Revision(2), Revision(50)] {
        let (store, mut watch) = lagging(2_000, 100).await;
        store.compact(compacted).await.unwrap();
        let lost = ReadError::Compacted { asked: Revision::INITIAL, compacted };
        assert_eq!(watch.next().await, Err(lost.clone()));
        assert_eq!(watch.next().await, Err(lost));
    }
}

#[tokio::test]
async fn a_watch_of_another_prefix_does_not_lag() {
    let (store, _busy) = lagging(0, 10).await;
    let after = store.revision().await.unwrap();
    let mut quiet = watch(&store, "quiet", after).await;
    for _ in 0..10 {
        let last = put(&store, "k", "v").await;
        store.compact(last).await.unwrap();
    }
    let mut next = Box::pin(quiet.next());
    let polled = poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await;
    assert!(polled.is_pending(), "{polled:?}");
}

#[tokio::test]
async fn compaction_clears_away_what_it_forgets() {
    let store = memory();
    for n in 0..1_000 {
        put(&store, &format!("k{}", n % 7), "v").await;
    }
    let last = put(&store, "k0", "v").await;
    store.compact(last).await.unwrap();
    let state = store.inner.lock();
    assert_eq!((state.log.len(), state.past_len(), state.present.len()), (0, 0, 7));
}

#[tokio::test]
async fn watches_are_bounded() {
    let store = memory();
    let request = || WatchRequest { prefix: Key::new(), after: Revision::INITIAL };
    let mut watches = Vec::new();
    for _ in 0..MAX_WATCHES {
        watches.push(store.watch(request()).await.unwrap());
    }
    assert_eq!(store.watch(request()).await.unwrap_err(), Fault::too_many_watches().into());
    watches.pop();
    assert!(store.watch(request()).await.is_ok());
}

#[tokio::test]
async fn a_page_ends_at_its_bytes() {
    let store = memory();
    for n in 0..20 {
        store.commit(vec![Op::put(format!("k{n:02}"), vec![0; 1 << 20])]).await.unwrap();
    }
    let page = store.range(Range::default().counted()).await.unwrap();
    assert_eq!((page.items.len(), page.more, page.count), (PAGE_BYTES >> 20, true, Some(20)));
}
