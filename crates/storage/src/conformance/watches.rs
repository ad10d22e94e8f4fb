//! Cases of `watch`: complete, ordered, unique, atomic, resumable, truthful.

use std::{future::poll_fn, sync::Arc, task::Poll};

use super::world::{
    World, batch, batches_through, commit, item, now, op_delete, op_put, put, show_batch, try_watch, watch,
};
use crate::{Batch, Op, ReadError, Revision, SharedStore, Watch, WatchItem};

/// Reads up to `revision` and compares with what is expected, revisions counted from `base`.
async fn expect(watch: &mut Watch, base: Revision, through: Revision, expected: &[&str]) {
    let batches = batches_through(watch, through).await;
    assert_eq!(batches.iter().map(|batch| show_batch(batch, base)).collect::<Vec<_>>(), expected);
}

pub(super) async fn every_change_comes_once_in_order(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut watch = watch(&store, "", base).await;
    let created = put(&store, "k", "1").await;
    let first = batch(&mut watch).await.unwrap();
    assert_eq!(first.revision, created);
    assert_eq!(first.events[0].current, Some(item("k", "1", created)));
    put(&store, "k", "2").await;
    put(&store, "l", "1").await;
    let deleted = commit(&store, [op_delete("k")]).await;
    put(&store, "k", "3").await;
    let last = commit(&store, [op_delete("l")]).await;
    expect(&mut watch, base, last, &["2: ~k=2(1)", "3: +l=1", "4: -k(2)", "5: +k=3", "6: -l(1)"]).await;
    let mut again = self::watch(&store, "", deleted).await;
    expect(&mut again, base, last, &["5: +k=3", "6: -l(1)"]).await;
}

pub(super) async fn only_the_prefix_is_watched(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut live = watch(&store, "a/", base).await;
    let mut last = base;
    for key in ["a/1", "a", "a0", "b/1", "a/", "A/1", "a/1/2"] {
        last = put(&store, key, "v").await;
    }
    let expected = ["1: +a/1=v", "5: +a/=v", "7: +a/1/2=v"];
    expect(&mut live, base, last, &expected).await;
    let mut late = watch(&store, "a/", base).await;
    expect(&mut late, base, last, &expected).await;
}

pub(super) async fn a_watch_starts_in_the_past(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut revisions = vec![base];
    for n in 0..20 {
        revisions.push(put(&store, &format!("k{}", n % 3), &n.to_string()).await);
    }
    for &after in &revisions {
        let mut watch = watch(&store, "k", after).await;
        let batches = batches_through(&mut watch, revisions[20]).await;
        let expected: Vec<_> = revisions.iter().copied().filter(|revision| *revision > after).collect();
        assert_eq!(batches.iter().map(|batch| batch.revision).collect::<Vec<_>>(), expected);
        let next = put(&store, "other", "v").await;
        assert_eq!(batches_through(&mut watch, next).await, []);
    }
}

pub(super) async fn a_batch_is_one_revision(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut live = (watch(&store, "", base).await, watch(&store, "a/", base).await);
    commit(&store, [op_put("b/1", "1"), op_put("a/2", "1"), op_put("a/1", "1"), op_put("c", "1")]).await;
    let ops =
        [op_delete("a/2"), op_delete("absent"), op_put("b/1", "2"), Op::check("c", base.next()), op_put("a/3", "2")];
    let last = commit(&store, ops).await;
    let all = ["1: +b/1=1 +a/2=1 +a/1=1 +c=1", "2: -a/2(1) ~b/1=2(1) +a/3=2"];
    let prefix = ["1: +a/2=1 +a/1=1", "2: -a/2(1) +a/3=2"];
    expect(&mut live.0, base, last, &all).await;
    expect(&mut live.1, base, last, &prefix).await;
    expect(&mut watch(&store, "", base).await, base, last, &all).await;
    expect(&mut watch(&store, "a/", base).await, base, last, &prefix).await;
    // One revision with more than a message holds stays one batch.
    let many = commit(&store, (0..128).map(|n| Op::put(format!("many/{n:03}"), vec![b'v'; 8 * 1024]))).await;
    for mut watch in [live.0, watch(&store, "many/", last).await] {
        let batch = batch(&mut watch).await.unwrap();
        assert_eq!((batch.revision, batch.events.len()), (many, 128));
    }
}

pub(super) async fn what_changes_nothing_is_not_seen(world: World) {
    let store = world.open().await;
    let base = put(&store, "k", "1").await;
    let mut watch = watch(&store, "", base).await;
    for ops in [vec![], vec![op_delete("absent")], vec![Op::check("k", base)], vec![Op::create("k", "2")]] {
        // The last one conflicts.
        let _ = store.commit(ops).await;
    }
    let last = put(&store, "k", "1").await;
    expect(&mut watch, base, last, &["1: ~k=1(1)"]).await;
}

