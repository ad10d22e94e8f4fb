//! The PodStatus that follows from where the containers stand.

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
        HostIP, PodCondition, PodIP, PodStatus, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{Cause, Lifecycle, Role, Sandbox, Slot, State, Termination, conditions::conditions};
use crate::qos::qos_class;

impl Lifecycle {
    /// The status as it is now. What has not changed since the last call keeps its times.
    pub fn status(&mut self, now: Timestamp) -> PodStatus {
        let phase = self.phase();
        let before = self.published.conditions.take().unwrap_or_default();
        // What was initialized once is so for good, although all may be started anew.
        let was = |condition: &PodCondition| condition.type_ == "Initialized" && condition.status == "True";
        let initialized = self.initialized || before.iter().any(was);
        let sandbox = self.sandbox == Sandbox::Ready;
        let mut conditions = conditions(&self.pod, &self.slots, phase, sandbox, initialized, &before, now);
        conditions.extend(self.resize_conditions(&before, now));
        conditions.extend(self.restart_condition(&before, now));
        let (reason, message) = self.reason();
        let host_network = self.pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        let ips = if host_network && self.ips.is_empty() { &self.host_ips } else { &self.ips };
        // A pod that has ended keeps the addresses that it had.
        let kept = self.published.pod_ips.clone().filter(|_| ips.is_empty());
        let pod_ips = kept.or_else(|| some(ips.iter().map(|ip| PodIP { ip: ip.clone() }).collect()));
        let status = PodStatus {
            conditions: Some(conditions),
            container_statuses: some(self.statuses(|role| role == Role::Regular)),
            ephemeral_container_statuses: some(self.statuses(|role| role == Role::Ephemeral)),
            host_ip: self.host_ips.first().cloned(),
            host_ips: some(self.host_ips.iter().map(|ip| HostIP { ip: ip.clone() }).collect()),
            init_container_statuses: some(self.statuses(|role| matches!(role, Role::Init | Role::Sidecar))),
            message,
            observed_generation: self.pod.metadata.generation,
            phase: Some(phase.to_owned()),
            pod_ip: pod_ips.as_ref().and_then(|ips| Some(ips.first()?.ip.clone())),
            pod_ips,
            qos_class: self.pod.spec.as_ref().map(|spec| qos_class(spec).to_owned()),
            reason,
            start_time: Some(Time(self.started_at)),
            ..self.published.clone()
        };
        self.published = status.clone();
        status
    }

    /// Says that the node itself ends the pod: the condition that controllers look for.
    pub fn disrupt(&mut self, reason: &str, message: &str, now: Timestamp) {
        let condition = PodCondition {
            last_transition_time: Some(Time(now)),
            message: Some(message.to_owned()),
            observed_generation: self.pod.metadata.generation,
            reason: Some(reason.to_owned()),
            status: "True".to_owned(),
            type_: "DisruptionTarget".to_owned(),
            ..PodCondition::default()
        };
        self.published.conditions.get_or_insert_default().push(condition);
    }

    fn reason(&self) -> (Option<String>, Option<String>) {
        match &self.termination {
            Some(Termination { cause: Cause::Failed { reason, message }, .. }) => {
                (Some(reason.clone()), Some(message.clone()).filter(|message| !message.is_empty()))
            }
            _ => (self.published.reason.clone(), self.published.message.clone()),
        }
    }

    fn statuses(&self, wanted: impl Fn(Role) -> bool) -> Vec<ContainerStatus> {
        let has_init = self.slots.iter().any(|slot| matches!(slot.role, Role::Init | Role::Sidecar));
        let of = |slot: &Slot| slot.status(if has_init { "PodInitializing" } else { "ContainerCreating" });
        let mut statuses: Vec<_> = self.slots.iter().filter(|slot| wanted(slot.role)).map(of).collect();
        if self.finished() {
            for status in &mut statuses {
                if status.state.as_ref().is_none_or(|state| state.terminated.is_none()) {
                    // One that waited to be started again has ended as it did before.
                    let ended = status.last_state.take_if(|last| last.terminated.is_some());
                    status.state = Some(ended.unwrap_or_else(unknown));
                }
            }
        }
        if !wanted(Role::Init) {
            // Init containers stand in their order, the others by name.
            statuses.sort_by(|a, b| a.name.cmp(&b.name));
        }
        statuses
    }
}

/// What is said of a container that never ran when its pod has ended.
fn unknown() -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: 137,
        message: Some("The container could not be located when the pod was terminated".to_owned()),
        reason: Some("ContainerStatusUnknown".to_owned()),
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

impl Slot {
    fn status(&self, creating: &'static str) -> ContainerStatus {
        let mut last = self.last.clone();
        let mut state = ContainerState::default();
        match &self.state {
            State::Running { started_at, .. } => {
                state.running = Some(ContainerStateRunning { started_at: Some(Time(*started_at)) });
            }
            State::Exited(end) => match self.shown() {
                Some(waiting) => {
                    last = Some(end.clone());
                    state.waiting = Some(waiting);
                }
                None => state.terminated = Some((**end).clone()),
            },
            State::Waiting | State::Starting => {
                let reason = Some(creating.to_owned()).filter(|_| last.is_none());
                state.waiting = Some(self.shown().unwrap_or(ContainerStateWaiting { message: None, reason }));
                // One that is started again shows how it ended until it runs: it did not go back to being created.
                if let Some(end) = last.as_ref().filter(|_| self.waiting.is_none()) {
                    state = ContainerState { terminated: Some((**end).clone()), ..ContainerState::default() };
                }
            }
        }
        let id = match &self.state {
            State::Running { id, .. } => Some(id.clone()),
            State::Exited(end) => end.container_id.clone(),
            _ => last.as_ref().and_then(|end| end.container_id.clone()),
        };
        let running = matches!(self.state, State::Running { .. });
        let given = self.spec.resources.clone().filter(|_| id.is_some());
        let resources = if running { self.actual.clone() } else { given.clone() };
        ContainerStatus {
            allocated_resources: given.as_ref().and_then(|resources| resources.requests.clone()),
            container_id: id,
            image: self.image.clone(),
            image_id: self.image_id.clone(),
            last_state: Some(last.map_or_else(ContainerState::default, |end| ContainerState {
                terminated: Some(*end),
                ..ContainerState::default()
            })),
            name: self.spec.name.clone(),
            ready: self.is_ready(),
            resources,
            restart_count: self.restarts,
            started: Some(running && self.startup_passed()),
            state: Some(state),
            volume_mounts: self.spec.volume_mounts.as_ref().map(|mounts| {
                let of = |mount: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
                    mount_path: mount.mount_path.clone(),
                    name: mount.name.clone(),
                    read_only: mount.read_only,
                    recursive_read_only: mount.read_only.filter(|only| *only).map(|_| "Disabled".to_owned()),
                    ..VolumeMountStatus::default()
                };
                mounts.iter().map(of).collect()
            }),
            ..ContainerStatus::default()
        }
    }

    /// Why it waits, when there is something to say.
    fn shown(&self) -> Option<ContainerStateWaiting> {
        let (reason, message) = self.waiting.clone()?;
        Some(ContainerStateWaiting { message: Some(message), reason: Some(reason.to_owned()) })
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
