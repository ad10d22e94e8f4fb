//! `disruption-controller`: how many pods of a budget may be taken away now.

mod scale;
mod status;

use std::{sync::Arc, time::Duration};

use capstan_api::selector::{LabelSelector, Selector};
use capstan_client::{Api, BoxFuture, Client, Error, HandlerFuncs, Key, Lister, SharedIndexInformer};
use capstan_clock::SharedClock;
use capstan_runtime::{
    Action, Controller, EventRecorder, EventType, ReconcileError, Reconciler, workqueue::PriorityQueue,
};
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::ReplicationController,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector as OpenApiSelector,
};

use self::scale::{Expected, Scales};
use crate::{
    ControllerContext,
    drive::{drive, filled, join},
    pod::{About, Pod},
    pod_status::{AsOf, DISRUPTION_TARGET, condition, has_ended, patch_status, set_condition},
};

/// When to ask again those who do not tell when they change.
const ASK_PERIOD: Duration = Duration::from_secs(30);

/// How long a pod that was to be taken away, and was not, says so.
const STALE_DISRUPTION: Duration = Duration::from_secs(2 * 60);

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let informers = &context.informers;
    let (pods, budgets) = (informers.informer::<Pod>(), informers.informer::<PodDisruptionBudget>());
    let (sets, deployments) = (informers.informer::<ReplicaSet>(), informers.informer::<Deployment>());
    let stateful = informers.informer::<StatefulSet>();
    let replication = informers.informer::<ReplicationController>();
    let recorder = context.recorder("controllermanager");
    let disruption = Disruption {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        recorder: recorder.clone(),
        pods: pods.lister(),
        budgets: budgets.lister(),
        scales: Scales {
            client: context.client.clone(),
            metadata: Arc::clone(&context.metadata),
            replication_controllers: replication.lister(),
            replica_sets: sets.lister(),
            deployments: deployments.lister(),
            stateful_sets: stateful.lister(),
        },
    };
    let stale = Stale { client: context.client.clone(), clock: Arc::clone(&context.clock), pods: pods.lister() };
    let budgets_controller = Controller::new(disruption, Arc::clone(&context.clock));
    let stale_controller = Controller::new(stale, Arc::clone(&context.clock));
    watch_budgets(&budgets, budgets_controller.queue());
    watch_pods(&pods, &budgets, &recorder, budgets_controller.queue(), stale_controller.queue());
    watch_owners(&deployments, &pods, &budgets, budgets_controller.queue());
    watch_owners(&sets, &pods, &budgets, budgets_controller.queue());
    watch_owners(&stateful, &pods, &budgets, budgets_controller.queue());
    watch_owners(&replication, &pods, &budgets, budgets_controller.queue());
    let caches = || {
        let (one, two) = (filled(&pods), filled(&budgets));
        vec![one, two, filled(&sets), filled(&deployments), filled(&stateful), filled(&replication)]
    };
    let first = drive(context, "disruption", caches(), budgets_controller);
    let second = drive(context, "stale_pod_disruption", caches(), stale_controller);
    Box::pin(async move {
        join(first, second).await;
    })
}

fn watch_budgets(budgets: &SharedIndexInformer<PodDisruptionBudget>, queue: &PriorityQueue<Key>) {
    let (add, update) = (queue.clone(), queue.clone());
    budgets.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<PodDisruptionBudget>, _| add.add(Key::of(&**new)))
            .on_update(move |_, new| update.add(Key::of(&**new))),
    );
}

