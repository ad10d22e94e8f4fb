//! B5: GET of objects of 10 KB, as JSON and as protobuf, one and many in flight.

use crate::{
    bench::Bench,
    client::{Call, JSON, PROTOBUF},
    load,
    objects::{self, CONFIG_MAPS},
    result::Case,
};

/// How many objects there are to read.
const OBJECTS: u64 = 1_000;

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let servers = bench.servers().await?;
    let time = bench.settings.time;
    for server in &servers {
        bench.say(&format!("{}, filling", server.side.name()));
        load::fill(server, 0, OBJECTS, |n| objects::create_config_map(n, 10 * 1024)).await?;
    }
    for (format, accept) in [("JSON", JSON), ("protobuf", PROTOBUF)] {
        for in_flight in [1, 100] {
            let goal = (in_flight == 100).then_some(8.0);
            let case = Case::more(format!("GET 10 KB {format}, {in_flight} in flight"), "ops/s").goal(goal);
            bench
                .rounds(case, &servers, async |server| {
                    load::closed(server, in_flight, time, move |n| get(n).accept(accept)).await
                })
                .await;
        }
    }
    bench.end(servers).await;
    Ok(())
}

fn get(number: u64) -> Call {
    Call::get(format!("{CONFIG_MAPS}/c{}", number % OBJECTS))
}
