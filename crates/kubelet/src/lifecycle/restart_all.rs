//! All containers of a pod anew and in place, because one of them ended with a code for which its rules say so.

use std::time::Duration;

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, PodCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{Action, Lifecycle, Role, State, phase::matching_rule, plus};

/// The condition that says whether it goes on.
pub(super) const CONDITION: &str = "AllContainersRestarting";
/// What a rule asks for.
const ACTION: &str = "RestartAllContainers";
/// What is said of those that were ended for it.
const REASON: &str = "RestartingAllContainers";
const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

fn asks(container: &Container, code: i32) -> bool {
    matching_rule(container, code).is_some_and(|rule| rule.action == ACTION)
}

impl Lifecycle {
    /// Ends what runs, and begins with the first init container when nothing does; whether it is at that still.
    pub(super) fn plan_restart_of_all(&mut self, now: Timestamp, actions: &mut Vec<Action>) -> bool {
        let of_pod = |role: Role| role != Role::Ephemeral;
        self.restarting |= self
            .slots
            .iter()
            .filter(|slot| of_pod(slot.role))
            .any(|slot| slot.exited().is_some_and(|end| asks(&slot.spec, end.exit_code)));
        if !self.restarting {
            return false;
        }
        let mut alive = false;
        for (container, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| of_pod(slot.role)) {
            match &mut slot.state {
                State::Starting => alive = true,
                State::Running { id, killed, .. } => {
                    alive = true;
                    if !slot.replaced {
                        slot.replaced = true;
                        *killed = Some(plus(now, Duration::ZERO));
                        let message = "killing".to_owned();
                        let container = Some(container);
                        actions.push(Action::Event { container, warning: false, reason: "Killing", message });
                        let id = id.clone();
                        actions.extend(container.map(|container| Action::Kill {
                            container,
                            id,
                            grace: Duration::ZERO,
                        }));
                    }
                }
                State::Waiting | State::Exited(_) => {}
            }
        }
        if alive {
            return true;
        }
        for slot in self.slots.iter_mut().filter(|slot| of_pod(slot.role)) {
            slot.retry_at = None;
            slot.waiting = None;
            let replaced = std::mem::take(&mut slot.replaced);
            if let State::Exited(mut end) = std::mem::replace(&mut slot.state, State::Waiting) {
                if replaced {
                    (end.exit_code, end.reason, end.message) = (137, Some(REASON.to_owned()), Some(MESSAGE.to_owned()));
                }
                slot.last = Some(end);
                slot.restarts += 1;
            }
        }
        self.initialized = false;
        self.restarting = false;
        false
    }

    /// The condition, for pods that may need it.
    pub(super) fn restart_condition(&self, before: &[PodCondition], now: Timestamp) -> Option<PodCondition> {
        let rules = self.slots.iter().flat_map(|slot| slot.spec.restart_policy_rules.iter().flatten());
        rules.into_iter().find(|rule| rule.action == ACTION)?;
        let status = if self.restarting { "True" } else { "False" };
        let same = before.iter().find(|condition| condition.type_ == CONDITION && condition.status == status);
        let said = |text: &str| self.restarting.then(|| text.to_owned());
        Some(PodCondition {
            last_transition_time: same.and_then(|same| same.last_transition_time.clone()).or(Some(Time(now))),
            message: said("container exited with restart policy rule"),
            observed_generation: self.pod.metadata.generation,
            reason: said("RestartAllContainersStarted"),
            status: status.to_owned(),
            type_: CONDITION.to_owned(),
            ..PodCondition::default()
        })
    }
}
