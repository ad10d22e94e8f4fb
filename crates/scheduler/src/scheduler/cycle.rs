//! One pod: the decision, and what follows from it.

use std::sync::Arc;

use capstan_clock::Moment;
use capstan_runtime::EventType;

use super::{Shared, Turn, api, preempt};
use crate::{
    cache::Slot,
    core::{Outcome, Search},
    event::{ActionType, ClusterEvent, EventObject, EventResource},
    metrics::Attempt,
    plugin::{Cycle, Permit, Point},
    pod_info::PodInfo,
    queue::QueuedPod,
    resource::is_served_by_devices,
    status::{Diagnosis, Status},
};

/// Why a pod has no node.
struct Refusal {
    reason: &'static str,
    message: String,
    nomination: Option<String>,
    unschedulable_plugins: Vec<&'static str>,
    pending_plugins: Vec<&'static str>,
}

impl Refusal {
    fn unschedulable(diagnosis: &Diagnosis, nomination: Option<String>) -> Self {
        Refusal {
            reason: "Unschedulable",
            message: diagnosis.to_string(),
            nomination,
            unschedulable_plugins: diagnosis.unschedulable_plugins.clone(),
            pending_plugins: diagnosis.pending_plugins.clone(),
        }
    }

    fn error(message: String) -> Self {
        Refusal {
            reason: "SchedulerError",
            message,
            nomination: Some(String::new()),
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
        }
    }

    /// A node that was chosen was refused after all.
    fn of_node(status: Status) -> Self {
        if !status.is_rejected() {
            return Refusal::error(status.message());
        }
        let mut diagnosis = Diagnosis { all_nodes: 1, ..Diagnosis::default() };
        diagnosis.blame(&status);
        diagnosis.statuses.push((Slot(0), Arc::new(status)));
        Refusal::unschedulable(&diagnosis, Some(String::new()))
    }
}

/// Looks at the next pod. When there is none, says when there may be one: at a time, or only when something happens.
pub(super) async fn step(shared: &Arc<Shared>) -> Option<Option<Moment>> {
    let permit = Arc::new(Arc::clone(&shared.in_flight).acquire_owned().await.ok()?);
    let started = shared.clock.monotonic();
    let (queued, at) = {
        let mut state = shared.lock();
        let due = state.queue.flush(started);
        let Some(queued) = state.queue.pop() else { return Some(due) };
        let skip = queued.pod.is_terminating() || state.core.cache.is_assumed(&queued.pod.uid);
        let at = shared.profile_at(&queued.pod).filter(|_| !skip);
        let Some(at) = at else {
            state.queue.done(&queued.pod.uid);
            return None;
        };
        (queued, at)
    };
    let profile = &shared.profiles[at];
    let outcome = if shared.extenders.is_empty() {
        shared.lock().core.schedule(profile, &queued.pod)
    } else {
        with_extenders(shared, at, &queued.pod).await
    };
    let took = shared.clock.monotonic().since(started);
    shared.lock().metrics.algorithm(took);
    match outcome {
        Outcome::Placed { slot, .. } => place(shared, at, queued, slot, started, permit),
        Outcome::Unschedulable { mut diagnosis, victims, others, mut nomination } => {
            let agreed = preempt::agreed(shared, &queued.pod, victims, others).await;
            let victims = agreed.unwrap_or_else(|problem| {
                diagnosis.post_filter = format!("preemption: {problem}");
                nomination = None;
                None
            });
            if profile.preemption().is_some() {
                shared.lock().metrics.preemption(victims.as_ref().map(|victims| victims.pods.len()));
            }
            let nomination = victims.as_ref().map(|victims| victims.node.clone()).or(nomination);
            let refusal = Refusal::unschedulable(&diagnosis, nomination);
            if let Some(victims) = victims {
                preempt::preempt(shared, at, &queued.pod, victims, Arc::clone(&permit));
            }
            refuse(shared, at, queued, refusal, started, Some(permit));
        }
        Outcome::NoNodes => {
            let mut refusal = Refusal::error("no nodes available to schedule pods".to_owned());
            refusal.reason = "Unschedulable";
            refuse(shared, at, queued, refusal, started, Some(permit));
        }
        Outcome::Gated(status) => put_aside(shared, queued, &status),
        Outcome::Failed(status) => {
            refuse(shared, at, queued, Refusal::error(status.message()), started, Some(permit));
        }
    }
    None
}

