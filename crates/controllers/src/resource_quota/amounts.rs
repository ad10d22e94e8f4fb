//! Amounts by name, and what a pod as a whole asks for. Objects are JSON here: one way to read all of them.

use std::collections::BTreeMap;

use capstan_api::Quantity;
use serde_json::Value;

/// Amounts by name.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// The amounts in a field; what is none is left out.
pub(super) fn read(object: &Value, field: &str) -> Amounts {
    let parse = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    let entries = object[field].as_object().into_iter().flatten();
    entries.filter_map(|(name, value)| Some((name.clone(), parse(value)?))).collect()
}

/// Adds each amount to that of the same name.
pub(super) fn add(list: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        match list.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => drop(list.insert(name.clone(), amount.clone())),
        }
    }
}

/// Keeps the larger amount of each name.
fn max(list: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if list.get(name).is_none_or(|own| amount > own) {
            list.insert(name.clone(), amount.clone());
        }
    }
}

pub(super) fn items<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object[field].as_array().into_iter().flatten()
}

pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

pub(crate) fn is_pod_level(name: &str) -> bool {
    ["cpu", "memory"].contains(&name) || name.starts_with("hugepages-")
}

/// What all containers ask for at the time when they ask for most: init containers run one by one, but beside those of
/// them that were started before and go on.
fn containers(spec: &Value, of: impl Fn(&Value, bool) -> Amounts) -> Amounts {
    let (mut sum, mut started, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in items(spec, "containers") {
        add(&mut sum, &of(container, true));
    }
    for container in items(spec, "initContainers") {
        let goes_on = text(container, "restartPolicy") == "Always";
        let mut own = of(container, goes_on);
        if goes_on {
            add(&mut sum, &own);
            add(&mut started, &own);
            max(&mut most, &started);
        } else {
            add(&mut own, &started);
            max(&mut most, &own);
        }
    }
    max(&mut sum, &most);
    sum
}

/// What a pod takes (`side` is `requests` or `limits`), with its overhead, also while it is resized: the larger of what
/// it has and what it asks for.
pub(crate) fn of_pod(pod: &Value, side: &str) -> Amounts {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let statuses: BTreeMap<_, _> = ["containerStatuses", "initContainerStatuses"]
        .iter()
        .flat_map(|list| items(status, list).map(|status| (text(status, "name"), status)))
        .collect();
    let mut conditions = items(status, "conditions");
    let pending = conditions.find(|condition| text(condition, "type") == "PodResizePending");
    let infeasible = pending.is_some_and(|condition| text(condition, "reason") == "Infeasible");
    let mut list = containers(spec, |container, resizable| {
        let own = read(&container["resources"], side);
        let status =
            statuses.get(text(container, "name")).filter(|status| resizable && status["resources"].is_object());
        let Some(status) = status else { return own };
        let mut effective = if infeasible { Amounts::new() } else { own };
        max(&mut effective, &read(&status["resources"], side));
        if side == "requests" {
            max(&mut effective, &read(status, "allocatedResources"));
        }
        effective
    });
    let whole = read(&spec["resources"], side);
    list.extend(whole.into_iter().filter(|(name, _)| is_pod_level(name)));
    let mut overhead = read(spec, "overhead");
    if side == "limits" {
        overhead.retain(|name, _| list.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut list, &overhead);
    list
}

/// Whether a pod asks for nothing at all.
pub(super) fn is_best_effort(pod: &Value) -> bool {
    match text(&pod["status"], "qosClass") {
        "" => {}
        class => return class == "BestEffort",
    }
    let asks = |resources: &Value| {
        ["requests", "limits"].iter().any(|side| {
            read(resources, side)
                .iter()
                .any(|(name, amount)| ["cpu", "memory"].contains(&name.as_str()) && !amount.is_zero())
        })
    };
    let spec = &pod["spec"];
    if spec["resources"].is_object() {
        return !asks(&spec["resources"]);
    }
    !["containers", "initContainers"]
        .iter()
        .flat_map(|list| items(spec, list))
        .any(|container| asks(&container["resources"]))
}
