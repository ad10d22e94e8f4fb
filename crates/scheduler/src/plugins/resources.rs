//! Plugins that count resources.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::{core::v1::Node, resource::v1::DeviceClass};

use crate::{
    event::{ActionType as A, ClusterEvent, EventObject, EventResource as R},
    node_info::NodeInfo,
    plugin::{Cycle, Filter, MAX_NODE_SCORE, Plugin, Point, QueueingHint, Score},
    pod_info::PodInfo,
    resource::{CLASS_PREFIX, Resource, is_extended, is_scalar, is_served_by_devices},
    status::{Code, Status},
    world::World,
};

/// A resource by which nodes are ranked, and how much it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceSpec {
    /// Its name.
    pub name: String,
    /// How much it counts.
    pub weight: i64,
}

/// CPU and memory, alike.
#[must_use]
pub fn default_resources() -> Vec<ResourceSpec> {
    ["cpu", "memory"].map(|name| ResourceSpec { name: name.to_owned(), weight: 1 }).to_vec()
}

/// Which nodes are better by what is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// The emptier.
    LeastAllocated,
    /// The fuller.
    MostAllocated,
    /// By a curve: scores at percentages of use, rising in use.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

impl Strategy {
    fn score(&self, requested: i64, capacity: i64) -> Option<i64> {
        // Bytes times a hundred can exceed 64 bits.
        let percent = |part: i64| (i128::from(part) * i128::from(MAX_NODE_SCORE) / i128::from(capacity)) as i64;
        match self {
            Strategy::LeastAllocated if requested > capacity => Some(0),
            Strategy::LeastAllocated => Some(percent(capacity - requested)),
            Strategy::MostAllocated => Some(percent(requested.min(capacity))),
            Strategy::RequestedToCapacityRatio(shape) => {
                let used = if requested > capacity { 100 } else { percent(requested) };
                Some(interpolate(shape, used)).filter(|score| *score > 0)
            }
        }
    }
}

fn interpolate(shape: &[(i64, i64)], at: i64) -> i64 {
    let Some((_, last)) = shape.last() else { return 0 };
    for (index, (utilization, score)) in shape.iter().enumerate() {
        if at <= *utilization {
            let Some((u0, s0)) = index.checked_sub(1).map(|before| shape[before]) else { return *score };
            return s0 + (score - s0) * (at - u0) / (utilization - u0);
        }
    }
    *last
}

/// Only nodes with enough left; rather those that the strategy likes.
#[derive(Clone, Debug)]
pub struct NodeResourcesFit {
    /// How nodes are ranked.
    pub strategy: Strategy,
    /// By which resources.
    pub resources: Vec<ResourceSpec>,
    /// Extended resources that are not looked at.
    pub ignored_resources: Vec<String>,
    /// Prefixes of extended resources that are not looked at.
    pub ignored_resource_groups: Vec<String>,
    /// Resources that device classes stood for when pods were looked at.
    pub(super) served: Served,
}

/// Names of resources that device classes stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Served(Arc<Mutex<BTreeSet<Arc<str>>>>);

impl Served {
    /// Finds out for which resources of a pod there are classes.
    fn look(&self, pod: &PodInfo, world: &World) -> Vec<Arc<str>> {
        let names = pod.requests.scalars.iter().map(|(name, _)| name).filter(|name| is_served_by_devices(name));
        let (served, not): (Vec<_>, Vec<_>) = names.cloned().partition(|name| world.class_of(name).is_some());
        if !served.is_empty() || !not.is_empty() {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|name| !not.contains(name));
            known.extend(served.iter().cloned());
        }
        served
    }

    fn has(&self, name: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }
}

impl Default for NodeResourcesFit {
    fn default() -> Self {
        NodeResourcesFit {
            strategy: Strategy::LeastAllocated,
            resources: default_resources(),
            ignored_resources: Vec::new(),
            ignored_resource_groups: Vec::new(),
            served: Served::default(),
        }
    }
}

