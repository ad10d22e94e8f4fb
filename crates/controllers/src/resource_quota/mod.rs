//! `resourcequota-controller`: what namespaces have used is counted anew, now and then and when something goes.

pub(crate) mod amounts;
mod evaluator;
pub(crate) mod pods;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::{GroupResource, object::Object, selector::Selector};
use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, Lister, SharedIndexInformer};
use capstan_clock::{Moment, SharedClock};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, workqueue::PriorityQueue};
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolumeClaim, ResourceQuota, Service},
        resource::v1::ResourceClaim,
    },
    apimachinery::pkg::api::resource::Quantity as OpenApiQuantity,
};
use serde::Serialize;
use serde_json::Value;

use self::{
    amounts::Amounts,
    evaluator::{Evaluator, Scope, has_ended},
};
use crate::{
    ControllerContext,
    drive::{add_after, drive, every, filled, join},
    metadata::{Change, MetadataInformers},
    pod::Pod,
};

/// How often everything is counted, whatever happens.
const RESYNC_PERIOD: Duration = Duration::from_secs(5 * 60);

/// When to count after something came. The server has counted it already; this is for what it could not.
const AFTER_ADD: Duration = Duration::from_secs(1);

/// For how long a count that is less than what the quota says is not believed, if the objects may be older than the
/// quota: what the server let in a moment ago would be forgotten, and more than the limit could come.
const DOUBT: Duration = Duration::from_secs(1);

/// What counts of a pod. All else may change, the node for instance.
const COUNTED: [&str; 4] = ["containers", "initContainers", "resources", "activeDeadlineSeconds"];

/// How many quotas are counted at a time.
const WORKERS: usize = 5;

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let quotas = context.informers.informer::<ResourceQuota>();
    let sources = Sources {
        pods: context.informers.informer::<Pod>(),
        services: context.informers.informer::<Service>(),
        claims: context.informers.informer::<PersistentVolumeClaim>(),
        device_claims: context.informers.informer::<ResourceClaim>(),
        metadata: Arc::clone(&context.metadata),
    };
    let mut caches = vec![
        filled(&quotas),
        filled(&sources.pods),
        filled(&sources.services),
        filled(&sources.claims),
        filled(&sources.device_claims),
    ];
    let counter = Counter {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        quotas: quotas.lister(),
        sources: sources.clone(),
        doubts: Mutex::default(),
    };
    let controller = Controller::new(counter, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    watch_quotas(&quotas, &queue);
    let replenish = Replenish { quotas: quotas.lister(), queue: queue.clone() };
    watch(&sources, &replenish, &context.clock);
    let metadata = Arc::clone(&context.metadata);
    caches.push(Box::pin(async move { metadata.wait_for_sync().await }));
    let counted = drive(context, "resourcequota_primary", caches, controller);
    let (stop, clock, metadata) = (context.stop.clone(), Arc::clone(&context.clock), Arc::clone(&context.metadata));
    Box::pin(async move {
        metadata.start(&stop);
        let quotas = quotas.lister();
        let all = every(&stop, &clock, RESYNC_PERIOD, || {
            quotas.list(&Selector::default()).iter().for_each(|quota| queue.add(Key::of(&**quota)));
            std::future::ready(())
        });
        join(counted, all).await;
    })
}

fn watch_quotas(quotas: &SharedIndexInformer<ResourceQuota>, queue: &PriorityQueue<Key>) {
    let (add, update) = (queue.clone(), queue.clone());
    let hard = |quota: &ResourceQuota| quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    quotas.add_event_handler(
        HandlerFuncs::new().on_add(move |new: &Arc<ResourceQuota>, _| add.add(Key::of(&**new))).on_update(
            move |old, new| {
                if hard(old) != hard(new) {
                    update.add(Key::of(&**new));
                }
            },
        ),
    );
}

/// Where the objects are.
#[derive(Clone)]
struct Sources {
    pods: SharedIndexInformer<Pod>,
    services: SharedIndexInformer<Service>,
    claims: SharedIndexInformer<PersistentVolumeClaim>,
    device_claims: SharedIndexInformer<ResourceClaim>,
    metadata: Arc<MetadataInformers>,
}

/// Adds the quotas that count a kind of objects in a namespace.
#[derive(Clone)]
struct Replenish {
    quotas: Lister<ResourceQuota>,
    queue: PriorityQueue<Key>,
}

