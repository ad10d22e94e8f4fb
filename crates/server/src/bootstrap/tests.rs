//! The data against itself, and what upstream v1.36.3 makes at start of objects that were changed while it was down.

use std::collections::BTreeMap;

use super::*;
use crate::authorization::{Authorizer, Rbac, UserInfo, rbac::RbacKind};

/// A pair a line: an object as upstream found it, and what it made of it, `null` if it left it alone. `~` is the RBAC
/// group.
const GOLDEN: &str = include_str!("golden.txt");

fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    path.iter().try_fold(object, |value, field| value.get(field)).and_then(Value::as_str).unwrap_or("")
}

fn id(object: &Value) -> [&str; 3] {
    [text(object, &["kind"]), text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"])]
}

fn reconcile(existing: &Value, expected: &Value) -> Option<Value> {
    let reconciled = match text(existing, &["kind"]) {
        "Role" | "ClusterRole" => reconcile_role(existing, expected),
        "RoleBinding" | "ClusterRoleBinding" => reconcile_binding(existing, expected),
        _ => return revise(existing, expected, Ensure::of(text(existing, &["metadata", "name"]))),
    };
    match reconciled {
        Reconciled::Unchanged => None,
        Reconciled::Update(new) => {
            assert_eq!(new.get("roleRef"), existing.get("roleRef"), "an update can't change the role");
            Some(new)
        }
        Reconciled::Recreate(new) => {
            assert_ne!(new.get("roleRef"), existing.get("roleRef"), "nothing else needs a new object");
            Some(new)
        }
    }
}

#[test]
fn all_is_there() {
    let mut counts = BTreeMap::new();
    for object in rbac().iter().chain(&objects()) {
        let [kind, namespace, name] = id(object);
        assert!(!name.is_empty() && !text(object, &["apiVersion"]).is_empty(), "{object}");
        assert_eq!(!namespace.is_empty(), matches!(kind, "Role" | "RoleBinding"), "{object}");
        *counts.entry(kind.to_owned()).or_insert(0) += 1;
    }
    let expected = [
        ("APIService", 21),
        ("ClusterRole", 69),
        ("ClusterRoleBinding", 50),
        ("FlowSchema", 11),
        ("Namespace", 4),
        ("PriorityClass", 2),
        ("PriorityLevelConfiguration", 8),
        ("Role", 7),
        ("RoleBinding", 7),
    ];
    assert_eq!(counts, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
}

#[test]
fn every_binding_finds_its_role() {
    let mut all = Rbac::default();
    for object in rbac() {
        all.upsert(RbacKind::from_kind(text(&object, &["kind"])).unwrap(), &object);
    }
    for object in rbac().iter().filter(|object| object.get("roleRef").is_some()) {
        for subject in object.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            let (namespace, name) = (text(subject, &["namespace"]), text(subject, &["name"]));
            let user = match text(subject, &["kind"]) {
                "Group" => UserInfo::new("", [name]),
                "User" => UserInfo::new(name, []),
                _ => UserInfo::new(&format!("system:serviceaccount:{namespace}:{name}"), []),
            };
            let found = all.rules_for(&user, id(object)[1]);
            assert!(!found.rules.is_empty() && found.errors.is_empty(), "{object}: {found:?}");
        }
    }
}

#[test]
fn what_is_as_it_should_be_stays() {
    let flow_control = |object: &Value| text(object, &["apiVersion"]).starts_with("flowcontrol");
    for object in rbac().into_iter().chain(objects().into_iter().filter(flow_control)) {
        assert_eq!(reconcile(&object, &object), None);
    }
}

#[test]
fn changed_objects_are_mended_as_upstream_does() {
    let known: Vec<Value> = rbac().into_iter().chain(objects()).collect();
    for line in GOLDEN.lines() {
        let case = json::parse(line.replace('~', GROUP).as_bytes()).unwrap();
        let [existing, expected] = &case.as_array().unwrap()[..] else { panic!("{line}") };
        let own = known.iter().find(|object| id(object) == id(existing)).unwrap();
        let found = reconcile(existing, own);
        // The generation is the registry's business.
        let without_generation = |object: &Value| {
            let mut object = object.clone();
            object.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("generation"));
            object
        };
        let expected = (!expected.is_null()).then(|| without_generation(expected));
        assert_eq!(found.as_ref().map(without_generation), expected, "{existing}");
        if let Some(found) = found {
            assert_eq!(reconcile(&found, own), None, "once is enough: {existing}");
        }
    }
}

#[test]
fn mandatory_configuration_is_put_back() {
    let objects = objects();
    let own = objects.iter().find(|object| id(object) == ["FlowSchema", "", "catch-all"]).unwrap();
    let mut changed = own.clone();
    changed.get_mut("spec").unwrap().as_object_mut().unwrap().insert("matchingPrecedence", 9);
    let annotations = changed.get_mut("metadata").unwrap().get_mut("annotations").unwrap();
    annotations.as_object_mut().unwrap().insert("apf.kubernetes.io/autoupdate-spec", "false");
    assert_eq!(revise(&changed, own, Ensure::of("catch-all")).as_ref(), Some(own));
    assert_eq!(revise(&changed, own, Ensure::Suggested), None);
}
