//! What allocation reads and writes of a Service.

use std::net::IpAddr;

use capstan_api::{Map, Value, validation::parse_ip_sloppy};

/// What stands for an address where a service shall have none.
pub(super) const NONE: &str = "None";

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The name that `ipFamilies` has for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    pub(super) fn of_text(address: &str) -> Option<Self> {
        parse_ip_sloppy(address).map(|address| Family::of(address.to_canonical()))
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Family::V4, Family::V6].into_iter().find(|family| family.as_str() == name)
    }

    pub(super) fn other(self) -> Self {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }

    pub(super) fn bits(self) -> u32 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    pub(super) fn address(self, number: u128) -> IpAddr {
        match self {
            // Numbers of this family come from addresses of this family.
            Family::V4 => IpAddr::V4((number as u32).into()),
            Family::V6 => IpAddr::V6(number.into()),
        }
    }
}

/// A port of a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Port {
    pub name: String,
    pub protocol: String,
    pub port: i64,
    pub node_port: i64,
}

/// The fields of a Service that depend on each other and on what the cluster has left.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fields {
    pub namespace: String,
    pub name: String,
    pub ty: String,
    pub cluster_ip: String,
    pub cluster_ips: Vec<String>,
    pub families: Vec<String>,
    pub policy: Option<String>,
    pub ports: Vec<Port>,
    pub health_check_port: i64,
    pub has_selector: bool,
    allocates_balancer_ports: Option<bool>,
    local_traffic: bool,
}

fn text(map: &Map, key: &str) -> String {
    map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn texts(map: &Map, key: &str) -> Vec<String> {
    let items = map.get(key).and_then(Value::as_array).map_or(&[][..], |items| items);
    items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

fn int(map: &Map, key: &str) -> i64 {
    map.get(key).and_then(Value::as_i64).unwrap_or_default()
}

impl Fields {
    pub(super) fn read(service: &Map) -> Self {
        static EMPTY: Map = Map::new();
        let at = |key| service.get(key).and_then(Value::as_object).unwrap_or(&EMPTY);
        let (metadata, spec) = (at("metadata"), at("spec"));
        let ports = spec.get("ports").and_then(Value::as_array).map_or(&[][..], |ports| ports);
        let port = |port: &Value| {
            let port = port.as_object().unwrap_or(&EMPTY);
            Port {
                name: text(port, "name"),
                protocol: text(port, "protocol"),
                port: int(port, "port"),
                node_port: int(port, "nodePort"),
            }
        };
        Fields {
            namespace: text(metadata, "namespace"),
            name: text(metadata, "name"),
            ty: text(spec, "type"),
            cluster_ip: text(spec, "clusterIP"),
            cluster_ips: texts(spec, "clusterIPs"),
            families: texts(spec, "ipFamilies"),
            policy: spec.get("ipFamilyPolicy").and_then(Value::as_str).map(str::to_owned),
            ports: ports.iter().map(port).collect(),
            health_check_port: int(spec, "healthCheckNodePort"),
            has_selector: spec.get("selector").and_then(Value::as_object).is_some_and(|map| !map.is_empty()),
            allocates_balancer_ports: spec.get("allocateLoadBalancerNodePorts").and_then(Value::as_bool),
            local_traffic: text(spec, "externalTrafficPolicy") == "Local",
        }
    }

    /// Writes back what allocation may have changed.
    pub(super) fn write(&self, service: &mut Map) {
        let spec = service.get_or_insert_with("spec", || Map::new().into());
        let Some(spec) = spec.as_object_mut() else { return };
        let list = |texts: &[String]| texts.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>();
        let mut put = |key: &str, value: Option<Value>| match value {
            Some(value) => _ = spec.insert(key, value),
            None => _ = spec.remove(key),
        };
        put("clusterIP", (!self.cluster_ip.is_empty()).then(|| self.cluster_ip.as_str().into()));
        put("clusterIPs", (!self.cluster_ips.is_empty()).then(|| list(&self.cluster_ips).into()));
        put("ipFamilies", (!self.families.is_empty()).then(|| list(&self.families).into()));
        put("ipFamilyPolicy", self.policy.as_deref().map(Value::from));
        put("healthCheckNodePort", (self.health_check_port != 0).then(|| self.health_check_port.into()));
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        for (port, own) in ports.into_iter().flat_map(|ports| ports.iter_mut()).zip(&self.ports) {
            let Some(port) = port.as_object_mut().filter(|_| own.node_port != 0) else { continue };
            port.insert("nodePort", own.node_port);
        }
    }

    /// Who holds an address or a port.
    pub(super) fn owner(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    pub(super) fn needs_cluster_ip(&self) -> bool {
        self.ty != "ExternalName"
    }

    pub(super) fn is_headless(&self) -> bool {
        self.cluster_ips.first().is_some_and(|ip| ip == NONE)
    }

    /// Whether its type has ports on nodes at all.
    pub(super) fn is_on_nodes(&self) -> bool {
        matches!(self.ty.as_str(), "NodePort" | "LoadBalancer")
    }

    /// Whether ports on nodes are chosen for it.
    pub(super) fn wants_node_ports(&self) -> bool {
        self.ty == "NodePort" || self.ty == "LoadBalancer" && self.allocates_balancer_ports.unwrap_or(true)
    }

    pub(super) fn wants_health_check(&self) -> bool {
        self.ty == "LoadBalancer" && self.local_traffic
    }

    pub(super) fn node_ports(&self) -> impl Iterator<Item = i64> {
        self.ports.iter().map(|port| port.node_port).filter(|port| *port != 0)
    }

    /// All ports on nodes that are its own, with that of health checks. Those that other types carry along are not.
    pub(super) fn all_node_ports(&self) -> impl Iterator<Item = i64> {
        let health = Some(self.health_check_port).filter(|port| *port != 0 && self.wants_health_check());
        self.node_ports().filter(|_| self.is_on_nodes()).chain(health)
    }

    /// The addresses that are its own.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        let own = self.needs_cluster_ip() && !self.is_headless();
        let ips = self.cluster_ips.iter().filter(|_| own);
        ips.filter_map(|ip| parse_ip_sloppy(ip)).map(|ip| ip.to_canonical()).collect()
    }
}
