//! Resources of a whole pod, filled in from those of its containers.

use std::collections::BTreeMap;

use crate::{Map, Quantity, Str, Value};

/// How much of each resource.
type Resources = BTreeMap<Str, Quantity>;

/// Fills in a pod's own resources once it has any: limits of huge pages from those of the containers, requests from the
/// containers' requests, and what is then still missing from the limits.
pub(super) fn pod_level_resources(pod: &mut Map) {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let Some(own) = spec.get("resources").and_then(Value::as_object) else { return };
    let (mut limits, mut requests) = (read(own.get("limits")), read(own.get("requests")));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    for (name, amount) in aggregate(spec, "limits") {
        if is_huge_page(&name) && !requests.contains_key(&name) {
            limits.entry(name).or_insert(amount);
        }
    }
    if !limits.is_empty() {
        for (name, amount) in aggregate(spec, "requests") {
            if matches!(name.as_str(), "cpu" | "memory") {
                requests.entry(name).or_insert(amount);
            }
        }
        for (name, amount) in &limits {
            if matches!(name.as_str(), "cpu" | "memory") || is_huge_page(name) {
                requests.entry(name.clone()).or_insert_with(|| amount.clone());
            }
        }
    }
    let Some(own) = spec.get_mut("resources").and_then(Value::as_object_mut) else { return };
    for (field, amounts) in [("limits", limits), ("requests", requests)] {
        if !amounts.is_empty() {
            own.insert(field, amounts.iter().map(|(name, amount)| (name.clone(), amount.into())).collect::<Map>());
        }
    }
}

fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn read(value: Option<&Value>) -> Resources {
    let entries = value.and_then(Value::as_object).map(Map::iter).into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.into(), amount.as_str()?.parse().ok()?))).collect()
}

/// What all containers together need of `field`: the sum of those that run together, or what an init container needs
/// beside the sidecars that started before it, whichever is more.
fn aggregate(spec: &Map, field: &str) -> Resources {
    let containers =
        |name: &str| spec.get(name).and_then(Value::as_array).map(|items| items.iter()).into_iter().flatten();
    let amounts = |container: &Value| read(container.get("resources").and_then(|resources| resources.get(field)));
    let (mut total, mut sidecars, mut most) = (Resources::new(), Resources::new(), Resources::new());
    for container in containers("containers") {
        add(&mut total, &amounts(container));
    }
    for container in containers("initContainers") {
        let mut needed = amounts(container);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut most, &needed);
    }
    raise(&mut total, &most);
    total
}

fn add(total: &mut Resources, more: &Resources) {
    for (name, amount) in more {
        match total.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => _ = total.insert(name.clone(), amount.clone()),
        }
    }
}

fn raise(total: &mut Resources, least: &Resources) {
    for (name, amount) in least {
        if total.get(name).is_none_or(|present| amount > present) {
            total.insert(name.clone(), amount.clone());
        }
    }
}
