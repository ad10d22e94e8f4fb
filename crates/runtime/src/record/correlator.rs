//! Which events are worth writing, and which are an earlier one again: without doing it.

use std::{collections::BTreeSet, time::Duration};

use capstan_clock::{Moment, Timestamp};

use super::Occurrence;
use crate::lru::Lru;

/// How many keys each of the memories has.
const MAX_ENTRIES: usize = 4096;
/// From so many different messages on, events of one reason become one.
const AGGREGATE_MAX_EVENTS: usize = 10;
/// Unless the last one was longer ago than this.
const AGGREGATE_INTERVAL: Duration = Duration::from_secs(600);
/// How many events about one object may come at once.
const SPAM_BURST: f64 = 25.0;
/// After how long one more may come.
const SPAM_PERIOD: Duration = Duration::from_secs(300);

/// An event as it is to be written.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) what: Occurrence,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) count: u64,
    /// Several that differ in their messages.
    pub(super) aggregated: bool,
}

impl Event {
    /// What is the same for the same event again.
    fn key(&self) -> String {
        [&self.source(), &self.what.regarding.field_path, &self.what.reason, &self.what.message]
            .map(String::as_str)
            .join("\n")
    }

    fn aggregate_key(&self) -> String {
        [&self.source(), &self.what.reason].map(String::as_str).join("\n")
    }

    /// Which object, and which type of event.
    fn source(&self) -> String {
        let object = &self.what.regarding;
        let kind = self.what.event_type.to_string();
        [&object.kind, &object.namespace, &object.name, &object.uid, &object.api_version, &kind]
            .map(String::as_str)
            .join("\n")
    }
}

#[derive(Debug)]
struct Aggregate {
    messages: BTreeSet<String>,
    last: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Log {
    count: u64,
    first: Timestamp,
    name: String,
}

#[derive(Debug)]
struct Bucket {
    tokens: f64,
    at: Moment,
}

/// What is to be written.
#[derive(Debug)]
pub(super) struct Correlated {
    pub(super) event: Event,
    /// What the memory has it under.
    pub(super) key: String,
}

/// Remembers events: upstream's EventCorrelator.
#[derive(Debug)]
pub(super) struct Correlator {
    aggregates: Lru<String, Aggregate>,
    logs: Lru<String, Log>,
    buckets: Lru<String, Bucket>,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Correlator { aggregates: Lru::new(MAX_ENTRIES), logs: Lru::new(MAX_ENTRIES), buckets: Lru::new(MAX_ENTRIES) }
    }

    /// The event to be written; none if it is too much. A count above one means that an event of that name is there.
    pub(super) fn correlate(&mut self, event: Event, date: Timestamp, now: Moment) -> Option<Correlated> {
        let (event, key) = self.aggregate(event, date);
        let event = self.observe(event, &key);
        self.accept(&event.source(), now).then_some(Correlated { event, key })
    }

    /// The event was written under another name.
    pub(super) fn renamed(&mut self, correlated: &Correlated) {
        let log = self.logs.entry(&correlated.key, Log::default);
        correlated.event.name.clone_into(&mut log.name);
    }

    fn aggregate(&mut self, mut event: Event, date: Timestamp) -> (Event, String) {
        let key = event.aggregate_key();
        let new = || Aggregate { messages: BTreeSet::new(), last: None };
        let known = self.aggregates.entry(&key, new);
        let too_old = |last: Timestamp| date.duration_since(last).unsigned_abs() > AGGREGATE_INTERVAL;
        if known.last.is_some_and(too_old) {
            known.messages.clear();
        }
        known.messages.insert(event.what.message.clone());
        known.last = Some(date);
        if known.messages.len() < AGGREGATE_MAX_EVENTS {
            let key = event.key();
            return (event, key);
        }
        known.messages.pop_first();
        event.what.message.insert_str(0, "(combined from similar events): ");
        event.what.annotations.clear();
        (event.first, event.last, event.aggregated) = (date, date, true);
        (event, key)
    }

