//! A watch: a position in the history, seen through selectors.

use std::{
    fmt,
    future::poll_fn,
    ops::Bound,
    sync::Arc,
    task::{Context, Poll},
};

use capstan_api::{
    Str,
    selector::{FieldSelector, Selector},
    watch_event::EventType,
};
use capstan_clock::Sleep;
use capstan_storage::Revision;

use super::{
    ResourceCache, Shared, Snapshot,
    error::CacheError,
    event::{Batch, Event, WatchedEvent},
    limits::BOOKMARK_NOTICE,
    log::{Interest, Pulled},
    read::ReadAt,
};

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchStart {
    /// With what changes from now on.
    Now,
    /// With what changed after this revision, which the client has seen. One that lies ahead is waited for in silence.
    After(Revision),
    /// With all that is there, as ADDED, then with what changes.
    State {
        /// Of which state.
        at: ReadAt,
        /// Whether a bookmark tells where the state ends.
        closing_bookmark: bool,
    },
}

/// A question for changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchQuery {
    /// Only objects of this namespace.
    pub namespace: Option<Str>,
    /// Only objects with such labels.
    pub labels: Selector,
    /// Only objects with such fields.
    pub fields: FieldSelector,
    /// Where it begins.
    pub start: WatchStart,
    /// Whether bookmarks are wanted now and then.
    pub bookmarks: bool,
}

impl WatchQuery {
    /// All objects, from `start` on, without bookmarks.
    #[must_use]
    pub fn all(start: WatchStart) -> Self {
        let (labels, fields) = (Selector::everything(), FieldSelector::everything());
        WatchQuery { namespace: None, labels, fields, start, bookmarks: false }
    }
}

/// What a watch delivers.
#[derive(Clone, Debug)]
pub enum WatchItem {
    /// A change.
    Event(WatchedEvent),
    /// Every change up to and including this revision has been delivered.
    Bookmark {
        /// The revision.
        revision: Revision,
        /// Whether this closes the initial state.
        initial_events_end: bool,
    },
}

/// A stream of changes. Dropping it ends the watch.
///
/// Changes come in the order of revisions, each once, those of one revision together; what leaves the selectors comes
/// as DELETED and what enters them as ADDED. Bookmarks are never early. A watcher that is not asked costs nothing to
/// others; when the history has left it behind, it ends with [`CacheError::Expired`].
pub struct Watcher {
    shared: Arc<Shared>,
    id: u64,
    interest: Interest,
    namespace: Option<Str>,
    labels: Selector,
    fields: FieldSelector,
    /// Everything up to this revision has been delivered, once the state has.
    at: Revision,
    state: Option<State>,
    /// The batch that is being delivered, and how much of it has been looked at.
    batch: Option<(Arc<Batch>, usize)>,
    bookmark: Option<Timer>,
    ended: Option<CacheError>,
}

/// The state that comes first: a snapshot, and the last key of it that has been looked at.
struct State {
    snapshot: Snapshot,
    last: Arc<str>,
    closing_bookmark: bool,
}

struct Timer {
    sleep: Sleep,
    /// Whether the store has been asked how far it has come; the bookmark follows.
    asked: bool,
}

impl ResourceCache {
    /// Begins a watch. When this returns, the watch is in place.
    ///
    /// # Errors
    /// [`CacheError::Expired`] when the history does not go back that far; others as of the reads.
    pub async fn watch(&self, query: WatchQuery) -> Result<Watcher, CacheError> {
        let shared = Arc::clone(&self.shared);
        let WatchQuery { namespace, labels, fields, start, bookmarks } = query;
        let (snapshot, after) = match start {
            WatchStart::Now => (None, Some(self.snapshot(ReadAt::Consistent).await?.revision)),
            WatchStart::After(revision) => {
                self.filled().await?;
                (None, Some(revision))
            }
            WatchStart::State { at, .. } => {
                let snapshot = self.snapshot(at).await?;
                let revision = if let ReadAt::Exactly(revision) = at { revision } else { snapshot.revision };
                (Some(snapshot), Some(revision))
            }
        };
        let interest = shared.interest(namespace.as_deref(), &fields);
        let (id, at) = shared.log.join(&interest, after)?;
        let closing_bookmark = matches!(start, WatchStart::State { closing_bookmark: true, .. });
        // Keys sort after the prefix that they begin with.
        let last: Arc<str> = namespace.as_ref().map_or_else(|| "".into(), |namespace| format!("{namespace}/").into());
        let mut watcher = Watcher {
            shared,
            id,
            interest,
            namespace,
            labels,
            fields,
            at,
            state: snapshot.map(|snapshot| State { snapshot, last, closing_bookmark }),
            batch: None,
            bookmark: None,
            ended: None,
        };
        if bookmarks {
            watcher.set_timer(false);
        }
        Ok(watcher)
    }
}

