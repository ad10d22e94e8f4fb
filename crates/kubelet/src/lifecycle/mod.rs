//! The life of one pod as a machine without I/O.
//!
//! [`Lifecycle`] is told what happened ([`Input`]) and what time it is, and answers what is to be done next
//! ([`Action`]) and what the pod's status is. It never waits, never asks a runtime, and holds no task: a node that
//! runs containers drives it with the answers of its runtime, a simulated one with rules.
//!
//! The contract of the driver: each `Action` but [`Action::Event`] is answered by the inputs that it names; a
//! container that has started ends with one [`Input::Exited`]; and [`Lifecycle::next`] is called after each input,
//! after each [`Lifecycle::update`] and when [`Lifecycle::deadline`] is reached.

mod backoff;
mod conditions;
mod phase;
mod plan;
mod probe;
mod resize;
mod restart_all;
mod slot;
mod status;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

pub use backoff::Backoff;
use capstan_clock::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, Pod, PodStatus};
pub use phase::should_restart;
pub use probe::ProbeKind;
pub use resize::{resize_message, same_resources, with_resources_of};
pub use slot::Role;
use slot::{Slot, State};

/// How long after a failure that has no back-off of its own the same thing is tried again.
pub const SYNC_RETRY: Duration = Duration::from_secs(10);
/// How long `ErrImagePull` is shown before it becomes `ImagePullBackOff`.
const PULL_ERROR_SHOWN: Duration = Duration::from_secs(2);
/// The least time that a container gets to end, whatever is left of the pod's.
pub const MINIMUM_GRACE: Duration = Duration::from_secs(2);

/// What is to be done next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the pod's directories and volumes: [`Input::Prepared`] or [`Input::PrepareFailed`].
    Prepare,
    /// Make what the containers share: [`Input::SandboxReady`] or [`Input::SandboxFailed`].
    CreateSandbox,
    /// Pull, create and start a container: [`Input::Started`] or [`Input::StartFailed`]; after `Started`, when it has a
    /// post-start hook, [`Input::PostStart`].
    Start {
        /// Which container.
        container: usize,
        /// How often it has been started before.
        attempt: u32,
    },
    /// Run the pre-stop hook and end the container within the grace period. [`Input::Exited`] follows.
    Kill {
        /// Which container.
        container: usize,
        /// The id that it was started with.
        id: String,
        /// From now until it is ended by force.
        grace: Duration,
    },
    /// Ask once: [`Input::Probed`].
    Probe {
        /// Which container.
        container: usize,
        /// The id that it was started with.
        id: String,
        /// Which of its probes.
        kind: ProbeKind,
    },
    /// Give a container that runs what its spec says now: [`Input::Resized`].
    Resize {
        /// Which container.
        container: usize,
        /// The id that it was started with.
        id: String,
    },
    /// Take down what the containers shared: [`Input::SandboxStopped`].
    StopSandbox,
    /// Tell the user.
    Event {
        /// The container that it is about, none for the pod.
        container: Option<usize>,
        /// Whether something is wrong.
        warning: bool,
        /// The reason in one word.
        reason: &'static str,
        /// The sentence.
        message: String,
    },
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Volumes are at their places.
    Prepared,
    /// They are not, and why.
    PrepareFailed {
        /// The event's reason, `FailedMount` for most.
        reason: &'static str,
        /// The sentence.
        message: String,
    },
    /// The sandbox is there, with these addresses.
    SandboxReady {
        /// The pod's addresses, the primary one first.
        ips: Vec<String>,
    },
    /// There is no sandbox, and why.
    SandboxFailed {
        /// The sentence.
        message: String,
    },
    /// The sandbox went away although nobody asked.
    SandboxLost,
    /// The sandbox is gone, as asked.
    SandboxStopped,
    /// The container's process runs.
    Started {
        /// Which container.
        container: usize,
        /// Its id, with the runtime's prefix (`containerd://…`).
        id: String,
        /// The image as resolved.
        image_id: String,
        /// Whether a post-start hook is still to be run.
        hook: bool,
    },
    /// It could not be started.
    StartFailed {
        /// Which container.
        container: usize,
        /// Why.
        failure: StartFailure,
    },
    /// The post-start hook ended; with a sentence when it failed.
    PostStart {
        /// Which container.
        container: usize,
        /// The id that it was started with.
        id: String,
        /// What went wrong.
        failure: Option<String>,
    },
    /// The container's process ended.
    Exited {
        /// Which container.
        container: usize,
        /// The id that it was started with.
        id: String,
        /// How.
        exit: Exit,
    },
    /// The container has other limits, or not and why.
    Resized {
        /// Which container.
        container: usize,
        /// The id that it was started with.
        id: String,
        /// What went wrong.
        failure: Option<String>,
    },
    /// A probe was answered.
    Probed {
        /// Which container.
        container: usize,
        /// The id that it was started with.
        id: String,
        /// Which of its probes.
        kind: ProbeKind,
        /// What came of it.
        outcome: Outcome,
    },
}

