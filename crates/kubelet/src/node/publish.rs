//! Writing a pod's status: the newest one, once it has changed, until it is written.

use std::{sync::Arc, time::Duration};

use capstan_api::options::{DeleteOptions, Preconditions};
use capstan_client::{Api, Error, Patch};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{eviction::is_static, shared::Shared};

/// How long after a write that failed it is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long at most after a write that was refused, again and again.
const MAX_RETRY: Duration = Duration::from_secs(300);
/// Conditions that come and go: a patch has to say so when they are gone.
const PASSING: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];

/// A status, its number, and the pod that it is of.
type Newest = (u64, Option<Arc<(Arc<Pod>, Value)>>);

/// Writes the statuses of one pod, one at a time and only the newest.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    newest: watch::Sender<Newest>,
    written: watch::Receiver<u64>,
    last: Option<PodStatus>,
    /// Which of [`PASSING`] have ever been written.
    passing: Vec<&'static str>,
    number: u64,
    pod: Arc<Pod>,
}

impl Publisher {
    pub(super) fn new(shared: &Arc<Shared>, pod: &Arc<Pod>) -> Self {
        let (newest, wanted) = watch::channel::<Newest>((0, None));
        let (done, written) = watch::channel(0);
        tokio::spawn(write_all(shared.clone(), wanted, done));
        let has = |kind: &&str| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|condition| condition.type_ == **kind)
        };
        Publisher {
            shared: shared.clone(),
            newest,
            written,
            // What the API already has needs no writing.
            last: pod.status.clone(),
            passing: PASSING.into_iter().filter(has).collect(),
            number: 0,
            pod: pod.clone(),
        }
    }

    /// This is the status now.
    pub(super) fn publish(&mut self, pod: &Arc<Pod>, status: PodStatus) {
        self.pod = pod.clone();
        if self.last.as_ref() == Some(&status) {
            return;
        }
        let patch = self.patch(&status);
        self.last = Some(status);
        self.number += 1;
        self.newest.send_replace((self.number, Some(Arc::new((pod.clone(), patch)))));
    }

    fn patch(&mut self, status: &PodStatus) -> Value {
        let mut patch = json!({"status": status});
        // A condition that has no reason any more loses the one that it had.
        for condition in patch["status"]["conditions"].as_array_mut().into_iter().flatten() {
            for key in ["reason", "message"] {
                if condition.get(key).is_none() {
                    condition[key] = Value::Null;
                }
            }
        }
        // Addresses are those of now: a pod that is run anew has others.
        for list in ["podIPs", "hostIPs"] {
            if let Some(addresses) = patch["status"].get_mut(list).and_then(Value::as_array_mut) {
                addresses.push(json!({"$patch": "replace"}));
            }
        }
        let has = |kind: &str| status.conditions.iter().flatten().any(|condition| condition.type_ == kind);
        for kind in PASSING {
            if has(kind) {
                self.passing.push(kind);
            } else if self.passing.contains(&kind)
                && let Some(conditions) = patch["status"]["conditions"].as_array_mut()
            {
                conditions.push(json!({"type": kind, "$patch": "delete"}));
            }
        }
        self.passing.dedup();
        // The mirror of a static pod has a uid that the server gave it.
        if let Some(uid) = self.pod.metadata.uid.as_ref().filter(|_| !is_static(&self.pod)) {
            patch["metadata"] = json!({"uid": uid});
        }
        patch
    }

    /// Waits until the newest status is written, or nobody wants it.
    pub(super) async fn settle(&mut self) {
        let number = self.number;
        let _ = self.written.wait_for(|written| *written >= number).await;
    }

    /// Deletes the object for good: nothing of the pod runs any more.
    pub(super) async fn delete(&self) {
        let meta = &self.pod.metadata;
        let (Some(name), Some(namespace)) = (&meta.name, &meta.namespace) else { return };
        let options = DeleteOptions {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: meta.uid.clone(), ..Preconditions::default() }),
            ..DeleteOptions::default()
        };
        loop {
            match Api::<Pod>::namespaced(&self.shared.client, namespace).delete(name, &options).await {
                Err(error) if error.is_retriable() => self.shared.clock.sleep(RETRY).await,
                _ => return,
            }
        }
    }
}

/// Writes what is newest, as long as there is somebody who says so. What the server refuses is told, once for each
/// reason, and tried again ever more rarely: another status may be wanted by then, or the server have changed its mind.
async fn write_all(shared: Arc<Shared>, mut wanted: watch::Receiver<Newest>, done: watch::Sender<u64>) {
    let mut told = String::new();
    while wanted.changed().await.is_ok() {
        let mut wait = RETRY;
        loop {
            let (number, next) = wanted.borrow_and_update().clone();
            let Some(next) = next else { break };
            let (pod, patch) = &*next;
            let Err(error) = write(&shared, pod, patch).await else {
                done.send_replace(number);
                break;
            };
            let meta = &pod.metadata;
            let name = meta.name.as_deref().unwrap_or_default();
            let namespace = meta.namespace.as_deref().unwrap_or_default();
            let message = format!("cannot write the status of pod {namespace}/{name}: {error}");
            if message != told {
                shared.log(&message);
            }
            if !error.is_retriable() && !error.is_conflict() {
                if message != told {
                    shared.event(pod, None, true, "FailedUpdateStatus", error.to_string());
                }
                // Nobody waits for what is refused.
                done.send_replace(number);
                wait = (wait * 2).min(MAX_RETRY);
            }
            told = message;
            tokio::select! {
                () = shared.clock.sleep(wait) => {}
                changed = wanted.changed() => if changed.is_err() { return },
            }
        }
    }
}

/// A pod that is gone needs no status.
async fn write(shared: &Shared, pod: &Pod, patch: &Value) -> Result<(), Error> {
    let meta = &pod.metadata;
    let (Some(name), Some(namespace)) = (&meta.name, &meta.namespace) else { return Ok(()) };
    match Api::<Pod>::namespaced(&shared.client, namespace).patch_status(name, &Patch::Strategic(patch)).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
