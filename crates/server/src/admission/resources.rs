//! Lists of resources, and what a pod as a whole asks for.

use std::collections::BTreeMap;

use capstan_api::{Map, Quantity, Str, Value};

use crate::validation::read::{at, object, objects, quantity, text};

/// Amounts by name.
pub(super) type ResourceList = BTreeMap<Str, Quantity>;

/// The list that is a field of this map; what is no quantity is left out.
pub(super) fn read(map: &Map, field: &str) -> ResourceList {
    at(map, field).iter().filter_map(|(name, value)| Some((Str::from(name), quantity(value)?))).collect()
}

/// The list as it is written.
pub(super) fn write(list: &ResourceList) -> Map {
    list.iter().map(|(name, amount)| (name.clone(), Value::from(amount))).collect()
}

/// Adds each amount to that of the same name.
pub(super) fn add(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        match list.get_mut(name) {
            Some(sum) => sum.add(amount),
            None => {
                list.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// Keeps the larger amount of each name.
pub(super) fn max(list: &mut ResourceList, other: &ResourceList) {
    for (name, amount) in other {
        if list.get(name).is_none_or(|own| amount > own) {
            list.insert(name.clone(), amount.clone());
        }
    }
}

/// Requests or limits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// What is set aside.
    Requests,
    /// What is not exceeded.
    Limits,
}

impl Side {
    /// The name of the field.
    pub(super) fn field(self) -> &'static str {
        match self {
            Side::Requests => "requests",
            Side::Limits => "limits",
        }
    }
}

fn is_sidecar(container: &Map) -> bool {
    text(container, "restartPolicy") == "Always"
}

/// What all containers ask for at the time when they ask for most: init containers run one by one, but beside those of
/// them that were started before and go on.
fn containers(spec: &Map, of: impl Fn(&Map, bool) -> ResourceList) -> ResourceList {
    let (mut sum, mut started, mut most) = (ResourceList::new(), ResourceList::new(), ResourceList::new());
    for (_, container) in objects(spec, "containers") {
        add(&mut sum, &of(container, true));
    }
    for (_, container) in objects(spec, "initContainers") {
        let mut own = of(container, is_sidecar(container));
        if is_sidecar(container) {
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

const PREFIX_HUGE_PAGES: &str = "hugepages-";

/// What the pod's spec asks for: that of the pod as a whole before that of its containers.
pub(super) fn of_spec(spec: &Map, side: Side) -> ResourceList {
    let mut list = containers(spec, |container, _| read(at(container, "resources"), side.field()));
    let whole = read(at(spec, "resources"), side.field());
    list.extend(whole.into_iter().filter(|(name, _)| ["cpu", "memory"].contains(&name.as_str())));
    list
}

/// Whether the pod as a whole asks for something.
pub(super) fn has_pod_level(spec: &Map) -> bool {
    let whole = at(spec, "resources");
    let mut names = [Side::Requests, Side::Limits].into_iter().flat_map(|side| at(whole, side.field()).keys());
    names.any(is_pod_level)
}

fn is_pod_level(name: &str) -> bool {
    ["cpu", "memory"].contains(&name) || name.starts_with(PREFIX_HUGE_PAGES)
}

/// What a pod takes, with its overhead, also while it is resized: the larger of what it has and what it asks for.
pub(super) fn of_pod(pod: &Map, side: Side) -> ResourceList {
    let (spec, status) = (at(pod, "spec"), at(pod, "status"));
    let statuses: BTreeMap<&str, &Map> = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|list| objects(status, list).map(|(_, status)| (text(status, "name"), status)))
        .collect();
    let pending = objects(status, "conditions").find(|(_, condition)| text(condition, "type") == "PodResizePending");
    let infeasible = pending.is_some_and(|(_, condition)| text(condition, "reason") == "Infeasible");
    let mut list = containers(spec, |container, resizable| {
        let own = read(at(container, "resources"), side.field());
        let status = statuses.get(text(container, "name")).filter(|_| resizable);
        let Some((status, actual)) = status.and_then(|status| Some((status, object(status, "resources")?))) else {
            return own;
        };
        let mut effective = if infeasible { ResourceList::new() } else { own };
        max(&mut effective, &read(actual, side.field()));
        if side == Side::Requests {
            max(&mut effective, &read(status, "allocatedResources"));
        }
        effective
    });
    let whole = read(at(spec, "resources"), side.field());
    list.extend(whole.into_iter().filter(|(name, _)| is_pod_level(name)));
    let mut overhead = read(spec, "overhead");
    if side == Side::Limits {
        overhead.retain(|name, _| list.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut list, &overhead);
    list
}
