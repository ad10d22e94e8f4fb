//! One pod on a real runtime: does what the pod's [`Lifecycle`] asks for, and tells it what came of it.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError},
    time::Duration,
};

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{LifecycleHandler, Pod},
    apimachinery::pkg::apis::meta::v1::Time,
};
use tokio::sync::{mpsc, watch};

use super::{
    probe::Target,
    publish::Publisher,
    sandbox,
    shared::{ContainerHandle, PodHandle, Shared},
    start::{Start, Started, limits, message_file},
};
use crate::{
    lifecycle::{Action, Exit, Input, Lifecycle, MINIMUM_GRACE, Outcome, Role, SYNC_RETRY, since},
    logs,
    runtime::{Answer, LeftOver, RuntimeError, SandboxConfig},
    volumes::{Prepared, Volumes},
};

/// How many answers may wait for the machine: whoever has more waits.
const MAX_INPUTS: usize = 64;
/// The most of a container's last words that are kept.
const MAX_TERMINATION_MESSAGE: usize = 4096;
/// The most that is taken from the log in their place.
const MAX_MESSAGE_FROM_LOG: (usize, usize) = (80, 2048);

/// What is wanted of a pod.
#[derive(Clone, Debug)]
pub(super) struct Desired {
    pub(super) pod: Arc<Pod>,
    /// Why it does not get the resources that its object asks for; then `pod` has those that it was given before.
    pub(super) pending: Option<(String, String)>,
    /// The object is gone: nobody will read a status.
    pub(super) gone: bool,
    /// The node gives it up: reason, message, grace period, and whether this is a disruption.
    pub(super) fail: Option<(String, String, Option<Duration>, bool)>,
}

impl Desired {
    /// The pod as it is wanted, if `known` is not that. One removed by force was perhaps never seen to end, and
    /// its containers must go all the same.
    fn newer_than(&self, known: &Arc<Pod>, now: Timestamp) -> Option<Arc<Pod>> {
        let ends = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
        if self.gone && !ends(&self.pod) {
            let mut pod = (*self.pod).clone();
            pod.metadata.deletion_timestamp = Some(Time(now));
            return (!ends(known)).then(|| Arc::new(pod));
        }
        // Its end may be seen together with its going: what was not heard of before counts then too.
        (!Arc::ptr_eq(known, &self.pod)).then(|| self.pod.clone())
    }
}

/// A container as the worker knows it.
#[derive(Clone, Debug)]
struct Instance {
    id: String,
    attempt: u32,
    running: bool,
    message_file: PathBuf,
}

/// What an answer tells besides its input.
enum Report {
    Input(Input),
    Sandbox(Result<(String, Vec<String>), String>, Box<SandboxConfig>),
    Volumes(Box<Volumes>, Result<BTreeMap<String, Prepared>, String>),
    Started(usize, u32, Result<Started, crate::lifecycle::StartFailure>),
}

pub(super) struct Worker {
    shared: Arc<Shared>,
    life: Lifecycle,
    desired: watch::Receiver<Desired>,
    reports: mpsc::Sender<Report>,
    publisher: Publisher,
    sandbox: Option<(String, SandboxConfig)>,
    sandboxes: u32,
    volumes: Option<Box<Volumes>>,
    prepared: BTreeMap<String, Prepared>,
    instances: BTreeMap<usize, Instance>,
    failed: bool,
    /// The pod is being ended: nothing needs to be pulled for it any more.
    ending: watch::Sender<bool>,
    next_sync: Timestamp,
}

