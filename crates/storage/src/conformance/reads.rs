//! Cases of `get` and `range`: the present, the past, pages, counts, waits.

use std::{sync::Arc, time::Duration};

use super::world::{World, commit, get, item, list, now, op_delete, op_put, put, show};
use crate::{
    At, InputError, Op, Range, ReadError, Revision,
    limits::{MAX_COMMIT_OPS, MAX_KEY_BYTES, MAX_PAGE_ITEMS, MAX_VALUE_BYTES, PAGE_BYTES},
};

pub(super) async fn get_tells_value_and_revision(world: World) {
    let store = world.open().await;
    let first = put(&store, "a", "1").await;
    let second = put(&store, "b", "2").await;
    let found = store.get("a".into(), At::Present).await.unwrap();
    assert_eq!((found.revision, found.item), (second, Some(item("a", "1", first))));
    let found = store.get("absent".into(), At::Present).await.unwrap();
    assert_eq!((found.revision, found.item), (second, None));
}

pub(super) async fn the_past_can_be_read(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let first = put(&store, "k", "1").await;
    let second = put(&store, "k", "2").await;
    let deleted = commit(&store, [op_delete("k")]).await;
    let other = put(&store, "other", "x").await;
    let third = put(&store, "k", "3").await;
    let history = [
        (base, None),
        (first, Some(item("k", "1", first))),
        (second, Some(item("k", "2", second))),
        (deleted, None),
        (other, None),
        (third, Some(item("k", "3", third))),
    ];
    for (revision, expected) in history {
        let found = store.get("k".into(), At::Exactly(revision)).await.unwrap();
        assert_eq!((found.revision, found.item), (revision, expected));
    }
}

pub(super) async fn a_range_is_its_prefix_in_order(world: World) {
    let store = world.open().await;
    for key in ["b", "a0", "a/2", "a/10", "a/", "a", "a.", "a/1", "/"] {
        put(&store, key, "v").await;
    }
    let cases: [(&str, &[&str]); 6] = [
        ("a/", &["a/=v", "a/1=v", "a/10=v", "a/2=v"]),
        ("a/1", &["a/1=v", "a/10=v"]),
        ("a", &["a=v", "a.=v", "a/=v", "a/1=v", "a/10=v", "a/2=v", "a0=v"]),
        ("c", &[]),
        ("a/3", &[]),
        ("", &["/=v", "a=v", "a.=v", "a/=v", "a/1=v", "a/10=v", "a/2=v", "a0=v", "b=v"]),
    ];
    for (prefix, expected) in cases {
        assert_eq!(list(&store, prefix, At::Present).await, expected, "prefix {prefix:?}");
    }
    // A prefix that has no successor of its own length.
    for key in [&b"\xff"[..], b"\xff\xff", b"\xff\xffa", b"\xfe\xff\xff"] {
        commit(&store, [Op::put(key, "v")]).await;
    }
    let page = store.range(Range::prefix(&b"\xff\xff"[..])).await.unwrap();
    assert_eq!(page.items.iter().map(show).collect::<Vec<_>>(), [r"\xff\xff=v", r"\xff\xffa=v"]);
    let page = store.range(Range::prefix(&b"\xfe\xff"[..])).await.unwrap();
    assert_eq!(page.items.iter().map(show).collect::<Vec<_>>(), [r"\xfe\xff\xff=v"]);
}

pub(super) async fn a_range_begins_at_its_start(world: World) {
    let store = world.open().await;
    commit(&store, ["a/1", "a/2", "a/3", "b/1", "0"].map(|key| op_put(key, "v"))).await;
    let cases: [(&str, &str, &[&str]); 8] = [
        ("a/", "a/2", &["a/2=v", "a/3=v"]),
        ("a/", "a/2\0", &["a/3=v"]),
        ("a/", "a/25", &["a/3=v"]),
        ("a/", "a/4", &[]),
        ("a/", "0", &["a/1=v", "a/2=v", "a/3=v"]),
        ("a/", "b", &[]),
        ("a/", "", &["a/1=v", "a/2=v", "a/3=v"]),
        ("", "a/3", &["a/3=v", "b/1=v"]),
    ];
    for (prefix, start, expected) in cases {
        let range = Range::prefix(prefix).starting(start).counted();
        let page = store.range(range).await.unwrap();
        assert_eq!(page.items.iter().map(show).collect::<Vec<_>>(), expected, "{prefix:?} from {start:?}");
        assert_eq!((page.count, page.more), (Some(expected.len() as u64), false), "{prefix:?} from {start:?}");
    }
}

