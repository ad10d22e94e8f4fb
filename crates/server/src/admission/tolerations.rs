//! Tolerations of pods: those that every pod gets, those that extended resources ask for, and how two lists become one.

use std::collections::BTreeSet;

use capstan_api::{Map, Status, Value, validation::is_qualified_name};

use super::{
    Plugin, Request,
    common::{PODS, each, is_about, is_write, map, push, same_meaning},
};
use crate::registry::paths;

const TOLERATIONS: &str = "spec.tolerations";

/// Whether one toleration tolerates all that another does.
fn covers(all: &Map, one: &Map) -> bool {
    let field = |toleration, name| paths::text(toleration, name);
    if same_meaning(all, one) {
        return true;
    }
    let any_key = field(all, "key").is_empty() && field(all, "operator") == "Exists";
    if field(one, "key") != field(all, "key") && !any_key {
        return false;
    }
    if field(one, "effect") != field(all, "effect") && !field(all, "effect").is_empty() {
        return false;
    }
    let seconds = |toleration| paths::get(toleration, "tolerationSeconds").and_then(Value::as_i64);
    if field(all, "effect") == "NoExecute"
        && let Some(limit) = seconds(all)
        && seconds(one).is_none_or(|seconds| seconds > limit)
    {
        return false;
    }
    match field(all, "operator") {
        "Equal" | "" => field(one, "operator") == "Equal" && field(one, "value") == field(all, "value"),
        "Exists" => true,
        _ => false,
    }
}

/// Two lists as one, without what others of it cover. Of equal ones the first stays.
pub(super) fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Map> = first.iter().chain(second).filter_map(Value::as_object).collect();
    let mut merged: Vec<&Map> = Vec::new();
    for (index, one) in all.iter().enumerate() {
        let is_later = |other: &&Map| !same_meaning(other, one) && covers(other, one);
        if !merged.iter().any(|other| covers(other, one)) && !all[index + 1..].iter().any(is_later) {
            merged.push(one);
        }
    }
    merged.into_iter().map(|one| one.clone().into()).collect()
}

/// DefaultTolerationSeconds: a pod stays on a node that is not ready or out of reach for some time.
#[derive(Debug)]
pub struct DefaultTolerationSeconds {
    not_ready: i64,
    unreachable: i64,
}

impl Default for DefaultTolerationSeconds {
    fn default() -> Self {
        DefaultTolerationSeconds::new(300, 300)
    }
}

impl DefaultTolerationSeconds {
    /// The seconds on nodes that are not ready, and on those that are out of reach.
    #[must_use]
    pub fn new(not_ready: i64, unreachable: i64) -> Self {
        DefaultTolerationSeconds { not_ready, unreachable }
    }
}

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &PODS) || !is_write(request) {
            return Ok(());
        }
        let Some(pod) = request.object.as_deref_mut() else {
            return Ok(());
        };
        let defaults =
            [("node.kubernetes.io/not-ready", self.not_ready), ("node.kubernetes.io/unreachable", self.unreachable)];
        let own = |pod: &Map, key: &str| {
            each(pod, TOLERATIONS).any(|toleration| {
                ["", key].contains(&paths::text(toleration, "key"))
                    && ["", "NoExecute"].contains(&paths::text(toleration, "effect"))
            })
        };
        for (key, seconds) in defaults {
            if !own(pod, key) {
                let toleration = map([
                    ("effect", "NoExecute".into()),
                    ("key", key.into()),
                    ("operator", "Exists".into()),
                    ("tolerationSeconds", seconds.into()),
                ]);
                push(pod, TOLERATIONS, toleration);
            }
        }
        Ok(())
    }
}

/// ExtendedResourceToleration, off by default: who asks for an extended resource tolerates the taint of its name.
#[derive(Debug, Default)]
pub struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &PODS) || !is_write(request) {
            return Ok(());
        }
        let Some(pod) = request.object.as_deref_mut() else {
            return Ok(());
        };
        let containers = ["spec.containers", "spec.initContainers"].into_iter().flat_map(|list| each(pod, list));
        let requests = containers.filter_map(|container| paths::get(container, "resources.requests")?.as_object());
        let names: BTreeSet<String> =
            requests.flat_map(Map::keys).filter(|name| is_extended(name)).map(str::to_owned).collect();
        for name in names {
            // One that matches is the same but for its seconds, which mean nothing beside this effect.
            let matches = |toleration: &Map| {
                [("key", &*name), ("effect", "NoSchedule"), ("operator", "Exists"), ("value", "")]
                    .iter()
                    .all(|(field, value)| paths::text(toleration, field) == *value)
            };
            if !each(pod, TOLERATIONS).any(matches) {
                let toleration =
                    map([("effect", "NoSchedule".into()), ("key", name.into()), ("operator", "Exists".into())]);
                push(pod, TOLERATIONS, toleration);
            }
        }
        Ok(())
    }
}

fn is_extended(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native && !name.starts_with("requests.") && is_qualified_name(&format!("requests.{name}")).is_empty()
}
