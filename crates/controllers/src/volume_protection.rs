//! Protection of claims, volumes and their attribute classes: they stay as long as somebody uses them.
//!
//! The rule is one: whoever is not being deleted has the finalizer, whoever is being deleted loses it once it is not
//! used. Only what "used" means differs.

use std::{future::Future, marker::PhantomData, sync::Arc};

use capstan_api::{Resource, object::Object, options::ListOptions, selector::Selector};
use capstan_client::{Api, BoxFuture, Client, Deleted, Error, HandlerFuncs, Key, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_requests_from_map_func};
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::VolumeAttributesClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::Serialize;

use crate::{
    ControllerContext,
    drive::{drive, filled},
    persistentvolume::volume_phase,
    pod::Pod,
    pod_claims,
};

/// Keeps a claim.
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume.
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
/// Keeps a class.
const CLASS_FINALIZER: &str = "kubernetes.io/vac-protection";
/// How many claims are worked on at the same time.
const CLAIM_WORKERS: usize = 30;

/// What has to happen to the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Add,
    RemoveUnlessUsed,
}

fn need(meta: &ObjectMeta, finalizer: &str) -> Need {
    let has = meta.finalizers.iter().flatten().any(|present| present == finalizer);
    match (meta.deletion_timestamp.is_some(), has) {
        (true, true) => Need::RemoveUnlessUsed,
        (false, false) => Need::Add,
        _ => Need::Nothing,
    }
}

/// Who is protected, and from what.
trait Protected: Send + Sync + 'static {
    type Object: Object + Resource<Meta = ObjectMeta> + Serialize + Clone;
    const FINALIZER: &'static str;

    /// Whether somebody uses it.
    fn is_used(&self, object: &Self::Object) -> impl Future<Output = Result<bool, Error>> + Send;
}

struct Protection<P: Protected> {
    client: Client,
    informer: SharedIndexInformer<P::Object>,
    protected: P,
}

impl<P: Protected> Reconciler for Protection<P> {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(object) = self.informer.lister().get(&key) else { return Ok(Action::Done) };
        let need = need(object.meta(), P::FINALIZER);
        if need == Need::Nothing || (need == Need::RemoveUnlessUsed && self.protected.is_used(&object).await?) {
            return Ok(Action::Done);
        }
        let mut changed = P::Object::clone(&object);
        let finalizers = changed.meta_mut().finalizers.get_or_insert_default();
        match need {
            Need::Add => finalizers.push(P::FINALIZER.to_owned()),
            _ => finalizers.retain(|finalizer| finalizer != P::FINALIZER),
        }
        match Api::namespaced(&self.client, key.namespace()).update(&changed).await {
            // Somebody else was quicker; the informer will tell.
            Err(error) if error.is_not_found() => Ok(Action::Done),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(Action::Done),
        }
    }
}

/// Looks at those that need something.
fn in_need<P: Protected>(_: PhantomData<P>) -> impl Fn(&P::Object) -> Vec<Key> + Send + 'static {
    |object: &P::Object| Vec::from_iter((need(object.meta(), P::FINALIZER) != Need::Nothing).then(|| Key::of(object)))
}

struct Claims {
    client: Client,
    pods: SharedIndexInformer<Pod>,
}

/// Whether a pod keeps a claim: one that is on a node, unless the claim was made for it and it has shut down.
fn pod_keeps(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    let shut_down = pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    !node.is_empty()
        && pod_claims::volumes(pod).any(|volume| match &volume.persistent_volume_claim {
            Some(source) => source.claim_name == name,
            None => {
                !shut_down
                    && volume.ephemeral.is_some()
                    && pod_claims::ephemeral_claim_name(pod, volume) == name
                    && pod_claims::check_is_for_pod(pod, claim).is_ok()
            }
        })
}

impl Protected for Claims {
    type Object = PersistentVolumeClaim;
    const FINALIZER: &'static str = CLAIM_FINALIZER;

