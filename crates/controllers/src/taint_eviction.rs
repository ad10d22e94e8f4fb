//! `taint-eviction-controller`: pods leave nodes whose `NoExecute` taints they do not tolerate, or not for long.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::options::DeleteOptions;
use capstan_client::{Api, BoxFuture, Client, Error, HandlerFuncs, Key, Lister};
use capstan_clock::{Moment, SharedClock};
use capstan_runtime::{Action, Controller, EventRecorder, EventType, ObjectReference, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{Node, Taint};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    pod::{Pod, Toleration},
    pod_status::{AsOf, disruption, index_by_node, node_name, of_node, patch_status, set_condition},
};

const WORKERS: usize = 8;

/// The operators that compare numbers are off, as they are upstream by default.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    if (!effect.is_empty() && effect != taint.effect) || (!key.is_empty() && key != taint.key) {
        return false;
    }
    match text(&toleration.operator).as_str() {
        "" | "Equal" => text(&toleration.value) == text(&taint.value),
        "Exists" => true,
        _ => false,
    }
}

/// How long a pod may stay on a node with these taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Forever,
    For(Duration),
    Not,
}

fn stay<'a>(taints: &[&Taint], tolerations: impl Iterator<Item = &'a Toleration> + Clone) -> Stay {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(toleration) = tolerations.clone().find(|toleration| tolerates(toleration, taint)) else {
            return Stay::Not;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    match shortest.map(u64::try_from) {
        None => Stay::Forever,
        Some(Err(_) | Ok(0)) => Stay::Not,
        Some(Ok(seconds)) => Stay::For(Duration::from_secs(seconds)),
    }
}

fn no_execute(node: &Node) -> Vec<&Taint> {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    taints.filter(|taint| taint.effect == "NoExecute").collect()
}

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (pods, nodes) = (context.informers.informer::<Pod>(), context.informers.informer::<Node>());
    index_by_node(&pods);
    let evictor = Evictor {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        recorder: context.recorder("taint-eviction-controller"),
        pods: pods.lister(),
        nodes: nodes.lister(),
        due: Mutex::default(),
    };
    let controller = Controller::new(evictor, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let (add, update, delete) = (controller.queue().clone(), controller.queue().clone(), controller.queue().clone());
    let changed = |old: &Pod, new: &Pod| {
        let tolerations = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()).unwrap_or_default();
        node_name(old) != node_name(new) || tolerations(old) != tolerations(new)
    };
    pods.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<Pod>, _| add.add(Key::of(&**new)))
            .on_update(move |old, new| {
                if changed(old, new) {
                    update.add(Key::of(&**new));
                }
            })
            .on_delete(move |gone| delete.add(Key::of(&**gone.object()))),
    );
    let (queue, indexer) = (controller.queue().clone(), Arc::clone(pods.indexer()));
    let see = move |node: &Node| {
        for pod in of_node(&indexer, node.metadata.name.as_deref().unwrap_or_default()) {
            queue.add(Key::of(&*pod));
        }
    };
    let again = see.clone();
    nodes.add_event_handler(HandlerFuncs::new().on_add(move |new: &Arc<Node>, _| see(new)).on_update(
        move |old: &Arc<Node>, new| {
            if no_execute(old) != no_execute(new) {
                again(new);
            }
        },
    ));
    drive(context, "noexec_taint_pod", vec![filled(&pods), filled(&nodes)], controller)
}

struct Evictor {
    client: Client,
    clock: SharedClock,
    recorder: EventRecorder,
    pods: Lister<Pod>,
    nodes: Lister<Node>,
    /// When pods have to go. What was once decided stays, unless the pod may stay for ever or not at all.
    due: Mutex<HashMap<Key, Moment>>,
}

