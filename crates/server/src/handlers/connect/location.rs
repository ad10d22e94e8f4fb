//! Where a pod, a service or a node is reached, and what may be reached at all. Reads objects and nothing else.

use std::{fmt::Write as _, net::IpAddr};

use capstan_api::{
    GroupKind, GroupResource, Map, Status, Value,
    field::{Error, ErrorList, Path},
    go,
};

use crate::{
    handlers::{
        call::Call,
        read::not_found,
        write::{Current, as_it_is},
    },
    registry::{live::parse, paths},
    request::{Query, info::check_name},
};

const PODS: GroupResource = GroupResource::from_static("", "pods");
const NODES: GroupResource = GroupResource::from_static("", "nodes");
const ENDPOINTS: GroupResource = GroupResource::from_static("", "endpoints");

/// Where kubelets listen that do not say so.
const KUBELET_PORT: u16 = 10250;

/// A place to go to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    /// TLS, and if so whether it is the kubelet that is to know who asks.
    pub(super) scheme: Scheme,
    pub(super) host: String,
    pub(super) port: u16,
    /// The path and the query.
    pub(super) target: String,
}

/// How a place is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    /// Whoever it is, nothing is shown to them.
    Https,
    /// A kubelet, which is shown the server's certificate.
    Kubelet,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Logs of a pod that never ran: there are none.
    Nothing,
    /// The client is to ask again with a slash at the end, so that relative links work.
    Slash,
    To(Location),
}

pub(super) fn find(call: &Call<'_>, subresource: &str) -> Result<Route, Status> {
    check_name(call.resource.namespaced, call.namespace(), &call.info.name)?;
    match (&*call.resource.gvr.resource, subresource) {
        (kind, "proxy") => proxy(call, kind),
        (_, "log") => {
            let (pod, query) = (pod(call, &call.info.name)?, log_query(call)?);
            match of_container(call, &pod, "containerLogs", query)? {
                Some(location) => Ok(Route::To(location)),
                None => Ok(Route::Nothing),
            }
        }
        (_, "portforward") => {
            let pod = pod(call, &call.info.name)?;
            let mut query = Encoder::default();
            call.query.all("ports").flat_map(|ports| ports.split(',')).for_each(|port| query.add("port", port));
            let node = node_of(call, &pod)?.ok_or_else(|| no_host(&pod))?;
            Ok(Route::To(node.at(&format!("/portForward/{}", place(&pod)), &query.0)))
        }
        (_, what) => {
            let pod = pod(call, &call.info.name)?;
            let location = of_container(call, &pod, what, stream_query(call.query))?;
            location.map(Route::To).ok_or_else(|| no_host(&pod))
        }
    }
}

fn no_host(pod: &Map) -> Status {
    Status::bad_request(format!("pod {} does not have a host assigned", paths::text(pod, "metadata.name")))
}

fn pod(call: &Call<'_>, name: &str) -> Result<Map, Status> {
    let found = call.stored()?.cache.peek(call.namespace(), name).ok_or_else(|| not_found(&call.resource, name))?;
    Ok(Current::of(call, &found)?.object)
}

/// An object of another kind.
fn read(call: &Call<'_>, resource: &GroupResource, namespace: &str, name: &str) -> Result<Map, Status> {
    let stored = call.server.registry.stored(resource);
    let found = stored.and_then(|stored| stored.cache.peek(namespace, name));
    // Whatever is not there, the request is told that it was what it asked for.
    parse(&found.ok_or_else(|| Status::not_found(&call.resource.gvr.group_resource(), name))?.json)
}

fn place(pod: &Map) -> String {
    format!("{}/{}", paths::text(pod, "metadata.namespace"), paths::text(pod, "metadata.name"))
}

/// What the kubelet has for a container of a pod; nothing if the pod has no node.
fn of_container(call: &Call<'_>, pod: &Map, what: &str, query: String) -> Result<Option<Location>, Status> {
    let container = container(pod, call.query.get("container").unwrap_or_default())?;
    let node = node_of(call, pod)?;
    Ok(node.map(|node| node.at(&format!("/{what}/{}/{}", place(pod), escape(&container)), &query)))
}

/// The container that is meant: the one that is named, or the only one.
pub(super) fn container(pod: &Map, named: &str) -> Result<String, Status> {
    let names = |path: &str| -> Vec<String> {
        paths::items(pod, path).iter().filter_map(|item| item.get("name")?.as_str().map(str::to_owned)).collect()
    };
    let pod_name = paths::text(pod, "metadata.name");
    let containers = names("spec.containers");
    let all = [names("spec.initContainers"), containers.clone(), names("spec.ephemeralContainers")].concat();
    if named.is_empty() {
        let text = format!("a container name must be specified for pod {pod_name}");
        return match &*containers {
            [only] => Ok(only.clone()),
            [] => Err(Status::bad_request(text)),
            _ => Err(Status::bad_request(format!("{text}, choose one of: [{}]", all.join(" ")))),
        };
    }
    if all.iter().any(|name| name == named) {
        return Ok(named.to_owned());
    }
    Err(Status::bad_request(format!("container {named} is not valid for pod {pod_name}")))
}