pub(super) async fn a_start_outside_of_the_window_is_refused(world: World) {
    let store = world.open().await;
    for n in 0..5 {
        put(&store, "k", &n.to_string()).await;
    }
    let current = now(&store).await;
    let asked = current.next();
    assert_eq!(try_watch(&store, "", asked).await.unwrap_err(), ReadError::TooNew { asked, current });
    let compacted = Revision(current.0 - 2);
    store.compact(compacted).await.unwrap();
    for asked in [Revision::ABSENT, Revision(compacted.0 - 1)] {
        assert_eq!(try_watch(&store, "", asked).await.unwrap_err(), ReadError::Compacted { asked, compacted });
    }
    let mut watch = watch(&store, "", compacted).await;
    expect(&mut watch, compacted, current, &["1: ~k=3(2)", "2: ~k=4(3)"]).await;
}

pub(super) async fn progress_comes_when_asked_and_never_early(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut quiet = watch(&store, "quiet/", base).await;
    let mut busy = watch(&store, "busy/", base).await;
    for n in 0..50 {
        let last = put(&store, "busy/k", &n.to_string()).await;
        // `batches_through` asserts that nothing follows a progress that it should have preceded.
        assert_eq!(batches_through(&mut quiet, last).await, []);
        if n % 10 == 9 {
            assert_eq!(batches_through(&mut busy, last).await.len(), 10);
        }
    }
    // Asked for before the commits, read after them: progress that speaks for them comes after them.
    busy.request_progress();
    let last = put(&store, "busy/k", "last").await;
    let mut delivered = false;
    loop {
        match busy.next().await.unwrap() {
            WatchItem::Batch(batch) => {
                assert_eq!(batch.revision, last);
                delivered = true;
                busy.request_progress();
            }
            WatchItem::Progress(revision) if revision >= last => break,
            WatchItem::Progress(_) => busy.request_progress(),
        }
    }
    assert!(delivered, "progress was early");
}

pub(super) async fn a_resumed_watch_goes_on(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut whole = watch(&store, "k", base).await;
    let mut parts = Vec::new();
    let mut position = base;
    for n in 0..30 {
        let last = commit(&store, [op_put("k1", &n.to_string()), op_put("k2", &n.to_string())]).await;
        if n % 4 == 3 {
            // A new watch each time, from where the one before stopped, which has not read everything.
            let mut part = watch(&store, "k", position).await;
            let next = batch(&mut part).await.unwrap();
            position = next.revision;
            parts.push(next);
            if n % 8 == 7 {
                let rest = batches_through(&mut part, last).await;
                position = last;
                parts.extend(rest);
            }
        }
    }
    let last = now(&store).await;
    parts.extend(batches_through(&mut watch(&store, "k", position).await, last).await);
    assert_eq!(parts, batches_through(&mut whole, last).await);
}

pub(super) async fn waiting_can_be_cancelled(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut watch = watch(&store, "", base).await;
    let mut seen = Vec::new();
    for n in 0..20 {
        put(&store, "k", &n.to_string()).await;
        // Polled a few times and given up, wherever it stands.
        for _ in 0..3 {
            let polled = {
                let mut next = Box::pin(watch.next());
                poll_fn(|cx| Poll::Ready(next.as_mut().poll(cx))).await
            };
            if let Poll::Ready(Ok(WatchItem::Batch(batch))) = polled {
                seen.push(batch);
            }
            tokio::task::yield_now().await;
        }
    }
    let last = now(&store).await;
    seen.extend(batches_through(&mut watch, last).await);
    let revisions: Vec<_> = seen.iter().map(|batch| batch.revision.0 - base.0).collect();
    assert_eq!(revisions, (1..=20).collect::<Vec<_>>());
}

/// Writes pairs of keys for a while; returns when done.
fn writers(store: &SharedStore, count: u64, each: u64) -> Vec<tokio::task::JoinHandle<()>> {
    let writer = |writer: u64| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for n in 0..each {
                let value = n.to_string();
                let (shared, own) = (format!("a/{}", n % 5), format!("b/{writer}"));
                let last = if n % 7 == 6 { op_delete(&shared) } else { op_put(&shared, &value) };
                store.commit(vec![last, op_put(&own, &value)]).await.unwrap();
            }
        })
    };
    (0..count).map(writer).collect()
}

/// The batches as another prefix would have seen them.
fn restricted(batches: &[Batch], prefix: &str) -> Vec<Batch> {
    let of = |batch: &Batch| {
        let events: Arc<[_]> =
            batch.events.iter().filter(|event| event.key.starts_with(prefix.as_bytes())).cloned().collect();
        (!events.is_empty()).then_some(Batch { revision: batch.revision, events })
    };
    batches.iter().filter_map(of).collect()
}

