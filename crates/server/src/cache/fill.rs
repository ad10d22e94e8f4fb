//! The task that follows the store: a list, then a watch; after a fault on from where it was, after a compaction that
//! was missed with the differences.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, PoisonError, atomic::Ordering},
    task::Poll,
};

use capstan_storage::{At, Batch as Stored, KeyValue, Range, ReadError, Revision, WatchItem, WatchRequest};
use imbl::OrdMap;
use tokio::task::JoinHandle;

use super::{
    Shared,
    event::{Batch, Event},
    limits::{RETRY_FIRST, RETRY_LAST},
    object::Object,
    snapshot::Snapshot,
};

/// After so many batches in a row others get their turn.
const BATCHES_A_TURN: usize = 64;

/// How many objects are read and encoded before others get their turn.
const LOAD_PAGE: u32 = 500;

/// How many halves of pages may be on their way to be encoded.
const LOAD_AHEAD: usize = 8;

type Objects = OrdMap<Arc<str>, Arc<Object>>;

/// Ends the watches when the task ends, also when it panics: silence would look as if nothing happened any more.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.log.close().wake();
    }
}

/// Follows the store for ever.
pub(super) async fn run(shared: Arc<Shared>) {
    let _ends = Ends(Arc::clone(&shared));
    let mut pause = RETRY_FIRST;
    let mut feed = Feed { shared, filled: false, stale: false, ready: Revision::default() };
    loop {
        let before = feed.shared.current().revision;
        let Err(error) = feed.follow().await;
        if matches!(error, ReadError::Compacted { .. }) && !feed.stale {
            feed.stale = true;
            continue;
        }
        if feed.shared.current().revision > before {
            pause = RETRY_FIRST;
        }
        feed.shared.options.clock.sleep(pause).await;
        pause = RETRY_LAST.min(pause * 2);
    }
}

struct Feed {
    shared: Arc<Shared>,
    filled: bool,
    /// Whether changes since the last revision that was seen are gone from the store.
    stale: bool,
    /// Where the store stood when the list was begun: before that, reads have no use for the cache.
    ready: Revision,
}

impl Feed {
    async fn follow(&mut self) -> Result<Infallible, ReadError> {
        if !self.filled {
            self.fill().await?;
        } else if self.stale {
            self.find_differences().await?;
        }
        self.stale = false;
        let shared = Arc::clone(&self.shared);
        let request = WatchRequest { prefix: shared.resource.prefix.clone().into(), after: shared.current().revision };
        let mut watch = shared.store.watch(request).await?;
        watch.request_progress();
        let mut turn = 0;
        loop {
            match race(watch.next(), shared.asked.notified()).await {
                Either::Left(item) => match item? {
                    WatchItem::Batch(batch) => shared.apply(&batch),
                    WatchItem::Progress(revision) => shared.progress(revision),
                },
                Either::Right(()) => watch.request_progress(),
            }
            self.tell();
            turn = (turn + 1) % BATCHES_A_TURN;
            if turn == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Begins a little before the present, so that those who watched before a restart can go on.
    async fn fill(&mut self) -> Result<(), ReadError> {
        let shared = Arc::clone(&self.shared);
        self.ready = shared.store.revision().await?;
        let seed = Revision(self.ready.0.saturating_sub(shared.options.seed_revisions).max(Revision::INITIAL.0));
        let snapshot = match shared.load(At::Exactly(seed)).await {
            Err(ReadError::Compacted { compacted, .. }) => shared.load(At::Exactly(compacted)).await?,
            other => other?,
        };
        shared.log.begin(snapshot.revision);
        shared.replace(snapshot);
        self.filled = true;
        self.tell();
        Ok(())
    }

    async fn find_differences(&mut self) -> Result<(), ReadError> {
        let snapshot = self.shared.load(At::Present).await?;
        self.shared.jump(snapshot);
        self.tell();
        Ok(())
    }

    /// Lets reads rely on what has come, once it is as new as the store was.
    fn tell(&self) {
        let revision = self.shared.current().revision;
        if revision >= self.ready {
            self.shared.reached.send_if_modified(|reached| std::mem::replace(reached, revision) != revision);
        }
    }
}

impl Shared {
    /// Reads a state from the store. What the cache has of it already is taken from there.
    pub(super) async fn load(self: &Arc<Self>, at: At) -> Result<Snapshot, ReadError> {
        let known = self.current().objects;
        let mut objects = Objects::new();
        let mut encoding = VecDeque::new();
        let mut range = Range::prefix(self.resource.prefix.clone()).at(at).limited(LOAD_PAGE);
        loop {
            let page = self.store.range(range.clone()).await?;
            let Some(next) = range.following(&page) else {
                while let Some(part) = encoding.pop_front() {
                    objects.extend(finished(part).await);
                }
                objects.extend(self.encode_all(&known, &page.items));
                // A deletion leaves no trace in the items: only this one revision is sure.
                return Ok(Snapshot { revision: page.revision, changed: page.revision, objects });
            };
            range = next;
            // Encoding takes longest. By halves: the last that a task spawns stays on its core, others get the rest.
            let page = Arc::new(page);
            let half = page.items.len() / 2;
            for part in [0..half, half..page.items.len()] {
                let (shared, known, page) = (Arc::clone(self), known.clone(), Arc::clone(&page));
                encoding.push_back(tokio::spawn(async move { shared.encode_all(&known, &page.items[part]) }));
            }
            while encoding.len() > LOAD_AHEAD
                && let Some(part) = encoding.pop_front()
            {
                objects.extend(finished(part).await);
            }
            tokio::task::yield_now().await;
        }
    }

    fn encode_all(&self, known: &Objects, items: &[KeyValue]) -> Vec<(Arc<str>, Arc<Object>)> {
        let object = |item: &KeyValue| {
            let same = |known: &&Arc<Object>| known.revision == item.mod_revision;
            let key = str::from_utf8(self.key(&item.key)).unwrap_or_default();
            let object = known.get(key).filter(same).cloned().or_else(|| self.encode(item))?;
            Some((Arc::clone(&object.key), object))
        };
        items.iter().filter_map(object).collect()
    }

    fn key<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        key.get(self.resource.prefix.len()..).unwrap_or_default()
    }

    fn encode(&self, item: &KeyValue) -> Option<Arc<Object>> {
        let object = Object::encode(self.key(&item.key), &item.value, item.mod_revision, &*self.resource.fields);
        if object.is_err() {
            self.malformed.fetch_add(1, Ordering::Relaxed);
        }
        object.ok().map(Arc::new)
    }

    fn replace(&self, snapshot: Snapshot) -> Snapshot {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, snapshot)
    }