/// Keeps a pod until something happens that it waits for.
fn put_aside(shared: &Arc<Shared>, mut queued: QueuedPod, status: &Status) {
    let mut state = shared.lock();
    let Some(pod) = state.pending.get(&queued.pod.uid).cloned() else {
        return state.queue.done(&queued.pod.uid);
    };
    queued.pod = pod;
    state.queue.add_gated(queued, status);
}

/// Asks those outside this process too, without holding the lock meanwhile.
async fn with_extenders(shared: &Arc<Shared>, at: usize, pod: &Arc<PodInfo>) -> Outcome {
    let profile = &shared.profiles[at];
    let found = shared.lock().core.find(profile, pod);
    let mut search: Search = match found {
        Ok(search) => search,
        Err(outcome) => return outcome,
    };
    let nodes = |search: &Search| {
        let state = shared.lock();
        let all = search.feasible.iter().map(|slot| state.core.cache.node(*slot));
        all.filter(|node| node.present).map(|node| (node.slot, Arc::clone(&node.node))).collect::<Vec<_>>()
    };
    let interested: Vec<_> = shared.extenders.iter().filter(|extender| extender.is_interested(pod)).collect();
    for extender in &interested {
        let candidates = nodes(&search);
        if candidates.is_empty() {
            break;
        }
        match extender.filter(pod, &candidates, &shared.clock).await {
            Ok(answer) => {
                search.feasible = answer.feasible;
                if !answer.refused.is_empty() {
                    search.diagnosis.unschedulable_plugins.push("Extender");
                }
                search.diagnosis.statuses.extend(answer.refused);
            }
            Err(_) if extender.is_ignorable() => {}
            Err(error) => return Outcome::Failed(Status::error(error)),
        }
    }
    let candidates = nodes(&search);
    let mut extra = std::collections::HashMap::new();
    for extender in &interested {
        // One that does not answer has no say.
        for (slot, score) in extender.prioritize(pod, &candidates, &shared.clock).await.unwrap_or_default() {
            *extra.entry(slot).or_insert(0i64) += score;
        }
    }
    shared.lock().core.choose(profile, pod, search, |slot| extra.get(&slot).copied().unwrap_or_default())
}