    async fn is_used(&self, claim: &PersistentVolumeClaim) -> Result<bool, Error> {
        let key = Key::of(claim);
        if pod_claims::pods_of(&self.pods, &key).iter().any(|pod| pod_keeps(pod, claim)) {
            return Ok(true);
        }
        // Data depend on it: a cache that knows no pod is not believed.
        let pods = Api::<Pod>::namespaced(&self.client, key.namespace()).list(&ListOptions::default()).await?;
        Ok(pods.items.iter().any(|pod| pod_keeps(pod, claim)))
    }
}

/// Protects claims from being deleted while pods use them.
pub(crate) fn claims(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let pods: SharedIndexInformer<Pod> = context.informers.informer();
    pod_claims::index(&pods);
    let claims: SharedIndexInformer<PersistentVolumeClaim> = context.informers.informer();
    let protected = Claims { client: context.client.clone(), pods: pods.clone() };
    let reconciler = Protection { client: context.client.clone(), informer: claims.clone(), protected };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock)).max_concurrent_reconciles(CLAIM_WORKERS);
    let queue = controller.queue().clone();
    claims.add_event_handler(enqueue_requests_from_map_func(queue.clone(), in_need(PhantomData::<Claims>)));
    let lister = claims.lister();
    let tell = move |pod: &Pod| {
        // Only claims that wait to go have to hear of it.
        let waits = |key: &Key| {
            lister.get(key).is_some_and(|claim| need(&claim.metadata, CLAIM_FINALIZER) == Need::RemoveUnlessUsed)
        };
        pod_claims::claims_of(pod).into_iter().filter(waits).for_each(|key| queue.add(key));
    };
    let (added, deleted) = (tell.clone(), tell.clone());
    pods.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |pod: &Arc<Pod>, _| added(pod))
            .on_update(move |old: &Arc<Pod>, new: &Arc<Pod>| {
                tell(new);
                if old.metadata.uid != new.metadata.uid {
                    tell(old);
                }
            })
            .on_delete(move |pod: &Deleted<Pod>| deleted(pod.object())),
    );
    drive(context, "pvcprotection", vec![filled(&claims), filled(&pods)], controller)
}

struct Volumes;

impl Protected for Volumes {
    type Object = PersistentVolume;
    const FINALIZER: &'static str = VOLUME_FINALIZER;

    async fn is_used(&self, volume: &PersistentVolume) -> Result<bool, Error> {
        Ok(volume_phase(volume) == "Bound")
    }
}

/// Protects volumes from being deleted while claims have them.
pub(crate) fn volumes(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let volumes: SharedIndexInformer<PersistentVolume> = context.informers.informer();
    let reconciler = Protection { client: context.client.clone(), informer: volumes.clone(), protected: Volumes };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock));
    let queue = controller.queue().clone();
    volumes.add_event_handler(enqueue_requests_from_map_func(queue, in_need(PhantomData::<Volumes>)));
    drive(context, "pvprotection", vec![filled(&volumes)], controller)
}

struct Classes {
    client: Client,
    claims: SharedIndexInformer<PersistentVolumeClaim>,
    volumes: SharedIndexInformer<PersistentVolume>,
}

/// The attribute classes that a claim has, wants, or is on its way to.
fn classes_of_claim(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let status = claim.status.as_ref();
    let target = status.and_then(|status| status.modify_volume_status.as_ref());
    let all = [
        claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()),
        status.and_then(|status| status.current_volume_attributes_class_name.as_deref()),
        target.and_then(|status| status.target_volume_attributes_class_name.as_deref()),
    ];
    all.into_iter().flatten().filter(|name| !name.is_empty()).collect()
}

fn class_of_volume(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.volume_attributes_class_name.as_deref().filter(|name| !name.is_empty())
}

impl Protected for Classes {
    type Object = VolumeAttributesClass;
    const FINALIZER: &'static str = CLASS_FINALIZER;

