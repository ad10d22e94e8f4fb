//! Events and their frames: made once, by whoever needs them first, for all watchers.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, json,
    selector::{FieldSelector, Selector},
    watch_event::{EventType, WatchEvent},
};
use capstan_storage::Revision;

use super::object::Object;

/// The annotation of the bookmark that closes the initial events.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What an event counts in the history beside its bytes.
const EVENT_OVERHEAD: usize = 512;

/// A change of one object, with the frames that some watcher has needed so far.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) revision: Revision,
    pub(super) current: Option<Arc<Object>>,
    pub(super) previous: Option<Arc<Object>>,
    added: OnceLock<Bytes>,
    modified: OnceLock<Bytes>,
    deleted: OnceLock<Deleted>,
}

#[derive(Debug)]
struct Deleted {
    object: Arc<Object>,
    frame: Bytes,
}

impl Event {
    pub(super) fn new(revision: Revision, previous: Option<Arc<Object>>, current: Option<Arc<Object>>) -> Arc<Self> {
        let (added, modified, deleted) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Arc::new(Event { revision, current, previous, added, modified, deleted })
    }

    /// The objects that it is about: one before and one after, or one of them.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.previous.iter().chain(&self.current)
    }

    /// What it is for a watcher that sees only what `matches`.
    pub(super) fn seen_through(&self, labels: &Selector, fields: &FieldSelector) -> Option<EventType> {
        let passes = |object: &Option<Arc<Object>>| object.as_ref().is_some_and(|o| o.matches(labels, fields));
        match (passes(&self.previous), passes(&self.current)) {
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (true, false) => Some(EventType::Deleted),
            (false, false) => None,
        }
    }

    /// About what it costs to remember it, with its frames.
    pub(super) fn bytes(&self) -> usize {
        2 * self.objects().map(|object| object.json.len()).sum::<usize>() + EVENT_OVERHEAD
    }

    fn deleted(&self) -> Option<&Deleted> {
        let previous = self.previous.as_ref()?;
        Some(self.deleted.get_or_init(|| {
            let object = Arc::new(previous.at(self.revision));
            Deleted { frame: frame(EventType::Deleted, &object.json), object }
        }))
    }
}

/// All changes of one revision; after a gap, all differences to an earlier one.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) revision: Revision,
    pub(super) events: Vec<Arc<Event>>,
}

/// An event as a watcher sees it.
#[derive(Clone, Debug)]
pub struct WatchedEvent {
    event_type: EventType,
    origin: Origin,
}

#[derive(Clone, Debug)]
enum Origin {
    Change(Arc<Event>),
    State(Arc<Object>),
}

impl WatchedEvent {
    /// A change, which is `event_type` for this watcher.
    pub(super) fn change(event_type: EventType, event: Arc<Event>) -> Self {
        WatchedEvent { event_type, origin: Origin::Change(event) }
    }

    /// An object that was there when the watch began.
    pub(super) fn state(object: Arc<Object>) -> Self {
        WatchedEvent { event_type: EventType::Added, origin: Origin::State(object) }
    }

    /// ADDED, MODIFIED or DELETED.
    #[must_use]
    pub fn event_type(&self) -> EventType {
        self.event_type
    }

    /// The object; of a deletion the last state that was seen, as of the deletion's revision.
    #[must_use]
    pub fn object(&self) -> &Arc<Object> {
        const TOLD: &str = "an event that was seen has the object that was seen";
        match (&self.origin, self.event_type) {
            (Origin::State(object), _) => object,
            (Origin::Change(event), EventType::Deleted) => &event.deleted().expect(TOLD).object,
            (Origin::Change(event), _) => event.current.as_ref().expect(TOLD),
        }
    }

    /// The object before a change of it.
    #[must_use]
    pub fn previous(&self) -> Option<&Arc<Object>> {
        match &self.origin {
            Origin::State(_) => None,
            Origin::Change(event) => event.previous.as_ref(),
        }
    }

    /// The line that a watch sends. Made once for all watchers that see the same.
    #[must_use]
    pub fn frame(&self) -> Bytes {
        let made = || frame(self.event_type, &self.object().json);
        match (&self.origin, self.event_type) {
            (Origin::State(_), _) => made(),
            (Origin::Change(event), EventType::Deleted) => event.deleted().map_or_else(made, |d| d.frame.clone()),
            (Origin::Change(event), EventType::Added) => event.added.get_or_init(made).clone(),
            (Origin::Change(event), _) => event.modified.get_or_init(made).clone(),
        }
    }
}

fn frame(event_type: EventType, object: &[u8]) -> Bytes {
    WatchEvent { event_type, object }.to_line().into()
}

/// The line of a bookmark: every event up to `revision` has been sent.
#[must_use]
pub fn bookmark_frame(gvk: &GroupVersionKind, revision: Revision, initial_events_end: bool) -> Bytes {
    let mut object = b"{\"kind\":".to_vec();
    json::write_str(&gvk.kind, &mut object);
    object.extend_from_slice(b",\"apiVersion\":");
    json::write_str(&gvk.api_version(), &mut object);
    object.extend_from_slice(format!(",\"metadata\":{{\"resourceVersion\":\"{revision}\"").as_bytes());
    if initial_events_end {
        object.extend_from_slice(format!(",\"annotations\":{{\"{INITIAL_EVENTS_END}\":\"true\"}}").as_bytes());
    }
    object.extend_from_slice(b"}}");
    frame(EventType::Bookmark, &object)
}
