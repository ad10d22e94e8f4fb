//! What several loops ask of pods, and write to their status.

use std::sync::Arc;

use capstan_api::Str;
use capstan_client::{
    Api, Client, Error, Patch, SharedIndexInformer,
    store::{Indexer, Indexers},
};
use capstan_clock::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::pod::{About, Pod, PodCondition, PodStatus};

/// The index of pods by their node.
const BY_NODE: &str = "spec.nodeName";

/// The condition of a pod that somebody takes away.
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";

pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn condition<'a>(pod: &'a Pod, type_: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Whether a pod has come to its end.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Sees to it that pods can be found by their node.
pub(crate) fn index_by_node(informer: &SharedIndexInformer<Pod>) {
    let by_node = |pod: &Pod| Some(node_name(pod)).filter(|name| !name.is_empty()).map(Str::from).into_iter().collect();
    informer.add_indexers(Indexers::from([(BY_NODE.into(), Arc::new(by_node) as _)]));
}

/// The pods of a node.
pub(crate) fn of_node(indexer: &Indexer<Pod>, node: &str) -> Vec<Arc<Pod>> {
    indexer.by_index(BY_NODE, node).unwrap_or_default()
}

/// Adds a condition, or changes the one of its type. Whether that changed anything.
pub(crate) fn set_condition(status: &mut PodStatus, new: About, now: Timestamp) -> bool {
    let mut conditions = status.conditions.take().unwrap_or_default().into_vec();
    let mut new = PodCondition::from(new);
    new.last_transition_time = Some(Time(now));
    let changed = match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        None => {
            conditions.push(new);
            true
        }
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            let changed = *old != new;
            *old = new;
            changed
        }
    };
    status.conditions = Some(conditions.into());
    changed
}

/// That a pod is taken away, and why.
pub(crate) fn disruption(reason: &str, message: &str) -> About {
    About {
        type_: DISRUPTION_TARGET.into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
    }
}

/// To which state of a pod something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// Whatever has become of it.
    Any,
    /// Only to the one that is known: it is a conflict if it has changed since.
    Known,
}

/// Writes what is different in a status, to exactly this pod.
pub(crate) async fn patch_status(client: &Client, pod: &Pod, new: &PodStatus, as_of: AsOf) -> Result<(), Error> {
    let old = pod.status.clone().unwrap_or_default();
    let mut status = serde_json::Map::new();
    if old.phase != new.phase {
        status.insert("phase".to_owned(), json!(new.phase));
    }
    if old.observed_generation != new.observed_generation {
        status.insert("observedGeneration".to_owned(), json!(new.observed_generation));
    }
    let conditions = new.conditions.as_deref().unwrap_or_default();
    let known = old.conditions.unwrap_or_default();
    let changed: Vec<_> = conditions.iter().filter(|condition| !known.contains(condition)).collect();
    if !changed.is_empty() {
        let order: Vec<Value> = conditions.iter().map(|condition| json!({"type": condition.type_})).collect();
        let written = |new: &PodCondition| written(pod, known.iter().find(|old| old.type_ == new.type_), new);
        let changed: Vec<Value> = changed.into_iter().map(written).collect();
        status.insert("$setElementOrder/conditions".to_owned(), json!(order));
        status.insert("conditions".to_owned(), json!(changed));
    }
    if status.is_empty() {
        return Ok(());
    }
    let mut metadata = json!({"uid": pod.metadata.uid});
    if as_of == AsOf::Known {
        metadata["resourceVersion"] = json!(pod.metadata.resource_version);
    }
    let api = Api::<Pod>::namespaced(client, pod.metadata.namespace());
    let patch = json!({"metadata": metadata, "status": status});
    api.patch_status(pod.metadata.name(), &Patch::Strategic(patch)).await?;
    Ok(())
}

/// A condition as it is written: so of the pod as it is now, and without what the old one had and it has not.
fn written(pod: &Pod, old: Option<&PodCondition>, new: &PodCondition) -> Value {
    let mut written = json!({"type": new.type_, "status": new.status, "lastTransitionTime": new.last_transition_time});
    if let Some(generation) = pod.metadata.generation {
        written["observedGeneration"] = json!(generation);
    }
    if new.reason.is_some() || old.is_some_and(|old| old.reason.is_some()) {
        written["reason"] = json!(new.reason);
    }
    if new.message.is_some() || old.is_some_and(|old| old.message.is_some()) {
        written["message"] = json!(new.message);
    }
    written
}
