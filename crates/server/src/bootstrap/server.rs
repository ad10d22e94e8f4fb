//! What a new server creates that depends on its addresses, its certificates and the time.
//!
//! Each function makes one object as it shall be, most of them from the object that is there. Where there is nothing to
//! write they return nothing. Who calls them, and how often, is upstream's habit: the service is created if it is
//! missing; its endpoints, the trust in certificates and the date of token tracking are brought up to date at start and
//! ever after; the lease is renewed.

use std::net::IpAddr;

use capstan_api::{Array, Map, MicroTime, Time, Value, json};

use super::{list_in, map, map_in};
use crate::{
    allocation::{Family, ServiceCidr},
    authorization::rbac::aggregate_rules,
    sha256::sha256,
};

/// The service through which pods reach the server, its Endpoints and its EndpointSlice.
pub const KUBERNETES: &str = "kubernetes";
/// Where that service listens.
pub const KUBERNETES_PORT: u16 = 443;
/// What extension servers read to trust this one.
pub const AUTHENTICATION_CONFIG: &str = "extension-apiserver-authentication";
/// Since when tokens in secrets are tracked.
pub const TOKEN_TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
/// Marks the leases of servers, by label.
pub(crate) const IDENTITY: (&str, &str) = ("apiserver.kubernetes.io/identity", "kube-apiserver");
/// Where the lease of a server says how others reach it.
pub(crate) const ADVERTISED: &str = "kubernetes.io/peer-advertise-address";
/// How long a server counts as alive after it has last renewed its lease, in seconds.
pub const IDENTITY_LEASE_SECONDS: i64 = 3600;
/// How often a server renews its lease, in seconds.
pub const IDENTITY_RENEW_SECONDS: u64 = 10;

/// When an object that the server makes by itself is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Created when it is missing, and left alone otherwise.
    CreateIfMissing,
    /// Created when it is missing, and brought up to date when it is not as it should be.
    Reconcile,
}

impl Upkeep {
    /// What holds for a kind of object that a server makes by itself.
    #[must_use]
    pub fn of(kind: &str) -> Self {
        match kind {
            "Namespace" | "PriorityClass" | "Service" | "ServiceCIDR" => Upkeep::CreateIfMissing,
            _ => Upkeep::Reconcile,
        }
    }
}

/// What is trusted to speak for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// The certificates of those that sign for it, as PEM.
    pub client_ca: String,
    /// Names that the certificate may have; any if there are none.
    pub allowed_names: Vec<String>,
    /// Headers that name the user.
    pub username_headers: Vec<String>,
    /// Headers that hold the user's uid.
    pub uid_headers: Vec<String>,
    /// Headers that name groups.
    pub group_headers: Vec<String>,
    /// What headers begin with that hold the rest.
    pub extra_headers_prefix: Vec<String>,
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Map {
    let mut object = map([("apiVersion", api_version), ("kind", kind)]);
    object.insert("metadata", map([("name", name), ("namespace", namespace)]));
    object
}

fn labels(object: &mut Map, labels: &[(&str, &str)]) {
    let own = map_in(object, "metadata").and_then(|metadata| map_in(metadata, "labels"));
    if let Some(own) = own {
        labels.iter().for_each(|(key, value)| _ = own.insert(*key, *value));
    }
}

fn port(number: u16) -> Map {
    let mut port = map([("name", "https"), ("protocol", "TCP")]);
    port.insert("port", i64::from(number));
    port
}

/// The service, to be created like any other: its address is the first of the range.
#[must_use]
pub fn kubernetes_service(range: &ServiceCidr, secure_port: u16) -> Value {
    let mut service = object("v1", "Service", "default", KUBERNETES);
    labels(&mut service, &[("component", "apiserver"), ("provider", "kubernetes")]);
    let mut spec = map([("ipFamilyPolicy", "SingleStack"), ("sessionAffinity", "None"), ("type", "ClusterIP")]);
    spec.insert("clusterIP", range.first().to_string());
    let mut port = port(KUBERNETES_PORT);
    port.insert("targetPort", i64::from(secure_port));
    spec.insert("ports", vec![Value::from(port)]);
    service.insert("spec", spec);
    service.into()
}

