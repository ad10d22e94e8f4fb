//! Cases recorded from upstream v1.36.3: objects, reviews of access, writes that escalate or not, reviews of rules,
//! denials.
//!
//! A line each; `~` stands for the API group. Upstream goes through bindings in no particular order, so of an allowed
//! request the reason is one of several, and errors are compared as sets.

use std::{collections::BTreeSet, sync::Arc};

use capstan_api::{Status, Value, json};

use super::*;
use crate::{
    authorization::{Chain, forbidden},
    bootstrap,
};

const GOLDEN: &str = include_str!("golden.txt");

fn cases(kind: &str) -> Vec<Value> {
    let lines = GOLDEN.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(' '));
    let cases: Vec<Value> = lines.map(|line| json::parse(line.replace('~', GROUP).as_bytes()).unwrap()).collect();
    assert!(!cases.is_empty(), "there are cases of {kind}");
    cases
}

fn rbac() -> Rbac {
    let mut rbac = Rbac::default();
    for object in bootstrap::rbac().iter().chain(&cases("object")) {
        rbac.upsert(RbacKind::from_kind(text(object.get("kind").unwrap())).unwrap(), object);
    }
    rbac
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn user(name: &Value, groups: &Value) -> UserInfo {
    UserInfo::new(text(name), array(groups).iter().map(text))
}

/// The user of a row, with the group that impersonation adds if it is asked for, and what the row asks about.
fn ask<T>(row: &Value, also: Option<&str>, then: impl FnOnce(&Attributes<'_>) -> T) -> T {
    let [name, groups, verb, rest @ ..] = array(row) else { panic!("a short row") };
    let mut user = user(name, groups);
    user.groups.extend(also.map(Into::into));
    then(&match rest {
        [path] => Attributes::non_resource(&user, text(verb), text(path)),
        [group, resource, subresource, name, namespace] => Attributes {
            subresource: text(subresource),
            name: text(name),
            namespace: text(namespace),
            ..Attributes::resource(&user, text(verb), text(group), text(resource))
        },
        _ => panic!("a row of an odd length"),
    })
}

/// Every reason for which the request may be allowed.
fn reasons(rbac: &Rbac, attributes: &Attributes<'_>) -> Vec<String> {
    if attributes.user.in_group("system:masters") {
        return vec![String::new()];
    }
    let allows = |grant: &Grant<'_>| {
        let rules = rbac.rules_of(&grant.binding.role_ref, &grant.binding.namespace);
        rules.is_ok_and(|rules| rules.iter().any(|rule| rule.allows(attributes)))
    };
    let grants = rbac.grants(attributes.user, attributes.namespace);
    grants.filter(allows).map(|grant| format!("RBAC: allowed by {grant}")).collect()
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(['[', ']', ',']).map(str::trim).collect()
}

#[test]
fn reviews() {
    let rbac = rbac();
    let chain = Chain::new(vec![Arc::new(rbac.clone())]);
    for case in cases("review") {
        let [row, allowed, reason] = array(&case) else { panic!("{case}") };
        ask(row, None, |attributes| {
            let decision = chain.authorize(attributes);
            assert_eq!(decision.is_allowed(), allowed.as_bool().unwrap(), "{case}: {decision:?}");
            if decision.is_allowed() {
                let reasons = reasons(&rbac, attributes);
                assert!(reasons.iter().any(|own| own == text(reason)), "{case}: {reasons:?}");
                assert_eq!(decision.reason(), reasons[0], "{case}: the first by name is given");
            } else {
                assert_eq!(words(decision.reason()), words(text(reason)), "{case}");
            }
        });
    }
}

#[test]
fn writes() {
    let rbac = rbac();
    let chain = Chain::new(vec![Arc::new(rbac.clone())]);
    for case in cases("write") {
        let [name, groups, namespace, object, expected] = array(&case) else { panic!("{case}") };
        let mut user = user(name, groups);
        user.groups.push("system:authenticated".into());
        let kind = RbacKind::from_kind(text(object.get("kind").unwrap())).unwrap();
        let request =
            Attributes { namespace: text(namespace), ..Attributes::resource(&user, "create", GROUP, kind.resource()) };
        let check = if kind.resource().ends_with("bindings") { check_binding } else { check_role };
        let found = check(&chain, &rbac, kind, &request, object, None).err();
        let found = found.map(|status: Status| (i64::from(status.code), status.reason.to_string(), status.message));
        let expected = expected
            .as_array()
            .map(|parts| (parts[0].as_i64().unwrap(), text(&parts[1]).to_owned(), text(&parts[2]).to_owned()));
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn rules() {
    let rbac = rbac();
    let chain = Chain::new(vec![Arc::new(rbac)]);
    for case in cases("rules") {
        let [name, groups, namespace, status] = array(&case) else { panic!("{case}") };
        let mut user = user(name, groups);
        user.groups.push("system:authenticated".into());
        if let Some(rest) = user.name.strip_prefix("system:serviceaccount:") {
            // Whoever impersonates a service account gets its groups as well.
            let namespace = rest.split(':').next().unwrap();
            user.groups.extend(["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}").into()]);
        }
        let Rules { rules, incomplete, errors } = chain.rules_for(&user, text(namespace));
        let listed = |field| array(status.get(field).unwrap()).iter().map(PolicyRule::from_value);
        let mut expected: Vec<PolicyRule> = listed("resourceRules").chain(listed("nonResourceRules")).collect();
        let mut found = rules;
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{case}");
        assert_eq!(incomplete, status.get("incomplete").unwrap().as_bool().unwrap(), "{case}");
        let error = status.get("evaluationError").map_or("", text);
        assert_eq!(words(&aggregate(&errors).unwrap_or_default()), words(error), "{case}");
    }
}

#[test]
fn denials() {
    let rbac = rbac();
    for case in cases("denial") {
        let [row, expected] = array(&case) else { panic!("{case}") };
        ask(row, Some("system:authenticated"), |attributes| {
            let status = forbidden(attributes, rbac.authorize(attributes).reason());
            let found = json::parse(capstan_api::value::to_value(&status).unwrap().to_string().as_bytes()).unwrap();
            for (field, value) in expected.as_object().unwrap().iter() {
                match field {
                    "message" => assert_eq!(words(&status.message), words(text(value)), "{case}"),
                    _ => assert_eq!(found.get(field), Some(value), "{case}: {field}"),
                }
            }
        });
    }
}
