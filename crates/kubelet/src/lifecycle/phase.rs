//! The phase that follows from the states of the containers, and whether a container is started again.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, ContainerStateTerminated, PodSpec};

use super::{Role, slot::Slot, slot::State};

/// The first of a container's own rules that says something about a code.
pub(super) fn matching_rule(container: &Container, code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().flatten().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            codes.values.as_ref().is_some_and(|values| values.contains(&code)) == (codes.operator == "In")
        })
    })
}

/// Whether a container that ended with `code` is started again: its own rules, its own policy, its pod's.
#[must_use]
pub fn should_restart(container: &Container, spec: &PodSpec, role: Role, code: i32) -> bool {
    if role == Role::Ephemeral {
        return false;
    }
    if let Some(policy) = container.restart_policy.as_deref() {
        return matching_rule(container, code).is_some() || policy == "Always" || (policy == "OnFailure" && code != 0);
    }
    match spec.restart_policy.as_deref() {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        // An init container that has succeeded is done.
        _ => role != Role::Init || code != 0,
    }
}

/// Where a container stands for the phase: what it shows, or last showed.
enum Standing<'a> {
    Running,
    Stopped(&'a ContainerStateTerminated),
    Waiting,
}

fn standing(slot: &Slot) -> Standing<'_> {
    match (&slot.state, &slot.last) {
        (State::Running { .. }, _) => Standing::Running,
        (State::Exited(terminated), _) => Standing::Stopped(terminated),
        (_, Some(last)) => Standing::Stopped(last),
        _ => Standing::Waiting,
    }
}

/// The phase. `terminal` says that nothing will be started again, whatever the policies.
pub(super) fn phase(slots: &[Slot], spec: &PodSpec, terminal: bool, initialized: bool) -> &'static str {
    let (mut pending_init, mut pending_sidecar, mut init_failed) = (0, 0, 0);
    let (mut running, mut waiting, mut stopped, mut for_good, mut succeeded) = (0, 0, 0, 0, 0);
    for slot in slots {
        match (slot.role, standing(slot)) {
            (Role::Ephemeral, _) => {}
            (Role::Init, Standing::Stopped(end)) => {
                let code = end.exit_code;
                let for_good = slot.exited().is_some() && !should_restart(&slot.spec, spec, slot.role, code);
                init_failed += i32::from(code != 0 && for_good);
            }
            (Role::Init, _) => pending_init += 1,
            (Role::Sidecar, Standing::Running) => {
                pending_sidecar += i32::from(!slot.startup_passed());
                running += 1;
            }
            (Role::Sidecar, Standing::Stopped(_)) => {}
            (Role::Sidecar, Standing::Waiting) => {
                pending_sidecar += 1;
                waiting += 1;
            }
            (Role::Regular, Standing::Running) => running += 1,
            (Role::Regular, Standing::Stopped(end)) => {
                stopped += 1;
                // One that waits is to be started again, whatever its code was.
                let ended = slot.exited().is_some();
                for_good += i32::from(ended && !should_restart(&slot.spec, spec, slot.role, end.exit_code));
                succeeded += i32::from(ended && end.exit_code == 0);
            }
            (Role::Regular, Standing::Waiting) => waiting += 1,
        }
    }
    if init_failed > 0 {
        return "Failed";
    }
    if pending_init > 0 || (pending_sidecar > 0 && !initialized) || waiting > 0 {
        return "Pending";
    }
    if running > 0 {
        return "Running";
    }
    if stopped == 0 {
        return "Pending";
    }
    match (terminal || stopped == for_good, stopped == succeeded) {
        (false, _) => "Running",
        (true, true) => "Succeeded",
        (true, false) => "Failed",
    }
}
