//! Pods: their quality of service, the status they start with, and the subresources that change a part of their spec.

use capstan_api::{Map, Quantity, Time, Value};

use super::paths;

/// What counts for the quality of service, in the order of [`Amounts`].
const COMPUTE: [&str; 2] = ["cpu", "memory"];

type Amounts = [Option<Quantity>; 2];

/// The quality of service class of a pod: `Guaranteed`, `Burstable` or `BestEffort`.
///
/// Resources of the pod as a whole count instead of those of its containers. Ephemeral containers never count.
#[must_use]
pub fn qos_class(pod: &Map) -> &'static str {
    let (mut requests, mut limits) = (Amounts::default(), Amounts::default());
    let mut guaranteed = true;
    if let Some(whole) = paths::get(pod, "spec.resources").and_then(Value::as_object) {
        add(&mut requests, whole.get("requests"));
        add(&mut limits, whole.get("limits"));
    } else {
        for path in ["spec.containers", "spec.initContainers"] {
            for resources in paths::items(pod, path).iter().map(|container| container.get("resources")) {
                add(&mut requests, resources.and_then(|resources| resources.get("requests")));
                let mut own = Amounts::default();
                add(&mut own, resources.and_then(|resources| resources.get("limits")));
                guaranteed &= own.iter().all(Option::is_some);
                add(&mut limits, resources.and_then(|resources| resources.get("limits")));
            }
        }
    }
    let is_unset = |amounts: &Amounts| amounts.iter().all(Option::is_none);
    if is_unset(&requests) && is_unset(&limits) {
        "BestEffort"
    } else if guaranteed && limits.iter().all(Option::is_some) && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Adds what is more than nothing.
fn add(amounts: &mut Amounts, list: Option<&Value>) {
    for (sum, name) in amounts.iter_mut().zip(COMPUTE) {
        let amount = list.and_then(|list| list.get(name)).and_then(quantity).filter(|amount| amount.signum() > 0);
        match (sum, amount) {
            (Some(sum), Some(amount)) => sum.add(&amount),
            (sum @ None, Some(amount)) => *sum = Some(amount),
            (_, None) => {}
        }
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        number => number.as_i64()?.to_string().parse().ok(),
    }
}

/// A new pod waits to be scheduled, and selects with the labels that it has now.
pub(super) fn create(pod: &mut Map, sent: Option<&Value>, now: Time) {
    let sent = sent.and_then(|status| status.get("qosClass")).and_then(Value::as_str).filter(|class| !class.is_empty());
    let class = sent.map_or_else(|| qos_class(pod).into(), str::to_owned);
    let mut status = Map::new();
    status.insert("phase", "Pending");
    status.insert("qosClass", class);
    if !paths::items(pod, "spec.schedulingGates").is_empty() {
        let words = [
            ("type", "PodScheduled"),
            ("status", "False"),
            ("reason", "SchedulingGated"),
            ("message", "Scheduling is blocked due to non-empty scheduling gates"),
        ];
        let mut condition: Map = words.into_iter().map(|(key, word)| (key.into(), word.into())).collect();
        condition.insert("lastProbeTime", Value::Null);
        condition.insert("lastTransitionTime", now.to_string());
        status.insert("conditions", vec![condition.into()]);
    }
    pod.insert("status", status);
    let labels = paths::get(pod, "metadata.labels").and_then(Value::as_object).cloned().unwrap_or_default();
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let rules = format!("spec.affinity.{affinity}.preferredDuringSchedulingIgnoredDuringExecution");
        for rule in paths::array_mut(pod, &rules).into_iter().flat_map(|rules| rules.iter_mut()) {
            if let Some(term) = rule.get_mut("podAffinityTerm") {
                select_by_keys(term, &labels);
            }
        }
        let rules = format!("spec.affinity.{affinity}.requiredDuringSchedulingIgnoredDuringExecution");
        for term in paths::array_mut(pod, &rules).into_iter().flat_map(|rules| rules.iter_mut()) {
            select_by_keys(term, &labels);
        }
    }
    for spread in paths::array_mut(pod, "spec.topologySpreadConstraints").into_iter().flat_map(|all| all.iter_mut()) {
        select_by_keys(spread, &labels);
    }
}

