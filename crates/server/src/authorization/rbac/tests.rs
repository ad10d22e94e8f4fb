//! Rules, aggregation and snapshots, case by case.

use capstan_api::{Str, json};

use super::*;
use crate::{authorization::Chain, bootstrap};

pub(super) fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap()
}

fn list(words: &str) -> Vec<Str> {
    words.split_whitespace().map(|word| if word == "core" { "".into() } else { word.into() }).collect()
}

/// `verbs | groups | resources | names`, or `verbs | paths`; lists are separated by blanks, `core` is the group without
/// a name.
fn rule(text: &str) -> PolicyRule {
    let parts: Vec<Vec<Str>> = text.split('|').map(list).collect();
    let part = |at: usize| parts.get(at).cloned().unwrap_or_default();
    match parts.len() {
        2 => PolicyRule { verbs: part(0), non_resource_urls: part(1), ..PolicyRule::default() },
        _ => PolicyRule {
            verbs: part(0),
            api_groups: part(1),
            resources: part(2),
            resource_names: part(3),
            ..PolicyRule::default()
        },
    }
}

/// `verb group resource/subresource [name]`, or `verb /path`.
pub(super) fn allowed(rule: &PolicyRule, request: &str) -> bool {
    let user = UserInfo::default();
    let words: Vec<&str> = request.split(' ').map(|word| if word == "core" { "" } else { word }).collect();
    let attributes = match words[..] {
        [verb, path] => Attributes::non_resource(&user, verb, path),
        [verb, group, resource, ref name @ ..] => {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let name = name.first().copied().unwrap_or("");
            Attributes { subresource, name, ..Attributes::resource(&user, verb, group, resource) }
        }
        _ => panic!("{request}"),
    };
    rule.allows(&attributes)
}

#[test]
fn rules_allow() {
    for (text, yes, no) in [
        (
            "get list|core|pods",
            &["get core pods", "list core pods a"][..],
            &["get apps pods", "watch core pods", "get core pods/log", "get /pods"][..],
        ),
        ("*|*|*", &["get core pods", "x y z/a b"], &["get /x"]),
        (
            "get|core|*/log",
            &["get core pods/log", "get core x/log"],
            &["get core pods", "get core pods/logs", "get core pods/g"],
        ),
        ("get|core|pods/*", &["get core pods/*"], &["get core pods/log", "get core pods"]),
        ("get|core|*/*", &["get core pods/*"], &["get core pods/log"]),
        ("get|core|pods/log", &["get core pods/log"], &["get core pods", "get core nodes/log"]),
        ("get|core|pods|a b", &["get core pods a", "get core pods b"], &["get core pods c", "get core pods"]),
        ("get|core|", &[], &["get core pods"]),
        ("|core|pods", &[], &["get core pods"]),
        ("get|/foo", &["get /foo"], &["get /foo/", "get /fo", "post /foo", "get core foo"]),
        ("get|/foo/*", &["get /foo/", "get /foo/a/b"], &["get /foo", "get /foobar"]),
        ("get|/foo*", &["get /foo", "get /foobar"], &["get /fo"]),
        ("get|/foo**", &["get /foobar"], &["get /fo"]),
        ("get|*", &["get /", "get /x/y"], &["post /"]),
        ("get|/a*b", &["get /a*b"], &["get /axb"]),
    ] {
        let rule = rule(text);
        for request in yes {
            assert!(allowed(&rule, request), "{text}: {request}");
        }
        for request in no {
            assert!(!allowed(&rule, request), "{text}: {request}");
        }
        assert_eq!(PolicyRule::from_value(&rule.to_value()), rule);
    }
}

#[test]
fn rules_cover() {
    for (owner, servant, missing) in [
        (&["get list|core|pods"][..], &["get|core|pods"][..], &[][..]),
        (&["get|core|pods", "list|core|pods"], &["get list|core|pods"], &[]),
        (&["get|core|pods"], &["get list|core|pods nodes"], &["list|core|pods", "get|core|nodes", "list|core|nodes"]),
        (&["get|core|pods|a"], &["get|core|pods"], &["get|core|pods"]),
        (&["get|core|pods|a"], &["get|core|pods|a b"], &["get|core|pods|b"]),
        (&["get|core|*/log"], &["get|core|pods/log */log pods"], &["get|core|pods"]),
        (&["get|core|pods"], &["get|core|*"], &["get|core|*"]),
        (&["*|*|*"], &["*|core apps|* pods", "get|/x"], &["get|/x"]),
        (&["get|/foo/*"], &["get|/foo/bar/* /foo"], &["get|/foo"]),
        (&["get|*"], &["get|/a /b* *"], &[]),
        (&[], &["|core|pods", "get|core|", "get||pods"], &[]),
    ] {
        let rules = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect::<Vec<_>>();
        assert_eq!(covers(&rules(owner), &rules(servant)), rules(missing), "{owner:?} {servant:?}");
    }
}

#[test]
fn rules_that_multiply_are_refused_unless_covered_whole() {
    let many: Vec<Str> = (0..1000).map(|n| n.to_string().into()).collect();
    let big = PolicyRule { verbs: many.clone(), api_groups: many.clone(), resources: many, ..PolicyRule::default() };
    let big = std::slice::from_ref(&big);
    assert_eq!(covers(&[], big), big);
    assert_eq!(covers(&[rule("get|x|y"), rule("*|*|*")], big), []);
    assert_eq!(covers(big, big), []);
}

