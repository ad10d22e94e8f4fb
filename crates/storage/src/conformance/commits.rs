//! Cases of commits: atomicity, preconditions, revisions, limits.

use std::sync::Arc;

use super::{
    linear,
    world::{World, commit, conflict, get, item, list, now, op_delete, op_put, put},
};
use crate::{
    At, CommitError, ConflictingOp, InputError, Op, Revision, SharedStore,
    limits::{MAX_COMMIT_BYTES, MAX_COMMIT_OPS, MAX_KEY_BYTES, MAX_VALUE_BYTES},
};

pub(super) async fn a_new_store_is_empty(world: World) {
    let store = world.open().await;
    assert_eq!(list(&store, "", At::Present).await, [""; 0]);
    assert!(now(&store).await >= Revision::INITIAL);
}

pub(super) async fn every_commit_takes_the_next_revision(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    for n in 1..=5 {
        let revision = put(&store, &format!("k{}", n % 2), "v").await;
        assert_eq!(revision, Revision(base.0 + n));
        assert_eq!(now(&store).await, revision);
    }
}

pub(super) async fn a_key_is_created_once(world: World) {
    let store = world.open().await;
    let revision = commit(&store, [Op::create("k", "first")]).await;
    let failed = conflict(&store, [Op::create("k", "second")]).await;
    assert_eq!(failed.revision, revision);
    assert_eq!(failed.failed, [ConflictingOp { index: 0, current: Some(item("k", "first", revision)) }]);
    assert_eq!(get(&store, "k", At::Present).await, Some(item("k", "first", revision)));
}

pub(super) async fn a_key_is_updated_if_unchanged(world: World) {
    let store = world.open().await;
    let first = put(&store, "k", "1").await;
    let second = commit(&store, [Op::update("k", "2", first)]).await;
    let failed = conflict(&store, [Op::update("k", "3", first)]).await;
    assert_eq!(failed.failed, [ConflictingOp { index: 0, current: Some(item("k", "2", second)) }]);
    assert_eq!(now(&store).await, second, "a failed commit takes no revision");
    commit(&store, [Op::update("k", "3", second)]).await;
    assert_eq!(list(&store, "", At::Present).await, ["k=3"]);
}

pub(super) async fn a_key_is_deleted_if_unchanged(world: World) {
    let store = world.open().await;
    let first = put(&store, "k", "1").await;
    let second = put(&store, "k", "2").await;
    let failed = conflict(&store, [op_delete("k").expecting(first)]).await;
    assert_eq!(failed.failed, [ConflictingOp { index: 0, current: Some(item("k", "2", second)) }]);
    commit(&store, [op_delete("k").expecting(second)]).await;
    assert_eq!(get(&store, "k", At::Present).await, None);
}

pub(super) async fn an_absent_key_has_revision_zero(world: World) {
    let store = world.open().await;
    let revision = put(&store, "k", "1").await;
    commit(&store, [op_delete("k")]).await;
    for op in [Op::update("k", "2", revision), op_delete("k").expecting(revision), Op::check("k", revision)] {
        let failed = conflict(&store, [op]).await;
        assert_eq!(failed.failed, [ConflictingOp { index: 0, current: None }]);
    }
    commit(&store, [Op::update("k", "2", Revision::ABSENT)]).await;
    assert_eq!(list(&store, "", At::Present).await, ["k=2"]);
}

pub(super) async fn several_keys_change_in_one_revision(world: World) {
    let store = world.open().await;
    let first = commit(&store, [op_put("a", "1"), op_put("b", "1"), op_put("c", "1")]).await;
    let second = commit(&store, [Op::update("a", "2", first), op_delete("b"), Op::create("d", "2")]).await;
    assert_eq!(second, first.next());
    assert_eq!(list(&store, "", At::Present).await, ["a=2", "c=1", "d=2"]);
    assert_eq!(get(&store, "d", At::Present).await, Some(item("d", "2", second)));
}

