//! One container of a pod: where it stands, what it left behind, and what its probes say.

use std::sync::Arc;

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{Container, ContainerStateTerminated, Pod, PodStatus, ResourceRequirements},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    Backoff, Exit, Outcome, PULL_ERROR_SHOWN, ProbeKind, SYNC_RETRY, StartFailure, finished_at, plus, probe::Prober,
    resize::Asked,
};

/// What a container is in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next begins.
    Init,
    /// An init container that goes on running: `restartPolicy: Always`.
    Sidecar,
    /// What the pod is for.
    Regular,
    /// Added later, for debugging; never restarted.
    Ephemeral,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// Not there: never started, or to be started again.
    Waiting,
    /// The driver is at it.
    Starting,
    Running {
        id: String,
        started_at: Timestamp,
        /// The post-start hook has ended.
        hooked: bool,
        /// It was asked to end, and until when it may take.
        killed: Option<Timestamp>,
    },
    Exited(Box<ContainerStateTerminated>),
}

#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) spec: Arc<Container>,
    pub(super) role: Role,
    pub(super) state: State,
    /// What the status shows while it waits.
    pub(super) waiting: Option<(&'static str, String)>,
    /// Not before then is it tried again.
    pub(super) retry_at: Option<Timestamp>,
    pub(super) last: Option<Box<ContainerStateTerminated>>,
    pub(super) restarts: i32,
    pub(super) image: String,
    pub(super) image_id: String,
    pub(super) crash: Backoff,
    pull: Backoff,
    pull_failed: Option<(Timestamp, String)>,
    pub(super) probers: Vec<Prober>,
    /// The post-start hook failed: the container is to be ended.
    pub(super) hook_failed: bool,
    /// It is being ended because all of the pod are to be started anew.
    pub(super) replaced: bool,
    /// The resources that it runs with.
    pub(super) actual: Option<ResourceRequirements>,
    /// Others that it is being given.
    pub(super) resizing: Option<Asked>,
    /// Why it was not given them.
    pub(super) resize_error: Option<String>,
}

/// The container of a pod at an index; ephemeral ones in the shape of the others.
pub(super) fn container(pod: &Pod, index: usize) -> Option<Container> {
    let spec = pod.spec.as_ref()?;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let ephemeral = spec.ephemeral_containers.as_deref().unwrap_or_default();
    if index < init.len() {
        return Some(init[index].clone());
    }
    let index = index - init.len();
    if index < spec.containers.len() {
        return Some(spec.containers[index].clone());
    }
    ephemeral.get(index - spec.containers.len()).map(|e| Container {
        args: e.args.clone(),
        command: e.command.clone(),
        env: e.env.clone(),
        env_from: e.env_from.clone(),
        image: e.image.clone(),
        image_pull_policy: e.image_pull_policy.clone(),
        name: e.name.clone(),
        resources: e.resources.clone(),
        security_context: e.security_context.clone(),
        stdin: e.stdin,
        stdin_once: e.stdin_once,
        termination_message_path: e.termination_message_path.clone(),
        termination_message_policy: e.termination_message_policy.clone(),
        tty: e.tty,
        volume_mounts: e.volume_mounts.clone(),
        working_dir: e.working_dir.clone(),
        ..Container::default()
    })
}

