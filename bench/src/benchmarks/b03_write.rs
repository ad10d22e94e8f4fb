//! B3: durable creates and updates, of 1 KB and 10 KB, with few and many in flight; at a fixed rate; and creates beside
//! many that are stored already.

use crate::{
    bench::Bench,
    client::Call,
    load,
    objects::{self, CONFIG_MAPS},
    result::Case,
};

/// Updates go round over so many objects, so that none is written twice at once.
const UPDATED: u64 = 5_000;
/// What the open loop begins a second: less than either side can do.
const RATE: u64 = 200;

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let servers = bench.servers().await?;
    let time = bench.settings.time;
    let sizes: &[usize] = bench.settings.scale(&[1], &[1, 10]);
    let loads: &[usize] = bench.settings.scale(&[1, 100], &[1, 10, 100, 1000]);
    for &kb in sizes {
        for &in_flight in loads {
            let goal = match (kb, in_flight) {
                (1, 1) => Some(3.0),
                (1, 100) => Some(8.0),
                _ => None,
            };
            let case = Case::more(format!("create {kb} KB, {in_flight} in flight"), "ops/s")
                .goal(goal)
                .point(&format!("creates of {kb} KB over requests in flight"), in_flight);
            bench
                .rounds(case, &servers, async |server| {
                    load::closed(server, in_flight, time, move |n| objects::create_config_map(n, kb * 1024)).await
                })
                .await;
        }
    }
    for server in &servers {
        load::fill(server, 0, UPDATED, |n| Call::post(CONFIG_MAPS, objects::config_map(&format!("u{n}"), 1024)))
            .await?;
    }
    for &in_flight in loads {
        let case = Case::more(format!("update 1 KB, {in_flight} in flight"), "ops/s");
        bench.rounds(case, &servers, async |server| load::closed(server, in_flight, time, update).await).await;
    }
    let case = Case::less(format!("create 1 KB, {RATE} a second, p99"), "ms");
    bench
        .rounds(case, &servers, async |server| {
            load::open(server, RATE, time, |n| objects::create_config_map(n, 1024)).await
        })
        .await;
    bench.end(servers).await;
    beside_others(bench).await
}

/// Creates on new servers that are filled before.
async fn beside_others(bench: &mut Bench) -> Result<(), String> {
    let servers = bench.servers().await?;
    let time = bench.settings.time;
    let counts: &[u64] = bench.settings.scale(&[10_000], &[10_000, 500_000]);
    let mut filled = 0;
    for &count in counts {
        for server in &servers {
            bench.say(&format!("{}, filling to {count}", server.side.name()));
            load::fill(server, filled, count, |n| {
                Call::post(CONFIG_MAPS, objects::config_map(&format!("stored{n}"), 1024))
            })
            .await?;
        }
        filled = count;
        let case = Case::more(format!("create 1 KB, 100 in flight, {count} stored"), "ops/s")
            .point("creates of 1 KB over stored objects", count as usize);
        bench
            .rounds(case, &servers, async |server| {
                load::closed(server, 100, time, |n| objects::create_config_map(n, 1024)).await
            })
            .await;
    }
    bench.end(servers).await;
    Ok(())
}

/// A PUT without a resourceVersion that changes the object.
fn update(number: u64) -> Call {
    let name = format!("u{}", number % UPDATED);
    let body = objects::config_map(&name, 1024).replace(r#""seq":"0""#, &format!(r#""seq":"{number}""#));
    Call::put(format!("{CONFIG_MAPS}/{name}"), body)
}
