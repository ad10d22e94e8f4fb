//! What upstream's server answers, and whether we answer the same.

use std::{collections::BTreeMap, sync::Arc};

use capstan_api::{GroupResource, GroupVersionKind, GroupVersionResource, Map, Status, Str, Time, Value, json, value};
use capstan_storage::Revision;
use proptest::prelude::*;

use super::{
    Operation, Plugin, Request,
    limit_ranger::LimitRanger,
    pod_security::PodSecurity,
    resource_quota::{self, QuotaUpdate},
};
use crate::{
    authorization::UserInfo,
    cache::{FieldPaths, Object},
    objects::Objects,
};

/// Objects in memory, by resource and key.
#[derive(Default)]
pub(super) struct Stored(pub(super) BTreeMap<(GroupResource, String), Arc<Object>>);

impl Stored {
    pub(super) fn insert(&mut self, resource: &str, object: &Value, revision: u64) {
        let metadata = |field| object.get("metadata").and_then(|metadata| metadata.get(field)?.as_str());
        let name = metadata("name").expect("stored objects have names");
        let key = metadata("namespace").map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        let encoded =
            Object::encode(key.as_bytes(), object.to_string().as_bytes(), Revision(revision), &FieldPaths::default())
                .expect("an object");
        self.0.insert((group_resource(resource), key), Arc::new(encoded));
    }
}

pub(super) fn group_resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource::new(group, resource)
}

impl Objects for Stored {
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        self.0.get(&(resource.clone(), key)).cloned()
    }

    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Object>> {
        let own = self
            .0
            .iter()
            .filter(|((own, _), object)| own == resource && (namespace.is_empty() || object.namespace() == namespace));
        own.map(|(_, object)| object.clone()).collect()
    }
}

/// A case as it is recorded.
pub(super) struct Case(pub(super) Value);

impl Case {
    pub(super) fn text(&self, field: &str) -> &str {
        self.0.get(field).and_then(Value::as_str).unwrap_or("")
    }

    pub(super) fn object(&self, field: &str) -> Option<&Map> {
        self.0.get(field).and_then(Value::as_object)
    }

    pub(super) fn stored(&self) -> Stored {
        let mut stored = Stored::default();
        for (at, entry) in self.0.get("stored").and_then(Value::as_array).into_iter().flatten().enumerate() {
            let resource = entry.get("resource").and_then(Value::as_str).expect("a resource");
            stored.insert(resource, entry.get("object").expect("an object"), at as u64 + 1);
        }
        stored
    }
}

/// What became of a write.
pub(super) struct Outcome {
    pub(super) object: Map,
    pub(super) warnings: Vec<String>,
    pub(super) result: Result<Vec<QuotaUpdate>, Status>,
}

/// Sends a case through the plugins, in upstream's order.
pub(super) fn run(case: &Case, stored: &Stored, security: &PodSecurity) -> Outcome {
    let resource = group_resource(case.text("resource"));
    let kind = GroupVersionKind::new(resource.group.clone(), "v1", case.text("kind"));
    let resource = GroupVersionResource::new(resource.group, "v1", resource.resource);
    let user = UserInfo::new(case.text("user"), []);
    let mut object = case.object("object").expect("an object").clone();
    let mut warnings = Vec::new();
    let mut request = Request {
        operation: if case.text("operation") == "Create" { Operation::Create } else { Operation::Update },
        kind: &kind,
        resource: &resource,
        subresource: case.text("subresource"),
        namespace: case.text("namespace"),
        name: case.text("object_name"),
        user: &user,
        dry_run: case.0.get("dry_run").and_then(Value::as_bool).unwrap_or(false),
        now: Time::from_unix(0, 0),
        object: Some(&mut object),
        old_object: case.object("old"),
        options: None,
        objects: stored,
        warnings: &mut warnings,
        annotations: &mut Vec::new(),
    };
    let plugins: [&dyn Plugin; 2] = [&LimitRanger, security];
    let admitted = plugins.iter().try_for_each(|plugin| plugin.admit(&mut request));
    let validated = admitted.and_then(|()| plugins.iter().try_for_each(|plugin| plugin.validate(&mut request)));
    let quotas = resource_quota::quotas(stored, request.namespace);
    let result = validated.and_then(|()| resource_quota::reserve(&request, &quotas));
    Outcome { object, warnings, result }
}

pub(super) fn lines(text: &str) -> impl Iterator<Item = Case> {
    text.lines().map(|line| Case(json::parse(line.as_bytes()).expect("a case")))
}

/// What upstream answers without any configuration.
pub(super) const POLICY: &str = include_str!("../../testdata/admission/policy.jsonl");