pub(super) async fn one_failed_precondition_stops_all(world: World) {
    let store = world.open().await;
    let revision = commit(&store, [op_put("a", "1"), op_put("b", "1")]).await;
    let ops = [op_put("x", "2"), Op::create("a", "2"), Op::update("b", "2", revision), Op::check("c", revision)];
    let failed = conflict(&store, ops).await;
    let expected = [
        ConflictingOp { index: 1, current: Some(item("a", "1", revision)) },
        ConflictingOp { index: 3, current: None },
    ];
    assert_eq!(failed.failed, expected, "every one that failed, and no other");
    assert_eq!(list(&store, "", At::Present).await, ["a=1", "b=1"]);
    assert_eq!(now(&store).await, revision);
}

pub(super) async fn a_check_guards_and_changes_nothing(world: World) {
    let store = world.open().await;
    let guard = put(&store, "guard", "1").await;
    commit(&store, [Op::check("guard", guard), Op::check("other", Revision::ABSENT), op_put("k", "1")]).await;
    assert_eq!(get(&store, "guard", At::Present).await, Some(item("guard", "1", guard)));
    put(&store, "guard", "2").await;
    conflict(&store, [Op::check("guard", guard), op_put("k", "2")]).await;
    assert_eq!(list(&store, "", At::Present).await, ["guard=2", "k=1"]);
}

pub(super) async fn what_changes_nothing_takes_no_revision(world: World) {
    let store = world.open().await;
    let revision = put(&store, "k", "1").await;
    for ops in [vec![], vec![op_delete("absent")], vec![Op::check("k", revision), op_delete("absent")]] {
        let committed = store.commit(ops).await.unwrap();
        assert_eq!((committed.revision, committed.changed), (revision, false));
    }
    assert_eq!(put(&store, "k", "2").await, revision.next());
}

pub(super) async fn the_same_value_again_is_a_change(world: World) {
    let store = world.open().await;
    let first = put(&store, "k", "1").await;
    let second = put(&store, "k", "1").await;
    assert_eq!(second, first.next());
    assert_eq!(get(&store, "k", At::Present).await, Some(item("k", "1", second)));
}

pub(super) async fn a_deleted_key_can_be_created_again(world: World) {
    let store = world.open().await;
    for value in ["1", "2", "3"] {
        let revision = commit(&store, [Op::create("k", value)]).await;
        assert_eq!(get(&store, "k", At::Present).await, Some(item("k", value, revision)));
        commit(&store, [op_delete("k").expecting(revision)]).await;
        assert_eq!(get(&store, "k", At::Present).await, None);
    }
}

pub(super) async fn keys_and_values_are_any_bytes(world: World) {
    let store = world.open().await;
    let keys: [&[u8]; 6] = [b"\0", b"\0\0", b"a\0", b"a\0b", b"\xff", b"\xff\xff\xff"];
    for key in keys {
        commit(&store, [Op::put(key, key)]).await;
    }
    commit(&store, [Op::put("empty", "")]).await;
    let found = list(&store, "", At::Present).await;
    let expected = [
        r"\x00=\x00",
        r"\x00\x00=\x00\x00",
        r"a\x00=a\x00",
        r"a\x00b=a\x00b",
        "empty=",
        r"\xff=\xff",
        r"\xff\xff\xff=\xff\xff\xff",
    ];
    assert_eq!(found, expected);
}

pub(super) async fn the_largest_input_is_accepted(world: World) {
    let store = world.open().await;
    let (key, value) = (vec![b'k'; MAX_KEY_BYTES], vec![b'v'; MAX_VALUE_BYTES]);
    commit(&store, [Op::put(key.clone(), value.clone())]).await;
    let found = store.get(key.clone().into(), At::Present).await.unwrap().item.expect("it is there");
    assert_eq!((found.key.len(), found.value.len()), (key.len(), value.len()));
    assert!(found.value == value, "the value is what was put");
    let many = (0..MAX_COMMIT_OPS).map(|n| op_put(&format!("many/{n:03}"), "v"));
    commit(&store, many).await;
    assert_eq!(list(&store, "many/", At::Present).await.len(), MAX_COMMIT_OPS);
}