/// A slot for every container, with what an earlier status tells of it.
pub(super) fn of(pod: &Pod, status: &PodStatus) -> Vec<Slot> {
    let Some(spec) = pod.spec.as_ref() else { return Vec::new() };
    let init = spec.init_containers.as_ref().map_or(0, Vec::len);
    let regular = spec.containers.len();
    let ephemeral = spec.ephemeral_containers.as_ref().map_or(0, Vec::len);
    let statuses = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    (0..init + regular + ephemeral)
        .filter_map(|index| {
            let spec = container(pod, index)?;
            let role = match index {
                i if i < init && spec.restart_policy.as_deref() == Some("Always") => Role::Sidecar,
                i if i < init => Role::Init,
                i if i < init + regular => Role::Regular,
                _ => Role::Ephemeral,
            };
            let mut slot = Slot::new(spec, role);
            let known = statuses.iter().filter_map(|list| list.as_ref()).flatten();
            if let Some(known) = known.into_iter().find(|status| status.name == slot.spec.name) {
                slot.restarts = known.restart_count;
                slot.image_id.clone_from(&known.image_id);
                slot.last = known.last_state.as_ref().and_then(|state| state.terminated.clone()).map(Box::new);
                let state = known.state.clone().unwrap_or_default();
                if let Some(terminated) = state.terminated {
                    slot.state = State::Exited(Box::new(terminated));
                } else if let Some(running) = state.running {
                    // It ran when the node was last heard of, and nobody has adopted it since.
                    slot.state = State::Exited(Box::new(ContainerStateTerminated {
                        container_id: known.container_id.clone(),
                        exit_code: 137,
                        finished_at: None,
                        message: Some(LOST.to_owned()),
                        reason: Some("ContainerStatusUnknown".to_owned()),
                        signal: None,
                        started_at: running.started_at,
                    }));
                }
            }
            Some(slot)
        })
        .collect()
}

/// What is said of a container that ran before and is not to be found.
const LOST: &str = "The container could not be located when the pod was deleted.  The container used to be Running";

impl Slot {
    fn new(spec: Container, role: Role) -> Self {
        Slot {
            image: spec.image.clone().unwrap_or_default(),
            spec: Arc::new(spec),
            role,
            state: State::Waiting,
            waiting: None,
            retry_at: None,
            last: None,
            restarts: 0,
            image_id: String::new(),
            crash: Backoff::default(),
            pull: Backoff::default(),
            pull_failed: None,
            probers: Vec::new(),
            hook_failed: false,
            replaced: false,
            actual: None,
            resizing: None,
            resize_error: None,
        }
    }

    pub(super) fn running_id(&self) -> Option<&str> {
        match &self.state {
            State::Running { id, .. } => Some(id),
            _ => None,
        }
    }

    pub(super) fn exited(&self) -> Option<&ContainerStateTerminated> {
        match &self.state {
            State::Exited(terminated) => Some(terminated),
            _ => None,
        }
    }

    /// Whether it runs now or ran before.
    pub(super) fn has_started(&self) -> bool {
        matches!(self.state, State::Running { .. } | State::Exited(_)) || self.last.is_some()
    }

    /// Whether it is being started: until its hook is done.
    pub(super) fn is_coming_up(&self) -> bool {
        matches!(self.state, State::Starting | State::Running { hooked: false, killed: None, .. })
    }