fn watch_pods(
    pods: &SharedIndexInformer<Pod>,
    budgets: &SharedIndexInformer<PodDisruptionBudget>,
    recorder: &EventRecorder,
    queue: &PriorityQueue<Key>,
    stale: &PriorityQueue<Key>,
) {
    let (budgets, recorder, queue, stale) = (budgets.lister(), recorder.clone(), queue.clone(), stale.clone());
    let see = move |pod: &Arc<Pod>, is_there: bool| {
        let found = of_pod(&budgets, pod);
        if found.len() > 1 && is_there {
            let (namespace, name) = (pod.metadata.namespace.as_deref(), pod.metadata.name.as_deref());
            let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
            let chosen = found[0].metadata.name.as_deref().unwrap_or_default();
            let message = format!(
                "Pod {namespace:?}/{name:?} matches multiple PodDisruptionBudgets.  Chose {chosen:?} arbitrarily."
            );
            recorder.event(&**pod, EventType::Warning, "MultiplePodDisruptionBudgets", message);
        }
        if let Some(budget) = found.first() {
            queue.add(Key::of(&**budget));
        }
        if is_there && is_disrupted(pod) {
            stale.add(Key::of(&**pod));
        }
    };
    let (update, delete) = (see.clone(), see.clone());
    pods.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new, _| see(new, true))
            .on_update(move |_, new| update(new, true))
            .on_delete(move |gone| delete(gone.object(), false)),
    );
}

/// Whoever owns pods may want more or fewer: the budgets of its namespace that count on that are looked at again.
fn watch_owners<K: capstan_api::object::Object>(
    owners: &SharedIndexInformer<K>,
    pods: &SharedIndexInformer<Pod>,
    budgets: &SharedIndexInformer<PodDisruptionBudget>,
    queue: &PriorityQueue<Key>,
) {
    let (pods, budgets, queue) = (pods.lister(), budgets.lister(), queue.clone());
    let see = move |namespace: &str| {
        for budget in budgets.namespace(namespace).list(&Selector::default()) {
            let counts = budget.spec.as_ref().is_some_and(status::needs_scale);
            if counts && !of_budget(&pods, &budget).is_ok_and(|pods| pods.is_empty()) {
                queue.add(Key::of(&*budget));
            }
        }
    };
    let update = see.clone();
    owners.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<K>, is_in_initial_list| {
                if !is_in_initial_list {
                    see(new.identity().namespace);
                }
            })
            .on_update(move |_, new| update(new.identity().namespace)),
    );
}

/// A selector as it is used; none selects nothing.
fn selector(selector: Option<&OpenApiSelector>) -> Result<Selector, String> {
    let Some(selector) = selector else { return Ok(Selector::nothing()) };
    let value = serde_json::to_value(selector).map_err(|error| error.to_string())?;
    let selector: LabelSelector = serde_json::from_value(value).map_err(|error| error.to_string())?;
    selector.to_selector()
}

/// The budgets that count a pod.
fn of_pod(budgets: &Lister<PodDisruptionBudget>, pod: &Pod) -> Vec<Arc<PodDisruptionBudget>> {
    let labels = pod.metadata.labels();
    let mut found = budgets.namespace(pod.metadata.namespace.as_deref().unwrap_or_default()).list(&Selector::default());
    found.retain(|budget| {
        let wanted = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector(wanted).is_ok_and(|selector| selector.matches(labels))
    });
    found
}

/// The pods that a budget counts.
fn of_budget(pods: &Lister<Pod>, budget: &PodDisruptionBudget) -> Result<Vec<Arc<Pod>>, String> {
    let selector = selector(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()))?;
    Ok(pods.namespace(budget.metadata.namespace.as_deref().unwrap_or_default()).list(&selector))
}

struct Disruption {
    client: Client,
    clock: SharedClock,
    recorder: EventRecorder,
    pods: Lister<Pod>,
    budgets: Lister<PodDisruptionBudget>,
    scales: Scales,
}

enum Failure {
    /// The status cannot be computed.
    Sync(String),
    /// The status cannot be written.
    Write(Error),
}

impl Reconciler for Disruption {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(budget) = self.budgets.get(&key) else { return Ok(Action::Done) };
        match self.sync(&budget).await {
            Ok(action) => Ok(action),
            Err(Failure::Write(error)) if error.is_not_found() => Ok(Action::Done),
            Err(Failure::Write(error)) => Err(error.into()),
            Err(Failure::Sync(error)) => {
                // When in doubt nothing is taken away. What is written is looked at again when something changes.
                let failed = status::fail_safe(&budget, &error, self.clock.now());
                if budget.status.as_ref() != Some(&failed) {
                    self.write(&budget, failed).await?;
                }
                Ok(Action::RequeueAfter(ASK_PERIOD))
            }
        }
    }
}

