//! GET and LIST.

use std::{num::NonZeroUsize, time::Duration};

use super::*;
use crate::{cache::limits::SNAPSHOT_AGE, request::ContinueToken};

async fn world() -> World {
    let world = World::new();
    world.commit("a/1 r,a/2 s,b/1 r").await; // 2
    world.commit("a/2 r,ab/1 s,-b/1").await; // 3
    world.commit("b/2 s").await; // 4
    world
}

#[tokio::test]
async fn lists_are_filtered_and_in_order() {
    let world = world().await;
    let check = async |namespace: &str, labels: &str, fields: &str, expected: &[&str]| {
        let asked = query(namespace, labels, fields, WatchStart::Now);
        let asked =
            ListQuery { namespace: asked.namespace, labels: asked.labels, fields: asked.fields, ..Default::default() };
        assert_eq!(world.list(asked).await.unwrap(), expected, "{namespace} {labels} {fields}");
    };
    check("", "", "", &["a/1@2", "a/2@3", "ab/1@3", "b/2@4"]).await;
    check("a", "", "", &["a/1@2", "a/2@3"]).await;
    check("b", "", "", &["b/2@4"]).await;
    check("c", "", "", &[]).await;
    check("", "x=s", "", &["ab/1@3", "b/2@4"]).await;
    check("", "x!=s", "metadata.namespace=a", &["a/1@2", "a/2@3"]).await;
    check("", "", "metadata.name=1", &["a/1@2", "ab/1@3"]).await;
    check("a", "", "metadata.name=1", &["a/1@2"]).await;
    check("a", "x=s", "metadata.name=1", &[]).await;
    check("a", "", "metadata.name=3", &[]).await;
    check("", "", "spec.nodeName=s", &["ab/1@3", "b/2@4"]).await;
    check("", "", "spec.nodeName=", &[]).await;
}

#[tokio::test]
async fn objects_are_found_by_name_and_served_as_stored() {
    let world = world().await;
    let get = async |namespace: &str, name: &str| world.cache.get(namespace, name, ReadAt::Consistent).await.unwrap();
    let found = get("a", "2").await;
    let expected = r#"{"kind":"Pod","metadata":{"labels":{"x":"r"},"name":"2","namespace":"a","resourceVersion":"3","uid":"a/2u"},"spec":{"nodeName":"r"}}"#;
    assert_eq!((found.revision, found.object.unwrap().json.clone()), (Revision(4), expected.into()));
    for (namespace, name) in [("b", "1"), ("", "a/1"), ("a", ""), ("", "1"), ("a", "1/"), ("a/1", "")] {
        assert!(get(namespace, name).await.object.is_none(), "{namespace} {name}");
    }
}

#[tokio::test]
async fn reads_are_as_new_as_asked_for() {
    let world = world().await;
    let at = async |at: ReadAt| world.list(ListQuery { at, ..ListQuery::default() }).await;
    let present = ["a/1@2", "a/2@3", "ab/1@3", "b/2@4"];
    assert_eq!(at(ReadAt::Consistent).await.unwrap(), present);
    assert_eq!(at(ReadAt::NotOlderThan(Revision(4))).await.unwrap(), present);
    assert_eq!(at(ReadAt::Exactly(Revision(4))).await.unwrap(), present);
    assert_eq!(at(ReadAt::Exactly(Revision(3))).await.unwrap(), ["a/1@2", "a/2@3", "ab/1@3"]);
    assert_eq!(at(ReadAt::Exactly(Revision(2))).await.unwrap(), ["a/1@2", "a/2@2", "b/1@2"]);
    // What happens elsewhere counts, too.
    let elsewhere = world.commit_elsewhere().await;
    assert_eq!(at(ReadAt::NotOlderThan(elsewhere)).await.unwrap(), present);
    assert_eq!(world.cache.snapshot(ReadAt::Consistent).await.unwrap().revision, elsewhere);
    world.commit("-a/1").await;
    assert_eq!(at(ReadAt::Exactly(elsewhere)).await.unwrap(), present);
    assert_eq!(at(ReadAt::Consistent).await.unwrap(), present[1..]);
    world.store.compact(elsewhere).await.unwrap();
    let expired = CacheError::Expired { asked: Revision(3), oldest: elsewhere };
    assert_eq!(at(ReadAt::Exactly(Revision(3))).await.unwrap_err(), expired);
}