impl Shared {
    /// The narrowest group that has all events of such a watch.
    fn interest(&self, namespace: Option<&str>, fields: &FieldSelector) -> Interest {
        let indexed = self.resource.indexed.as_deref().and_then(|field| fields.requires_exact_match(field));
        match (namespace, fields.requires_exact_match("metadata.name"), indexed) {
            (Some(namespace), Some(name), _) => Interest::Object(format!("{namespace}/{name}").into()),
            (None, Some(name), _) if !self.resource.namespaced => Interest::Object(name.into()),
            (_, _, Some(value)) => Interest::Field(value.into()),
            (Some(namespace), ..) => Interest::Namespace(namespace.into()),
            (None, ..) => Interest::All,
        }
    }
}

impl Watcher {
    /// Waits for the next item. An error ends the watch: it is the answer from then on.
    ///
    /// May be cancelled (in a `select!`) without loss.
    ///
    /// # Errors
    /// [`CacheError::Expired`] when this watcher was so slow that what it has not seen yet is gone;
    /// [`CacheError::Closed`] when the cache is shut down.
    pub async fn next(&mut self) -> Result<WatchItem, CacheError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Watcher::next), to be polled. Who sends many frames in one write asks until it is pending.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<WatchItem, CacheError>> {
        if let Some(error) = &self.ended {
            return Poll::Ready(Err(error.clone()));
        }
        loop {
            if let Some(item) = self.next_of_state().or_else(|| self.next_of_batch()) {
                return Poll::Ready(Ok(item));
            }
            match self.shared.log.pull(self.id, &self.interest, self.at, cx.waker()) {
                Ok(Pulled::Batch(batch)) => self.batch = Some((batch, 0)),
                Ok(Pulled::Nothing(seen)) => {
                    let reached = self.at <= seen;
                    self.at = self.at.max(seen);
                    return self.poll_bookmark(cx, reached).map(Ok);
                }
                Err(error) => {
                    self.ended = Some(error.clone());
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Up to which revision everything has been delivered; nothing while the first state, or the events of one
    /// revision, are delivered in part. What the bookmark before the end of a watch says.
    #[must_use]
    pub fn delivered(&self) -> Option<Revision> {
        match (&self.state, &self.batch) {
            (Some(_), _) => None,
            (None, None) => Some(self.at),
            (None, Some((batch, next))) => {
                let rest = &batch.events[*next..];
                rest.iter().all(|event| self.sees(event).is_none()).then_some(batch.revision)
            }
        }
    }

    /// What the event is for this watcher.
    fn sees(&self, event: &Event) -> Option<EventType> {
        let namespace = self.namespace.as_deref();
        let inside = event.objects().all(|object| namespace.is_none_or(|name| in_namespace(&object.key, name)));
        event.seen_through(&self.labels, &self.fields).filter(|_| inside)
    }

    fn next_of_state(&mut self) -> Option<WatchItem> {
        let State { snapshot, last, closing_bookmark } = self.state.as_mut()?;
        let after = (Bound::Excluded(&**last), Bound::Unbounded);
        let namespace = self.namespace.as_deref();
        let inside = |key: &str| namespace.is_none_or(|name| in_namespace(key, name));
        let mut rest = snapshot.objects.range::<_, str>(after).map(|(_, object)| object);
        let matching = rest.by_ref().take_while(|object| inside(&object.key));
        let mut matching = matching.filter(|object| object.matches(&self.labels, &self.fields));
        if let Some(object) = matching.next() {
            *last = Arc::clone(&object.key);
            return Some(WatchItem::Event(WatchedEvent::state(Arc::clone(object))));
        }
        let closing = *closing_bookmark;
        self.state = None;
        closing.then_some(WatchItem::Bookmark { revision: self.at, initial_events_end: true })
    }

    fn next_of_batch(&mut self) -> Option<WatchItem> {
        let (batch, next) = self.batch.take()?;
        for (at, event) in batch.events.iter().enumerate().skip(next) {
            if let Some(event_type) = self.sees(event) {
                let event = Arc::clone(event);
                self.batch = Some((batch, at + 1));
                return Some(WatchItem::Event(WatchedEvent::change(event_type, event)));
            }
        }
        self.at = batch.revision;
        None
    }

    fn poll_bookmark(&mut self, cx: &mut Context<'_>, reached: bool) -> Poll<WatchItem> {
        while let Some(timer) = &mut self.bookmark {
            if timer.sleep.as_mut().poll(cx).is_pending() {
                break;
            }
            let due = timer.asked;
            if !due {
                self.shared.ask_progress();
            }
            self.set_timer(!due);
            if due && reached {
                return Poll::Ready(WatchItem::Bookmark { revision: self.at, initial_events_end: false });
            }
        }
        Poll::Pending
    }

    fn set_timer(&mut self, asked: bool) {
        let options = &self.shared.options;
        let every = options.bookmark_every.max(2 * BOOKMARK_NOTICE);
        let pause = if asked { BOOKMARK_NOTICE } else { every - BOOKMARK_NOTICE };
        self.bookmark = Some(Timer { sleep: options.clock.sleep(pause), asked });
    }
}

fn in_namespace(key: &str, namespace: &str) -> bool {
    key.strip_prefix(namespace).is_some_and(|rest| rest.starts_with('/'))
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.log.leave(self.id, &self.interest);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("at", &self.at).field("interest", &self.interest).finish_non_exhaustive()
    }
}
