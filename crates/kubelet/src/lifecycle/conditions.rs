//! The conditions that the node writes: what holds of a pod, since when, and why not.

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodCondition, PodSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    Role, Slot,
    resize::{IN_PROGRESS, PENDING},
    restart_all,
};

/// The conditions that belong to the node; all others are kept as they are.
const OWNED: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Whether the node decides about a condition.
fn is_own(kind: &str) -> bool {
    OWNED.contains(&kind) || [PENDING, IN_PROGRESS, restart_all::CONDITION].contains(&kind)
}

/// Whether a condition holds, and why not.
struct Verdict(bool, &'static str, String);

impl Verdict {
    fn holds() -> Self {
        Verdict(true, "", String::new())
    }
}

/// All conditions: those of others first, then the node's own, with the times of `before` where nothing changed.
pub(super) fn conditions(
    pod: &Pod,
    slots: &[Slot],
    phase: &str,
    sandbox: bool,
    initialized: bool,
    before: &[PodCondition],
    now: Timestamp,
) -> Vec<PodCondition> {
    let others = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut all: Vec<PodCondition> = others.filter(|c| !is_own(&c.type_)).cloned().collect();
    // What the node itself has said of a disruption outlives the next look at the API.
    for condition in before.iter().filter(|c| c.type_ == "DisruptionTarget") {
        all.retain(|c| c.type_ != condition.type_);
        all.push(condition.clone());
    }
    let containers = containers_ready(slots, phase);
    let ready = match &containers {
        Verdict(true, ..) => pod.spec.as_ref().map_or_else(Verdict::holds, |spec| gates(spec, &all)),
        Verdict(false, reason, message) => Verdict(false, reason, message.clone()),
    };
    let verdicts = [
        Verdict(sandbox, "", String::new()),
        is_initialized(slots, phase, initialized),
        ready,
        containers,
        Verdict::holds(),
    ];
    for (kind, Verdict(holds, reason, message)) in OWNED.into_iter().zip(verdicts) {
        let status = if holds { "True" } else { "False" };
        let same = before.iter().find(|c| c.type_ == kind && c.status == status);
        let since = same.and_then(|c| c.last_transition_time.clone()).unwrap_or(Time(now));
        all.push(PodCondition {
            last_transition_time: Some(since),
            message: Some(message).filter(|message| !message.is_empty()),
            observed_generation: pod.metadata.generation,
            reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
            status: status.to_owned(),
            type_: kind.to_owned(),
            ..PodCondition::default()
        });
    }
    all
}

fn containers_ready(slots: &[Slot], phase: &str) -> Verdict {
    match phase {
        "Succeeded" => return Verdict(false, "PodCompleted", String::new()),
        "Failed" => return Verdict(false, "PodFailed", String::new()),
        _ => {}
    }
    let counted = slots.iter().filter(|slot| matches!(slot.role, Role::Sidecar | Role::Regular));
    let unready: Vec<&str> = counted.filter(|slot| !slot.is_ready()).map(|slot| slot.spec.name.as_str()).collect();
    if unready.is_empty() {
        return Verdict::holds();
    }
    Verdict(false, "ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
}

fn gates(spec: &PodSpec, conditions: &[PodCondition]) -> Verdict {
    let messages: Vec<String> = spec
        .readiness_gates
        .iter()
        .flatten()
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match conditions.iter().find(|c| c.type_ == *kind) {
                None => Some(format!("corresponding condition of pod readiness gate \"{kind}\" does not exist.")),
                Some(c) if c.status != "True" => {
                    Some(format!("the status of pod readiness gate \"{kind}\" is not \"True\", but {}", c.status))
                }
                Some(_) => None,
            }
        })
        .collect();
    if messages.is_empty() { Verdict::holds() } else { Verdict(false, "ReadinessGatesNotReady", messages.join(", ")) }
}

fn is_initialized(slots: &[Slot], phase: &str, initialized: bool) -> Verdict {
    if phase == "Succeeded" {
        return Verdict(true, "PodCompleted", String::new());
    }
    let incomplete: Vec<&str> = slots
        .iter()
        .filter(|slot| match slot.role {
            Role::Init => !slot.is_ready(),
            Role::Sidecar => slot.running_id().is_none() || !slot.startup_passed(),
            Role::Regular | Role::Ephemeral => false,
        })
        .map(|slot| slot.spec.name.as_str())
        .collect();
    if initialized || incomplete.is_empty() {
        return Verdict::holds();
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Verdict(false, "ContainersNotInitialized", message)
}
