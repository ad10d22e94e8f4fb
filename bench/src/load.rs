//! Load: closed loops with so many requests in flight, and open loops with a fixed rate.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use capstan_clock::{Clock, Moment, RealClock};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    client::{Call, CallError, Connection},
    histogram::Histogram,
    result::Sample,
    side::Running,
};

/// Requests in flight that share a connection, until there are too many connections.
const PER_CONNECTION: usize = 25;
/// The most connections of one load. 1,000 in flight stay below the 100 streams that both servers allow on each.
const CONNECTIONS: usize = 16;
/// The part of a load's time that is not counted.
const WARM_UP: u32 = 4;
/// Requests of an open loop that may be unanswered; more wait, and their wait is counted.
const UNANSWERED: usize = 1000;
/// A load fails when more than one of so many operations fail.
const TOLERATED: u64 = 100;

/// What one worker has seen.
#[derive(Default)]
struct Seen {
    latency: Histogram,
    errors: u64,
    problem: Option<CallError>,
}

impl Seen {
    fn add(&mut self, answer: Result<u64, CallError>, latency: Duration) {
        match answer {
            Ok(_) => self.latency.record(latency),
            Err(error) => {
                self.errors += 1;
                self.problem.get_or_insert(error);
            }
        }
    }

    fn merge(&mut self, other: Seen) {
        self.latency.merge(&other.latency);
        self.errors += other.errors;
        self.problem = self.problem.take().or(other.problem);
    }

    fn check(&self, side: &str) -> Result<(), String> {
        match &self.problem {
            Some(problem) if self.errors * TOLERATED > self.latency.count() => {
                Err(format!("{side}: {} of {} failed: {problem}", self.errors, self.errors + self.latency.count()))
            }
            _ => Ok(()),
        }
    }
}

async fn connections(server: &Running, in_flight: usize) -> Result<Vec<Connection>, String> {
    let count = in_flight.div_ceil(PER_CONNECTION).clamp(1, CONNECTIONS);
    server.endpoint.connect_all(count).await.map_err(|error| format!("{}: {error}", server.side.name()))
}

/// Keeps `in_flight` requests under way for so long; the value is operations per second.
///
/// `make` gets a number that it has never got before for this server.
pub(crate) async fn closed(
    server: &Running,
    in_flight: usize,
    time: Duration,
    make: impl Fn(u64) -> Call + Send + Sync + 'static,
) -> Result<Sample, String> {
    let connections = connections(server, in_flight).await?;
    let (make, numbers) = (Arc::new(make), Arc::new(AtomicU64::new(server.next() << 24)));
    let clock = RealClock::new();
    let begin = clock.monotonic().plus(time / WARM_UP);
    let end = begin.plus(time);
    let mut workers = JoinSet::new();
    for at in 0..in_flight {
        let connection = connections[at % connections.len()].clone();
        let (make, numbers) = (Arc::clone(&make), Arc::clone(&numbers));
        workers.spawn(async move {
            let mut seen = Seen::default();
            loop {
                let began = clock.monotonic();
                if began >= end {
                    return seen;
                }
                let answer = connection.call(make(numbers.fetch_add(1, Ordering::Relaxed))).await;
                let done = clock.monotonic();
                if done >= begin && done < end {
                    seen.add(answer, done.since(began));
                }
            }
        });
    }
    clock.sleep_until(begin).await;
    let (before, wire) = (server.usage(), server.endpoint.wire_bytes());
    clock.sleep_until(end).await;
    let (after, wire) = (server.usage(), server.endpoint.wire_bytes() - wire);
    let mut seen = Seen::default();
    while let Some(worker) = workers.join_next().await {
        seen.merge(worker.map_err(|error| error.to_string())?);
    }
    seen.check(server.side.name())?;
    let done = seen.latency.count();
    let sample = Sample {
        value: done as f64 / time.as_secs_f64(),
        wire: wire as f64 / done.max(1) as f64,
        errors: seen.errors,
        latency: Some(seen.latency),
        ..Sample::default()
    };
    Ok(sample.used(before, after, done))
}

