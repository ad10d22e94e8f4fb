//! Resource claims: those of pods are made from templates, reserved for the pods that run, and freed after them.
//!
//! Two loops: pods get their claims, claims lose what no pod needs.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::{options::PatchOptions, selector::Selector};
use capstan_client::{Api, BoxFuture, Client, Deleted, HandlerFuncs, Key, Patch, SharedIndexInformer};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object};
use k8s_openapi::{
    api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::{
    ControllerContext,
    drive::{drive, filled, join},
    overlay::Overlay,
    pod::{Pod, PodResourceClaim},
    pod_claims::is_controlled_by,
    recorder::Recorder,
};

/// On a claim: which of its pod's claims it is.
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";
/// Keeps a claim while it is allocated.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Who writes the statuses of pods.
const FIELD_MANAGER: &str = "ResourceClaimController";
/// For how many a claim can be reserved.
const MAX_RESERVED_FOR: usize = 256;
/// How long names can be before a suffix is put behind them.
const MAX_BASE_LENGTH: usize = 57;
/// How many of each are worked on at the same time.
const WORKERS: usize = 10;

struct Shared {
    client: Client,
    pods: SharedIndexInformer<Pod>,
    claims: Overlay<ResourceClaim>,
    templates: SharedIndexInformer<ResourceClaimTemplate>,
    recorder: Recorder,
}

struct Pods(Arc<Shared>);
struct Claims(Arc<Shared>);

/// Keeps the claims of pods.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let shared = Arc::new(Shared {
        client: context.client.clone(),
        pods: informers.informer(),
        claims: Overlay::new(informers.informer()),
        templates: informers.informer(),
        recorder: Recorder::new(context, "resource_claim"),
    });
    let clock = || Arc::clone(&context.clock);
    let of_pods = Controller::new(Pods(Arc::clone(&shared)), clock()).max_concurrent_reconciles(WORKERS);
    let of_claims = Controller::new(Claims(Arc::clone(&shared)), clock()).max_concurrent_reconciles(WORKERS);
    let (pods, claims) = (of_pods.queue().clone(), of_claims.queue().clone());

    let tell = {
        let (pods, claims) = (pods.clone(), claims.clone());
        move |pod: &Pod, deleted: bool| {
            if !uses_claims(pod) {
                return;
            }
            if deleted || is_done(pod) {
                claim_names(pod).iter().for_each(|key| claims.add(key.clone()));
            } else {
                pods.add(Key::of(pod));
            }
        }
    };
    let (added, deleted) = (tell.clone(), tell.clone());
    shared.pods.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |pod: &Arc<Pod>, _| added(pod, false))
            .on_update(move |_: &Arc<Pod>, pod: &Arc<Pod>| tell(pod, false))
            .on_delete(move |pod: &Deleted<Pod>| deleted(pod.object(), true)),
    );
    let informer = shared.claims.informer().clone();
    informer.add_event_handler(enqueue_request_for_object::<ResourceClaim>(claims));
    // A claim or a template that comes, or a claim that goes, may be what pods wait for.
    let waiting = {
        let lister = shared.pods.lister();
        move |namespace: &str, uses: &dyn Fn(&Pod) -> bool| {
            let all = lister.namespace(namespace).list(&Selector::default());
            all.iter().filter(|pod| uses(pod)).for_each(|pod| pods.add(Key::of(&**pod)));
        }
    };
    let of_claim = {
        let waiting = waiting.clone();
        move |claim: &ResourceClaim| {
            let key = Key::of(claim);
            waiting(key.namespace(), &|pod| claim_names(pod).contains(&key));
        }
    };
    let (changed, gone) = (of_claim.clone(), of_claim.clone());
    informer.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |claim: &Arc<ResourceClaim>, _| of_claim(claim))
            .on_update(move |_: &Arc<ResourceClaim>, claim: &Arc<ResourceClaim>| changed(claim))
            .on_delete(move |claim: &Deleted<ResourceClaim>| gone(claim.object())),
    );
    shared.templates.add_event_handler(HandlerFuncs::new().on_add(move |template: &Arc<ResourceClaimTemplate>, _| {
        let name = template.metadata.name.clone();
        waiting(template.metadata.namespace.as_deref().unwrap_or_default(), &|pod| {
            specs(pod).any(|claim| claim.resource_claim_template_name == name)
        });
    }));
    let caches = || vec![filled(&shared.pods), filled(&informer), filled(&shared.templates)];
    let first = drive(context, "resource_claim", caches(), of_pods);
    let second = drive(context, "resource_claim_claims", caches(), of_claims);
    Box::pin(async move {
        join(first, second).await;
    })
}

