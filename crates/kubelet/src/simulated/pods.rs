//! All pods of all simulated nodes: one loop, one heap of times, writes that are under way.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use capstan_api::options::{DeleteOptions, Preconditions};
use capstan_client::{Api, Client, Lister, Patch};
use capstan_clock::{SharedClock, SharedIds, Timestamp};
use capstan_runtime::{EventRecorder, EventType};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::json;
use tokio::sync::mpsc;

use super::{Stage, address, stage};
use crate::{
    dirty::Dirty,
    lifecycle::{Action, Exit, Input, Lifecycle, Outcome, plus, since},
    node::reference,
};

/// How many writes may be under way at once.
const MAX_WRITES: usize = 64;
/// How long after a write that failed it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Something that will happen to a pod; nothing when it only has to be looked at.
struct Later {
    uid: Arc<str>,
    input: Option<Input>,
}

struct Entry {
    life: Lifecycle,
    stage: Stage,
    ip: String,
    written: Option<PodStatus>,
    writing: bool,
    starts: u32,
    key: (String, String),
    /// The earliest time at which it is already known to be looked at.
    wake: Option<Timestamp>,
    gone: bool,
}

/// A write that has ended.
struct Done {
    uid: Arc<str>,
    result: Result<Option<PodStatus>, ()>,
}

pub(super) struct Pods {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    stages: Arc<Vec<Stage>>,
    nodes: HashSet<String>,
    lister: Lister<Pod>,
    entries: HashMap<Arc<str>, Entry>,
    by_name: BTreeMap<(String, String), Arc<str>>,
    times: BinaryHeap<Reverse<(Timestamp, u64)>>,
    later: HashMap<u64, Later>,
    number: u64,
    addresses: usize,
    /// Whose status is to be written, in order.
    backlog: VecDeque<Arc<str>>,
    writing: usize,
    /// Who is told what happens, if anybody.
    recorder: Option<EventRecorder>,
}

impl Pods {
    pub(super) fn new(
        client: Client,
        clock: SharedClock,
        ids: SharedIds,
        stages: Arc<Vec<Stage>>,
        names: Vec<String>,
        lister: Lister<Pod>,
    ) -> Self {
        Pods {
            client,
            clock,
            ids,
            stages,
            nodes: names.into_iter().collect(),
            lister,
            entries: HashMap::new(),
            by_name: BTreeMap::new(),
            times: BinaryHeap::new(),
            later: HashMap::new(),
            number: 0,
            addresses: 1,
            backlog: VecDeque::new(),
            writing: 0,
            recorder: None,
        }
    }

    pub(super) fn recorder(self, recorder: Option<EventRecorder>) -> Self {
        Pods { recorder, ..self }
    }

