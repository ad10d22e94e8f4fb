//! B9: an object among many is deleted and created again: when does a watcher see it?

use std::time::Duration;

use capstan_clock::{Clock, RealClock};
use http_body_util::BodyExt as _;

use crate::{
    bench::Bench,
    client::Call,
    histogram::Histogram,
    load,
    objects::{self, CONFIG_MAPS},
    result::{Case, Sample},
    side::Running,
    watch::{self, Lines},
};

/// The size of each object.
const BYTES: usize = 1024;
/// How long an event may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let count: u64 = bench.settings.scale(5_000, 150_000);
    let repeats = bench.settings.scale(100, 1_000);
    let servers = bench.servers().await?;
    for server in &servers {
        bench.say(&format!("{}, filling to {count} objects", server.side.name()));
        load::fill(server, 0, count, |n| objects::create_config_map(n, BYTES)).await?;
    }
    let case = Case::less(format!("delete and create among {count}, seen, p99"), "ms");
    bench.rounds(case, &servers, async |server| recreated(server, count, repeats).await).await;
    bench.end(servers).await;
    Ok(())
}

/// One after the other: delete, create, and wait until both were seen. Latency is from the delete to the second event.
async fn recreated(server: &Running, count: u64, repeats: u64) -> Result<Sample, String> {
    let failed = |error: crate::client::CallError| error.to_string();
    let (writing, watching) = (server.connect().await?, server.connect().await?);
    let call = watch::from_now(&watching, CONFIG_MAPS).await?;
    let mut body = watching.open(call).await.map_err(failed)?;
    let clock = RealClock::new();
    let (mut latency, mut lines, before) = (Histogram::default(), Lines::default(), server.usage());
    for n in 0..repeats {
        let number = n * 7919 % count;
        let began = clock.monotonic();
        writing.call(Call::delete(format!("{CONFIG_MAPS}/c{number}"))).await.map_err(failed)?;
        writing.call(objects::create_config_map(number, BYTES)).await.map_err(failed)?;
        let mut seen = 0;
        while seen < 2 {
            let frame = load::within(PATIENCE, body.frame()).await.flatten();
            let frame = frame.ok_or("the watch ended, or an event did not come")?.map_err(|error| error.to_string())?;
            if let Ok(data) = frame.into_data() {
                lines.feed(data, |_| seen += 1);
            }
        }
        latency.record(clock.monotonic().since(began));
    }
    let value = latency.quantile(0.99);
    Ok(Sample { latency: Some(latency), ..Sample::of(value) }.used(before, server.usage(), repeats))
}
