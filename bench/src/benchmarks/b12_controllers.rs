//! B12: a ReplicaSet grows from nothing: how long until all its pods are ready, and what does the manager ask for that?
//!
//! Pods become ready by a small writer, the same for both sides, that does it as soon as it hears of them.

use std::{collections::HashSet, time::Duration};

use bytes::Bytes;
use capstan_clock::{Clock, RealClock};
use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    client::{Call, Connection},
    load,
    process::Process,
    result::{Case, Sample},
    side::{Pace, Running, Side},
    watch::Lines,
};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is looked whether the manager has begun to work.
const LOOK: Duration = Duration::from_millis(50);
/// Status writes go over so many connections.
const CONNECTIONS: usize = 4;
/// What makes a pod count as ready.
const READY: &str = r#"{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let rounds = bench.settings.rounds as u64;
    let (small, shipped): (u64, u64) = bench.settings.scale((1_000, 200), (1_000, 1_000));
    let large: Option<u64> = bench.settings.scale(None, Some(5_000));
    for side in bench.sides.clone() {
        // As shipped, upstream's asks twenty times a second.
        bench.say(&format!("{}, as shipped", side.name()));
        let (server, manager) = start(bench, &side, Pace::Shipped).await?;
        grow(bench, &server, &manager, shipped, ", as shipped", None).await?;
        manager.stop().await;
        bench.end(vec![server]).await;

        let (server, manager) = start(bench, &side, Pace::Unthrottled).await?;
        for round in 1..=rounds {
            bench.say(&format!("{}, {small} pods, round {round} of {rounds}", side.name()));
            grow(bench, &server, &manager, small, "", Some(5.0)).await?;
        }
        let mut total = small * rounds;
        if let Some(large) = large {
            bench.say(&format!("{}, {large} pods", side.name()));
            grow(bench, &server, &manager, large, "", Some(5.0)).await?;
            total += large;
            // The rest of the ten thousand.
            let rest = 10_000_u64.saturating_sub(total).max(1);
            scale(&server, rest).await?;
            total += rest;
        }
        rest(bench, &server, &manager, total).await?;
        manager.stop().await;
        bench.end(vec![server]).await;
    }
    Ok(())
}

/// A server of a side, and a manager that works.
async fn start(bench: &Bench, side: &Side, pace: Pace) -> Result<(Running, Process), String> {
    let server = bench.server(side).await?;
    let mut manager = server.manager(pace)?;
    let connection = server.connect().await?;
    let clock = RealClock::new();
    while connection.call(Call::get("/api/v1/namespaces/default/serviceaccounts/default")).await.is_err() {
        manager.check()?;
        if clock.monotonic().0 > PATIENCE {
            return Err(format!("{}: its manager does not work", side.name()));
        }
        clock.sleep(LOOK).await;
    }
    Ok((server, manager))
}

/// One ReplicaSet from nothing to so many, as a sample of three cases.
async fn grow(
    bench: &mut Bench,
    server: &Running,
    manager: &Process,
    count: u64,
    how: &str,
    goal: Option<f64>,
) -> Result<(), String> {
    let side = server.side.name();
    let before = manager.usage();
    let (seconds, requests) = scale(server, count).await?;
    let after = manager.usage();
    let time = Case::less(format!("0 → {count} pods, all ready{how}"), "s").goal(goal);
    bench.add(&time, side, Sample::of(seconds).used(before, after, count));
    let each = Case::less(format!("0 → {count} pods, requests for each{how}"), "").goal(goal.map(|_| 3.0));
    bench.add(&each, side, Sample::of(requests / count as f64));
    let memory = Case::less(format!("0 → {count} pods, memory of the manager{how}"), "MB").goal(goal);
    bench.add(&memory, side, Sample::of(after.rss));
    Ok(())
}

/// What the manager asks when nothing happens.
async fn rest(bench: &mut Bench, server: &Running, manager: &Process, pods: u64) -> Result<(), String> {
    let (settle, watch) = bench.settings.scale((5, 15), (30, 120));
    bench.say(&format!("{}, {pods} pods at rest", server.side.name()));
    let clock = RealClock::new();
    clock.sleep(Duration::from_secs(settle)).await;
    // A connection that nobody uses for so long the servers close.
    let before = requests(&server.connect().await?).await?;
    clock.sleep(Duration::from_secs(watch)).await;
    let asked = (requests(&server.connect().await?).await? - before) * 60.0 / watch as f64;
    let side = server.side.name();
    let case = Case::less(format!("{pods} pods at rest, requests a minute"), "");
    bench.add(&case, side, Sample::of(asked));
    let case = Case::less(format!("{pods} pods at rest, memory of the manager"), "MB").goal(5.0);
    bench.add(&case, side, Sample::of(manager.usage().rss));
    Ok(())
}

