//! The horizontal pod autoscaler: replicas by what is measured.
//!
//! Every autoscaler is looked at every fifteen seconds, whether that succeeds or not.

mod compute;
mod history;
mod kinds;
mod metrics;
mod replicas;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::{
    GroupVersion, GroupVersionResource, Unstructured,
    options::{GetOptions, UpdateOptions},
    selector::Selector,
};
use capstan_client::{Api, BoxFuture, Client, Deleted, Error, HandlerFuncs, Key, SharedIndexInformer};
use capstan_clock::{SharedClock, Timestamp};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::{
    api::autoscaling::v2::{
        HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus, MetricStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{
    ControllerContext,
    drive::{drive, filled},
    pod::Pod,
    recorder::Recorder,
};
use compute::{Computed, Failed, Present, tolerances};
use history::{History, Said, Wish};
use kinds::Kinds;

/// How often an autoscaler is looked at.
const SYNC_PERIOD: Duration = Duration::from_secs(15);
/// How many autoscalers are worked on at the same time.
const WORKERS: usize = 5;
/// How often a write that others get in the way of is tried.
const RESCALE_TRIES: usize = 5;

struct Autoscaler {
    client: Client,
    clock: SharedClock,
    hpas: SharedIndexInformer<HorizontalPodAutoscaler>,
    pods: SharedIndexInformer<Pod>,
    kinds: Kinds,
    history: Mutex<HashMap<Key, History>>,
    /// Whom each autoscaler scales: no two may scale the same pods.
    selectors: Mutex<BTreeMap<Key, Selector>>,
    recorder: Recorder,
}

/// Scales what autoscalers name.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let reconciler = Autoscaler {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        hpas: context.informers.informer(),
        pods: context.informers.informer(),
        kinds: Kinds::default(),
        history: Mutex::default(),
        selectors: Mutex::default(),
        recorder: Recorder::new(context, "horizontal-pod-autoscaler"),
    };
    let (hpas, pods) = (reconciler.hpas.clone(), reconciler.pods.clone());
    let controller = Controller::new(reconciler, Arc::clone(&context.clock)).max_concurrent_reconciles(WORKERS);
    let queue = controller.queue().clone();
    let (added, updated, deleted) = (queue.clone(), queue.clone(), queue);
    hpas.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |hpa: &Arc<HorizontalPodAutoscaler>, _| added.add(Key::of(&**hpa)))
            .on_update(move |old: &Arc<HorizontalPodAutoscaler>, new: &Arc<HorizontalPodAutoscaler>| {
                // Its own status is no news.
                if old.spec != new.spec || old.metadata.uid != new.metadata.uid {
                    updated.add(Key::of(&**new));
                }
            })
            .on_delete(move |hpa: &Deleted<HorizontalPodAutoscaler>| deleted.add(Key::of(&**hpa.object()))),
    );
    drive(context, "horizontalpodautoscaler", vec![filled(&hpas), filled(&pods)], controller)
}

/// The scale of what an autoscaler scales.
struct Scale {
    api: Api<Unstructured>,
    object: Unstructured,
    spec_replicas: i32,
    status_replicas: i32,
    selector: String,
}

impl Scale {
    async fn get(client: &Client, resource: GroupVersionResource, namespace: &str, name: &str) -> Result<Self, Error> {
        let api = Api::<Unstructured>::dynamic(client, resource, namespace);
        let object = api.get_with(name, "scale", &GetOptions::default()).await?;
        Ok(Scale::of(api, object))
    }

    fn of(api: Api<Unstructured>, object: Unstructured) -> Self {
        let number = |path: &[&str]| {
            let value = object.nested_i64(path).ok().flatten().unwrap_or_default();
            i32::try_from(value).unwrap_or(i32::MAX)
        };
        let selector = object.nested_str(["status", "selector"]).ok().flatten().unwrap_or_default().to_owned();
        let (spec_replicas, status_replicas) = (number(&["spec", "replicas"]), number(&["status", "replicas"]));
        Scale { api, object, spec_replicas, status_replicas, selector }
    }

    async fn set(&mut self, name: &str, replicas: i32) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let patch = |error: capstan_api::unstructured::NestedError| Error::Decode(error.to_string());
            self.object.set_nested(["spec", "replicas"], i64::from(replicas)).map_err(patch)?;
            match self.api.update_with(&self.object, "scale", &UpdateOptions::default()).await {
                Err(error) if error.is_conflict() && tries + 1 < RESCALE_TRIES => {
                    tries += 1;
                    self.object = self.api.get_with(name, "scale", &GetOptions::default()).await?;
                }
                result => return result.map(drop),
            }
        }
    }
}

/// The status of an autoscaler while it is worked on.
struct Status {
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
}

