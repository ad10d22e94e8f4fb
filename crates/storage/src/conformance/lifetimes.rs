//! Cases of keys that expire.

use std::time::Duration;

use super::world::{World, batch, batches_through, commit, get, list, now, op_delete, op_put, put, show_batch, watch};
use crate::{At, Op, Revision, SharedStore, Ttl};

/// The shortest lifetime: where time is real, cases wait for it.
const SHORT: u32 = 1;

pub(super) fn lasting(key: &str, value: &str, seconds: u32) -> Op {
    op_put(key, value).expiring(Ttl::seconds(seconds).expect("not zero"))
}

/// Lets time pass until everything committed after `after` is as expected.
async fn expect(world: &World, store: &SharedStore, after: Revision, expected: &[&str]) {
    let mut watch = watch(store, "", after).await;
    for expected in expected {
        let batch = world.passing(Duration::from_millis(500), batch(&mut watch)).await.unwrap();
        assert_eq!(show_batch(&batch, after), *expected);
    }
}

pub(super) async fn a_key_expires_by_a_commit(world: World) {
    let store = world.open().await;
    let put = commit(&store, [lasting("k", "v", SHORT), op_put("stays", "v")]).await;
    expect(&world, &store, put, &["1: -k(v)"]).await;
    assert_eq!(list(&store, "", At::Present).await, ["stays=v"]);
    assert_eq!(list(&store, "", At::Exactly(put)).await, ["k=v", "stays=v"]);
    assert_eq!(now(&store).await, put.next());
    assert_eq!(commit(&store, [Op::create("k", "again")]).await, Revision(put.0 + 2));
}

pub(super) async fn a_key_does_not_expire_early(world: World) {
    let store = world.open().await;
    let short = commit(&store, [lasting("hour", "v", 3600)]).await;
    let mut watch = watch(&store, "", short).await;
    for _ in 0..3599 {
        world.advance(Duration::from_secs(1));
    }
    // A commit and a turn for everybody: an expirer that is too early has had its chance.
    for n in 0..20 {
        put(&store, "other", &n.to_string()).await;
        tokio::task::yield_now().await;
    }
    let last = now(&store).await;
    assert_eq!(last.0, short.0 + 20, "the store committed something of its own");
    assert_eq!(batches_through(&mut watch, last).await.len(), 20);
    assert!(get(&store, "hour", At::Present).await.is_some());
    if world.engine().virtual_time() {
        expect(&world, &store, last, &["1: -hour(v)"]).await;
    }
}

pub(super) async fn a_put_replaces_the_lifetime(world: World) {
    let store = world.open().await;
    commit(&store, [lasting("longer", "1", SHORT)]).await;
    commit(&store, [lasting("longer", "2", 3600), lasting("shorter", "1", 3600)]).await;
    let last = commit(&store, [lasting("shorter", "2", SHORT)]).await;
    expect(&world, &store, last, &["1: -shorter(2)"]).await;
    assert_eq!(list(&store, "", At::Present).await, ["longer=2"]);
}

pub(super) async fn a_put_without_lifetime_ends_it(world: World) {
    let store = world.open().await;
    commit(&store, [lasting("stays", "1", SHORT)]).await;
    put(&store, "stays", "2").await;
    // A key that expires later shows that the time of the first has come and gone.
    let last = commit(&store, [lasting("goes", "1", 2 * SHORT)]).await;
    expect(&world, &store, last, &["1: -goes(1)"]).await;
    assert_eq!(list(&store, "", At::Present).await, ["stays=2"]);
}

pub(super) async fn a_deleted_key_expires_no_more(world: World) {
    let store = world.open().await;
    commit(&store, [lasting("k", "1", SHORT), lasting("l", "1", SHORT)]).await;
    commit(&store, [op_delete("k"), op_delete("l")]).await;
    put(&store, "k", "again").await;
    let last = commit(&store, [lasting("goes", "1", 2 * SHORT)]).await;
    expect(&world, &store, last, &["1: -goes(1)"]).await;
    assert_eq!(list(&store, "", At::Present).await, ["k=again"]);
}

pub(super) async fn many_keys_expire(world: World) {
    let store = world.open().await;
    for chunk in (0..3).rev() {
        commit(&store, (0..100).map(|n| lasting(&format!("k{chunk}{n:02}"), "v", SHORT))).await;
        world.advance(Duration::from_millis(100));
    }
    let last = put(&store, "stays", "v").await;
    let mut watch = watch(&store, "", last).await;
    let mut gone = Vec::new();
    let (mut at, mut batches) = (last, 0);
    while gone.len() < 300 {
        let batch = world.passing(Duration::from_millis(500), batch(&mut watch)).await.unwrap();
        let keys: Vec<_> = batch.events.iter().map(|event| event.key.clone()).collect();
        assert!(keys.is_sorted(), "by key");
        assert!(batch.events.iter().all(|event| event.current.is_none() && event.previous.is_some()));
        (at, batches) = (batch.revision, batches + 1);
        gone.extend(keys);
    }
    gone.sort_unstable();
    gone.dedup();
    assert_eq!((gone.len(), at.0 - last.0), (300, batches), "each once, each batch a revision");
    assert_eq!(list(&store, "", At::Present).await, ["stays=v"]);
}
