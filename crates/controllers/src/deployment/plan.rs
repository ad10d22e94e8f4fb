//! What is to be written for a Deployment, decided from its present state alone.

use std::{cmp::Reverse, time::Duration};

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    revision::{self, REVISION, TEMPLATE_HASH},
    sizes::{
        self, actual, available, is_rolling, is_saturated, max_surge, max_unavailable, new_replicas, replicas, wanted,
    },
    status::{self, PROGRESSING, condition, reason},
};
use crate::{
    controller_ref::{reference_to, selects_all},
    hash::template_hash,
    pod::Pod,
    pods::{is_terminal, template_labels},
};

/// The longest name.
const MAX_NAME: usize = 253;

/// An Event that is told when the write it belongs to has succeeded.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Told {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

fn normal(reason: &'static str, message: String) -> Told {
    Told { warning: false, reason, message }
}

fn warning(reason: &'static str, message: impl Into<String>) -> Told {
    Told { warning: true, reason, message: message.into() }
}

/// What is to be written, in this order.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// Told whatever becomes of the rest.
    pub(super) tell: Vec<Told>,
    /// The ReplicaSet of a new template.
    pub(super) create: Option<(ReplicaSet, Option<Told>)>,
    /// ReplicaSets that change.
    pub(super) update: Vec<(ReplicaSet, Option<Told>)>,
    /// ReplicaSets that nobody goes back to.
    pub(super) delete: Vec<String>,
    /// The Deployment itself, when it goes back to a revision.
    pub(super) deployment: Option<(Deployment, Option<Told>)>,
    /// The Deployment with its status, and with the number of its revision.
    pub(super) status: Option<Deployment>,
    /// When to look again although nothing changes.
    pub(super) again: Option<Duration>,
}

/// The Deployment, its ReplicaSets as they shall be, and as they are.
struct Rollout<'a> {
    deployment: Deployment,
    newest: Option<ReplicaSet>,
    old: Vec<ReplicaSet>,
    known: &'a [ReplicaSet],
    now: Timestamp,
    plan: Plan,
}

fn created(set: &ReplicaSet) -> (Option<Timestamp>, &str) {
    let at = set.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (at, set.metadata.name.as_deref().unwrap_or_default())
}

