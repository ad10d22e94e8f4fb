//! What all writes share: from an object that was asked for to one that is stored.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{GroupKind, GroupResource, GroupVersionKind, Map, Status, Value, field::ErrorList, status::FAILURE};
use capstan_storage::{Op, Revision};

use super::{
    call::{Admitted, Call, meta, metadata_mut},
    condition::{check_uid, check_version, modified, parse_version},
    devices, from_storage, managed, to_storage,
};
use crate::{
    admission::resource_quota,
    allocation::Allocation,
    authorization::{UserInfo, forbidden, rbac},
    cache::Object,
    custom,
    registry::{
        self, Requester, encode,
        live::{Refused, parse},
    },
    server::Inner,
    validation, warnings,
};

const IP_ADDRESSES: GroupResource = GroupResource::from_static("networking.k8s.io", "ipaddresses");
const ENDPOINTS: GroupResource = GroupResource::from_static("", "endpoints");
const QUOTAS: GroupResource = GroupResource::from_static("", "resourcequotas");

/// How often a write is tried again when others write the same object.
const MAX_ATTEMPTS: usize = 100;

/// How often a name is made up before the client is told that all are taken.
const MAX_NAMES: usize = 8;

/// How much of a `generateName` a name begins with.
const MAX_GENERATED_NAME_PREFIX: usize = 58;

/// How many letters are made up for a name.
const NAME_SUFFIX: usize = 5;

/// What a write has led to: the object as it is now, in the version asked for.
pub(crate) struct Written {
    /// Its JSON.
    pub(crate) json: Bytes,
    /// It was not there before.
    pub(crate) created: bool,
}

/// The object as it is stored, in the version asked for.
pub(crate) struct Current {
    pub(crate) object: Map,
    pub(crate) revision: Revision,
}

impl Current {
    pub(crate) fn of(call: &Call<'_>, object: &Object) -> Result<Self, Status> {
        let parsed = parse(&object.json)?;
        Ok(Current { object: from_storage(&call.resource, parsed), revision: object.revision })
    }
}

/// The JSON of an object at a revision, in the version asked for.
pub(crate) fn answer_json(call: &Call<'_>, object: Map, revision: Option<Revision>) -> Bytes {
    answer_with(call, object, &revision.map(|revision| revision.to_string()).unwrap_or_default())
}

/// The object that has just been stored: the cache has encoded it already, unless somebody else was faster.
fn stored_json(call: &Call<'_>, name: &str, object: Map, revision: Revision) -> Bytes {
    let stored = call.resource.stored.as_ref().filter(|_| !call.resource.converts());
    let found = stored.and_then(|stored| stored.cache.peek(call.namespace(), name));
    match found.filter(|found| found.revision == revision) {
        Some(found) => found.json.clone(),
        None => answer_json(call, object, Some(revision)),
    }
}

fn answer_with(call: &Call<'_>, object: Map, version: &str) -> Bytes {
    let mut object = from_storage(&call.resource, object);
    match version {
        "" => drop(metadata_mut(&mut object).remove("resourceVersion")),
        version => drop(metadata_mut(&mut object).insert("resourceVersion", version)),
    }
    encode(&object).into()
}

/// The metadata of an object.
pub(crate) fn metadata(object: &mut Map) -> &mut Map {
    metadata_mut(object)
}

/// What is stored: the object in its stored version, without the version number, which the store knows.
pub(crate) fn storable(call: &Call<'_>, object: Map) -> Map {
    let object = to_storage(&call.resource, object);
    let Some(stored) = &call.resource.stored else { return object };
    if let Some(served) = call.resource.as_custom() {
        let mut object = custom::normalize(served.definition(), object);
        metadata_mut(&mut object).remove("resourceVersion");
        return object;
    }
    let mut object = Value::Object(object);
    // What comes from the store is defaulted once more; some defaults follow from what the strategy has filled in.
    if let Some(schema) = capstan_api::builtin::schema(&stored.gvk) {
        capstan_api::builtin::default(&schema, &mut object);
    }
    let Value::Object(mut object) = object else { return Map::new() };
    // What is only another name has no traffic of its own; it is looked at all the same before it is left out.
    if is_service(stored) && registry::paths::text(&object, "spec.type") == "ExternalName" {
        registry::paths::remove(&mut object, "spec.internalTrafficPolicy");
    }
    metadata_mut(&mut object).remove("resourceVersion");
    object
}