pub(super) async fn watches_are_complete_under_concurrency(world: World) {
    const WRITERS: u64 = 4;
    const EACH: u64 = 40;
    let store = world.open().await;
    let base = now(&store).await;
    let last = Revision(base.0 + WRITERS * EACH);
    let writers = writers(&store, WRITERS, EACH);
    // Watches that start at any time, from any revision, on any prefix, while commits go on.
    let mut watches = Vec::new();
    for prefix in ["", "a/", "b/1", "", "a/", "b/"] {
        let after = now(&store).await;
        let mut watch = watch(&store, prefix, after).await;
        let read = tokio::spawn(async move { batches_through(&mut watch, last).await });
        watches.push((prefix, after, read));
        tokio::task::yield_now().await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(now(&store).await, last);
    let truth = batches_through(&mut watch(&store, "", base).await, last).await;
    let revisions: Vec<_> = truth.iter().map(|batch| batch.revision.0 - base.0).collect();
    assert_eq!(revisions, (1..=WRITERS * EACH).collect::<Vec<_>>(), "every revision is there");
    let mut present = std::collections::BTreeMap::new();
    for event in truth.iter().flat_map(|batch| batch.events.iter()) {
        assert_eq!(present.get(&event.key), event.previous.as_ref(), "the previous value is the one before");
        match &event.current {
            Some(item) => present.insert(event.key.clone(), item.clone()),
            None => present.remove(&event.key),
        };
    }
    for (prefix, after, read) in watches {
        let expected: Vec<_> = restricted(&truth, prefix).into_iter().filter(|batch| batch.revision > after).collect();
        assert_eq!(read.await.unwrap(), expected, "{prefix:?} after {after}");
    }
}

pub(super) async fn a_slow_reader_holds_up_nobody(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut slow = watch(&store, "", base).await;
    let mut other = watch(&store, "k", base).await;
    let value = "v".repeat(20 * 1024);
    let mut last = base;
    // More than any buffer on the way holds, and nobody reads the slow one.
    for n in 0..600 {
        last = put(&store, &format!("k{}", n % 10), &value).await;
        assert_eq!(batch(&mut other).await.unwrap().revision, last);
    }
    let revisions: Vec<_> = batches_through(&mut slow, last).await.iter().map(|batch| batch.revision).collect();
    assert_eq!(revisions, (base.0 + 1..=last.0).map(Revision).collect::<Vec<_>>());
}

pub(super) async fn a_slow_reader_loses_its_place_openly(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut slow = watch(&store, "", base).await;
    let value = "v".repeat(64 * 1024);
    let mut last = base;
    for n in 0..400 {
        last = put(&store, &format!("k{}", n % 10), &value).await;
    }
    store.compact(last).await.unwrap();
    let mut expected = base.next();
    loop {
        // How much an engine still has at hand is its own affair; that nothing is left out is not.
        match batch(&mut slow).await {
            Ok(batch) => {
                assert_eq!(batch.revision, expected, "a change was left out");
                expected = expected.next();
                if batch.revision == last {
                    break;
                }
            }
            Err(ReadError::Compacted { compacted, .. }) => {
                assert_eq!(compacted, last);
                let again = slow.next().await;
                assert!(matches!(again, Err(ReadError::Compacted { .. })), "it stays lost: {again:?}");
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) async fn a_quiet_watch_survives_compaction(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut quiet = watch(&store, "quiet/", base).await;
    let mut all = watch(&store, "", base).await;
    for n in 0..20 {
        let revision = put(&store, "busy", &n.to_string()).await;
        assert_eq!(batch(&mut all).await.unwrap().revision, revision);
        store.compact(revision).await.unwrap();
    }
    let last = put(&store, "quiet/k", "v").await;
    assert_eq!(batch(&mut quiet).await.unwrap().revision, last);
    assert_eq!(batch(&mut all).await.unwrap().revision, last);
}

pub(super) async fn many_watches_come_and_go(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let mut kept = watch(&store, "k", base).await;
    for n in 0..200 {
        let mut passing = watch(&store, if n % 2 == 0 { "k" } else { "l" }, base).await;
        passing.request_progress();
    }
    let last = put(&store, "k", "v").await;
    assert_eq!(batch(&mut kept).await.unwrap().revision, last);
    let watches: Vec<_> = {
        let mut watches = Vec::new();
        for _ in 0..200 {
            watches.push(watch(&store, "k", last).await);
        }
        watches
    };
    let next = put(&store, "k", "w").await;
    for mut watch in watches {
        assert_eq!(batch(&mut watch).await.unwrap().revision, next);
    }
}