    async fn is_used(&self, class: &VolumeAttributesClass) -> Result<bool, Error> {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let everything = Selector::default();
        let cached = self.claims.lister().list(&everything).iter().any(|claim| classes_of_claim(claim).contains(&name))
            || self.volumes.lister().list(&everything).iter().any(|volume| class_of_volume(volume) == Some(name));
        if cached {
            return Ok(true);
        }
        let volumes = Api::<PersistentVolume>::all(&self.client).list(&ListOptions::default()).await?;
        if volumes.items.iter().any(|volume| class_of_volume(volume) == Some(name)) {
            return Ok(true);
        }
        let claims = Api::<PersistentVolumeClaim>::all(&self.client).list(&ListOptions::default()).await?;
        Ok(claims.items.iter().any(|claim| classes_of_claim(claim).contains(&name)))
    }
}

/// Protects attribute classes from being deleted while claims or volumes have them.
pub(crate) fn attributes_classes(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let classes: SharedIndexInformer<VolumeAttributesClass> = informers.informer();
    let claims: SharedIndexInformer<PersistentVolumeClaim> = informers.informer();
    let volumes: SharedIndexInformer<PersistentVolume> = informers.informer();
    let protected = Classes { client: context.client.clone(), claims: claims.clone(), volumes: volumes.clone() };
    let reconciler = Protection { client: context.client.clone(), informer: classes.clone(), protected };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock));
    let queue = controller.queue().clone();
    classes.add_event_handler(enqueue_requests_from_map_func(queue.clone(), in_need(PhantomData::<Classes>)));
    let lister = classes.lister();
    let waiting = move |names: Vec<&str>| -> Vec<Key> {
        let keys = names.into_iter().map(|name| Key::new("", name));
        let waits = |key: &Key| {
            lister.get(key).is_some_and(|class| need(&class.metadata, CLASS_FINALIZER) == Need::RemoveUnlessUsed)
        };
        keys.filter(waits).collect()
    };
    let of_claim = waiting.clone();
    claims.add_event_handler(enqueue_requests_from_map_func(queue.clone(), move |claim: &PersistentVolumeClaim| {
        of_claim(classes_of_claim(claim))
    }));
    volumes.add_event_handler(enqueue_requests_from_map_func(queue, move |volume: &PersistentVolume| {
        waiting(class_of_volume(volume).into_iter().collect())
    }));
    let caches = vec![filled(&classes), filled(&claims), filled(&volumes)];
    drive(context, "vacprotection", caches, controller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn which_pods_keep_a_claim() {
        fn check(mut pod: Value, owner: &str, expected: bool) {
            pod["metadata"]["name"] = json!("p");
            pod["metadata"]["uid"] = json!("p-uid");
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let claim: PersistentVolumeClaim = serde_json::from_value(json!({"metadata": {"name": "p-v",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner,
                                     "controller": true}]}}))
            .unwrap();
            assert_eq!(pod_keeps(&pod, &claim), expected, "{pod:?}");
        }
        let claim = json!([{"name": "x", "persistentVolumeClaim": {"claimName": "p-v"}}]);
        let ephemeral = json!([{"name": "v", "ephemeral": {}}]);
        let spec = |volumes: &Value| json!({"nodeName": "n", "containers": [], "volumes": volumes});
        check(json!({"metadata": {}, "spec": spec(&claim)}), "p-uid", true);
        check(json!({"metadata": {}, "spec": {"containers": [], "volumes": claim}}), "p-uid", false);
        check(json!({"metadata": {}, "spec": spec(&ephemeral)}), "p-uid", true);
        check(json!({"metadata": {}, "spec": spec(&ephemeral)}), "other", false);
        let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        check(json!({"metadata": gone, "spec": spec(&ephemeral)}), "p-uid", false);
        check(json!({"metadata": gone, "spec": spec(&claim)}), "p-uid", true);
    }
}