impl Evictor {
    fn due<R>(&self, act: impl FnOnce(&mut HashMap<Key, Moment>) -> R) -> R {
        act(&mut self.due.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tell(&self, key: &Key, message: String) {
        let about = ObjectReference::new("v1", "Pod", key.namespace(), key.name());
        self.recorder.event(&about, EventType::Normal, "TaintManagerEviction", message);
    }

    /// The pod may stay.
    fn cancel(&self, key: &Key) {
        if self.due(|due| due.remove(key)).is_some() {
            self.tell(key, format!("Cancelling deletion of Pod {key}"));
        }
    }

    async fn evict(&self, key: &Key) -> Result<(), Error> {
        let api = Api::<Pod>::namespaced(&self.client, key.namespace());
        let Some(pod) = api.get_opt(key.name()).await? else { return Ok(()) };
        let mut status = pod.status.clone().unwrap_or_default();
        let why = disruption("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint");
        if set_condition(&mut status, why, self.clock.now()) {
            patch_status(&self.client, &pod, &status, AsOf::Any).await?;
        }
        api.delete(key.name(), &DeleteOptions::default()).await
    }
}

impl Reconciler for Evictor {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.get(&key) else {
            self.cancel(&key);
            return Ok(Action::Done);
        };
        let node = self.nodes.get(&Key::new("", node_name(&pod)));
        // Who goes already need not be told.
        let Some(node) = node.filter(|_| pod.metadata.deletion_timestamp.is_none()) else { return Ok(Action::Done) };
        let tolerations = pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
        let now = self.clock.monotonic();
        match stay(&no_execute(&node), tolerations) {
            Stay::Forever => {
                self.cancel(&key);
                return Ok(Action::Done);
            }
            Stay::For(duration) => {
                let due = self.due(|due| *due.entry(key.clone()).or_insert(now.plus(duration)));
                if due > now {
                    return Ok(Action::RequeueAfter(due.since(now)));
                }
            }
            Stay::Not => self.cancel(&key),
        }
        self.tell(&key, format!("Marking for deletion Pod {key}"));
        match self.evict(&key).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => {
                self.due(|due| due.remove(&key));
                Ok(Action::Done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_pods_stay() {
        /// Taints as `key`, tolerations as `key[=seconds]`; `*` tolerates all.
        fn check(taints: &str, tolerations: &str, expected: Stay) {
            let taints: Vec<_> = taints
                .split_whitespace()
                .map(|key| Taint { key: key.into(), effect: "NoExecute".into(), ..Taint::default() })
                .collect();
            let tolerations: Vec<_> = tolerations
                .split_whitespace()
                .map(|text| {
                    let (key, seconds) = text.split_once('=').unwrap_or((text, ""));
                    Toleration {
                        key: Some(key.trim_matches('*').to_owned()),
                        operator: Some("Exists".to_owned()),
                        toleration_seconds: seconds.parse().ok(),
                        ..Toleration::default()
                    }
                })
                .collect();
            let found = stay(&taints.iter().collect::<Vec<_>>(), tolerations.iter());
            assert_eq!(found, expected, "{taints:?} {tolerations:?}");
        }
        let seconds = |n| Stay::For(Duration::from_secs(n));
        check("", "", Stay::Forever);
        check("a", "", Stay::Not);
        check("a", "b", Stay::Not);
        check("a", "a", Stay::Forever);
        check("a", "*", Stay::Forever);
        check("a", "a=30", seconds(30));
        check("a b", "a=30 b=10", seconds(10));
        check("a b", "a=30 b", seconds(30));
        check("a b", "a=30", Stay::Not);
        check("a", "a=0", Stay::Not);
        check("a", "a=-5", Stay::Not);
        check("a", "a=9 a=3", seconds(9));
    }

    #[test]
    fn tolerations() {
        fn check(toleration: [&str; 4], expected: bool) {
            let [key, operator, value, effect] = toleration.map(|text| Some(text.to_owned()));
            let toleration = Toleration { key, operator, value, effect, toleration_seconds: None };
            let taint =
                Taint { key: "k".into(), value: Some("v".into()), effect: "NoExecute".into(), time_added: None };
            assert_eq!(tolerates(&toleration, &taint), expected, "{toleration:?}");
        }
        check(["k", "Equal", "v", "NoExecute"], true);
        check(["k", "", "v", ""], true);
        check(["k", "Equal", "w", ""], false);
        check(["k", "Exists", "", ""], true);
        check(["", "Exists", "", ""], true);
        check(["j", "Exists", "", ""], false);
        check(["k", "Exists", "", "NoSchedule"], false);
        check(["k", "Gt", "v", ""], false);
    }
}
