//! How many replicas measurements ask for. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use capstan_api::Quantity;
use capstan_clock::Timestamp;

use crate::{
    pod::{Amounts, Container, Pod},
    resource_quota::{
        amounts::{is_pod_level, of_pod},
        pods,
    },
    service_pods::is_ready,
};

/// How long a pod's CPU says nothing while it starts.
const CPU_INITIALIZATION_PERIOD: Duration = Duration::from_mins(5);
/// How soon after its start a pod that has never been ready counts as still starting.
const INITIAL_READINESS_DELAY: Duration = Duration::from_secs(30);

/// What was measured of a pod, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PodMetric {
    pub(super) timestamp: Timestamp,
    pub(super) window: Duration,
    pub(super) value: i64,
}

/// Measurements by the names of pods.
pub(super) type PodMetrics = BTreeMap<String, PodMetric>;

/// By which part usage may be off its target without consequence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerances {
    pub(super) scale_down: f64,
    pub(super) scale_up: f64,
}

impl Tolerances {
    fn is_within(self, ratio: f64) -> bool {
        (1.0 - self.scale_down) <= ratio && ratio <= (1.0 + self.scale_up)
    }
}

/// What a metric asks for, and what was found: in thousandths, and in percent of what is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) replicas: i32,
    pub(super) usage: i64,
    pub(super) utilization: Option<i32>,
}

/// What usage is compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    /// So many thousandths a pod.
    Usage(i64),
    /// This part of what pods request, in percent: all of them, or one container.
    Utilization { percent: i32, container: &'a str },
}