    /// Takes in a commit: first for reads, then for watchers.
    fn apply(&self, batch: &Stored) {
        let changes: Vec<_> = batch
            .events
            .iter()
            .map(|event| (event, event.current.as_ref().and_then(|item| self.encode(item))))
            .collect();
        let mut events = Vec::with_capacity(changes.len());
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        for (event, object) in changes {
            let previous = match (&object, str::from_utf8(self.key(&event.key))) {
                (Some(object), _) => current.objects.insert(Arc::clone(&object.key), Arc::clone(object)),
                (None, Ok(key)) => current.objects.remove(key),
                (None, Err(_)) => None,
            };
            if object.is_some() || previous.is_some() {
                events.push(Event::new(batch.revision, previous, object));
            }
        }
        (current.revision, current.changed) = (batch.revision, batch.revision);
        drop(current);
        self.log.publish(Batch { revision: batch.revision, events }, false).wake();
        self.forget_old_snapshots();
    }

    fn progress(&self, revision: Revision) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.revision = current.revision.max(revision);
        drop(current);
        self.log.progress(revision);
    }

    /// Takes in a later state of which the way there is not known: all differences in one batch, changes in the order
    /// in which they happened, then deletions, of which only that is known that they have happened by now.
    fn jump(&self, snapshot: Snapshot) {
        let revision = snapshot.revision;
        let now = snapshot.objects.clone();
        let before = self.replace(snapshot).objects;
        let mut changed: Vec<_> = now
            .iter()
            .map(|(key, object)| (before.get(key), object))
            .filter(|(old, object)| old.is_none_or(|old| old.revision != object.revision))
            .collect();
        changed.sort_by_key(|(_, object)| object.revision);
        let mut events = Vec::new();
        for (old, object) in changed {
            let replaced = old.filter(|old| old.uid != object.uid);
            events.extend(replaced.map(|old| Event::new(object.revision, Some(Arc::clone(old)), None)));
            let previous = old.filter(|_| replaced.is_none()).cloned();
            events.push(Event::new(object.revision, previous, Some(Arc::clone(object))));
        }
        let gone = before.iter().filter(|(key, _)| !now.contains_key(*key));
        events.extend(gone.map(|(_, old)| Event::new(revision, Some(Arc::clone(old)), None)));
        self.log.publish(Batch { revision, events }, true).wake();
    }
}

/// What a task has made. A runtime that ends takes its tasks along: then nobody waits for this either.
async fn finished<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(made) => made,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => std::future::pending().await,
        },
    }
}

pub(super) enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Whichever is ready first, the left one if both are.
pub(super) async fn race<A: Future, B: Future>(left: A, right: B) -> Either<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|cx| {
        if let Poll::Ready(output) = left.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(output));
        }
        right.as_mut().poll(cx).map(Either::Right)
    })
    .await
}
