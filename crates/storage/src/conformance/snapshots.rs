//! Cases of the consistency hash, of snapshots and of opening again.

use std::{fs, sync::Arc, time::Duration};

use super::{
    lifetimes::lasting,
    world::{World, batch, commit, list, now, op_delete, op_put, put, show_batch, watch},
};
use crate::{
    At, ConsistencyHash, ConsistencyHasher, FaultKind, Memory, Op, Range, ReadError, Revision, SharedStore, Store,
};

/// A store with some history.
async fn furnished(world: &World) -> SharedStore {
    let store = world.open().await;
    for n in 0..40 {
        let key = format!("k{:02}", n * 7 % 10);
        let op = if n % 5 == 4 { op_delete(&key) } else { op_put(&key, &n.to_string()) };
        commit(&store, [op, op_put(&format!("counter{}", n % 2), &n.to_string())]).await;
    }
    commit(&store, [Op::put(&b"\0binary\xff"[..], &b"\xff\0"[..]), op_put("empty", "")]).await;
    store
}

async fn hash_of_items(store: &dyn Store, at: At) -> ConsistencyHash {
    let page = store.range(Range::default().at(at)).await.unwrap();
    let mut hasher = ConsistencyHasher::default();
    // In any order.
    page.items.iter().rev().for_each(|item| hasher.add(item));
    hasher.at(page.revision)
}

pub(super) async fn the_hash_is_that_of_the_items(world: World) {
    let store = furnished(&world).await;
    let hash = store.hash(At::Present).await.unwrap();
    assert_eq!(hash, hash_of_items(&*store, At::Present).await);
    assert_eq!((hash.revision, hash.keys), (now(&store).await, list(&store, "", At::Present).await.len() as u64));
}

pub(super) async fn the_hash_of_the_past_stays(world: World) {
    let store = world.open().await;
    let mut hashes = vec![store.hash(At::Present).await.unwrap()];
    for n in 0..10 {
        let key = format!("k{}", n % 4);
        commit(&store, [if n % 5 == 4 { op_delete(&key) } else { op_put(&key, &n.to_string()) }]).await;
        hashes.push(store.hash(At::Present).await.unwrap());
    }
    for hash in &hashes {
        assert_eq!(store.hash(At::Exactly(hash.revision)).await.unwrap(), *hash);
        assert_eq!(hash_of_items(&*store, At::Exactly(hash.revision)).await, *hash);
    }
    let mut sums: Vec<_> = hashes.iter().map(|hash| hash.hash).collect();
    sums.sort_unstable();
    sums.dedup();
    assert_eq!(sums.len(), hashes.len(), "states that differ hash alike");
}

pub(super) async fn the_hash_sees_every_difference(world: World) {
    // Each list is a store's life. The same number of commits, so that the revisions are the same.
    let lives: [&[&[(&str, &str)]]; 6] = [
        &[&[("a", "1")], &[("b", "2")]],
        &[&[("a", "1")], &[("b", "3")]],
        &[&[("a", "1")], &[("c", "2")]],
        &[&[("b", "2")], &[("a", "1")]],
        &[&[("a", "1"), ("b", "2")], &[("c", "")]],
        &[&[("a", "2")], &[("b", "1")]],
    ];
    let store = world.open().await;
    let mut hashes = Vec::new();
    for life in lives {
        // Memory, from the same revision: the hash has one definition, and the engine's own is compared with it
        // elsewhere.
        let other: SharedStore = Arc::new(Memory::new(world.options()));
        for puts in life {
            commit(&other, puts.iter().map(|(key, value)| op_put(key, value))).await;
        }
        hashes.push(other.hash(At::Present).await.unwrap().hash);
    }
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), lives.len());
    // The same life on this engine, if it begins at the same revision, hashes the same.
    if now(&store).await == Revision::INITIAL {
        let memory: SharedStore = Arc::new(Memory::new(world.options()));
        for (n, key) in ["x", "y", "x", "z"].into_iter().enumerate() {
            put(&store, key, &n.to_string()).await;
            put(&memory, key, &n.to_string()).await;
            assert_eq!(store.hash(At::Present).await.unwrap(), memory.hash(At::Present).await.unwrap());
        }
    }
}

