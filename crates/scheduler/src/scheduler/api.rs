//! What is told to the server.

use std::{sync::Arc, time::Duration};

use capstan_api::options::DeleteOptions;
use capstan_client::{Api, Client, Error, Patch};
use capstan_clock::{SharedClock, Timestamp};
use capstan_runtime::{EventRecorder, EventType, ObjectReference};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use serde_json::{Value, json};

use crate::pod_info::PodInfo;

/// How long the note of an event may be, in bytes.
const NOTE_LENGTH_LIMIT: usize = 1024;

fn pods(client: &Client, pod: &PodInfo) -> Api<Pod> {
    Api::namespaced(client, pod.namespace())
}

/// Who an event is about.
pub(super) fn reference(pod: &PodInfo) -> ObjectReference {
    let metadata = &pod.pod.metadata;
    let mut reference = ObjectReference::new("v1", "Pod", pod.namespace(), pod.name());
    reference.uid = metadata.uid.clone().unwrap_or_default();
    reference.resource_version = metadata.resource_version.clone().unwrap_or_default();
    reference
}

/// Binds a pod to a node.
pub(super) async fn bind(client: &Client, pod: &PodInfo, node: &str) -> Result<(), Error> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod.name(), "namespace": pod.namespace(), "uid": pod.pod.metadata.uid},
        "target": {"kind": "Node", "name": node},
    });
    pods(client, pod).create_subresource(pod.name(), "binding", &binding).await.map(drop)
}

/// How often it is asked what has become of a binding, and how long is waited in between.
const BOUND_TRIES: usize = 5;
const BOUND_PERIOD: Duration = Duration::from_millis(200);

/// Whether a pod is bound to a node, as far as the server can be asked.
pub(super) async fn is_bound(client: &Client, pod: &PodInfo, node: &str, clock: &SharedClock) -> bool {
    for _ in 0..BOUND_TRIES {
        match pods(client, pod).get(pod.name()).await {
            Ok(now) => {
                let there = now.spec.is_some_and(|spec| spec.node_name.as_deref() == Some(node));
                return there && now.metadata.uid == pod.pod.metadata.uid;
            }
            Err(error) if error.is_not_found() => return false,
            Err(_) => clock.sleep(BOUND_PERIOD).await,
        }
    }
    false
}

/// A note that is not too long.
pub(super) fn truncated(note: &str) -> String {
    if note.len() <= NOTE_LENGTH_LIMIT {
        return note.to_owned();
    }
    let mut end = NOTE_LENGTH_LIMIT - " ...".len();
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &note[..end])
}

/// A condition as a patch, or none when the pod has it already.
fn condition(pod: &PodInfo, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Option<Value> {
    let all = pod.pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let old: Option<&PodCondition> = all.into_iter().find(|condition| condition.type_ == kind);
    let generation = pod.pod.metadata.generation;
    if let Some(old) = old
        && old.status == status
        && old.reason.as_deref() == Some(reason)
        && old.message.as_deref() == Some(message)
        && old.observed_generation == generation
    {
        return None;
    }
    let mut condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "observedGeneration": generation, "lastProbeTime": null,
    });
    if old.is_none_or(|old| old.status != status) {
        // Times of objects have whole seconds.
        let seconds = Timestamp::from_second(now.as_second()).unwrap_or(now);
        condition["lastTransitionTime"] = json!(seconds.to_string());
    }
    Some(condition)
}

/// Writes down that there is no node for a pod, and where it is to go once there is.
pub(super) async fn write_refusal(
    client: &Client,
    pod: &PodInfo,
    (reason, message): (&str, &str),
    nomination: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    let mut status = serde_json::Map::new();
    if let Some(condition) = condition(pod, "PodScheduled", "False", reason, message, now) {
        status.insert("conditions".to_owned(), json!([condition]));
    }
    if let Some(node) = nomination
        && node != pod.nominated_node_name()
    {
        let node = if node.is_empty() { Value::Null } else { json!(node) };
        status.insert("nominatedNodeName".to_owned(), node);
    }
    if status.is_empty() {
        return Ok(());
    }
    pods(client, pod).patch_status(pod.name(), &Patch::Strategic(json!({"status": status}))).await.map(drop)
}

/// Writes down that a pod is not to go anywhere in particular any more.
pub(super) async fn clear_nomination(client: &Client, pod: &PodInfo) -> Result<(), Error> {
    if pod.nominated_node_name().is_empty() {
        return Ok(());
    }
    let patch = json!({"status": {"nominatedNodeName": null}});
    pods(client, pod).patch_status(pod.name(), &Patch::Strategic(patch)).await.map(drop)
}

/// Evicts a pod for the sake of another. That it is gone already is just as well.
pub(super) async fn evict(
    client: &Client,
    recorder: &EventRecorder,
    victim: &Arc<PodInfo>,
    preemptor: &PodInfo,
    node: &str,
    now: Timestamp,
) -> Result<(), Error> {
    let gone = |result: Result<(), Error>| match result {
        Err(error) if error.is_not_found() => Ok(true),
        other => other.map(|()| false),
    };
    let api = pods(client, victim);
    let message = format!("{}: preempting to accommodate a higher priority pod", preemptor.scheduler_name());
    if let Some(condition) = condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", &message, now) {
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        if gone(api.patch_status(victim.name(), &patch).await.map(drop))? {
            return Ok(());
        }
    }
    if gone(api.delete(victim.name(), &DeleteOptions::default()).await)? {
        return Ok(());
    }
    let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
    let related = reference(preemptor);
    recorder.eventf(&reference(victim), Some(&related), EventType::Normal, "Preempted", "Preempting", note);
    Ok(())
}
