//! Services, endpoints, and ways into the cluster.

use std::collections::BTreeSet;

use capstan_api::{Time, Value};

use super::view::{View, cell, with_more};

/// How many addresses, ports or hosts are shown.
const MAX_SHOWN: usize = 3;
/// The annotation that makes a class the default.
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

/// The first address of a service inside the cluster.
pub(super) fn cluster_ip(service: View<'_>, _now: Time) -> String {
    service.texts("spec.clusterIPs").first().copied().unwrap_or("<none>").to_owned()
}

/// The addresses of a service or an ingress that a load balancer has, in order and each once.
pub(super) fn load_balancer(view: View<'_>, _now: Time) -> String {
    let address = |ingress: View<'_>| ingress.text_or("ip", ingress.text("hostname")).to_owned();
    let addresses: BTreeSet<_> = view.items("status.loadBalancer.ingress").map(address).collect();
    addresses.into_iter().filter(|address| !address.is_empty()).collect::<Vec<_>>().join(",")
}

/// The addresses of a service outside the cluster.
pub(super) fn external_ip(service: View<'_>, now: Time) -> String {
    let own = service.texts("spec.externalIPs").join(",");
    let balanced = load_balancer(service, now);
    match service.text("spec.type") {
        "ClusterIP" | "NodePort" if own.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => match (balanced.is_empty(), own.is_empty()) {
            (true, true) => "<pending>".to_owned(),
            (false, false) => format!("{balanced},{own}"),
            _ => balanced + &own,
        },
        "ExternalName" => service.text("spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The ports of a service.
pub(super) fn service_ports(service: View<'_>, _now: Time) -> String {
    let ports = service.items("spec.ports").map(|port| {
        let (number, protocol) = (port.int("port"), port.text("protocol"));
        match port.int("nodePort") {
            on_node @ 1.. => format!("{number}:{on_node}/{protocol}"),
            _ => format!("{number}/{protocol}"),
        }
    });
    match ports.collect::<Vec<_>>().join(",") {
        empty if empty.is_empty() => "<none>".to_owned(),
        ports => ports,
    }
}

/// The addresses of endpoints with each port.
pub(super) fn endpoints(endpoints: View<'_>, _now: Time) -> String {
    if endpoints.count("subsets") == 0 {
        return "<none>".to_owned();
    }
    // One more than is shown tells that there are more; the rest is only counted.
    let (mut list, mut count) = (Vec::new(), 0_usize);
    for subset in endpoints.items("subsets") {
        let addresses = subset.items("addresses");
        let ports = subset.items("ports");
        count = count.saturating_add(addresses.len().saturating_mul(ports.len().max(1)));
        if ports.len() == 0 {
            list.extend(addresses.map(|address| address.text("ip").to_owned()).take(MAX_SHOWN + 1));
            continue;
        }
        let all = ports.flat_map(|port| subset.items("addresses").map(move |address| (address, port)));
        list.extend(all.take(MAX_SHOWN + 1).map(|(address, port)| match (address.text("ip"), port.int("port")) {
            (ip, port) if ip.contains(':') => format!("[{ip}]:{port}"),
            (ip, port) => format!("{ip}:{port}"),
        }));
    }
    with_more(&list, ",", MAX_SHOWN, count)
}

fn or_unset(list: &[String]) -> String {
    match with_more(list, ",", MAX_SHOWN, list.len()) {
        empty if empty.is_empty() => "<unset>".to_owned(),
        shown => shown,
    }
}

/// The ports of a slice.
pub(super) fn slice_ports(slice: View<'_>, _now: Time) -> String {
    let port = |port: View<'_>| match port.get("port").and_then(Value::as_i64) {
        Some(number) => number.to_string(),
        None if port.has("name") => port.text("name").to_owned(),
        None => "*".to_owned(),
    };
    or_unset(&slice.items("ports").map(port).collect::<Vec<_>>())
}

/// The addresses of a slice.
pub(super) fn slice_endpoints(slice: View<'_>, _now: Time) -> String {
    let addresses = slice.items("endpoints").flat_map(|endpoint| endpoint.texts("addresses"));
    or_unset(&addresses.map(str::to_owned).collect::<Vec<_>>())
}

/// The hosts of an ingress. Rules without a host count among those that are not shown.
pub(super) fn hosts(ingress: View<'_>, _now: Time) -> String {
    let rules = ingress.each("spec.rules", "host");
    let hosts: Vec<_> = rules.iter().enumerate().filter(|(_, host)| !host.is_empty()).collect();
    let shown: Vec<&str> = hosts.iter().take(MAX_SHOWN).map(|(_, host)| **host).collect();
    let more = hosts.get(MAX_SHOWN - 1).is_some_and(|(last, _)| last + 1 < rules.len());
    match shown.join(",") {
        empty if empty.is_empty() => "*".to_owned(),
        shown if more => format!("{shown} + {} more...", rules.len() - MAX_SHOWN),
        shown => shown,
    }
}

/// The ports of an ingress.
pub(super) fn ingress_ports(ingress: View<'_>, _now: Time) -> String {
    if ingress.count("spec.tls") > 0 { "80, 443" } else { "80" }.to_owned()
}

/// The name, controller and parameters of a class.
pub(super) fn ingress_class(class: View<'_>, _now: Time) -> Vec<Value> {
    let default = if class.annotation(DEFAULT_CLASS) == Some("true") { " (default)" } else { "" };
    let parameters = class.at("spec.parameters");
    let shown = if class.has("spec.parameters") {
        let dot = if parameters.has("apiGroup") { "." } else { "" };
        format!("{}{dot}{}/{}", parameters.text("kind"), parameters.text("apiGroup"), parameters.text("name"))
    } else {
        "<none>".to_owned()
    };
    vec![cell(format!("{}{default}", class.text("metadata.name"))), cell(class.text("spec.controller")), cell(shown)]
}

/// What an address belongs to.
pub(super) fn parent_ref(address: View<'_>, _now: Time) -> String {
    if !address.has("spec.parentRef") {
        return "<none>".to_owned();
    }
    let parent = address.at("spec.parentRef");
    let resource = match parent.text("group") {
        "" => parent.text("resource").to_lowercase(),
        group => format!("{}.{group}", parent.text("resource")).to_lowercase(),
    };
    match parent.text("namespace") {
        "" => format!("{resource}/{}", parent.text("name")),
        namespace => format!("{resource}/{namespace}/{}", parent.text("name")),
    }
}
