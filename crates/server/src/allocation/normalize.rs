//! Making linked fields of a Service agree: what an old client leaves out, what a client sends again, what was stored
//! before a field existed.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{Family, Fields, NONE};

/// Fills what was not there when the object was stored.
pub(super) fn default_on_read(service: &mut Fields, primary: Family) {
    cluster_ips(service, None);
    if !service.needs_cluster_ip() || !service.families.is_empty() {
        return;
    }
    let named = |families: &[Family]| families.iter().map(|family| family.as_str().to_owned()).collect();
    let (families, policy) = if service.cluster_ip == NONE && !service.has_selector {
        // Nobody knows the families of endpoints that somebody else writes.
        (named(&[primary, primary.other()]), Some("RequireDualStack"))
    } else if service.cluster_ip == NONE {
        (named(&[primary]), Some("SingleStack"))
    } else {
        let family = |ip: &String| Family::of_text(ip).unwrap_or(Family::V4);
        let families: Vec<_> = service.cluster_ips.iter().map(family).collect();
        let policy = [None, Some("SingleStack"), Some("RequireDualStack")].get(families.len()).copied().flatten();
        (named(&families), policy)
    };
    service.families = families;
    if policy.is_some() {
        service.policy = policy.map(str::to_owned);
    }
}

/// Brings `clusterIPs` in line with `clusterIP`: clients use the singular alone, or both.
pub(super) fn cluster_ips(new: &mut Fields, old: Option<&Fields>) {
    let Some(old) = old else {
        if !new.cluster_ip.is_empty() && new.cluster_ips.is_empty() {
            new.cluster_ips = vec![new.cluster_ip.clone()];
        }
        return;
    };
    if new.cluster_ips.is_empty() && old.cluster_ip == new.cluster_ip {
        new.cluster_ips.clone_from(&old.cluster_ips);
    }
    if old.cluster_ip != new.cluster_ip && old.cluster_ips == new.cluster_ips {
        let cleared = !old.cluster_ip.is_empty() && new.cluster_ip.is_empty();
        new.cluster_ips = if cleared { Vec::new() } else { vec![new.cluster_ip.clone()] };
    }
}

/// Takes over what was allocated before where the client does not say otherwise: the same manifest may be sent twice.
pub(super) fn keep_allocated(new: &mut Fields, old: &Fields) {
    if old.needs_cluster_ip() && new.needs_cluster_ip() {
        if new.cluster_ip.is_empty() {
            new.cluster_ip.clone_from(&old.cluster_ip);
        }
        if new.cluster_ips.is_empty() {
            new.cluster_ips.clone_from(&old.cluster_ips);
        }
    }
    if old.wants_node_ports() && new.wants_node_ports() {
        let asked: BTreeSet<i64> = new.node_ports().collect();
        let by_name: BTreeMap<&str, i64> = old.ports.iter().map(|port| (port.name.as_str(), port.node_port)).collect();
        for port in new.ports.iter_mut().filter(|port| port.node_port == 0) {
            let before = by_name.get(port.name.as_str()).copied().unwrap_or(0);
            if !asked.contains(&before) {
                port.node_port = before;
            }
        }
    }
    if old.wants_health_check() && new.wants_health_check() && new.health_check_port == 0 {
        new.health_check_port = old.health_check_port;
    }
}