pub(super) async fn limit_more_and_count_are_exact(world: World) {
    let store = world.open().await;
    commit(&store, (0..7).map(|n| op_put(&format!("a/{n}"), "v")).chain([op_put("b", "v")])).await;
    let cases = [(0, 7, false), (1, 1, true), (6, 6, true), (7, 7, false), (8, 7, false), (u32::MAX, 7, false)];
    for (limit, items, more) in cases {
        let range = Range::prefix("a/").limited(limit);
        let page = store.range(range.clone().counted()).await.unwrap();
        assert_eq!((page.items.len(), page.more, page.count), (items, more, Some(7)), "limit {limit}");
        let page = store.range(range).await.unwrap();
        assert_eq!((page.items.len(), page.more, page.count), (items, more, None), "limit {limit}, not counted");
    }
    let page = store.range(Range::prefix("none").limited(1).counted()).await.unwrap();
    assert_eq!((page.items.len(), page.more, page.count), (0, false, Some(0)));
}

pub(super) async fn pages_are_of_one_state(world: World) {
    let store = world.open().await;
    commit(&store, (0..10).map(|n| op_put(&format!("a/{n}"), "old"))).await;
    let mut range = Range::prefix("a/").limited(3).counted();
    let (mut found, mut counts) = (Vec::new(), Vec::new());
    loop {
        let page = store.range(range.clone()).await.unwrap();
        counts.push(page.count.expect("it was asked for"));
        found.extend(page.items.iter().map(show));
        // What happens between the pages is not in them.
        commit(&store, [op_delete("a/5"), op_put("a/9", "new"), op_put("a/55", "new")]).await;
        match range.following(&page) {
            Some(next) => range = next,
            None => break,
        }
    }
    assert_eq!(found, (0..10).map(|n| format!("a/{n}=old")).collect::<Vec<_>>());
    assert_eq!(counts, [10, 7, 4, 1]);
}

pub(super) async fn a_page_is_bounded(world: World) {
    let store = world.open().await;
    let keys: Vec<_> = (0..=MAX_PAGE_ITEMS).map(|n| op_put(&format!("k{n:05}"), "v")).collect();
    for chunk in keys.chunks(MAX_COMMIT_OPS) {
        commit(&store, chunk.to_vec()).await;
    }
    let range = Range::prefix("k").counted();
    let page = store.range(range.clone()).await.unwrap();
    assert!(page.items.len() <= MAX_PAGE_ITEMS && page.more);
    assert_eq!(page.count, Some(MAX_PAGE_ITEMS as u64 + 1));
    let mut items = page.items.len();
    let mut next = range.following(&page);
    while let Some(range) = next {
        let page = store.range(range.clone()).await.unwrap();
        items += page.items.len();
        next = range.following(&page);
    }
    assert_eq!(items, MAX_PAGE_ITEMS + 1);
}

pub(super) async fn large_values_come_in_pages(world: World) {
    let store = world.open().await;
    let values = 2 * PAGE_BYTES / MAX_VALUE_BYTES + 1;
    for n in 0..values {
        commit(&store, [Op::put(format!("k{n:02}"), vec![b'v'; MAX_VALUE_BYTES])]).await;
    }
    let mut next = Some(Range::prefix("k"));
    let mut found = 0;
    while let Some(range) = next {
        let page = store.range(range.clone()).await.unwrap();
        for item in &page.items {
            assert_eq!((&item.key[..], item.value.len()), (format!("k{found:02}").as_bytes(), MAX_VALUE_BYTES));
            found += 1;
        }
        next = range.following(&page);
    }
    assert_eq!(found, values);
}

