//! Whoever applies the events to what was listed has what is listed later: under any commits, readers, compactions and
//! faults.

use std::collections::BTreeMap;

use capstan_api::{
    selector::{FieldSelector, Selector},
    watch_event::EventType,
};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::cache::limits::BOOKMARK_EVERY;

const KEYS: [&str; 6] = ["a/1", "a/2", "a/3", "ab/1", "b/1", "b/2"];
const LABELS: [&str; 4] = ["r", "s", "t", "New"];

/// What watchers ask: namespace, labels, fields.
const ASKED: [(&str, &str, &str); 8] = [
    ("", "", ""),
    ("a", "", ""),
    ("", "x=r", ""),
    ("a", "x in (r,s)", ""),
    ("b", "", "metadata.name=1"),
    ("", "", "spec.nodeName=s"),
    ("a", "x!=t", "spec.nodeName!=s"),
    ("", "", "metadata.name=1"),
];

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(usize, Option<usize>)>),
    Elsewhere,
    /// One of the watchers takes so many items.
    Read(usize, usize),
    Compact(u64),
    Advance,
    CutOff,
    JoinUp,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0..KEYS.len(), proptest::option::weighted(0.7, 0..LABELS.len()));
    let step = prop_oneof![
        12 => vec(change, 1..4).prop_map(Step::Commit),
        1 => Just(Step::Elsewhere),
        8 => (0..ASKED.len(), 1..6usize).prop_map(|(who, many)| Step::Read(who, many)),
        1 => (0..4u64).prop_map(Step::Compact),
        2 => Just(Step::Advance),
        1 => Just(Step::CutOff),
        2 => Just(Step::JoinUp),
    ];
    vec(step, 1..60)
}

/// A watcher and what it makes of its events.
struct Client {
    asked: (Option<capstan_api::Str>, Selector, FieldSelector),
    watcher: Watcher,
    objects: BTreeMap<String, bytes::Bytes>,
    /// The revision of the last item.
    last: Revision,
    /// Where the cache stood when the watch began: what is older may come as part of a state, by key.
    began: Revision,
}

impl Client {
    async fn new(world: &World, at: usize, start: WatchStart) -> Self {
        let (namespace, labels, fields) = ASKED[at];
        let asked = WatchQuery { bookmarks: true, ..query(namespace, labels, fields, start) };
        let watcher = world.cache.watch(asked.clone()).await.unwrap();
        let asked = (asked.namespace, asked.labels, asked.fields);
        Client { asked, watcher, objects: BTreeMap::new(), last: Revision(0), began: world.cache.revision() }
    }

    async fn listed(&self, world: &World, at: ReadAt) -> Result<BTreeMap<String, bytes::Bytes>, CacheError> {
        let (namespace, labels, fields) = self.asked.clone();
        let page = world.cache.list(&ListQuery { namespace, labels, fields, at, ..ListQuery::default() }).await?;
        Ok(page.items.iter().map(|object| (object.key.to_string(), object.json.clone())).collect())
    }

    /// Never early: what has been applied is the state of that revision, whole.
    async fn check(&self, world: &World, delivered: Option<Revision>) {
        let Some(revision) = delivered else { return };
        assert!(revision >= self.last);
        if let Ok(listed) = self.listed(world, ReadAt::Exactly(revision)).await {
            assert_eq!(self.objects, listed, "at {revision}");
        }
    }

    /// Applies up to `many` items; whoever has expired lists again.
    async fn read(&mut self, world: &World, many: usize) {
        for _ in 0..many {
            match now(&mut self.watcher) {
                None => return,
                Some(Ok(WatchItem::Event(event))) => {
                    let (object, key) = (event.object(), event.object().key.to_string());
                    assert!(object.revision >= self.last || object.revision <= self.began, "out of order");
                    self.last = self.last.max(object.revision);
                    let before = match event.event_type() {
                        EventType::Deleted => self.objects.remove(&key),
                        _ => self.objects.insert(key, object.json.clone()),
                    };
                    assert_eq!(before.is_none(), event.event_type() == EventType::Added, "{event:?}");
                    self.check(world, self.watcher.delivered()).await;
                }
                Some(Ok(WatchItem::Bookmark { revision, .. })) => {
                    assert!(revision >= self.last);
                    self.last = revision;
                    self.check(world, Some(revision)).await;
                }
                Some(Err(CacheError::Expired { .. })) => {
                    let start = WatchStart::State { at: ReadAt::Any, closing_bookmark: true };
                    let (namespace, labels, fields) = self.asked.clone();
                    let asked = WatchQuery { namespace, labels, fields, bookmarks: true, start };
                    self.watcher = world.cache.watch(asked).await.unwrap();
                    self.objects.clear();
                    (self.last, self.began) = (Revision(0), world.cache.revision());
                }
                Some(Err(error)) => panic!("{error}"),
            }
        }
    }
}