/// What came of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is well.
    Success,
    /// It is not, and what it said.
    Failure(String),
    /// The question itself could not be asked; this counts for nothing.
    Error(String),
}

/// Why a container could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartFailure {
    /// The image's name cannot be read.
    InvalidImageName(String),
    /// The image is not there and must not be pulled.
    NeverPull(String),
    /// It could not be asked whether the image is there.
    Inspect(String),
    /// Pulling failed.
    Pull(String),
    /// Its environment or mounts name something that is not there.
    Config(String),
    /// The runtime refused to make it.
    Create(String),
    /// It was made, but its process did not start: this counts as an exit with 128.
    Run(String),
}

/// How a container's process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was ended for using more memory than it may.
    pub oom_killed: bool,
    /// What it left as its termination message.
    pub message: String,
    /// When; the moment at which the machine hears of it, when the runtime doesn't know.
    pub at: Option<Timestamp>,
}

/// Why the pod is being ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    /// Somebody deleted it.
    Deleted,
    /// Its containers are done, for good or ill.
    Completed,
    /// The node decided; the pod has failed with this reason and message.
    Failed { reason: String, message: String },
}

#[derive(Clone, Debug)]
struct Termination {
    cause: Cause,
    deadline: Timestamp,
    stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sandbox {
    None,
    Creating,
    Ready,
    Stopping,
    Stopped,
}

/// One pod's life. See the module for the contract.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    pod: Arc<Pod>,
    slots: Vec<Slot>,
    sandbox: Sandbox,
    volumes: Volumes,
    /// When what failed for the pod as a whole is tried again.
    retry_at: Option<Timestamp>,
    ips: Vec<String>,
    host_ips: Vec<String>,
    started_at: Timestamp,
    initialized: bool,
    /// All containers are being ended to be started anew.
    restarting: bool,
    termination: Option<Termination>,
    /// Why the node does not give the pod what its spec says now: reason and message.
    pending_resize: Option<(String, String)>,
    /// Some container does not have yet what it was given.
    resizing: bool,
    published: PodStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Volumes {
    Missing,
    Preparing,
    Ready,
}

impl Lifecycle {
    /// A pod that this node is to run, with what its status tells of an earlier life on it.
    #[must_use]
    pub fn new(pod: Arc<Pod>, host_ips: Vec<String>, now: Timestamp) -> Self {
        let published = pod.status.clone().unwrap_or_default();
        let started_at = published.start_time.as_ref().map_or(now, |time| time.0);
        let mut lifecycle = Lifecycle {
            slots: Vec::new(),
            sandbox: Sandbox::None,
            volumes: Volumes::Missing,
            retry_at: None,
            ips: Vec::new(),
            host_ips,
            started_at,
            initialized: false,
            restarting: false,
            termination: None,
            pending_resize: None,
            resizing: false,
            published,
            pod: pod.clone(),
        };
        lifecycle.slots = slot::of(&pod, &lifecycle.published);
        lifecycle.initialized = lifecycle.slots.iter().any(|s| s.role == Role::Regular && s.has_started());
        let phase = lifecycle.published.phase.as_deref();
        if matches!(phase, Some("Succeeded" | "Failed")) {
            let termination = Termination { cause: Cause::Completed, deadline: now, stopped: false };
            lifecycle.termination = Some(termination);
        }
        lifecycle
    }

    /// Containers that the status says are running, by their ids, are still there: whoever ran them has kept them. The
    /// driver goes on from there as if it had started them.
    pub fn resume(&mut self, is_there: impl Fn(&str) -> bool) {
        let ips = self.published.pod_ips.iter().flatten().map(|ip| ip.ip.clone()).collect::<Vec<_>>();
        let mut resumed = false;
        for slot in &mut self.slots {
            resumed |= slot.resume(&is_there);
        }
        if resumed {
            self.sandbox = Sandbox::Ready;
            self.volumes = Volumes::Ready;
            self.ips = ips;
        }
    }

    /// The pod as last told.
    #[must_use]
    pub fn pod(&self) -> &Arc<Pod> {
        &self.pod
    }

    /// A new version of the pod: deleted, with other images, with ephemeral containers, with conditions of others.
    pub fn update(&mut self, pod: Arc<Pod>) {
        self.pod = pod;
        let known = self.slots.len();
        for slot in slot::of(&self.pod, &PodStatus::default()).into_iter().skip(known) {
            self.slots.push(slot);
        }
        for (index, slot) in self.slots.iter_mut().enumerate() {
            slot.spec = slot::container(&self.pod, index).map_or_else(|| slot.spec.clone(), Arc::new);
        }
    }

    /// The container at an index: init containers first, then regular ones, then ephemeral ones.
    #[must_use]
    pub fn container(&self, index: usize) -> Option<&Arc<Container>> {
        self.slots.get(index).map(|slot| &slot.spec)
    }

    /// What kind of container is at an index.
    #[must_use]
    pub fn role(&self, index: usize) -> Option<Role> {
        self.slots.get(index).map(|slot| slot.role)
    }

