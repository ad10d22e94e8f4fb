//! Jobs and other controllers of pods.

use capstan_api::{Time, Value};

use super::view::{View, cell};

/// How a job stands.
pub(super) fn job_status(job: View<'_>, _now: Time) -> String {
    let holds = |condition| job.holds("status.conditions", condition);
    let done = ["Complete", "Failed"].into_iter().find(|condition| holds(condition));
    let going = ["Suspended", "FailureTarget", "SuccessCriteriaMet"];
    let status = done
        .or_else(|| job.deleted().then_some("Terminating"))
        .or_else(|| going.into_iter().find(|condition| holds(condition)));
    status.unwrap_or("Running").to_owned()
}

/// How many of a job's pods have succeeded.
pub(super) fn completions(job: View<'_>, _now: Time) -> String {
    let succeeded = job.int("status.succeeded");
    match (job.get("spec.completions").and_then(Value::as_i64), job.int("spec.parallelism")) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism @ 2..) => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// How long a job has run.
pub(super) fn job_duration(job: View<'_>, now: Time) -> String {
    if !job.has("status.startTime") {
        return String::new();
    }
    let end = if job.has("status.completionTime") { job.time("status.completionTime") } else { now };
    end.since(job.time("status.startTime")).human()
}

/// Whether a job is suspended.
pub(super) fn suspended(job: View<'_>, _now: Time) -> String {
    match job.get("spec.suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
    .to_owned()
}

/// When a job was last scheduled.
pub(super) fn last_schedule(job: View<'_>, now: Time) -> String {
    const PATH: &str = "status.lastScheduleTime";
    if job.has(PATH) { job.since(PATH, now) } else { "<none>".to_owned() }
}

/// The selector of a deployment.
pub(super) fn selector(deployment: View<'_>, _now: Time) -> String {
    let selector = deployment.selector("spec.selector").to_selector();
    selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string())
}

/// What controls a revision.
pub(super) fn controller(revision: View<'_>, _now: Time) -> String {
    let Some(owner) = revision.items("metadata.ownerReferences").find(|owner| owner.flag("controller")) else {
        return "<none>".to_owned();
    };
    let (kind, name) = (owner.text("kind").to_lowercase(), owner.text("name"));
    match owner.text("apiVersion").split_once('/') {
        Some((group, _)) if !group.is_empty() => format!("{kind}.{}/{name}", group.to_lowercase()),
        _ if kind.is_empty() => name.to_owned(),
        _ => format!("{kind}/{name}"),
    }
}

/// How many pods must stay, and how many may go.
pub(super) fn budget(budget: View<'_>, _now: Time) -> Vec<Value> {
    let amount = |path| match budget.get(path) {
        Some(Value::Int(number)) => number.to_string(),
        Some(Value::String(text)) => text.to_string(),
        _ => "N/A".to_owned(),
    };
    vec![cell(amount("spec.minAvailable")), cell(amount("spec.maxUnavailable"))]
}