impl Worker {
    /// Lives as long as the pod is on this node; ends when its object is gone, or the node ends.
    pub(super) async fn run(shared: Arc<Shared>, desired: watch::Receiver<Desired>) {
        let pod = desired.borrow().pod.clone();
        let now = shared.clock.now();
        let life = Lifecycle::new(pod.clone(), shared.host_ips.clone(), now);
        let (reports, mut inbox) = mpsc::channel(MAX_INPUTS);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let dir = shared.pod_dir(&uid);
        let volumes = Volumes::new(shared.client.clone(), shared.clock.clone(), shared.ids.clone(), dir);
        let publisher = Publisher::new(&shared, &pod);
        let next_sync = crate::lifecycle::plus(now, shared.sync_frequency);
        let mut worker = Worker {
            shared: shared.clone(),
            life,
            desired,
            reports,
            publisher,
            sandbox: None,
            sandboxes: 0,
            volumes: Some(Box::new(volumes)),
            prepared: BTreeMap::new(),
            instances: BTreeMap::new(),
            failed: false,
            ending: watch::Sender::new(false),
            next_sync,
        };
        worker.recall();
        let left = shared.left_over.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        if let Some(left) = left {
            worker.adopt(left).await;
        }
        while worker.turn(&mut inbox).await {}
        worker.clean_up().await;
        shared.pods().remove(&uid);
    }

    /// Containers of an earlier life of the node: nothing runs of them, but their logs can be read.
    fn recall(&mut self) {
        let pod = self.life.pod().clone();
        let status = pod.status.clone().unwrap_or_default();
        let lists = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
        let known: Vec<_> = lists.into_iter().flatten().flatten().collect();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for (index, spec) in (0..).map_while(|index| Some((index, self.life.container(index)?.clone()))) {
            let Some(attempt) = logs::last_attempt(&self.shared.log_dir(&pod).join(&spec.name)) else { continue };
            let id = known.iter().find(|status| status.name == spec.name).and_then(|s| s.container_id.clone());
            let id = self.raw(&id.unwrap_or_default()).to_owned();
            let message_file = message_file(&self.shared, uid, &spec.name, attempt);
            self.instances.insert(index, Instance { id, attempt, running: false, message_file });
        }
    }

    /// Takes over what an earlier life of the node has left of the pod. What its status does not know of is ended: it
    /// was begun, but nobody has been told.
    async fn adopt(&mut self, left: LeftOver) {
        let there: BTreeMap<String, _> =
            left.containers.iter().map(|container| (self.named(&container.id), container)).collect();
        self.life.resume(|id| there.contains_key(id));
        let resumed: Vec<(usize, String)> = self.life.running().map(|(index, id)| (index, id.to_owned())).collect();
        self.sandboxes = left.attempt + 1;
        if resumed.is_empty() {
            let _ = self.shared.runtime.stop_sandbox(&left.sandbox.id).await;
            return;
        }
        self.sandbox = Some((left.sandbox.id.clone(), sandbox::config(&self.shared, self.life.pod(), self.sandboxes)));
        let uid = self.life.pod().metadata.uid.clone().unwrap_or_default();
        for (index, id) in &resumed {
            let Some(record) = there.get(id) else { continue };
            let message_file = message_file(&self.shared, &uid, &record.name, record.attempt);
            let instance = Instance {
                id: record.id.clone(),
                attempt: record.attempt,
                running: true,
                message_file: message_file.clone(),
            };
            self.instances.insert(*index, instance);
            self.wait_for_end(*index, id, record.id.clone(), message_file);
        }
        for container in &left.containers {
            if !resumed.iter().any(|(_, id)| *id == self.named(&container.id)) {
                let _ = self.shared.runtime.stop_container(&container.id, Duration::ZERO).await;
                let _ = self.shared.runtime.remove_container(&container.id).await;
            }
        }
        self.prepare();
    }

