//! Changes and what they lead to, in words: `set`, `gone` and `absent`, each with what is said of the object.

use super::{
    super::metadata::ObjectMetadata,
    graph::{Effect, Graph, Identity},
};
use capstan_api::object::OwnerReference;

/// `uid[@namespace][:owner[!][*]...][+finalizer]`: an owner with `!` is blocked, one with `*` is said to be another kind;
/// a finalizer says that the object is going.
fn object(text: &str) -> (Identity, ObjectMetadata) {
    let (text, finalizer) = text.split_once('+').unwrap_or((text, ""));
    let (text, owners) = text.split_once(':').unwrap_or((text, ""));
    let (uid, namespace) = text.split_once('@').unwrap_or((text, "ns"));
    let reference = |owner: &str| {
        let uid = owner.trim_end_matches(['!', '*']);
        OwnerReference {
            api_version: "v1".into(),
            kind: if owner.contains('*') { "Other" } else { "Kind" }.into(),
            name: uid.into(),
            uid: uid.into(),
            controller: None,
            block_owner_deletion: owner.contains('!').then_some(true),
        }
    };
    let object = ObjectMetadata {
        name: uid.into(),
        namespace: namespace.into(),
        uid: uid.into(),
        resource_version: capstan_api::Str::default(),
        is_being_deleted: !finalizer.is_empty(),
        finalizers: Box::from([finalizer.to_owned()]),
        owner_references: owners.split(',').filter(|owner| !owner.is_empty()).map(reference).collect::<Vec<_>>().into(),
    };
    (identity(uid, "Kind", namespace), object)
}

fn identity(uid: &str, kind: &str, namespace: &str) -> Identity {
    Identity {
        kind: kind.into(),
        api_version: "v1".into(),
        namespace: namespace.into(),
        name: uid.into(),
        uid: uid.into(),
    }
}

/// Steps, each with the effects that are expected of it.
fn check(steps: &[(&str, &str)]) {
    let mut graph = Graph::default();
    let mut last = std::collections::HashMap::new();
    for (step, expected) in steps {
        let (verb, what) = step.split_once(' ').unwrap();
        let effects = match verb {
            "set" => {
                let (identity, new) = object(what);
                let old = last.insert(identity.clone(), new.clone());
                graph.set(&identity, old.as_ref(), &new)
            }
            "gone" => graph.gone(&object(what).0),
            "absent" => graph.found_absent(&object(what).0),
            "absent-other" => {
                let seen = object(what).0;
                graph.found_absent(&Identity { kind: "Other".into(), ..seen })
            }
            _ => panic!("{step}"),
        };
        let effects: Vec<_> = effects
            .iter()
            .map(|effect| match effect {
                Effect::AttemptToDelete(uid) => format!("delete {uid}"),
                Effect::AttemptToDeleteLater(uid) => format!("later {uid}"),
                Effect::AttemptToOrphan(uid) => format!("orphan {uid}"),
                Effect::InvalidNamespace(said) => format!("invalid {} {}", said.0.uid, said.1),
            })
            .collect();
        assert_eq!(effects.join(", "), *expected, "{step} of {steps:?}");
    }
}

#[test]
fn dependents_follow_their_owners() {
    check(&[
        ("set a", ""),
        ("set b:a", ""),
        ("set c:b", ""),
        ("gone a", "delete b"),
        ("gone b", "delete c"),
        ("gone c", ""),
    ]);
    // A dependent that is seen first stands for its owner.
    check(&[("set b:a", "delete a"), ("set a", ""), ("gone a", "delete b")]);
    check(&[("set b:a", "delete a"), ("absent a", "delete b"), ("absent a", "")]);
}

#[test]
fn foreground_and_orphan() {
    check(&[
        ("set a", ""),
        ("set b:a!", ""),
        ("set c:a", ""),
        ("set a+foregroundDeletion", "delete b, delete c, delete a"),
        ("set a+foregroundDeletion", ""),
        ("gone c", "delete a"),
        ("set b", "delete a"),
    ]);
    check(&[("set b:a!", "delete a"), ("set b:a", "delete a"), ("set b:a!", ""), ("set b", "delete a")]);
    check(&[("set a", ""), ("set b:a", ""), ("set a+orphan", "orphan a"), ("set a+orphan", "")]);
    check(&[("set b:a", "delete a"), ("set a+orphan", "orphan a")]);
}

