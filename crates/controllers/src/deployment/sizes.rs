//! How large the ReplicaSets of a Deployment may be.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::revision::{self, DESIRED_REPLICAS, MAX_REPLICAS};
use crate::percent::scaled;

/// How many pods a ReplicaSet shall have.
pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// How many pods of a ReplicaSet there are.
pub(super) fn actual(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map(|status| status.replicas).unwrap_or_default()
}

/// How many pods of a ReplicaSet are available.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default()
}

/// How many pods a Deployment shall have.
pub(super) fn wanted(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Whether pods are replaced a few at a time.
pub(super) fn is_rolling(deployment: &Deployment) -> bool {
    strategy(deployment) == "RollingUpdate"
}

/// How pods are replaced.
pub(super) fn strategy(deployment: &Deployment) -> &str {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate")
}

/// How many pods more than wanted there may be, and how many fewer. One of them must be possible.
fn fenceposts(deployment: &Deployment) -> (i32, i32) {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref());
    let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
    let total = wanted(deployment);
    match (scaled(surge, total, true), scaled(unavailable, total, false)) {
        (0, 0) => (0, 1),
        posts => posts,
    }
}

/// How many pods more than wanted there may be.
pub(super) fn max_surge(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { fenceposts(deployment).0 } else { 0 }
}

/// How many pods fewer than wanted there may be.
pub(super) fn max_unavailable(deployment: &Deployment) -> i32 {
    if is_rolling(deployment) { fenceposts(deployment).1.min(wanted(deployment)) } else { 0 }
}

/// How large the newest ReplicaSet may become, given what all of them, itself included, shall have.
pub(super) fn new_replicas(deployment: &Deployment, all: i32, newest: i32) -> i32 {
    let total = wanted(deployment);
    if !is_rolling(deployment) {
        return total;
    }
    // Only what was asked for counts here: a Deployment that may neither grow nor shrink does not grow.
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let surge = strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.max_surge.as_ref());
    let room = total + scaled(surge, total, true) - all;
    if room <= 0 { newest } else { newest + room.min(total - newest) }
}

/// Whether the newest ReplicaSet has all that the Deployment wants, and all of it available.
pub(super) fn is_saturated(deployment: &Deployment, newest: Option<&ReplicaSet>) -> bool {
    newest.is_some_and(|newest| {
        let total = wanted(deployment);
        let desired = newest.metadata.annotations.as_ref().and_then(|all| all.get(DESIRED_REPLICAS)?.parse().ok());
        replicas(newest) == total && desired == Some(total) && available(newest) == total
    })
}

/// How many pods a ReplicaSet gets, or loses, when a Deployment that is in the middle of a rollout is scaled:
/// of what is to be added, its share, and no more than is left of it.
#[expect(clippy::cast_possible_truncation, reason = "counts of pods are small")]
pub(super) fn proportion(set: &ReplicaSet, deployment: &Deployment, to_add: i32, added: i32) -> i32 {
    let size = replicas(set);
    if size == 0 || to_add == 0 || to_add == added {
        return 0;
    }
    let share = if wanted(deployment) == 0 {
        -size
    } else {
        let before = revision::count_annotation(set, MAX_REPLICAS).filter(|count| *count != 0);
        let before = before.unwrap_or_else(|| deployment.status.as_ref().and_then(|s| s.replicas).unwrap_or_default());
        if before == 0 {
            0
        } else {
            let after = f64::from(wanted(deployment) + max_surge(deployment));
            (f64::from(size) * after / f64::from(before)).round() as i32 - size
        }
    };
    if to_add > 0 { share.min(to_add - added) } else { share.max(to_add - added) }
}
