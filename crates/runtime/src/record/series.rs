//! Events of the group `events.k8s.io`: those that are alike are a series.

use std::time::Duration;

use capstan_api::MicroTime;
use capstan_client::beat::{Either, race};
use capstan_clock::{Moment, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;

use super::{EventType, MAX_TRIES_PER_EVENT, Message, ObjectReference, Occurrence, Sink, Tried, namespace_of};
use crate::lru::Lru;

/// How many events are remembered.
const MAX_ENTRIES: usize = 4096;
/// After how long without another one a series is over. It is looked for as often.
const FINISH_TIME: Duration = Duration::from_secs(6 * 60);
/// How often the count of a series that goes on is written.
const REFRESH_TIME: Duration = Duration::from_secs(30 * 60);

/// What events of one series have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    event_type: EventType,
    action: String,
    reason: String,
    regarding: ObjectReference,
    related: Option<ObjectReference>,
}

#[derive(Clone, Debug)]
struct Event {
    name: String,
    what: Occurrence,
    /// How many, and when the last one.
    series: Option<(u64, Timestamp)>,
}

pub(super) struct Writer {
    sink: Sink,
    controller: String,
    instance: String,
    events: Lru<Key, Option<Event>>,
}

impl Writer {
    pub(super) fn new(sink: Sink, controller: &str, instance: &str) -> Self {
        let (controller, instance) = (controller.to_owned(), instance.to_owned());
        Writer { sink, controller, instance, events: Lru::new(MAX_ENTRIES) }
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let now = self.sink.clock.monotonic();
        let (mut finish, mut refresh) = (now.plus(FINISH_TIME), now.plus(REFRESH_TIME));
        loop {
            let next: Moment = finish.min(refresh);
            let clock = self.sink.clock.clone();
            match race(queue.recv(), clock.sleep_until(next)).await {
                Either::First(None) => return,
                Either::First(Some(Message::Event(occurrence))) => self.record(*occurrence).await,
                Either::First(Some(Message::Flush(done))) => drop(done.send(())),
                Either::Second(()) => {
                    let now = clock.monotonic();
                    if now >= refresh {
                        refresh = now.plus(REFRESH_TIME);
                        self.refresh().await;
                    }
                    if now >= finish {
                        finish = now.plus(FINISH_TIME);
                        self.finish().await;
                    }
                }
            }
        }
    }

    async fn record(&mut self, what: Occurrence) {
        let now = self.sink.clock.now();
        let key = Key {
            event_type: what.event_type,
            action: what.action.clone(),
            reason: what.reason.clone(),
            regarding: what.regarding.clone(),
            related: what.related.clone(),
        };
        let name = self.sink.name(&what.regarding.name, what.at);
        let mut event = match self.events.entry(&key, || None) {
            Some(Event { series: Some((count, last)), .. }) => {
                // It is written when the series is refreshed or over.
                (*count, *last) = (*count + 1, now);
                return;
            }
            Some(event) => {
                event.series = Some((2, now));
                event.clone()
            }
            new => new.insert(Event { name, what, series: None }).clone(),
        };
        for tries in 0..MAX_TRIES_PER_EVENT {
            match self.write(&event).await {
                Tried::Written => return,
                Tried::NameTaken if tries == 0 => {
                    event.name = self.sink.ids.uid();
                    *self.events.entry(&key, || None) = Some(event.clone());
                }
                Tried::NameTaken | Tried::Refused => break,
                Tried::Failed => self.sink.wait(tries).await,
            }
        }
        self.sink.reject();
    }

    async fn refresh(&mut self) {
        for key in self.events.keys() {
            let event = self.events.entry(&key, || None).clone();
            if let Some(event) = event.filter(|event| event.series.is_some()) {
                self.write(&event).await;
            }
        }
    }

    async fn finish(&mut self) {
        let now = self.sink.clock.now();
        for key in self.events.keys() {
            let Some(event) = self.events.entry(&key, || None).clone() else { continue };
            let last = event.series.map_or(event.what.at, |(_, last)| last);
            if now.duration_since(last).unsigned_abs() <= FINISH_TIME {
                continue;
            }
            // One that cannot be written now is tried again the next time.
            if event.series.is_none() || !matches!(self.write(&event).await, Tried::Failed) {
                self.events.remove(&key);
            }
        }
    }

    async fn write(&self, event: &Event) -> Tried {
        let what = &event.what;
        let namespace = namespace_of(&what.regarding);
        let api = self.sink.api("events.k8s.io", namespace);
        let mut whole = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": namespace},
            "eventTime": MicroTime::from(what.at).to_string(),
            "reportingController": self.controller,
            "reportingInstance": self.instance,
            "action": what.action,
            "reason": what.reason,
            "regarding": what.regarding,
            "note": what.message,
            "type": what.event_type.to_string(),
        });
        if let Some(related) = &what.related {
            whole["related"] = json!(related);
        }
        let Some((count, last)) = event.series else { return self.sink.create(&api, &whole).await };
        whole["series"] = json!({"count": count, "lastObservedTime": MicroTime::from(last).to_string()});
        let patch = json!({"series": whole["series"]});
        self.sink.patch(&api, &event.name, &patch, &whole).await
    }
}
