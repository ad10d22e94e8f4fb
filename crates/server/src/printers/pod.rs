//! Pods: how many containers are ready, what the pod is doing, and how often it had to start over.

use std::collections::BTreeMap;

use capstan_api::{Time, Value, table::TableRowCondition};

use super::view::{View, cell, since};

const CONDITIONS: &str = "status.conditions";

/// Pods that are done are `Completed`.
pub(super) fn conditions(pod: View<'_>) -> Vec<TableRowCondition> {
    let message = match pod.text("status.phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return Vec::new(),
    };
    vec![TableRowCondition {
        condition_type: "Completed".to_owned(),
        status: "True".to_owned(),
        reason: pod.text("status.phase").to_owned(),
        message: message.to_owned(),
    }]
}

/// All the cells.
pub(super) fn cells(pod: View<'_>, now: Time) -> Vec<Value> {
    let state = State::of(pod);
    let restarts = match state.restarts {
        Restarts { count, last } if count != 0 && !last.is_zero() => format!("{count} ({} ago)", since(last, now)),
        Restarts { count, .. } => count.to_string(),
    };
    let total = pod.items("spec.initContainers").filter(|container| restarts_always(*container)).count()
        + pod.items("spec.containers").len();
    let address = pod.items("status.podIPs").next().map_or("", |address| address.text("ip"));
    vec![
        cell(pod.text("metadata.name")),
        cell(format!("{}/{total}", state.ready)),
        cell(state.reason),
        cell(restarts),
        cell(pod.since("metadata.creationTimestamp", now)),
        cell(if address.is_empty() { "<none>" } else { address }),
        cell(pod.text_or("spec.nodeName", "<none>")),
        cell(pod.text_or("status.nominatedNodeName", "<none>")),
        cell(readiness_gates(pod)),
    ]
}

fn readiness_gates(pod: View<'_>) -> String {
    let gates = pod.items("spec.readinessGates");
    // Of conditions of the same type the first counts.
    let conditions: BTreeMap<_, _> =
        pod.items(CONDITIONS).rev().map(|condition| (condition.text("type"), condition.text("status"))).collect();
    let holds = |gate: &View<'_>| conditions.get(gate.text("conditionType")) == Some(&"True");
    match gates.len() {
        0 => "<none>".to_owned(),
        all => format!("{}/{all}", gates.filter(holds).count()),
    }
}

/// Whether an init container is a sidecar.
fn restarts_always(container: View<'_>) -> bool {
    container.text("restartPolicy") == "Always"
}

#[derive(Clone, Copy)]
struct Restarts {
    count: i64,
    last: Time,
}

impl Restarts {
    const NONE: Restarts = Restarts { count: 0, last: Time::ZERO };

    fn add(&mut self, status: View<'_>) {
        self.count = self.count.saturating_add(status.int("restartCount"));
        self.last = self.last.max(status.time("lastState.terminated.finishedAt"));
    }
}

struct State {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

impl State {
    fn of(pod: View<'_>) -> Self {
        let phase = pod.text("status.phase");
        let mut state =
            State { reason: pod.text_or("status.reason", phase).to_owned(), ready: 0, restarts: Restarts::NONE };
        let gated = |condition: View<'_>| {
            condition.text("type") == "PodScheduled" && condition.text("reason") == "SchedulingGated"
        };
        if pod.items(CONDITIONS).any(gated) {
            "SchedulingGated".clone_into(&mut state.reason);
        }
        let (initializing, sidecars) = state.init_containers(pod);
        if !initializing || pod.holds(CONDITIONS, "Initialized") {
            state.restarts = sidecars;
            state.containers(pod);
        }
        if pod.deleted() && pod.text("status.reason") == "NodeLost" {
            "Unknown".clone_into(&mut state.reason);
        } else if pod.deleted() && !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut state.reason);
        }
        state
    }

    /// Goes through the init containers up to the one that is at work. Whether there is one, and how often sidecars had
    /// to start over.
    fn init_containers(&mut self, pod: View<'_>) -> (bool, Restarts) {
        let mut sidecars = Restarts::NONE;
        let all = pod.items("spec.initContainers").len();
        // Of containers with the same name the last counts.
        let containers: BTreeMap<_, _> =
            pod.items("spec.initContainers").map(|container| (container.text("name"), container)).collect();
        for (at, status) in pod.items("status.initContainerStatuses").enumerate() {
            self.restarts.add(status);
            let sidecar = containers.get(status.text("name")).is_some_and(|container| restarts_always(*container));
            if sidecar {
                sidecars.add(status);
            }
            let terminated = status.has("state.terminated");
            if terminated && status.int("state.terminated.exitCode") == 0 {
                continue;
            }
            if sidecar && status.flag("started") {
                self.ready += usize::from(status.flag("ready"));
                continue;
            }
            self.reason = match status.text("state.waiting.reason") {
                _ if terminated => format!("Init:{}", end(status.at("state.terminated"))),
                "" | "PodInitializing" => format!("Init:{at}/{all}"),
                waiting => format!("Init:{waiting}"),
            };
            return (true, sidecars);
        }
        (false, sidecars)
    }

    fn containers(&mut self, pod: View<'_>) {
        let (mut running, mut error) = (false, None);
        for status in pod.items("status.containerStatuses").rev() {
            self.restarts.add(status);
            let waiting = status.text("state.waiting.reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if status.has("state.terminated") {
                self.reason = end(status.at("state.terminated"));
                if status.int("state.terminated.exitCode") != 0 {
                    error = Some(self.reason.clone());
                }
            } else if status.flag("ready") && status.has("state.running") {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            let ready = |condition: View<'_>| condition.text("type") == "Ready" && condition.text("status") == "True";
            if running && pod.items(CONDITIONS).any(ready) {
                "Running".clone_into(&mut self.reason);
            } else if let Some(error) = error {
                self.reason = error;
            } else if running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }
}

/// Why a container ended.
fn end(terminated: View<'_>) -> String {
    match (terminated.text("reason"), terminated.int("signal")) {
        ("", 0) => format!("ExitCode:{}", terminated.int("exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