/// The resources of all containers.
fn resources(pod: &Map) -> Vec<Value> {
    let spec = pod.get("spec").expect("a spec");
    let containers =
        ["containers", "initContainers"].into_iter().filter_map(|list| spec.get(list)?.as_array()).flatten();
    containers.map(|container| container.get("resources").cloned().unwrap_or_else(|| Map::new().into())).collect()
}

/// What is used of each quota once the updates are stored.
fn used(stored: &Stored, updates: &[QuotaUpdate]) -> BTreeMap<Str, Value> {
    let mut quotas: Vec<Map> = Vec::new();
    for quota in stored.list(&group_resource("resourcequotas"), "") {
        let update = updates.iter().find(|update| update.revision == quota.revision).map(|update| update.quota.clone());
        let Ok(Value::Object(own)) = json::parse(&quota.json) else { panic!("no object") };
        quotas.push(update.unwrap_or(own));
    }
    let name = |quota: &Map| quota.get("metadata").and_then(|metadata| metadata.get("name")?.as_str()).map(Str::from);
    let used = |quota: &Map| quota.get("status").and_then(|status| status.get("used")).cloned();
    quotas
        .iter()
        .map(|quota| (name(quota).expect("a name"), used(quota).unwrap_or_else(|| Map::new().into())))
        .collect()
}

/// Asserts that all cases are answered as upstream answers them.
pub(super) fn check(cases: &str, security: &PodSecurity) {
    let mut wrong = Vec::new();
    for case in lines(cases) {
        let stored = case.stored();
        let outcome = run(&case, &stored, security);
        let mut differ = |what: &str, ours: String, theirs: String| {
            if ours != theirs {
                wrong.push(format!("{}: {what}\n  ours:   {ours}\n  theirs: {theirs}", case.text("name")));
            }
        };
        let ours = outcome.result.as_ref().err().map(|status| value::to_value(status).expect("a status"));
        let show = |value: Option<&Value>| value.map_or_else(|| "admitted".to_owned(), ToString::to_string);
        differ("status", show(ours.as_ref()), show(case.0.get("status")));
        let theirs = case.0.get("warnings").and_then(Value::as_array).expect("warnings");
        let theirs: Vec<_> = theirs.iter().filter_map(Value::as_str).collect();
        differ("warnings", format!("{:?}", outcome.warnings), format!("{theirs:?}"));
        if let Some(filled) = case.0.get("filled") {
            let metadata = outcome.object.get("metadata");
            let annotations = metadata.and_then(|metadata| metadata.get("annotations")).cloned();
            let annotations = annotations.unwrap_or_else(|| Map::new().into());
            differ("annotations", annotations.to_string(), show(filled.get("annotations")));
            differ("resources", Value::from(resources(&outcome.object)).to_string(), show(filled.get("resources")));
        }
        if let Some(theirs) = case.0.get("used") {
            let ours: Map = used(&stored, &outcome.result.unwrap_or_default()).into_iter().collect();
            differ("used", Value::from(ours).to_string(), theirs.to_string());
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn answers_are_those_of_upstream() {
    check(POLICY, &PodSecurity::default());
}

/// Another value in place of one that is reached by these steps.
fn spoil(value: &mut Value, steps: &[usize], other: Value) {
    let mut place = value;
    for step in steps {
        let length = match place {
            Value::Array(items) => items.len(),
            Value::Object(map) => map.len(),
            _ => 0,
        };
        if length == 0 {
            break;
        }
        place = match place {
            Value::Array(items) => items.get_mut(step % length).expect("within the list"),
            Value::Object(map) => map.iter_mut().nth(step % length).expect("within the map").1,
            _ => break,
        };
    }
    *place = other;
}

proptest! {
    /// Whatever an object looks like, there is an answer.
    #[test]
    fn no_object_makes_a_plugin_panic(
        case in 0_usize..200,
        steps in prop::collection::vec(any::<usize>(), 1..8),
        other in 0_usize..8,
    ) {
        let mut case = lines(POLICY.lines().nth(case).expect("as many cases")).next().expect("a case");
        let others = ["null", "true", "-9223372036854775808", "1e308", r#""9223372036854775807Ei""#, "[]", "{}", "[{}, 1]"];
        let other = json::parse(others[other].as_bytes()).expect("JSON");
        let object = case.0.get_mut("object").and_then(Value::as_object_mut).expect("an object");
        let mut spoilt = Value::from(object.clone());
        spoil(&mut spoilt, &steps, other);
        if let Value::Object(spoilt) = spoilt {
            *object = spoilt;
        }
        let stored = case.stored();
        if let Err(status) = run(&case, &stored, &PodSecurity::default()).result {
            prop_assert!(status.code >= 400);
        }
    }
}
