//! `ttl-controller`: the larger the cluster, the longer kubelets may use what they have read of Secrets and ConfigMaps.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, Patch, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::Node;
use serde_json::json;

use crate::{
    ControllerContext,
    drive::{adds, drive, filled},
    workload::WORKERS,
};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// From and up to how many nodes how many seconds are right. They overlap, so that no number of nodes is between two.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1_000, 30), (900, 2_000, 60), (1_800, usize::MAX, 300)];

/// The step for so many nodes, as near as can be to the one before.
fn step(before: usize, nodes: usize) -> usize {
    let mut at = before.min(STEPS.len() - 1);
    while nodes > STEPS[at].1 {
        at += 1;
    }
    while nodes < STEPS[at].0 {
        at -= 1;
    }
    at
}

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let nodes = context.informers.informer::<Node>();
    let ttl = Ttl { client: context.client.clone(), nodes: nodes.clone(), step: AtomicUsize::new(0) };
    let controller = Controller::new(ttl, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let (add, update) = (adds(controller.queue()), adds(controller.queue()));
    nodes.add_event_handler(HandlerFuncs::new().on_add(move |new, _| add(new)).on_update(move |_, new| update(new)));
    drive(context, "ttlcontroller", vec![filled(&nodes)], controller)
}

struct Ttl {
    client: Client,
    nodes: SharedIndexInformer<Node>,
    step: AtomicUsize,
}

impl Reconciler for Ttl {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let nodes = self.nodes.indexer().snapshot();
        let Some(node) = nodes.get(key.as_str()) else { return Ok(Action::Done) };
        // Who is a moment late takes the step again at the node's next heartbeat.
        let at = step(self.step.load(Ordering::Relaxed), nodes.len());
        self.step.store(at, Ordering::Relaxed);
        let wanted = STEPS[at].2;
        let known = node.metadata.annotations.as_ref().and_then(|all| all.get(ANNOTATION)?.parse().ok());
        if known != Some(wanted) {
            let patch = Patch::Strategic(json!({"metadata": {"annotations": {ANNOTATION: wanted.to_string()}}}));
            Api::<Node>::all(&self.client).patch(key.name(), &patch).await?;
        }
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_kept_while_they_fit() {
        let sizes = [(0, 0), (100, 0), (101, 1), (95, 1), (89, 0), (6_000, 4), (1_800, 4), (1_799, 3), (1, 0)];
        let mut at = 0;
        for (nodes, expected) in sizes {
            at = step(at, nodes);
            assert_eq!(at, expected, "{nodes} nodes");
        }
    }
}