/// Lets a new ReplicaSet grow from nothing. Says how long it took and how many requests others made meanwhile.
async fn scale(server: &Running, count: u64) -> Result<(f64, f64), String> {
    let failed = |error: crate::client::CallError| format!("{}: {error}", server.side.name());
    let name = format!("web{}", server.next());
    let connection = server.connect().await?;
    let set = format!(
        r#"{{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{{"name":"{name}"}},"spec":{{"replicas":0,"selector":{{"matchLabels":{{"app":"{name}"}}}},"template":{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"terminationGracePeriodSeconds":0,"containers":[{{"name":"app","image":"registry.example/team/app:v1.2.3"}}]}}}}}}}}"#
    );
    connection.call(Call::post(SETS, set)).await.map_err(failed)?;
    let of_pods = format!("{PODS}?labelSelector=app%3D{name}");
    let watching = server.connect().await?;
    let of_set = format!("{SETS}?fieldSelector=metadata.name%3D{name}");
    let (mut pods, mut sets) = (open(&watching, &of_pods).await?, open(&watching, &of_set).await?);
    let writers = server.endpoint.connect_all(CONNECTIONS).await.map_err(failed)?;

    let before = requests(&connection).await?;
    let clock = RealClock::new();
    let all_ready = format!(r#""readyReplicas":{count},"#).into_bytes();
    let grown = format!(r#"{{"spec":{{"replicas":{count}}}}}"#);
    connection.call(Call::merge_patch(format!("{SETS}/{name}"), grown)).await.map_err(failed)?;
    let (mut lines_of_pods, mut lines_of_sets) = (Lines::default(), Lines::default());
    let (mut seen, mut ready, mut writes) = (HashSet::new(), false, JoinSet::new());
    let work = async {
        while !ready {
            tokio::select! {
                data = next(&watching, &mut pods, &of_pods) => {
                    lines_of_pods.feed(data?, |line| {
                        let Some(name) = name_in(line) else { return };
                        if seen.insert(name.clone()) {
                            let writer = writers[seen.len() % writers.len()].clone();
                            let call = Call::merge_patch(format!("{PODS}/{name}/status"), READY);
                            writes.spawn(async move { writer.call(call).await });
                        }
                    });
                }
                data = next(&watching, &mut sets, &of_set) => {
                    lines_of_sets.feed(data?, |line| {
                        ready |= has(line, &all_ready);
                    });
                }
            }
        }
        Ok::<(), String>(())
    };
    load::within(PATIENCE, work).await.ok_or_else(|| format!("{}: not all were ready", server.side.name()))??;
    let seconds = clock.monotonic().0.as_secs_f64();
    while let Some(write) = writes.join_next().await {
        write.map_err(|error| error.to_string())?.map_err(failed)?;
    }
    // Ours were: one that grows the set, one for each pod, and what asked for the numbers.
    let ours = seen.len() as f64 + 1.0;
    Ok((seconds, requests(&connection).await? - before - ours))
}

/// A watch that begins with what there is.
async fn open(connection: &Connection, path: &str) -> Result<hyper::body::Incoming, String> {
    let call = Call::get(format!("{path}&watch=1&timeoutSeconds=3600"));
    connection.open(call).await.map_err(|error| error.to_string())
}

/// What comes next in a watch; one that the server has ended begins again.
async fn next(connection: &Connection, watch: &mut hyper::body::Incoming, path: &str) -> Result<Bytes, String> {
    loop {
        match watch.frame().await {
            Some(Ok(frame)) => return Ok(frame.into_data().unwrap_or_default()),
            _ => *watch = open(connection, path).await?,
        }
    }
}

/// Whether an event has these bytes.
fn has(event: &[u8], bytes: &[u8]) -> bool {
    event.windows(bytes.len()).any(|window| window == bytes)
}

/// The name of the object of an event, which is the first that is in it. Reading all of it would be work that is none
/// of the servers'.
fn name_in(event: &[u8]) -> Option<String> {
    const MARK: &[u8] = br#""name":""#;
    let at = event.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let name = event[at..].split(|byte| *byte == b'"').next()?;
    String::from_utf8(name.to_vec()).ok()
}

/// How many requests the server has answered, apart from those for Leases, watches (which are counted when they end)
/// and for what the server says of itself.
async fn requests(connection: &Connection) -> Result<f64, String> {
    let text = connection.read(Call::get("/metrics")).await.map_err(|error| error.to_string())?;
    Ok(sum(&String::from_utf8_lossy(&text)))
}

fn sum(metrics: &str) -> f64 {
    let counted = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains(r#"component="apiserver""#)
            && ![r#",resource="leases""#, r#",resource="""#, r#",verb="WATCH""#]
                .iter()
                .any(|other| line.contains(other))
    };
    let values = metrics.lines().filter(counted).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found() {
        let event = br#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"web0-x","labels":{"name":"no"}}}}"#;
        assert_eq!(name_in(event).as_deref(), Some("web0-x"));
        assert_eq!(name_in(b"{}"), None);
        assert!(has(event, br#""kind":"Pod""#) && !has(b"", b"x"));
    }

    #[test]
    fn requests_are_summed() {
        let line = |resource: &str, verb: &str, count: u32| {
            format!(
                "apiserver_request_total{{code=\"200\",component=\"apiserver\",resource=\"{resource}\",verb=\"{verb}\"}} {count}\n"
            )
        };
        let text = line("pods", "POST", 3)
            + &line("leases", "PUT", 70)
            + &line("pods", "WATCH", 700)
            + &line("pods", "PATCH", 20_000)
            + "apiserver_request_total{code=\"200\",component=\"apiserver\",resource=\"\"} 9\nother{} 5\n";
        assert_eq!(sum(&text), 20_003.0);
    }
}
