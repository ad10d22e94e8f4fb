//! What is to be written for a CronJob, decided from its present state alone.

use std::time::Duration;

use capstan_api::object::Object;
use capstan_clock::Timestamp;
use k8s_openapi::{
    api::{
        batch::v1::{CronJob, CronJobStatus, Job},
        core::v1::ObjectReference,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};

use super::schedule::{Schedule, time_zone};
use crate::{
    controller_ref::reference_to,
    pods::{time, until},
};

/// The time for which a Job was made.
const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// So long after its time a Job is made, in case clocks differ.
const NEXT_SCHEDULE_DELTA: Duration = Duration::from_millis(100);
/// More times than these were not missed by accident.
const MANY_MISSED: i64 = 100;

/// What there is to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// A Job to delete: its name and uid.
pub(super) type Doomed = (String, String);

/// What is to be written, in this order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) tell: Vec<Told>,
    /// Jobs that have to go before the next one may come.
    pub(super) replace: Vec<Doomed>,
    /// The Job whose time has come, and the time.
    pub(super) create: Option<(Timestamp, Box<Job>)>,
    /// What the status says while none of this is done.
    pub(super) status: CronJobStatus,
    /// When the next one is due.
    pub(super) again: Option<Duration>,
}

impl Plan {
    fn tell(&mut self, warning: bool, reason: &'static str, message: impl Into<String>) {
        self.tell.push(Told { warning, reason, message: message.into() });
    }

    fn is_active(&self, uid: &str) -> bool {
        self.status.active.iter().flatten().any(|job| job.uid.as_deref() == Some(uid))
    }
}

/// Takes a Job from the list of what runs.
pub(super) fn forget(status: &mut CronJobStatus, uid: &str) {
    let active = status.active.take().unwrap_or_default();
    let active: Vec<_> = active.into_iter().filter(|job| job.uid.as_deref() != Some(uid)).collect();
    status.active = Some(active).filter(|active| !active.is_empty());
}

/// How a Job has ended, if it has.
pub(super) fn ended(job: &Job) -> Option<&str> {
    let conditions = job.status.as_ref()?.conditions.iter().flatten();
    let mut ends = conditions.filter(|c| c.status == "True" && (c.type_ == "Complete" || c.type_ == "Failed"));
    ends.next().map(|condition| condition.type_.as_str())
}

/// The reference to a Job that is kept in the status.
pub(super) fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}

/// Decides. `status` is that of the CronJob without what was cleaned up, `jobs` are those that it controls.
pub(super) fn plan(cron: &CronJob, status: CronJobStatus, jobs: &[&Job], now: Timestamp) -> Plan {
    let mut plan = Plan { status, ..Plan::default() };
    let spec = &cron.spec;
    look_at_jobs(&mut plan, jobs);
    if cron.metadata.deletion_timestamp.is_some() || spec.suspend.unwrap_or_default() {
        return plan;
    }
    let zone = spec.time_zone.as_deref().unwrap_or_default();
    if let Err(error) = time_zone(zone) {
        plan.tell(true, "UnknownTimeZone", format!("invalid timeZone: {zone:?}: {error}"));
        return plan;
    }
    let text = if spec.schedule.contains("TZ") {
        let text = &spec.schedule;
        let message = format!(
            "CRON_TZ or TZ used in schedule {text:?} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        plan.tell(true, "UnsupportedSchedule", message);
        text.clone()
    } else if zone.is_empty() {
        spec.schedule.clone()
    } else {
        format!("TZ={zone} {}", spec.schedule)
    };
    match Schedule::parse(&text) {
        Ok(schedule) => start_if_due(&mut plan, cron, &schedule, now),
        Err(error) => {
            let message = format!("unparseable schedule: {:?} : {error}", spec.schedule);
            plan.tell(true, "UnparseableSchedule", message);
        }
    }
    plan
}

/// The time that a Job was made for; none if somebody else has made it.
fn scheduled(job: &Job) -> Option<Timestamp> {
    job.metadata.annotations.as_ref()?.get(SCHEDULED_TIMESTAMP)?.parse().ok()
}

/// The Jobs that have ended beyond those to keep.
pub(super) fn surplus(cron: &CronJob, jobs: &[&Job]) -> Vec<Doomed> {
    let mut surplus = oldest(cron, jobs, cron.spec.successful_jobs_history_limit, "Complete");
    surplus.extend(oldest(cron, jobs, cron.spec.failed_jobs_history_limit, "Failed"));
    surplus
}

/// The oldest of the Jobs that ended in one way, beyond those to keep.
fn oldest(cron: &CronJob, jobs: &[&Job], limit: Option<i32>, end: &str) -> Vec<Doomed> {
    let Some(limit) = limit else { return Vec::new() };
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.clone());
    // Whoever died between making a Job and writing down its time would make it again if it was gone.
    let is_known = |job: &Job| scheduled(job).is_none_or(|at| last >= Some(Time(at)));
    let mut jobs: Vec<&Job> = jobs.iter().copied().filter(|job| ended(job) == Some(end) && is_known(job)).collect();
    jobs.sort_by_key(|job| {
        let started = job.status.as_ref().and_then(|status| status.start_time.clone()).map(|time| time.0);
        (started.is_none(), started, job.metadata.name.clone())
    });
    let surplus = jobs.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
    jobs[..surplus].iter().map(|job| (job.identity().name.to_owned(), job.identity().uid.to_owned())).collect()
}