    /// One turn: what is to be done is begun, the status goes out, then it waits. False when all is over.
    async fn turn(&mut self, inbox: &mut mpsc::Receiver<Report>) -> bool {
        self.look();
        let now = self.shared.clock.now();
        for action in self.life.next(now) {
            self.act(action);
        }
        self.ending.send_replace(self.life.terminating());
        let now = self.shared.clock.now();
        self.resync(now);
        self.publish(now);
        let desired = self.desired.borrow().clone();
        if self.life.finished() && (desired.gone || desired.pod.metadata.deletion_timestamp.is_some()) {
            // The object goes only when nothing of the pod is left, and after its last status.
            if !desired.gone {
                self.publisher.settle().await;
                self.publisher.delete().await;
            }
            return false;
        }
        let wake = [self.life.deadline(), self.needs_sync().then_some(self.next_sync)].into_iter().flatten().min();
        let clock = self.shared.clock.clone();
        let sleep = async {
            match wake {
                Some(at) => clock.sleep(since(at, now)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            report = inbox.recv() => {
                if let Some(report) = report {
                    self.hear(report);
                }
            }
            changed = self.desired.changed() => return changed.is_ok(),
            () = sleep => {}
        }
        true
    }

    /// Takes in what is wanted.
    fn look(&mut self) {
        let desired = self.desired.borrow_and_update().clone();
        let now = self.shared.clock.now();
        if let Some(pod) = desired.newer_than(self.life.pod(), now) {
            self.life.update(pod);
        }
        self.life.set_pending_resize(desired.pending);
        if let Some((reason, message, grace, disruption)) = desired.fail.filter(|_| !self.failed) {
            self.failed = true;
            if disruption {
                self.life.disrupt("TerminationByKubelet", &message, now);
            }
            self.life.fail(&reason, &message, grace, now);
        }
    }

    fn hear(&mut self, report: Report) {
        let now = self.shared.clock.now();
        let input = match report {
            Report::Input(input) => input,
            Report::Volumes(volumes, result) => {
                self.volumes = Some(volumes);
                match result {
                    Ok(prepared) => {
                        self.prepared = prepared;
                        Input::Prepared
                    }
                    Err(message) => Input::PrepareFailed { reason: "FailedMount", message },
                }
            }
            Report::Sandbox(result, config) => match result {
                Ok((id, ips)) => {
                    self.sandbox = Some((id, *config));
                    // A pod on the node's network has the node's addresses, whatever the runtime gives to others.
                    let on_node = self.life.pod().spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
                    Input::SandboxReady { ips: if on_node { self.shared.host_ips.clone() } else { ips } }
                }
                Err(message) => Input::SandboxFailed { message },
            },
            Report::Started(container, attempt, result) => match result {
                Ok(started) => return self.started(container, attempt, started),
                Err(failure) => Input::StartFailed { container, failure },
            },
        };
        if let Input::Exited { container, .. } = &input
            && let Some(instance) = self.instances.get_mut(container)
        {
            instance.running = false;
        }
        // Volumes are made anew while the pod runs; the machine needs to hear only of the first time.
        if matches!(&input, Input::PrepareFailed { .. }) && self.sandbox.is_some() {
            if let Input::PrepareFailed { reason, message } = input {
                self.shared.event(self.life.pod(), None, true, reason, message);
            }
            return;
        }
        for action in self.life.handle(input, now) {
            self.act(action);
        }
    }

    fn started(&mut self, container: usize, attempt: u32, started: Started) {
        let now = self.shared.clock.now();
        let Some(spec) = self.life.container(container).cloned() else { return };
        let hook = spec.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.clone());
        let id = self.named(&started.id);
        let instance =
            Instance { id: started.id.clone(), attempt, running: true, message_file: started.message_file.clone() };
        if let Some(old) = self.instances.insert(container, instance) {
            let shared = self.shared.clone();
            // Its log stays, for `kubectl logs --previous`; what the runtime has of it isn't needed any more.
            tokio::spawn(async move { shared.runtime.remove_container(&old.id).await });
        }
        for dir in [self.log_path(container), started.message_file.clone()].iter().filter_map(|file| file.parent()) {
            logs::forget(dir, attempt.saturating_sub(1));
        }
        let input =
            Input::Started { container, id: id.clone(), image_id: started.image_id.clone(), hook: hook.is_some() };
        for action in self.life.handle(input, now) {
            self.act(action);
        }
        self.wait_for_end(container, &id, started.id.clone(), started.message_file);
        if let Some(hook) = hook {
            let (target, pod, reports) = (self.target(container, &id), self.life.pod().clone(), self.reports.clone());
            tokio::spawn(async move {
                let failure = target.hook(&pod, &hook).await.err();
                let _ = reports.send(Report::Input(Input::PostStart { container, id, failure })).await;
            });
        }
    }

    /// Tells the machine when a container has ended, with its last words.
    fn wait_for_end(&self, container: usize, id: &str, raw: String, message_file: PathBuf) {
        let (shared, reports, id) = (self.shared.clone(), self.reports.clone(), id.to_owned());
        let spec = self.life.container(container).cloned();
        let log = self.log_path(container);
        tokio::spawn(async move {
            let mut exit = shared.runtime.wait(&raw).await.unwrap_or_else(|error| Exit {
                code: 137,
                message: error.to_string(),
                ..Exit::default()
            });
            let said = std::fs::read(&message_file).unwrap_or_default();
            let said = &said[..said.len().min(MAX_TERMINATION_MESSAGE)];
            exit.message.push_str(&String::from_utf8_lossy(said));
            let policy = spec.as_ref().and_then(|spec| spec.termination_message_policy.as_deref());
            if exit.message.is_empty() && exit.code != 0 && policy == Some("FallbackToLogsOnError") {
                exit.message = logs::tail(&log, MAX_MESSAGE_FROM_LOG.0, MAX_MESSAGE_FROM_LOG.1);
            }
            let _ = reports.send(Report::Input(Input::Exited { container, id, exit })).await;
        });
    }

    fn log_path(&self, container: usize) -> PathBuf {
        let name = self.life.container(container).map(|spec| spec.name.clone()).unwrap_or_default();
        let attempt = self.instances.get(&container).map_or(0, |instance| instance.attempt);
        self.shared.log_dir(self.life.pod()).join(name).join(format!("{attempt}.log"))
    }

    /// An id as the API has it.
    fn named(&self, id: &str) -> String {
        format!("{}://{id}", self.shared.runtime.name())
    }

    fn raw<'a>(&self, id: &'a str) -> &'a str {
        id.split_once("://").map_or(id, |(_, raw)| raw)
    }

    fn target(&self, container: usize, id: &str) -> Target {
        let spec = self.life.container(container).cloned().unwrap_or_default();
        let ips = if self.life.ips().is_empty() { &self.shared.host_ips } else { self.life.ips() };
        let ip = ips.first().cloned().unwrap_or_else(|| "127.0.0.1".to_owned());
        Target { shared: self.shared.clone(), container: spec, id: self.raw(id).to_owned(), ip }
    }

    /// Begins what the machine asks for.
    fn act(&mut self, action: Action) {
        let (shared, reports) = (self.shared.clone(), self.reports.clone());
        match action {
            Action::Event { container, warning, reason, message } => {
                let of = container.and_then(|index| Some((self.life.role(index)?, self.life.container(index)?)));
                let of = of.map(|(role, spec)| (role, spec.name.as_str()));
                self.shared.event(self.life.pod(), of, warning, reason, message);
            }
            Action::Prepare => self.prepare(),
            Action::CreateSandbox => {
                let pod = self.life.pod().clone();
                let mut config = sandbox::config(&shared, &pod, self.sandboxes);
                self.sandboxes += 1;
                tokio::spawn(async move {
                    let made = match sandbox::complete(&shared, &pod, &mut config).await {
                        Ok(()) => shared.runtime.run_sandbox(&config).await.map_err(|error| error.to_string()),
                        Err(error) => Err(error),
                    };
                    let made = made.map(|sandbox| (sandbox.id, sandbox.ips));
                    let _ = reports.send(Report::Sandbox(made, Box::new(config))).await;
                });
            }
            Action::Start { container, attempt } => {
                let (Some(spec), Some(role)) = (self.life.container(container).cloned(), self.life.role(container))
                else {
                    return;
                };
                let Some(sandbox) = self.sandbox.clone() else { return };
                let start = Start {
                    shared,
                    pod: self.life.pod().clone(),
                    container: spec,
                    role,
                    attempt,
                    sandbox,
                    ips: self.life.ips().to_vec(),
                    volumes: self.prepared.clone(),
                    ending: self.ending.subscribe(),
                };
                tokio::spawn(async move {
                    let result = start.run().await;
                    let _ = reports.send(Report::Started(container, attempt, result)).await;
                });
            }
            Action::Kill { container, id, grace } => self.kill(container, &id, grace),
            Action::Probe { container, id, kind } => {
                let target = self.target(container, &id);
                tokio::spawn(async move {
                    let outcome = match kind.of(&target.container) {
                        Some(probe) => target.probe(probe).await,
                        None => Outcome::Success,
                    };
                    let _ = reports.send(Report::Input(Input::Probed { container, id, kind, outcome })).await;
                });
            }
            Action::Resize { container, id } => {
                let Some(spec) = self.life.container(container).cloned() else { return };
                let limits = limits(&shared, self.life.pod(), &spec);
                let raw = self.raw(&id).to_owned();
                tokio::spawn(async move {
                    let failure = shared.runtime.update_limits(&raw, &limits).await.err();
                    let failure = failure.map(|error| error.to_string());
                    let _ = reports.send(Report::Input(Input::Resized { container, id, failure })).await;
                });
            }
            Action::StopSandbox => {
                let (sandbox, pod) = (self.sandbox.take(), self.life.pod().clone());
                tokio::spawn(async move {
                    if let Some((id, _)) = sandbox {
                        until_stopped(&shared, &pod, &reports, || shared.runtime.stop_sandbox(&id)).await;
                    }
                    let _ = reports.send(Report::Input(Input::SandboxStopped)).await;
                });
            }
        }
    }

    fn kill(&self, container: usize, id: &str, grace: Duration) {
        let hook = self.life.container(container).and_then(|spec| spec.lifecycle.as_ref()?.pre_stop.clone());
        let target = self.target(container, id);
        let (pod, role) = (self.life.pod().clone(), self.life.role(container).unwrap_or(Role::Regular));
        let (shared, reports) = (self.shared.clone(), self.reports.clone());
        tokio::spawn(async move {
            let began = shared.clock.monotonic();
            if let Some(hook) = hook.filter(|_| !grace.is_zero()) {
                pre_stop(&target, &pod, role, &hook, grace).await;
            }
            until_stopped(&shared, &pod, &reports, || {
                let used = shared.clock.monotonic().since(began);
                let left = if grace.is_zero() { grace } else { grace.saturating_sub(used).max(MINIMUM_GRACE) };
                shared.runtime.stop_container(&target.id, left)
            })
            .await;
        });
    }

    fn prepare(&mut self) {
        let Some(mut volumes) = self.volumes.take() else { return };
        let (pod, reports) = (self.life.pod().clone(), self.reports.clone());
        let facts = self.shared.facts(self.life.ips());
        let dir = self.shared.pod_dir(pod.metadata.uid.as_deref().unwrap_or_default());
        tokio::spawn(async move {
            let made = std::fs::create_dir_all(&dir).map_err(|e| format!("error making pod data directories: {e}"));
            let result = match made {
                Ok(()) => volumes.prepare(&pod, &facts).await,
                Err(error) => Err(error),
            };
            let _ = reports.send(Report::Volumes(volumes, result)).await;
        });
    }

    /// Whether the pod has volumes whose content may change.
    fn needs_sync(&self) -> bool {
        let volumes = self.life.pod().spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let live = |v: &k8s_openapi::api::core::v1::Volume| {
            v.config_map.is_some() || v.secret.is_some() || v.projected.is_some() || v.downward_api.is_some()
        };
        self.sandbox.is_some() && self.life.running().next().is_some() && volumes.into_iter().any(live)
    }

    fn resync(&mut self, now: Timestamp) {
        if self.next_sync <= now {
            self.next_sync = crate::lifecycle::plus(now, self.shared.sync_frequency);
            if self.needs_sync() && !self.life.terminating() {
                self.prepare();
            }
        }
    }

    fn publish(&mut self, now: Timestamp) {
        let status = self.life.status(now);
        let containers = self.instances.iter().filter_map(|(&index, instance)| {
            let spec = self.life.container(index)?;
            let handle = ContainerHandle {
                role: self.life.role(index)?,
                id: instance.id.clone(),
                attempt: instance.attempt,
                running: instance.running,
                tty: spec.tty.unwrap_or(false),
            };
            Some((spec.name.clone(), handle))
        });
        let handle = PodHandle {
            pod: self.life.pod().clone(),
            status: status.clone(),
            sandbox: self.sandbox.as_ref().map(|(id, _)| id.clone()),
            containers: containers.collect(),
            logs: self.shared.log_dir(self.life.pod()),
        };
        let uid = handle.pod.metadata.uid.clone().unwrap_or_default();
        self.shared.pods().insert(uid, handle);
        if !self.desired.borrow().gone {
            self.publisher.publish(self.life.pod(), status);
        }
    }

    async fn clean_up(&mut self) {
        for instance in self.instances.values() {
            let _ = self.shared.runtime.remove_container(&instance.id).await;
            let _ = &instance.message_file;
        }
        if let Some((id, _)) = self.sandbox.take() {
            let _ = self.shared.runtime.stop_sandbox(&id).await;
        }
        if !self.life.finished() {
            // The node ends, the pod doesn't: its files are for its next life.
            return;
        }
        if let Some(volumes) = &self.volumes
            && let Err(error) = volumes.tear_down()
        {
            let message = format!("Unable to remove the pod's files: {error}");
            self.shared.event(self.life.pod(), None, true, "FailedUnMount", message);
        }
        let _ = std::fs::remove_dir_all(self.shared.log_dir(self.life.pod()));
    }
}

