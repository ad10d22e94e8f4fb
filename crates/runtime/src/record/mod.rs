//! Telling people what happens to an object: events.
//!
//! client-go's `tools/record` and `tools/events`. A recorder never waits and never fails: what it is told goes into a
//! bounded queue, one task writes it, and what cannot be written is counted and forgotten.

mod core;
mod correlator;
mod reference;
mod series;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use capstan_api::{GroupVersionResource, Unstructured, Value, validation::name_is_dns_subdomain, value::to_value};
use capstan_client::{Api, Client, Error, Patch};
use capstan_clock::{SharedClock, SharedIds, Timestamp};
use tokio::sync::{mpsc, oneshot};

pub use reference::{ObjectReference, Referent};

/// How many events may wait to be written; more are dropped.
pub const MAX_QUEUED_EVENTS: usize = 1000;

/// How often an event is tried to be written.
pub const MAX_TRIES_PER_EVENT: u32 = 12;

/// How long to wait before an event is tried again.
pub const RETRY_PERIOD: Duration = Duration::from_secs(10);

/// Where events go that are about objects of the cluster.
const DEFAULT_NAMESPACE: &str = "default";

/// Whether an event is good news.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// Nothing to worry about.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        })
    }
}

/// What happened, as it was told.
#[derive(Clone, Debug)]
struct Occurrence {
    regarding: ObjectReference,
    related: Option<ObjectReference>,
    event_type: EventType,
    reason: String,
    action: String,
    message: String,
    annotations: BTreeMap<String, String>,
    at: Timestamp,
}

enum Message {
    Event(Box<Occurrence>),
    Flush(oneshot::Sender<()>),
}

#[derive(Default)]
struct Counts {
    dropped: AtomicU64,
    rejected: AtomicU64,
    on_error: OnceLock<OnError>,
}

type OnError = Box<dyn Fn(&Error) + Send + Sync>;

/// Tells people what happens to objects, in the name of one component.
///
/// Nothing here waits but [`flush`](Self::flush). Events come in the order in which they were told. Clones are the same
/// recorder; when the last one is dropped, what was told is still written.
///
/// ```
/// # use std::sync::Arc;
/// # use capstan_clock::{RealClock, OsIds};
/// use capstan_client::Client;
/// use capstan_runtime::record::{EventRecorder, EventType, ObjectReference};
///
/// # async fn example(client: Client) {
/// let recorder = EventRecorder::new(&client, "cnat", Arc::new(RealClock::new()), Arc::new(OsIds));
/// let pod = ObjectReference::new("v1", "Pod", "default", "web");
/// recorder.event(&pod, EventType::Normal, "Started", "Started container web");
/// # }
/// ```
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Message>,
    clock: SharedClock,
    counts: Arc<Counts>,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// Writes events of the core group in a task on the caller's runtime. Those that are alike become one with a count.
    #[must_use]
    pub fn new(client: &Client, component: &str, clock: SharedClock, ids: SharedIds) -> Self {
        EventRecorder::for_host(client, component, "", clock, ids)
    }

    /// The same, for a component of a node.
    #[must_use]
    pub fn for_host(client: &Client, component: &str, host: &str, clock: SharedClock, ids: SharedIds) -> Self {
        let (recorder, queue) = EventRecorder::queue(Arc::clone(&clock));
        let sink = Sink::new(client, &clock, &ids, &recorder.counts);
        tokio::spawn(core::Writer::new(sink, component, host).run(queue));
        recorder
    }

    /// Writes events of the group `events.k8s.io` in a task on the caller's runtime. Those that are alike become a
    /// series.
    #[must_use]
    pub fn events_v1(client: &Client, controller: &str, instance: &str, clock: SharedClock, ids: SharedIds) -> Self {
        let (recorder, queue) = EventRecorder::queue(Arc::clone(&clock));
        let sink = Sink::new(client, &clock, &ids, &recorder.counts);
        tokio::spawn(series::Writer::new(sink, controller, instance).run(queue));
        recorder
    }

    /// For tests: what is told comes as lines, `Normal Started the message`. What is not taken is dropped.
    #[must_use]
    pub fn fake(clock: SharedClock) -> (Self, mpsc::Receiver<String>) {
        let (recorder, mut queue) = EventRecorder::queue(clock);
        let (lines, received) = mpsc::channel(MAX_QUEUED_EVENTS);
        tokio::spawn(async move {
            while let Some(message) = queue.recv().await {
                match message {
                    Message::Event(event) => {
                        let _ = lines.try_send(format!("{} {} {}", event.event_type, event.reason, event.message));
                    }
                    Message::Flush(done) => drop(done.send(())),
                }
            }
        });
        (recorder, received)
    }

    fn queue(clock: SharedClock) -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        (EventRecorder { queue: sender, clock, counts: Arc::default() }, receiver)
    }

    /// Tells that something happened to an object.
    pub fn event(&self, object: &impl Referent, event_type: EventType, reason: &str, message: impl Into<String>) {
        self.annotated_event(object, BTreeMap::new(), event_type, reason, message);
    }

    /// The same, with annotations on the event.
    pub fn annotated_event(
        &self,
        object: &impl Referent,
        annotations: BTreeMap<String, String>,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.tell(Occurrence {
            regarding: object.reference(),
            related: None,
            event_type,
            reason: reason.to_owned(),
            action: reason.to_owned(),
            message: message.into(),
            annotations,
            at: self.clock.now(),
        });
    }

    /// The same, with what was done and another object that has to do with it. Events of the core group have neither.
    pub fn eventf(
        &self,
        regarding: &impl Referent,
        related: Option<&ObjectReference>,
        event_type: EventType,
        reason: &str,
        action: &str,
        note: impl Into<String>,
    ) {
        self.tell(Occurrence {
            regarding: regarding.reference(),
            related: related.cloned(),
            event_type,
            reason: reason.to_owned(),
            action: action.to_owned(),
            message: note.into(),
            annotations: BTreeMap::new(),
            at: self.clock.now(),
        });
    }

    fn tell(&self, occurrence: Occurrence) {
        if self.queue.try_send(Message::Event(Box::new(occurrence))).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was told before is written or given up.
    pub async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.queue.send(Message::Flush(done)).await.is_ok() {
            let _ = wait.await;
        }
    }

    /// Hears why events could not be written. The first who asks for that does.
    pub fn on_error(&self, on_error: impl Fn(&Error) + Send + Sync + 'static) {
        let _ = self.counts.on_error.set(Box::new(on_error));
    }

    /// How many events were dropped because too many waited.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// How many events the server did not take.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.counts.rejected.load(Ordering::Relaxed)
    }
}