pub(crate) fn specs(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref()).into_iter().flatten()
}

fn extended_claim(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.extended_resource_claim_status.as_ref().map(|status| status.resource_claim_name.as_str())
}

fn uses_claims(pod: &Pod) -> bool {
    specs(pod).next().is_some() || extended_claim(pod).is_some()
}

/// Whether a pod needs no claims any more.
fn is_done(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded")) || (pod.metadata.deletion_timestamp.is_some() && !is_scheduled(pod))
}

fn is_scheduled(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).is_some_and(|name| !name.is_empty())
}

/// What is known of the claim that stands for one of a pod.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    /// It has this name, and was made for the pod if so said.
    Yes { name: &'a str, made: bool },
    /// None is needed.
    NotNeeded,
    /// None was made yet.
    NotYet,
}

pub(crate) fn name_of<'a>(pod: &'a Pod, spec: &'a PodResourceClaim) -> Result<Named<'a>, String> {
    if let Some(name) = &spec.resource_claim_name {
        return Ok(Named::Yes { name, made: false });
    }
    if spec.resource_claim_template_name.is_none() {
        return Err(format!("pod claim {:?} has no supported source", spec.name));
    }
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref());
    match statuses.into_iter().flatten().find(|status| status.name == spec.name) {
        None => Ok(Named::NotYet),
        Some(status) => Ok(match &status.resource_claim_name {
            Some(name) => Named::Yes { name, made: true },
            None => Named::NotNeeded,
        }),
    }
}

/// The claims of a pod, as far as they are known.
fn claim_names(pod: &Pod) -> Vec<Key> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let named = specs(pod).filter_map(|spec| match name_of(pod, spec) {
        Ok(Named::Yes { name, .. }) => Some(name),
        _ => None,
    });
    named.chain(extended_claim(pod)).map(|name| Key::new(namespace, name)).collect()
}

/// What the name of a claim begins with.
fn generate_name(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= MAX_BASE_LENGTH {
        return whole;
    }
    let part = |text: &str| text[..text.len() * MAX_BASE_LENGTH / whole.len()].to_owned();
    format!("{}-{}", part(pod), part(claim))
}

fn from_template(pod: &Pod, spec: &PodResourceClaim, template: &ResourceClaimTemplate) -> ResourceClaim {
    let pod_name = pod.metadata.name().to_owned();
    let meta = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_NAME.to_owned(), spec.name.clone());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod_name.clone(),
        uid: pod.metadata.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(generate_name(&pod_name, &spec.name)),
            namespace: Some(pod.metadata.namespace().to_owned()),
            owner_references: Some(vec![owner]),
            annotations: Some(annotations),
            labels: meta.labels,
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

fn check_is_for_pod(pod: &Pod, claim: &ResourceClaim) -> Result<(), String> {
    if is_controlled_by(&claim.metadata, pod) {
        return Ok(());
    }
    let (claim, pod) = (Key::of(claim), Key::of(pod));
    Err(format!("ResourceClaim {claim} was not created for Pod {pod} (Pod is not owner)"))
}

pub(crate) fn reserved_for(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// Whether a claim that has its devices is still to be reserved for the pod.
fn needs_reservation(claim: &ResourceClaim, pod: &Pod) -> bool {
    let reserved = reserved_for(claim);
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
        && !reserved.iter().any(|consumer| consumer.uid == pod.metadata.uid())
        && reserved.len() < MAX_RESERVED_FOR
}

impl Reconciler for Pods {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let shared = &self.0;
        let Some(pod) = shared.pods.lister().get(&key) else { return Ok(Action::Done) };
        if pod.metadata.deletion_timestamp.is_some() || is_done(&pod) {
            return Ok(Action::Done);
        }
        let mut made = BTreeMap::new();
        for spec in specs(&pod) {
            match shared.ensure(&pod, spec).await {
                Ok(name) => made.extend(name.map(|name| (spec.name.clone(), name))),
                Err(why) => {
                    let message = format!("PodResourceClaim {}: {why}", spec.name);
                    shared.recorder.warning(&*pod, "FailedResourceClaimCreation", message.clone());
                    return Err(ReconcileError::Retry(format!("pod {key}, {message}")));
                }
            }
        }
        if !made.is_empty() {
            shared.report(&key, &made).await?;
        }
        if is_scheduled(&pod) {
            shared.reserve(&pod).await?;
        }
        Ok(Action::Done)
    }
}