/// A kubelet.
struct Node {
    host: String,
    port: u16,
}

impl Node {
    fn at(&self, path: &str, query: &str) -> Location {
        let target = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        Location { scheme: Scheme::Kubelet, host: self.host.clone(), port: self.port, target }
    }
}

fn node_of(call: &Call<'_>, pod: &Map) -> Result<Option<Node>, Status> {
    match paths::text(pod, "spec.nodeName") {
        "" => Ok(None),
        name => node(call, name).map(Some),
    }
}

fn node(call: &Call<'_>, name: &str) -> Result<Node, Status> {
    let node = read(call, &NODES, "", name)?;
    let addresses = paths::items(&node, "status.addresses");
    let text = |address: &Value, key: &str| address.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let types = &call.server.kubelet_client().address_types;
    let preferred = types.iter().find_map(|ty| addresses.iter().find(|address| text(address, "type") == *ty));
    let Some(address) = preferred else {
        return Err(as_it_is("no preferred addresses found; known addresses: []"));
    };
    let port = u16::try_from(paths::number(&node, "status.daemonEndpoints.kubeletEndpoint.Port")).unwrap_or_default();
    Ok(Node { host: text(address, "address"), port: if port == 0 { KUBELET_PORT } else { port } })
}

/// The parameters of a target.
#[derive(Default)]
struct Encoder(String);

impl Encoder {
    fn add(&mut self, key: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        let _ = write!(self.0, "{}={}", escape(key), escape(value));
    }
}

/// A text as it may stand in a path or a query.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn is_true(query: &Query<'_>, key: &str) -> bool {
    query.get(key).is_some_and(|value| !matches!(&*value.to_ascii_lowercase(), "0" | "false"))
}

/// What the kubelet is told of a shell: which streams there are, and what is to run.
fn stream_query(query: &Query<'_>) -> String {
    let mut out = Encoder::default();
    for (ours, theirs) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if is_true(query, ours) {
            out.add(theirs, "1");
        }
    }
    query.all("command").for_each(|word| out.add("command", word));
    out.0
}

/// What the kubelet is told of the logs that are wanted.
fn log_query(call: &Call<'_>) -> Result<String, Status> {
    let query = call.query;
    let mut out = Encoder::default();
    for key in ["follow", "previous", "timestamps"] {
        if is_true(query, key) {
            out.add(key, "true");
        }
    }
    let mut errors = ErrorList::new();
    let mut number = |key: &str, least: i64, detail: &str| -> Result<Option<i64>, Status> {
        let Some(text) = query.get(key) else { return Ok(None) };
        let number: i64 = text.parse().map_err(|_| {
            let quoted = go::quote(text);
            Status::bad_request(format!("strconv.ParseInt: parsing {quoted}: invalid syntax"))
        })?;
        if number < least {
            errors.push(Error::invalid(Path::new(key), number, detail));
        }
        Ok(Some(number))
    };
    let tail = number("tailLines", 0, "must be greater than or equal to 0")?;
    let limit = number("limitBytes", 1, "must be greater than 0")?;
    let since_time = query.get("sinceTime");
    let since = match since_time {
        Some(_) => query.get("sinceSeconds").and_then(|seconds| seconds.parse().ok()),
        None => number("sinceSeconds", 1, "must be greater than 0")?,
    };
    if since.is_some() && since_time.is_some() {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(Error::forbidden("[]", detail));
    }
    if query.get("stream").is_some_and(|stream| stream != "All") {
        errors.push(Error::forbidden("stream", "may not be specified"));
    }
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupKind::from_static("", "PodLogOptions"), &call.info.name, &errors));
    }
    for (key, value) in [("sinceSeconds", since), ("tailLines", tail), ("limitBytes", limit)] {
        if let Some(value) = value {
            out.add(key, &value.to_string());
        }
    }
    if let Some(time) = since_time {
        out.add("sinceTime", time);
    }
    Ok(out.0)
}

/// `scheme:name:port`, of which the first and the last may be left out.
pub(super) fn split(name: &str) -> Option<(bool, &str, &str)> {
    let parts: Vec<&str> = name.split(':').collect();
    let (scheme, name, port) = match *parts {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return None,
    };
    (!name.is_empty() && ["", "http", "https"].contains(&scheme)).then_some((scheme == "https", name, port))
}

