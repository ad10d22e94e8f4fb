//! The index against a scan of all objects after any sequence of changes, and what covering promises.

use std::collections::BTreeMap;

use capstan_api::Str;
use proptest::prelude::*;

use super::{
    evaluate::ALL,
    tests::{allowed, value},
    *,
};

const NAMES: [&str; 3] = ["a", "b", "c"];
const KINDS: [RbacKind; 4] =
    [RbacKind::Role, RbacKind::ClusterRole, RbacKind::RoleBinding, RbacKind::ClusterRoleBinding];
const NAMESPACES: [&str; 2] = ["n1", "n2"];

fn subject() -> impl Strategy<Value = String> {
    let kind = prop::sample::select(&["User", "Group", "ServiceAccount", "Robot"]);
    let name = prop::sample::select(&["a", "b", "system:serviceaccount:n1:a"]);
    let namespace = prop::sample::select(&["", "n1", "n2"]);
    (kind, name, namespace)
        .prop_map(|(kind, name, namespace)| format!(r#"{{"kind":"{kind}","name":"{name}","namespace":"{namespace}"}}"#))
}

/// An object to be put in, or, without text, to be taken out.
type Change = (RbacKind, &'static str, &'static str, Option<String>);

fn change() -> impl Strategy<Value = Change> {
    let role = (prop::sample::select(&["Role", "ClusterRole"]), prop::sample::select(&NAMES));
    let body = (prop::sample::select(&["get", "list", ALL]), role, prop::collection::vec(subject(), 0..4));
    let place = (prop::sample::select(&KINDS), prop::sample::select(&NAMESPACES), prop::sample::select(&NAMES));
    (place, prop::option::weighted(0.8, body)).prop_map(|((kind, namespace, name), body)| {
        let namespace = if matches!(kind, RbacKind::Role | RbacKind::RoleBinding) { namespace } else { "" };
        let object = body.map(|(verb, (role_kind, role), subjects)| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"}},
                "rules":[{{"verbs":["{verb}"],"apiGroups":[""],"resources":["pods"]}}],
                "roleRef":{{"kind":"{role_kind}","name":"{role}"}},"subjects":[{}]}}"#,
                subjects.join(",")
            )
        });
        (kind, namespace, name, object)
    })
}

type Objects = BTreeMap<(&'static str, &'static str, &'static str), Value>;

/// The decision by going through everything, as the definition says.
fn scan(objects: &Objects, attributes: &Attributes<'_>) -> Decision {
    let user = attributes.user;
    let mut errors = Vec::new();
    for (resource, own_namespace) in [("clusterrolebindings", ""), ("rolebindings", attributes.namespace)] {
        for (_, object) in objects.iter().filter(|((r, ns, _), _)| *r == resource && *ns == own_namespace) {
            let binding = Binding::from_value(object);
            let applies = |subject: &&Subject| match subject.kind.as_str() {
                "User" => subject.name == user.name,
                "Group" => user.groups.contains(&subject.name),
                "ServiceAccount" => {
                    let namespace = if subject.namespace.is_empty() { own_namespace } else { &subject.namespace };
                    !namespace.is_empty() && user.name == format!("system:serviceaccount:{namespace}:{}", subject.name)
                }
                _ => false,
            };
            let Some(subject) = binding.subjects.iter().find(applies) else { continue };
            let key = match binding.role_ref.kind.as_str() {
                "Role" => ("roles", own_namespace),
                _ => ("clusterroles", ""),
            };
            let role = objects.iter().find(|((r, ns, name), _)| (*r, *ns) == key && *name == binding.role_ref.name);
            match role {
                Some((_, role)) if PolicyRule::list_of(role).iter().any(|rule| rule.allows(attributes)) => {
                    let grant = Grant { binding: &binding, subject };
                    return Decision::Allow(format!("RBAC: allowed by {grant}"));
                }
                Some(_) => {}
                None => errors.push(format!(
                    "{}.{GROUP} \"{}\" not found",
                    key.0.trim_end_matches('s'),
                    binding.role_ref.name
                )),
            }
        }
    }
    Decision::NoOpinion(aggregate(&errors).map_or_else(String::new, |error| format!("RBAC: {error}")))
}

proptest! {
    #[test]
    fn the_index_finds_what_a_scan_finds(changes in prop::collection::vec(change(), 0..24)) {
        let (mut objects, mut rbac) = (Objects::new(), Rbac::default());
        let mut shared = Vec::new();
        for (kind, namespace, name, object) in changes {
            shared.push(rbac.clone());
            match object.map(|object| value(&object)) {
                Some(object) => {
                    rbac.upsert(kind, &object);
                    objects.insert((kind.resource(), namespace, name), object);
                }
                None => {
                    rbac.remove(kind, namespace, name);
                    objects.remove(&(kind.resource(), namespace, name));
                }
            }
        }
        let users = ["a", "b", "system:serviceaccount:n1:a", "system:serviceaccount:n2:b"];
        for user in users {
            for groups in [&[][..], &["a", "b"], &["b", "b", "a"]] {
                let user = UserInfo::new(user, groups.iter().copied());
                for namespace in ["", "n1", "n2"] {
                    let grants = rbac.grants(&user, namespace).map(|grant| grant.binding);
                    let before = |a: &&Binding, b: &&Binding| (&a.namespace, &a.name) < (&b.namespace, &b.name);
                    prop_assert!(grants.is_sorted_by(before), "each comes once, those of the cluster first");
                    for verb in ["get", "list"] {
                        let attributes = Attributes { namespace, ..Attributes::resource(&user, verb, "", "pods") };
                        let expected = scan(&objects, &attributes);
                        prop_assert_eq!(rbac.authorize(&attributes), expected, "{:?}", attributes);
                    }
                }
            }
        }
    }

    #[test]
    fn who_covers_may_do_as_much(owner in prop::collection::vec(any_rule(), 0..4), servant in any_rule()) {
        if covers(&owner, std::slice::from_ref(&servant)).is_empty() {
            for verb in ["get", "list"] {
                for what in ["core pods", "core pods/log a", "apps nodes/log", "apps x b", "/", "/a", "/a/b"] {
                    let request = format!("{verb} {what}");
                    let may = owner.iter().any(|rule| allowed(rule, &request));
                    prop_assert!(may || !allowed(&servant, &request), "{}", request);
                }
            }
        }
    }
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let some =
        |words: &'static [&'static str]| prop::collection::vec(prop::sample::select(words).prop_map(Str::from), 1..3);
    let (verbs, groups) = (some(&["get", "list", ALL]), some(&["", "apps", ALL]));
    let resources = some(&["pods", "pods/log", "*/log", "nodes/log", "x", ALL]);
    let names = prop_oneof![Just(Vec::new()), some(&["a", "b"])];
    let urls = some(&["/a", "/a/*", "/a*", ALL, "/"]);
    (verbs, groups, resources, names, urls, any::<bool>()).prop_map(
        |(verbs, api_groups, resources, resource_names, urls, paths)| match paths {
            true => PolicyRule { verbs, non_resource_urls: urls, ..PolicyRule::default() },
            false => PolicyRule { verbs, api_groups, resources, resource_names, ..PolicyRule::default() },
        },
    )
}