pub(super) async fn input_beyond_the_limits_is_refused(world: World) {
    let store = world.open().await;
    let revision = put(&store, "k", "1").await;
    let part = MAX_COMMIT_BYTES / 4 + 1;
    let large: Vec<_> = (0..4).map(|n| Op::put(vec![b'a' + n], vec![0; part])).collect();
    let many: Vec<_> = (0..=MAX_COMMIT_OPS).map(|n| op_put(&n.to_string(), "v")).collect();
    let refused = [
        (vec![Op::put("", "v")], InputError::EmptyKey),
        (vec![Op::delete("")], InputError::EmptyKey),
        (vec![Op::put(vec![b'k'; MAX_KEY_BYTES + 1], "v")], InputError::KeyTooLong { bytes: MAX_KEY_BYTES + 1 }),
        (vec![Op::put("k", vec![0; MAX_VALUE_BYTES + 1])], InputError::ValueTooLarge { bytes: MAX_VALUE_BYTES + 1 }),
        (large, InputError::CommitTooLarge { bytes: 4 * (part + 1) }),
        (many, InputError::TooManyOps { count: MAX_COMMIT_OPS + 1 }),
        (vec![op_put("a", "1"), op_put("b", "1"), op_delete("a")], InputError::DuplicateKey { key: "a".into() }),
    ];
    for (ops, error) in refused {
        // A good operation in front: it must not happen either.
        let ops = [op_put("good", "v")].into_iter().take(usize::from(ops.len() == 1)).chain(ops).collect();
        assert_eq!(store.commit(ops).await, Err(CommitError::Input(error)));
    }
    assert_eq!((now(&store).await, list(&store, "", At::Present).await), (revision, vec!["k=1".to_owned()]));
}

/// Reads the number, adds one and writes it if unchanged, until that succeeds; returns the revision.
async fn increment(store: &SharedStore) -> Revision {
    loop {
        let found = get(store, "counter", At::Present).await;
        let number: u64 = found.as_ref().map_or(0, |item| std::str::from_utf8(&item.value).unwrap().parse().unwrap());
        let expected = found.map_or(Revision::ABSENT, |item| item.mod_revision);
        match store.commit(vec![Op::update("counter", (number + 1).to_string(), expected)]).await {
            Ok(committed) => return committed.revision,
            Err(CommitError::Conflict(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) async fn concurrent_updates_are_not_lost(world: World) {
    const WRITERS: u64 = 8;
    const EACH: u64 = 20;
    let store = world.open().await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                for _ in 0..EACH {
                    revisions.push(increment(&store).await);
                }
                revisions
            })
        })
        .collect();
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.extend(writer.await.unwrap());
    }
    revisions.sort_unstable();
    assert!(revisions.windows(2).all(|pair| pair[0] < pair[1]), "a revision was given out twice");
    assert_eq!(list(&store, "", At::Present).await, [format!("counter={}", WRITERS * EACH)]);
}

pub(super) async fn concurrent_creates_have_one_winner(world: World) {
    let store = world.open().await;
    for round in 0..10 {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let store = Arc::clone(&store);
                let op = Op::create(format!("k{round}"), writer.to_string());
                tokio::spawn(async move { store.commit(vec![op]).await.is_ok() })
            })
            .collect();
        let mut won = Vec::new();
        for (number, writer) in writers.into_iter().enumerate() {
            won.extend(writer.await.unwrap().then(|| number.to_string()));
        }
        assert_eq!(won.len(), 1);
        let found = get(&store, &format!("k{round}"), At::Present).await.expect("it is there");
        assert_eq!(found.value, won[0]);
    }
}

pub(super) async fn concurrent_commits_are_linearizable(world: World) {
    let store = world.open().await;
    let history = linear::record(&store, linear::Load::default()).await;
    linear::check(&history).unwrap();
}
