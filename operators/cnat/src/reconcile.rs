//! The control loop: looks at an `At` and at its pod, and does the one next thing.

use std::sync::Arc;

use capstan_api::Resource as _;
use capstan_client::{Error, Key};
use capstan_runtime::{
    Action, EventType, ReconcileError,
    operator::{Context, Reconciler},
    set_controller_reference,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{At, AtStatus, Phase};

/// Where a plain command runs.
const IMAGE: &str = "busybox";

/// Runs what its time has come for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cnat;

impl Reconciler for Cnat {
    type Object = At;

    async fn reconcile(&self, key: Key, ctx: &Context) -> Result<Action, ReconcileError> {
        // Deleted meanwhile: its pod goes with it, because the pod says who owns it.
        let Some(at) = ctx.get::<At>(&key)? else { return Ok(Action::done()) };
        if at.metadata.deletion_timestamp.is_some() {
            return Ok(Action::done());
        }
        match at.phase() {
            Phase::Pending => pending(&at, ctx).await,
            Phase::Running => running(&at, ctx).await,
            Phase::Done => Ok(Action::done()),
        }
    }
}

/// Waits for its time.
async fn pending(at: &Arc<At>, ctx: &Context) -> Result<Action, ReconcileError> {
    let due = match at.spec.schedule.parse::<Timestamp>() {
        Ok(due) => due,
        // The schema lets no such thing in; a definition without the format would.
        Err(error) => {
            let message = format!("schedule {:?} is not a time: {error}", at.spec.schedule);
            if at.status.as_ref().and_then(|status| status.message.as_ref()) != Some(&message) {
                ctx.recorder().event(&**at, EventType::Warning, "InvalidSchedule", message.clone());
                let status = AtStatus { message: Some(message), ..AtStatus::default() };
                set_status(at, status, ctx).await?;
            }
            return Ok(Action::done());
        }
    };
    if at.status.is_none() {
        // That it is known is said first, also when it is due at once: whoever watches sees every phase.
        set_status(at, AtStatus::default(), ctx).await?;
        ctx.event(&**at, "Scheduled", format!("due at {due}"));
        return Ok(Action::done());
    }
    if ctx.now() < due {
        return Ok(Action::requeue_at(due));
    }
    set_status(at, AtStatus { phase: Phase::Running, ..AtStatus::default() }, ctx).await?;
    ctx.event(&**at, "Due", "its time has come");
    Ok(Action::done())
}

/// Sees to it that its pod has run once.
async fn running(at: &Arc<At>, ctx: &Context) -> Result<Action, ReconcileError> {
    let name = format!("{}-pod", at.name());
    // The cache may lag behind what this loop has written, also before it was started: ask the server itself. The name
    // says for sure whether the pod is there, so there is never a second one.
    let Some(pod) = ctx.api::<Pod>(at.namespace()).get_opt(&name).await? else {
        return match at.status.as_ref().and_then(|status| status.pod.as_ref()) {
            None => start(at, &name, ctx).await,
            // It was there and somebody took it away. It may have run: it does not run again.
            Some(_) => end(at, &name, "its pod was deleted before it ended", EventType::Warning, ctx).await,
        };
    };
    if !pod.is_controlled_by(&**at) {
        let message = format!("pod {name:?} is there already and belongs to somebody else");
        return blocked(at, message, ctx).await;
    }
    let status = at.status.clone().unwrap_or_default();
    if status.pod.is_none() || status.message.is_some() {
        set_status(at, AtStatus { pod: Some(name), message: None, ..status }, ctx).await?;
        return Ok(Action::done());
    }
    match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Succeeded") => end(at, &name, "its pod has succeeded", EventType::Normal, ctx).await,
        Some("Failed") => end(at, &name, "its pod has failed", EventType::Warning, ctx).await,
        _ => Ok(Action::done()),
    }
}

async fn start(at: &Arc<At>, name: &str, ctx: &Context) -> Result<Action, ReconcileError> {
    let mut pod = pod(at, name);
    set_controller_reference(&**at, &mut pod)?;
    match ctx.create(&pod).await {
        Ok(_) => ctx.event(&**at, "Started", format!("created pod {name}")),
        // An answer was lost: it is there, and the next look finds it.
        Err(error) if error.is_already_exists() => {}
        Err(error) if error.is_invalid() || error.is_forbidden() => return blocked(at, error.to_string(), ctx).await,
        Err(error) => return Err(error.into()),
    }
    let status = at.status.clone().unwrap_or_default();
    set_status(at, AtStatus { pod: Some(name.to_owned()), message: None, ..status }, ctx).await?;
    Ok(Action::done())
}

/// It cannot run as things are. It is said once and tried again, slower and slower: quota may be given, names set free.
async fn blocked(at: &Arc<At>, message: String, ctx: &Context) -> Result<Action, ReconcileError> {
    let status = at.status.clone().unwrap_or_default();
    if status.message.as_ref() != Some(&message) {
        ctx.recorder().event(&**at, EventType::Warning, "FailedCreate", message.clone());
        set_status(at, AtStatus { message: Some(message.clone()), ..status }, ctx).await?;
    }
    Err(ReconcileError::Retry(message))
}

async fn end(at: &Arc<At>, pod: &str, how: &str, kind: EventType, ctx: &Context) -> Result<Action, ReconcileError> {
    let status = AtStatus { phase: Phase::Done, pod: Some(pod.to_owned()), message: Some(how.to_owned()) };
    set_status(at, status, ctx).await?;
    ctx.recorder().event(&**at, kind, "Done", how);
    Ok(Action::done())
}

/// Writes the status, unless somebody was quicker: then the change itself brings the key back.
async fn set_status(at: &Arc<At>, status: AtStatus, ctx: &Context) -> Result<(), Error> {
    let mut at = At::clone(at);
    at.status = Some(status);
    ctx.update_status(&at).await.map(drop)
}

fn pod(at: &At, name: &str) -> Pod {
    let shell = |command: &String| Container {
        name: "at".to_owned(),
        image: Some(IMAGE.to_owned()),
        command: Some(vec!["sh".to_owned(), "-c".to_owned(), command.clone()]),
        ..Container::default()
    };
    let containers = at.spec.containers.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: at.metadata.namespace.clone(),
            labels: Some([("app".to_owned(), at.name().to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: containers.into_iter().chain(at.spec.command.iter().map(shell)).collect(),
            restart_policy: Some("OnFailure".to_owned()),
            ..PodSpec::default()
        }),
        status: None,
    }
}
