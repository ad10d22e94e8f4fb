//! One look at a Job, decided from its present state alone, in the order in which a driver carries it out:
//! [`Sync::new`], [`Sync::manage`], [`Sync::managed`], [`Sync::track`], [`Sync::counted`], [`Sync::finish`].
//!
//! Pods are counted so that none is lost and none counted twice, whatever happens in between: a pod that has ended
//! keeps
//! a finalizer; its uid is written to the status first, then the finalizer is removed, then the uid becomes a number.

mod tracking;

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use capstan_clock::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};

use super::{
    backoff::{self, Record},
    indexes::Indexes,
    policy::{self, Failure},
    template::{INDEX_ANNOTATION, failure_counts},
};
use crate::{
    pod::Pod,
    pods::{self, count, is_active, is_ready, is_terminating, nonzero, phase, time},
};

/// What keeps a pod until it is counted.
pub(super) const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// How many pods are created or deleted at most before the cache is asked again.
const MAX_POD_CREATE_DELETE_PER_SYNC: usize = 500;

/// What there is to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) warning: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What is to be done about the pods.
#[derive(Debug, PartialEq)]
pub(super) enum Manage<'a> {
    Nothing,
    /// These go; without their finalizers if nobody shall count them.
    Delete {
        pods: Vec<&'a Pod>,
        uncounted: bool,
    },
    /// So many come, each for an index if the Job has such, in place of a pod that failed.
    Create(Vec<Option<(i32, Option<&'a Pod>)>>),
}

/// What became of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Managed {
    pub(super) created: i32,
    pub(super) deleted: i32,
    pub(super) deleted_ready: i32,
}

/// The indexes of an indexed Job.
struct Indexed<'a> {
    before: Indexes,
    succeeded: Indexes,
    failed: Option<Indexes>,
    /// The pods that failed last and whose indexes wait to be tried again.
    waiting: BTreeMap<i32, &'a Pod>,
}

/// One look at a Job.
pub(super) struct Sync<'a> {
    job: &'a Job,
    spec: &'a JobSpec,
    /// The status as it becomes.
    pub(super) status: JobStatus,
    pods: Vec<&'a Pod>,
    active: Vec<&'a Pod>,
    counts: (i32, i32, i32),
    succeeded: i32,
    finished: Option<JobCondition>,
    indexed: Option<Indexed<'a>>,
    with_finalizer: HashSet<String>,
    too_many: bool,
    flush: bool,
    now: Timestamp,
    /// The failures since the last success.
    pub(super) backoff: Record,
    /// When to look again.
    pub(super) again: Option<Duration>,
    /// What there is to tell.
    pub(super) tell: Vec<Told>,
}

/// Whether a pod still has to be counted.
pub(super) fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKING_FINALIZER)
}

/// The index that a pod is for.
pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    pod.metadata.annotation(INDEX_ANNOTATION)?.parse().ok().filter(|index| *index >= 0)
}

/// The condition of a kind, if it is true.
pub(super) fn find<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    let mut conditions = status.conditions.iter().flatten();
    conditions.find(|condition| condition.type_ == kind && condition.status == "True")
}

/// Whether a Job has ended, well or not.
pub(super) fn is_finished(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| find(status, "Complete").or(find(status, "Failed")).is_some())
}