/// Stores a new object, which has been admitted. By an update it may come with a version, which says nothing.
pub(crate) async fn store_new(
    call: &mut Call<'_>,
    object: Map,
    dry_run: bool,
    by_update: bool,
) -> Result<Written, Status> {
    let stored = call.stored()?;
    let beginning = !meta(&object, "generateName").is_empty();
    let generated = beginning && meta(&object, "name").is_empty();
    let group_resource = call.resource.gvr.group_resource();
    let version = meta(&object, "resourceVersion").to_owned();
    for attempt in 1.. {
        let mut object = object.clone();
        if generated {
            let name = generate_name(call, meta(&object, "generateName"));
            metadata_mut(&mut object).insert("name", name);
        }
        let (object, mut effects) = prepare_new(call, object, dry_run)?;
        let name = meta(&object, "name").to_owned();
        let namespace = call.namespace();
        let exists = || {
            // Whoever gives both names is told the same as who gives only the beginning.
            let mut status = match beginning {
                true => Status::generate_name_conflict(&group_resource, &name, 1),
                false => Status::already_exists(&group_resource, &name),
            };
            let there = stored.cache.peek(namespace, &name);
            if there.is_some_and(|there| there.deletion_timestamp.is_some()) {
                status.message = format!("object is being deleted: {}", status.message);
            }
            status
        };
        let object = storable(call, object);
        if dry_run {
            if stored.cache.peek(namespace, &name).is_some() {
                return Err(exists());
            }
            // What was sent is what would have been refused.
            return Ok(Written { json: answer_with(call, object, &version), created: true });
        }
        if !by_update && version.parse::<u64>().is_ok_and(|version| version != 0) {
            return Err(as_it_is("resourceVersion should not be set on objects to be created"));
        }
        let mut op = Op::create(stored.key(namespace, &name), encode(&object));
        if let Some(ttl) = stored.ttl {
            op = op.expiring(ttl);
        }
        let mut ops = vec![op];
        ops.append(&mut effects.ops);
        let touched = effects.touched(&stored);
        match call.server.registry.commit(ops, &touched).await {
            Ok(revision) => {
                effects.keep();
                return Ok(Written { json: stored_json(call, &name, object, revision), created: true });
            }
            Err(Refused::Conflict(conflict)) if conflict.failed.iter().any(|failed| failed.index == 0) => {
                if !generated || attempt >= MAX_NAMES {
                    return Err(exists());
                }
            }
            // What goes with the object, such as a quota, was changed by somebody else.
            Err(Refused::Conflict(conflict)) if attempt < MAX_ATTEMPTS => {
                follow(&touched, conflict.revision).await?;
            }
            Err(Refused::Conflict(conflict)) => return Err(Status::conflict(&group_resource, &name, conflict)),
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    Err(Status::internal_error("no attempt was made"))
}

fn generate_name(call: &Call<'_>, base: &str) -> String {
    let mut end = base.len().min(MAX_GENERATED_NAME_PREFIX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], call.server.registry.ids.suffix(NAME_SUFFIX))
}

/// What is committed with an object.
#[derive(Default)]
pub(crate) struct Effects {
    pub(crate) ops: Vec<Op>,
    also: Vec<Arc<registry::Stored>>,
    allocation: Option<Allocation>,
}

impl Effects {
    /// Whose reads must see the commit.
    pub(crate) fn touched<'s>(&'s self, stored: &'s registry::Stored) -> Vec<&'s registry::Stored> {
        std::iter::once(stored).chain(self.also.iter().map(|also| &**also)).collect()
    }

    /// The commit has happened.
    pub(crate) fn keep(self) {
        if let Some(allocation) = self.allocation {
            allocation.commit();
        }
    }

    fn add(&mut self, stored: &Arc<registry::Stored>, op: Op) {
        self.ops.push(op);
        if !self.also.iter().any(|also| also.resource == stored.resource) {
            self.also.push(Arc::clone(stored));
        }
    }

    /// Addresses and ports of a service, with the objects that say whose they are.
    fn allocated(server: &Inner, allocation: Allocation) -> Self {
        let mut effects = Effects::default();
        let registry = &server.registry;
        if let Some(addresses) = registry.stored(&IP_ADDRESSES) {
            for mut address in allocation.created() {
                let name = meta(&address, "name").to_owned();
                registry::prepare_for_create(addresses.strategy, &mut address, &registry.ids.uid(), registry.now());
                effects.add(addresses, Op::create(addresses.key("", &name), encode(&address)));
            }
            for name in allocation.deleted() {
                if let Some(found) = addresses.cache.peek("", &name) {
                    effects.add(addresses, Op::delete(addresses.key("", &name)).expecting(found.revision));
                }
            }
        }
        effects.allocation = Some(allocation);
        effects
    }

    /// What is given back with an object that is deleted.
    pub(crate) fn released(server: &Inner, stored: &registry::Stored, old: &Map, gone: bool) -> Self {
        if !gone || !is_service(stored) {
            return Effects::default();
        }
        let mut effects = Effects::allocated(server, server.allocator.release(old));
        // Another service of this name must not be found at the places of the old one.
        let (namespace, name) = (meta(old, "namespace"), meta(old, "name"));
        if let Some(endpoints) = server.registry.stored(&ENDPOINTS).cloned()
            && let Some(found) = endpoints.cache.peek(namespace, name)
        {
            let op = Op::delete(endpoints.key(namespace, name)).expecting(found.revision);
            effects.add(&endpoints, op);
        }
        effects
    }

    /// What quotas count with this write.
    fn count(&mut self, call: &mut Call<'_>, write: Admitted<'_>) -> Result<(), Status> {
        if !call.server.counts_quota || !call.resource.namespaced {
            return Ok(());
        }
        let quotas = resource_quota::quotas(&*call.server.registry, &call.info.namespace);
        if quotas.is_empty() {
            return Ok(());
        }
        let namespace = call.info.namespace.clone();
        for update in call.reserve(write, &quotas)? {
            let Some(stored) = call.server.registry.stored(&QUOTAS).cloned() else { continue };
            let mut quota = update.quota;
            let old = quotas.iter().find(|old| old.revision == update.revision);
            let old = old.map(|old| parse(&old.json)).transpose()?;
            managed::track_own(&stored, "status", old.as_ref(), &mut quota, call.now());
            metadata_mut(&mut quota).remove("resourceVersion");
            let key = stored.key(&namespace, meta(&quota, "name"));
            self.add(&stored, Op::update(key, encode(&quota), update.revision));
        }
        Ok(())
    }
}

fn is_service(stored: &registry::Stored) -> bool {
    stored.strategy.group.is_empty() && stored.strategy.resource == "services"
}

/// What is allocated for an object.
fn allocate(call: &Call<'_>, object: &mut Map, old: Option<&Map>, dry_run: bool) -> Result<Effects, Status> {
    if !call.resource.stored.as_ref().is_some_and(|stored| is_service(stored)) {
        return Ok(Effects::default());
    }
    let allocation = call.server.allocator.allocate(object, old, dry_run).map_err(|status| *status)?;
    Ok(Effects::allocated(call.server, allocation))
}

/// From an admitted object to one that can be stored: strategy, validation, and those who may refuse it.
fn prepare_new(call: &mut Call<'_>, mut object: Map, dry_run: bool) -> Result<(Map, Effects), Status> {
    let stored = call.stored()?;
    let resource = Arc::clone(&call.resource);
    check_escalation(call, &object, None)?;
    call.check_namespace(&mut object)?;
    let mut effects = allocate(call, &mut object, None, dry_run)?;
    let (uid, now) = (call.server.registry.ids.uid(), call.now());
    registry::prepare_for_create(resource.strategy().unwrap_or(stored.strategy), &mut object, &uid, now);
    if stored.strategy.resource == "certificatesigningrequests" {
        requested_by(&mut object, call.user);
    }
    let name = meta(&object, "name").to_owned();
    let errors = match resource.as_custom() {
        Some(served) => custom::validate::create(served, &object),
        None => {
            let own = validation::validate_create(&resource.gvk, &object);
            devices::check(call, "", &object, None).into_iter().chain(own).collect()
        }
    };
    if !errors.is_empty() {
        return Err(Status::invalid(&kind_of(&resource, &object), &name, &show_empty(call, errors)));
    }
    call.warnings.extend(warnings::warnings_on_create(&resource.gvk, &object));
    call.validate(Admitted::create(&name, &mut object, dry_run))?;
    effects.count(call, Admitted::create(&name, &mut object, dry_run))?;
    Ok((object, effects))
}

/// The kind that an invalid object is called by: that of a custom resource may be one of the things that are wrong.
fn kind_of(resource: &registry::Resource, object: &Map) -> GroupKind {
    if resource.as_custom().is_none() {
        // Events are those of the core group, whichever group they were sent to.
        return resource.stored.as_ref().map_or(&resource.gvk, |stored| &stored.gvk).group_kind();
    }
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    GroupVersionKind::from_api_version_and_kind(text("apiVersion"), text("kind")).group_kind()
}

fn requested_by(object: &mut Map, user: &UserInfo) {
    let groups: Vec<String> = user.groups.iter().map(ToString::to_string).collect();
    let text = |values: &Vec<capstan_api::Str>| values.iter().map(ToString::to_string).collect::<Vec<_>>();
    let extra: Vec<_> = user.extra.iter().map(|(key, values)| (key.to_string(), text(values))).collect();
    let requester = Requester { username: &user.name, uid: &user.uid, groups: &groups, extra: &extra };
    registry::set_requester(object, &requester);
}

/// Nothing new comes of a kind that goes.
pub(crate) fn check_terminating(resource: &registry::Resource, name: &str) -> Result<(), Status> {
    if resource.as_custom().is_some_and(|served| served.definition().terminating) {
        let words = "create not allowed while custom resource definition is terminating";
        return Err(Status::forbidden(&resource.gvr.group_resource(), name, words));
    }
    Ok(())
}

/// Nobody gives more than they have.
fn check_escalation(call: &Call<'_>, object: &Map, old: Option<&Map>) -> Result<(), Status> {
    let gvr = &call.resource.gvr;
    if gvr.group != *rbac::GROUP {
        return Ok(());
    }
    let Some(kind) = rbac::RbacKind::from_kind(&call.resource.gvk.kind) else { return Ok(()) };
    // A name that is only in the body is not what somebody was let escalate.
    let attributes = call.attributes(&call.info.verb, &call.info.name);
    let (object, old) = (Value::Object(object.clone()), old.cloned().map(Value::Object));
    let snapshot = call.server.rbac.snapshot();
    let authorizer = &*call.server.authorizer;
    match kind {
        rbac::RbacKind::Role | rbac::RbacKind::ClusterRole => {
            rbac::check_role(authorizer, &snapshot, kind, &attributes, &object, old.as_ref())
        }
        _ => rbac::check_binding(authorizer, &snapshot, kind, &attributes, &object, old.as_ref()),
    }
}

/// Makes the new object out of the present one, if there is one.
pub(crate) type Make<'f> = dyn FnMut(&mut Call<'_>, Option<&Map>) -> Result<Map, Status> + Send + 'f;