/// Stops something, again and again until it is stopped or gone, or nobody waits for it any more.
async fn until_stopped<'a>(
    shared: &Shared,
    pod: &Pod,
    waiting: &mpsc::Sender<Report>,
    mut stop: impl FnMut() -> Answer<'a, ()>,
) {
    while let Err(error) = stop().await {
        if matches!(error, RuntimeError::NotFound(_)) || waiting.is_closed() {
            return;
        }
        shared.event(pod, None, true, "FailedKillPod", format!("error killing pod: {error}"));
        shared.clock.sleep(SYNC_RETRY).await;
    }
}

/// Runs a hook, for as long as the container has.
pub(super) async fn pre_stop(target: &Target, pod: &Pod, role: Role, hook: &LifecycleHandler, grace: Duration) {
    let shared = &target.shared;
    let done = tokio::select! {
        done = target.hook(pod, hook) => done,
        () = shared.clock.sleep(grace) => Err("PreStopHook not completed in grace period".to_owned()),
    };
    if let Err(message) = done {
        shared.event(pod, Some((role, &target.container.name)), true, "FailedPreStopHook", message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever of a deletion is seen, and however much of it at once, the pod ends; and it is told so once.
    #[test]
    fn a_pod_that_goes_ends() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let known = Arc::new(Pod::default());
        let mut ending = Pod::default();
        ending.metadata.deletion_timestamp = Some(Time(now));
        let ending = Arc::new(ending);
        let desired = |pod: &Arc<Pod>, gone| Desired { pod: pod.clone(), pending: None, gone, fail: None };
        assert!(desired(&known, false).newer_than(&known, now).is_none(), "nothing is new");
        for (pod, gone) in [(&ending, false), (&ending, true), (&known, true)] {
            let desired = desired(pod, gone);
            let told = desired.newer_than(&known, now).unwrap();
            assert!(told.metadata.deletion_timestamp.is_some(), "gone: {gone}");
            assert!(desired.newer_than(&told, now).is_none(), "once is enough, gone: {gone}");
        }
    }
}
