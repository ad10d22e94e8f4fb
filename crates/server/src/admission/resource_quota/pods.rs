//! What pods use.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{Map, Str, Time, Value, validation::is_qualified_name};

use super::{count::number, scopes::Selector};
use crate::{
    admission::resources::{ResourceList, Side, add, has_pod_level, of_pod, read},
    registry::pod::qos_class,
    validation::read::{at, int, is_set, list, objects, text},
};

const REQUESTS: &str = "requests.";
const HUGE_PAGES: &str = "hugepages-";
pub(super) const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";

const RESOURCES: [&str; 11] = [
    "count/pods",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// What every container must say when there is a quota for it.
const DEMANDED: [&str; 6] = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// Whether a name belongs to Kubernetes.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a name of a quota stands for an extended resource.
pub(super) fn is_extended_quota(name: &str) -> bool {
    name.strip_prefix(REQUESTS).is_some_and(|rest| !is_native(name) || rest.starts_with(DEVICE_CLASS))
}

fn is_extended(name: &str) -> bool {
    name.starts_with(DEVICE_CLASS)
        || (!is_native(name)
            && !name.starts_with(REQUESTS)
            && is_qualified_name(&format!("{REQUESTS}{name}")).is_empty())
}

pub(super) fn is_resource(name: &str) -> bool {
    let huge_pages = |name: &str| name.starts_with(HUGE_PAGES);
    RESOURCES.contains(&name)
        || huge_pages(name)
        || name.strip_prefix(REQUESTS).is_some_and(huge_pages)
        || is_extended_quota(name)
}

/// Requests and limits under the names that quotas have for them.
fn named(requests: &ResourceList, limits: &ResourceList) -> ResourceList {
    let mut usage = ResourceList::from([("pods".into(), number(1))]);
    for (name, amount) in requests {
        let compute = ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) || name.starts_with(HUGE_PAGES);
        if compute {
            usage.insert(name.clone(), amount.clone());
        }
        if compute || is_extended(name) {
            usage.insert(format!("{REQUESTS}{name}").into(), amount.clone());
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            usage.insert(format!("limits.{name}").into(), amount.clone());
        }
    }
    usage
}

/// What a pod uses: nothing but its place once it has ended, or should have.
pub(super) fn usage(pod: &Map, now: Time) -> ResourceList {
    let mut usage = ResourceList::from([("count/pods".into(), number(1))]);
    if !has_ended(pod, now) {
        add(&mut usage, &named(&of_pod(pod, Side::Requests), &of_pod(pod, Side::Limits)));
    }
    usage
}

fn has_ended(pod: &Map, now: Time) -> bool {
    if ["Failed", "Succeeded"].contains(&text(at(pod, "status"), "phase")) {
        return true;
    }
    let metadata = at(pod, "metadata");
    let deleted = text(metadata, "deletionTimestamp").parse::<Time>().ok();
    let due = deleted.zip(int(metadata, "deletionGracePeriodSeconds"));
    due.is_some_and(|(deleted, grace)| {
        let due = deleted.unix_seconds().saturating_add(grace);
        now > Time::from_unix(due, deleted.subsec_nanos())
    })
}

/// What containers must say but do not.
pub(super) fn missing(restricted: &[Str], pod: &Map) -> Option<String> {
    let spec = at(pod, "spec");
    if has_pod_level(spec) {
        return None;
    }
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, container) in ["containers", "initContainers"].into_iter().flat_map(|list| objects(spec, list)) {
        let resources = at(container, "resources");
        let said = named(&read(resources, "requests"), &read(resources, "limits"));
        for name in restricted.iter().filter(|name| DEMANDED.contains(&name.as_str()) && !said.contains_key(*name)) {
            missing.entry(name).or_default().insert(text(container, "name"));
        }
    }
    let each = |(name, containers): (&str, BTreeSet<&str>)| {
        format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
    };
    let each: Vec<_> = missing.into_iter().map(each).collect();
    (!each.is_empty()).then(|| format!("must specify {}", each.join("; ")))
}

/// Whether a pod is to end by itself.
pub(super) fn is_terminating(pod: &Map) -> bool {
    int(at(pod, "spec"), "activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(pod: &Map) -> bool {
    match text(at(pod, "status"), "qosClass") {
        "" => qos_class(pod) == "BestEffort",
        class => class == "BestEffort",
    }
}

/// Whether a pod wants to be near pods of other namespaces, or far from them.
fn is_cross_namespace(pod: &Map) -> bool {
    let affinity = at(at(pod, "spec"), "affinity");
    let crosses = |term: &Map| !list(term, "namespaces").is_empty() || is_set(term, "namespaceSelector");
    ["podAffinity", "podAntiAffinity"].into_iter().map(|kind| at(affinity, kind)).any(|affinity| {
        objects(affinity, "requiredDuringSchedulingIgnoredDuringExecution").any(|(_, term)| crosses(term))
            || objects(affinity, "preferredDuringSchedulingIgnoredDuringExecution")
                .any(|(_, term)| crosses(at(term, "podAffinityTerm")))
    })
}

pub(super) fn matches_scope(selector: &Selector<'_>, pod: &Map) -> bool {
    match selector.scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = at(pod, "spec").get("priorityClassName").and_then(Value::as_str);
            selector.admits(class.filter(|class| !class.is_empty()))
        }
        "CrossNamespacePodAffinity" => is_cross_namespace(pod),
        _ => false,
    }
}
