//! B16: a whole cluster in one process with many simulated nodes: how long until the pods of some Deployments are all
//! ready, what memory that takes, and what it costs when nothing happens.
//!
//! There is no peer: upstream has no such nodes of its own.

use std::time::Duration;

use capstan_api::{Value, json};
use capstan_clock::{Clock, RealClock};

use crate::{
    bench::Bench,
    client::{Call, Connection},
    result::{Case, Sample},
    side::Side,
};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// How many Deployments share the pods.
const DEPLOYMENT_COUNT: u64 = 30;
/// How often it is looked how far it is. The answer holds only the Deployments, so that looking costs little.
const LOOK: Duration = Duration::from_millis(200);
/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(900);

pub(super) async fn run(bench: &mut Bench) -> Result<(), String> {
    let (nodes, pods): (u64, u64) = bench.settings.scale((100, 3_000), (1_000, 30_000));
    let (settle, watch) = bench.settings.scale((5, 5), (30, 30));
    let Some(binary) = bench.sides.iter().find_map(|side| match side {
        Side::Capstan { binary } => Some(binary.clone()),
        _ => None,
    }) else {
        return Ok(());
    };
    let what = format!("{nodes} nodes, {pods} pods");
    let clock = RealClock::new();
    bench.say(&format!("{nodes} nodes"));
    let server = bench.server(&Side::Cluster { binary, nodes }).await?;
    let connection = server.connect().await?;
    let began = clock.monotonic();
    until(&connection, "/api/v1/nodes", nodes, node_is_ready, "nodes are ready").await?;
    let took = clock.monotonic().since(began);
    let case = Case::less(format!("{nodes} nodes, until all are ready"), "s");
    bench.add(&case, "capstan", Sample::of(took.as_secs_f64()));

    bench.say(&what);
    let (began, before) = (clock.monotonic(), server.usage());
    for number in 0..DEPLOYMENT_COUNT {
        let deployment = Call::post(DEPLOYMENTS, deployment(number, pods / DEPLOYMENT_COUNT));
        connection.call(deployment).await.map_err(|error| error.to_string())?;
    }
    until(&connection, DEPLOYMENTS, pods, ready_replicas, "pods are ready").await?;
    let (took, after) = (clock.monotonic().since(began), server.usage());
    let case = Case::less(format!("{what}, until all are ready"), "s");
    bench.add(&case, "capstan", Sample::of(took.as_secs_f64()).used(before, after, pods));
    let rate = Case::more(format!("{what}, pods made ready"), "pods/s");
    bench.add(&rate, "capstan", Sample::of(pods as f64 / took.as_secs_f64()));

    clock.sleep(Duration::from_secs(settle)).await;
    let before = server.usage();
    clock.sleep(Duration::from_secs(watch)).await;
    let after = server.usage();
    bench.add(&Case::less(format!("{what}, memory"), "MB"), "capstan", Sample::of(after.rss));
    let idle = (after.cpu - before.cpu) / watch as f64 * 1e3;
    bench.add(&Case::less(format!("{what}, idle, CPU"), "ms of CPU a second"), "capstan", Sample::of(idle));
    bench.end(vec![server]).await;
    Ok(())
}

/// A Deployment of so many pods.
fn deployment(number: u64, replicas: u64) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"d{number}"}},"spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"d{number}"}}}},"template":{{"metadata":{{"labels":{{"app":"d{number}"}}}},"spec":{{"containers":[{{"name":"web","image":"registry.example/web:v1","resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}}}}}}]}}}}}}}}"#
    )
}

fn ready_replicas(deployment: &Value) -> u64 {
    let ready = deployment.get("status").and_then(|status| status.get("readyReplicas")).and_then(Value::as_i64);
    ready.and_then(|ready| u64::try_from(ready).ok()).unwrap_or_default()
}

fn node_is_ready(node: &Value) -> u64 {
    let conditions = node.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut conditions = conditions.into_iter().flat_map(|conditions| conditions.iter());
    u64::from(conditions.any(|condition| text(condition, "type") == "Ready" && text(condition, "status") == "True"))
}

/// Waits until the objects of a list add up to so many.
async fn until(
    connection: &Connection,
    path: &str,
    wanted: u64,
    count: fn(&Value) -> u64,
    what: &str,
) -> Result<(), String> {
    let clock = RealClock::new();
    let end = clock.monotonic().plus(PATIENCE);
    loop {
        let list = connection.read(Call::get(path)).await.map_err(|error| error.to_string())?;
        let list = json::parse(&list).map_err(|error| error.to_string())?;
        let items = list.get("items").and_then(Value::as_array);
        let found: u64 = items.into_iter().flat_map(|items| items.iter()).map(count).sum();
        if found >= wanted {
            return Ok(());
        }
        if clock.monotonic() > end {
            return Err(format!("after {} s only {found} of {wanted} {what}", PATIENCE.as_secs()));
        }
        clock.sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_ready() {
        let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
        assert_eq!(ready_replicas(&parse(r#"{"status":{"readyReplicas":7}}"#)), 7);
        assert_eq!(ready_replicas(&parse(r#"{"status":{}}"#)), 0);
        assert_eq!(node_is_ready(&parse(r#"{"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#)), 1);
        assert_eq!(node_is_ready(&parse(r#"{"status":{"conditions":[{"type":"Ready","status":"False"}]}}"#)), 0);
        parse(&deployment(1, 1000));
    }
}