fn name(set: &ReplicaSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

/// Decides. `sets` are the ReplicaSets of the Deployment, `has_old_pods` says whether others than the pods of the
/// newest
/// still run, which counts when pods are not to run side by side.
pub(super) fn plan(
    deployment: &Deployment,
    sets: &[ReplicaSet],
    pods: impl Fn(&ReplicaSet) -> Vec<Pod>,
    now: Timestamp,
) -> Plan {
    let spec = deployment.spec.clone().unwrap_or_default();
    let mut rollout = Rollout {
        deployment: deployment.clone(),
        newest: None,
        old: Vec::new(),
        known: sets,
        now,
        plan: Plan::default(),
    };
    if selects_all(&spec.selector) {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        rollout.plan.tell.push(warning("SelectingAll", message));
        let status = rollout.deployment.status.get_or_insert_default();
        if status.observed_generation.unwrap_or_default() < deployment.metadata.generation.unwrap_or_default() {
            status.observed_generation = deployment.metadata.generation;
            rollout.plan.status = Some(rollout.deployment);
        }
        return rollout.plan;
    }
    rollout.sort(sets);
    let paused = spec.paused.unwrap_or_default();
    if deployment.metadata.deletion_timestamp.is_some() {
        rollout.sync_revision(false);
        return rollout.finish(deployment, false);
    }
    rollout.check_paused(paused);
    if !paused && let Some(number) = revision::rollback_to(deployment) {
        rollout.sync_revision(true);
        return rollout.roll_back(number);
    }
    rollout.sync_revision(false);
    if paused || rollout.is_scaling_event() {
        rollout.scale();
        if paused {
            rollout.clean_up();
        }
        return rollout.finish(deployment, false);
    }
    if is_rolling(deployment) {
        rollout.roll();
    } else {
        rollout.recreate(pods);
    }
    rollout.finish(deployment, true)
}

impl Rollout<'_> {
    /// Tells the ReplicaSet of the present template, the oldest if there are several, from the rest.
    fn sort(&mut self, sets: &[ReplicaSet]) {
        let mut sets = sets.to_vec();
        sets.sort_by(|a, b| created(a).cmp(&created(b)));
        let template = self.deployment.spec.clone().unwrap_or_default().template;
        let fits = |set: &ReplicaSet| {
            revision::template(set).is_some_and(|known| revision::equal_ignoring_hash(known, &template))
        };
        self.newest = sets.iter().position(fits).map(|at| sets.remove(at));
        self.old = sets;
    }

    fn status(&mut self) -> &mut DeploymentStatus {
        self.deployment.status.get_or_insert_default()
    }

    fn set_condition(&mut self, verdict: &str, reason: &str, message: impl Into<String>) {
        let condition = condition(PROGRESSING, verdict, reason, message, self.now);
        status::set(self.status(), condition);
    }

    fn has_deadline(&self) -> bool {
        status::progress_deadline(&self.deployment).is_some()
    }

    fn progressing_reason(&mut self) -> Option<String> {
        status::find(self.status(), PROGRESSING)?.reason.clone()
    }

    /// A pause is no progress and no standing still.
    fn check_paused(&mut self, paused: bool) {
        let current = self.progressing_reason();
        if !self.has_deadline() || current.as_deref() == Some(reason::TIMED_OUT) {
            return;
        }
        let known = current.as_deref() == Some(reason::PAUSED);
        if paused && !known {
            self.set_condition("Unknown", reason::PAUSED, "Deployment is paused");
        } else if !paused && known {
            self.set_condition("Unknown", reason::RESUMED, "Deployment is resumed");
        }
    }

    fn set_revision(&mut self, number: String) {
        self.deployment.metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), number);
    }

    /// Gives the newest ReplicaSet its number and annotations; makes it, if it shall be made.
    fn sync_revision(&mut self, create: bool) {
        let number = revision::max_revision(&self.old) + 1;
        let min_ready_seconds = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        if let Some(mut newest) = self.newest.take() {
            revision::set_new_annotations(&mut newest, &self.deployment, number, true);
            if let Some(spec) = &mut newest.spec {
                spec.min_ready_seconds = min_ready_seconds;
            }
            if let Some(number) = newest.metadata.annotations.as_ref().and_then(|all| all.get(REVISION).cloned()) {
                self.set_revision(number);
            }
            if self.has_deadline() && self.progressing_reason().is_none() {
                let message = format!("Found new replica set {:?}", name(&newest));
                self.set_condition("True", reason::FOUND_NEW_REPLICA_SET, message);
            }
            self.newest = Some(newest);
        } else if create {
            let newest = self.new_replica_set(number);
            let size = replicas(&newest);
            let told = (size > 0).then(|| {
                let message = format!("Scaled up replica set {} from 0 to {size}", name(&newest));
                normal("ScalingReplicaSet", message)
            });
            self.set_revision(number.to_string());
            if self.has_deadline() {
                let message = format!("Created new replica set {:?}", name(&newest));
                self.set_condition("True", reason::NEW_REPLICA_SET, message);
            }
            self.plan.create = Some((newest.clone(), told));
            self.newest = Some(newest);
        }
    }

    fn new_replica_set(&self, number: i64) -> ReplicaSet {
        let spec = self.deployment.spec.clone().unwrap_or_default();
        let collisions = self.deployment.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&spec.template, collisions);
        let label = (TEMPLATE_HASH.to_owned(), hash.clone());
        let mut template = spec.template;
        let mut labels = template_labels(&template).clone();
        labels.extend([label.clone()]);
        template.metadata.get_or_insert_default().labels = Some(labels.clone());
        let mut selector = spec.selector;
        selector.match_labels.get_or_insert_default().extend([label]);
        let prefix = self.deployment.metadata.name.as_deref().unwrap_or_default();
        let prefix = &prefix[..prefix.len().min(MAX_NAME - 1 - hash.len())];
        let size = new_replicas(&self.deployment, self.old.iter().map(replicas).sum(), 0);
        let mut set = ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}-{hash}")),
                namespace: self.deployment.metadata.namespace.clone(),
                owner_references: Some(vec![reference_to(&self.deployment)]),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(size),
                min_ready_seconds: spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        };
        revision::set_new_annotations(&mut set, &self.deployment, number, false);
        set
    }

    /// Whether the Deployment wants another number of pods than when it last looked at its ReplicaSets.
    fn is_scaling_event(&self) -> bool {
        let active = self.old.iter().chain(&self.newest).filter(|set| replicas(set) > 0);
        active
            .filter_map(|set| revision::count_annotation(set, revision::DESIRED_REPLICAS))
            .any(|desired| desired != wanted(&self.deployment))
    }

    /// Scales what is there, without a rollout: all of it if it is one ReplicaSet, else each in proportion.
    fn scale(&mut self) {
        let total = wanted(&self.deployment);
        let deployment = self.deployment.clone();
        let mut active: Vec<&mut ReplicaSet> = self.old.iter_mut().chain(&mut self.newest).collect();
        active.retain(|set| replicas(set) > 0);
        if active.len() > 1 {
            if is_saturated(&deployment, self.newest.as_ref()) {
                self.old.iter_mut().filter(|set| replicas(set) > 0).for_each(|set| resize(set, &deployment, 0));
            } else if is_rolling(&deployment) {
                let mut active: Vec<&mut ReplicaSet> = self.old.iter_mut().chain(&mut self.newest).collect();
                active.retain(|set| replicas(set) > 0);
                scale_in_proportion(active, &deployment);
            }
            return;
        }
        let only = match active.pop() {
            Some(only) => Some(only),
            None => self.newest.as_mut().or(self.old.first_mut()),
        };
        if let Some(only) = only.filter(|only| replicas(only) != total) {
            resize(only, &deployment, total);
        }
    }

    /// One step of a rolling update: up if there is room for new pods, else down if enough are available.
    fn roll(&mut self) {
        if self.newest.is_none() {
            self.sync_revision(true);
        }
        let deployment = self.deployment.clone();
        let all: i32 = self.old.iter().chain(&self.newest).map(replicas).sum();
        let Some(newest) = &mut self.newest else { return };
        let (size, total) = (replicas(newest), wanted(&deployment));
        let target = if size > total { total } else { new_replicas(&deployment, all, size) };
        if self.plan.create.is_none() && target != size {
            resize(newest, &deployment, target);
            return;
        }
        if !self.shrink_old(all, size - available(self.newest.as_ref().unwrap_or(&ReplicaSet::default())))
            && self.is_complete()
        {
            self.clean_up();
        }
    }

    /// Takes pods from old ReplicaSets, those that are not available first. Whether there was something to take.
    fn shrink_old(&mut self, all: i32, new_unavailable: i32) -> bool {
        let deployment = self.deployment.clone();
        let min_available = wanted(&deployment) - max_unavailable(&deployment);
        let room = all - min_available - new_unavailable;
        if room <= 0 || self.old.iter().map(replicas).sum::<i32>() == 0 {
            return false;
        }
        let mut taken = 0;
        for set in &mut self.old {
            let unhealthy = (replicas(set) - available(set)).clamp(0, room - taken);
            if unhealthy > 0 {
                resize(set, &deployment, replicas(set) - unhealthy);
                taken += unhealthy;
            }
        }
        let is_available: i32 = self.old.iter().filter(|set| replicas(set) > 0).map(available).sum();
        let is_available = is_available + self.newest.as_ref().map(available).unwrap_or_default();
        let mut spare = is_available - min_available;
        for set in &mut self.old {
            let fewer = replicas(set).min(spare);
            if fewer > 0 {
                resize(set, &deployment, replicas(set) - fewer);
                (spare, taken) = (spare - fewer, taken + fewer);
            }
        }
        taken > 0
    }

    /// Nothing new until all that is old is gone.
    fn recreate(&mut self, pods: impl Fn(&ReplicaSet) -> Vec<Pod>) {
        let deployment = self.deployment.clone();
        let mut active = self.old.iter_mut().filter(|set| replicas(set) > 0).peekable();
        if active.peek().is_some() {
            active.for_each(|set| resize(set, &deployment, 0));
            return;
        }
        let runs = |set: &ReplicaSet| actual(set) > 0 || pods(set).iter().any(|pod| !is_terminal(pod));
        if self.old.iter().any(runs) {
            return;
        }
        if self.newest.is_none() {
            self.sync_revision(true);
        } else if let Some(newest) = self.newest.as_mut().filter(|set| replicas(set) != wanted(&deployment)) {
            resize(newest, &deployment, wanted(&deployment));
        }
        if self.is_complete() {
            self.clean_up();
        }
    }

    fn is_complete(&self) -> bool {
        self.deployment.status.as_ref().is_some_and(|status| status::is_complete(&self.deployment, status))
    }

    /// Deletes old ReplicaSets that are more than shall be kept, the oldest revisions first.
    fn clean_up(&mut self) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
        let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else { return };
        let mut sets: Vec<&ReplicaSet> =
            self.old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        sets.sort_by(|a, b| {
            revision::revision(a).cmp(&revision::revision(b)).then_with(|| created(a).cmp(&created(b)))
        });
        let surplus = sets.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        let is_idle = |set: &&&ReplicaSet| {
            let observed = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or_default();
            replicas(set) == 0 && actual(set) == 0 && set.metadata.generation.unwrap_or_default() <= observed
        };
        self.plan.delete = sets[..surplus].iter().filter(is_idle).map(|set| name(set).to_owned()).collect();
    }

    /// Goes back to a revision; 0 is the one before.
    fn roll_back(mut self, number: i64) -> Plan {
        let all = || self.old.iter().chain(&self.newest);
        let number = if number == 0 { revision::last_revision(all()) } else { number };
        let found = all().find(|set| revision::revision(set) == Some(number)).cloned();
        let mut told = None;
        let template = self.deployment.spec.clone().unwrap_or_default().template;
        let deployment_name = self.deployment.metadata.name.clone().unwrap_or_default();
        match found {
            _ if number == 0 => {
                self.plan.tell.push(warning("DeploymentRollbackRevisionNotFound", "Unable to find last revision."));
            }
            None => {
                let message = "Unable to find the revision to rollback to.";
                self.plan.tell.push(warning("DeploymentRollbackRevisionNotFound", message));
            }
            Some(set)
                if revision::template(&set).is_some_and(|known| revision::equal_ignoring_hash(known, &template)) =>
            {
                let message = format!(
                    "The rollback revision contains the same template as current deployment {deployment_name:?}"
                );
                self.plan.tell.push(warning("DeploymentRollbackTemplateUnchanged", message));
            }
            Some(set) => {
                revision::roll_back(&mut self.deployment, &set);
                let message = format!("Rolled back deployment {deployment_name:?} to revision {number}");
                told = Some(normal("DeploymentRollback", message));
            }
        }
        revision::clear_rollback(&mut self.deployment);
        self.plan.deployment = Some((self.deployment, told));
        self.plan
    }

    /// Turns what the ReplicaSets shall be into writes, and adds the status.
    fn finish(mut self, before: &Deployment, rolling_out: bool) -> Plan {
        let known = |set: &ReplicaSet| self.known.iter().find(|known| known.metadata.uid == set.metadata.uid);
        for set in self.old.iter().chain(self.newest.iter().filter(|_| self.plan.create.is_none())) {
            let Some(known) = known(set).filter(|known| *known != set) else { continue };
            let (from, to) = (replicas(known), replicas(set));
            let told = (from != to).then(|| {
                let direction = if from < to { "up" } else { "down" };
                let message = format!("Scaled {direction} replica set {} from {from} to {to}", name(set));
                normal("ScalingReplicaSet", message)
            });
            self.plan.update.push((set.clone(), told));
        }
        let status = if rolling_out { status::rollout } else { status::calculate };
        let status = status(&self.deployment, self.newest.as_ref(), &self.old, self.now);
        self.deployment.status = Some(status);
        if self.deployment == *before {
            let status = before.status.clone().unwrap_or_default();
            self.plan.again = if rolling_out { status::next_check(before, &status, self.now) } else { None };
        } else {
            self.plan.status = Some(self.deployment);
        }
        self.plan
    }
}

