//! Whether the server of an APIService answers, and how that is said: what the cluster knows of its service first, then
//! the server itself.

use capstan_api::{Map, Time, Value};

use super::{
    resolve::{is_ready, port_of, service, slice_port, slices},
    spec::{AVAILABLE, ServiceReference, condition},
};
use crate::{objects::Objects, registry::paths};

/// What an APIService says of its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) status: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Condition {
    fn missing(reason: &'static str, message: String) -> Self {
        Condition { status: false, reason, message }
    }

    /// This server answers itself.
    pub(super) fn local() -> Self {
        let message = "Local APIServices are always available".to_owned();
        Condition { status: true, reason: "Local", message }
    }

    /// The server answers.
    pub(super) fn passed() -> Self {
        Condition { status: true, reason: "Passed", message: "all checks passed".to_owned() }
    }

    /// The server does not answer.
    pub(super) fn failed(message: String) -> Self {
        Condition::missing("FailedDiscoveryCheck", message)
    }

    /// Writes this into the status; returns whether that changes anything.
    pub(super) fn write(&self, object: &mut Map, now: Time) -> bool {
        let status = if self.status { "True" } else { "False" };
        let old = condition(object);
        let field = |field: &str| old.and_then(|old| old.get(field)?.as_str()).unwrap_or_default();
        if (field("status"), field("reason"), field("message")) == (status, self.reason, &self.message) {
            return false;
        }
        let since = if field("status") == status { field("lastTransitionTime").to_owned() } else { now.to_string() };
        let mut new = Map::new();
        for (key, value) in [
            ("lastTransitionTime", &*since),
            ("message", &self.message),
            ("reason", self.reason),
            ("status", status),
            ("type", AVAILABLE),
        ] {
            new.insert(key, value);
        }
        let is_it = |other: &&Value| other.get("type").and_then(Value::as_str) == Some(AVAILABLE);
        let mut all = paths::items(object, "status.conditions").to_vec();
        match all.iter().position(|other| is_it(&other)) {
            Some(at) => all[at] = new.into(),
            None => all.push(new.into()),
        }
        paths::set(object, "status.conditions", all);
        true
    }
}

/// What the cluster knows that keeps a server from answering.
pub(super) fn obstacle(objects: &dyn Objects, reference: &ServiceReference) -> Option<Condition> {
    let ServiceReference { namespace, name, port } = reference;
    let Some(found) = service(objects, reference) else {
        let message = format!("service/{name} in {namespace:?} is not present");
        return Some(Condition::missing("ServiceNotFound", message));
    };
    if paths::text(&found, "spec.type") != "ClusterIP" {
        return None;
    }
    let Some(service_port) = port_of(&found, *port) else {
        let message = format!("service/{name} in {namespace:?} is not listening on port {port}");
        return Some(Condition::missing("ServicePortError", message));
    };
    let slices = slices(objects, reference);
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
        return Some(Condition::missing("EndpointsNotFound", message));
    }
    let port_name = service_port.get("name").and_then(Value::as_str).unwrap_or_default();
    let serves =
        |slice: &Map| slice_port(slice, port_name).is_some() && paths::items(slice, "endpoints").iter().any(is_ready);
    if slices.iter().any(serves) {
        return None;
    }
    let message =
        format!("endpointslices for service/{name} in {namespace:?} have no addresses with port name {port_name:?}");
    Some(Condition::missing("MissingEndpoints", message))
}