/// Sets the node's place aside, and begins to bind the pod.
fn place(shared: &Arc<Shared>, at: usize, queued: QueuedPod, slot: Slot, started: Moment, permit: Turn) {
    let profile = &shared.profiles[at];
    let pod = Arc::clone(&queued.pod);
    let mut state = shared.lock();
    let node = state.core.cache.node(slot);
    let name = node.name().to_owned();
    let cycle = Cycle { pod: &pod, cache: &state.core.cache };
    let mut wait = None;
    let mut reserved = profile.at(Point::Reserve);
    let refused = reserved.find_map(|(plugin, _)| plugin.reserve(cycle, node).err().map(|s| s.by(plugin.name())));
    let refused = refused.or_else(|| {
        profile.at(Point::Permit).find_map(|(plugin, _)| match plugin.permit(cycle, node) {
            Permit::Allow => None,
            Permit::Wait(most) => {
                wait = wait.max(Some(most));
                None
            }
            Permit::Reject(status) => Some(status.by(plugin.name())),
        })
    });
    if let Some(status) = refused {
        profile.at(Point::Reserve).for_each(|(plugin, _)| plugin.unreserve(&pod, &name));
        drop(state);
        return refuse(shared, at, queued, Refusal::of_node(status), started, Some(permit));
    }
    state.core.cache.assume(&pod, slot);
    state.core.nominator.remove(&pod.uid);
    if wait.is_none() {
        state.queue.done(&pod.uid);
    }
    drop(state);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let (mut permit, until) = (Some(permit), wait.map(|most| started.plus(most)));
        let waiting = (until.is_some() || takes_long(&pod)).then(|| Arc::clone(&shared.waiting).try_acquire_owned());
        if let Some(Ok(_)) = waiting {
            permit = None;
        }
        let prepared = prepare(&shared, at, &pod, &name, until).await;
        if permit.is_none() {
            permit = Arc::clone(&shared.in_flight).acquire_owned().await.ok().map(Arc::new);
        }
        drop(waiting);
        let bound = match prepared {
            Ok(()) => bind(&shared, &pod, &name).await,
            Err(refusal) => Err(refusal),
        };
        let profile = &shared.profiles[at];
        match bound {
            Ok(()) => {
                let note = format!("Successfully assigned {}/{} to {name}", pod.namespace(), pod.name());
                let recorder = &shared.recorders[at];
                recorder.eventf(&api::reference(&pod), None, EventType::Normal, "Scheduled", "Binding", note);
                let mut state = shared.lock();
                state.queue.done(&pod.uid);
                let now = shared.clock.monotonic();
                let took = now.since(started);
                state.metrics.scheduled(queued.attempts, now.since(queued.initial));
                state.metrics.attempt(Attempt::Scheduled, &profile.scheduler_name, took);
                drop(state);
                profile.at(Point::Reserve).for_each(|(plugin, _)| plugin.forget(&pod));
                drop(permit);
            }
            Err(refusal) => {
                profile.at(Point::Reserve).for_each(|(plugin, _)| plugin.unreserve(&pod, &name));
                let mut state = shared.lock();
                if state.core.cache.forget(&pod.uid) {
                    let mut copy = (*pod.pod).clone();
                    copy.spec.get_or_insert_default().node_name = Some(name);
                    let event = ClusterEvent::new(EventResource::Pod, ActionType::DELETE);
                    let object = EventObject::Pod(Some(Arc::new(PodInfo::new(Arc::new(copy)))), None);
                    state.queue.notify(event, &object, shared.clock.monotonic(), |other| other.uid != pod.uid);
                }
                drop(state);
                refuse(&shared, at, queued, refusal, started, permit);
                shared.wake.notify_one();
            }
        }
        shared.wake.notify_one();
    });
}

/// How often it is asked again whether a pod that waits may go to its node.
const PERMIT_PERIOD: std::time::Duration = std::time::Duration::from_millis(100);

/// Whether others may have to do something before a pod can be bound.
fn takes_long(pod: &PodInfo) -> bool {
    pod.pod.spec.as_ref().is_some_and(|spec| spec.resource_claims.is_some())
        || pod.claims().next().is_some()
        || pod.requests.scalars.iter().any(|(name, amount)| *amount != 0 && is_served_by_devices(name))
}

/// Does what must be done before a pod is bound.
async fn prepare(
    shared: &Arc<Shared>,
    at: usize,
    pod: &Arc<PodInfo>,
    node: &str,
    wait_until: Option<Moment>,
) -> Result<(), Refusal> {
    let profile = &shared.profiles[at];
    if let Some(until) = wait_until {
        wait_for_permit(shared, at, pod, node, until).await?;
        shared.lock().queue.done(&pod.uid);
    }
    let context = shared.bind_context();
    for (plugin, _) in profile.at(Point::PreBind) {
        let done = plugin.pre_bind(&context, pod, node).await;
        done.map_err(|status| match status.is_rejected() {
            true => Refusal::of_node(status.by(plugin.name())),
            false => Refusal::error(format!("running PreBind plugin \"{}\": {status}", plugin.name())),
        })?;
    }
    Ok(())
}