impl Disruption {
    async fn sync(&self, budget: &PodDisruptionBudget) -> Result<Action, Failure> {
        let warn = |reason: &str, message: String| self.recorder.event(budget, EventType::Warning, reason, message);
        let pods = of_budget(&self.pods, budget).map_err(|error| {
            warn("NoPods", format!("Failed to get pods: {error}"));
            Failure::Sync(error)
        })?;
        if pods.is_empty() {
            self.recorder.event(budget, EventType::Normal, "NoPods", "No matching pods found");
        }
        let spec = budget.spec.clone().unwrap_or_default();
        let failed = |error: String| {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            warn("CalculateExpectedPodCountFailed", message);
            Failure::Sync(error)
        };
        let found =
            if status::needs_scale(&spec) { self.scales.of(&pods).await.map_err(failed)? } else { Expected::default() };
        let counts = status::expected(&spec, pods.len(), found.scale).map_err(failed)?;
        if found.has_unmanaged {
            let selector = status::printed(spec.selector.as_ref());
            let message = format!(
                "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a \
                 result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. \
                 To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value."
            );
            warn("UnmanagedPods", message);
        }
        let now = self.clock.now();
        let disrupted = status::disrupted(budget, &pods, now);
        for pod in &disrupted.late {
            // Upstream names the namespace twice.
            let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
            let message = format!("Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't");
            self.recorder.event(&**pod, EventType::Warning, "NotDeleted", message);
        }
        if let Some(status) = status::status(budget, &pods, counts, disrupted.pods, now) {
            self.write(budget, status).await.map_err(Failure::Write)?;
        }
        let again = disrupted.recheck.into_iter().chain(found.asked.then_some(ASK_PERIOD)).min();
        // A moment later than the deadline, so that it has passed.
        Ok(again.map_or(Action::Done, |wait| Action::RequeueAfter(wait + Duration::from_millis(1))))
    }

    async fn write(
        &self,
        budget: &PodDisruptionBudget,
        status: k8s_openapi::api::policy::v1::PodDisruptionBudgetStatus,
    ) -> Result<(), Error> {
        let changed = PodDisruptionBudget { status: Some(status), ..budget.clone() };
        let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
        Api::<PodDisruptionBudget>::namespaced(&self.client, namespace).update_status(&changed).await?;
        Ok(())
    }
}

/// Whether somebody said that a pod is taken away, and it is still there.
fn is_disrupted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && !has_ended(pod)
        && condition(pod, DISRUPTION_TARGET).is_some_and(|condition| {
            condition.status == "True" && condition.reason.as_deref() != Some("TerminationByKubelet")
        })
}

/// Takes back what was said of pods that were not taken away.
struct Stale {
    client: Client,
    clock: SharedClock,
    pods: Lister<Pod>,
}

impl Reconciler for Stale {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(pod) = self.pods.get(&key).filter(|pod| is_disrupted(pod)) else { return Ok(Action::Done) };
        let now = self.clock.now();
        let since = condition(&pod, DISRUPTION_TARGET).and_then(|condition| condition.last_transition_time.as_ref());
        let age =
            since.map_or(STALE_DISRUPTION, |since| Duration::try_from(now.duration_since(since.0)).unwrap_or_default());
        if age < STALE_DISRUPTION {
            return Ok(Action::RequeueAfter(STALE_DISRUPTION - age));
        }
        let over = About { type_: DISRUPTION_TARGET.into(), status: "False".into(), ..About::default() };
        let mut status = pod.status.clone().unwrap_or_default();
        if set_condition(&mut status, over, now) {
            // Who said meanwhile that the pod is taken away is right.
            patch_status(&self.client, &pod, &status, AsOf::Known).await?;
        }
        Ok(Action::Done)
    }
}
