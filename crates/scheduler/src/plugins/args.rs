//! Plugins from the arguments of a configuration.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{NodeAffinity as AddedAffinity, TopologySpreadConstraint};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    DEFAULT_BINDING_TIMEOUT, DefaultBinder, DefaultPreemption, Defaults, DynamicResources, ImageLocality,
    InterPodAffinity, NodeAffinity, NodeDeclaredFeatures, NodeName, NodePorts, NodeResourcesBalancedAllocation,
    NodeResourcesFit, NodeUnschedulable, NodeVolumeLimits, PodTopologySpread, PrioritySort, ResourceSpec,
    SchedulingGates, Strategy, TaintToleration, VolumeBinding, VolumeRestrictions, VolumeZone, default_resources,
};
use crate::{
    config::Factory,
    plugin::{MAX_NODE_SCORE, Plugin, PreemptionArgs},
    selectors::{NodeTerms, PreferredNodes},
};

/// The best score of a point of a curve in a configuration.
const MAX_CUSTOM_PRIORITY_SCORE: i64 = 10;

type Made = Result<Arc<dyn Plugin>, String>;

fn read<T: DeserializeOwned + Default>(args: &Value) -> Result<T, String> {
    if args.is_null() {
        return Ok(T::default());
    }
    let mut args = args.clone();
    if let Some(map) = args.as_object_mut() {
        map.remove("apiVersion");
        map.remove("kind");
    }
    serde_json::from_value(args).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    name: String,
    #[serde(default)]
    weight: i64,
}

fn resources(specs: Vec<Spec>, largest: i64) -> Result<Vec<ResourceSpec>, String> {
    if specs.is_empty() {
        return Ok(default_resources());
    }
    let read = |spec: Spec| {
        let weight = if spec.weight == 0 { 1 } else { spec.weight };
        match (1..=largest).contains(&weight) {
            true => Ok(ResourceSpec { name: spec.name, weight }),
            false => Err(format!(
                "resource weight of {} not in valid range [1-{largest}]: Invalid value: {weight}",
                spec.name
            )),
        }
    };
    specs.into_iter().map(read).collect()
}

fn fit(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        ignored_resources: Vec<String>,
        ignored_resource_groups: Vec<String>,
        scoring_strategy: Scoring,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Scoring {
        #[serde(rename = "type")]
        kind: Option<String>,
        resources: Vec<Spec>,
        requested_to_capacity_ratio: Ratio,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Ratio {
        shape: Vec<Shape>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape {
        utilization: i64,
        score: i64,
    }
    let args: Args = read(args)?;
    let strategy = match args.scoring_strategy.kind.as_deref().unwrap_or("LeastAllocated") {
        "LeastAllocated" => Strategy::LeastAllocated,
        "MostAllocated" => Strategy::MostAllocated,
        "RequestedToCapacityRatio" => {
            let shape = args.scoring_strategy.requested_to_capacity_ratio.shape;
            let rising = shape.windows(2).all(|pair| pair[0].utilization < pair[1].utilization);
            let within = |point: &Shape| {
                (0..=100).contains(&point.utilization) && (0..=MAX_CUSTOM_PRIORITY_SCORE).contains(&point.score)
            };
            if shape.is_empty() || !rising || !shape.iter().all(within) {
                return Err(
                    "shape: at least one point is needed, utilization (0-100) must rise, scores are 0-10".into()
                );
            }
            let scale = MAX_NODE_SCORE / MAX_CUSTOM_PRIORITY_SCORE;
            let points = shape.into_iter().map(|point| (point.utilization, point.score * scale));
            Strategy::RequestedToCapacityRatio(points.collect())
        }
        other => return Err(format!("scoring strategy {other} is not supported")),
    };
    Ok(Arc::new(NodeResourcesFit {
        strategy,
        resources: resources(args.scoring_strategy.resources, 100)?,
        ignored_resources: args.ignored_resources,
        ignored_resource_groups: args.ignored_resource_groups,
        served: Default::default(),
    }))
}

fn balanced(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Args {
        resources: Vec<Spec>,
    }
    let args: Args = read(args)?;
    Ok(Arc::new(NodeResourcesBalancedAllocation { resources: resources(args.resources, 1)? }))
}

fn spread(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        default_constraints: Vec<TopologySpreadConstraint>,
        defaulting_type: Option<String>,
    }
    let args: Args = read(args)?;
    if args.default_constraints.iter().any(|constraint| constraint.label_selector.is_some()) {
        let message = "constraint must not define a selector, as they deduced for each pod";
        return Err(format!("defaultConstraints: Forbidden: {message}"));
    }
    let defaults = match args.defaulting_type.as_deref().unwrap_or("System") {
        "System" if args.default_constraints.is_empty() => Defaults::System,
        "System" => {
            return Err("defaultingType: Invalid value: \"System\": when .defaultConstraints are not empty".into());
        }
        "List" => Defaults::List(args.default_constraints),
        other => return Err(format!("defaultingType: Unsupported value: \"{other}\"")),
    };
    Ok(Arc::new(PodTopologySpread { defaults }))
}

fn inter_pod(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        hard_pod_affinity_weight: Option<i64>,
        ignore_preferred_terms_of_existing_pods: bool,
    }
    let args: Args = read(args)?;
    let weight = args.hard_pod_affinity_weight.unwrap_or(1);
    if !(0..=100).contains(&weight) {
        return Err(format!("hardPodAffinityWeight: Invalid value: {weight}: not in valid range [0-100]"));
    }
    Ok(Arc::new(InterPodAffinity {
        hard_pod_affinity_weight: weight,
        ignore_preferred_terms_of_existing_pods: args.ignore_preferred_terms_of_existing_pods,
    }))
}

