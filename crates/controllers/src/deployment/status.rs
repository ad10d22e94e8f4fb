//! What the status of a Deployment says, computed from its ReplicaSets.

use std::time::Duration;

use capstan_clock::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};

use super::sizes::{actual, available, max_unavailable, replicas, wanted};
use crate::pods::{nonzero, time, until};

pub(super) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Reasons of the condition `Progressing`.
pub(super) mod reason {
    pub(in super::super) const NEW_REPLICA_SET: &str = "NewReplicaSetCreated";
    pub(in super::super) const FOUND_NEW_REPLICA_SET: &str = "FoundNewReplicaSet";
    pub(in super::super) const REPLICA_SET_UPDATED: &str = "ReplicaSetUpdated";
    pub(in super::super) const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
    pub(in super::super) const FAILED_CREATE: &str = "ReplicaSetCreateError";
    pub(in super::super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";
    pub(in super::super) const PAUSED: &str = "DeploymentPaused";
    pub(in super::super) const RESUMED: &str = "DeploymentResumed";
}

/// A condition of this moment.
pub(super) fn condition(
    kind: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.into()),
        last_update_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

/// The condition of a kind.
pub(super) fn find<'a>(status: &'a DeploymentStatus, kind: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// Sets a condition, unless it says the same for the same reason already.
pub(super) fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    let current = find(status, &condition.type_);
    if let Some(current) = current.filter(|current| current.status == condition.status) {
        if current.reason == condition.reason {
            return;
        }
        condition.last_transition_time = current.last_transition_time.clone();
    }
    remove(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

fn remove(status: &mut DeploymentStatus, kind: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != kind);
    }
    status.conditions = status.conditions.take().filter(|conditions| !conditions.is_empty());
}

/// For how long a Deployment may go without progress; none if for ever.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<Duration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX)?;
    Some(Duration::from_secs(seconds.unsigned_abs().into()))
}

fn generation(deployment: &Deployment) -> i64 {
    deployment.metadata.generation.unwrap_or_default()
}

/// Counts, and whether enough pods are available.
pub(super) fn calculate(
    deployment: &Deployment,
    newest: Option<&ReplicaSet>,
    old: &[ReplicaSet],
    now: Timestamp,
) -> DeploymentStatus {
    let all = || old.iter().chain(newest);
    let is_available: i32 = all().map(available).sum();
    let total: i32 = all().map(replicas).sum();
    let ready = |set: &ReplicaSet| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let before = deployment.status.clone().unwrap_or_default();
    let mut status = DeploymentStatus {
        observed_generation: nonzero(generation(deployment)),
        replicas: nonzero(all().map(actual).sum()),
        updated_replicas: nonzero(newest.map(actual).unwrap_or_default()),
        ready_replicas: nonzero(all().map(ready).sum()),
        available_replicas: nonzero(is_available),
        unavailable_replicas: nonzero((total - is_available).max(0)),
        terminating_replicas: terminating(all()),
        collision_count: before.collision_count,
        conditions: before.conditions,
    };
    let (verdict, reason, message) = if is_available >= wanted(deployment) - max_unavailable(deployment) {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set(&mut status, condition(AVAILABLE, verdict, reason, message, now));
    status
}

/// How many pods are being deleted; none while a ReplicaSet that was looked at does not say.
fn terminating<'a>(all: impl Iterator<Item = &'a ReplicaSet>) -> Option<i32> {
    let of = |set: &ReplicaSet| {
        let status = set.status.as_ref();
        let unseen = status.and_then(|status| status.observed_generation).unwrap_or_default() == 0;
        status.and_then(|status| status.terminating_replicas).or(unseen.then_some(0))
    };
    all.map(of).sum()
}

/// Whether all pods are new ones and available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let total = wanted(deployment);
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|count| count.unwrap_or_default() == total)
        && status.observed_generation.unwrap_or_default() >= generation(deployment)
}

/// Whether there are more new pods, fewer old ones, or more ready or available ones than before.
fn is_progressing(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let updated = |status: &DeploymentStatus| status.updated_replicas.unwrap_or_default();
    let old = |status: &DeploymentStatus| status.replicas.unwrap_or_default() - updated(status);
    updated(after) > updated(before)
        || old(after) < old(before)
        || after.ready_replicas.unwrap_or_default() > before.ready_replicas.unwrap_or_default()
        || after.available_replicas.unwrap_or_default() > before.available_replicas.unwrap_or_default()
}

