//! Who resolves names for a pod: the cluster's servers, the node's, or its own. Pure, but for reading the node's file.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::Pod;

/// How many servers a resolver takes.
const MAX_SERVERS: usize = 3;
/// How many domains are searched at most, and how long they may be together.
const MAX_SEARCHES: (usize, usize) = (32, 2048);
/// The longest domain.
const MAX_DOMAIN: usize = 253;

/// What the node knows of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The cluster's servers; none if it has none.
    pub cluster: Vec<String>,
    /// The cluster's domain.
    pub domain: String,
    /// Where the node's own resolver is configured; nothing for no resolver at all.
    pub resolv_conf: Option<PathBuf>,
}

impl Default for Dns {
    fn default() -> Self {
        Dns {
            cluster: Vec::new(),
            domain: "cluster.local".to_owned(),
            resolv_conf: Some(PathBuf::from("/etc/resolv.conf")),
        }
    }
}

/// Where systemd says who really resolves names, when the node asks it on the loopback.
const SYSTEMD: &str = "/run/systemd/resolve/resolv.conf";

impl Dns {
    /// For pods that don't share the node's loopback: servers that listen there alone are none for them.
    #[must_use]
    pub fn without_loopback(self) -> Self {
        let is_loopback = |server: &String| server.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let servers = Resolver::of_node(self.resolv_conf.as_deref()).servers;
        match servers.iter().all(is_loopback) && Path::new(SYSTEMD).exists() {
            true => Dns { resolv_conf: Some(SYSTEMD.into()), ..self },
            false => self,
        }
    }
}

/// What is in a `resolv.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolver {
    /// Addresses of servers.
    pub servers: Vec<String>,
    /// Domains in which short names are looked for.
    pub searches: Vec<String>,
    /// Options such as `ndots:5`.
    pub options: Vec<String>,
}

impl Resolver {
    /// Reads the text of a `resolv.conf`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut resolver = Resolver::default();
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let word = words.next();
            let rest: Vec<String> = words.map(str::to_owned).collect();
            match word {
                Some("nameserver") => resolver.servers.extend(rest.into_iter().next()),
                // The last line counts.
                Some("search") => resolver.searches = rest,
                Some("options") => resolver.options = rest,
                _ => {}
            }
        }
        resolver
    }

    /// The resolver of the node.
    #[must_use]
    pub fn of_node(file: Option<&Path>) -> Self {
        let text = file.map(|file| std::fs::read_to_string(file).unwrap_or_default());
        match text {
            Some(text) => Resolver::parse(&text),
            None => {
                Resolver { servers: vec!["127.0.0.1".to_owned()], searches: vec![".".to_owned()], options: Vec::new() }
            }
        }
    }

    /// The text of a `resolv.conf`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        if !self.searches.is_empty() {
            text.push_str(&format!("search {}\n", self.searches.join(" ")));
        }
        for server in &self.servers {
            text.push_str(&format!("nameserver {server}\n"));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("options {}\n", self.options.join(" ")));
        }
        text
    }
}

