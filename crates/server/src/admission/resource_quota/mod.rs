//! `ResourceQuota`: how much of everything a namespace may hold.
//!
//! A reservation is a pure function: [`reserve`] takes the quotas as they are stored and returns them as they are to
//! be, each with the revision that it was computed from. Who writes the object writes those with it, in one commit with
//! the revisions as preconditions, and computes anew when that fails; so nothing is ever counted twice or lost, and no
//! lock is held. Admission only ever adds; what deleting sets free is found by [`usage`].

mod count;
mod devices;
mod evaluator;
mod pods;
mod scopes;
#[cfg(test)]
mod tests;
mod usage;

use std::{collections::BTreeSet, sync::Arc};

use capstan_api::{GroupResource, Map, Quantity, Status, Str, Value, json};
use capstan_storage::Revision;

pub use usage::usage;

use super::{
    Operation, Request,
    forbidden::forbidden,
    resources::{self, ResourceList},
};
use crate::{
    cache::Object,
    objects::Objects,
    validation::read::{at, text},
};
use evaluator::{Context, Evaluator};
use scopes::Selector;

/// The name of the plugin, as `--enable-admission-plugins` has it.
pub const NAME: &str = "ResourceQuota";

/// A quota as it is to be stored with the object that uses it.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaUpdate {
    /// The quota with its new `status.used`.
    pub quota: Map,
    /// The revision of the quota that this was computed from.
    pub revision: Revision,
}

/// The quotas of a namespace.
#[must_use]
pub fn quotas(objects: &dyn Objects, namespace: &str) -> Vec<Arc<Object>> {
    objects.list(&GroupResource::new("", "resourcequotas"), namespace)
}

/// What a quota says, read once.
struct Quota<'a> {
    name: &'a str,
    selectors: Vec<Selector<'a>>,
    hard: ResourceList,
    used: ResourceList,
}

impl<'a> Quota<'a> {
    fn new(quota: &'a Map) -> Self {
        let status = at(quota, "status");
        let [hard, used] = ["hard", "used"].map(|field| resources::read(status, field));
        let name = text(at(quota, "metadata"), "name");
        Quota { name, selectors: scopes::of_quota(quota), hard, used }
    }

    /// Whether the quota is about this object.
    fn matches(&self, evaluator: &Evaluator, object: &Map, restricted: &[Str]) -> bool {
        !restricted.is_empty() && self.selectors.iter().all(|selector| evaluator.matches_scope(selector, object))
    }
}

/// What `quotas` become when the write happens: those of them that change. A dry run changes none.
///
/// # Errors
/// When the object must say more, or there is not enough left.
pub fn reserve(request: &Request<'_>, quotas: &[Arc<Object>]) -> Result<Vec<QuotaUpdate>, Status> {
    let is_namespace = &*request.kind.kind == "Namespace" && request.kind.group.is_empty();
    if quotas.is_empty() || request.namespace.is_empty() || is_namespace {
        return Ok(Vec::new());
    }
    let Some(object) = request.object.as_deref() else { return Ok(Vec::new()) };
    let context = Context { objects: request.objects, namespace: request.namespace, now: request.now };
    let Some(evaluator) = Evaluator::of(&request.resource.group_resource()) else { return Ok(Vec::new()) };
    if !evaluator.handles(request) {
        return Ok(Vec::new());
    }
    let parsed: Vec<_> =
        quotas.iter().map(|quota| (quota.revision, json::parse(&quota.json).unwrap_or_default())).collect();
    let all = parsed.iter().filter_map(|(revision, quota)| Some((*revision, quota.as_object()?)));
    let mut interesting = Vec::new();
    for (revision, map) in all {
        let quota = Quota::new(map);
        let restricted = evaluator.matching(&context, quota.hard.keys());
        if !quota.matches(&evaluator, object, &restricted) {
            continue;
        }
        if let Some(missing) = evaluator.missing(&restricted, object) {
            return Err(forbidden(request, format!("failed quota: {}: {missing}", quota.name)));
        }
        if restricted.iter().any(|name| !quota.used.contains_key(name)) {
            let names = names(restricted.iter());
            return Err(forbidden(request, format!("status unknown for quota: {}, resources: {names}", quota.name)));
        }
        interesting.push((revision, map, quota));
    }
    let usage = evaluator.usage(&context, object);
    let negative = usage.iter().filter(|(_, amount)| amount.signum() < 0).map(|(name, _)| name);
    let negative = names(negative);
    if !negative.is_empty() {
        return Err(forbidden(request, format!("quota usage is negative for resource(s): {negative}")));
    }
    let before = match (request.operation, request.old_object) {
        (Operation::Update, None) => {
            let error = "unable to get previous usage since prior version of object was not found";
            return Err(forbidden(request, error));
        }
        (Operation::Update, Some(old)) if !text(at(old, "metadata"), "resourceVersion").is_empty() => {
            Some((old, evaluator.usage(&context, old)))
        }
        _ => None,
    };
    let mut updates = Vec::new();
    for (revision, map, quota) in interesting {
        let counted = before
            .as_ref()
            .filter(|(old, _)| quota.matches(&evaluator, old, &evaluator.matching(&context, quota.hard.keys())));
        let mut requested = match counted {
            Some((_, before)) => more(&usage, before),
            None => usage.clone(),
        };
        requested.retain(|name, amount| !amount.is_zero() && quota.hard.contains_key(name));
        let mut used = quota.used.clone();
        resources::add(&mut used, &requested);
        // The status of an object tells what has happened already.
        if request.subresource != "status" {
            check(request, &quota, &requested, &used)?;
        }
        if used != quota.used {
            updates.push(QuotaUpdate { quota: with_used(map, &used), revision });
        }
    }
    Ok(if request.dry_run { Vec::new() } else { updates })
}

/// Refuses what is more than the quota has left.
fn check(
    request: &Request<'_>,
    quota: &Quota<'_>,
    requested: &ResourceList,
    used: &ResourceList,
) -> Result<(), Status> {
    let exceeded: BTreeSet<_> = requested
        .keys()
        .filter(|name| quota.hard.get(*name).is_some_and(|hard| used.get(*name) > Some(hard)))
        .collect();
    if exceeded.is_empty() {
        return Ok(());
    }
    let print = |list: &ResourceList| {
        let shown = list.iter().filter(|(name, _)| exceeded.contains(name));
        shown.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
    };
    let error = format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        print(requested),
        print(&quota.used),
        print(&quota.hard)
    );
    Err(forbidden(request, error))
}

/// How much more `usage` is than `before`; less counts as nothing.
fn more(usage: &ResourceList, before: &ResourceList) -> ResourceList {
    let mut more = usage.clone();
    for (name, amount) in &mut more {
        if let Some(before) = before.get(name) {
            amount.sub(before);
        }
        if amount.signum() < 0 {
            *amount = Quantity::default();
        }
    }
    more
}

fn names<'a>(names: impl Iterator<Item = &'a Str>) -> String {
    let mut names: Vec<_> = names.map(Str::as_str).collect();
    names.sort_unstable();
    names.join(",")
}

/// The quota with this used.
fn with_used(quota: &Map, used: &ResourceList) -> Map {
    let mut quota = quota.clone();
    if let Some(status) = quota.get_or_insert_with("status", || Map::new().into()).as_object_mut() {
        status.insert("used", Value::from(resources::write(used)));
    }
    quota
}
