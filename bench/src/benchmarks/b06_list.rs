//! B6: LIST of many pods: all of them, one namespace, a page, and a selector that matches nothing; one and ten at once.
//!
//! GET of one pod is measured at each count too: both should not depend on what else there is.

use crate::{
    bench::Bench,
    client::Call,
    load,
    objects::{self, NAMESPACES},
    result::Case,
};

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let servers = bench.servers().await?;
    let time = bench.settings.time;
    let counts: &[u64] = bench.settings.scale(&[1_000, 10_000], &[1_000, 10_000, 100_000]);
    let mut filled = 0;
    for server in &servers {
        load::fill(server, 0, NAMESPACES, objects::create_namespace).await?;
    }
    for &count in counts {
        for server in &servers {
            bench.say(&format!("{}, filling to {count} pods", server.side.name()));
            load::fill(server, filled, count, objects::create_pod).await?;
        }
        filled = count;
        for (what, query, curve) in QUERIES {
            for at_once in [1, 10] {
                if at_once > 1 && count == counts[0] {
                    continue;
                }
                let mut case = Case::less(format!("LIST {what} of {count} pods, {at_once} at once"), "s");
                if *query == ALL && at_once == 1 {
                    case = case.goal((count == 10_000).then_some(10.0));
                }
                if at_once == 1 && *curve {
                    case = case.point(&format!("LIST {what} over stored pods"), count as usize);
                }
                let repeats = if count < 100_000 { at_once * 5 } else { at_once };
                bench
                    .rounds(case, &servers, async |server| {
                        load::repeated(server, at_once, repeats, Call::get(*query)).await
                    })
                    .await;
            }
        }
        let case = Case::more(format!("GET of {count} pods, 100 in flight"), "ops/s")
            .point("GET over stored pods", count as usize);
        bench
            .rounds(case, &servers, async |server| {
                load::closed(server, 100, time, move |n| Call::get(objects::pod(n % count))).await
            })
            .await;
    }
    bench.end(servers).await;
    Ok(())
}

const ALL: &str = "/api/v1/pods";

/// What is asked for, how, and whether it is plotted over the count of pods.
const QUERIES: &[(&str, &str, bool)] = &[
    ("all", ALL, true),
    ("one namespace in ten", "/api/v1/namespaces/n3/pods", false),
    ("limit=500", "/api/v1/pods?limit=500", true),
    ("nothing by a selector", "/api/v1/pods?labelSelector=app%3Dnone", true),
];
