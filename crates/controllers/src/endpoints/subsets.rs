//! Endpoints as subsets: addresses with the ports that they have in common.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, ObjectReference};

use crate::fnv::fnv128a;

/// What makes two addresses the same one.
type AddressKey = (String, Option<String>);

fn key(address: &EndpointAddress) -> AddressKey {
    (address.ip.clone(), address.target_ref.as_ref().and_then(|target| target.uid.clone()))
}

/// A port in an order; none stands for "no ports at all".
type PortKey = Option<(Option<String>, i32, Option<String>, Option<String>)>;

/// Puts addresses that have the same ports, and are ready alike, into one subset, in upstream's order.
///
/// An address that is both ready and not is not.
pub(crate) fn repack(subsets: &[EndpointSubset]) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey, EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<PortKey, BTreeMap<AddressKey, bool>> = BTreeMap::new();
    for subset in subsets {
        let ports = subset.ports.iter().flatten();
        let mut ports: Vec<PortKey> = ports
            .map(|port| Some((port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone())))
            .collect();
        if ports.is_empty() {
            ports.push(None);
        }
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let all = ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)));
        for (address, ready) in all {
            let key = key(address);
            addresses.entry(key.clone()).or_insert_with(|| address.clone());
            for port in &ports {
                let known = by_port.entry(port.clone()).or_default().entry(key.clone()).or_insert(ready);
                *known &= ready;
            }
        }
    }

    let mut by_addresses: BTreeMap<BTreeMap<AddressKey, bool>, BTreeSet<PortKey>> = BTreeMap::new();
    for (port, addresses) in by_port {
        by_addresses.entry(addresses).or_default().insert(port);
    }
    let mut packed: Vec<EndpointSubset> = by_addresses
        .into_iter()
        .map(|(ready, ports)| {
            let of = |wanted: bool| -> Option<Vec<EndpointAddress>> {
                let keys = ready.iter().filter(|(_, ready)| **ready == wanted);
                let found: Vec<_> = keys.map(|(key, _)| addresses[key].clone()).collect();
                (!found.is_empty()).then_some(found)
            };
            let mut ports: Vec<EndpointPort> = ports
                .into_iter()
                .flatten()
                .map(|(name, port, protocol, app_protocol)| EndpointPort { name, port, protocol, app_protocol })
                .collect();
            ports.sort_by_cached_key(|port| fnv128a(format!("(v1.EndpointPort){}", dump_port(port))));
            let ports = (!ports.is_empty()).then_some(ports);
            EndpointSubset { addresses: of(true), not_ready_addresses: of(false), ports }
        })
        .collect();
    packed.sort_by_cached_key(|subset| fnv128a(dump(subset)));
    packed
}

fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

fn pointer(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("<nil>")
}

/// How upstream prints a subset before it hashes it.
fn dump(subset: &EndpointSubset) -> String {
    let addresses = |addresses: &Option<Vec<EndpointAddress>>| {
        list(addresses.as_deref().map(|addresses| addresses.iter().map(dump_address).collect()))
    };
    format!(
        "(v1.EndpointSubset){{Addresses:([]v1.EndpointAddress){} NotReadyAddresses:([]v1.EndpointAddress){} \
         Ports:([]v1.EndpointPort){}}}",
        addresses(&subset.addresses),
        addresses(&subset.not_ready_addresses),
        list(subset.ports.as_deref().map(|ports| ports.iter().map(dump_port).collect())),
    )
}

fn list(items: Option<Vec<String>>) -> String {
    items.map_or_else(|| "<nil>".to_owned(), |items| format!("[{}]", items.join(" ")))
}

fn dump_port(port: &EndpointPort) -> String {
    format!(
        "{{Name:(string){} Port:(int32){} Protocol:(v1.Protocol){} AppProtocol:(*string){}}}",
        text(&port.name),
        port.port,
        text(&port.protocol),
        pointer(&port.app_protocol),
    )
}

fn dump_address(address: &EndpointAddress) -> String {
    format!(
        "{{IP:(string){} Hostname:(string){} NodeName:(*string){} TargetRef:(*v1.ObjectReference){}}}",
        address.ip,
        text(&address.hostname),
        pointer(&address.node_name),
        address.target_ref.as_ref().map_or_else(|| "<nil>".to_owned(), dump_reference),
    )
}

fn dump_reference(reference: &ObjectReference) -> String {
    format!(
        "{{Kind:(string){} Namespace:(string){} Name:(string){} UID:(types.UID){} APIVersion:(string){} \
         ResourceVersion:(string){} FieldPath:(string){}}}",
        text(&reference.kind),
        text(&reference.namespace),
        text(&reference.name),
        text(&reference.uid),
        text(&reference.api_version),
        text(&reference.resource_version),
        text(&reference.field_path),
    )
}

