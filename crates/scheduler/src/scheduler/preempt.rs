//! Room is made for a pod: those who have a say are asked, and those who are in the way are told to go.

use std::{collections::HashMap, sync::Arc};

use tokio::task::JoinSet;

use super::{Shared, State, Turn, api};
use crate::{
    pod_info::PodInfo,
    preemption::{Victims, displaced, take_best},
};

/// How many pods are evicted for one at a time.
const PARALLELISM: usize = 16;

/// Pods that were told to go, and for whom. It takes a moment until they are seen to go; whoever tries again before
/// that finds them still in the way, and evicts others in vain.
#[derive(Debug, Default)]
pub(super) struct Evictions {
    for_whom: HashMap<Arc<str>, Vec<Arc<str>>>,
    left: HashMap<Arc<str>, usize>,
}

impl Evictions {
    fn add(&mut self, victim: &Arc<str>, preemptor: &Arc<str>) {
        self.for_whom.entry(Arc::clone(victim)).or_default().push(Arc::clone(preemptor));
        *self.left.entry(Arc::clone(preemptor)).or_default() += 1;
    }

    /// A pod is seen to go. Gives those who need not wait any longer.
    fn seen(&mut self, victim: &str) -> Vec<Arc<str>> {
        let mut done = self.for_whom.remove(victim).unwrap_or_default();
        done.retain(|preemptor| {
            let left = self.left.get(preemptor).copied().unwrap_or_default();
            match left {
                0 | 1 => drop(self.left.remove(preemptor)),
                more => drop(self.left.insert(Arc::clone(preemptor), more - 1)),
            }
            left <= 1
        });
        done
    }
}

impl State {
    /// A pod is seen to go, or is gone.
    pub(super) fn leaves(&mut self, shared: &Shared, victim: &str) {
        for preemptor in self.evictions.seen(victim) {
            self.queue.release(&preemptor);
            shared.wake.notify_one();
        }
    }
}

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
        let uids: Vec<_> = victims.pods.iter().map(|victim| Arc::clone(&victim.uid)).collect();
        failed |= !evict(&shared, at, &pod, victims).await;
        let mut guard = shared.lock();
        let state = &mut *guard;
        let stays = |uid: &&Arc<str>| state.core.cache.placed(uid).is_some_and(|(victim, _)| !victim.is_terminating());
        let staying: Vec<_> = uids.iter().filter(stays).filter(|_| !failed).collect();
        for victim in &staying {
            state.evictions.add(victim, &pod.uid);
        }
        if staying.is_empty() {
            state.queue.release(&pod.uid);
        }
        if failed {
            state.queue.activate(&pod.uid);
        }
        drop(guard);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_must_be_seen_to_go() {
        let uid = |name: &str| Arc::<str>::from(name);
        let mut evictions = Evictions::default();
        for (victim, preemptor) in [("a", "x"), ("b", "x"), ("b", "y")] {
            evictions.add(&uid(victim), &uid(preemptor));
        }
        assert!(evictions.seen("a").is_empty());
        assert!(evictions.seen("a").is_empty(), "it has been seen before");
        assert_eq!(evictions.seen("b"), [uid("x"), uid("y")]);
        assert!(evictions.left.is_empty() && evictions.for_whom.is_empty());
    }
}