impl Status {
    fn condition(&mut self, type_: &str, (yes, reason, message): Said) {
        let conditions = self.status.conditions.get_or_insert_default();
        let status = if yes { "True" } else { "False" };
        let position = conditions.iter().position(|condition| condition.type_ == type_).unwrap_or_else(|| {
            let type_ = type_.to_owned();
            conditions.push(HorizontalPodAutoscalerCondition { type_, ..HorizontalPodAutoscalerCondition::default() });
            conditions.len() - 1
        });
        let condition = &mut conditions[position];
        if condition.status != status {
            condition.last_transition_time = Some(Time(self.now));
        }
        condition.status = status.to_owned();
        condition.reason = Some(reason.to_owned());
        condition.message = Some(message);
    }

    fn set(&mut self, current: i32, desired: i32, metrics: Vec<MetricStatus>, rescaled: bool) {
        self.status.current_replicas = Some(current);
        self.status.desired_replicas = desired;
        self.status.current_metrics = (!metrics.is_empty()).then_some(metrics);
        self.status.observed_generation = None;
        if rescaled {
            self.status.last_scale_time = Some(Time(self.now));
        }
    }
}

/// What all metrics together ask for.
struct Wanted {
    replicas: i32,
    metric: String,
    statuses: Vec<MetricStatus>,
}

impl Reconciler for Autoscaler {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(hpa) = self.hpas.lister().get(&key) else {
            self.history.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            self.selectors.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            return Ok(Action::Done);
        };
        let now = Timestamp::from_second(self.clock.now().as_second()).unwrap_or_default();
        let mut status = Status { status: hpa.status.clone().unwrap_or_default(), now };
        self.autoscale(&key, &hpa, &mut status).await;
        if hpa.status.as_ref() != Some(&status.status) {
            let mut changed = HorizontalPodAutoscaler::clone(&hpa);
            changed.status = Some(status.status);
            let api = Api::<HorizontalPodAutoscaler>::namespaced(&self.client, key.namespace());
            if let Err(error) = api.update_status(&changed).await {
                self.recorder.warning(&*hpa, "FailedUpdateStatus", error.to_string());
            }
        }
        Ok(Action::RequeueAfter(SYNC_PERIOD))
    }
}

impl Autoscaler {
    async fn autoscale(&self, key: &Key, hpa: &HorizontalPodAutoscaler, status: &mut Status) {
        let mut scale = match self.scale(key, hpa).await {
            Ok(scale) => scale,
            Err(why) => {
                self.recorder.warning(hpa, "FailedGetScale", why.clone());
                let message = format!("the HPA controller was unable to get the target's current scale: {why}");
                return status.condition("AbleToScale", (false, "FailedGetScale", message));
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        status.condition("AbleToScale", (true, "SucceededGetScale", message.to_owned()));
        let (current, moment) = (scale.spec_replicas, self.clock.monotonic());
        self.with_history(key, |history| history.begin(current, moment));
        let (min, max) = (hpa.spec.min_replicas.unwrap_or(1), hpa.spec.max_replicas);
        let (desired, reason, statuses) = if current == 0 {
            let message = "scaling is disabled since the replica count of the target is zero";
            status.condition("ScalingActive", (false, "ScalingDisabled", message.to_owned()));
            (0, String::new(), Vec::new())
        } else if current > max {
            (max, "Current number of replicas above Spec.MaxReplicas".to_owned(), Vec::new())
        } else if current < min {
            (min, "Current number of replicas below Spec.MinReplicas".to_owned(), Vec::new())
        } else {
            match self.by_metrics(key, hpa, &scale, status).await {
                Err((why, statuses)) => {
                    self.recorder.warning(hpa, "FailedComputeMetricsReplicas", why);
                    let desired = status.status.desired_replicas;
                    return status.set(current, desired, statuses, false);
                }
                Ok(wanted) => {
                    let reason = if wanted.replicas > current {
                        format!("{} above target", wanted.metric)
                    } else {
                        "All metrics below target".to_owned()
                    };
                    let wish = Wish { current, desired: wanted.replicas, min, max };
                    let behavior = hpa.spec.behavior.as_ref();
                    let normalized = self.with_history(key, |history| history.normalize(wish, behavior, moment));
                    status.condition("AbleToScale", normalized.able);
                    status.condition("ScalingLimited", normalized.limited);
                    (normalized.replicas, reason, wanted.statuses)
                }
            }
        };
        if desired == current {
            return status.set(current, current, statuses, false);
        }
        if let Err(error) = scale.set(&hpa.spec.scale_target_ref.name, desired).await {
            let message = format!("New size: {desired}; reason: {reason}; error: {error}");
            self.recorder.warning(hpa, "FailedRescale", message);
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            status.condition("AbleToScale", (false, "FailedUpdateScale", message));
            let desired = status.status.desired_replicas;
            return status.set(current, desired, statuses, false);
        }
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        status.condition("AbleToScale", (true, "SucceededRescale", message));
        self.recorder.normal(hpa, "SuccessfulRescale", format!("New size: {desired}; reason: {reason}"));
        let behavior = hpa.spec.behavior.as_ref();
        self.with_history(key, |history| history.scaled(current, desired, behavior, moment));
        status.set(current, desired, statuses, true);
    }

    fn with_history<T>(&self, key: &Key, change: impl FnOnce(&mut History) -> T) -> T {
        let mut all = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(key.clone()).or_default())
    }

    async fn scale(&self, key: &Key, hpa: &HorizontalPodAutoscaler) -> Result<Scale, String> {
        let target = &hpa.spec.scale_target_ref;
        let api_version = target.api_version.as_deref().unwrap_or_default();
        let group_version = api_version.parse::<GroupVersion>().map_err(|error| error.to_string())?;
        let resource = self.kinds.resource(&self.client, &group_version, &target.kind).await?;
        let scale = Scale::get(&self.client, resource, key.namespace(), &target.name).await;
        scale.map_err(|error| error.to_string())
    }

    /// The pods that are scaled, unless it cannot be told which they are.
    fn scaled_pods(
        &self,
        key: &Key,
        hpa: &HorizontalPodAutoscaler,
        scale: &Scale,
        status: &mut Status,
    ) -> Result<(Selector, Vec<Arc<Pod>>), String> {
        let mut invalid = |event: &str, reason: &'static str, event_message: String, message: String| {
            self.recorder.warning(hpa, event, event_message.clone());
            status.condition("ScalingActive", (false, reason, message));
            Err(event_message)
        };
        if scale.selector.is_empty() {
            let message = "the HPA target's scale is missing a selector".to_owned();
            return invalid("SelectorRequired", "InvalidSelector", "selector is required".to_owned(), message);
        }
        let selector = match scale.selector.parse::<Selector>() {
            Ok(selector) => selector,
            Err(error) => {
                let message =
                    format!("couldn't convert selector into a corresponding internal selector object: {error}");
                return invalid("InvalidSelector", "InvalidSelector", message.clone(), message);
            }
        };
        let pods = self.pods.lister().namespace(key.namespace()).list(&selector);
        let selects = |(other, selector): &(&Key, &Selector)| {
            other.namespace() == key.namespace() && pods.iter().any(|pod| selector.matches(pod.metadata.labels()))
        };
        let mut selectors = self.selectors.lock().unwrap_or_else(PoisonError::into_inner);
        selectors.insert(key.clone(), selector.clone());
        let all: Vec<_> = selectors.iter().filter(selects).map(|(key, _)| key.clone()).collect();
        drop(selectors);
        if all.len() > 1 {
            let all: Vec<_> = all.iter().map(|key| format!("{{{} {}}}", key.name(), key.namespace())).collect();
            let message =
                format!("pods by selector {} are controlled by multiple HPAs: [{}]", scale.selector, all.join(" "));
            return invalid("AmbiguousSelector", "AmbiguousSelector", message.clone(), message);
        }
        Ok((selector, pods))
    }