    pub(super) async fn run(mut self, changed: &Dirty) {
        let (done, mut writes) = mpsc::channel::<Done>(MAX_WRITES);
        loop {
            let now = self.clock.now();
            let next = self.times.peek().map(|Reverse((at, _))| *at);
            let clock = self.clock.clone();
            let sleep = async {
                match next {
                    Some(at) => clock.sleep(since(at, now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = changed.notified() => {
                    for key in changed.take() {
                        self.look(key);
                    }
                }
                () = sleep => self.tick(),
                written = writes.recv() => {
                    if let Some(written) = written {
                        self.written(written);
                    }
                }
            }
            self.write(&done);
        }
    }

    /// Compares a pod with what the API says of it now.
    fn look(&mut self, key: (String, String)) {
        let pod = self.lister.namespace(&key.0).get(&key.1);
        let pod = pod.filter(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            node.is_some_and(|node| self.nodes.contains(node))
        });
        let uid: Option<Arc<str>> = pod.as_ref().and_then(|pod| pod.metadata.uid.as_deref()).map(Into::into);
        if let Some(known) = self.by_name.get(&key).cloned()
            && Some(&known) != uid.as_ref()
        {
            self.by_name.remove(&key);
            self.entries.remove(&known);
        }
        let (Some(pod), Some(uid)) = (pod, uid) else { return };
        let now = self.clock.now();
        match self.entries.get_mut(&uid) {
            Some(entry) => entry.life.update(pod),
            None => {
                self.addresses += 1;
                let written = pod.status.clone();
                let known = written.as_ref().and_then(|status| status.pod_ip.clone());
                let stage = stage(&self.stages, &pod);
                let mut life = Lifecycle::new(pod, Vec::new(), now);
                // What ran before this process began still does: nothing but this process could have ended it.
                life.resume(|_| true);
                let running: Vec<(usize, String)> = life.running().map(|(index, id)| (index, id.to_owned())).collect();
                for (container, id) in running {
                    if let Some((runs, code)) = stage.end {
                        let exit = Exit { code, ..Exit::default() };
                        let at = plus(now, runs.draw(&*self.ids));
                        self.at(at, &uid, Some(Input::Exited { container, id, exit }));
                    }
                }
                let entry = Entry {
                    stage,
                    ip: known.unwrap_or_else(|| address(100, self.addresses)),
                    life,
                    written,
                    writing: false,
                    starts: 0,
                    key: key.clone(),
                    wake: None,
                    gone: false,
                };
                self.by_name.insert(key, uid.clone());
                self.entries.insert(uid.clone(), entry);
            }
        }
        self.go_on(&uid, now);
    }

    /// Everything whose time has come.
    fn tick(&mut self) {
        let now = self.clock.now();
        while let Some(Reverse((at, number))) = self.times.peek().copied() {
            if at > now {
                return;
            }
            self.times.pop();
            let Some(later) = self.later.remove(&number) else { continue };
            if let Some(entry) = self.entries.get_mut(&later.uid) {
                match later.input {
                    Some(input) => {
                        for action in entry.life.handle(input, now) {
                            tell(self.recorder.as_ref(), &entry.life, &action);
                        }
                    }
                    None => entry.wake = None,
                }
                self.go_on(&later.uid, now);
            }
        }
    }

    fn at(&mut self, at: Timestamp, uid: &Arc<str>, input: Option<Input>) {
        self.number += 1;
        self.times.push(Reverse((at, self.number)));
        self.later.insert(self.number, Later { uid: uid.clone(), input });
    }

    /// Does what the pod's machine asks for, by the pod's rules.
    fn go_on(&mut self, uid: &Arc<str>, now: Timestamp) {
        let mut events = Vec::new();
        let Some(entry) = self.entries.get_mut(uid) else { return };
        loop {
            let actions = entry.life.next(now);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                tell(self.recorder.as_ref(), &entry.life, &action);
                let at_once = match action {
                    Action::Event { .. } => None,
                    Action::Prepare => Some(Input::Prepared),
                    Action::CreateSandbox => Some(Input::SandboxReady { ips: vec![entry.ip.clone()] }),
                    Action::Resize { container, id } => Some(Input::Resized { container, id, failure: None }),
                    Action::StopSandbox => Some(Input::SandboxStopped),
                    Action::Probe { container, id, kind } => {
                        Some(Input::Probed { container, id, kind, outcome: Outcome::Success })
                    }
                    Action::Start { container, .. } => {
                        entry.starts += 1;
                        let id = format!("simulated://{uid}-{}", entry.starts);
                        let runs_at = plus(now, entry.stage.start.draw(&*self.ids));
                        let image_id = entry.life.container(container).and_then(|c| c.image.clone());
                        let image_id = image_id.unwrap_or_default();
                        let is_init = entry.life.role(container) == Some(crate::lifecycle::Role::Init);
                        let end = if is_init { Some((super::Delay::default(), 0)) } else { entry.stage.end };
                        if let Some((runs, code)) = end {
                            let exit = Exit { code, ..Exit::default() };
                            let ends_at = plus(runs_at, runs.draw(&*self.ids));
                            events.push((ends_at, Input::Exited { container, id: id.clone(), exit }));
                        }
                        let started = Input::Started { container, id, image_id, hook: false };
                        if runs_at > now {
                            events.push((runs_at, started));
                            None
                        } else {
                            Some(started)
                        }
                    }
                    Action::Kill { container, id, grace } => {
                        let delay = entry.stage.stop.draw(&*self.ids).min(grace);
                        let exited = Input::Exited { container, id, exit: Exit::default() };
                        if delay.is_zero() {
                            Some(exited)
                        } else {
                            events.push((plus(now, delay), exited));
                            None
                        }
                    }
                };
                if let Some(input) = at_once {
                    entry.life.handle(input, now);
                }
            }
        }
        let deadline = entry.life.deadline().filter(|at| entry.wake.is_none_or(|wake| *at < wake));
        if deadline.is_some() {
            entry.wake = deadline;
        }
        // A start must be known before an end of the same moment: the heap keeps the order in which they came.
        events.sort_by_key(|(at, input)| (*at, matches!(input, Input::Exited { .. })));
        for (at, input) in events {
            self.at(at, uid, Some(input));
        }
        if let Some(at) = deadline {
            self.at(at, uid, None);
        }
        self.backlog.push_back(uid.clone());
    }

    /// Begins as many writes as there may be.
    fn write(&mut self, done: &mpsc::Sender<Done>) {
        while self.writing < MAX_WRITES {
            let Some(uid) = self.backlog.pop_front() else { return };
            let now = self.clock.now();
            let Some(entry) = self.entries.get_mut(&uid) else { continue };
            if entry.writing || entry.gone {
                continue;
            }
            let status = entry.life.status(now);
            let changed = entry.written.as_ref() != Some(&status);
            let delete = entry.life.finished() && entry.life.pod().metadata.deletion_timestamp.is_some();
            if !changed && !delete {
                continue;
            }
            entry.writing = true;
            entry.gone = delete;
            self.writing += 1;
            let (client, done, key) = (self.client.clone(), done.clone(), entry.key.clone());
            tokio::spawn(async move {
                let pods = Api::<Pod>::namespaced(&client, &key.0);
                let result = if delete {
                    let preconditions = Preconditions { uid: Some(uid.to_string()), ..Preconditions::default() };
                    let options = DeleteOptions {
                        grace_period_seconds: Some(0),
                        preconditions: Some(preconditions),
                        ..DeleteOptions::default()
                    };
                    pods.delete(&key.1, &options).await.map(|()| None)
                } else {
                    let patch = json!({"metadata": {"uid": &*uid}, "status": status});
                    pods.patch_status(&key.1, &Patch::Strategic(patch)).await.map(|_| Some(status))
                };
                let result = match result {
                    Ok(status) => Ok(status),
                    // What can't be written any more needs no writing.
                    Err(error) if error.is_not_found() || error.is_conflict() || error.is_invalid() => Ok(None),
                    Err(_) => Err(()),
                };
                let _ = done.send(Done { uid, result }).await;
            });
        }
    }

    fn written(&mut self, done: Done) {
        self.writing -= 1;
        let retry_at = plus(self.clock.now(), RETRY);
        let Some(entry) = self.entries.get_mut(&done.uid) else { return };
        entry.writing = false;
        match done.result {
            Ok(Some(status)) => {
                entry.written = Some(status);
                // It may have changed while it was written.
                self.backlog.push_back(done.uid);
            }
            Ok(None) => {}
            Err(()) => {
                entry.gone = false;
                self.at(retry_at, &done.uid, None);
            }
        }
    }
}

/// Tells of what is done with a pod, as a node would.
fn tell(recorder: Option<&EventRecorder>, life: &Lifecycle, action: &Action) {
    let Some(recorder) = recorder else { return };
    let of = |index: usize| Some((life.role(index)?, life.container(index)?));
    let event = |container: Option<usize>, warning: bool, reason: &str, message: &str| {
        let container = container.and_then(of).map(|(role, spec)| (role, spec.name.as_str()));
        let kind = if warning { EventType::Warning } else { EventType::Normal };
        recorder.event(&reference(life.pod(), container), kind, reason, message);
    };
    match action {
        Action::Event { container, warning, reason, message } => event(*container, *warning, reason, message),
        Action::Start { container, .. } => {
            let image = of(*container).and_then(|(_, spec)| spec.image.clone()).unwrap_or_default();
            let pulled = format!("Container image \"{image}\" already present on machine");
            for (reason, message) in
                [("Pulled", pulled.as_str()), ("Created", "Container created"), ("Started", "Container started")]
            {
                event(Some(*container), false, reason, message);
            }
        }
        _ => {}
    }
}