impl Shared {
    /// The claim for one of a pod's, if it was not known until now.
    async fn ensure(&self, pod: &Pod, spec: &PodResourceClaim) -> Result<Option<String>, String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        match name_of(pod, spec).map_err(|why| format!("checking for claim before creating it: {why}"))? {
            Named::NotNeeded => return Ok(None),
            Named::Yes { name, made } => {
                let claim = self.claims.get(&Key::new(namespace, name));
                if claim.is_some_and(|claim| !made || check_is_for_pod(pod, &claim).is_ok()) {
                    return Ok(None);
                }
            }
            Named::NotYet => {}
        }
        let Some(template_name) = &spec.resource_claim_template_name else { return Ok(None) };
        let is_it = |claim: &&Arc<ResourceClaim>| {
            let of = claim.metadata.annotations.as_ref().and_then(|all| all.get(POD_CLAIM_NAME));
            claim.metadata.namespace.as_deref() == Some(namespace)
                && of == Some(&spec.name)
                && is_controlled_by(&claim.metadata, pod)
        };
        if let Some(claim) = self.claims.list().iter().find(is_it) {
            return Ok(claim.metadata.name.clone());
        }
        let template = self.templates.lister().get(&Key::new(namespace, template_name)).ok_or_else(|| {
            format!(
                "resource claim template {template_name:?}: resourceclaimtemplate.resource.k8s.io {template_name:?} \
                 not found"
            )
        })?;
        let claim = from_template(pod, spec, &template);
        let claim = Api::<ResourceClaim>::namespaced(&self.client, namespace).create(&claim).await;
        let claim = claim.map_err(|error| format!("create ResourceClaim : {error}"))?;
        Ok(self.claims.note(claim).metadata.name.clone())
    }

    async fn report(&self, key: &Key, made: &BTreeMap<String, String>) -> Result<(), ReconcileError> {
        let statuses: Vec<_> =
            (made.iter()).map(|(name, claim)| serde_json::json!({"name": name, "resourceClaimName": claim})).collect();
        let apply = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": key.name(), "namespace": key.namespace()},
            "status": {"resourceClaimStatuses": statuses},
        });
        let options =
            PatchOptions { field_manager: FIELD_MANAGER.to_owned(), force: Some(true), ..PatchOptions::default() };
        let api = Api::<Pod>::namespaced(&self.client, key.namespace());
        let result = api.patch_with(key.name(), "status", &Patch::Apply(apply), &options).await;
        result
            .map(drop)
            .map_err(|error| ReconcileError::Retry(format!("update pod {key} ResourceClaimStatuses: {error}")))
    }

    /// A pod that was put on a node without the scheduler has to have its claims reserved by somebody.
    async fn reserve(&self, pod: &Pod) -> Result<(), ReconcileError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        for spec in specs(pod) {
            let Ok(Named::Yes { name, made }) = name_of(pod, spec) else { continue };
            let Some(claim) = self.claims.get(&Key::new(namespace, name)) else { return Ok(()) };
            if made {
                check_is_for_pod(pod, &claim).map_err(ReconcileError::Retry)?;
            }
            if needs_reservation(&claim, pod) {
                let mut claim = ResourceClaim::clone(&claim);
                let consumer = ResourceClaimConsumerReference {
                    api_group: None,
                    resource: "pods".to_owned(),
                    name: pod.metadata.name().to_owned(),
                    uid: pod.metadata.uid().to_owned(),
                };
                claim.status.get_or_insert_default().reserved_for.get_or_insert_default().push(consumer);
                self.claims.note(Api::namespaced(&self.client, namespace).update_status(&claim).await?);
            }
        }
        Ok(())
    }

    /// Whether a consumer still needs a claim. A cache that knows no pod is not believed.
    async fn still_needs(
        &self,
        consumer: &ResourceClaimConsumerReference,
        namespace: &str,
    ) -> Result<bool, ReconcileError> {
        if consumer.api_group.as_deref().is_some_and(|group| !group.is_empty()) || consumer.resource != "pods" {
            return Ok(true);
        }
        let is_it = |pod: &Pod| pod.metadata.uid() == consumer.uid;
        if let Some(pod) = self.pods.lister().get(&Key::new(namespace, &consumer.name)) {
            return Ok(is_it(&pod) && !is_done(&pod));
        }
        let pod = Api::<Pod>::namespaced(&self.client, namespace).get_opt(&consumer.name).await?;
        Ok(pod.is_some_and(|pod| is_it(&pod)))
    }
}