/// What a node lacks, in words, and whether it would lack it even when empty.
fn lacking<'a>(
    request: &Resource,
    node: &NodeInfo,
    ignored: impl Fn(&str) -> bool,
    out: &mut Vec<Cow<'a, str>>,
) -> bool {
    let mut never = false;
    if node.pods.len() as i64 + 1 > node.allowed_pods {
        out.push("Too many pods".into());
    }
    if request.is_zero() {
        return false;
    }
    let (has, used) = (&node.allocatable, &node.requested);
    let standard = [
        ("Insufficient cpu", request.milli_cpu, has.milli_cpu, used.milli_cpu),
        ("Insufficient memory", request.memory, has.memory, used.memory),
        ("Insufficient ephemeral-storage", request.ephemeral_storage, has.ephemeral_storage, used.ephemeral_storage),
    ];
    for (reason, wanted, has, used) in standard {
        if wanted > 0 && wanted > has - used {
            out.push(reason.into());
            never |= wanted > has;
        }
    }
    for (name, wanted) in &request.scalars {
        if *wanted != 0 && !ignored(name) && *wanted > has.scalar(name) - used.scalar(name) {
            out.push(format!("Insufficient {name}").into());
            never |= *wanted > has.scalar(name);
        }
    }
    never
}

#[derive(Debug)]
struct FitFilter {
    ignored: Vec<String>,
    groups: Vec<String>,
    /// Resources that are claimed as devices where the node has none of them.
    served: Vec<Arc<str>>,
}

impl Filter for FitFilter {
    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let served =
            |name: &str| self.served.iter().any(|other| &**other == name) && node.allocatable.scalar(name) == 0;
        let ignored = |name: &str| {
            served(name)
                || is_extended(name)
                    && (self.ignored.iter().any(|other| other == name)
                        || name.split('/').next().is_some_and(|group| self.groups.iter().any(|other| other == group)))
        };
        let mut reasons = Vec::new();
        let never = lacking(&cycle.pod.requests, node, ignored, &mut reasons);
        if reasons.is_empty() {
            return Ok(());
        }
        let code = if never { Code::UnschedulableAndUnresolvable } else { Code::Unschedulable };
        Err(Status { code, plugin: "", reasons })
    }
}

/// What a node and its pods have and use of a resource, with the pod: used, used before, to give. Nothing for resources
/// that the node does not have, or that are special and the pod does not want.
fn usage(name: &str, wanted: i64, node: &NodeInfo, used: &Resource) -> Option<(i64, i64, i64)> {
    if wanted == 0 && is_scalar(name) {
        return None;
    }
    let used = match name {
        "cpu" | "memory" => used.get(name),
        other => node.requested.get(other),
    };
    let has = node.allocatable.get(name);
    (has != 0).then_some((used + wanted, used, has))
}

#[derive(Debug)]
struct FitScore {
    strategy: Strategy,
    resources: Vec<ResourceSpec>,
}

impl Score for FitScore {
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for ResourceSpec { name, weight } in &self.resources {
            let wanted = cycle.pod.non_zero.get(name);
            let Some((used, _, has)) = usage(name, wanted, node, &node.non_zero) else { continue };
            let Some(score) = self.strategy.score(used, has) else { continue };
            sum += score * weight;
            weights += weight;
        }
        match (weights, &self.strategy) {
            (0, _) => 0,
            (_, Strategy::RequestedToCapacityRatio(_)) => (sum as f64 / weights as f64).round() as i64,
            _ => sum / weights,
        }
    }
}

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        "NodeResourcesFit"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PreScore, Point::Score]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::Pod, A::DELETE.or(A::UPDATE_POD_SCALE_DOWN)),
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_ALLOCATABLE)),
                ClusterEvent::new(R::DeviceClass, A::ADD.or(A::UPDATE)),
            ]
        }
    }

    fn hint(&self, pod: &PodInfo, _event: ClusterEvent, object: &EventObject) -> QueueingHint {
        let queue = match object {
            EventObject::Pod(Some(old), None) => !old.node_name().is_empty() || !old.nominated_node_name().is_empty(),
            EventObject::Pod(Some(old), Some(new)) => {
                new.uid == pod.uid || (!new.node_name().is_empty() && gives_back(pod, &old.requests, &new.requests))
            }
            EventObject::Node(old, Some(new)) => {
                let after = empty(new);
                let mut reasons = Vec::new();
                let served = |name: &str| self.served.has(name) && after.allocatable.scalar(name) == 0;
                lacking(&pod.requests, &after, served, &mut reasons);
                reasons.is_empty()
                    && old.as_ref().is_none_or(|old| {
                        let before = empty(old);
                        after.allowed_pods > before.allowed_pods
                            || pod.requests.scalars.iter().any(|(name, amount)| *amount != 0 && served(name))
                            || gives_back(pod, &after.allocatable, &before.allocatable)
                    })
            }
            EventObject::DeviceClass(old, Some(new)) => {
                let stands_for = |class: &DeviceClass| class.spec.extended_resource_name.clone();
                let always = |class: &DeviceClass| {
                    let name = class.metadata.name.as_deref().unwrap_or_default();
                    format!("{CLASS_PREFIX}{name}")
                };
                let wants = |name: &str| pod.requests.scalars.iter().any(|(wanted, _)| **wanted == *name);
                let renamed = old.as_ref().is_none_or(|old| stands_for(old) != stands_for(new));
                (old.is_none() && wants(&always(new))) || (renamed && stands_for(new).is_some_and(|name| wants(&name)))
            }
            _ => true,
        };
        if queue { QueueingHint::Queue } else { QueueingHint::Skip }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        let (ignored, groups) = (self.ignored_resources.clone(), self.ignored_resource_groups.clone());
        let served = self.served.look(cycle.pod, &cycle.cache.world);
        Ok(Some(Box::new(FitFilter { ignored, groups, served })))
    }

    fn pre_score(&self, _cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        Some(Box::new(FitScore { strategy: self.strategy.clone(), resources: self.resources.clone() }))
    }
}

