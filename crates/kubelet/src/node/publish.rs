//! Writing a pod's status: the newest one, once it has changed, until it is written.

use std::{sync::Arc, time::Duration};

use capstan_api::options::{DeleteOptions, Preconditions};
use capstan_client::{Api, Patch};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::json;
use tokio::sync::watch;

use super::shared::Shared;

/// How long after a write that failed it is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A status, its number, and the pod that it is of.
type Newest = (u64, Option<Box<(Arc<Pod>, PodStatus)>>);

/// Writes the statuses of one pod, one at a time and only the newest.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    newest: watch::Sender<Newest>,
    written: watch::Receiver<u64>,
    last: Option<PodStatus>,
    number: u64,
    pod: Arc<Pod>,
}

impl Publisher {
    pub(super) fn new(shared: &Arc<Shared>, pod: &Arc<Pod>) -> Self {
        let (newest, mut wanted) = watch::channel::<Newest>((0, None));
        let (done, written) = watch::channel(0);
        let writer = shared.clone();
        tokio::spawn(async move {
            while wanted.changed().await.is_ok() {
                loop {
                    let (number, next) = wanted.borrow_and_update().clone();
                    let Some(next) = next else { break };
                    if write(&writer, &next.0, &next.1).await {
                        done.send_replace(number);
                        break;
                    }
                    tokio::select! {
                        () = writer.clock.sleep(RETRY) => {}
                        changed = wanted.changed() => if changed.is_err() { return },
                    }
                }
            }
        });
        // What the API already has needs no writing.
        Publisher { shared: shared.clone(), newest, written, last: pod.status.clone(), number: 0, pod: pod.clone() }
    }

    /// This is the status now.
    pub(super) fn publish(&mut self, pod: &Arc<Pod>, status: PodStatus) {
        self.pod = pod.clone();
        if self.last.as_ref() == Some(&status) {
            return;
        }
        self.last = Some(status.clone());
        self.number += 1;
        self.newest.send_replace((self.number, Some(Box::new((pod.clone(), status)))));
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

/// Whether it is written, or can't be: the pod is gone, or is another one of the same name.
async fn write(shared: &Shared, pod: &Pod, status: &PodStatus) -> bool {
    let meta = &pod.metadata;
    let (Some(name), Some(namespace)) = (&meta.name, &meta.namespace) else { return true };
    let annotations = meta.annotations.as_ref();
    let is_static = annotations.is_some_and(|a| a.contains_key("kubernetes.io/config.source"));
    // The mirror of a static pod has a uid that the server gave it.
    let uid = if is_static { None } else { meta.uid.clone() };
    let patch = match uid {
        Some(uid) => json!({"metadata": {"uid": uid}, "status": status}),
        None => json!({"status": status}),
    };
    match Api::<Pod>::namespaced(&shared.client, namespace).patch_status(name, &Patch::Strategic(patch)).await {
        Ok(_) => true,
        Err(error) => error.is_not_found() || error.is_conflict() || error.is_invalid(),
    }
}
