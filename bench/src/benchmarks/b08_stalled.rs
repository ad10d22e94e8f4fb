//! B8: what healthy watchers notice of one that reads nothing: B7's delivery with it, and without it.

use super::b07_watch::{patches_seen, prepare};
use crate::{
    bench::Bench,
    objects::CONFIG_MAPS,
    result::{Case, median},
    watch,
};

/// Healthy watchers.
const HEALTHY: usize = 100;
/// How far the stalled one lets the server go ahead: the least that HTTP/2 starts with.
const WINDOW: u32 = 65_535;

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let servers = bench.servers().await?;
    let time = bench.settings.time;
    for server in &servers {
        prepare(server).await?;
    }
    let alone = Case::less(format!("{HEALTHY} watchers, delivery p99"), "ms");
    bench.rounds(alone.clone(), &servers, async |server| Ok(patches_seen(server, HEALTHY, time).await?.sample)).await;
    let beside = Case::less(format!("{HEALTHY} watchers beside a stalled one, delivery p99"), "ms");
    bench
        .rounds(beside.clone(), &servers, async |server| {
            let connection = server.endpoint.connect_with(WINDOW).await.map_err(|error| error.to_string())?;
            let call = watch::from_now(&connection, CONFIG_MAPS).await?;
            let unread = connection.open(call).await.map_err(|error| error.to_string())?;
            let seen = patches_seen(server, HEALTHY, time).await;
            drop(unread);
            Ok(seen?.sample)
        })
        .await;
    let ratio = Case::less("healthy p99 beside a stalled one ÷ alone", "times");
    for server in &servers {
        let side = server.side.name();
        let p99 = |case: &Case| {
            let row = bench.rows.iter().find(|row| row.benchmark == "B8" && row.case.name == case.name)?;
            let (_, samples) = row.samples.iter().find(|(name, _)| *name == side)?;
            Some(median(samples.iter().map(|sample| sample.value).collect()))
        };
        if let (Some(alone), Some(beside)) = (p99(&alone), p99(&beside)) {
            bench.add(&ratio, side, crate::result::Sample::of(beside / alone));
        }
    }
    bench.end(servers).await;
    Ok(())
}
