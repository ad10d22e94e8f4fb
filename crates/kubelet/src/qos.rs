//! The quality of service class of a pod, and what it asks for in all.

use std::collections::BTreeMap;

use capstan_api::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};

/// A map of resources as the API has it.
type Resources = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// A quantity of the API's type in ours; nothing when it can't be read.
#[must_use]
pub fn quantity(text: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Quantity {
    text.0.parse().unwrap_or_else(|_| Quantity::new(0, capstan_api::quantity::Format::DecimalSI))
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from the requests and limits of cpu and memory.
#[must_use]
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    let pod_level = spec.resources.as_ref().map(|r| (r.requests.clone(), r.limits.clone()));
    let of_containers =
        spec.containers.iter().chain(spec.init_containers.iter().flatten()).map(|container| {
            container.resources.as_ref().map_or((None, None), |r| (r.requests.clone(), r.limits.clone()))
        });
    let all: Vec<(Option<Resources>, Option<Resources>)> = match pod_level {
        Some(pod_level) => vec![pod_level],
        None => of_containers.collect(),
    };
    for (requests, limits) in all {
        for resource in ["cpu", "memory"] {
            let of = |map: &Option<Resources>| {
                map.as_ref().and_then(|map| map.get(resource)).map(quantity).filter(|q| !q.is_zero())
            };
            let (request, limit) = (of(&requests), of(&limits));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What a pod requests of a resource, in thousandths: the sum of its containers and sidecars, or the most that one
/// of its init containers needs beside the sidecars before it, whichever is more, and its overhead.
#[must_use]
pub fn requested_milli(spec: &PodSpec, resource: &str) -> i64 {
    total_milli(spec, resource, |resources| resources.requests.as_ref())
}

/// What a pod may have of a resource in all, counted the same way; nothing when no container of it says.
#[must_use]
pub fn limit(spec: &PodSpec, resource: &str) -> Option<Quantity> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut said = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref()?.get(resource));
    let format = quantity(said.next()?).format();
    Some(Quantity::new(total_milli(spec, resource, |resources| resources.limits.as_ref()) / 1000, format))
}

fn total_milli(spec: &PodSpec, resource: &str, which: fn(&ResourceRequirements) -> Option<&Resources>) -> i64 {
    let milli =
        |map: Option<&Resources>| map.and_then(|map| map.get(resource)).map_or(0, |q| quantity(q).milli_value());
    let of = |container: &Container| milli(container.resources.as_ref().and_then(which));
    let mut sidecars = 0;
    let mut peak = 0;
    for init in spec.init_containers.iter().flatten() {
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars += of(init);
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars + of(init));
        }
    }
    let regular: i64 = spec.containers.iter().map(of).sum();
    let pod_level = spec.resources.as_ref().and_then(which).and_then(|map| map.get(resource));
    let containers = pod_level.map_or((regular + sidecars).max(peak), |q| quantity(q).milli_value());
    containers + milli(spec.overhead.as_ref())
}