/// The Endpoints, with the addresses of all servers that are alive; nothing if they are there already.
///
/// Ports that somebody has changed are left alone, as upstream does, unless everything has to be made anew.
#[must_use]
pub fn kubernetes_endpoints(existing: Option<&Value>, servers: &[IpAddr], secure_port: u16) -> Option<Value> {
    let mut endpoints = match existing.and_then(Value::as_object) {
        Some(existing) => existing.clone(),
        None => object("v1", "Endpoints", "default", KUBERNETES),
    };
    labels(&mut endpoints, &[("endpointslice.kubernetes.io/skip-mirror", "true")]);
    let mut texts: Vec<String> = servers.iter().map(IpAddr::to_string).collect();
    texts.sort_unstable();
    texts.dedup();

    let subsets = list_in(&mut endpoints, "subsets")?;
    let mut found: Option<Vec<String>> = match &subsets[..] {
        [one] => Some(addresses(one)),
        _ => None,
    };
    if let Some(found) = &mut found {
        found.sort_unstable();
    }
    if found.as_ref() != Some(&texts) {
        let ports = match &subsets[..] {
            [one] => one.get("ports").cloned(),
            _ => None,
        };
        let mut subset = Map::new();
        let address = |ip: &String| Value::from(map([("ip", ip.as_str())]));
        subset.insert("addresses", texts.iter().map(address).collect::<Vec<_>>());
        subset.insert("ports", ports.unwrap_or_else(|| vec![Value::from(port(secure_port))].into()));
        *subsets = Array::from(vec![subset.into()]);
    }
    Some(Value::from(endpoints)).filter(|endpoints| Some(endpoints) != existing)
}

fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], |items| items)
}

fn addresses(subset: &Value) -> Vec<String> {
    let ip = |address: &Value| address.get("ip").and_then(Value::as_str).unwrap_or_default().to_owned();
    items(subset, "addresses").iter().map(ip).collect()
}

/// The EndpointSlice that says the same as the Endpoints. A slice whose `addressType` is another has to be deleted
/// first, for that can't be changed.
#[must_use]
pub fn kubernetes_endpoint_slice(endpoints: &Value) -> Value {
    let mut slice = object("discovery.k8s.io/v1", "EndpointSlice", "default", KUBERNETES);
    labels(&mut slice, &[("kubernetes.io/service-name", KUBERNETES)]);
    let subset = items(endpoints, "subsets").first().unwrap_or(&Value::Null);
    let ips: Vec<IpAddr> = addresses(subset).iter().filter_map(|ip| ip.parse().ok()).collect();
    let six = !ips.is_empty() && ips.iter().all(IpAddr::is_ipv6);
    let family = if six { Family::V6 } else { Family::V4 };
    slice.insert("addressType", family.as_str());
    let endpoint = |ip: &IpAddr| {
        let mut endpoint = map([("addresses", vec![Value::from(ip.to_string())])]);
        endpoint.insert("conditions", map([("ready", true)]));
        Value::from(endpoint)
    };
    let of_family = ips.iter().filter(|ip| Family::of(**ip) == family);
    slice.insert("endpoints", of_family.map(endpoint).collect::<Vec<_>>());
    slice.insert("ports", items(subset, "ports").to_vec());
    slice.into()
}

/// The ConfigMap by which extension servers trust this one; nothing if it says all that already. What other servers
/// have put there stays. Certificates that have expired are not looked for.
#[must_use]
pub fn authentication_config(
    existing: Option<&Value>,
    client_ca: &str,
    request_header: Option<&RequestHeader>,
) -> Option<Value> {
    let mut config = match existing.and_then(Value::as_object) {
        Some(existing) => existing.clone(),
        None => object("v1", "ConfigMap", "kube-system", AUTHENTICATION_CONFIG),
    };
    let data = map_in(&mut config, "data")?;
    let certificates = |data: &mut Map, key: &str, more: &str| {
        let mut all = pem_blocks(data.get(key).and_then(Value::as_str).unwrap_or_default());
        for block in pem_blocks(more) {
            if !all.contains(&block) {
                all.push(block);
            }
        }
        let all = all.concat();
        if !all.is_empty() {
            data.insert(key, all);
        }
    };
    certificates(data, "client-ca-file", client_ca);
    if let Some(header) = request_header {
        certificates(data, "requestheader-client-ca-file", &header.client_ca);
        for (key, own, written_empty) in [
            ("requestheader-allowed-names", &header.allowed_names, true),
            ("requestheader-extra-headers-prefix", &header.extra_headers_prefix, true),
            ("requestheader-group-headers", &header.group_headers, true),
            ("requestheader-uid-headers", &header.uid_headers, false),
            ("requestheader-username-headers", &header.username_headers, true),
        ] {
            let before = data.get(key).and_then(Value::as_str).and_then(|text| json::parse(text.as_bytes()).ok());
            let mut all: Vec<Value> = before.as_ref().and_then(Value::as_array).map_or_else(Vec::new, |l| l.to_vec());
            for name in own {
                if !all.iter().any(|have| have.as_str() == Some(name)) {
                    all.push(name.as_str().into());
                }
            }
            if written_empty || !all.is_empty() {
                data.insert(key, json::to_string(&all.into()));
            }
        }
    }
    Some(Value::from(config)).filter(|config| Some(config) != existing)
}