#[tokio::test]
async fn a_revision_that_does_not_come_is_waited_for_so_long() {
    let world = world().await;
    world.cache.filled().await.unwrap();
    for at in [ReadAt::NotOlderThan(Revision(9)), ReadAt::Exactly(Revision(9))] {
        let mut read = std::pin::pin!(world.cache.snapshot(at));
        assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        world.clock.advance(Duration::from_secs(3));
        let error = CacheError::TooLarge { asked: Revision(9), current: Revision(4) };
        assert_eq!(read.await.unwrap_err(), error);
    }
    let early = world.cache.snapshot(ReadAt::NotOlderThan(Revision(5)));
    let (early, _) = tokio::join!(early, world.commit("a/1 s"));
    assert_eq!(early.unwrap().revision, Revision(5));
}

#[tokio::test]
async fn pages_are_of_one_state() {
    let world = World::with(|options| options.snapshots = 1);
    for n in 0..10 {
        world.commit(&format!("a/{n} r,b/{n} s")).await;
    }
    let page = async |start: Option<ContinueToken>, labels: &str| {
        let at = start.as_ref().map_or(ReadAt::Consistent, ReadAt::from);
        let start = start.map(|token| ContinueToken::decode(&token.encode()).unwrap().start).unwrap_or_default();
        let limit = NonZeroUsize::new(7);
        world.cache.list(&ListQuery { labels: labels.parse().unwrap(), limit, at, start, ..Default::default() }).await
    };
    for (labels, lengths) in [("", vec![(7, Some(13)), (7, Some(6)), (6, None)]), ("x=s", vec![(7, None), (3, None)])] {
        let first = page(None, labels).await.unwrap();
        let (mut seen, mut pages, mut next) = (Vec::new(), Vec::new(), first.next.clone());
        pages.push((first.items.len(), first.remaining));
        seen.extend(first.items);
        while let Some(token) = next {
            // Nothing that happens in between shows, whether the state is kept or read again.
            world.commit("a/55 s,-a/1").await;
            world.commit("a/1 r,-a/55").await;
            if pages.len() == 1 {
                let other = ListQuery { limit: NonZeroUsize::new(1), ..ListQuery::default() };
                world.cache.list(&other).await.unwrap();
            }
            let page = page(Some(token), labels).await.unwrap();
            assert_eq!(page.revision, first.revision);
            pages.push((page.items.len(), page.remaining));
            seen.extend(page.items);
            next = page.next;
        }
        assert_eq!(pages, lengths);
        assert!(seen.is_sorted_by(|a, b| a.key < b.key) && seen.iter().all(|object| &*object.key != "a/55"));
    }
    assert!(world.store.ranges() > 2, "one page had to be read from the store");
}

#[tokio::test]
async fn states_are_not_kept_for_ever() {
    let world = world().await;
    let first = ListQuery { limit: NonZeroUsize::new(1), ..ListQuery::default() };
    let first = world.cache.list(&first).await.unwrap();
    world.store.compact(world.commit("a/1 s").await).await.unwrap();
    let next = ListQuery { at: ReadAt::Exactly(first.revision), ..ListQuery::default() };
    assert_eq!(world.list(next.clone()).await.unwrap().len(), 4);
    world.clock.advance(SNAPSHOT_AGE + Duration::from_secs(1));
    world.commit("a/1 r").await;
    world.cache.snapshot(ReadAt::Consistent).await.unwrap();
    assert!(matches!(world.list(next).await, Err(CacheError::Expired { .. })));
}
