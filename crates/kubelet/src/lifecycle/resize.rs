//! Resources that change while a pod runs: what containers were given, what they have, and what is said of it.

use std::collections::BTreeMap;

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, Pod, PodCondition, ResourceRequirements},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::Time},
};
use serde_json::json;

use super::{Action, Lifecycle, Role, SYNC_RETRY, Slot, State, plus};

/// The condition of a pod that does not get what its spec says.
pub(super) const PENDING: &str = "PodResizePending";
/// The condition of a pod that does not have yet what it was given.
pub(super) const IN_PROGRESS: &str = "PodResizeInProgress";

/// Requests and limits, an absent map being an empty one.
type Amounts = (BTreeMap<String, Quantity>, BTreeMap<String, Quantity>);

pub(super) fn amounts(resources: Option<&ResourceRequirements>) -> Amounts {
    let of = |map: Option<&BTreeMap<String, Quantity>>| map.cloned().unwrap_or_default();
    (of(resources.and_then(|r| r.requests.as_ref())), of(resources.and_then(|r| r.limits.as_ref())))
}

/// All containers of a pod whose resources may change.
fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
}

/// Whether two versions of a pod ask for the same.
#[must_use]
pub fn same_resources(a: &Pod, b: &Pod) -> bool {
    let of = |pod| containers(pod).map(|c| (c.name.clone(), amounts(c.resources.as_ref()))).collect::<Vec<_>>();
    of(a) == of(b)
}

/// A version of a pod with the resources of another.
#[must_use]
pub fn with_resources_of(pod: &Pod, other: &Pod) -> Pod {
    let mut pod = pod.clone();
    if let Some(spec) = &mut pod.spec {
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            if let Some(known) = containers(other).find(|known| known.name == container.name) {
                container.resources.clone_from(&known.resources);
            }
        }
    }
    pod
}

/// The sentence of an event about a resize: what is wanted, as JSON.
#[must_use]
pub fn resize_message(pod: &Pod, what: &str, error: &str) -> String {
    let of = |list: &[Container]| -> Vec<serde_json::Value> {
        list.iter().map(|c| json!({"name": c.name, "resources": c.resources.clone().unwrap_or_default()})).collect()
    };
    let spec = pod.spec.clone().unwrap_or_default();
    let mut summary = serde_json::Map::new();
    let init = of(&spec.init_containers.unwrap_or_default());
    if !init.is_empty() {
        summary.insert("initContainers".to_owned(), json!(init));
    }
    summary.insert("containers".to_owned(), json!(of(&spec.containers)));
    summary.insert("generation".to_owned(), json!(pod.metadata.generation.unwrap_or_default()));
    if !error.is_empty() {
        summary.insert("error".to_owned(), json!(error));
    }
    format!("Pod resize {what}: {}", serde_json::Value::Object(summary))
}

impl Slot {
    /// Whether it runs with other resources than it was given.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self.role, Role::Regular | Role::Sidecar)
            && self.running_id().is_some()
            && amounts(self.actual.as_ref()) != amounts(self.spec.resources.as_ref())
    }

    /// Whether only a new start gives it what it was given.
    pub(super) fn resize_restarts(&self) -> bool {
        let (old, new) = (amounts(self.actual.as_ref()), amounts(self.spec.resources.as_ref()));
        let policies = self.spec.resize_policy.iter().flatten();
        self.is_behind()
            && policies.filter(|policy| policy.restart_policy == "RestartContainer").any(|policy| {
                let name = &policy.resource_name;
                old.0.get(name) != new.0.get(name) || old.1.get(name) != new.1.get(name)
            })
    }

    /// It has what was asked for, or not; the error when it is a new one.
    pub(super) fn resized(&mut self, failure: Option<String>, now: Timestamp) -> Option<String> {
        let asked = self.resizing.take()?;
        match failure {
            None => {
                self.actual = asked.0;
                self.resize_error = None;
                None
            }
            Some(error) => {
                self.retry_at = Some(plus(now, SYNC_RETRY));
                let new = self.resize_error.as_ref() != Some(&error);
                self.resize_error = Some(error.clone());
                new.then_some(error)
            }
        }
    }
}

/// What was asked for while it is under way.
#[derive(Clone, Debug)]
pub(super) struct Asked(pub(super) Option<ResourceRequirements>);

impl Lifecycle {
    /// The node gives the pod what its spec says, or not: reason and message.
    pub fn set_pending_resize(&mut self, pending: Option<(String, String)>) {
        self.pending_resize = pending;
    }

    pub(super) fn resize_event(&self, warning: bool, reason: &'static str, what: &str, error: &str) -> Action {
        Action::Event { container: None, warning, reason, message: resize_message(&self.pod, what, error) }
    }

    /// Asks for what containers do not have yet.
    pub(super) fn plan_resizes(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let waits = slot.retry_at.is_some_and(|at| at > now);
            if !slot.is_behind() || slot.resize_restarts() || slot.resizing.is_some() || waits {
                continue;
            }
            if let State::Running { id, killed: None, .. } = &slot.state {
                slot.retry_at = None;
                slot.resizing = Some(Asked(slot.spec.resources.clone()));
                actions.push(Action::Resize { container: index, id: id.clone() });
            }
        }
        let behind = self.slots.iter().any(Slot::is_behind);
        if self.resizing && !behind {
            actions.push(self.resize_event(false, "ResizeCompleted", "completed", ""));
        }
        self.resizing = behind;
    }

    /// The conditions of a resize, as long as there is one.
    pub(super) fn resize_conditions(&self, before: &[PodCondition], now: Timestamp) -> Vec<PodCondition> {
        let mut all = Vec::new();
        if let Some((reason, message)) = &self.pending_resize {
            all.push((PENDING, reason.clone(), message.clone()));
        }
        if self.slots.iter().any(Slot::is_behind) {
            let error = self.slots.iter().filter(|slot| slot.is_behind()).find_map(|slot| slot.resize_error.clone());
            let reason = if error.is_some() { "Error" } else { "" };
            all.push((IN_PROGRESS, reason.to_owned(), error.unwrap_or_default()));
        }
        let said = |text: String| Some(text).filter(|text| !text.is_empty());
        all.into_iter()
            .map(|(kind, reason, message)| {
                let reason = said(reason);
                let same = before.iter().find(|c| c.type_ == kind && c.reason == reason);
                PodCondition {
                    last_transition_time: same.map_or(Some(Time(now)), |c| c.last_transition_time.clone()),
                    message: said(message),
                    observed_generation: self.pod.metadata.generation,
                    reason,
                    status: "True".to_owned(),
                    type_: kind.to_owned(),
                    ..PodCondition::default()
                }
            })
            .collect()
    }
}
