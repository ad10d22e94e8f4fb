//! What claims of devices use.

use std::collections::BTreeMap;

use capstan_api::{GroupResource, Map, Quantity, Str, Time, Value, json, quantity::Format};

use super::{
    count::{count_name, number},
    evaluator::Context,
    pods,
};
use crate::{
    admission::resources::ResourceList,
    validation::read::{at, flag, int, object, objects, text},
};

const PER_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// How many devices a request for all of them may get.
const MAX_DEVICES: i64 = 32;

/// The claims themselves.
pub(super) fn resource() -> GroupResource {
    GroupResource::new("resource.k8s.io", "resourceclaims")
}

/// The classes of devices, and by which extended resource each is also asked for.
fn classes(context: &Context<'_>) -> Vec<(Str, Option<Str>)> {
    let classes = context.objects.list(&GroupResource::new("resource.k8s.io", "deviceclasses"), "");
    let extended = |class: &[u8]| {
        let class = json::parse(class).ok()?;
        let name = class.get("spec")?.get("extendedResourceName")?.as_str()?;
        (!name.is_empty()).then(|| Str::from(name))
    };
    classes.iter().map(|class| (Str::from(class.name()), extended(&class.json))).collect()
}

/// The names among these that claims of devices use.
pub(super) fn matching<'a>(context: &Context<'_>, names: impl Iterator<Item = &'a Str>) -> Vec<Str> {
    let count = count_name(&resource());
    let mut known = None;
    let mut is_class = |name: &str| {
        let Some(name) = name.strip_prefix("requests.") else { return false };
        let known = known.get_or_insert_with(|| classes(context));
        match name.strip_prefix(pods::DEVICE_CLASS) {
            Some(class) => known.iter().any(|(name, _)| name == class),
            None => known.iter().any(|(_, extended)| extended.as_deref() == Some(name)),
        }
    };
    names
        .filter(|name| {
            **name == count || name.ends_with(PER_CLASS) || (pods::is_extended_quota(name) && is_class(name))
        })
        .cloned()
        .collect()
}

fn devices(request: &Map) -> (Str, i64) {
    let count = match text(request, "allocationMode") {
        "ExactCount" => int(request, "count").unwrap_or(0),
        "All" => MAX_DEVICES,
        _ => 0,
    };
    (format!("{}{PER_CLASS}", text(request, "deviceClassName")).into(), count)
}

pub(super) fn usage(context: &Context<'_>, claim: &Map) -> ResourceList {
    let mut counts: BTreeMap<Str, i64> = BTreeMap::new();
    for (_, request) in objects(at(at(claim, "spec"), "devices"), "requests") {
        let mut most: BTreeMap<Str, i64> = BTreeMap::new();
        let alternatives: Vec<_> =
            objects(request, "firstAvailable").map(|(_, alternative)| devices(alternative)).collect();
        if alternatives.is_empty() {
            // In the beta versions what is asked for stands in the request itself.
            let (class, count) = devices(object(request, "exactly").unwrap_or(request));
            most.insert(class, count);
        }
        for (class, count) in alternatives.into_iter().filter(|(_, count)| *count > 0) {
            let own = most.entry(class).or_default();
            *own = count.max(*own);
        }
        for (class, count) in most {
            let sum = counts.entry(class).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    let quantity = |count: i64| Quantity::new(count, Format::DecimalSI);
    let mut usage: ResourceList = counts.iter().map(|(name, count)| (name.clone(), quantity(*count))).collect();
    let of_pod = pod_usage(context, claim);
    let classes = if counts.is_empty() { Vec::new() } else { classes(context) };
    for (name, count) in &counts {
        let Some(class) = name.strip_suffix(PER_CLASS).filter(|class| !class.is_empty()) else { continue };
        let explicit = classes.iter().find(|(name, _)| name == class).and_then(|(_, extended)| extended.as_deref());
        let implicit = format!("requests.{}{class}", pods::DEVICE_CLASS);
        for name in [Some(implicit), explicit.map(|name| format!("requests.{name}"))].into_iter().flatten() {
            let mut amount = quantity(*count);
            if let Some(counted) = of_pod.get(name.as_str()) {
                amount.sub(counted);
            }
            if amount.signum() > 0 {
                usage.insert(name.into(), amount);
            }
        }
    }
    usage.insert(count_name(&resource()), number(1));
    usage
}

/// The claim that was made for a pod's extended resources is counted with the pod already.
fn pod_usage(context: &Context<'_>, claim: &Map) -> ResourceList {
    find_pod(context, claim).map(|pod| pods::usage(&pod, context.now)).unwrap_or_default()
}

const FOR_EXTENDED_RESOURCES: &str = "resource.kubernetes.io/extended-resource-claim";

/// The pod whose extended resources the claim was made for.
fn find_pod(context: &Context<'_>, claim: &Map) -> Option<Map> {
    let metadata = at(claim, "metadata");
    let owner = owning_pod(metadata)?;
    let pod = context.objects.get(&GroupResource::new("", "pods"), context.namespace, text(owner, "name"))?;
    if pod.uid != text(owner, "uid") {
        return None;
    }
    let Ok(Value::Object(pod)) = json::parse(&pod.json) else { return None };
    match object(at(&pod, "status"), "extendedResourceClaimStatus") {
        Some(status) => (text(status, "resourceClaimName") == text(metadata, "name")).then_some(pod),
        // Before the pod says which claim it is, it is the oldest of its claims.
        None => {
            let age = |metadata: &Map| {
                let time: Option<Time> = text(metadata, "creationTimestamp").parse().ok();
                (time.unwrap_or_default(), Str::from(text(metadata, "name")))
            };
            let own = age(metadata);
            let others = context.objects.list(&resource(), context.namespace);
            let is_older = others.iter().filter_map(|other| json::parse(&other.json).ok()).any(|other| {
                let other = other.get("metadata").and_then(Value::as_object);
                other.is_some_and(|other| {
                    owning_pod(other).is_some_and(|own| text(own, "uid") == text(owner, "uid")) && age(other) < own
                })
            });
            (!is_older).then_some(pod)
        }
    }
}

fn owning_pod(metadata: &Map) -> Option<&Map> {
    if text(at(metadata, "annotations"), FOR_EXTENDED_RESOURCES) != "true" {
        return None;
    }
    let (_, owner) = objects(metadata, "ownerReferences").find(|(_, owner)| flag(owner, "controller"))?;
    (text(owner, "kind") == "Pod" && text(owner, "apiVersion") == "v1").then_some(owner)
}