    /// Whether it has come up: it runs, its hook is done and its startup probe has said yes.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Running { hooked: true, .. }) && self.startup_passed()
    }

    pub(super) fn startup_passed(&self) -> bool {
        self.prober(ProbeKind::Startup).is_none_or(|prober| prober.result == Some(true))
    }

    pub(super) fn prober(&self, kind: ProbeKind) -> Option<&Prober> {
        self.probers.iter().find(|prober| prober.kind == kind)
    }

    /// What the status calls ready.
    pub(super) fn is_ready(&self) -> bool {
        match (&self.state, self.role) {
            (State::Exited(terminated), Role::Init) => terminated.exit_code == 0,
            (_, Role::Init | Role::Ephemeral) => false,
            (State::Running { hooked: true, .. }, _) => {
                self.startup_passed()
                    && self.prober(ProbeKind::Readiness).is_none_or(|prober| prober.result == Some(true))
            }
            _ => false,
        }
    }

    pub(super) fn start(&mut self, id: String, image_id: String, hook: bool, now: Timestamp) {
        if let State::Exited(terminated) = std::mem::replace(&mut self.state, State::Waiting) {
            self.last = Some(terminated);
        }
        self.probers =
            ProbeKind::ALL.iter().filter_map(|&kind| Some(Prober::new(kind, kind.of(&self.spec)?, now))).collect();
        self.image = self.spec.image.clone().unwrap_or_default();
        self.image_id = image_id;
        self.waiting = None;
        self.retry_at = None;
        self.pull_failed = None;
        self.hook_failed = false;
        self.actual.clone_from(&self.spec.resources);
        self.resizing = None;
        self.resize_error = None;
        self.state = State::Running { id, started_at: now, hooked: !hook, killed: None };
    }

    /// It was taken for lost, but runs.
    pub(super) fn resume(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let State::Exited(end) = &self.state else { return false };
        let (Some(id), Some(Time(started_at))) = (end.container_id.clone(), end.started_at.clone()) else {
            return false;
        };
        if end.message.as_deref() != Some(LOST) || !is_there(&id) {
            return false;
        }
        let image_id = self.image_id.clone();
        let last = self.last.take();
        self.start(id, image_id, false, started_at);
        self.last = last;
        true
    }

    pub(super) fn fail(&mut self, failure: StartFailure, now: Timestamp) {
        self.state = State::Waiting;
        let (reason, message) = match failure {
            StartFailure::InvalidImageName(message) => ("InvalidImageName", message),
            StartFailure::NeverPull(message) => ("ErrImageNeverPull", message),
            StartFailure::Inspect(message) => ("ImageInspectError", message),
            StartFailure::Config(message) => ("CreateContainerConfigError", message),
            StartFailure::Create(message) => ("CreateContainerError", message),
            StartFailure::Pull(message) => {
                self.pull.next(now, now);
                self.pull_failed = Some((now, message.clone()));
                self.waiting = Some(("ErrImagePull", message));
                self.retry_at = Some(plus(now, PULL_ERROR_SHOWN));
                return;
            }
            StartFailure::Run(message) => {
                self.state = State::Exited(Box::new(ContainerStateTerminated {
                    exit_code: 128,
                    finished_at: Some(Time(now)),
                    message: Some(message.clone()),
                    reason: Some("StartError".to_owned()),
                    started_at: Some(Time(Timestamp::UNIX_EPOCH)),
                    ..ContainerStateTerminated::default()
                }));
                self.waiting = Some(("RunContainerError", message));
                return;
            }
        };
        self.waiting = Some((reason, message));
        self.retry_at = Some(plus(now, SYNC_RETRY));
    }

    /// Whether a failed pull keeps it from being tried now, and since when that is so for the user to be told.
    pub(super) fn pull_backoff(&mut self, now: Timestamp) -> Option<String> {
        let (failed, message) = self.pull_failed.clone()?;
        let (until, _) = self.pull.until(failed)?;
        if until <= now {
            self.retry_at = None;
            return None;
        }
        self.retry_at = Some(until);
        let image = self.spec.image.as_deref().unwrap_or_default();
        let first = self.waiting.as_ref().is_none_or(|(reason, _)| *reason != "ImagePullBackOff");
        let text = format!("Back-off pulling image \"{image}\"");
        self.waiting = Some(("ImagePullBackOff", format!("{text}: ErrImagePull: {message}")));
        first.then_some(text)
    }

    pub(super) fn post_start(&mut self, failure: Option<&str>) {
        if let State::Running { hooked, .. } = &mut self.state {
            *hooked = true;
        }
        if let Some(message) = failure {
            self.hook_failed = true;
            self.waiting = Some(("PostStartHookError", message.to_owned()));
        }
    }

    pub(super) fn exit(&mut self, exit: Exit, now: Timestamp) {
        let State::Running { id, started_at, .. } = std::mem::replace(&mut self.state, State::Waiting) else { return };
        let reason = match exit.code {
            _ if exit.oom_killed => "OOMKilled",
            0 => "Completed",
            _ => "Error",
        };
        self.probers.clear();
        self.state = State::Exited(Box::new(ContainerStateTerminated {
            container_id: Some(id),
            exit_code: exit.code,
            finished_at: Some(Time(exit.at.unwrap_or(now))),
            message: Some(exit.message).filter(|message| !message.is_empty()),
            reason: Some(reason.to_owned()),
            signal: exit.signal,
            started_at: Some(Time(started_at)),
        }));
    }

    pub(super) fn probed(&mut self, kind: ProbeKind, outcome: Outcome) -> Option<String> {
        let probe = kind.of(&self.spec).cloned()?;
        self.probers.iter_mut().find(|prober| prober.kind == kind)?.answer(&probe, outcome)
    }

    /// When its last run ended.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        self.exited().and_then(finished_at)
    }
}
