//! B7: 100 patches a second, each seen by every one of many watchers; how late the events come, and what a watcher
//! costs.

use std::time::Duration;

use capstan_clock::{Clock, RealClock};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    client::Call,
    load,
    objects::{self, CONFIG_MAPS},
    result::{Case, Sample},
    side::Running,
    watch::{Sent, Watchers},
};

/// Patches a second.
pub(super) const RATE: u64 = 100;
/// Patches go round over so many objects.
const PATCHED: u64 = 100;
/// The size of each.
const BYTES: usize = 200;
/// Below so many watchers their memory is lost in that of everything else.
const FEW: usize = 1_000;
/// How long nothing may come until what is missing is taken for lost.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let counts: &[usize] = bench.settings.scale(&[10, 100, 1_000], &[10, 100, 1_000, 10_000]);
    let servers = bench.servers().await?;
    let mut idle = Vec::new();
    for server in &servers {
        prepare(server).await?;
        idle.push(server.usage().rss);
    }
    for &count in counts {
        let name = |what: &str| format!("{count} watchers, {what}");
        let late = Case::less(name("delivery p99"), "ms").point("delivery p99 over watchers", count);
        let whole = Case::more(name("events delivered"), "% of all").bound(100.0);
        let rate = Case::more(name("throughput"), "events/s").point("events delivered a second over watchers", count);
        let memory =
            Case::less(name("memory for each"), "KB").point("memory of a watcher, in KB, over watchers", count);
        for round in 1..=bench.settings.rounds {
            for (server, idle) in servers.iter().zip(&idle) {
                let side = server.side.name();
                bench.say(&format!("{count} watchers, {side}, round {round} of {}", bench.settings.rounds));
                let seen = match patches_seen(server, count, bench.settings.time).await {
                    Ok(seen) => seen,
                    Err(error) => {
                        bench.failures.push(format!("B7 {count} watchers: {side}: {error}"));
                        continue;
                    }
                };
                bench.add(&whole, side, Sample::of(seen.percent));
                bench.add(&rate, side, Sample::of(seen.rate));
                if count >= FEW {
                    bench.add(&memory, side, Sample::of((seen.rss - idle).max(0.0) * 1e3 / count as f64));
                }
                bench.add(&late, side, seen.sample);
            }
        }
    }
    bench.end(servers).await;
    Ok(())
}

/// Makes what is patched.
pub(super) async fn prepare(server: &Running) -> Result<(), String> {
    load::fill(server, 0, PATCHED, |n| objects::create_config_map(n, BYTES)).await
}

/// What came of the patches.
pub(super) struct Seen {
    /// Of the events, how many came.
    percent: f64,
    /// Events that came, in a second.
    rate: f64,
    /// The memory of the server when all watches were open, in MB.
    rss: f64,
    /// How late they came; the value is the 99th percentile.
    pub(super) sample: Sample,
}

/// Opens the watchers, patches for so long, and waits for the events.
pub(super) async fn patches_seen(server: &Running, count: usize, time: Duration) -> Result<Seen, String> {
    let clock = RealClock::new();
    let total = (time.as_secs_f64() * RATE as f64) as u64;
    // No number twice, so that every patch changes its object and makes an event.
    let first = (server.next() + 1) << 24;
    let sent = Sent::new(first, total);
    let watchers = Watchers::open(server, count, CONFIG_MAPS, clock, &sent).await?;
    let (before, wire) = (server.usage(), server.endpoint.wire_bytes());
    let connection = server.connect().await?;
    let mut patches = JoinSet::new();
    let begin = clock.monotonic();
    load::paced(&clock, RATE, time, async |n, due| {
        sent.note(first + n, due);
        let connection = connection.clone();
        patches.spawn(async move {
            let body = format!(r#"{{"data":{{"seq":"{}"}}}}"#, first + n);
            connection.call(Call::merge_patch(format!("{CONFIG_MAPS}/c{}", n % PATCHED), body)).await
        });
    })
    .await;
    let mut done = 0;
    while let Some(patch) = patches.join_next().await {
        patch.map_err(|error| error.to_string())?.map_err(|error| format!("patching: {error}"))?;
        done += 1;
    }
    let expected = done * count as u64;
    let ended = watchers.ended();
    let (seen, latency) = watchers.finish(expected, PATIENCE).await;
    let took = clock.monotonic().since(begin);
    let (after, wire) = (server.usage(), server.endpoint.wire_bytes() - wire);
    let sample = Sample {
        value: latency.quantile(0.99),
        latency: Some(latency),
        wire: wire as f64 / seen.max(1) as f64,
        errors: ended + expected.saturating_sub(seen),
        ..Sample::default()
    };
    Ok(Seen {
        percent: seen as f64 * 100.0 / expected.max(1) as f64,
        rate: seen as f64 / took.as_secs_f64(),
        rss: before.rss,
        sample: sample.used(before, after, seen),
    })
}