fn volume_binding(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        bind_timeout_seconds: Option<i64>,
    }
    let seconds = read::<Args>(args)?.bind_timeout_seconds;
    let Some(seconds) = seconds else { return Ok(Arc::new(VolumeBinding::default())) };
    let seconds = u64::try_from(seconds).map_err(|_| {
        format!(
            "bindTimeoutSeconds: Invalid value: {seconds}: invalid BindTimeoutSeconds, should not be a negative value"
        )
    })?;
    Ok(Arc::new(VolumeBinding::new(Duration::from_secs(seconds))))
}

fn dynamic_resources(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        filter_timeout: Option<String>,
        binding_timeout: Option<String>,
    }
    let args: Args = read(args)?;
    let duration = |field: &str, text: &Option<String>| -> Result<Option<Duration>, String> {
        let Some(text) = text else { return Ok(None) };
        let parsed: Result<capstan_api::Duration, _> = text.parse();
        let nanos = parsed.map_err(|error| format!("{field}: {error}"))?.0;
        let nanos =
            u64::try_from(nanos).map_err(|_| format!("{field}: Invalid value: \"{text}\": must be positive"))?;
        Ok(Some(Duration::from_nanos(nanos)))
    };
    // A search ends after so many steps; how long that takes is not asked.
    duration("filterTimeout", &args.filter_timeout)?;
    let binding = duration("bindingTimeout", &args.binding_timeout)?;
    if binding.is_some_and(|binding| binding < Duration::from_secs(1)) {
        let text = args.binding_timeout.unwrap_or_default();
        return Err(format!("bindingTimeout: Invalid value: \"{text}\": must be greater than or equal to 1 second"));
    }
    Ok(Arc::new(DynamicResources::new(binding.unwrap_or(DEFAULT_BINDING_TIMEOUT))))
}

fn node_affinity(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        added_affinity: Option<AddedAffinity>,
    }
    let added = read::<Args>(args)?.added_affinity.unwrap_or_default();
    let required = added.required_during_scheduling_ignored_during_execution.as_ref();
    let preferred = added.preferred_during_scheduling_ignored_during_execution.unwrap_or_default();
    Ok(Arc::new(NodeAffinity {
        added_required: required.map(NodeTerms::new),
        added_preferred: PreferredNodes::new(&preferred),
    }))
}

fn preemption(args: &Value) -> Made {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        min_candidate_nodes_percentage: Option<i32>,
        min_candidate_nodes_absolute: Option<i32>,
    }
    let (args, default): (Args, _) = (read(args)?, PreemptionArgs::default());
    let args = PreemptionArgs {
        min_candidate_nodes_percentage: args
            .min_candidate_nodes_percentage
            .unwrap_or(default.min_candidate_nodes_percentage),
        min_candidate_nodes_absolute: args.min_candidate_nodes_absolute.unwrap_or(default.min_candidate_nodes_absolute),
    };
    let (percentage, absolute) = (args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute);
    if !(0..=100).contains(&percentage) {
        let message = "not in valid range [0, 100]";
        return Err(format!("minCandidateNodesPercentage: Invalid value: {percentage}: {message}"));
    }
    if absolute < 0 {
        return Err(format!("minCandidateNodesAbsolute: Invalid value: {absolute}: not in valid range [0, inf)"));
    }
    if percentage == 0 && absolute == 0 {
        return Err("minCandidateNodesPercentage and minCandidateNodesAbsolute: cannot both be zero".into());
    }
    Ok(Arc::new(DefaultPreemption { args }))
}

/// A plugin that takes no arguments.
macro_rules! plain {
    ($plugin:expr) => {
        |_| Ok(Arc::new($plugin))
    };
}

/// The plugins that configurations can name.
pub(crate) const FACTORIES: &[(&str, Factory)] = &[
    ("SchedulingGates", plain!(SchedulingGates)),
    ("PrioritySort", plain!(PrioritySort)),
    ("NodeUnschedulable", plain!(NodeUnschedulable)),
    ("NodeName", plain!(NodeName)),
    ("TaintToleration", plain!(TaintToleration)),
    ("NodeAffinity", node_affinity),
    ("NodePorts", plain!(NodePorts)),
    ("NodeResourcesFit", fit),
    ("VolumeRestrictions", plain!(VolumeRestrictions)),
    ("NodeVolumeLimits", plain!(NodeVolumeLimits)),
    ("VolumeBinding", volume_binding),
    ("VolumeZone", plain!(VolumeZone)),
    ("PodTopologySpread", spread),
    ("InterPodAffinity", inter_pod),
    ("DynamicResources", dynamic_resources),
    ("DefaultPreemption", preemption),
    ("NodeResourcesBalancedAllocation", balanced),
    ("ImageLocality", plain!(ImageLocality)),
    ("DefaultBinder", plain!(DefaultBinder)),
    ("NodeDeclaredFeatures", plain!(NodeDeclaredFeatures)),
];
