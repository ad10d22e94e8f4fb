//! Events of the core group: counted.

use capstan_api::Time;
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    MAX_TRIES_PER_EVENT, Message, Occurrence, Sink, Tried,
    correlator::{Correlated, Correlator, Event},
    namespace_of,
};

pub(super) struct Writer {
    sink: Sink,
    component: String,
    host: String,
    correlator: Correlator,
}

impl Writer {
    pub(super) fn new(sink: Sink, component: &str, host: &str) -> Self {
        let (component, host) = (component.to_owned(), host.to_owned());
        Writer { sink, component, host, correlator: Correlator::new() }
    }

    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        while let Some(message) = queue.recv().await {
            match message {
                Message::Event(occurrence) => self.record(*occurrence).await,
                Message::Flush(done) => drop(done.send(())),
            }
        }
    }

    async fn record(&mut self, what: Occurrence) {
        let at = what.at;
        let name = self.sink.name(&what.regarding.name, at);
        let event = Event { name, what, first: at, last: at, count: 1, aggregated: false };
        let (date, now) = (self.sink.clock.now(), self.sink.clock.monotonic());
        let Some(mut correlated) = self.correlator.correlate(event, date, now) else { return };
        for tries in 0..MAX_TRIES_PER_EVENT {
            match self.write(&correlated.event).await {
                Tried::Written => return,
                // Nobody has written this one yet, so the name is another event's.
                Tried::NameTaken if tries == 0 && correlated.event.count == 1 => self.rename(&mut correlated),
                Tried::NameTaken | Tried::Refused => break,
                Tried::Failed => self.sink.wait(tries).await,
            }
        }
        self.sink.reject();
    }

    fn rename(&mut self, correlated: &mut Correlated) {
        let event = &mut correlated.event;
        // Two recorders at the same time: a new uid is nobody else's.
        event.name = self.sink.ids.uid();
        self.correlator.renamed(correlated);
    }

    async fn write(&self, event: &Event) -> Tried {
        let what = &event.what;
        let namespace = namespace_of(&what.regarding);
        let api = self.sink.api("", namespace);
        let (first, last) = (Time::from(event.first).to_string(), Time::from(event.last).to_string());
        let mut whole = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": namespace},
            "involvedObject": what.regarding,
            "reason": what.reason,
            "message": what.message,
            "source": {"component": self.component},
            "firstTimestamp": first,
            "lastTimestamp": last,
            "count": event.count,
            "type": what.event_type.to_string(),
            "eventTime": null,
        });
        if !self.host.is_empty() {
            whole["source"]["host"] = self.host.clone().into();
        }
        if !what.annotations.is_empty() {
            whole["metadata"]["annotations"] = json!(what.annotations);
        }
        // Those that stand for several are not one controller's, as upstream has it.
        let (controller, instance) = if event.aggregated { ("", "") } else { (&*self.component, &*self.host) };
        whole["reportingComponent"] = controller.into();
        whole["reportingInstance"] = instance.into();
        if event.count == 1 {
            return self.sink.create(&api, &whole).await;
        }
        let patch = json!({"count": event.count, "lastTimestamp": last, "message": what.message});
        self.sink.patch(&api, &event.name, &patch, &whole).await
    }
}
