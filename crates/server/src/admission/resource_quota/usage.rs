//! What a quota has used, counted anew from what is stored.

use std::collections::BTreeSet;

use capstan_api::{GroupResource, Map, Str, Time, json};

use super::{
    evaluator::{ALIASED, Context, Evaluator},
    scopes,
};
use crate::{
    admission::resources::{self, ResourceList},
    objects::Objects,
    validation::read::{at, text},
};

/// What can be used under names of its own.
const SPECIAL: [(&str, &str); 4] =
    [("", "persistentvolumeclaims"), ("", "pods"), ("", "services"), ("resource.k8s.io", "resourceclaims")];

/// The resources that a quota with these names is about.
fn counted<'a>(hard: impl Iterator<Item = &'a Str>) -> BTreeSet<GroupResource> {
    let special = SPECIAL.into_iter().chain(ALIASED.map(|name| ("", name)));
    let mut counted: BTreeSet<_> = special.map(|(group, name)| GroupResource::new(group, name)).collect();
    counted.extend(hard.filter_map(|name| name.strip_prefix("count/")).map(|name| {
        let (resource, group) = name.split_once('.').unwrap_or((name, ""));
        GroupResource::new(group, resource)
    }));
    counted
}

/// The `status.used` of a quota as it should be: what each name of its `spec.hard` that is known comes to now.
#[must_use]
pub fn usage(objects: &dyn Objects, quota: &Map, now: Time) -> Map {
    let namespace = text(at(quota, "metadata"), "namespace");
    let context = Context { objects, namespace, now };
    let hard = resources::read(at(quota, "spec"), "hard");
    let selectors = scopes::of_quota(quota);
    let mut used = ResourceList::new();
    for resource in counted(hard.keys()) {
        let Some(evaluator) = Evaluator::of(&resource) else { continue };
        let names = evaluator.matching(&context, hard.keys());
        if names.is_empty() {
            continue;
        }
        for name in names {
            used.entry(name).or_default();
        }
        for object in objects.list(&resource, namespace) {
            let Ok(value) = json::parse(&object.json) else { continue };
            let Some(object) = value.as_object() else { continue };
            if selectors.iter().all(|selector| evaluator.matches_scope(selector, object)) {
                resources::add(&mut used, &evaluator.usage(&context, object));
            }
        }
    }
    used.retain(|name, _| hard.contains_key(name));
    resources::write(&used)
}