/// When the condition was last confirmed.
fn updated_at(condition: &DeploymentCondition) -> Timestamp {
    condition.last_update_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0)
}

fn has_timed_out(deadline: Duration, status: &DeploymentStatus, now: Timestamp) -> bool {
    find(status, PROGRESSING).is_some_and(|condition| match condition.reason.as_deref() {
        Some(reason::NEW_REPLICA_SET_AVAILABLE) => false,
        Some(reason::TIMED_OUT) => true,
        _ => updated_at(condition).checked_add(deadline).is_ok_and(|end| end < now),
    })
}

/// The status during a rollout: also whether it makes progress, and why ReplicaSets cannot make pods.
pub(super) fn rollout(
    deployment: &Deployment,
    newest: Option<&ReplicaSet>,
    old: &[ReplicaSet],
    now: Timestamp,
) -> DeploymentStatus {
    let mut status = calculate(deployment, newest, old, now);
    let before = deployment.status.clone().unwrap_or_default();
    let current = find(&before, PROGRESSING);
    let done = status.replicas == status.updated_replicas
        && current.is_some_and(|current| current.reason.as_deref() == Some(reason::NEW_REPLICA_SET_AVAILABLE));
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let subject = match newest {
        Some(set) => format!("ReplicaSet {:?}", set.metadata.name.as_deref().unwrap_or_default()),
        None => format!("Deployment {name:?}"),
    };
    let progress = |verdict, reason, words| condition(PROGRESSING, verdict, reason, format!("{subject} {words}"), now);
    match progress_deadline(deployment) {
        None => remove(&mut status, PROGRESSING),
        Some(_) if done => {}
        Some(_) if is_complete(deployment, &status) => {
            set(&mut status, progress("True", reason::NEW_REPLICA_SET_AVAILABLE, "has successfully progressed."));
        }
        Some(_) if is_progressing(&before, &status) => {
            let mut progress = progress("True", reason::REPLICA_SET_UPDATED, "is progressing.");
            // The time of the last update moves with each step, the time of the transition does not.
            if let Some(current) = current {
                if current.status == "True" {
                    progress.last_transition_time = current.last_transition_time.clone();
                }
                remove(&mut status, PROGRESSING);
            }
            set(&mut status, progress);
        }
        Some(deadline) if has_timed_out(deadline, &status, now) => {
            set(&mut status, progress("False", reason::TIMED_OUT, "has timed out progressing."));
        }
        Some(_) => {}
    }
    match replica_failure(newest, old) {
        Some(failure) => set(&mut status, failure),
        None => remove(&mut status, REPLICA_FAILURE),
    }
    status
}

/// Why ReplicaSets cannot make pods, the newest one first.
fn replica_failure(newest: Option<&ReplicaSet>, old: &[ReplicaSet]) -> Option<DeploymentCondition> {
    let conditions = |set: &ReplicaSet| set.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    let failures = newest.into_iter().chain(old).flat_map(conditions);
    failures.into_iter().find(|condition| condition.type_ == REPLICA_FAILURE).map(|condition| DeploymentCondition {
        type_: condition.type_,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
        last_update_time: condition.last_transition_time.clone(),
        last_transition_time: condition.last_transition_time,
    })
}

/// When to look whether a rollout that stands still has done so for too long.
pub(super) fn next_check(deployment: &Deployment, status: &DeploymentStatus, now: Timestamp) -> Option<Duration> {
    let deadline = progress_deadline(deployment)?;
    let condition = find(status, PROGRESSING)?;
    // Whoever had come to an end is not late, whatever became of its pods since.
    let over = [reason::TIMED_OUT, reason::NEW_REPLICA_SET_AVAILABLE].map(Some).contains(&condition.reason.as_deref());
    if over || is_complete(deployment, status) {
        return None;
    }
    let end = updated_at(condition).checked_add(deadline).ok()?;
    // One second more: times of conditions are in whole seconds.
    Some(until(end, now).unwrap_or_default() + Duration::from_secs(1))
}