/// What is behind a pod, a service or a node.
fn proxy(call: &Call<'_>, kind: &str) -> Result<Route, Status> {
    let full = &*call.info.name;
    let singular = kind.trim_end_matches('s');
    let refused = || Status::bad_request(format!("invalid {singular} request {}", go::quote(full)));
    let (secure, name, port) = split(full).ok_or_else(refused)?;
    let scheme = if secure { Scheme::Https } else { Scheme::Http };
    let rest: Vec<String> = call.info.parts().skip(3).filter(|part| !part.is_empty()).map(escape).collect();
    let query = if call.raw_query.is_empty() { String::new() } else { format!("?{}", call.raw_query) };
    let slash = if call.info.path.ends_with('/') && !rest.is_empty() { "/" } else { "" };
    let target = format!("/{}{slash}{query}", rest.join("/"));
    let to = |scheme, host: String, port| {
        if rest.is_empty() && !call.info.path.ends_with('/') {
            return Ok(Route::Slash);
        }
        Ok(Route::To(Location { scheme, host, port, target: target.clone() }))
    };
    let number = |port: &str| port.parse::<u16>().map_err(|_| Status::bad_request(format!("invalid port {port:?}")));
    match kind {
        "nodes" => {
            let node = node(call, name)?;
            // The name of a host is looked at again once it is known which addresses it has.
            if let Ok(ip) = node.host.parse() {
                check_address(ip)?;
            }
            match port {
                "" => to(Scheme::Kubelet, node.host, node.port),
                port if port == node.port.to_string() => to(Scheme::Kubelet, node.host, node.port),
                port => to(scheme, node.host, number(port)?),
            }
        }
        "pods" => {
            let pod = read(call, &PODS, call.namespace(), name)?;
            let first = paths::items(&pod, "status.podIPs").first().and_then(|ip| ip.get("ip")?.as_str());
            let address = first.unwrap_or_else(|| paths::text(&pod, "status.podIP"));
            let ip: IpAddr = address.parse().map_err(|_| Status::bad_request(NOT_ALLOWED))?;
            check_address(ip)?;
            let port = if port.is_empty() { first_port(&pod) } else { number(port)? };
            to(
                scheme,
                ip.to_string(),
                if port != 0 {
                    port
                } else if secure {
                    443
                } else {
                    80
                },
            )
        }
        _ => {
            let (ip, port) = behind_service(call, full, name, port)?;
            check_address(ip)?;
            to(scheme, ip.to_string(), port)
        }
    }
}

const NOT_ALLOWED: &str = "address not allowed";

/// Nobody is led to what only this machine, or the network it stands in, may reach.
///
/// # Errors
/// When the address is not one of another machine.
pub(super) fn check_address(ip: IpAddr) -> Result<(), Status> {
    let ip = ip.to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local {
        return Err(Status::bad_request(NOT_ALLOWED));
    }
    Ok(())
}

fn first_port(pod: &Map) -> u16 {
    let containers = paths::items(pod, "spec.containers").iter();
    let mut ports =
        containers.filter_map(|container| container.get("ports")?.as_array()?.first()?.get("containerPort"));
    ports.next().and_then(Value::as_i64).and_then(|port| u16::try_from(port).ok()).unwrap_or_default()
}

/// A pod behind a service, and the port that it listens on.
fn behind_service(call: &Call<'_>, full: &str, name: &str, port: &str) -> Result<(IpAddr, u16), Status> {
    let none = |name: &str| Status::service_unavailable(format!("no endpoints available for service {name:?}"));
    let mut wanted = port.to_owned();
    if let Ok(number) = port.parse::<i64>() {
        let service = pod(call, name)?;
        let ports = paths::items(&service, "spec.ports").iter();
        let found = ports.clone().find(|port| port.get("port").and_then(Value::as_i64) == Some(number));
        let Some(found) = found else {
            let text = format!("no service port {number} found for service {name:?}");
            return Err(Status::service_unavailable(text));
        };
        wanted = found.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    }
    let endpoints = read(call, &ENDPOINTS, call.namespace(), name)?;
    let subsets = paths::items(&endpoints, "subsets");
    if subsets.is_empty() {
        return Err(none(name));
    }
    for subset in subsets.iter().filter_map(Value::as_object) {
        let named = |port: &&Value| port.get("name").and_then(Value::as_str).unwrap_or_default() == wanted;
        let Some(port) = paths::items(subset, "ports").iter().find(named) else { continue };
        let port = port.get("port").and_then(Value::as_i64).and_then(|port| u16::try_from(port).ok());
        for address in paths::items(subset, "addresses") {
            if let (Some(ip), Some(port)) = (address_of_pod(call, address), port) {
                return Ok((ip, port));
            }
        }
    }
    Err(none(full))
}

/// The address, if it really is that of the pod which it says it is.
fn address_of_pod(call: &Call<'_>, address: &Value) -> Option<IpAddr> {
    let target = address.get("targetRef")?;
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    if text(target, "namespace") != call.namespace() {
        return None;
    }
    let pod = read(call, &PODS, call.namespace(), &text(target, "name")).ok()?;
    let ip = text(address, "ip");
    let is_its = paths::items(&pod, "status.podIPs").iter().any(|own| text(own, "ip") == ip);
    is_its.then(|| ip.parse().ok()).flatten()
}
