//! B2: what a server uses that nobody asks anything, and what it uses with many pods.

use std::time::Duration;

use capstan_clock::{Clock, RealClock};

use crate::{
    bench::Bench,
    load,
    objects::{self, NAMESPACES},
    result::{Case, Sample},
};

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let (settle, watch) = bench.settings.scale((3, 3), (10, 20));
    let pods: u64 = bench.settings.scale(2_000, 10_000);
    let idle = Case::less("idle, memory", "MB").goal(10.0).bound(30.0);
    let busy = Case::less("idle, CPU", "ms of CPU a second");
    let full = Case::less(format!("{pods} pods, memory"), "MB").goal(10.0);
    let each = Case::less(format!("{pods} pods, memory for each"), "KB");
    let clock = RealClock::new();
    bench.add_sizes()?;
    for side in bench.sides.clone() {
        bench.say(&format!("{}, idle", side.name()));
        let server = bench.server(&side).await?;
        clock.sleep(Duration::from_secs(settle)).await;
        let before = server.usage();
        clock.sleep(Duration::from_secs(watch)).await;
        let after = server.usage();
        bench.add(&idle, side.name(), Sample::of(after.rss));
        bench.add(&busy, side.name(), Sample::of((after.cpu - before.cpu) / watch as f64 * 1e3));
        bench.say(&format!("{}, {pods} pods", side.name()));
        load::fill(&server, 0, NAMESPACES, objects::create_namespace).await?;
        load::fill(&server, 0, pods, objects::create_pod).await?;
        clock.sleep(Duration::from_secs(settle)).await;
        let filled = server.usage();
        bench.add(&full, side.name(), Sample::of(filled.rss).used(after, filled, pods));
        bench.add(&each, side.name(), Sample::of((filled.rss - after.rss) * 1e3 / pods as f64));
        bench.end(vec![server]).await;
    }
    Ok(())
}
