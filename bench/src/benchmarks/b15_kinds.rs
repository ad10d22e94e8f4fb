//! B15: many CustomResourceDefinitions are installed; how long until each is served, and what does one cost?

use std::time::Duration;

use capstan_clock::{Clock, RealClock};

use crate::{
    bench::Bench,
    client::Call,
    client::CallError,
    load, objects,
    result::{Case, Sample},
    side::Running,
};

/// How often a kind that is not served yet is asked for.
const TRY: Duration = Duration::from_millis(10);
/// How long it may take from one to the next.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let counts: &[u64] = bench.settings.scale(&[10, 50], &[10, 100, 500, 2_000]);
    for side in bench.sides.clone() {
        let server = bench.server(&side).await?;
        let (before, clock) = (server.usage(), RealClock::new());
        let mut installed = 0;
        for &count in counts {
            bench.say(&format!("{}, {count} kinds", side.name()));
            if let Err(error) = install(&server, installed, count).await {
                bench.failures.push(format!("B15 {count} kinds: {}: {error}", side.name()));
                break;
            }
            installed = count;
            let (took, after) = (clock.monotonic().0, server.usage());
            let time = Case::less(format!("{count} kinds, until all are served"), "s")
                .point("seconds until all kinds are served", count as usize);
            let memory = Case::less(format!("{count} kinds, memory for each"), "KB")
                .point("memory of a kind, in KB, over kinds", count as usize);
            bench.add(&time, side.name(), Sample::of(took.as_secs_f64()).used(before, after, count));
            bench.add(&memory, side.name(), Sample::of((after.rss - before.rss) * 1e3 / count as f64));
        }
        bench.end(vec![server]).await;
    }
    Ok(())
}

/// Installs the kinds `from..to` and waits until every one can be listed.
async fn install(server: &Running, from: u64, to: u64) -> Result<(), String> {
    load::fill(server, from, to, objects::create_custom_kind).await?;
    let connection = server.connect().await?;
    let clock = RealClock::new();
    for number in from..to {
        let began = clock.monotonic();
        loop {
            match connection.call(Call::get(objects::custom_path(number))).await {
                Ok(_) => break,
                // Upstream says 429 while it prepares to store what it serves already.
                Err(CallError::Status(status, _))
                    if matches!(status.as_u16(), 404 | 429) && clock.monotonic().since(began) < PATIENCE =>
                {
                    clock.sleep(TRY).await;
                }
                Err(error) => return Err(format!("kind {number} is not served: {error}")),
            }
        }
    }
    Ok(())
}