fn empty(node: &Arc<Node>) -> NodeInfo {
    let mut info = NodeInfo::new(crate::cache::Slot(0));
    info.set_node(Arc::clone(node));
    info
}

/// Whether of something that the pod wants there is more in one than in the other.
fn gives_back(pod: &PodInfo, more: &Resource, less: &Resource) -> bool {
    let wanted =
        ["cpu", "memory", "ephemeral-storage"].into_iter().chain(pod.requests.scalars.iter().map(|(n, _)| &**n));
    wanted.filter(|name| pod.requests.get(name) > 0).any(|name| more.get(name) > less.get(name))
}

/// Rather nodes where the resources are used evenly with the pod.
#[derive(Clone, Debug)]
pub struct NodeResourcesBalancedAllocation {
    /// Which resources.
    pub resources: Vec<ResourceSpec>,
}

impl Default for NodeResourcesBalancedAllocation {
    fn default() -> Self {
        NodeResourcesBalancedAllocation { resources: default_resources() }
    }
}

#[derive(Debug)]
struct BalanceScore {
    resources: Vec<ResourceSpec>,
}

/// How even the parts in use are, from 0 to 100.
fn balance(parts: &[(i64, i64)]) -> i64 {
    let fractions: Vec<f64> = parts.iter().map(|(used, has)| (*used as f64 / *has as f64).min(1.0)).collect();
    let deviation = match fractions[..] {
        [a, b] => ((a - b) / 2.0).abs(),
        [] | [_] => 0.0,
        _ => {
            let mean = fractions.iter().sum::<f64>() / fractions.len() as f64;
            let squares = fractions.iter().map(|fraction| (fraction - mean) * (fraction - mean)).sum::<f64>();
            (squares / fractions.len() as f64).sqrt()
        }
    };
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}

impl Score for BalanceScore {
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        let (mut with, mut without) = (Vec::with_capacity(4), Vec::with_capacity(4));
        for ResourceSpec { name, .. } in &self.resources {
            let wanted = cycle.pod.requests.get(name);
            let Some((used, before, has)) = usage(name, wanted, node, &node.requested) else { continue };
            with.push((used, has));
            without.push((before, has));
        }
        MAX_NODE_SCORE / 2 + (MAX_NODE_SCORE / 2 + balance(&with) - balance(&without)) / 2
    }
}

impl Plugin for NodeResourcesBalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreScore, Point::Score]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn pre_score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        // A pod that asks for nothing unbalances nothing.
        let any = self.resources.iter().any(|resource| cycle.pod.requests.get(&resource.name) != 0);
        any.then(|| Box::new(BalanceScore { resources: self.resources.clone() }) as Box<dyn Score>)
    }
}