async fn commit(world: &World, changes: &[(usize, Option<usize>)]) {
    let changes: BTreeMap<_, _> = changes.iter().copied().collect();
    let change = |(key, label): (usize, Option<usize>)| match label {
        Some(label) => format!("{} {}", KEYS[key], LABELS[label]),
        None => format!("-{}", KEYS[key]),
    };
    world.commit(&changes.into_iter().map(change).collect::<Vec<_>>().join(",")).await;
}

async fn run(steps: &[Step], history: usize) {
    let world = World::with(|options| options.history_events = history);
    world.commit("a/1 r,b/1 s,b/2 t").await;
    let mut clients = Vec::new();
    for at in 0..ASKED.len() {
        let start = WatchStart::State { at: ReadAt::Consistent, closing_bookmark: at % 2 == 0 };
        clients.push(Client::new(&world, at, start).await);
    }
    let mut connected = true;
    for step in steps {
        match step {
            Step::Commit(changes) => commit(&world, changes).await,
            Step::Elsewhere => drop(world.commit_elsewhere().await),
            Step::Read(who, many) => clients[*who].read(&world, *many).await,
            Step::Compact(back) => {
                let revision = world.store.revision().await.unwrap();
                world.store.compact(Revision(revision.0.saturating_sub(*back).max(1))).await.unwrap();
            }
            Step::Advance => world.clock.advance(BOOKMARK_EVERY / 4),
            Step::CutOff if connected => {
                world.cut_off().await;
                connected = false;
            }
            Step::JoinUp if !connected => {
                world.join_up().await;
                connected = true;
            }
            Step::CutOff | Step::JoinUp => {}
        }
        tokio::task::yield_now().await;
    }
    if !connected {
        world.join_up().await;
    }
    world.cache.snapshot(ReadAt::Consistent).await.unwrap();
    for client in &mut clients {
        client.read(&world, usize::MAX).await;
        assert_eq!(client.objects, client.listed(&world, ReadAt::Consistent).await.unwrap(), "{:?}", client.asked);
    }
    // What is listed is what is stored.
    let fresh = start(&world.clock, &world.store, |_| {});
    let versions = |snapshot: super::super::Snapshot| {
        snapshot.objects.iter().map(|(key, object)| (key.to_string(), object.json.clone())).collect::<Vec<_>>()
    };
    let (ours, theirs) =
        (world.cache.snapshot(ReadAt::Consistent).await.unwrap(), fresh.snapshot(ReadAt::Consistent).await.unwrap());
    assert_eq!(versions(ours), versions(theirs));
}

/// Whoever resumes, from whichever revision, gets there as well, by the same events.
async fn resume(commits: &[Vec<(usize, Option<usize>)>]) {
    let world = World::new();
    world.cache.filled().await.unwrap();
    for changes in commits {
        commit(&world, changes).await;
    }
    let last = world.store.revision().await.unwrap();
    for at in 0..ASKED.len() {
        let mut whole = Client::new(&world, at, WatchStart::After(Revision::INITIAL)).await;
        let told = world.drain(&mut whole.watcher).await;
        for revision in (1..=last.0).map(Revision) {
            let mut client = Client::new(&world, at, WatchStart::After(revision)).await;
            let mut again = Client::new(&world, at, WatchStart::After(revision)).await;
            client.objects = client.listed(&world, ReadAt::Exactly(revision)).await.unwrap();
            client.read(&world, usize::MAX).await;
            assert_eq!(client.objects, client.listed(&world, ReadAt::Consistent).await.unwrap());
            let later = world.drain(&mut again.watcher).await;
            assert!(told.ends_with(&later), "after {revision}: {later:?} of {told:?}");
            let after = |told: &&String| told.rsplit('@').next().unwrap().parse::<u64>().unwrap() > revision.0;
            assert_eq!(later.len(), told.iter().filter(after).count());
        }
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn events_applied_to_a_list_are_a_fresh_list(steps in steps(), history in 1..40usize) {
        block_on(run(&steps, history));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn any_revision_can_be_resumed_from(
        commits in vec(vec((0..KEYS.len(), proptest::option::weighted(0.7, 0..LABELS.len())), 1..4), 1..25),
    ) {
        block_on(resume(&commits));
    }
}