/// Begins `rate` requests a second for so long, whatever the answers do; the value is the 99th percentile in ms.
///
/// Latency counts from when a request was due, so a server that stalls cannot hide it by slowing the load down.
pub(crate) async fn open(
    server: &Running,
    rate: u64,
    time: Duration,
    make: impl Fn(u64) -> Call,
) -> Result<Sample, String> {
    let connections = connections(server, PER_CONNECTION * 4).await?;
    let clock = RealClock::new();
    let first = server.next() << 24;
    let (before, wire) = (server.usage(), server.endpoint.wire_bytes());
    let room = Arc::new(Semaphore::new(UNANSWERED));
    let mut requests = JoinSet::new();
    paced(&clock, rate, time, async |n, due| {
        let permit = Arc::clone(&room).acquire_owned().await;
        let (connection, call) = (connections[n as usize % connections.len()].clone(), make(first + n));
        requests.spawn(async move {
            let _permit = permit;
            let answer = connection.call(call).await;
            (answer, clock.monotonic().since(due))
        });
    })
    .await;
    let mut seen = Seen::default();
    while let Some(request) = requests.join_next().await {
        let (answer, latency) = request.map_err(|error| error.to_string())?;
        seen.add(answer, latency);
    }
    seen.check(server.side.name())?;
    let (after, wire, done) = (server.usage(), server.endpoint.wire_bytes() - wire, seen.latency.count());
    let sample = Sample {
        value: seen.latency.quantile(0.99),
        wire: wire as f64 / done.max(1) as f64,
        errors: seen.errors,
        latency: Some(seen.latency),
        ..Sample::default()
    };
    Ok(sample.used(before, after, done))
}

/// Calls `each` with its number and when it was due, `rate` times a second for so long. Late ones are not left out.
pub(crate) async fn paced(clock: &RealClock, rate: u64, time: Duration, mut each: impl AsyncFnMut(u64, Moment)) {
    let begin = clock.monotonic();
    for n in 0..(time.as_secs_f64() * rate as f64) as u64 {
        let due = begin.plus(Duration::from_nanos(n * 1_000_000_000 / rate));
        if due > clock.monotonic() {
            clock.sleep_until(due).await;
        }
        each(n, due).await;
    }
}

/// Asks the same so many times, `in_flight` at once; the value is the median in seconds, each read to its end.
pub(crate) async fn repeated(server: &Running, in_flight: usize, count: usize, call: Call) -> Result<Sample, String> {
    let connections = server.endpoint.connect_all(in_flight.min(CONNECTIONS)).await;
    let connections = connections.map_err(|error| format!("{}: {error}", server.side.name()))?;
    server.forget_peak();
    let clock = RealClock::new();
    let (before, wire) = (server.usage(), server.endpoint.wire_bytes());
    let left = Arc::new(AtomicU64::new(count as u64));
    let mut workers = JoinSet::new();
    for at in 0..in_flight {
        let (connection, call) = (connections[at % connections.len()].clone(), call.clone());
        let left = Arc::clone(&left);
        workers.spawn(async move {
            let mut seen = Seen::default();
            while left.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
                let began = clock.monotonic();
                let answer = connection.call(call.clone()).await;
                seen.add(answer, clock.monotonic().since(began));
            }
            seen
        });
    }
    let mut seen = Seen::default();
    while let Some(worker) = workers.join_next().await {
        seen.merge(worker.map_err(|error| error.to_string())?);
    }
    seen.check(server.side.name())?;
    let (after, wire, done) = (server.usage(), server.endpoint.wire_bytes() - wire, seen.latency.count());
    let sample = Sample {
        value: seen.latency.quantile(0.5) / 1e3,
        wire: wire as f64 / done.max(1) as f64,
        errors: seen.errors,
        latency: Some(seen.latency),
        ..Sample::default()
    };
    Ok(sample.used(before, after, done))
}

/// Makes the objects `from..to`, many at once; every one must succeed.
pub(crate) async fn fill(
    server: &Running,
    from: u64,
    to: u64,
    make: impl Fn(u64) -> Call + Send + Sync + 'static,
) -> Result<(), String> {
    /// Enough for both sides to write in batches.
    const IN_FLIGHT: usize = 64;
    let connections = connections(server, IN_FLIGHT).await?;
    let (next, make) = (Arc::new(AtomicU64::new(from)), Arc::new(make));
    let mut workers: JoinSet<Result<(), CallError>> = JoinSet::new();
    for at in 0..IN_FLIGHT {
        let connection = connections[at % connections.len()].clone();
        let (next, make) = (Arc::clone(&next), Arc::clone(&make));
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= to {
                    return Ok(());
                }
                connection.call(make(number)).await?;
            }
        });
    }
    first_error(workers).await.map_err(|error| format!("{}: filling: {error}", server.side.name()))
}

async fn first_error<E: ToString + 'static>(mut workers: JoinSet<Result<(), E>>) -> Result<(), String> {
    while let Some(worker) = workers.join_next().await {
        worker.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Waits for something, but not for ever.
pub(crate) async fn within<T>(time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = RealClock::new().sleep(time) => None,
    }
}
