//! From a service to a server behind it: as upstream does when it routes to endpoints itself, for there may be nobody
//! here who routes the addresses of services.

use capstan_api::{GroupResource, Map, Value};

use super::spec::ServiceReference;
use crate::{
    objects::Objects,
    registry::{live::parse, paths},
};

pub(super) const SERVICES: GroupResource = GroupResource::from_static("", "services");
pub(super) const ENDPOINT_SLICES: GroupResource = GroupResource::from_static("discovery.k8s.io", "endpointslices");
/// Whose endpoints are in a slice, by label.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
}

/// The service.
pub(super) fn service(objects: &dyn Objects, reference: &ServiceReference) -> Option<Map> {
    let found = objects.get(&SERVICES, &reference.namespace, &reference.name)?;
    parse(&found.json).ok()
}

/// The slices with the service's endpoints.
pub(super) fn slices(objects: &dyn Objects, reference: &ServiceReference) -> Vec<Map> {
    let all = objects.list(&ENDPOINT_SLICES, &reference.namespace);
    let ours = all.iter().filter(|slice| {
        slice.namespace() == &*reference.namespace
            && slice.labels.iter().any(|(key, value)| *key == *SERVICE_NAME && *value == reference.name)
    });
    ours.filter_map(|slice| parse(&slice.json).ok()).collect()
}

/// The port of a service by its number.
pub(super) fn port_of(service: &Map, number: i64) -> Option<&Value> {
    let is_it = |port: &&Value| port.get("port").and_then(Value::as_i64) == Some(number);
    paths::items(service, "spec.ports").iter().find(is_it)
}

/// Whether an endpoint takes requests.
pub(super) fn is_ready(endpoint: &Value) -> bool {
    let ready = endpoint.get("conditions").and_then(|conditions| conditions.get("ready"));
    ready.and_then(Value::as_bool).unwrap_or(true)
}

/// The number of the port with this name in a slice.
pub(super) fn slice_port(slice: &Map, name: &str) -> Option<u16> {
    let is_it = |port: &&Value| port.get("name").and_then(Value::as_str).unwrap_or_default() == name;
    let port = paths::items(slice, "ports").iter().filter(is_it).find_map(|port| port.get("port")?.as_i64());
    port.and_then(|port| u16::try_from(port).ok())
}

/// All servers behind a service, those of its first family of addresses first.
pub(super) fn places(objects: &dyn Objects, reference: &ServiceReference) -> Result<Vec<Place>, String> {
    let name = &*reference.name;
    let Some(service) = service(objects, reference) else { return Err(format!("service {name:?} not found")) };
    match paths::text(&service, "spec.type") {
        "ClusterIP" | "NodePort" | "LoadBalancer" => {}
        "ExternalName" => {
            let host = paths::text(&service, "spec.externalName").to_owned();
            let port = u16::try_from(reference.port).map_err(|error| error.to_string())?;
            return Ok(vec![Place { host, port }]);
        }
        other => return Err(format!("unsupported service type {other:?}")),
    }
    let Some(port) = port_of(&service, reference.port) else {
        return Err(format!("no service port {} found for service {name:?}", reference.port));
    };
    let port = port.get("name").and_then(Value::as_str).unwrap_or_default();
    let mut slices = slices(objects, reference);
    let family = paths::items(&service, "spec.ipFamilies").first().and_then(Value::as_str).unwrap_or_default();
    slices.sort_by_key(|slice| paths::text(slice, "addressType") != family);
    let mut places = Vec::new();
    for slice in &slices {
        let Some(port) = slice_port(slice, port) else { continue };
        let ready = paths::items(slice, "endpoints").iter().filter(|endpoint| is_ready(endpoint));
        let hosts = ready.filter_map(|endpoint| endpoint.get("addresses")?.as_array()?.first()?.as_str());
        places.extend(hosts.map(|host| Place { host: host.to_owned(), port }));
    }
    if places.is_empty() { Err(format!("no endpoints available for service {name:?}")) } else { Ok(places) }
}