    async fn by_metrics(
        &self,
        key: &Key,
        hpa: &HorizontalPodAutoscaler,
        scale: &Scale,
        status: &mut Status,
    ) -> Result<Wanted, (String, Vec<MetricStatus>)> {
        let (selector, pods) = self.scaled_pods(key, hpa, scale, status).map_err(|why| (why, Vec::new()))?;
        let present = Present {
            client: &self.client,
            kinds: &self.kinds,
            namespace: key.namespace(),
            selector: &selector,
            pods: &pods,
            spec_replicas: scale.spec_replicas,
            status_replicas: scale.status_replicas,
            tolerances: tolerances(hpa),
            now: self.clock.now(),
        };
        let specs = hpa.spec.metrics.as_deref().unwrap_or_default();
        let mut wanted = Wanted { replicas: 0, metric: String::new(), statuses: Vec::new() };
        let (mut invalid, mut first): (usize, Option<Failed>) = (0, None);
        for spec in specs {
            match present.compute(spec).await {
                Ok(Computed { replicas, name, status }) => {
                    if wanted.replicas == 0 || replicas > wanted.replicas {
                        (wanted.replicas, wanted.metric) = (replicas, name);
                    }
                    wanted.statuses.push(status);
                }
                Err(failed) => {
                    self.recorder.warning(hpa, failed.reason, failed.message.clone());
                    // Statuses stand where their metrics do.
                    wanted.statuses.push(MetricStatus::default());
                    invalid += 1;
                    first.get_or_insert(failed);
                }
            }
        }
        // What is not known might ask for more: nothing shrinks meanwhile.
        if invalid >= specs.len() || (invalid > 0 && wanted.replicas < scale.spec_replicas) {
            let failed = first.unwrap_or(Failed { reason: "", message: String::new(), error: String::new() });
            let message = format!("the HPA was unable to compute the replica count: {}", failed.message);
            status.condition("ScalingActive", (false, failed.reason, message));
            let why =
                format!("invalid metrics ({invalid} invalid out of {}), first error is: {}", specs.len(), failed.error);
            return Err((why, wanted.statuses));
        }
        let message = format!("the HPA was able to successfully calculate a replica count from {}", wanted.metric);
        status.condition("ScalingActive", (true, "ValidMetricFound", message));
        Ok(wanted)
    }
}
