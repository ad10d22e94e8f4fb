//! Cases of compaction: what goes, what stays, by hand, by age and by size.

use std::time::Duration;

use super::world::{World, commit, get, item, list, now, op_delete, op_put, put};
use crate::{At, Range, ReadError, Revision, SharedStore};

/// What a read exactly at `revision` says: whether it is kept.
async fn kept(store: &SharedStore, revision: Revision) -> bool {
    match store.get("k".into(), At::Exactly(revision)).await {
        Ok(found) => {
            assert_eq!(found.revision, revision);
            true
        }
        Err(ReadError::Compacted { asked, compacted }) => {
            assert!(asked == revision && compacted > revision, "{asked} {compacted}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

pub(super) async fn what_is_before_is_gone(world: World) {
    let store = world.open().await;
    let mut revisions = Vec::new();
    for n in 0..6 {
        revisions.push(put(&store, "k", &n.to_string()).await);
    }
    let compacted = revisions[3];
    store.compact(compacted).await.unwrap();
    for (n, &asked) in revisions.iter().enumerate() {
        if asked < compacted {
            let gone = ReadError::Compacted { asked, compacted };
            assert_eq!(store.get("k".into(), At::Exactly(asked)).await.unwrap_err(), gone);
            assert_eq!(store.range(Range::default().at(At::Exactly(asked))).await.unwrap_err(), gone);
            assert_eq!(store.hash(At::Exactly(asked)).await.unwrap_err(), gone);
        } else {
            assert_eq!(get(&store, "k", At::Exactly(asked)).await, Some(item("k", &n.to_string(), asked)));
        }
        // Not older than what is gone is still whatever is there.
        assert!(store.get("k".into(), At::NotOlderThan(asked)).await.unwrap().revision >= compacted);
    }
    let zero = store.get("k".into(), At::Exactly(Revision::ABSENT)).await.unwrap_err();
    assert_eq!(zero, ReadError::Compacted { asked: Revision::ABSENT, compacted });
}

pub(super) async fn compaction_only_moves_forward(world: World) {
    let store = world.open().await;
    let first = put(&store, "k", "1").await;
    let second = put(&store, "k", "2").await;
    let third = put(&store, "k", "3").await;
    for revision in [second, second, first, Revision::ABSENT] {
        store.compact(revision).await.unwrap();
        assert_eq!((kept(&store, first).await, kept(&store, second).await), (false, true));
    }
    store.compact(third).await.unwrap();
    assert_eq!((kept(&store, second).await, kept(&store, third).await), (false, true));
}

pub(super) async fn the_future_cannot_be_compacted(world: World) {
    let store = world.open().await;
    let current = put(&store, "k", "1").await;
    let asked = current.next();
    assert_eq!(store.compact(asked).await.unwrap_err(), ReadError::TooNew { asked, current });
    assert_eq!(put(&store, "k", "2").await, asked);
    assert!(kept(&store, current).await);
}

pub(super) async fn the_present_is_untouched(world: World) {
    let store = world.open().await;
    let a = put(&store, "a", "1").await;
    put(&store, "b", "1").await;
    commit(&store, [op_delete("b"), op_put("c", "1")]).await;
    let last = put(&store, "d", "1").await;
    let hash = store.hash(At::Present).await.unwrap();
    for revision in a.0..=last.0 {
        store.compact(Revision(revision)).await.unwrap();
        assert_eq!(list(&store, "", At::Present).await, ["a=1", "c=1", "d=1"]);
        assert_eq!(list(&store, "", At::Exactly(last)).await, ["a=1", "c=1", "d=1"]);
        assert_eq!(store.hash(At::Present).await.unwrap(), hash);
    }
    assert_eq!(now(&store).await, last, "compaction takes no revision");
    assert_eq!(commit(&store, [crate::Op::update("a", "2", a)]).await, last.next());
}

pub(super) async fn old_states_go_by_themselves(world: World) {
    let mut options = world.options();
    options.retention.age = Duration::from_secs(2);
    let store = world.open_with(options).await;
    let first = put(&store, "k", "0").await;
    // Commits go on and time passes: at last the first state is gone.
    while kept(&store, first).await {
        put(&store, "k", "v").await;
        // After the commit and not while it is under way: only time after it was superseded makes a state old.
        world.advance(Duration::from_millis(500));
        tokio::task::yield_now().await;
    }
    // Not all keys: on etcd there is one by which servers take turns to compact.
    assert_eq!(list(&store, "k", At::Present).await, ["k=v"]);
}

pub(super) async fn young_states_stay(world: World) {
    let store = world.open().await;
    let first = put(&store, "k", "0").await;
    for _ in 0..20 {
        // Not yet five minutes in all.
        world.advance(Duration::from_secs(14));
        put(&store, "k", "v").await;
    }
    assert_eq!(get(&store, "k", At::Exactly(first)).await, Some(item("k", "0", first)));
}

pub(super) async fn much_history_goes_by_itself(world: World) {
    if !world.engine().compacts_by_size() {
        return;
    }
    let mut options = world.options();
    options.retention.bytes = 256 * 1024;
    let store = world.open_with(options).await;
    let first = put(&store, "k", "0").await;
    let value = "v".repeat(8 * 1024);
    let mut last = first;
    while kept(&store, first).await {
        last = put(&store, "k", &value).await;
        assert!(last.0 < first.0 + 100_000, "history grows without a bound");
        tokio::task::yield_now().await;
    }
    assert!(kept(&store, last).await);
    assert!(last.0 > first.0 + 16, "far too little is kept");
}
