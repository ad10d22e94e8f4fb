//! Ephemeral volumes: claims that are made for a pod and go with it.

use std::sync::Arc;

use capstan_client::{Api, BoxFuture, Client, Deleted, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, workqueue::PriorityQueue};
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    pod::{Pod, Volume},
    pod_claims::{self, check_is_for_pod, ephemeral_claim_name},
    recorder::Recorder,
};

/// How many pods are worked on at the same time.
const WORKERS: usize = 5;

struct Loop {
    client: Client,
    pods: SharedIndexInformer<Pod>,
    claims: SharedIndexInformer<PersistentVolumeClaim>,
    recorder: Recorder,
}

/// Makes the claims of ephemeral volumes.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let pods: SharedIndexInformer<Pod> = context.informers.informer();
    pod_claims::index(&pods);
    let claims: SharedIndexInformer<PersistentVolumeClaim> = context.informers.informer();
    let reconciler = Loop {
        client: context.client.clone(),
        pods: pods.clone(),
        claims: claims.clone(),
        recorder: Recorder::new(context, "ephemeral_volume"),
    };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    let added = queue.clone();
    // A pod's volumes never change.
    pods.add_event_handler(HandlerFuncs::new().on_add(move |pod: &Arc<Pod>, _| enqueue(pod, &added)));
    let of = pods.clone();
    claims.add_event_handler(HandlerFuncs::new().on_delete(move |claim: &Deleted<PersistentVolumeClaim>| {
        pod_claims::pods_of(&of, &Key::of(&**claim.object())).iter().for_each(|pod| enqueue(pod, &queue));
    }));
    drive(context, "ephemeral_volume", vec![filled(&pods), filled(&claims)], controller)
}

fn enqueue(pod: &Pod, queue: &PriorityQueue<Key>) {
    let has_some = pod_claims::volumes(pod).any(|volume| volume.ephemeral.is_some());
    if has_some && pod.metadata.deletion_timestamp.is_none() {
        queue.add(Key::of(pod));
    }
}

impl Reconciler for Loop {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.lister().get(&key) else { return Ok(Action::Done) };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        for volume in pod_claims::volumes(&pod) {
            if let Err(why) = self.ensure_claim(&pod, volume).await {
                let message = format!("ephemeral volume {}: {why}", volume.name);
                self.recorder.warning(&*pod, "FailedBinding", message.clone());
                return Err(ReconcileError::Retry(format!("pod {key}, {message}")));
            }
        }
        Ok(Action::Done)
    }
}

impl Loop {
    async fn ensure_claim(&self, pod: &Pod, volume: &Volume) -> Result<(), String> {
        let Some(source) = &volume.ephemeral else { return Ok(()) };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = ephemeral_claim_name(pod, volume);
        if let Some(claim) = self.claims.lister().get(&Key::new(namespace, &name)) {
            return check_is_for_pod(pod, &claim);
        }
        let template = source.volume_claim_template.clone().unwrap_or_default();
        let meta = template.metadata.unwrap_or_default();
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod.metadata.name().to_owned(),
            uid: pod.metadata.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        };
        let claim = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.to_owned()),
                owner_references: Some(vec![owner]),
                annotations: meta.annotations,
                labels: meta.labels,
                ..ObjectMeta::default()
            },
            spec: Some(template.spec),
            status: None,
        };
        let created = Api::namespaced(&self.client, namespace).create(&claim).await;
        created.map(drop).map_err(|error| format!("create PVC {name}: {error}"))
    }
}