async fn bind(shared: &Arc<Shared>, pod: &Arc<PodInfo>, node: &str) -> Result<(), Refusal> {
    let binder = shared.extenders.iter().find(|extender| extender.is_binder() && extender.is_interested(pod));
    if let Some(extender) = binder {
        match extender.bind(pod, node, &shared.clock).await {
            Err(_) if extender.is_ignorable() => {}
            other => return other.map_err(Refusal::error),
        }
    }
    let mut bound = api::bind(&shared.client, pod, node).await;
    // When the answer got lost the pod may have its node. Its place must not be given away then.
    if let Err(error) = &bound
        && (error.status().is_none() || error.is_retriable() || error.is_conflict())
        && api::is_bound(&shared.client, pod, node, &shared.clock).await
    {
        bound = Ok(());
    }
    bound.map_err(|error| Refusal::error(format!("running Bind plugin \"DefaultBinder\": {error}")))
}

async fn wait_for_permit(
    shared: &Arc<Shared>,
    at: usize,
    pod: &Arc<PodInfo>,
    node: &str,
    until: Moment,
) -> Result<(), Refusal> {
    loop {
        let mut waits = None;
        {
            let state = shared.lock();
            let Some(node) = state.core.cache.find(node) else {
                return Err(Refusal::error(format!("node \"{node}\" not found")));
            };
            for (plugin, _) in shared.profiles[at].at(Point::Permit) {
                match plugin.permit(Cycle { pod, cache: &state.core.cache }, node) {
                    Permit::Allow => {}
                    Permit::Wait(most) => waits = Some((plugin.name(), most)),
                    Permit::Reject(status) => return Err(Refusal::of_node(status.by(plugin.name()))),
                }
            }
        }
        let Some((plugin, most)) = waits else { return Ok(()) };
        if shared.clock.monotonic() >= until {
            let most = capstan_api::Duration(i64::try_from(most.as_nanos()).unwrap_or(i64::MAX));
            let message = format!("rejected due to timeout after waiting {most} at plugin {plugin}");
            return Err(Refusal::of_node(Status::unschedulable(message).by(plugin)));
        }
        shared.clock.sleep(PERMIT_PERIOD).await;
    }
}

/// Puts a pod back into the queue, and tells why.
fn refuse(
    shared: &Arc<Shared>,
    at: usize,
    mut queued: QueuedPod,
    refusal: Refusal,
    started: Moment,
    permit: Option<Turn>,
) {
    let now = shared.clock.monotonic();
    let mut state = shared.lock();
    let result = if refusal.reason == "Unschedulable" { Attempt::Unschedulable } else { Attempt::Error };
    state.metrics.attempt(result, &shared.profiles[at].scheduler_name, now.since(started));
    // The pod may have changed meanwhile, or be gone; or somebody else has bound it.
    let Some(pod) = state.pending.get(&queued.pod.uid).cloned() else {
        state.queue.done(&queued.pod.uid);
        let profile = &shared.profiles[at];
        return profile.at(Point::Reserve).for_each(|(plugin, _)| plugin.forget(&queued.pod));
    };
    queued.pod = Arc::clone(&pod);
    queued.unschedulable_plugins = refusal.unschedulable_plugins;
    queued.pending_plugins = refusal.pending_plugins;
    state.queue.add_unschedulable(queued, now);
    if let Some(node) = &refusal.nomination {
        state.core.nominator.nominate(&pod, node);
    }
    drop(state);
    let note = api::truncated(&refusal.message);
    let recorder = &shared.recorders[at];
    recorder.eventf(&api::reference(&pod), None, EventType::Warning, "FailedScheduling", "Scheduling", note);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let said = (refusal.reason, refusal.message.as_str());
        let nomination = refusal.nomination.as_deref();
        // What cannot be written now is written when the pod is refused the next time.
        let _ = api::write_refusal(&shared.client, &pod, said, nomination, shared.clock.now()).await;
        let context = shared.bind_context();
        for (plugin, _) in shared.profiles[at].at(Point::Reserve) {
            plugin.refused(&context, &pod).await;
        }
        drop(permit);
        shared.wake.notify_one();
    });
}