fn condition(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: nonzero(reason.to_owned()),
        message: nonzero(message.to_owned()),
        last_probe_time: Some(time(now)),
        last_transition_time: Some(time(now)),
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

impl<'a> Sync<'a> {
    /// Looks at a Job that has not ended, and at its pods.
    pub(super) fn new(job: &'a Job, spec: &'a JobSpec, pods: Vec<&'a Pod>, before: Record, now: Timestamp) -> Self {
        let mut status = job.status.clone().unwrap_or_default();
        status.uncounted_terminated_pods.get_or_insert_default();
        if status.start_time.is_none() && !spec.suspend.unwrap_or_default() {
            status.start_time = Some(time(now));
        }
        let active: Vec<&Pod> = pods.iter().copied().filter(|pod| is_active(pod)).collect();
        let counts = (
            count(active.len()),
            count(active.iter().filter(|pod| is_ready(pod)).count()),
            count(pods.iter().filter(|pod| is_terminating(pod)).count()),
        );
        let with_finalizer = pods.iter().filter(|pod| has_finalizer(pod)).map(|pod| uid(pod).to_owned()).collect();
        let mut sync = Sync {
            job,
            spec,
            status,
            pods,
            active,
            counts,
            succeeded: 0,
            finished: None,
            indexed: None,
            with_finalizer,
            too_many: false,
            flush: false,
            now,
            backoff: before,
            again: None,
            tell: Vec::new(),
        };
        sync.count_and_judge(before);
        sync
    }

    fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or_default()
    }

    fn is_suspended(&self) -> bool {
        self.spec.suspend.unwrap_or_default()
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    /// Whether pods are replaced only once they have failed, not already when they are deleted.
    fn replaces_only_failed(&self) -> bool {
        self.spec.pod_failure_policy.is_some() || self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    fn is_failed(&self, pod: &Pod) -> bool {
        phase(pod) == "Failed" || (!self.replaces_only_failed() && is_terminating(pod))
    }

    fn verdict(&self, pod: &Pod) -> Failure {
        policy::failure(self.spec.pod_failure_policy.as_ref(), pod)
    }

    fn uncounted(&self, failed: bool) -> &[String] {
        let uncounted = self.status.uncounted_terminated_pods.as_ref();
        let list = uncounted.and_then(|all| if failed { all.failed.as_ref() } else { all.succeeded.as_ref() });
        list.map(Vec::as_slice).unwrap_or_default()
    }

    fn is_uncounted(&self, pod: &Pod, failed: bool) -> bool {
        self.uncounted(failed).iter().any(|known| known == uid(pod))
    }

    /// The index of a pod, if it is one that the Job has.
    fn valid_index(&self, pod: &Pod) -> Option<i32> {
        index_of(pod).filter(|index| *index < self.completions())
    }

    /// Pods that have ended since the last look.
    fn newly(&self, failed: bool) -> Vec<&'a Pod> {
        let new = |pod: &&&Pod| {
            let ended = if failed { self.is_failed(pod) } else { phase(pod) == "Succeeded" };
            let valid = !self.is_indexed() || self.valid_index(pod).is_some();
            ended && valid && has_finalizer(pod) && !self.is_uncounted(pod, failed)
        };
        self.pods.iter().filter(new).copied().collect()
    }

    fn failure_target(&mut self, reason: &str, message: &str) {
        self.finished = Some(condition("FailureTarget", "True", reason, message, self.now));
    }

    /// Counts what has ended, and says whether the Job has.
    fn count_and_judge(&mut self, before: Record) {
        let (new_succeeded, new_failed) = (self.newly(false), self.newly(true));
        self.backoff = before.with(&new_succeeded, &new_failed);
        self.succeeded =
            self.status.succeeded.unwrap_or_default() + count(new_succeeded.len()) + count(self.uncounted(false).len());
        let counted = new_failed.iter().filter(|pod| self.verdict(pod).counts()).count();
        let failed = self.status.failed.unwrap_or_default() + count(counted) + count(self.uncounted(true).len());
        if let Some(met) = find(&self.status, "SuccessCriteriaMet") {
            self.finished = Some(met.clone());
        } else if let Some(target) = find(&self.status, "FailureTarget") {
            let (reason, message) = (target.reason.as_deref(), target.message.as_deref());
            let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
            self.finished = Some(condition("Failed", "True", reason, message, self.now));
        } else if let Some(reason) =
            self.pods.iter().filter(|pod| self.is_failed(pod)).find_map(|pod| match self.verdict(pod) {
                Failure::FailJob(reason) => Some(reason),
                _ => None,
            })
        {
            self.failure_target("PodFailurePolicy", &reason);
        } else if failed > self.spec.backoff_limit.unwrap_or(6) || self.is_past_restarts() {
            self.failure_target("BackoffLimitExceeded", "Job has reached the specified backoff limit");
        } else if let Some(seconds) = self.spec.active_deadline_seconds.filter(|_| !self.is_suspended()) {
            let start = self.status.start_time.as_ref().map_or(self.now, |time| time.0);
            match start.checked_add(Duration::from_secs(seconds.unsigned_abs())).map(|end| pods::until(end, self.now)) {
                Ok(None) => self.failure_target("DeadlineExceeded", "Job was active longer than specified deadline"),
                Ok(left) => self.again = left,
                Err(_) => {}
            }
        }
        if self.is_indexed() {
            self.judge_indexes();
        }
    }

    /// Whether containers of pods that restart them have been restarted too often.
    fn is_past_restarts(&self) -> bool {
        let policy = self.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        if policy != Some("OnFailure") {
            return false;
        }
        let alive = self.pods.iter().filter(|pod| matches!(phase(pod), "Running" | "Pending"));
        let containers = alive.filter_map(|pod| pod.status.as_ref()).flat_map(|status| {
            status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
        });
        let restarts: i32 = containers.map(|container| container.restart_count).sum();
        match self.spec.backoff_limit.unwrap_or(6) {
            0 => restarts > 0,
            limit => restarts >= limit,
        }
    }

    /// The indexes of pods that are not counted yet.
    fn indexes_of(&self, fits: impl Fn(&Pod) -> bool) -> Indexes {
        let pods = self.pods.iter().filter(|pod| has_finalizer(pod) && fits(pod));
        pods.filter_map(|pod| self.valid_index(pod)).collect()
    }

    fn judge_indexes(&mut self) {
        let completions = self.completions();
        let before = Indexes::parse(self.status.completed_indexes.as_deref().unwrap_or_default(), completions);
        let succeeded = before.union(&self.indexes_of(|pod| phase(pod) == "Succeeded"));
        let mut indexed = Indexed { before, succeeded, failed: None, waiting: BTreeMap::new() };
        self.succeeded = indexed.succeeded.total();
        if let Some(limit) = self.spec.backoff_limit_per_index {
            let known = Indexes::parse(self.status.failed_indexes.as_deref().unwrap_or_default(), completions);
            let failed = known.union(&self.indexes_of(|pod| {
                self.is_failed(pod)
                    && match self.verdict(pod) {
                        Failure::FailIndex => true,
                        verdict => verdict.counts() && failure_counts(pod).0 >= limit,
                    }
            }));
            indexed.waiting = self.waiting(&indexed.succeeded, &failed);
            let (total, max) = (failed.total(), self.spec.max_failed_indexes);
            if self.finished.is_some() {
            } else if max.is_some_and(|max| total > max) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                self.failure_target("MaxFailedIndexesExceeded", message);
            } else if total > 0 && total + indexed.succeeded.total() >= completions {
                self.failure_target("FailedIndexes", "Job has failed indexes");
            }
            indexed.failed = Some(failed);
        }
        let policy = self.spec.success_policy.as_ref();
        if self.finished.is_none()
            && let Some(message) = policy::success(policy, completions, &indexed.succeeded)
        {
            self.finished = Some(condition("SuccessCriteriaMet", "True", "SuccessPolicy", &message, self.now));
        }
        self.indexed = Some(indexed);
    }

    /// The last pod that failed of each index that neither runs nor is over. It is kept to know how often it failed.
    fn waiting(&self, succeeded: &Indexes, failed: &Indexes) -> BTreeMap<i32, &'a Pod> {
        let active: HashSet<i32> = self.active.iter().filter_map(|pod| index_of(pod)).collect();
        let mut waiting: BTreeMap<i32, &'a Pod> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| has_finalizer(pod) && self.is_failed(pod)) {
            let Some(index) = self.valid_index(pod) else { continue };
            if succeeded.contains(index) || failed.contains(index) || active.contains(&index) {
                continue;
            }
            let rank = |pod: &Pod| {
                let (counted, ignored) = failure_counts(pod);
                (counted + ignored, backoff::finished_at(pod))
            };
            let last = waiting.entry(index).or_insert(pod);
            if rank(last).0 <= rank(pod).0 && rank(last).1 <= rank(pod).1 {
                *last = pod;
            }
        }
        waiting
    }

    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
    }

    /// What is to be done about the pods.
    pub(super) fn manage(&mut self) -> Manage<'a> {
        if self.finished.is_some() {
            return Manage::Delete { pods: self.active.clone(), uncounted: false };
        }
        if self.job.metadata.deletion_timestamp.is_some() {
            return Manage::Nothing;
        }
        let (active, parallelism) = (count(self.active.len()), self.spec.parallelism.unwrap_or(1));
        let wanted = match self.spec.completions {
            _ if self.is_suspended() => 0,
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => (completions - self.succeeded).min(parallelism).max(0),
        };
        let surplus = self.surplus(usize::try_from(active - wanted).unwrap_or_default());
        if !surplus.is_empty() {
            return Manage::Delete { pods: surplus, uncounted: true };
        }
        let terminating = if self.replaces_only_failed() { self.counts.2 } else { 0 };
        let missing = usize::try_from(wanted - terminating - active).unwrap_or_default();
        let missing = missing.min(MAX_POD_CREATE_DELETE_PER_SYNC);
        if missing == 0 {
            return Manage::Nothing;
        }
        if self.spec.backoff_limit_per_index.is_none()
            && let Some(left) = self.backoff.remaining(self.now)
        {
            self.look_again(left);
            return Manage::Nothing;
        }
        self.create(missing)
    }

    fn create(&mut self, missing: usize) -> Manage<'a> {
        let Some(indexed) = &self.indexed else { return Manage::Create(vec![None; missing]) };
        let terminating = self.pods.iter().filter(|pod| self.replaces_only_failed() && is_terminating(pod));
        let taken = self.active.iter().chain(terminating).filter_map(|pod| index_of(pod));
        let mut taken = indexed.succeeded.with(taken);
        if let Some(failed) = &indexed.failed {
            taken = taken.union(failed);
        }
        let (mut now, mut later) = (Vec::new(), None);
        for index in taken.missing(self.completions(), missing) {
            let replaced = indexed.waiting.get(&index).copied();
            let left = replaced.and_then(|pod| {
                let (counted, ignored) = failure_counts(pod);
                let failures = u32::try_from(counted + ignored + 1).unwrap_or(u32::MAX);
                backoff::remaining(failures, backoff::finished_at(pod), self.now)
            });
            match left {
                None => now.push(Some((index, replaced))),
                Some(left) => later = Some(later.map_or(left, |later: Duration| later.min(left))),
            }
        }
        if let Some(later) = later {
            self.look_again(later);
        }
        if now.is_empty() { Manage::Nothing } else { Manage::Create(now) }
    }

    /// Pods that are too many: of an index that another one has, of none, and then enough of the rest.
    fn surplus(&self, at_least: usize) -> Vec<&'a Pod> {
        let mut by_index: BTreeMap<i32, Vec<&'a Pod>> = BTreeMap::new();
        let (mut surplus, mut left): (Vec<&'a Pod>, Vec<&'a Pod>) = (Vec::new(), Vec::new());
        if self.is_indexed() {
            for pod in &self.active {
                match self.valid_index(pod) {
                    Some(index) => by_index.entry(index).or_default().push(pod),
                    None => surplus.push(pod),
                }
            }
            for mut pods in by_index.into_values() {
                pods::rank::sort_active(&mut pods);
                left.extend(pods.pop());
                surplus.extend(pods);
            }
        } else {
            left.clone_from(&self.active);
        }
        if surplus.len() < at_least {
            pods::rank::sort_active(&mut left);
            left.truncate(at_least - surplus.len());
            surplus.append(&mut left);
        }
        if !self.is_suspended() {
            surplus.truncate(MAX_POD_CREATE_DELETE_PER_SYNC);
        }
        surplus
    }

    /// Takes note of what became of the pods, and says whether the Job is complete or suspended.
    pub(super) fn managed(&mut self, outcome: Managed) {
        let before = count(self.active.len());
        self.counts.0 += outcome.created - outcome.deleted;
        self.counts.1 -= outcome.deleted_ready;
        self.counts.2 += outcome.deleted;
        if self.finished.is_some() {
            if outcome.deleted != before {
                self.finished = None;
            }
        } else {
            let enough = self.spec.completions.map_or(self.succeeded > 0, |wanted| self.succeeded >= wanted);
            if enough && self.counts.0 == 0 {
                let message = "Reached expected number of succeeded pods";
                let met = condition("SuccessCriteriaMet", "True", "CompletionsReached", message, self.now);
                self.finished = Some(met);
            } else if self.job.metadata.deletion_timestamp.is_none() {
                self.note_suspension();
            }
        }
        let (active, ready, terminating) = (nonzero(self.counts.0), Some(self.counts.1), Some(self.counts.2));
        self.flush |= self.status.active.unwrap_or_default() != self.counts.0
            || self.status.ready != ready
            || self.status.terminating != terminating;
        (self.status.active, self.status.ready, self.status.terminating) = (active, ready, terminating);
    }

    fn note_suspension(&mut self) {
        let (verdict, reason, message) = if self.is_suspended() {
            ("True", "JobSuspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Job resumed")
        };
        let suspended = condition("Suspended", verdict, reason, message, self.now);
        let conditions = self.status.conditions.get_or_insert_default();
        match conditions.iter_mut().find(|condition| condition.type_ == "Suspended") {
            Some(known) if (&known.status, &known.reason) == (&suspended.status, &suspended.reason) => return,
            Some(known) => *known = suspended,
            None if self.spec.suspend.unwrap_or_default() => conditions.push(suspended),
            None => {
                self.status.conditions = self.status.conditions.take().filter(|conditions| !conditions.is_empty());
                return;
            }
        }
        let told = if self.is_suspended() { "Suspended" } else { "Resumed" };
        self.tell.push(Told { warning: false, reason: told.to_owned(), message: message.to_owned() });
        self.status.start_time = (!self.is_suspended()).then(|| time(self.now));
        self.flush = true;
    }
}
