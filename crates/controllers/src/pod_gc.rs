//! `pod-garbage-collector-controller`: pods that nobody will end go all the same.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use capstan_api::{options::DeleteOptions, selector::Selector};
use capstan_client::{Api, BoxFuture, Client, Error, Lister, beat::race};
use capstan_clock::{Moment, SharedClock, Timestamp};
use k8s_openapi::api::core::v1::Node;

use crate::{
    ControllerContext,
    drive::{filled, synced},
    pod::Pod,
    pod_status::{AsOf, disruption, node_name, patch_status, phase, set_condition},
};

/// How often pods are looked through.
const CHECK_PERIOD: Duration = Duration::from_secs(20);

/// How long a node must have been away before its pods go.
const QUARANTINE: Duration = Duration::from_secs(40);

/// How many pods that have ended may stay.
const TERMINATED_POD_THRESHOLD: usize = 12_500;

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (pods, nodes) = (context.informers.informer::<Pod>(), context.informers.informer::<Node>());
    let (stop, clock) = (context.stop.clone(), Arc::clone(&context.clock));
    let mut collector = Collector {
        client: context.client.clone(),
        clock: Arc::clone(&clock),
        pods: pods.lister(),
        nodes: nodes.lister(),
        quarantine: BTreeMap::new(),
    };
    Box::pin(async move {
        if !synced(&stop, vec![filled(&pods), filled(&nodes)]).await {
            return;
        }
        while !stop.is_stopped() {
            collector.collect().await;
            race(stop.stopped(), clock.sleep(CHECK_PERIOD)).await;
        }
    })
}

struct Collector {
    client: Client,
    clock: SharedClock,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    /// Nodes that are not there, and from when on that is believed.
    quarantine: BTreeMap<String, Moment>,
}

impl Collector {
    /// Looks through all pods. What fails is tried again the next time.
    async fn collect(&mut self) {
        let everything = Selector::default();
        let (pods, nodes) = (self.pods.list(&everything), self.nodes.list(&everything));
        for pod in ended(&pods, TERMINATED_POD_THRESHOLD) {
            let _ = self.delete(pod, None).await;
        }
        let out_of_service: BTreeSet<_> = nodes
            .iter()
            .filter(|node| is_out_of_service(node))
            .filter_map(|node| node.metadata.name.as_deref())
            .collect();
        for pod in in_order(pods.iter().filter(|pod| is_terminating(pod) && out_of_service.contains(node_name(pod)))) {
            let _ = self.delete(pod, None).await;
        }
        let there: BTreeSet<_> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        let gone = self.gone(&pods, &there).await;
        for pod in pods.iter().filter(|pod| gone.contains(node_name(pod))) {
            let _ = self.delete(pod, Some("PodGC: node no longer exists")).await;
        }
        for pod in pods.iter().filter(|pod| is_terminating(pod) && node_name(pod).is_empty()) {
            let _ = self.delete(pod, None).await;
        }
    }

    /// The nodes of pods that have not been there for long enough; the server is asked whether that is so.
    async fn gone(&mut self, pods: &[Arc<Pod>], there: &BTreeSet<&str>) -> BTreeSet<String> {
        let now = self.clock.monotonic();
        for name in pods.iter().map(|pod| node_name(pod)).filter(|name| !name.is_empty() && !there.contains(name)) {
            if !self.quarantine.contains_key(name) {
                self.quarantine.insert(name.to_owned(), now.plus(QUARANTINE));
            }
        }
        let due: Vec<_> =
            self.quarantine.iter().filter(|(_, due)| **due <= now).map(|(name, _)| name.clone()).collect();
        let mut gone = BTreeSet::new();
        for name in due {
            self.quarantine.remove(&name);
            let is_there = there.contains(name.as_str());
            if !is_there && matches!(Api::<Node>::all(&self.client).get_opt(&name).await, Ok(None)) {
                gone.insert(name);
            }
        }
        gone
    }

    /// Says that a pod has failed, unless it has ended, and deletes it at once.
    async fn delete(&self, pod: &Pod, disrupted: Option<&str>) -> Result<(), Error> {
        if !matches!(phase(pod), "Succeeded" | "Failed") {
            let mut status = pod.status.clone().unwrap_or_default();
            status.phase = Some("Failed".into());
            status.observed_generation = pod.metadata.generation;
            if let Some(message) = disrupted {
                set_condition(&mut status, disruption("DeletionByPodGC", message), self.clock.now());
            }
            patch_status(&self.client, pod, &status, AsOf::Any).await?;
        }
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
        let api = Api::<Pod>::namespaced(&self.client, namespace.unwrap_or_default());
        api.delete(name.unwrap_or_default(), &at_once).await
    }
}

fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    !is_ready && taints.into_iter().any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

/// The order in which pods go: evicted ones first, then the oldest.
fn in_order<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> Vec<&'a Arc<Pod>> {
    let mut pods: Vec<_> = pods.collect();
    let is_evicted = |pod: &Pod| {
        let reason = pod.status.as_ref().and_then(|status| status.reason.as_deref());
        phase(pod) == "Failed" && reason == Some("Evicted")
    };
    pods.sort_by_cached_key(|pod| {
        let created: Option<Timestamp> = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (Reverse(is_evicted(pod)), created, pod.metadata.name.clone())
    });
    pods
}

/// The pods that have ended and are too many.
fn ended(pods: &[Arc<Pod>], threshold: usize) -> Vec<&Arc<Pod>> {
    let has_ended = |pod: &&Arc<Pod>| !matches!(phase(pod), "Pending" | "Running" | "Unknown");
    let count = pods.iter().filter(has_ended).count().saturating_sub(threshold);
    if count == 0 {
        return Vec::new();
    }
    let mut ended = in_order(pods.iter().filter(has_ended));
    ended.truncate(count);
    ended
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn those_that_ended_first_go() {
        let pod = |name: &str, phase: &str, reason: &str, minute: u8| -> Arc<Pod> {
            let pod = json!({
                "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z")},
                "status": {"phase": phase, "reason": reason},
            });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let pods = [
            pod("new", "Failed", "", 9),
            pod("runs", "Running", "", 0),
            pod("b", "Succeeded", "", 5),
            pod("a", "Succeeded", "", 5),
            pod("evicted", "Failed", "Evicted", 30),
        ];
        let check = |threshold, expected: &str| {
            let names: Vec<_> = ended(&pods, threshold).iter().filter_map(|pod| pod.metadata.name.clone()).collect();
            assert_eq!(names.join(" "), expected, "{threshold}");
        };
        check(0, "evicted a b new");
        check(2, "evicted a");
        check(4, "");
        check(9, "");
    }
}