/// Brings the list of what runs up to date.
fn look_at_jobs(plan: &mut Plan, jobs: &[&Job]) {
    for job in jobs {
        let (name, uid) = (job.identity().name, job.identity().uid);
        match ended(job) {
            None if !plan.is_active(uid) => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                plan.tell(true, "UnexpectedJob", message);
            }
            None => {}
            Some(end) => {
                if plan.is_active(uid) {
                    forget(&mut plan.status, uid);
                    plan.tell(false, "SawCompletedJob", format!("Saw completed job: {name}, condition: {end}"));
                }
                let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
                if end == "Complete" && completed > plan.status.last_successful_time {
                    plan.status.last_successful_time = completed;
                }
                let at = scheduled(job).map(time);
                plan.status.last_schedule_time = at.max(plan.status.last_schedule_time.take());
            }
        }
    }
    for gone in plan.status.active.clone().unwrap_or_default() {
        let uid = gone.uid.as_deref().unwrap_or_default();
        if jobs.iter().all(|job| job.identity().uid != uid) {
            let name = gone.name.as_deref().unwrap_or_default();
            plan.tell(false, "MissingJob", format!("Active job went missing: {name}"));
            forget(&mut plan.status, uid);
        }
    }
}

/// The times of a schedule that have passed.
struct Missed {
    earliest: Timestamp,
    latest: Option<Timestamp>,
    /// About how many there are.
    count: i64,
}

/// The last time that has passed since the last one that was used, or since it is worth looking.
fn missed(cron: &CronJob, schedule: &Schedule, deadline: bool, now: Timestamp) -> Result<Missed, String> {
    let created = cron.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let last = cron.status.as_ref().and_then(|status| status.last_schedule_time.as_ref()).map(|time| time.0);
    let mut earliest = last.unwrap_or(created);
    let seconds = cron.spec.starting_deadline_seconds.filter(|_| deadline);
    if let Some(limit) = seconds.and_then(|s| now.checked_sub(Duration::from_secs(s.unsigned_abs())).ok()) {
        earliest = earliest.max(limit);
    }
    let never = || "time difference between two schedules is less than 1 second".to_owned();
    let first = schedule.next(earliest).ok_or_else(never)?;
    if now < first {
        return Ok(Missed { earliest, latest: None, count: 0 });
    }
    let Some(second) = schedule.next(first).filter(|second| *second <= now) else {
        return Ok(Missed { earliest, latest: Some(first), count: 0 });
    };
    let between = second.duration_since(first).as_secs();
    if between < 1 {
        return Err(never());
    }
    // From about where the last one must be; one by one would take long after a long pause.
    let count = now.duration_since(first).as_secs() / between + 1;
    let near = first.as_second().saturating_add((count - 2).saturating_mul(between));
    let (mut at, mut latest) = (Timestamp::from_second(near).map_err(|_| never())?, None);
    while let Some(next) = schedule.next(at).filter(|next| *next <= now) {
        (at, latest) = (next, Some(next));
    }
    Ok(Missed { earliest, latest, count })
}