/// The resolver of a pod, and what is to be told of it: reason and message of warnings.
#[must_use]
pub fn of_pod(pod: &Pod, dns: &Dns, node: Resolver, host_network: bool) -> (Resolver, Vec<(&'static str, String)>) {
    let mut warnings = Vec::new();
    let spec = pod.spec.clone().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let cluster = match spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "None" => None,
        "Default" => Some(false),
        "ClusterFirstWithHostNet" => Some(true),
        _ => Some(!host_network),
    };
    let mut resolver = match cluster {
        None => Resolver::default(),
        Some(true) if !dns.cluster.is_empty() => {
            let domain = &dns.domain;
            let mut searches = vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
            searches.extend(node.searches);
            Resolver {
                servers: dns.cluster.clone(),
                searches: once_each(searches),
                options: vec!["ndots:5".to_owned()],
            }
        }
        Some(wanted) => {
            if wanted {
                let text = |field: &Option<String>| field.clone().unwrap_or_default();
                let meta = &pod.metadata;
                warnings.push((
                    "MissingClusterDNS",
                    format!(
                        "pod: \"{}_{}({})\". kubelet does not have ClusterDNS IP configured and cannot create Pod \
                         using \"ClusterFirst\" policy. Falling back to \"Default\" policy.",
                        text(&meta.name),
                        text(&meta.namespace),
                        text(&meta.uid)
                    ),
                ));
            }
            node
        }
    };
    if let Some(own) = spec.dns_config {
        resolver.servers = once_each([resolver.servers, own.nameservers.unwrap_or_default()].concat());
        resolver.searches = once_each([resolver.searches, own.searches.unwrap_or_default()].concat());
        for option in own.options.unwrap_or_default() {
            let name = option.name.unwrap_or_default();
            resolver.options.retain(|known| known.split(':').next() != Some(&name));
            resolver.options.push(option.value.map_or_else(|| name.clone(), |value| format!("{name}:{value}")));
        }
    }
    warnings.extend(limit(&mut resolver).into_iter().map(|message| ("DNSConfigForming", message)));
    (resolver, warnings)
}

/// Cuts off what resolvers would not take.
fn limit(resolver: &mut Resolver) -> Vec<String> {
    let mut said = Vec::new();
    if resolver.servers.len() > MAX_SERVERS {
        resolver.servers.truncate(MAX_SERVERS);
        said.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            resolver.servers.join(" ")
        ));
    }
    let before = resolver.searches.len();
    resolver.searches.truncate(MAX_SEARCHES.0);
    resolver.searches.retain(|domain| domain.len() <= MAX_DOMAIN);
    while resolver.searches.join(" ").len() > MAX_SEARCHES.1 {
        resolver.searches.pop();
    }
    if resolver.searches.len() < before {
        said.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            resolver.searches.join(" ")
        ));
    }
    said
}

fn once_each(all: Vec<String>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies() {
        let node = Resolver::parse("# the node's\nnameserver 192.0.2.1\nsearch example.com corp\noptions edns0\n");
        let dns = Dns { cluster: vec!["10.0.0.10".into()], ..Dns::default() };
        let none = Dns::default();
        let check = |spec: serde_json::Value, dns: &Dns, host: bool, expected: &str, warned: &[&str]| {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec});
            let (resolver, warnings) = of_pod(&serde_json::from_value(pod).unwrap(), dns, node.clone(), host);
            assert_eq!(resolver.text(), expected, "{spec}");
            assert_eq!(warnings.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), warned, "{spec}");
        };
        let cluster = "search ns.svc.cluster.local svc.cluster.local cluster.local example.com corp\n\
                       nameserver 10.0.0.10\noptions ndots:5\n";
        let own = "search example.com corp\nnameserver 192.0.2.1\noptions edns0\n";
        check(json!({}), &dns, false, cluster, &[]);
        check(json!({}), &dns, true, own, &[]);
        check(json!({"dnsPolicy": "ClusterFirstWithHostNet"}), &dns, true, cluster, &[]);
        check(json!({"dnsPolicy": "Default"}), &dns, false, own, &[]);
        check(json!({}), &none, false, own, &["MissingClusterDNS"]);
        let config = json!({"nameservers": ["1.1.1.1"], "searches": ["a"],
                            "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}]});
        check(
            json!({"dnsPolicy": "None", "dnsConfig": config}),
            &dns,
            false,
            "search a\nnameserver 1.1.1.1\noptions ndots:2 rotate\n",
            &[],
        );
        let many = json!({"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3"]});
        let cut = "search example.com corp\nnameserver 192.0.2.1\nnameserver 1.1.1.1\nnameserver 1.1.1.2\n\
                   options edns0\n";
        check(json!({"dnsPolicy": "Default", "dnsConfig": many}), &dns, false, cut, &["DNSConfigForming"]);
    }
}