/// The certificates in a text, each with its lines and the newline behind.
fn pem_blocks(text: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let block = |part: &str| {
        let start = part.find("-----BEGIN CERTIFICATE-----")?;
        Some(format!("{}\n", part[start..].trim_end()))
    };
    text.split_inclusive(END).filter(|part| part.ends_with(END)).filter_map(block).collect()
}

/// The ConfigMap that says since when tokens in secrets are tracked; nothing if it says a date already.
#[must_use]
pub fn token_tracking(existing: Option<&Value>, now: Time) -> Option<Value> {
    let since = existing.and_then(|config| config.get("data")?.get("since")?.as_str());
    let is_date = |text: &str| format!("{text}T00:00:00Z").parse::<Time>().is_ok() && text.len() == 10;
    if since.is_some_and(is_date) {
        return None;
    }
    let mut config = match existing.and_then(Value::as_object) {
        Some(existing) => existing.clone(),
        None => object("v1", "ConfigMap", "kube-system", TOKEN_TRACKING),
    };
    let now = now.to_string();
    map_in(&mut config, "data")?.insert("since", now.split('T').next().unwrap_or_default());
    Some(config.into())
}

/// The name of a server, which is that of its lease: made of its host's, so that it stays over restarts.
#[must_use]
pub fn server_id(hostname: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = Vec::new();
    for part in [hostname, "kube-apiserver"] {
        // Names of hosts are far shorter than what two bytes can count.
        bytes.extend(u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend(part.bytes().take(usize::from(u16::MAX)));
    }
    let hash = sha256(&bytes);
    let mut id = String::from("apiserver-");
    // Base 32: 16 bytes are 26 letters, the last of which has two bits that count for nothing.
    let bit = |at: usize| hash.get(at / 8).filter(|_| at < 128).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    for letter in 0..26 {
        let value = (0..5).fold(0, |value, i| value << 1 | bit(letter * 5 + i));
        id.push(char::from(ALPHABET[usize::from(value)]));
    }
    id
}

/// The lease of a server; `run` tells one start of it from another, `advertised` is where other servers reach it.
#[must_use]
pub fn identity_lease(hostname: &str, run: &str, advertised: &str, now: MicroTime) -> Value {
    let id = server_id(hostname);
    let mut lease = object("coordination.k8s.io/v1", "Lease", "kube-system", &id);
    labels(&mut lease, &[IDENTITY, ("kubernetes.io/hostname", hostname)]);
    if let Some(metadata) = map_in(&mut lease, "metadata") {
        metadata.insert("annotations", map([(ADVERTISED, advertised)]));
    }
    let mut spec = map([("holderIdentity", format!("{id}_{run}")), ("renewTime", now.to_string())]);
    spec.insert("leaseDurationSeconds", IDENTITY_LEASE_SECONDS);
    lease.insert("spec", spec);
    lease.into()
}

/// Gives ClusterRoles that are made of others the rules of those, until nothing changes: some that are gathered gather
/// themselves. For all ClusterRoles that there are, at start and whenever one changes.
///
/// # Errors
/// Says what is wrong with a selector.
pub fn aggregate_cluster_roles(roles: &mut [Value]) -> Result<(), String> {
    // A chain is no longer than there are roles; those that gather each other in a circle stop there.
    for _ in 0..=roles.len() {
        let mut changed = false;
        for i in 0..roles.len() {
            if let Some(role) = aggregate_rules(&roles[i], &*roles)? {
                roles[i] = role;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    Ok(())
}

/// The ClusterRoles of the policy, those that are made of others with their rules.
#[must_use]
pub fn cluster_roles() -> Vec<Value> {
    let mut roles = super::rbac_of(|kind, _| kind == "ClusterRole");
    aggregate_cluster_roles(&mut roles).expect("the committed selectors are valid");
    roles
}