/// How long until the next time.
fn next_in(cron: &CronJob, schedule: &Schedule, now: Timestamp) -> Option<Duration> {
    let from = match missed(cron, schedule, false, now) {
        Ok(Missed { latest: Some(latest), .. }) => latest,
        Ok(Missed { earliest, count: 0, .. }) => earliest,
        _ => now,
    };
    Some(until(schedule.next(from)?, now).unwrap_or_default() + NEXT_SCHEDULE_DELTA)
}

fn start_if_due(plan: &mut Plan, cron: &CronJob, schedule: &Schedule, now: Timestamp) {
    let spec = &cron.spec;
    let missed = match missed(cron, schedule, true, now) {
        Ok(missed) => missed,
        Err(error) => {
            plan.tell(true, "InvalidSchedule", format!("invalid schedule: {} : {error}", spec.schedule));
            return;
        }
    };
    plan.again = next_in(cron, schedule, now);
    let Some(due) = missed.latest else { return };
    if missed.count > MANY_MISSED {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.tell(true, "TooManyMissedTimes", message);
    }
    let deadline = spec.starting_deadline_seconds.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
    if deadline.is_some_and(|deadline| due.checked_add(deadline).is_ok_and(|end| end < now)) {
        let at = due.strftime("%a, %d %b %Y %H:%M:%S +0000");
        plan.tell(true, "MissSchedule", format!("Missed scheduled time to start a job: {at}"));
        return;
    }
    let job = job_for(cron, due);
    let runs = plan.status.active.iter().flatten().any(|active| active.name == job.metadata.name);
    if runs || plan.status.last_schedule_time == Some(Time(due)) {
        return;
    }
    let active = plan.status.active.clone().unwrap_or_default();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.tell(false, "JobAlreadyActive", message);
            return;
        }
        Some("Replace") => {
            let doomed = |job: ObjectReference| (job.name.unwrap_or_default(), job.uid.unwrap_or_default());
            plan.replace = active.into_iter().map(doomed).collect();
        }
        _ => {}
    }
    plan.create = Some((due, Box::new(job)));
}

/// The Job of a time. Its name says which, so that it is made once, however often that is tried.
fn job_for(cron: &CronJob, due: Timestamp) -> Job {
    let spec = cron.spec.clone();
    let meta = spec.job_template.metadata.unwrap_or_default();
    let zone = time_zone(spec.time_zone.as_deref().unwrap_or_default()).unwrap_or(k8s_openapi::jiff::tz::TimeZone::UTC);
    let stamp = due.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string().replace("+00:00", "Z");
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(SCHEDULED_TIMESTAMP.to_owned(), stamp);
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{}-{}", cron.identity().name, due.as_second() / 60)),
            namespace: cron.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![reference_to(cron)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec,
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a CronJob since two in the night, at three.
    fn told(spec: serde_json::Value) -> Vec<(&'static str, String)> {
        let mut text = serde_json::json!({"metadata": {"name": "tick", "creationTimestamp": "2026-01-01T02:00:00Z"},
            "spec": {"jobTemplate": {}}});
        text["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let cron: CronJob = serde_json::from_value(text).unwrap();
        let plan = plan(&cron, CronJobStatus::default(), &[], "2026-01-01T03:00:00Z".parse().unwrap());
        assert!(plan.create.is_none() && plan.again.is_none(), "nothing is done until it changes");
        plan.tell.into_iter().map(|told| (told.reason, told.message)).collect()
    }

    #[test]
    fn what_the_server_should_not_have_let_through() {
        let found = told(serde_json::json!({"schedule": "nonsense"}));
        let message = "unparseable schedule: \"nonsense\" : expected exactly 5 fields, found 1: [nonsense]";
        assert_eq!(found, [("UnparseableSchedule", message.to_owned())]);
        let found = told(serde_json::json!({"schedule": "@hourly", "timeZone": "Mars/Olympus"}));
        let message = "invalid timeZone: \"Mars/Olympus\": unknown time zone Mars/Olympus";
        assert_eq!(found, [("UnknownTimeZone", message.to_owned())]);
    }
}