/// Keys of labels become requirements with the values that the pod has. A term without a selector selects nothing.
fn select_by_keys(term: &mut Value, labels: &Map) {
    let mut added = Vec::new();
    for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term.get(keys).and_then(Value::as_array).map_or(&[][..], |keys| keys);
        for key in keys.iter().filter_map(Value::as_str) {
            if let Some(value) = labels.get(key) {
                let mut requirement = Map::new();
                requirement.insert("key", key);
                requirement.insert("operator", operator);
                requirement.insert("values", vec![value.clone()]);
                added.push(Value::from(requirement));
            }
        }
    }
    let Some(selector) = term.get_mut("labelSelector").and_then(Value::as_object_mut) else { return };
    if !added.is_empty() {
        let mut all = paths::items(selector, "matchExpressions").to_vec();
        all.append(&mut added);
        selector.insert("matchExpressions", all);
    }
}

/// What kubelets older than the field leave out of a status stays as it was.
pub(super) fn update_status(new: &mut Map, old: &Map) {
    if paths::text(new, "status.qosClass").is_empty() {
        paths::copy(new, old, "status.qosClass");
    }
    if paths::number(new, "status.observedGeneration") == 0 {
        paths::copy(new, old, "status.observedGeneration");
    }
    let observed = |value: &Value| value.get("observedGeneration").and_then(Value::as_i64).unwrap_or_default();
    let mut before: Vec<_> = paths::items(old, "status.conditions").iter().collect();
    for condition in paths::array_mut(new, "status.conditions").into_iter().flat_map(|all| all.iter_mut()) {
        // A type may occur more than once: the first of the old ones belongs to the first of the new ones.
        let found = before.iter().position(|old| old.get("type") == condition.get("type"));
        let generation = found.map_or(0, |at| observed(before.remove(at)));
        if let Value::Object(map) = &mut *condition
            && generation != 0
            && paths::number(map, "observedGeneration") == 0
        {
            map.insert("observedGeneration", generation);
        }
    }
}

/// `/ephemeralcontainers` changes these and nothing else.
pub(super) fn only_ephemeral_containers(new: &mut Map, old: &Map) {
    let containers = paths::get(new, "spec.ephemeralContainers").cloned();
    keep_all(new, old);
    match containers {
        Some(containers) => paths::set(new, "spec.ephemeralContainers", containers),
        None => paths::remove(new, "spec.ephemeralContainers"),
    }
}

/// `/resize` changes resources and resize policies and nothing else. Containers that come, go or change places are
/// left for validation to refuse.
pub(super) fn only_resize(new: &mut Map, old: &Map) {
    const LISTS: [&str; 2] = ["spec.containers", "spec.initContainers"];
    if LISTS.iter().any(|list| paths::items(new, list).len() != paths::items(old, list).len()) {
        return;
    }
    let resized = LISTS.map(|list| resize(paths::items(new, list), paths::items(old, list)));
    let whole = paths::get(new, "spec.resources").cloned();
    keep_all(new, old);
    match whole {
        Some(whole) => paths::set(new, "spec.resources", whole),
        None => paths::remove(new, "spec.resources"),
    }
    for (list, containers) in LISTS.iter().zip(resized).filter(|(_, containers)| !containers.is_empty()) {
        paths::set(new, list, containers);
    }
}

fn resize(new: &[Value], old: &[Value]) -> Vec<Value> {
    if new.iter().zip(old).any(|(new, old)| new.get("name") != old.get("name")) {
        return new.to_vec();
    }
    let merge = |(new, old): (&Value, &Value)| {
        let mut merged = old.clone();
        if let (Value::Object(merged), Value::Object(new)) = (&mut merged, new) {
            paths::copy(merged, new, "resources");
            paths::copy(merged, new, "resizePolicy");
        }
        merged
    };
    new.iter().zip(old).map(merge).collect()
}

fn keep_all(new: &mut Map, old: &Map) {
    for field in ["labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp"] {
        paths::copy(new, old, &format!("metadata.{field}"));
    }
    paths::copy(new, old, "spec");
    paths::copy(new, old, "status");
}