/// A write to an object that may exist, in the way of PUT and PATCH.
pub(crate) struct Change<'f> {
    /// The name of the object.
    pub(crate) name: &'f str,
    /// Whose rules hold: those of this subresource, or with an empty name of the object itself.
    pub(crate) subresource: &'f str,
    /// Nothing is written.
    pub(crate) dry_run: bool,
    /// It is created if it is not there, whatever the kind says.
    pub(crate) create: bool,
    /// An object with another uid is another object; otherwise its uid is a field that does not change.
    pub(crate) same_uid: bool,
    /// Makes the new object out of the present one.
    pub(crate) make: &'f mut Make<'f>,
}

/// Changes an object, again and again until nobody else did in between.
pub(crate) async fn change(call: &mut Call<'_>, change: Change<'_>) -> Result<Written, Status> {
    let Change { name, subresource, dry_run, create, same_uid, make } = change;
    let stored = call.stored()?;
    let resource = Arc::clone(&call.resource);
    let group_resource = resource.gvr.group_resource();
    let namespace = call.namespace();
    let strategy = resource.strategy().unwrap_or(stored.strategy);
    let may_create = strategy.allow_create_on_update || create;
    for attempt in 1..=MAX_ATTEMPTS {
        let current = match stored.cache.peek(namespace, name) {
            Some(object) => Some(Current::of(call, &object)?),
            None => None,
        };
        let Some(Current { object: old, revision: old_revision }) = current else {
            if !may_create {
                return Err(super::read::not_found(&resource, name));
            }
            let object = make(call, None)?;
            if same_uid {
                check_uid(call, (&stored.key(namespace, name), dry_run), &object, "", name)?;
            }
            let decision = call.server.authorizer.authorize(&call.attributes("create", name));
            if !decision.is_allowed() {
                return Err(forbidden(&call.attributes("create", name), decision.reason()));
            }
            parse_version(&object)?;
            match store_new(call, object, dry_run, true).await {
                Err(status) if status.is_already_exists() && attempt < MAX_ATTEMPTS => continue,
                other => return other,
            }
        };
        let mut new = make(call, Some(&old))?;
        let key = stored.key(namespace, name);
        check_version(call, (&key, dry_run), strategy.allow_unconditional_update, &new, &old, (name, same_uid))?;
        check_escalation(call, &new, Some(&old))?;
        call.check_namespace(&mut new)?;
        let mut effects =
            if subresource.is_empty() { allocate(call, &mut new, Some(&old), dry_run)? } else { Effects::default() };
        let now = call.now();
        registry::prepare_for_update(strategy, subresource, &mut new, &old, now);
        metadata_mut(&mut new).insert("resourceVersion", old_revision.to_string());
        let errors = match (resource.as_custom(), subresource) {
            (Some(served), "status") => custom::validate::update_status(served, &new, &old, &mut call.warnings),
            (Some(served), _) => custom::validate::update(served, &new, &old, &mut call.warnings),
            (None, "") => validation::validate_update(&resource.gvk, &new, &old),
            (None, _) => {
                let own = validation::validate_subresource_update(&resource.gvk, subresource, &new, &old);
                devices::check(call, subresource, &new, Some(&old)).into_iter().chain(own).collect()
            }
        };
        if !errors.is_empty() {
            return Err(Status::invalid(&kind_of(&resource, &new), name, &show_empty(call, errors)));
        }
        call.warnings.extend(match subresource {
            "" => warnings::warnings_on_update(&resource.gvk, &new, &old),
            _ => warnings::warnings_on_status_update(&resource.gvk, &new, &old),
        });
        call.validate(Admitted::update(name, &mut new, &old, dry_run))?;
        effects.count(call, Admitted::update(name, &mut new, &old, dry_run))?;
        let mut normal = Value::Object(std::mem::take(&mut new));
        if resource.as_custom().is_none() {
            capstan_api::builtin::default(resource.schema(), &mut normal);
        }
        let Value::Object(new) = normal else { return Err(Status::internal_error("an object became something else")) };
        let gone = is_finished(&new, &old);
        if !gone && registry::is_unchanged(&new, &old) {
            return Ok(Written { json: encode(&old).into(), created: false });
        }
        let object = storable(call, new);
        if dry_run {
            return Ok(Written { json: answer_json(call, object, Some(old_revision)), created: false });
        }
        if gone {
            effects = Effects::released(call.server, &stored, &old, gone);
        }
        let op =
            if gone { Op::delete(key).expecting(old_revision) } else { Op::update(key, encode(&object), old_revision) };
        let op = match stored.ttl {
            Some(ttl) if !gone => op.expiring(ttl),
            _ => op,
        };
        let mut ops = vec![op];
        ops.append(&mut effects.ops);
        let touched = effects.touched(&stored);
        match call.server.registry.commit(ops, &touched).await {
            Ok(revision) => {
                effects.keep();
                // What goes has the version that it had.
                let json = if gone {
                    answer_json(call, object, Some(old_revision))
                } else {
                    stored_json(call, name, object, revision)
                };
                return Ok(Written { json, created: false });
            }
            Err(Refused::Conflict(conflict)) => follow(&touched, conflict.revision).await?,
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    Err(modified(&group_resource, name))
}

/// Waits until what is decided from is as new as what a commit failed on: else the next try fails on the same.
async fn follow(touched: &[&registry::Stored], revision: Revision) -> Result<(), Status> {
    for stored in touched {
        stored.cache.catch_up(revision).await.map_err(registry::live::cache_status)?;
    }
    Ok(())
}

/// An error that upstream passes on as it is, which makes it the server's.
pub(crate) fn as_it_is(message: impl Into<String>) -> Status {
    Status { status: FAILURE, code: 500, message: message.into(), ..Status::default() }
}

/// Errors with the empty lists and maps that were sent where nothing is shown: they do not outlive decoding.
fn show_empty(call: &Call<'_>, mut errors: ErrorList) -> ErrorList {
    let sent = if errors.iter().any(|error| error.bad_value == Some(Value::Null)) {
        capstan_api::json::parse(&call.body).unwrap_or_default()
    } else {
        return errors;
    };
    for error in errors.iter_mut().filter(|error| error.bad_value == Some(Value::Null)) {
        let steps = error.field.split(['.', '[']).map(|step| step.trim_end_matches(']'));
        let found = steps.into_iter().try_fold(&sent, |at, step| match (at, step.parse::<usize>()) {
            (Value::Array(items), Ok(index)) => items.get(index),
            (value, _) => value.get(step),
        });
        error.bad_value = match found {
            // What is said of a whole spec shows a list in it.
            Some(Value::Object(map)) if map.is_empty() && error.field != "spec" => found.cloned(),
            Some(Value::Array(items)) if items.is_empty() => found.cloned(),
            _ => continue,
        };
    }
    errors
}

/// An object whose deletion was asked for goes when nothing holds it any more.
fn is_finished(new: &Map, old: &Map) -> bool {
    let field = |object: &Map, path: &str| registry::paths::get(object, path).cloned().unwrap_or_default();
    let holds = |path: &str| field(new, path).as_array().is_some_and(|items| !items.is_empty());
    let is_namespace = new.get("kind").and_then(Value::as_str) == Some("Namespace");
    let held = holds("metadata.finalizers") || is_namespace && holds("spec.finalizers");
    let asked = !field(old, "metadata.deletionTimestamp").is_null();
    asked && !held && matches!(field(old, "metadata.deletionGracePeriodSeconds"), Value::Null | Value::Int(0))
}

/// Says the same owner once, and tells who said it twice.
pub(crate) fn dedup_owners(call: &mut Call<'_>, object: &mut Map, after_admission: bool) {
    let Some(owners) = registry::paths::array_mut(object, "metadata.ownerReferences") else { return };
    let mut seen: Vec<Value> = Vec::new();
    let mut duplicates: Vec<String> = Vec::new();
    for owner in owners.iter() {
        if seen.contains(owner) {
            let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
            if !duplicates.contains(&uid) {
                duplicates.push(uid);
            }
        } else {
            seen.push(owner.clone());
        }
    }
    if duplicates.is_empty() {
        return;
    }
    *owners = seen.into();
    let uids = duplicates.join(", ");
    let place = if after_admission { " after mutating admission happens" } else { "" };
    call.warnings.push(format!(
        ".metadata.ownerReferences contains duplicate entries{place}; API server dedups owner references in 1.20+, and \
         may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
    ));
}