/// Cuts subsets down to `most` addresses, ready ones first, each subset in proportion. True when something was cut.
pub(crate) fn truncate(subsets: &mut [EndpointSubset], most: usize) -> bool {
    let count = |of: &dyn Fn(&EndpointSubset) -> usize| -> usize { subsets.iter().map(of).sum() };
    let length = |addresses: &Option<Vec<EndpointAddress>>| addresses.as_ref().map_or(0, Vec::len);
    let ready = count(&|subset| length(&subset.addresses));
    let not_ready = count(&|subset| length(&subset.not_ready_addresses));
    if ready + not_ready <= most {
        return false;
    }
    let cut_ready = ready > most;
    let (room, total) = if cut_ready { (most, ready) } else { (most - ready, not_ready) };
    let mut left = room;
    for subset in subsets {
        if cut_ready {
            subset.not_ready_addresses = None;
        }
        let addresses = if cut_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let Some(list) = addresses else { continue };
        let share = (list.len() as f64 / total as f64 * room as f64).ceil() as usize;
        list.truncate(share.min(left));
        left -= list.len();
        if list.is_empty() {
            *addresses = None;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, port: i32) -> EndpointPort {
        EndpointPort { name: Some(name.into()), port, protocol: Some("TCP".into()), app_protocol: None }
    }

    fn address(ip: &str) -> EndpointAddress {
        EndpointAddress { ip: ip.into(), ..EndpointAddress::default() }
    }

    fn addresses(ips: &[&str]) -> Option<Vec<EndpointAddress>> {
        (!ips.is_empty()).then(|| ips.iter().map(|ip| address(ip)).collect())
    }

    fn subset(ready: &[&str], not_ready: &[&str], ports: &[EndpointPort]) -> EndpointSubset {
        EndpointSubset {
            addresses: addresses(ready),
            not_ready_addresses: addresses(not_ready),
            ports: (!ports.is_empty()).then(|| ports.to_vec()),
        }
    }

    #[test]
    fn the_dump_is_what_go_prints() {
        let reference = ObjectReference {
            kind: Some("Pod".into()),
            namespace: Some("ns".into()),
            name: Some("a".into()),
            uid: Some("u".into()),
            ..ObjectReference::default()
        };
        let mut subset = subset(&["10.0.0.1", "10.0.0.2"], &[], &[port("http", 80)]);
        let first = &mut subset.addresses.as_mut().unwrap()[0];
        first.node_name = Some("n1".into());
        first.target_ref = Some(reference);
        assert_eq!(format!("{:032x}", fnv128a(dump(&subset))), "8b648df65b3624c71e977a36c04488da");
    }

    #[test]
    fn repacking() {
        let (http, https) = (port("http", 80), port("https", 443));
        // One address with two ports is one subset; one that is not ready anywhere is beside those that are.
        let given = [
            subset(&["1.1.1.1"], &[], std::slice::from_ref(&http)),
            subset(&["1.1.1.1"], &[], std::slice::from_ref(&https)),
            subset(&["2.2.2.2"], &[], std::slice::from_ref(&http)),
            subset(&["2.2.2.2"], &[], std::slice::from_ref(&https)),
            subset(&[], &["3.3.3.3"], std::slice::from_ref(&http)),
            subset(&[], &["3.3.3.3"], std::slice::from_ref(&https)),
        ];
        let packed = repack(&given);
        assert_eq!(packed.len(), 1, "{packed:?}");
        assert_eq!(packed[0].addresses, addresses(&["1.1.1.1", "2.2.2.2"]));
        assert_eq!(packed[0].not_ready_addresses, addresses(&["3.3.3.3"]));
        assert_eq!(packed[0].ports.as_ref().unwrap().len(), 2);
        // Other ports, other subset.
        let given = [
            subset(&["1.1.1.1"], &[], std::slice::from_ref(&http)),
            subset(&["2.2.2.2"], &[], std::slice::from_ref(&https)),
        ];
        assert_eq!(repack(&given).len(), 2);
        // Both ready and not: not.
        let given = [
            subset(&["1.1.1.1"], &[], std::slice::from_ref(&http)),
            subset(&[], &["1.1.1.1"], std::slice::from_ref(&http)),
        ];
        assert_eq!(repack(&given), [subset(&[], &["1.1.1.1"], &[http])]);
        assert_eq!(repack(&[subset(&["1.1.1.1"], &[], &[])]), [subset(&["1.1.1.1"], &[], &[])]);
    }

    #[test]
    fn truncating() {
        fn check(sizes: &[(usize, usize)], most: usize, expected: &[(usize, usize)]) {
            let many = |count| (count > 0).then(|| (0..count).map(|n| address(&format!("1.1.1.{n}"))).collect());
            let of = |&(ready, not_ready): &(usize, usize)| EndpointSubset {
                addresses: many(ready),
                not_ready_addresses: many(not_ready),
                ports: None,
            };
            let mut subsets: Vec<_> = sizes.iter().map(of).collect();
            let length = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
            let cut = truncate(&mut subsets, most);
            let found: Vec<_> = (subsets.iter())
                .map(|subset| (length(&subset.addresses), length(&subset.not_ready_addresses)))
                .collect();
            assert_eq!(found, expected);
            assert_eq!(cut, sizes != expected);
        }
        check(&[(3, 4), (1, 0)], 10, &[(3, 4), (1, 0)]);
        check(&[(3, 8), (1, 2)], 10, &[(3, 5), (1, 1)]);
        check(&[(9, 8), (6, 2)], 10, &[(6, 0), (4, 0)]);
    }
}