impl Replenish {
    /// Whether anything in a namespace is counted.
    fn is_counted(&self, namespace: &str) -> bool {
        !self.quotas.namespace(namespace).list(&Selector::default()).is_empty()
    }

    fn see(&self, evaluator: &Evaluator, namespace: &str, after: Duration) {
        for quota in self.quotas.namespace(namespace).list(&Selector::default()) {
            let hard = quota.spec.iter().flat_map(|spec| spec.hard.iter().flatten());
            if hard.into_iter().any(|(name, _)| evaluator.counts(name)) {
                add_after(&self.queue, Key::of(&*quota), after);
            }
        }
    }
}

fn watch(sources: &Sources, replenish: &Replenish, clock: &SharedClock) {
    let now = Arc::clone(clock);
    let pod_changed = move |old: &Value, new: &Value| {
        let now = now.now();
        has_ended(old, now) != has_ended(new, now)
            || COUNTED.iter().any(|field| old["spec"][field] != new["spec"][field])
            || old["status"]["resize"] != new["status"]["resize"]
    };
    watch_kind(&sources.pods, pods::pod, Evaluator::Pods, replenish, pod_changed);
    let spec_changed = |old: &Value, new: &Value| old["spec"] != new["spec"];
    watch_kind(&sources.services, json, Evaluator::Services, replenish, spec_changed);
    watch_kind(&sources.device_claims, json, Evaluator::ResourceClaims, replenish, spec_changed);
    let claim_changed = |old: &Value, new: &Value| old["spec"] != new["spec"] || old["status"] != new["status"];
    watch_kind(&sources.claims, json, Evaluator::PersistentVolumeClaims, replenish, claim_changed);
    let replenish = replenish.clone();
    sources.metadata.subscribe(move |resource, change| {
        let Some(evaluator @ Evaluator::Count(_)) = Evaluator::of(&resource.gvr.group_resource()) else { return };
        match change {
            Change::Gone(object) => replenish.see(&evaluator, &object.namespace, Duration::ZERO),
            Change::Set { old: None, new } => replenish.see(&evaluator, &new.namespace, AFTER_ADD),
            Change::Set { .. } => {}
        }
    });
}

fn watch_kind<K: Object>(
    informer: &SharedIndexInformer<K>,
    json: fn(&K) -> Value,
    evaluator: Evaluator,
    replenish: &Replenish,
    changed: impl Fn(&Value, &Value) -> bool + Send + 'static,
) {
    let (add, update, delete) = (replenish.clone(), replenish.clone(), replenish.clone());
    let evaluators = [evaluator.clone(), evaluator.clone(), evaluator];
    let [of_add, of_update, of_delete] = evaluators;
    informer.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<K>, is_in_initial_list| {
                if !is_in_initial_list {
                    add.see(&of_add, new.identity().namespace, AFTER_ADD);
                }
            })
            .on_update(move |old, new| {
                let namespace = new.identity().namespace;
                if update.is_counted(namespace) && changed(&json(&**old), &json(&**new)) {
                    update.see(&of_update, new.identity().namespace, Duration::ZERO);
                }
            })
            .on_delete(move |gone| delete.see(&of_delete, gone.object().identity().namespace, Duration::ZERO)),
    );
}

fn json<K: Serialize>(object: &K) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

impl Sources {
    /// The version up to which the objects that an evaluator counts are known.
    fn version(&self, evaluator: &Evaluator) -> u64 {
        let version = match evaluator {
            Evaluator::Pods => self.pods.last_sync_resource_version(),
            Evaluator::Services => self.services.last_sync_resource_version(),
            Evaluator::PersistentVolumeClaims => self.claims.last_sync_resource_version(),
            Evaluator::ResourceClaims => self.device_claims.last_sync_resource_version(),
            Evaluator::Count(GroupResource { group, resource }) => {
                let informer = self.metadata.informer(group, resource);
                informer.map(|informer| informer.last_sync_resource_version()).unwrap_or_default()
            }
        };
        version.parse().unwrap_or_default()
    }