#[test]
fn circles() {
    check(&[
        ("set a:b!", "delete b"),
        ("set b:a!", ""),
        ("set a:b!+foregroundDeletion", "delete b, delete a"),
        ("set b:a!+foregroundDeletion", "delete a, delete b"),
    ]);
}

#[test]
fn owners_elsewhere() {
    let said = "invalid b [v1/Kind, namespace: two, name: a, uid: a]";
    check(&[("set a@one", ""), ("set b@two:a", &format!("{said}, delete b"))]);
    check(&[("set b@two:a", "delete a"), ("set a@one", &format!("{said}, delete b"))]);
    check(&[("set b@two:a", "delete a"), ("set a@", ""), ("set c@one:a", ""), ("gone a@", "delete b, delete c")]);
}

#[test]
fn claims_that_differ() {
    // One says the owner is of another kind; that claim is verified by itself, and what is right stays.
    check(&[
        ("set b:a", "delete a"),
        ("set c:a*", "delete c"),
        ("absent a", "delete b, later a"),
        ("set a", "delete c"),
    ]);
    check(&[("set a", ""), ("set c:a*", "delete c"), ("absent-other a", "delete c"), ("gone a", "delete c")]);
}

/// An object of the cluster cannot belong to one of a namespace. It stays, but others that can are not kept by it.
#[test]
fn objects_of_the_cluster_with_owners_in_namespaces() {
    let said = "invalid n [v1/Kind, namespace: , name: p, uid: p]";
    check(&[("set n@:p", "delete p"), ("set p@one", &format!("{said}, delete n"))]);
    check(&[("set p@one", ""), ("set n@:p", &format!("{said}, delete n"))]);
    check(&[
        ("set n@:p", "delete p"),
        ("set c@one:p", "delete c"),
        ("set p@one", &format!("{said}, delete n")),
        ("gone p@one", "delete c, delete n"),
    ]);
    // What the one in the namespace says is tried first and found wrong; then what the other says.
    check(&[
        ("set c@one:p", "delete p"),
        ("set n@:p", "delete n"),
        ("absent p@one", "delete c, later p"),
        ("gone c@one", ""),
    ]);
}

/// An owner is known by what it is now, and a dependent may speak of it as it was called once.
#[test]
fn owners_by_other_names() {
    // The dependent is looked at by itself, before and after the owner is there.
    check(&[("set c:a*", "delete a"), ("set a", "delete c"), ("gone a", "delete c")]);
    check(&[("set a", ""), ("set c:a*", "delete c"), ("gone a", "delete c"), ("gone c", "")]);
    // Neither of two claims is right: one after the other is tried, until nobody is left who says so.
    check(&[
        ("set c:a*", "delete a"),
        ("set b:a", "delete b"),
        ("absent-other a", "delete c, later a"),
        ("gone c", ""),
        ("absent a", "delete b"),
    ]);
}

proptest::proptest! {
    /// Whatever is seen in whatever order: a dependent is there, and says that it is one.
    #[test]
    fn edges_go_both_ways(steps in proptest::collection::vec((0u8..4, 0usize..5, 0u8..32, 0usize..3), 0..60)) {
        let uids = ["a", "b", "c", "d", "e"];
        let mut graph = Graph::default();
        for (verb, at, owners, namespace) in steps {
            let owners: Vec<_> = uids.iter().enumerate().filter(|(n, _)| owners & (1 << n) != 0).map(|(_, uid)| *uid).collect();
            let text = format!("{}@{}:{}", uids[at], ["", "one", "two"][namespace], owners.join(","));
            let (identity, object) = object(&text);
            match verb {
                0 | 1 => drop(graph.set(&identity, None, &object)),
                2 => drop(graph.gone(&identity)),
                _ => drop(graph.found_absent(&identity)),
            }
            for node in uids.iter().filter_map(|uid| graph.get(uid)) {
                let dependents: Vec<_> = graph.dependents(node).collect();
                assert_eq!(dependents.len(), node.dependents.len(), "all are there");
                for dependent in dependents {
                    assert!(dependent.owners.iter().any(|owner| *owner.uid == *node.identity.uid), "{text}");
                }
            }
        }
    }
}