pub(super) async fn a_snapshot_restores(world: World) {
    let store = furnished(&world).await;
    let path = world.path("snapshot");
    fs::write(&path, "an older file").unwrap();
    let info = store.snapshot(&path).await.unwrap();
    assert_eq!(info.hash, store.hash(At::Present).await.unwrap());
    assert_eq!(info.bytes, fs::metadata(&path).unwrap().len());
    // Later commits are not in it.
    put(&store, "later", "v").await;
    let expected = list(&store, "", At::Exactly(info.hash.revision)).await;
    let restored = world.restore(&path).await.unwrap();
    assert_eq!(list(&restored, "", At::Present).await, expected);
    if world.engine().restores_revisions() {
        assert_eq!(restored.hash(At::Present).await.unwrap(), info.hash);
    }
    // The file is the same whoever wrote it.
    let memory = Memory::restore(&path, world.options()).unwrap();
    assert_eq!(memory.hash(At::Present).await.unwrap(), info.hash);
}

pub(super) async fn a_restored_store_goes_on(world: World) {
    let store = furnished(&world).await;
    let path = world.path("snapshot");
    let info = store.snapshot(&path).await.unwrap();
    let restored = world.restore(&path).await.unwrap();
    let base = now(&restored).await;
    if world.engine().restores_revisions() {
        assert_eq!(base, info.hash.revision);
        let asked = Revision(base.0 - 1);
        let gone = restored.get("k".into(), At::Exactly(asked)).await.unwrap_err();
        assert_eq!(gone, ReadError::Compacted { asked, compacted: base });
    }
    let mut watch = watch(&restored, "", base).await;
    assert_eq!(put(&restored, "empty", "no more").await, base.next());
    assert_eq!(show_batch(&batch(&mut watch).await.unwrap(), base), "1: ~empty=no more()");
    assert!(list(&store, "empty", At::Present).await == ["empty="], "the original is another store");
}

pub(super) async fn a_snapshot_is_one_state(world: World) {
    let store = world.open().await;
    let pair = |n: u32| vec![op_put("a", &n.to_string()), op_put("z", &n.to_string())];
    commit(&store, pair(0)).await;
    // Something in between, so that a snapshot takes a while.
    commit(&store, (0..100).map(|n| Op::put(format!("m{n:03}"), vec![0; 16 * 1024]))).await;
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 1..100 {
                store.commit(pair(n)).await.unwrap();
                tokio::task::yield_now().await;
            }
        })
    };
    for n in 0..5 {
        let path = world.path(&format!("snapshot-{n}"));
        let before = now(&store).await;
        let info = store.snapshot(&path).await.unwrap();
        assert!(info.hash.revision >= before, "older than the call");
        let restored: SharedStore = Arc::new(Memory::restore(&path, world.options()).unwrap());
        let (a, z) = (list(&restored, "a", At::Present).await, list(&restored, "z", At::Present).await);
        assert_eq!(a[0].replace('a', "z"), z[0], "half of a commit");
        assert_eq!(list(&restored, "", At::Present).await, list(&store, "", At::Exactly(info.hash.revision)).await);
    }
    writer.await.unwrap();
}

pub(super) async fn lifetimes_are_restored(world: World) {
    // Where time is real, an hour cannot be waited for, and a second may pass before the snapshot is read.
    if !world.engine().virtual_time() {
        return;
    }
    let store = world.open().await;
    commit(&store, [lasting("hour", "v", 3600), op_put("stays", "v")]).await;
    let path = world.path("snapshot");
    store.snapshot(&path).await.unwrap();
    world.advance(Duration::from_secs(1800));
    let restored = world.restore(&path).await.unwrap();
    let base = now(&restored).await;
    let mut watch = watch(&restored, "", base).await;
    world.advance(Duration::from_secs(1790));
    assert_eq!(list(&restored, "", At::Present).await, ["hour=v", "stays=v"]);
    let gone = world.passing(Duration::from_secs(1), batch(&mut watch)).await.unwrap();
    assert_eq!(show_batch(&gone, base), "1: -hour(v)");
}