pub(super) async fn the_past_can_be_ranged(world: World) {
    let store = world.open().await;
    let base = now(&store).await;
    let one = commit(&store, [op_put("a", "1"), op_put("b", "1"), op_put("c", "1")]).await;
    let two = commit(&store, [op_delete("a"), op_put("b", "2"), op_put("d", "2")]).await;
    let three = commit(&store, [op_put("a", "3"), op_delete("b"), op_delete("d")]).await;
    let four = commit(&store, [op_delete("c")]).await;
    let history: [(Revision, &[&str]); 5] = [
        (base, &[]),
        (one, &["a=1", "b=1", "c=1"]),
        (two, &["b=2", "c=1", "d=2"]),
        (three, &["a=3", "c=1"]),
        (four, &["a=3"]),
    ];
    for (revision, expected) in history {
        let range = Range::default().counted().at(At::Exactly(revision));
        let page = store.range(range.clone()).await.unwrap();
        assert_eq!(page.items.iter().map(show).collect::<Vec<_>>(), expected, "at {revision}");
        assert_eq!((page.revision, page.count, page.more), (revision, Some(expected.len() as u64), false));
        let page = store.range(range.limited(1)).await.unwrap();
        assert_eq!((page.items.len(), page.more), (expected.len().min(1), expected.len() > 1), "at {revision}");
    }
}

pub(super) async fn the_future_is_too_new(world: World) {
    let store = world.open().await;
    let current = put(&store, "k", "v").await;
    for asked in [current.next(), Revision(u64::MAX)] {
        let too_new = ReadError::TooNew { asked, current };
        assert_eq!(store.get("k".into(), At::Exactly(asked)).await.unwrap_err(), too_new);
        assert_eq!(store.range(Range::default().at(At::Exactly(asked))).await.unwrap_err(), too_new);
        assert_eq!(store.hash(At::Exactly(asked)).await.unwrap_err(), too_new);
    }
}

pub(super) async fn not_older_than_takes_what_is_there(world: World) {
    let store = world.open().await;
    let first = put(&store, "k", "1").await;
    let second = put(&store, "k", "2").await;
    let found = store.get("k".into(), At::NotOlderThan(second)).await.unwrap();
    assert_eq!((found.revision, found.item), (second, Some(item("k", "2", second))));
    for asked in [Revision::ABSENT, first] {
        let found = store.get("k".into(), At::NotOlderThan(asked)).await.unwrap();
        assert!(found.revision >= asked);
        assert_eq!(found.item, get(&store, "k", At::Exactly(found.revision)).await);
    }
}

pub(super) async fn not_older_than_waits(world: World) {
    let store = world.open().await;
    let current = put(&store, "k", "1").await;
    let reader = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.get("k".into(), At::NotOlderThan(Revision(current.0 + 2))).await })
    };
    tokio::task::yield_now().await;
    put(&store, "k", "2").await;
    let second = put(&store, "k", "3").await;
    let found = reader.await.unwrap().unwrap();
    assert_eq!((found.revision, found.item), (second, Some(item("k", "3", second))));
}

pub(super) async fn not_older_than_gives_up(world: World) {
    let mut options = world.options();
    options.freshness_wait = Duration::from_millis(200);
    let store = world.open_with(options).await;
    let current = put(&store, "k", "1").await;
    let asked = Revision(current.0 + 1_000);
    let read = store.get("k".into(), At::NotOlderThan(asked));
    let error = world.passing(Duration::from_millis(50), read).await.unwrap_err();
    assert_eq!(error, ReadError::TooNew { asked, current });
    assert_eq!(put(&store, "k", "2").await, current.next(), "the store goes on");
}

pub(super) async fn bad_questions_are_refused(world: World) {
    let store = world.open().await;
    let long = vec![b'k'; MAX_KEY_BYTES + 2];
    let too_long = ReadError::Input(InputError::KeyTooLong { bytes: long.len() });
    assert_eq!(store.get("".into(), At::Present).await.unwrap_err(), ReadError::Input(InputError::EmptyKey));
    assert_eq!(store.get(long.clone().into(), At::Present).await.unwrap_err(), too_long);
    assert_eq!(store.range(Range::prefix(long.clone())).await.unwrap_err(), too_long);
    assert_eq!(store.range(Range::default().starting(long.clone())).await.unwrap_err(), too_long);
    let request = crate::WatchRequest { prefix: long.into(), after: now(&store).await };
    assert_eq!(store.watch(request).await.unwrap_err(), too_long);
}
