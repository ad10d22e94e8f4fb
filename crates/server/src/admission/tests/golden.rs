//! Cases as kube-apiserver v1.36.3 answered them, with the plugins that are on by default and those below.
//!
//! The file has what is stored first, then requests. `refused` is the Status that came back; `fields` are the fields of
//! the object that did, where `null` is one that was not there. The suffix of a volume's name is `bbbbb` instead of a
//! random one.

use std::{fmt::Write as _, sync::LazyLock};

use capstan_api::{GroupVersionKind, GroupVersionResource, Map, Status, Value};

use super::{Operation, World, Write, chain, parse, user};
use crate::registry::paths;

const CASES: &str = include_str!("cases.jsonl");

const ENABLED: [&str; 7] = [
    "NodeRestriction",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "LimitPodHardAntiAffinityTopology",
    "ExtendedResourceToleration",
    "PodNodeSelector",
    "OwnerReferencesPermissionEnforcement",
];

/// What is stored for cases whose label starts with `only`, or for all.
static WORLD: LazyLock<Vec<(String, Map)>> = LazyLock::new(|| {
    let stored = CASES.lines().map(parse).filter_map(|line| line.get("stored")?.as_object().cloned());
    stored.map(|stored| (paths::text(&stored, "only").to_owned(), stored)).collect()
});

fn world(label: &str) -> World {
    let mut world = World::default();
    for (_, stored) in WORLD.iter().filter(|(only, _)| label.starts_with(only.as_str())) {
        let [group, resource] = parts(stored, "resource");
        world.add(group, resource, paths::text(stored, "namespace"), stored.get("object").unwrap());
    }
    world
}

fn parts<'a, const N: usize>(map: &'a Map, path: &str) -> [&'a str; N] {
    let parts: Vec<&str> = paths::items(map, path).iter().filter_map(Value::as_str).collect();
    parts.try_into().unwrap()
}

fn at<'a>(object: &'a Map, path: &str) -> Option<&'a Value> {
    let (first, rest) = path.split_once('.')?;
    rest.split('.').try_fold(object.get(first)?, |value, step| match step.parse::<usize>() {
        Ok(index) => value.as_array()?.get(index),
        Err(_) => value.get(step),
    })
}

fn shown(status: &Status) -> String {
    let details = status.details.as_deref().cloned().unwrap_or_default();
    let mut text = format!("{} {} {}\n", status.code, status.reason.as_str(), status.message);
    write!(text, "{} {} {}", details.name, details.group, details.kind).unwrap();
    for cause in details.causes {
        write!(text, "\n{} {} {}", cause.reason, cause.message, cause.field).unwrap();
    }
    text
}

fn expected(refused: &Map) -> String {
    let text = |path| paths::text(refused, path);
    let mut all = format!("{} {} {}\n", paths::number(refused, "code"), text("reason"), text("message"));
    write!(all, "{} {} {}", text("details.name"), text("details.group"), text("details.kind")).unwrap();
    for cause in paths::items(refused, "details.causes") {
        let text = |key| cause.get(key).and_then(Value::as_str).unwrap_or_default();
        write!(all, "\n{} {} {}", text("reason"), text("message"), text("field")).unwrap();
    }
    all
}

/// How our answer differs, if it does.
fn difference(case: &Map) -> Option<String> {
    let label = paths::text(case, "label");
    let [group, version, resource] = parts(case, "resource");
    let kind: [&str; 3] = parts(case, "kind");
    let object = |key| case.get(key).and_then(Value::as_object).cloned();
    let write = Write {
        operation: match paths::text(case, "operation") {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            other => panic!("{other}"),
        },
        kind: GroupVersionKind::new(kind[0], kind[1], kind[2]),
        resource: GroupVersionResource::new(group, version, resource),
        subresource: paths::text(case, "subresource"),
        namespace: paths::text(case, "namespace"),
        name: paths::text(case, "name"),
        user: user(paths::items(case, "user").iter().filter_map(Value::as_str)),
        object: object("object"),
        old: object("old"),
    };
    let answer = write.run(&chain(&ENABLED), &world(label));
    match (answer, object("refused")) {
        (Err(status), Some(refused)) => {
            let (ours, theirs) = (shown(&status), expected(&refused));
            (ours != theirs).then(|| format!("{label}\n ours: {ours}\ntheirs: {theirs}"))
        }
        (Err(status), None) => Some(format!("{label}\n ours: {}\ntheirs: admitted", shown(&status))),
        (Ok(_), Some(refused)) => Some(format!("{label}\n ours: admitted\ntheirs: {}", expected(&refused))),
        (Ok(ours), None) => object("fields").unwrap_or_default().iter().find_map(|(path, theirs)| {
            let ours = at(&ours, path).unwrap_or(&Value::Null);
            (ours != theirs).then(|| format!("{label}: {path}\n ours: {ours}\ntheirs: {theirs}"))
        }),
    }
}

#[test]
fn as_the_real_server() {
    let cases: Vec<Map> = CASES.lines().map(parse).filter(|line| line.contains_key("label")).collect();
    assert!(cases.len() > 100);
    let differences: Vec<String> = cases.iter().filter_map(difference).collect();
    assert!(differences.is_empty(), "{} of {} differ:\n{}", differences.len(), cases.len(), differences.join("\n\n"));
}