/// Gives a ReplicaSet another size, and notes on it what the Deployment wants.
fn resize(set: &mut ReplicaSet, deployment: &Deployment, size: i32) {
    if let Some(spec) = &mut set.spec {
        spec.replicas = Some(size);
    }
    revision::set_replicas_annotations(set, deployment);
}

/// Gives each ReplicaSet its share of what is to be added or taken away; the largest gets what is left.
fn scale_in_proportion(mut sets: Vec<&mut ReplicaSet>, deployment: &Deployment) {
    let total = wanted(deployment);
    let allowed = if total > 0 { total + max_surge(deployment) } else { 0 };
    let to_add = allowed - sets.iter().map(|set| replicas(set)).sum::<i32>();
    // Of those of one size the newer one grows first, and the older one shrinks first.
    if to_add > 0 {
        sets.sort_by(|a, b| replicas(b).cmp(&replicas(a)).then_with(|| Reverse(created(a)).cmp(&Reverse(created(b)))));
    } else {
        sets.sort_by(|a, b| replicas(b).cmp(&replicas(a)).then_with(|| created(a).cmp(&created(b))));
    }
    let mut added = 0;
    let mut targets: Vec<i32> = Vec::with_capacity(sets.len());
    for set in &sets {
        let share = sizes::proportion(set, deployment, to_add, added);
        targets.push(replicas(set) + share);
        added += share;
    }
    if let Some(first) = targets.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sets.into_iter().zip(targets).for_each(|(set, target)| resize(set, deployment, target));
}