/// Writes events to a server.
struct Sink {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    counts: Arc<Counts>,
    /// The last time that a name was made of: no two names are the same, though a clock may stand still.
    last_name: i128,
}

/// What was tried to be written.
enum Tried {
    Written,
    /// Another event has the name.
    NameTaken,
    Refused,
    Failed,
}

impl Sink {
    fn new(client: &Client, clock: &SharedClock, ids: &SharedIds, counts: &Arc<Counts>) -> Self {
        let (clock, ids, counts) = (Arc::clone(clock), Arc::clone(ids), Arc::clone(counts));
        Sink { client: client.clone(), clock, ids, counts, last_name: 0 }
    }

    /// The name of a new event.
    fn name(&mut self, object: &str, at: Timestamp) -> String {
        self.last_name = at.as_nanosecond().max(self.last_name + 1);
        let name = format!("{object}.{:x}", self.last_name);
        if name_is_dns_subdomain(&name, false).is_empty() { name } else { self.ids.uid() }
    }

    fn api(&self, group: &'static str, namespace: &str) -> Api<Unstructured> {
        Api::dynamic(&self.client, GroupVersionResource::from_static(group, "v1", "events"), namespace)
    }

    async fn create(&self, api: &Api<Unstructured>, event: &serde_json::Value) -> Tried {
        match to_value(event) {
            Ok(Value::Object(map)) => self.tried(api.create(&Unstructured::from(map)).await.map(drop)),
            _ => Tried::Refused,
        }
    }

    /// Writes `patch` to an event that is there; the whole of it if it is not.
    async fn patch(
        &self,
        api: &Api<Unstructured>,
        name: &str,
        patch: &serde_json::Value,
        event: &serde_json::Value,
    ) -> Tried {
        match api.patch(name, &Patch::Strategic(patch)).await {
            Err(error) if error.is_not_found() => self.create(api, event).await,
            other => self.tried(other.map(drop)),
        }
    }

    fn tried(&self, answer: Result<(), Error>) -> Tried {
        let Err(error) = answer else { return Tried::Written };
        if error.is_already_exists() {
            return Tried::NameTaken;
        }
        if let Some(on_error) = self.counts.on_error.get() {
            on_error(&error);
        }
        // What the server says of an event is its last word, unless it says when to come back.
        if error.status().is_some() && error.retry_after().is_none() { Tried::Refused } else { Tried::Failed }
    }

    fn reject(&self) {
        self.counts.rejected.fetch_add(1, Ordering::Relaxed);
    }

    async fn wait(&self, tries: u32) {
        // Whoever lost the server at the same time does not come back at the same time.
        let factor = if tries == 0 { self.ids.fraction() } else { 1.0 };
        self.clock.sleep(RETRY_PERIOD.mul_f64(factor)).await;
    }
}

fn namespace_of(reference: &ObjectReference) -> &str {
    if reference.namespace.is_empty() { DEFAULT_NAMESPACE } else { &reference.namespace }
}
