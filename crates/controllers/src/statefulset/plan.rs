//! What is to be done about the pods of a StatefulSet, decided from its present state alone.

use capstan_clock::Timestamp;
use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus},
    core::v1::PodTemplateSpec,
};

use super::pods::{has_identity, has_storage, is_in_range, new_pod, ordinal, revision, start};
use crate::{
    percent::scaled,
    pod::{Pod, WholePod},
    pods::{count, is_available, is_deleted, is_ready, is_terminal, nonzero, phase},
};

/// A revision: its name, and the template that it has.
pub(super) struct Revision<'a> {
    pub(super) name: &'a str,
    pub(super) template: &'a PodTemplateSpec,
}

/// One thing to do.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// Make a pod, and its claims before.
    Create(Box<WholePod>),
    /// See that the claims of a pod that waits for them are there.
    Claims(Box<Pod>),
    /// Give a pod the labels and the volumes of its number back, as far as it lacks them, and their claims before.
    Update {
        pod: Box<Pod>,
        identity: bool,
        storage: bool,
    },
    /// See that the claims of a pod belong to whom they must.
    Retention(Box<Pod>),
    Delete(Box<Pod>),
}

/// What is to be done, in this order, and what the status says until then.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) status: StatefulSetStatus,
}

fn is_unavailable(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    !is_available(pod, min_ready_seconds, now) || is_deleted(pod)
}

fn is_running_and_ready(pod: &Pod) -> bool {
    phase(pod) == "Running" && is_ready(pod)
}

/// Counts.
fn status(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    pods: &[&Pod],
    names: (&str, &str),
    collisions: i32,
    now: Timestamp,
) -> StatefulSetStatus {
    let how_many = |counts: &dyn Fn(&Pod) -> bool| count(pods.iter().filter(|pod| counts(pod)).count());
    let min_ready = spec.min_ready_seconds.unwrap_or_default();
    let of = |name: &str| how_many(&|pod| !phase(pod).is_empty() && !is_deleted(pod) && revision(pod) == name);
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: how_many(&|pod| !phase(pod).is_empty()),
        ready_replicas: nonzero(how_many(&is_running_and_ready)),
        available_replicas: Some(how_many(&|pod| is_running_and_ready(pod) && is_available(pod, min_ready, now))),
        current_replicas: nonzero(of(names.0)),
        updated_replicas: nonzero(of(names.1)),
        current_revision: nonzero(names.0.to_owned()),
        update_revision: nonzero(names.1.to_owned()),
        collision_count: Some(collisions),
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    };
    let wanted = spec.replicas.unwrap_or(1);
    let rolling = spec.update_strategy.as_ref().and_then(|s| s.type_.as_deref()) != Some("OnDelete");
    let all = |count: Option<i32>| count.unwrap_or_default() == wanted;
    if rolling && all(status.updated_replicas) && all(status.ready_replicas) && status.replicas == wanted {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}

