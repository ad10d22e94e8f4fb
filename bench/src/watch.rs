//! Many watchers that note when each event came.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use capstan_clock::{Clock, Moment, RealClock};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::JoinSet;

use crate::{
    client::{Call, Connection},
    histogram::Histogram,
    side::Running,
};

/// Watches that share a connection, about as many as a controller has.
const PER_CONNECTION: usize = 20;
/// What marks the number of an event in its object.
const MARK: &[u8] = br#""seq":""#;
/// How often it is looked whether all events have come.
const LOOK: Duration = Duration::from_millis(5);

/// When each numbered write was due.
#[derive(Debug)]
pub(crate) struct Sent {
    first: u64,
    due: Vec<AtomicU64>,
}

impl Sent {
    /// For `count` writes that are numbered from `first`.
    pub(crate) fn new(first: u64, count: u64) -> Arc<Self> {
        Arc::new(Sent { first, due: (0..count).map(|_| AtomicU64::new(0)).collect() })
    }

    fn slot(&self, number: u64) -> Option<&AtomicU64> {
        self.due.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    pub(crate) fn note(&self, number: u64, due: Moment) {
        if let Some(slot) = self.slot(number) {
            slot.store(due.0.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    fn latency(&self, number: u64, now: Moment) -> Option<Duration> {
        let due = self.slot(number)?.load(Ordering::Relaxed);
        Some(now.0.saturating_sub(Duration::from_nanos(due)))
    }
}

/// Watchers that run.
pub(crate) struct Watchers {
    shared: Arc<Shared>,
    histograms: Vec<Arc<Mutex<Histogram>>>,
    tasks: JoinSet<()>,
}

struct Shared {
    clock: RealClock,
    sent: Arc<Sent>,
    events: AtomicU64,
    ended: AtomicU64,
}

impl Watchers {
    /// Opens `count` watches of a path, from now on; events carry the number of a write in `sent`.
    pub(crate) async fn open(
        server: &Running,
        count: usize,
        path: &str,
        clock: RealClock,
        sent: &Arc<Sent>,
    ) -> Result<Self, String> {
        let call = from_now(&server.connect().await?, path).await?;
        let shared =
            Arc::new(Shared { clock, sent: Arc::clone(sent), events: AtomicU64::new(0), ended: AtomicU64::new(0) });
        let mut watchers = Watchers { shared, histograms: Vec::new(), tasks: JoinSet::new() };
        let mut opened = 0;
        while opened < count {
            let connection = server.connect().await?;
            let histogram = Arc::new(Mutex::new(Histogram::default()));
            for _ in 0..PER_CONNECTION.min(count - opened) {
                let body = connection.open(call.clone()).await.map_err(|error| format!("watching: {error}"))?;
                watchers.tasks.spawn(follow(body, Arc::clone(&watchers.shared), Arc::clone(&histogram)));
                opened += 1;
            }
            watchers.histograms.push(histogram);
        }
        Ok(watchers)
    }

    /// Waits until so many events have come, or nothing more comes for a while. Says how many came and how late.
    pub(crate) async fn finish(self, expected: u64, patience: Duration) -> (u64, Histogram) {
        let clock = self.shared.clock;
        let (mut seen, mut changed) = (0, clock.monotonic());
        loop {
            let now = self.shared.events.load(Ordering::Relaxed);
            if now != seen {
                (seen, changed) = (now, clock.monotonic());
            }
            if seen >= expected || clock.monotonic().since(changed) > patience {
                break;
            }
            clock.sleep(LOOK).await;
        }
        let mut all = Histogram::default();
        for histogram in &self.histograms {
            all.merge(&histogram.lock().unwrap_or_else(PoisonError::into_inner));
        }
        (seen, all)
    }

    /// How many watches the server has ended.
    pub(crate) fn ended(&self) -> u64 {
        self.shared.ended.load(Ordering::Relaxed)
    }
}

/// The call that watches a path from its state of now on.
pub(crate) async fn from_now(connection: &Connection, path: &str) -> Result<Call, String> {
    let list = connection.read(Call::get(format!("{path}?limit=1"))).await.map_err(|error| error.to_string())?;
    let list = capstan_api::json::parse(&list).map_err(|error| error.to_string())?;
    let version = list.get("metadata").and_then(|metadata| metadata.get("resourceVersion")?.as_str());
    let version = version.ok_or("a list without a resourceVersion")?;
    Ok(Call::get(format!("{path}?watch=1&resourceVersion={version}&timeoutSeconds=3600")))
}

async fn follow(mut body: Incoming, shared: Arc<Shared>, histogram: Arc<Mutex<Histogram>>) {
    let mut lines = Lines::default();
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { continue };
        let now = shared.clock.monotonic();
        lines.feed(data, |line| {
            if let Some(latency) = number(line).and_then(|number| shared.sent.latency(number, now)) {
                shared.events.fetch_add(1, Ordering::Relaxed);
                histogram.lock().unwrap_or_else(PoisonError::into_inner).record(latency);
            }
        });
    }
    shared.ended.fetch_add(1, Ordering::Relaxed);
}

/// The number that is in an event.
pub(crate) fn number(event: &[u8]) -> Option<u64> {
    let at = event.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let digits = event[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0_u64, |number, digit| number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))))
}

/// Puts lines together from pieces.
#[derive(Default)]
pub(crate) struct Lines(BytesMut);

impl Lines {
    pub(crate) fn feed(&mut self, data: Bytes, mut line: impl FnMut(&[u8])) {
        let mut rest = &data[..];
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            if self.0.is_empty() {
                line(&rest[..at]);
            } else {
                self.0.extend_from_slice(&rest[..at]);
                line(&self.0);
                self.0.clear();
            }
            rest = &rest[at + 1..];
        }
        self.0.extend_from_slice(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let text = b"{\"seq\":\"1\"}\n\n{\"a\":{\"seq\":\"23\"}}\n{\"f:seq\":{}}\nrest";
        for size in 1..=text.len() {
            let (mut lines, mut numbers) = (Lines::default(), Vec::new());
            for piece in text.chunks(size) {
                lines.feed(Bytes::copy_from_slice(piece), |line| numbers.push(number(line)));
            }
            assert_eq!(numbers, [Some(1), None, Some(23), None], "in pieces of {size}");
        }
    }
}
