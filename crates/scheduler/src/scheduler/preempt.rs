//! Room is made for a pod: those who have a say are asked, and those who are in the way are told to go.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Shared, Turn, api};
use crate::{
    pod_info::PodInfo,
    preemption::{Victims, displaced, take_best},
};

/// How many pods are evicted for one at a time.
const PARALLELISM: usize = 16;

/// Whom to evict, of those whom extenders let go.
///
/// # Errors
/// Says why nobody is.
pub(super) async fn agreed(
    shared: &Arc<Shared>,
    pod: &Arc<PodInfo>,
    best: Option<Victims>,
    others: Vec<Victims>,
) -> Result<Option<Victims>, String> {
    let asked = |extender: &&crate::extender::Extender| extender.supports_preemption() && extender.is_interested(pod);
    let extenders: Vec<_> = shared.extenders.iter().filter(asked).collect();
    if best.is_none() || extenders.is_empty() {
        return Ok(best);
    }
    let mut candidates: Vec<Victims> = best.into_iter().chain(others).collect();
    for extender in extenders {
        let answer = match extender.process_preemption(pod, &candidates, &shared.clock).await {
            Err(_) if extender.is_ignorable() => continue,
            answer => answer?,
        };
        let state = shared.lock();
        candidates.clear();
        for (name, victims) in answer {
            let Some(node) = state.core.cache.find(&name) else {
                return Err(format!("nodeinfo not found for node name \"{name}\""));
            };
            let Some(victims) = victims.on(node) else {
                return Err(format!(
                    "extender: {} claims to preempt pods on node: {name}, but not all are found on that node",
                    extender.name()
                ));
            };
            match victims.pods.is_empty() {
                true if extender.is_ignorable() => {}
                true => return Err(format!("expected at least one victim pod on node \"{name}\"")),
                false => candidates.push(victims),
            }
        }
        drop(state);
        if candidates.is_empty() {
            break;
        }
    }
    take_best(&mut candidates).map(Some).ok_or_else(|| "no candidate node for preemption".to_owned())
}

/// Evicts those who are in the way. Until that is done the pod is kept back.
pub(super) fn preempt(shared: &Arc<Shared>, at: usize, pod: &Arc<PodInfo>, victims: Victims, permit: Turn) {
    let mut state = shared.lock();
    state.queue.hold(&pod.uid);
    let others = displaced(&state.core.nominator, &victims.node, pod);
    for other in &others {
        state.core.nominator.remove(&other.uid);
    }
    drop(state);
    let (shared, pod) = (Arc::clone(shared), Arc::clone(pod));
    tokio::spawn(async move {
        let mut failed = false;
        for other in &others {
            failed |= api::clear_nomination(&shared.client, other).await.is_err();
        }
        failed |= !evict(&shared, at, &pod, victims).await;
        let mut state = shared.lock();
        state.queue.release(&pod.uid);
        if failed {
            state.queue.activate(&pod.uid);
        }
        drop(state);
        drop(permit);
        shared.wake.notify_one();
    });
}

/// Tells pods to go, several at a time. Says whether all could be told; once one could not, no more are.
async fn evict(shared: &Arc<Shared>, at: usize, preemptor: &Arc<PodInfo>, victims: Victims) -> bool {
    let node: Arc<str> = victims.node.into();
    let (mut told, mut well) = (JoinSet::new(), true);
    for victim in victims.pods.into_iter().filter(|victim| !victim.is_terminating()) {
        if told.len() >= PARALLELISM {
            well &= matches!(told.join_next().await, Some(Ok(true)));
        }
        if !well {
            break;
        }
        let (shared, preemptor, node) = (Arc::clone(shared), Arc::clone(preemptor), Arc::clone(&node));
        told.spawn(async move {
            let (recorder, now) = (&shared.recorders[at], shared.clock.now());
            api::evict(&shared.client, recorder, &victim, &preemptor, &node, now).await.is_ok()
        });
    }
    while let Some(done) = told.join_next().await {
        well &= matches!(done, Ok(true));
    }
    well
}