    /// The objects that an evaluator counts; none when they are not known.
    fn objects(&self, evaluator: &Evaluator, namespace: &str) -> Option<Vec<Value>> {
        fn all<K: Object>(informer: &SharedIndexInformer<K>, json: fn(&K) -> Value, namespace: &str) -> Vec<Value> {
            let objects = informer.lister().namespace(namespace).list(&Selector::default());
            objects.iter().map(|object| json(&**object)).collect()
        }
        Some(match evaluator {
            Evaluator::Pods => all(&self.pods, pods::pod, namespace),
            Evaluator::Services => all(&self.services, json, namespace),
            Evaluator::PersistentVolumeClaims => all(&self.claims, json, namespace),
            Evaluator::ResourceClaims => all(&self.device_claims, json, namespace),
            Evaluator::Count(GroupResource { group, resource }) => {
                let informer = self.metadata.informer(group, resource).filter(|informer| informer.has_synced())?;
                let count = informer.lister().namespace(namespace).list(&Selector::default()).len();
                vec![Value::Null; count]
            }
        })
    }
}

struct Counter {
    client: Client,
    clock: SharedClock,
    quotas: Lister<ResourceQuota>,
    sources: Sources,
    /// Since when a count is not believed, and for which version of its quota.
    doubts: Mutex<HashMap<Key, (String, Moment)>>,
}

type List = BTreeMap<String, OpenApiQuantity>;

fn amounts(list: &List) -> Amounts {
    list.iter().filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?))).collect()
}

impl Counter {
    /// What is used of each name that is known.
    fn count(&self, quota: &ResourceQuota, namespace: &str, hard: &List) -> Amounts {
        let (scopes, now) = (Scope::of(&json(quota)), self.clock.now());
        let mut used = Amounts::new();
        for evaluator in Evaluator::for_names(hard.keys()) {
            let Some(objects) = self.sources.objects(&evaluator, namespace) else { continue };
            for name in hard.keys().filter(|name| evaluator.counts(name)) {
                used.entry(name.clone()).or_default();
            }
            for object in &objects {
                if scopes.iter().all(|scope| evaluator.is_in_scope(scope, object)) {
                    amounts::add(&mut used, &evaluator.usage(object, now));
                }
            }
        }
        used.retain(|name, _| hard.contains_key(name));
        used
    }

    /// Whether a count that is less than before may be that of objects older than the quota.
    fn is_doubtful(&self, key: &Key, quota: &ResourceQuota, hard: &List) -> bool {
        let known = quota.metadata.resource_version.as_deref().unwrap_or_default();
        let is_behind = |evaluator: &Evaluator| self.sources.version(evaluator) < known.parse().unwrap_or_default();
        let behind = Evaluator::for_names(hard.keys()).iter().any(is_behind);
        let (now, mut doubts) = (self.clock.monotonic(), self.doubts.lock().unwrap_or_else(PoisonError::into_inner));
        let since = match doubts.get(key) {
            Some((version, since)) if version == known => *since,
            _ => now,
        };
        if !behind || now.since(since) >= DOUBT {
            doubts.remove(key);
            return false;
        }
        doubts.insert(key.clone(), (known.to_owned(), since));
        true
    }
}

impl Reconciler for Counter {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(quota) = self.quotas.get(&key) else {
            self.doubts.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            return Ok(Action::Done);
        };
        let hard = quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
        let old = quota.status.clone().unwrap_or_default();
        // What nobody knows how to count stays as it was.
        let before = amounts(&old.used.clone().unwrap_or_default());
        let mut used = before.clone();
        used.extend(self.count(&quota, key.namespace(), &hard));
        used.retain(|name, _| hard.contains_key(name));
        let is_new = old.hard.is_none() || old.used.is_none();
        let same_hard = amounts(&old.hard.unwrap_or_default()) == amounts(&hard);
        if !is_new && same_hard && before == used {
            return Ok(Action::Done);
        }
        let less = |(name, before): (&String, _)| used.get(name).is_some_and(|now| now < before);
        if before.iter().any(less) && self.is_doubtful(&key, &quota, &hard) {
            return Ok(Action::RequeueAfter(DOUBT));
        }
        let mut changed = ResourceQuota::clone(&quota);
        let status = changed.status.get_or_insert_default();
        status.hard = Some(hard);
        status.used =
            Some(used.iter().map(|(name, amount)| (name.clone(), OpenApiQuantity(amount.to_string()))).collect());
        match Api::<ResourceQuota>::namespaced(&self.client, key.namespace()).update_status(&changed).await {
            Err(error) if error.is_not_found() => Ok(Action::Done),
            other => Ok(other.map(|_| Action::Done)?),
        }
    }
}