/// Decides. `is_stale` says whether a claim of a pod that shall be made is about to go with one that was there before.
pub(super) fn plan(
    set: &StatefulSet,
    pods: &[&Pod],
    [current, update]: [&Revision<'_>; 2],
    is_stale: impl Fn(&WholePod) -> bool,
    collisions: i32,
    now: Timestamp,
) -> Plan {
    let spec = set.spec.clone().unwrap_or_default();
    let status = status(set, &spec, pods, (current.name, update.name), collisions, now);
    let mut plan = Plan { steps: Vec::new(), status };
    if set.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    let burst = spec.pod_management_policy.as_deref() == Some("Parallel");
    let min_ready = spec.min_ready_seconds.unwrap_or_default();
    let (first, wanted) = (start(&spec), spec.replicas.unwrap_or(1));
    let at = |number: i32| pods.iter().copied().find(|pod| ordinal(set, *pod) == Some(number));
    let mut condemned: Vec<(i32, &Pod)> = pods
        .iter()
        .filter_map(|pod| Some((ordinal(set, *pod)?, *pod)))
        .filter(|(number, _)| !is_in_range(&spec, *number))
        .collect();
    condemned.sort_by_key(|(number, _)| std::cmp::Reverse(*number));

    let mut waits = false;
    for number in first..first + wanted {
        match at(number) {
            None => {
                let pod = versioned(set, &spec, current, update, number);
                if !is_stale(&pod) {
                    plan.steps.push(Step::Create(Box::new(pod)));
                }
                waits |= !burst;
            }
            Some(pod) if is_terminal(pod) => {
                if !is_deleted(pod) {
                    plan.steps.push(Step::Delete(Box::new(pod.clone())));
                }
                waits |= !burst;
            }
            Some(pod) => {
                if phase(pod) == "Pending" {
                    plan.steps.push(Step::Claims(Box::new(pod.clone())));
                }
                waits |= !burst && (!is_running_and_ready(pod) || is_unavailable(pod, min_ready, now));
                if !waits {
                    let (identity, storage) = (has_identity(pod), has_storage(set, pod, number));
                    if !(identity && storage) {
                        let pod = Box::new(pod.clone());
                        plan.steps.push(Step::Update { pod, identity: !identity, storage: !storage });
                    }
                    plan.steps.push(Step::Retention(Box::new(pod.clone())));
                }
            }
        }
        if waits {
            return plan;
        }
    }
    plan.steps.extend(condemned.iter().map(|(_, pod)| Step::Retention(Box::new((*pod).clone()))));
    remove_condemned(&mut plan, &condemned, (first..first + wanted).filter_map(at).collect(), burst, min_ready, now);
    let acts = |step: &Step| matches!(step, Step::Create(_) | Step::Delete(_));
    if !plan.steps.iter().any(acts) && (burst || condemned.is_empty()) {
        let replicas: Vec<&Pod> = (first..first + wanted).filter_map(at).collect();
        replace_old(&mut plan, &spec, &replicas, update.name, now);
    }
    plan
}

/// Takes those that are too many, the last first; one at a time unless they go all at once.
fn remove_condemned(
    plan: &mut Plan,
    condemned: &[(i32, &Pod)],
    replicas: Vec<&Pod>,
    burst: bool,
    min_ready: i32,
    now: Timestamp,
) {
    let all = replicas.into_iter().chain(condemned.iter().rev().map(|(_, pod)| *pod));
    let mut unavailable = all.filter(|pod| is_unavailable(pod, min_ready, now));
    let first_unavailable = unavailable.next().and_then(|pod| pod.metadata.name.clone());
    for (_, pod) in condemned {
        let healthy = is_running_and_ready(pod) && is_available(pod, min_ready, now);
        let may_go = healthy || pod.metadata.name == first_unavailable;
        if !is_deleted(pod) && (burst || may_go) {
            plan.steps.push(Step::Delete(Box::new((*pod).clone())));
        }
        if !burst {
            return;
        }
    }
}

/// Deletes pods of old revisions, the last first: one, after those behind it are new and available, or as many as may
/// be unavailable, if the set says how many that are.
fn replace_old(plan: &mut Plan, spec: &StatefulSetSpec, replicas: &[&Pod], update: &str, now: Timestamp) {
    let strategy = spec.update_strategy.as_ref();
    if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
        return;
    }
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let partition = rolling.and_then(|rolling| rolling.partition).unwrap_or_default();
    let partition = usize::try_from(partition).unwrap_or_default();
    let is_unavailable = |pod: &Pod| is_unavailable(pod, spec.min_ready_seconds.unwrap_or_default(), now);
    let is_old = |pod: &Pod| revision(pod) != update && !is_deleted(pod);
    let room = match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
        // What is old may be what is broken, so whether it is available does not count.
        None => {
            let mut behind = replicas.iter().skip(partition).rev();
            usize::from(behind.find(|pod| is_old(pod) || is_unavailable(pod)).is_some_and(|pod| is_old(pod)))
        }
        Some(max) => {
            let max = scaled(Some(max), spec.replicas.unwrap_or(1), false).max(1);
            let unavailable = count(replicas.iter().filter(|pod| is_unavailable(pod)).count());
            usize::try_from(max - unavailable).unwrap_or_default()
        }
    };
    let old = replicas.iter().skip(partition).rev().filter(|pod| is_old(pod));
    plan.steps.extend(old.take(room).map(|pod| Step::Delete(Box::new((*pod).clone()))));
}

/// A new pod: of the old revision if its number is below the partition, or as long as the update has not come to it.
fn versioned(
    set: &StatefulSet,
    spec: &StatefulSetSpec,
    current: &Revision<'_>,
    update: &Revision<'_>,
    number: i32,
) -> WholePod {
    let strategy = spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let on_delete = strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete");
    let kept = set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default();
    let below = match rolling {
        Some(rolling) => rolling.partition.unwrap_or_default(),
        None if on_delete => 0,
        None => kept,
    };
    let of = if number < start(spec) + below { current } else { update };
    new_pod(set, of.template, of.name, number)
}
