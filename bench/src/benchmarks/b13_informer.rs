//! B13: an informer of many pods: how long until all are there and its handler has heard of them, what a pod takes of
//! its memory, and then 1,000 changes a second.
//!
//! Ours, client-go's and kube-rs' follow the same server, ours, one after the other, each in a process of its own and
//! with managedFields dropped. What their handlers want of the first list is the keys, as controllers do: client-go has
//! read each object by then, ours reads one that is kept packed when somebody asks for it. Of changes they want the
//! object. The server has been asked for all of them once before, so that nobody pays for what the next one finds made.

use std::{path::PathBuf, time::Duration};

use capstan_clock::{Clock, RealClock};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    client::Call,
    load,
    objects::{self, NAMESPACES, SENT_AT},
    peers,
    process::Process,
    result::{Case, Sample},
    side::Running,
};

/// Changes a second.
const RATE: u64 = 1_000;
/// How often it is looked whether a process has said something.
const LOOK: Duration = Duration::from_millis(20);
/// How long an informer may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the last changes may take to arrive.
const SETTLE: Duration = Duration::from_secs(1);

/// A program that follows pods.
struct Informer {
    name: &'static str,
    binary: PathBuf,
    arguments: Vec<String>,
}

/// What it did.
struct Seen {
    /// Seconds until everything was there.
    sync: f64,
    /// KB a pod.
    memory: f64,
    /// CPU microseconds a change.
    cpu: f64,
    /// ms.
    p99: f64,
}

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let count: u64 = bench.settings.scale(20_000, 100_000);
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut informers = vec![Informer { name: "capstan", binary: own, arguments: vec!["informer".to_owned()] }];
    if bench.settings.peer {
        bench.say("building the peers");
        for (name, built) in [("client-go", peers::go("informer")), ("kube-rs", peers::kube_rs())] {
            match built {
                Ok(binary) => informers.push(Informer { name, binary, arguments: Vec::new() }),
                Err(error) => bench.failures.push(format!("B13 {name}: {error}")),
            }
        }
    }
    let server = bench.server(&bench.sides[0].clone()).await?;
    load::fill(&server, 0, NAMESPACES, objects::create_namespace).await?;
    bench.say(&format!("filling to {count} pods"));
    load::fill(&server, 0, count, objects::create_pod).await?;
    started(bench, &server, &informers[0], count).await?.0.ended().await?;
    for round in 1..=bench.settings.rounds {
        for informer in &informers {
            bench.say(&format!("{}, round {round} of {}", informer.name, bench.settings.rounds));
            match measure(bench, &server, informer, count).await {
                Ok(seen) => add(bench, informer.name, count, &seen),
                Err(error) => bench.failures.push(format!("B13 {}: {error}", informer.name)),
            }
        }
    }
    bench.end(vec![server]).await;
    Ok(())
}

/// One row for each peer, with ours beside it.
fn add(bench: &mut Bench, name: &'static str, count: u64, seen: &Seen) {
    for peer in ["client-go", "kube-rs"] {
        let goal = |times: f64| (peer == "client-go").then_some(times);
        let side = if name == "capstan" { "capstan" } else { "upstream" };
        if side == "upstream" && name != peer {
            continue;
        }
        let rows = [
            (Case::less(format!("first list of {count} pods, {peer}"), "s").goal(goal(3.0)), seen.sync),
            (Case::less(format!("memory of a pod, {peer}"), "KB").goal(goal(5.0)).bound(5.0), seen.memory),
            (Case::less(format!("{RATE} changes a second, CPU of one, {peer}"), "µs").goal(goal(3.0)), seen.cpu),
            (Case::less(format!("{RATE} changes a second, p99, {peer}"), "ms"), seen.p99),
        ];
        for (case, value) in rows {
            bench.add(&case, side, Sample::of(value));
        }
    }
}

/// An informer that has heard of all pods, and what it says of that: seconds, and KB before and after.
async fn started(
    bench: &Bench,
    server: &Running,
    informer: &Informer,
    count: u64,
) -> Result<(Process, [f64; 3]), String> {
    let directory = bench.directory(&format!("informer-{}", informer.name))?;
    let mut arguments = informer.arguments.clone();
    arguments.push(server.kubeconfig()?.display().to_string());
    let mut process = Process::start(&informer.binary, &arguments, &directory)?;
    let synced = said(&mut process, "synced ").await?;
    let [sync, heard, before, after] = synced[..] else { return Err(format!("synced {synced:?}")) };
    if heard as u64 != count {
        return Err(format!("it heard of {heard} pods out of {count}"));
    }
    Ok((process, [sync, before, after]))
}

async fn measure(bench: &Bench, server: &Running, informer: &Informer, count: u64) -> Result<Seen, String> {
    let (process, [sync, before, after]) = started(bench, server, informer, count).await?;
    let used = process.usage().cpu;
    let sent = changes(server, count, bench.settings.time).await?;
    RealClock::new().sleep(SETTLE).await;
    let used = process.usage().cpu - used;
    let words = process.ended().await?;
    let events = numbers(&words, "events ").ok_or("it did not say what it heard")?;
    let [events, _, p99] = events[..] else { return Err(format!("events {events:?}")) };
    if (events as u64) < sent {
        return Err(format!("it heard of {events} changes out of {sent}"));
    }
    Ok(Seen { sync, memory: (after - before) / count as f64, cpu: used * 1e6 / events.max(1.0), p99 })
}

/// Changes pods at a fixed rate, with the time written into each; how many.
async fn changes(server: &Running, count: u64, time: Duration) -> Result<u64, String> {
    let (clock, connection) = (RealClock::new(), server.connect().await?);
    let mut patches = JoinSet::new();
    load::paced(&clock, RATE, time, async |n, _| {
        let at = clock.now().as_nanosecond();
        let body = format!(r#"{{"metadata":{{"annotations":{{"{SENT_AT}":"{at}"}}}}}}"#);
        // Spread over all of them, so that none changes twice before it is seen.
        let (connection, pod) = (connection.clone(), objects::pod(n * 7_919 % count));
        patches.spawn(async move { connection.call(Call::merge_patch(pod, body)).await });
    })
    .await;
    let mut done = 0;
    while let Some(patch) = patches.join_next().await {
        patch.map_err(|error| error.to_string())?.map_err(|error| format!("changing: {error}"))?;
        done += 1;
    }
    Ok(done)
}

/// The numbers behind a word, once the process has said it.
async fn said(process: &mut Process, word: &str) -> Result<Vec<f64>, String> {
    let clock = RealClock::new();
    while clock.monotonic().0 < PATIENCE {
        if let Some(numbers) = numbers(&process.words(), word) {
            return Ok(numbers);
        }
        process.check()?;
        clock.sleep(LOOK).await;
    }
    Err(format!("it had not {word}after {} s", PATIENCE.as_secs()))
}

fn numbers(words: &str, word: &str) -> Option<Vec<f64>> {
    let line = words.split_inclusive('\n').find_map(|line| line.strip_prefix(word)?.strip_suffix('\n'))?;
    line.split(' ').map(|number| number.parse().ok()).collect()
}