#[test]
fn long_lists_against_long_lists_are_refused() {
    let names = |range: std::ops::Range<i32>| PolicyRule {
        resource_names: range.map(|n| n.to_string().into()).collect(),
        ..rule("get|core|pods")
    };
    let (few, many) = ([names(0..100)], [names(0..20_000)]);
    assert_eq!(covers(&many, &few), []);
    assert_eq!(covers(&many, &many), many, "too many comparisons");
}

#[test]
fn aggregated_rules() {
    let cluster_roles: Vec<Value> = bootstrap::rbac().into_iter().filter(|role| role.get("rules").is_some()).collect();
    let named = |name: &str| {
        cluster_roles.iter().find(|role| role.get("metadata").unwrap().get("name") == Some(&name.into())).unwrap()
    };
    let view = aggregate_rules(named("view"), &cluster_roles).unwrap().unwrap();
    assert_eq!(view.get("rules"), named("system:aggregate-to-view").get("rules"));
    assert_eq!(aggregate_rules(&view, &cluster_roles), Ok(None));
    assert_eq!(aggregate_rules(named("cluster-admin"), &cluster_roles), Ok(None));
    // Rules that come from more than one role are taken once, and never from the role itself.
    let all = [
        value(r#"{"metadata":{"name":"b","labels":{"x":"1"}},"rules":[{"verbs":["b"]},{"verbs":["both"]}]}"#),
        value(r#"{"metadata":{"name":"a","labels":{"x":"1"}},"rules":[{"verbs":["both"],"resources":[]}]}"#),
        value(r#"{"metadata":{"name":"c","labels":{"x":"2"}},"rules":[{"verbs":["c"]}]}"#),
        value(
            r#"{"metadata":{"name":"me","labels":{"x":"1"}},"rules":[{"verbs":["me"]}],"aggregationRule":{"clusterRoleSelectors":
            [{"matchLabels":{"x":"1"}},{"matchExpressions":[{"key":"x","operator":"Exists"}]}]}}"#,
        ),
    ];
    let found = aggregate_rules(&all[3], &all).unwrap().unwrap();
    assert_eq!(found.get("rules"), Some(&value(r#"[{"verbs":["both"]},{"verbs":["b"]},{"verbs":["c"]}]"#)));
    let wrong =
        value(r#"{"aggregationRule":{"clusterRoleSelectors":[{"matchExpressions":[{"key":"x","operator":"No"}]}]}}"#);
    assert_eq!(aggregate_rules(&wrong, []), Err(r#""No" is not a valid label selector operator"#.to_owned()));
}

#[test]
fn updates_that_grant_nothing_pass() {
    let rbac = Rbac::default();
    let chain = Chain::default();
    let user = UserInfo::new("u", []);
    let check = |old: &str, new: &str| {
        let request = Attributes { name: "r", namespace: "n", ..Attributes::resource(&user, "update", GROUP, "roles") };
        check_role(&chain, &rbac, RbacKind::ClusterRole, &request, &value(new), Some(&value(old)))
            .map_err(|status| status.message)
    };
    let old = r#"{"metadata":{"name":"r","finalizers":["x"]},"rules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}"#;
    assert_eq!(
        check(old, &old.replace(r#""finalizers":["x"]"#, r#""ownerReferences":[{}],"managedFields":[{}]"#)),
        Ok(())
    );
    let refused = "clusterroles.rbac.authorization.k8s.io \"r\" is forbidden: ";
    let missing = "user \"u\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n{NonResourceURLs:[\"/x\"], Verbs:[\"get\"]}";
    assert_eq!(
        check(old, &old.replace(r#""finalizers":["x"]"#, r#""labels":{"a":"b"}"#)),
        Err(format!("{refused}{missing}"))
    );
    let aggregated = r#"{"metadata":{"name":"r"},"aggregationRule":{"clusterRoleSelectors":[{}]}}"#;
    let words = "must have cluster-admin privileges to use the aggregationRule";
    assert_eq!(check(aggregated, r#"{"metadata":{"name":"r"}}"#), Err(format!("{refused}{words}")));
}

#[test]
fn a_snapshot_does_not_change() {
    let authorizer = RbacAuthorizer::default();
    let user = UserInfo::new("u", []);
    let get = Attributes { namespace: "n", ..Attributes::resource(&user, "get", "", "pods") };
    authorizer.upsert(RbacKind::Role, &value(r#"{"metadata":{"name":"r","namespace":"n"},"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}"#));
    let before = authorizer.snapshot();
    authorizer.upsert(RbacKind::RoleBinding, &value(r#"{"metadata":{"name":"b","namespace":"n"},"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"}]}"#));
    assert_eq!(
        authorizer.authorize(&get),
        Decision::Allow(r#"RBAC: allowed by RoleBinding "b/n" of Role "r" to User "u""#.to_owned())
    );
    assert_eq!(before.authorize(&get), Decision::NoOpinion(String::new()));
    let after = authorizer.snapshot();
    authorizer.remove(RbacKind::Role, "n", "r");
    assert_eq!(
        authorizer.authorize(&get),
        Decision::NoOpinion(r#"RBAC: role.rbac.authorization.k8s.io "r" not found"#.to_owned())
    );
    assert!(after.authorize(&get).is_allowed());
}
