//! What upstream v1.36.3 had made by itself once it was ready, and what it makes of what is there.

use std::net::IpAddr;

use capstan_api::{MicroTime, Time, Value, json};

use super::*;
use crate::allocation::{ServiceCidr, default_service_cidr};

fn parse(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn range() -> ServiceCidr {
    "10.0.0.0/24".parse().unwrap()
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

const ENDPOINTS: &str = r#"{"apiVersion":"v1","kind":"Endpoints","metadata":{"labels":{"endpointslice.kubernetes.io/skip-mirror":"true"},"name":"kubernetes","namespace":"default"},"subsets":[{"addresses":[{"ip":"192.0.2.2"}],"ports":[{"name":"https","port":36521,"protocol":"TCP"}]}]}"#;

#[test]
fn the_service_and_what_is_behind_it() {
    let service = r#"{"apiVersion":"v1","kind":"Service","metadata":{"labels":{"component":"apiserver","provider":"kubernetes"},"name":"kubernetes","namespace":"default"},"spec":{"clusterIP":"10.0.0.1","ipFamilyPolicy":"SingleStack","ports":[{"name":"https","port":443,"protocol":"TCP","targetPort":36521}],"sessionAffinity":"None","type":"ClusterIP"}}"#;
    assert_eq!(kubernetes_service(&range(), 36521), parse(service));
    let endpoints = kubernetes_endpoints(None, &ips(&["192.0.2.2"]), 36521).unwrap();
    assert_eq!(endpoints, parse(ENDPOINTS));
    let slice = r#"{"addressType":"IPv4","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["192.0.2.2"],"conditions":{"ready":true}}],"kind":"EndpointSlice","metadata":{"labels":{"kubernetes.io/service-name":"kubernetes"},"name":"kubernetes","namespace":"default"},"ports":[{"name":"https","port":36521,"protocol":"TCP"}]}"#;
    assert_eq!(kubernetes_endpoint_slice(&endpoints), parse(slice));
    let cidr = r#"{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.0.0.0/24","fd00:10::/112"]}}"#;
    assert_eq!(Value::from(default_service_cidr(&[range(), "fd00:10::/112".parse().unwrap()])), parse(cidr));
}

#[test]
fn endpoints_are_kept_up() {
    let existing = parse(ENDPOINTS);
    let of = |endpoints: &Value| json::to_string(endpoints.get("subsets").unwrap());
    let expected = |addresses: &str, port: u16| {
        format!(r#"[{{"addresses":[{addresses}],"ports":[{{"name":"https","port":{port},"protocol":"TCP"}}]}}]"#)
    };
    assert_eq!(kubernetes_endpoints(Some(&existing), &ips(&["192.0.2.2"]), 1), None, "ports are left alone");
    let two = kubernetes_endpoints(Some(&existing), &ips(&["192.0.2.3", "192.0.2.2", "192.0.2.3"]), 1).unwrap();
    assert_eq!(of(&two), expected(r#"{"ip":"192.0.2.2"},{"ip":"192.0.2.3"}"#, 36521));
    assert_eq!(kubernetes_endpoints(Some(&two), &ips(&["192.0.2.3", "192.0.2.2"]), 1), None);
    for broken in [r#"{"subsets":null}"#, r#"{"subsets":[]}"#, r#"{"subsets":[{},{}]}"#, r#"{"metadata":{}}"#] {
        let made = kubernetes_endpoints(Some(&parse(broken)), &ips(&["192.0.2.2"]), 6443).unwrap();
        assert_eq!(of(&made), expected(r#"{"ip":"192.0.2.2"}"#, 6443), "{broken}");
    }
    let slice = |texts: &[&str]| kubernetes_endpoint_slice(&kubernetes_endpoints(None, &ips(texts), 1).unwrap());
    for (texts, family, count) in [(vec!["fd00::1"], "IPv6", 1), (vec!["fd00::1", "192.0.2.2"], "IPv4", 1)] {
        let slice = slice(&texts);
        let got = slice.get("addressType").and_then(Value::as_str);
        assert_eq!((got, slice.get("endpoints").unwrap().as_array().unwrap().len()), (Some(family), count));
    }
}

fn pem(body: &str) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
}

#[test]
fn extension_servers_are_told_whom_to_trust() {
    let (a, b) = (pem("AAAA"), pem("BBBB"));
    let alone = authentication_config(None, &a, None).unwrap();
    let data = |config: &Value| config.get("data").unwrap().as_object().unwrap().clone();
    assert_eq!(data(&alone).keys().collect::<Vec<_>>(), ["client-ca-file"]);
    assert_eq!(
        alone.get("metadata"),
        Some(&parse(r#"{"name":"extension-apiserver-authentication","namespace":"kube-system"}"#))
    );
    assert_eq!(authentication_config(Some(&alone), &a, None), None);
    let text = |value: &Value, key: &str| data(value).get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
    // Another server's certificate comes behind the one that is there; what is between them is not kept.
    let both = authentication_config(Some(&alone), &format!("# note\n{b}\n{a}"), None).unwrap();
    assert_eq!(text(&both, "client-ca-file"), format!("{a}{b}"));

    let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let header = RequestHeader {
        client_ca: b.clone(),
        allowed_names: list(&["front", "back"]),
        username_headers: list(&["X-Remote-User"]),
        uid_headers: Vec::new(),
        group_headers: list(&["X-Remote-Group"]),
        extra_headers_prefix: list(&["X-Remote-Extra-"]),
    };
    let full = authentication_config(None, &a, Some(&header)).unwrap();
    for (key, value) in [
        ("client-ca-file", a.as_str()),
        ("requestheader-allowed-names", r#"["front","back"]"#),
        ("requestheader-client-ca-file", b.as_str()),
        ("requestheader-extra-headers-prefix", r#"["X-Remote-Extra-"]"#),
        ("requestheader-group-headers", r#"["X-Remote-Group"]"#),
        ("requestheader-uid-headers", "-"),
        ("requestheader-username-headers", r#"["X-Remote-User"]"#),
    ] {
        assert_eq!(text(&full, key), value, "{key}");
    }
    let more = RequestHeader { allowed_names: list(&["back", "side"]), uid_headers: list(&["X-Uid"]), ..header };
    let more = authentication_config(Some(&full), &a, Some(&more)).unwrap();
    assert_eq!(text(&more, "requestheader-allowed-names"), r#"["front","back","side"]"#);
    assert_eq!(text(&more, "requestheader-uid-headers"), r#"["X-Uid"]"#);
}

#[test]
fn tokens_are_tracked_since_a_day() {
    let now: Time = "2026-11-16T01:36:03Z".parse().unwrap();
    let expected = parse(
        r#"{"apiVersion":"v1","data":{"since":"2026-11-16"},"kind":"ConfigMap","metadata":{"name":"kube-apiserver-legacy-service-account-token-tracking","namespace":"kube-system"}}"#,
    );
    assert_eq!(token_tracking(None, now), Some(expected.clone()));
    assert_eq!(token_tracking(Some(&expected), now), None);
    for (since, kept) in [("2020-02-29", true), ("2021-02-29", false), ("", false), ("yesterday", false)] {
        let existing = parse(&format!(r#"{{"data":{{"since":"{since}","other":"x"}}}}"#));
        let updated = token_tracking(Some(&existing), now);
        assert_eq!(updated.is_none(), kept, "{since}");
        if let Some(updated) = updated {
            assert_eq!(updated, parse(r#"{"data":{"since":"2026-11-16","other":"x"}}"#));
        }
    }
}

#[test]
fn a_server_says_who_it_is() {
    assert_eq!(server_id("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    let now = MicroTime("2026-11-16T01:48:58.102155Z".parse().unwrap());
    let lease = identity_lease("vm", "5c6be33c-4840-4c3c-a192-d40e35db42f4", "192.0.2.2:36521", now);
    let expected = r#"{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"annotations":{"kubernetes.io/peer-advertise-address":"192.0.2.2:36521"},"labels":{"apiserver.kubernetes.io/identity":"kube-apiserver","kubernetes.io/hostname":"vm"},"name":"apiserver-wlv32tlttr4jl3gtroqexyxapa","namespace":"kube-system"},"spec":{"holderIdentity":"apiserver-wlv32tlttr4jl3gtroqexyxapa_5c6be33c-4840-4c3c-a192-d40e35db42f4","leaseDurationSeconds":3600,"renewTime":"2026-11-16T01:48:58.102155Z"}}"#;
    assert_eq!(lease, parse(expected));
}

#[test]
fn roles_that_are_made_of_others_have_their_rules() {
    let roles = cluster_roles();
    assert_eq!(roles.len(), 69);
    let rules = |name: &str| {
        let named = |role: &&Value| role.get("metadata").unwrap().get("name").unwrap().as_str() == Some(name);
        let role = roles.iter().find(named).unwrap();
        role.get("rules").unwrap().as_array().map_or_else(Vec::new, |rules| rules.to_vec())
    };
    // What may be viewed may be edited, and what may be edited may be administered.
    for (small, large) in [("view", "edit"), ("edit", "admin"), ("system:aggregate-to-view", "view")] {
        let (small, large) = (rules(small), rules(large));
        assert!(!small.is_empty() && small.iter().all(|rule| large.contains(rule)));
    }
    let mut again = roles.clone();
    aggregate_cluster_roles(&mut again).unwrap();
    assert_eq!(again, roles);
    // Two that gather each other come to an end.
    let circle = |name: &str, other: &str| {
        parse(&format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"{name}":""}}}},"aggregationRule":{{"clusterRoleSelectors":[{{"matchLabels":{{"{other}":""}}}}]}},"rules":[{{"verbs":["{name}"]}}]}}"#
        ))
    };
    aggregate_cluster_roles(&mut [circle("a", "b"), circle("b", "a")]).unwrap();
}