impl Reconciler for Claims {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let shared = &self.0;
        let Some(claim) = shared.claims.get(&key) else { return Ok(Action::Done) };
        let api = Api::<ResourceClaim>::namespaced(&shared.client, key.namespace());
        let mut remaining = Vec::new();
        for consumer in reserved_for(&claim) {
            if shared.still_needs(consumer, key.namespace()).await? {
                remaining.push(consumer.clone());
            }
        }
        let has_finalizer = claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
        let fewer = remaining.len() < reserved_for(&claim).len();
        let deleted = claim.metadata.deletion_timestamp.is_some();
        let mut claim = claim;
        if fewer || (has_finalizer && deleted && remaining.is_empty()) {
            // Whoever is not used gives its devices back, and needs no protection then.
            let free = remaining.is_empty() && has_finalizer;
            let mut changed = ResourceClaim::clone(&claim);
            let status = changed.status.get_or_insert_default();
            status.reserved_for = (!remaining.is_empty()).then(|| remaining.clone());
            if free {
                status.allocation = None;
            }
            if changed.status != claim.status {
                claim = shared.claims.note(api.update_status(&changed).await?);
            }
            if free {
                let mut changed = ResourceClaim::clone(&claim);
                if let Some(finalizers) = &mut changed.metadata.finalizers {
                    finalizers.retain(|finalizer| finalizer != FINALIZER);
                }
                claim = shared.claims.note(api.update(&changed).await?);
            }
        }
        if remaining.is_empty() && !deleted && shared.outlived(&claim) {
            match api.delete(key.name(), &Default::default()).await {
                Err(error) if !error.is_not_found() => {
                    return Err(ReconcileError::Retry(format!("delete unused generated claim {key}: {error}")));
                }
                _ => {}
            }
        }
        Ok(Action::Done)
    }
}

impl Shared {
    /// Whether a claim was made for a pod that needs it no more. One whose pod is gone goes with it by itself.
    fn outlived(&self, claim: &ResourceClaim) -> bool {
        let owners = claim.metadata.owner_references.iter().flatten();
        let mut owners = owners.into_iter().filter(|owner| owner.controller == Some(true) && owner.kind == "Pod");
        let Some(owner) = owners.next() else { return false };
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let pod = self.pods.lister().get(&Key::new(namespace, &owner.name));
        pod.is_some_and(|pod| pod.metadata.uid() != owner.uid || is_done(&pod))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_fit() {
        assert_eq!(generate_name("pod", "gpu"), "pod-gpu-");
        let long = generate_name(&"p".repeat(60), &"c".repeat(30));
        assert!(long.len() <= MAX_BASE_LENGTH && long.contains("p-c"), "{long}");
    }

    #[test]
    fn what_claims_are_called() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"containers": [], "resourceClaims": [
                {"name": "own", "resourceClaimName": "shared"}, {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "skipped", "resourceClaimTemplateName": "t"},
                {"name": "later", "resourceClaimTemplateName": "t"}]},
            "status": {
                "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "skipped"}],
                       "extendedResourceClaimStatus": {"resourceClaimName": "ext", "requestMappings": []}},
        }))
        .unwrap();
        let found: Vec<_> = specs(&pod).map(|spec| name_of(&pod, spec).unwrap()).collect();
        assert_eq!(
            found,
            [
                Named::Yes { name: "shared", made: false },
                Named::Yes { name: "p-made-x", made: true },
                Named::NotNeeded,
                Named::NotYet,
            ]
        );
        let keys: Vec<_> = claim_names(&pod).iter().map(ToString::to_string).collect();
        assert_eq!(keys, ["ns/shared", "ns/p-made-x", "ns/ext"]);
    }
}