    /// The containers that run, by index and id.
    pub fn running(&self) -> impl Iterator<Item = (usize, &str)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| Some((index, slot.running_id()?)))
    }

    /// The addresses of the sandbox.
    #[must_use]
    pub fn ips(&self) -> &[String] {
        &self.ips
    }

    /// Whether the pod is being ended or has ended.
    #[must_use]
    pub fn terminating(&self) -> bool {
        self.termination.is_some()
    }

    /// Whether everything that ran is gone: the volumes can go, and the object, if it was deleted.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.termination.as_ref().is_some_and(|termination| termination.stopped)
    }

    /// The node gives the pod up: evicted, too long, not admitted. It fails with this reason.
    pub fn fail(&mut self, reason: &str, message: &str, grace: Option<Duration>, now: Timestamp) {
        let cause = Cause::Failed { reason: reason.to_owned(), message: message.to_owned() };
        if let Some(termination) = &mut self.termination {
            if termination.cause == Cause::Completed && !termination.stopped {
                termination.cause = cause;
            }
            return;
        }
        let grace = grace.unwrap_or_else(|| self.grace());
        self.termination = Some(Termination { cause, deadline: plus(now, grace), stopped: false });
    }

    /// The time the pod has to end.
    fn grace(&self) -> Duration {
        let spec = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = self.pod.metadata.deletion_grace_period_seconds.or(spec).unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    /// Something happened.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        match input {
            Input::Prepared => self.volumes = Volumes::Ready,
            Input::PrepareFailed { reason, message } => {
                self.volumes = Volumes::Missing;
                self.retry_at = Some(plus(now, SYNC_RETRY));
                actions.push(Action::Event { container: None, warning: true, reason, message });
            }
            Input::SandboxReady { ips } => {
                self.sandbox = Sandbox::Ready;
                self.ips = ips;
            }
            Input::SandboxFailed { message } => {
                self.sandbox = Sandbox::None;
                self.retry_at = Some(plus(now, SYNC_RETRY));
                let message = format!("Failed to create pod sandbox: {message}");
                actions.push(Action::Event {
                    container: None,
                    warning: true,
                    reason: "FailedCreatePodSandBox",
                    message,
                });
            }
            Input::SandboxLost => {
                if self.termination.is_none() && self.sandbox == Sandbox::Ready {
                    self.sandbox = Sandbox::None;
                    let message = "Pod sandbox changed, it will be killed and re-created.".to_owned();
                    actions.push(Action::Event { container: None, warning: false, reason: "SandboxChanged", message });
                }
            }
            Input::SandboxStopped => self.sandbox = Sandbox::Stopped,
            Input::Started { container, id, image_id, hook } => {
                if let Some(slot) = self.slots.get_mut(container) {
                    slot.start(id, image_id, hook, now);
                    self.initialized |= slot.role == Role::Regular;
                }
            }
            Input::StartFailed { container, failure } => {
                if let Some(slot) = self.slots.get_mut(container) {
                    slot.fail(failure, now);
                }
            }
            Input::PostStart { container, id, failure } => {
                if let Some(slot) = self.slots.get_mut(container).filter(|slot| slot.running_id() == Some(&id)) {
                    slot.post_start(failure.as_deref());
                    if let Some(message) = failure {
                        let (warning, container) = (true, Some(container));
                        actions.push(Action::Event { container, warning, reason: "FailedPostStartHook", message });
                    }
                }
            }
            Input::Exited { container, id, exit } => {
                if let Some(slot) = self.slots.get_mut(container).filter(|slot| slot.running_id() == Some(&id)) {
                    slot.exit(exit, now);
                }
            }
            Input::Resized { container, id, failure } => {
                if let Some(slot) = self.slots.get_mut(container).filter(|slot| slot.running_id() == Some(&id)) {
                    let told = slot.resized(failure, now);
                    actions.extend(told.map(|error| self.resize_event(true, "ResizeError", "error", &error)));
                }
            }
            Input::Probed { container, id, kind, outcome } => {
                if let Some(slot) = self.slots.get_mut(container).filter(|slot| slot.running_id() == Some(&id)) {
                    actions.extend(slot.probed(kind, outcome).map(|message| Action::Event {
                        container: Some(container),
                        warning: true,
                        reason: "Unhealthy",
                        message,
                    }));
                }
            }
        }
        actions
    }
}

/// The moment `later` after `at`.
pub(crate) fn plus(at: Timestamp, later: Duration) -> Timestamp {
    at.checked_add(later).unwrap_or(Timestamp::MAX)
}

/// How long ago `earlier` was, nothing when it lies ahead.
pub(crate) fn since(now: Timestamp, earlier: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(earlier)).unwrap_or(Duration::ZERO)
}

/// A terminated state's time of ending.
fn finished_at(terminated: &ContainerStateTerminated) -> Option<Timestamp> {
    terminated.finished_at.as_ref().map(|time| time.0)
}