    fn observe(&mut self, mut event: Event, key: &String) -> Event {
        let log = self.logs.entry(key, Log::default);
        if log.count > 0 {
            event.name.clone_from(&log.name);
            event.first = log.first;
            event.count = log.count + 1;
        }
        *log = Log { count: event.count, first: event.first, name: event.name.clone() };
        event
    }

    fn accept(&mut self, source: &String, now: Moment) -> bool {
        let bucket = self.buckets.entry(source, || Bucket { tokens: SPAM_BURST, at: now });
        let refill = now.since(bucket.at).as_secs_f64() / SPAM_PERIOD.as_secs_f64();
        bucket.tokens = (bucket.tokens + refill).min(SPAM_BURST);
        bucket.at = now;
        let accept = bucket.tokens >= 1.0;
        bucket.tokens -= f64::from(u8::from(accept));
        accept
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::record::{EventType, ObjectReference};

    struct Checker {
        correlator: Correlator,
        now: Duration,
        next: u32,
    }

    impl Checker {
        fn new() -> Self {
            Checker { correlator: Correlator::new(), now: Duration::ZERO, next: 0 }
        }

        fn tell(&mut self, object: &str, reason: &str, message: &str) -> String {
            let date = Timestamp::from_second(1_800_000_000).unwrap() + self.now;
            self.next += 1;
            let what = Occurrence {
                regarding: ObjectReference::new("v1", "Pod", "ns", object),
                related: None,
                event_type: EventType::Normal,
                reason: reason.to_owned(),
                action: String::new(),
                message: message.to_owned(),
                annotations: BTreeMap::new(),
                at: date,
            };
            let event =
                Event { name: self.next.to_string(), what, first: date, last: date, count: 1, aggregated: false };
            match self.correlator.correlate(event, date, Moment(self.now)) {
                None => "nothing".to_owned(),
                Some(Correlated { event, .. }) => format!("{} x{} {}", event.name, event.count, event.what.message),
            }
        }
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut checker = Checker::new();
        assert_eq!(checker.tell("a", "Pulled", "one"), "1 x1 one");
        assert_eq!(checker.tell("a", "Pulled", "one"), "1 x2 one");
        assert_eq!(checker.tell("b", "Pulled", "one"), "3 x1 one");
        assert_eq!(checker.tell("a", "Killed", "one"), "4 x1 one");
        assert_eq!(checker.tell("a", "Pulled", "two"), "5 x1 two");
        assert_eq!(checker.tell("a", "Pulled", "one"), "1 x3 one");
    }

    #[test]
    fn many_of_one_reason_become_one() {
        let mut checker = Checker::new();
        for at in 1..10 {
            assert_eq!(checker.tell("a", "Failed", &format!("m{at}")), format!("{at} x1 m{at}"));
        }
        assert_eq!(checker.tell("a", "Failed", "m10"), "10 x1 (combined from similar events): m10");
        assert_eq!(checker.tell("a", "Failed", "m11"), "10 x2 (combined from similar events): m11");
        assert_eq!(checker.tell("a", "Failed", "m12"), "10 x3 (combined from similar events): m12");
        checker.now += Duration::from_secs(601);
        assert_eq!(checker.tell("a", "Failed", "m13"), "13 x1 m13", "it was long ago");
    }

    #[test]
    fn spam() {
        let mut checker = Checker::new();
        for at in 1..=25 {
            assert_eq!(checker.tell("a", "Again", "x"), format!("1 x{at} x"));
        }
        assert_eq!(checker.tell("a", "Again", "x"), "nothing");
        assert_eq!(checker.tell("a", "Other", "x"), "nothing", "it is about the same object");
        assert_eq!(checker.tell("b", "Again", "x"), "28 x1 x");
        checker.now += Duration::from_secs(300);
        assert_eq!(checker.tell("a", "Again", "x"), "1 x27 x", "what was not written was counted");
        assert_eq!(checker.tell("a", "Again", "x"), "nothing");
    }
}
