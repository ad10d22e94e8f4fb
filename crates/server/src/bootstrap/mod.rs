//! What a new server creates by itself, as data: the RBAC policy, namespaces, priority classes and levels, flow schemas
//! and the APIServices of built-in groups.
//!
//! Decoded when asked for and not kept, since it is needed once, at start. What depends on the server's addresses (the
//! `kubernetes` Service, its endpoints), certificates and the time is made by functions; the service range is
//! [`default_service_cidr`](crate::allocation::default_service_cidr). What a controller adds (status) is not here.

mod flowcontrol;
mod reconcile;
mod server;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod tests;

use capstan_api::{Array, Map, Str, Value, json};
pub use flowcontrol::{Ensure, revise};
pub use reconcile::{Reconciled, reconcile_binding, reconcile_role};
pub(crate) use server::{ADVERTISED, IDENTITY};
pub use server::{
    AUTHENTICATION_CONFIG, IDENTITY_LEASE_SECONDS, IDENTITY_RENEW_SECONDS, KUBERNETES, KUBERNETES_PORT, RequestHeader,
    TOKEN_TRACKING, Upkeep, aggregate_cluster_roles, authentication_config, cluster_roles, identity_lease,
    kubernetes_endpoint_slice, kubernetes_endpoints, kubernetes_service, server_id, token_tracking,
};

use crate::authorization::rbac::{GROUP, PolicyRule};

/// Marks what belongs to the policy, by label.
const BOOTSTRAPPING: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");

/// Says whether an object is brought up to date at start.
pub const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// What the labels begin with that say into which role another is aggregated.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// Roles and bindings, a line each, and indented below it a rule (`verbs groups resources [names]`, or `verbs paths`)
/// or a subject. Lists are separated by commas, `core` is the group without a name. `to=` labels a role for
/// aggregation, `from=` makes it aggregate, `role=` is the bound role where it is not called like the binding.
const RBAC: &str = include_str!("rbac.txt");

/// The other objects, one a line.
const OBJECTS: &str = include_str!("objects.jsonl");

/// The policy: ClusterRoles, Roles, ClusterRoleBindings, RoleBindings, in the order in which they are to be created.
#[must_use]
pub fn rbac() -> Vec<Value> {
    rbac_of(|_, _| true)
}

/// Those of the policy that are wanted, by kind and name: a start reads each of them once.
pub(crate) fn rbac_of(wanted: impl Fn(&str, &str) -> bool) -> Vec<Value> {
    let (mut objects, mut takes): (Vec<Value>, bool) = (Vec::new(), false);
    for line in RBAC.lines() {
        match line.strip_prefix("  ") {
            None => {
                let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
                takes = wanted(kind, rest.split(' ').next().unwrap_or_default());
                if takes {
                    objects.push(object(line));
                }
            }
            Some(_) if !takes => {}
            Some(item) => {
                let last = objects.last_mut().and_then(Value::as_object_mut).expect("an object comes before its items");
                let (field, item) =
                    if last.contains_key("roleRef") { ("subjects", subject(item)) } else { ("rules", rule(item)) };
                list_in(last, field).expect("nothing else is under that name").push(item);
            }
        }
    }
    objects
}

/// The namespaces, priority classes, priority levels, flow schemas and APIServices.
#[must_use]
pub fn objects() -> Vec<Value> {
    OBJECTS.lines().map(|line| json::parse(line.as_bytes()).expect("the committed data is JSON")).collect()
}

/// A role without rules or a binding without subjects.
fn object(line: &str) -> Value {
    let mut words = line.split(' ');
    let (kind, full) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let (namespace, name) = split(full);
    let mut labels = map([BOOTSTRAPPING]);
    let (mut role, mut from) = (name, None);
    for word in words {
        match word.split_once('=') {
            Some(("to", to)) => _ = labels.insert(format!("{AGGREGATE_TO}{to}"), "true"),
            Some(("from", label)) => from = Some(format!("{AGGREGATE_TO}{label}")),
            Some(("role", other)) => role = other,
            _ => unreachable!("the committed data has no other words: {word}"),
        }
    }
    let mut metadata = map([("name", name)]);
    metadata.insert("labels", labels);
    metadata.insert("annotations", map([(AUTO_UPDATE, "true")]));
    if let Some(namespace) = namespace {
        metadata.insert("namespace", namespace);
    }
    let mut object = map([("kind", kind)]);
    object.insert("apiVersion", format!("{GROUP}/v1"));
    object.insert("metadata", metadata);
    match kind.strip_suffix("Binding") {
        Some(kind) => _ = object.insert("roleRef", map([("apiGroup", GROUP), ("kind", kind), ("name", role)])),
        None => _ = object.insert("rules", Value::Null),
    }
    if let Some(label) = from {
        let selector = map([("matchLabels", map([(label.as_str(), "true")]))]);
        object.insert("aggregationRule", map([("clusterRoleSelectors", vec![Value::from(selector)])]));
    }
    object.into()
}

fn rule(line: &str) -> Value {
    let list = |words: &str| words.split(',').map(|word| Str::from(if word == "core" { "" } else { word })).collect();
    let words: Vec<Vec<Str>> = line.split(' ').map(list).collect();
    let rule = match <[_; 2]>::try_from(words) {
        Ok([verbs, non_resource_urls]) => PolicyRule { verbs, non_resource_urls, ..PolicyRule::default() },
        Err(words) => {
            let mut words = words.into_iter();
            let mut next = || words.next().unwrap_or_default();
            let (verbs, api_groups, resources, resource_names) = (next(), next(), next(), next());
            PolicyRule { verbs, api_groups, resources, resource_names, ..PolicyRule::default() }
        }
    };
    rule.to_value()
}

fn subject(line: &str) -> Value {
    let (kind, full) = line.split_once(' ').unwrap_or((line, ""));
    let (namespace, name) = split(full);
    // Service accounts are of the core group, which is not written out.
    let rest = namespace.map_or(("apiGroup", GROUP), |namespace| ("namespace", namespace));
    map([("kind", kind), ("name", name), rest]).into()
}

/// `namespace/name`, or a name alone.
fn split(full: &str) -> (Option<&str>, &str) {
    full.split_once('/').map_or((None, full), |(namespace, name)| (Some(namespace), name))
}

fn map<V: Into<Value>, const N: usize>(entries: [(&str, V); N]) -> Map {
    entries.into_iter().map(|(key, value)| (Str::from(key), value.into())).collect()
}

/// The list in a field, made if there is none; `null` is none.
fn list_in<'a>(object: &'a mut Map, field: &str) -> Option<&'a mut Array> {
    field_in(object, field, || Array::new().into()).as_array_mut()
}

/// The object in a field, made if there is none; `null` is none.
fn map_in<'a>(object: &'a mut Map, field: &str) -> Option<&'a mut Map> {
    field_in(object, field, || Map::new().into()).as_object_mut()
}

fn field_in<'a>(object: &'a mut Map, field: &str, empty: fn() -> Value) -> &'a mut Value {
    let value = object.get_or_insert_with(field, empty);
    if value.is_null() {
        *value = empty();
    }
    value
}