struct Groups {
    ready: usize,
    unready: BTreeSet<String>,
    missing: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

fn group(pods: &[Arc<Pod>], metrics: &PodMetrics, resource: &str, now: Timestamp) -> Groups {
    let mut groups = Groups { ready: 0, unready: BTreeSet::new(), missing: BTreeSet::new(), ignored: BTreeSet::new() };
    for pod in pods {
        let name = name(pod).to_owned();
        if pod.metadata.deletion_timestamp.is_some() || phase(pod) == "Failed" {
            groups.ignored.insert(name);
        } else if phase(pod) == "Pending" {
            groups.unready.insert(name);
        } else if let Some(metric) = metrics.get(&name) {
            if resource == "cpu" && is_starting(pod, metric, now) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

/// Whether a pod's CPU is that of a start and not that of its work.
fn is_starting(pod: &Pod, metric: &PodMetric, now: Timestamp) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let condition = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    let started = status.and_then(|status| status.start_time.as_ref());
    let (Some(condition), Some(started)) = (condition, started) else { return true };
    let changed = condition.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    let not_ready = condition.status == "False";
    if started.0.saturating_add(CPU_INITIALIZATION_PERIOD).unwrap_or(Timestamp::MAX) > now {
        not_ready || metric.timestamp < changed.saturating_add(metric.window).unwrap_or(Timestamp::MAX)
    } else {
        not_ready && started.0.saturating_add(INITIAL_READINESS_DELAY).unwrap_or(Timestamp::MAX) > changed
    }
}

fn milli(amounts: Option<&Amounts>, resource: &str) -> Option<i64> {
    amounts?.get(resource)?.parse::<Quantity>().ok().map(|quantity| quantity.milli_value())
}

/// Whether a pod says itself what it requests.
fn asks_as_a_whole(pod: &Pod) -> bool {
    let requests = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_deref());
    requests.is_some_and(|requests| requests.keys().any(|name| is_pod_level(name)))
}

/// With what its containers request of what the pod itself says nothing about, and its overhead.
fn of_whole_pod(pod: &Pod, resource: &str) -> Option<i64> {
    let spec = pod.spec.as_ref().map(pods::spec);
    of_pod(&serde_json::json!({"spec": spec}), "requests").get(resource).map(Quantity::milli_value)
}

/// What a pod requests: as a whole if it says so, or by its containers.
fn requested(pod: &Pod, container: &str, resource: &str) -> Result<i64, String> {
    let pod_name = name(pod);
    let Some(spec) = &pod.spec else { return Ok(0) };
    if container.is_empty() && asks_as_a_whole(pod) {
        return of_whole_pod(pod, resource)
            .ok_or_else(|| format!("missing pod-level request for {resource} in Pod {pod_name}"));
    }
    let mut all: Box<dyn Iterator<Item = &Container>> = Box::new(spec.containers.iter().chain(spec.sidecars()));
    if !container.is_empty() {
        let mut wanted = all.filter(|candidate| candidate.name == container).peekable();
        if wanted.peek().is_none() {
            return Err(format!("container {container} not found in Pod {pod_name}"));
        }
        all = Box::new(wanted.take(1));
    }
    let mut sum = 0;
    for candidate in all {
        let requests = candidate.resources.as_ref().and_then(|resources| resources.requests.as_deref());
        sum += milli(requests, resource).ok_or_else(|| {
            format!("missing request for {resource} in container {} of Pod {pod_name}", candidate.name)
        })?;
    }
    Ok(sum)
}

/// The ratio of usage to target, the usage of an average pod, and the utilization.
fn ratio(
    metrics: &PodMetrics,
    requests: &BTreeMap<String, i64>,
    target: Target<'_>,
) -> Result<(f64, i64, Option<i32>), String> {
    match target {
        Target::Usage(target) => {
            let usage = metrics.values().map(|metric| metric.value).sum::<i64>() / metrics.len() as i64;
            Ok((usage as f64 / target as f64, usage, None))
        }
        Target::Utilization { percent, .. } => {
            let known = metrics.iter().filter_map(|(name, metric)| Some((metric.value, *requests.get(name)?)));
            let (mut used, mut requested, mut count) = (0, 0, 0);
            for (value, request) in known {
                used += value;
                requested += request;
                count += 1;
            }
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let utilization = (used * 100 / requested) as i32;
            Ok((f64::from(utilization) / f64::from(percent), used / count, Some(utilization)))
        }
    }
}

/// How many replicas the usage of pods asks for.
///
/// Pods that say nothing are taken to dampen whatever the others ask for, but never to turn it around: those without
/// measurements as using nothing when more replicas are asked for, and as using what they may when fewer are.
///
/// # Errors
/// Why it cannot be told.
pub(super) fn by_pods(
    mut metrics: PodMetrics,
    pods: &[Arc<Pod>],
    resource: &str,
    target: Target<'_>,
    current: i32,
    tolerances: Tolerances,
    now: Timestamp,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(pods, &metrics, resource, now);
    metrics.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if metrics.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let requests = match target {
        Target::Usage(_) => BTreeMap::new(),
        Target::Utilization { container, .. } => {
            let each = |pod: &Arc<Pod>| Ok((name(pod).to_owned(), requested(pod, container, resource)?));
            pods.iter().map(each).collect::<Result<_, String>>()?
        }
    };
    let (usage_ratio, usage, utilization) = ratio(&metrics, &requests, target)?;
    let proposal = |replicas| Ok(Proposal { replicas, usage, utilization });
    let up_with_unready = !groups.unready.is_empty() && usage_ratio > 1.0;
    if !up_with_unready && groups.missing.is_empty() {
        if tolerances.is_within(usage_ratio) {
            return proposal(current);
        }
        return proposal((usage_ratio * groups.ready as f64).ceil() as i32);
    }
    let assumed = |name: &String| match target {
        _ if usage_ratio > 1.0 => 0,
        Target::Usage(target) => target,
        Target::Utilization { percent, .. } => {
            requests.get(name).copied().unwrap_or_default() * i64::from(percent.max(100)) / 100
        }
    };
    let metric = |value| PodMetric { timestamp: now, window: Duration::ZERO, value };
    if usage_ratio != 1.0 {
        metrics.extend(groups.missing.iter().map(|name| (name.clone(), metric(assumed(name)))));
    }
    if up_with_unready {
        metrics.extend(groups.unready.iter().map(|name| (name.clone(), metric(0))));
    }
    let (new_ratio, ..) = ratio(&metrics, &requests, target)?;
    let turned = (usage_ratio < 1.0 && new_ratio > 1.0) || (usage_ratio > 1.0 && new_ratio < 1.0);
    if tolerances.is_within(new_ratio) || turned {
        return proposal(current);
    }
    let replicas = (new_ratio * metrics.len() as f64).ceil() as i32;
    let against = (new_ratio < 1.0 && replicas > current) || (new_ratio > 1.0 && replicas < current);
    proposal(if against { current } else { replicas })
}

/// How many replicas one number asks for, with respect to what it should be.
///
/// # Errors
/// There are no pods.
pub(super) fn by_value(
    usage: i64,
    target: i64,
    pods: &[Arc<Pod>],
    current: i32,
    tolerances: Tolerances,
) -> Result<Proposal, String> {
    let ratio = usage as f64 / target as f64;
    let proposal = |replicas| Ok(Proposal { replicas, usage, utilization: None });
    if current == 0 {
        return proposal(ratio.ceil() as i32);
    }
    if tolerances.is_within(ratio) {
        return proposal(current);
    }
    if pods.is_empty() {
        return Err(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count".into()
        );
    }
    let ready = pods.iter().filter(|pod| phase(pod) == "Running" && is_ready(pod)).count();
    // Conversion saturates.
    proposal((ratio * ready as f64).ceil() as i32)
}

/// How many replicas one number asks for, if each is to have so much of it.
pub(super) fn by_average(usage: i64, target: i64, replicas: i32, tolerances: Tolerances) -> Proposal {
    let ratio = usage as f64 / (target as f64 * f64::from(replicas));
    let proposed = if tolerances.is_within(ratio) { replicas } else { (usage as f64 / target as f64).ceil() as i32 };
    let each = (usage as f64 / f64::from(replicas)).ceil() as i64;
    Proposal { replicas: proposed, usage: each, utilization: None }
}