pub(super) async fn a_damaged_snapshot_is_refused(world: World) {
    let store = world.open().await;
    commit(&store, [op_put("a", "1"), lasting("b", "2", 3600)]).await;
    let path = world.path("snapshot");
    store.snapshot(&path).await.unwrap();
    let whole = fs::read(&path).unwrap();
    let damaged = world.path("damaged");
    let mut damages: Vec<Vec<u8>> = (0..whole.len()).map(|length| whole[..length].to_vec()).collect();
    damages.push([&whole[..], b"\0"].concat());
    damages.extend((0..whole.len()).map(|at| {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        flipped
    }));
    for (n, damage) in damages.iter().enumerate() {
        fs::write(&damaged, damage).unwrap();
        match world.restore(&damaged).await {
            Ok(_) => panic!("damage {n} was not noticed"),
            Err(fault) => assert_eq!(fault.kind, FaultKind::Corrupt, "damage {n}: {fault}"),
        }
    }
    fs::write(&damaged, whole).unwrap();
    assert!(world.restore(&damaged).await.is_ok());
}

pub(super) async fn a_snapshot_that_cannot_be_written_is_a_fault(world: World) {
    let store = world.open().await;
    put(&store, "k", "v").await;
    let path = world.path("no such directory").join("snapshot");
    let fault = store.snapshot(&path).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Io);
    assert!(fault.to_string().contains("no such directory"), "{fault}");
    let missing = world.restore(&path).await.err().expect("there is nothing to restore");
    assert_eq!(missing.kind, FaultKind::Io);
    put(&store, "k", "the store goes on").await;
    // A directory is in the way of the finished file: nothing half-written stays behind.
    let taken = world.path("taken");
    fs::create_dir_all(taken.join("by something")).unwrap();
    assert!(store.snapshot(&taken).await.is_err());
    let names: Vec<_> =
        fs::read_dir(taken.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().starts_with("taken.")), "{names:?}");
}

pub(super) async fn what_was_acknowledged_is_there_when_opened_again(world: World) {
    let directory = world.directory();
    let store = world.engine().open(&directory, world.options()).await.unwrap();
    let first = put(&store, "a", "1").await;
    let second = commit(&store, [op_put("a", "2"), op_put("b", "2"), lasting("hour", "v", 3600)]).await;
    let third = commit(&store, [op_delete("b")]).await;
    let hash = store.hash(At::Present).await.unwrap();
    drop(store);
    let Some(opening) = world.engine().reopen(&directory, world.options()) else { return };
    let store = opening.await.unwrap();
    assert_eq!(store.hash(At::Present).await.unwrap(), hash);
    assert_eq!(list(&store, "", At::Present).await, ["a=2", "hour=v"]);
    // History within the window is there too: a watch resumes across the restart.
    assert_eq!(list(&store, "", At::Exactly(first)).await, ["a=1"]);
    let mut watch = watch(&store, "", first).await;
    assert_eq!(show_batch(&batch(&mut watch).await.unwrap(), first), "1: ~a=2(1) +b=2 +hour=v");
    assert_eq!(show_batch(&batch(&mut watch).await.unwrap(), second), "1: -b(2)");
    assert_eq!(put(&store, "a", "3").await, third.next());
    assert_eq!(show_batch(&batch(&mut watch).await.unwrap(), third), "1: ~a=3(2)");
    if world.engine().virtual_time() {
        world.advance(Duration::from_secs(3590));
        assert_eq!(list(&store, "hour", At::Present).await, ["hour=v"]);
        let gone = world.passing(Duration::from_secs(1), batch(&mut watch)).await.unwrap();
        assert_eq!(show_batch(&gone, third.next()), "1: -hour(v)");
    }
}
