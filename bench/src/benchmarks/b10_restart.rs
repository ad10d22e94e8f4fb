//! B10: a server with many pods is ended and started again: when does it answer, and what does it use then?

use crate::{
    bench::Bench,
    client::Call,
    load,
    objects::{self, NAMESPACES},
    result::{Case, Sample},
};

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let pods: u64 = bench.settings.scale(5_000, 150_000);
    let ready = Case::less(format!("restart with {pods} pods, to the first page of a LIST"), "s");
    let memory = Case::less(format!("restart with {pods} pods, memory after"), "MB");
    for side in bench.sides.clone() {
        bench.say(&format!("{}, filling to {pods} pods", side.name()));
        let server = bench.server(&side).await?;
        load::fill(&server, 0, NAMESPACES, objects::create_namespace).await?;
        load::fill(&server, 0, pods, objects::create_pod).await?;
        let directory = server.stop().await;
        for round in 1..=bench.settings.rounds {
            bench.say(&format!("{}, restart {round} of {}", side.name(), bench.settings.rounds));
            // From the cache, as informers ask: both sides must have read all pods for it.
            let first = Call::get("/api/v1/pods?limit=500&resourceVersion=0");
            let (server, took) = side.start(&directory, &first).await?;
            let usage = server.usage();
            bench.add(&ready, side.name(), Sample::of(took.as_secs_f64()).used(Default::default(), usage, 1));
            bench.add(&memory, side.name(), Sample::of(usage.rss));
            server.stop().await;
        }
        let _ = std::fs::remove_dir_all(directory);
    }
    Ok(())
}
