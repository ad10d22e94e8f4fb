//! DELETE: now, later, or when nothing holds the object any more.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{
    Map, Status, Time, Value,
    codec::Format,
    status::{SUCCESS, StatusDetails},
};
use capstan_storage::Op;

use super::{
    call::{Admitted, Call, meta, metadata_mut},
    from_storage,
    read::{find, list_options, not_found},
    write::{Current, Effects, answer_json, storable},
};
use crate::{
    custom,
    http::Response,
    registry::{
        Stored, encode,
        live::{Refused, cache_status},
        paths,
        strategy::GarbageCollection,
    },
    request::{
        DeleteOptions, MediaType, body_media_type, delete_options::Propagation, info::check_name, negotiate::Protobuf,
    },
    warnings,
};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

const SYSTEM_PRIORITY_CLASSES: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// How often a delete is tried again when others write the same object.
const MAX_ATTEMPTS: usize = 100;

/// What came of a delete.
enum Deleted {
    /// The object is gone; its last state.
    Gone(Bytes),
    /// The object stays for now.
    Pending(Bytes),
}

pub(crate) async fn delete(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let name = call.info.name.clone();
    let options = delete_options(call)?;
    check_name(call.resource.namespaced, call.namespace(), &name)?;
    let resource = Arc::clone(&call.resource);
    warn(call, &options);
    if resource.gvr.resource == *"priorityclasses" && SYSTEM_PRIORITY_CLASSES.contains(&&*name) {
        let words = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(&resource.gvr.group_resource(), &name, words));
    }
    let namespace = call.namespace().to_owned();
    let deleted = delete_one(call, &namespace, &name, options.clone(), true).await?;
    let (json, code, gone) = match deleted {
        Deleted::Gone(json) => (json, 200, true),
        Deleted::Pending(json) => (json, if options.orphan_dependents == Some(false) { 202 } else { 200 }, false),
    };
    if gone && !call.stored()?.returns_deleted() {
        return Ok(form.success(&success(call, &name, &json)));
    }
    form.object(&resource, code, json, call.now())
}

/// Who deletes jobs and does not say what becomes of their pods is told.
fn warn(call: &mut Call<'_>, options: &DeleteOptions) {
    let silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    if silent && call.resource.gvk.kind == *"Job" && call.resource.as_custom().is_none() {
        call.warnings.push(warnings::JOB_DELETED.to_owned());
    }
}

pub(crate) async fn delete_collection(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let list = list_options(call)?;
    let options = delete_options(call)?;
    let resource = Arc::clone(&call.resource);
    warn(call, &options);
    let (metadata, items) = find(call, &list).await?;
    for item in &items {
        match delete_one(call, item.namespace(), item.name(), options.clone(), true).await {
            Err(status) if !status.is_not_found() => return Err(status),
            _ => {}
        }
    }
    form.list(&resource, metadata, &items, call.now())
}

fn delete_options(call: &Call<'_>) -> Result<DeleteOptions, Status> {
    if call.body.is_empty() {
        return DeleteOptions::from_query(call.query);
    }
    let format = match body_media_type(call.header(http::header::CONTENT_TYPE), Protobuf::Yes)? {
        MediaType::Protobuf => return DeleteOptions::from_message(&call.body),
        MediaType::Yaml => Format::Yaml,
        _ => Format::Json,
    };
    DeleteOptions::from_body(&call.body, format)
}

fn success(call: &Call<'_>, name: &str, json: &[u8]) -> Status {
    let uid = capstan_api::json::parse(json).ok();
    let uid = uid.as_ref().and_then(Value::as_object).map(|object| meta(object, "uid")).unwrap_or_default();
    let details = StatusDetails {
        name: name.into(),
        group: call.resource.gvr.group.clone(),
        kind: call.resource.gvr.resource.clone(),
        uid: uid.into(),
        ..StatusDetails::default()
    };
    // Upstream's success carries no code in its body.
    Status { status: SUCCESS, details: Some(Box::new(details)), ..Status::default() }
}

/// Deletes an object that another handler has decided to delete.
pub(crate) async fn remove(
    call: &mut Call<'_>,
    namespace: &str,
    name: &str,
    options: DeleteOptions,
) -> Result<(), Status> {
    delete_one(call, namespace, name, options, false).await.map(drop)
}

async fn delete_one(
    call: &mut Call<'_>,
    namespace: &str,
    name: &str,
    mut options: DeleteOptions,
    admit: bool,
) -> Result<Deleted, Status> {
    let stored = call.stored()?;
    let mut marked = None;
    for _ in 0..MAX_ATTEMPTS {
        let Some(found) = stored.cache.peek(namespace, name) else {
            // Once it is marked, whoever removes it does what was asked for.
            let (object, revision) = marked.ok_or_else(|| not_found(&call.resource, name))?;
            return Ok(Deleted::Gone(answer_json(call, object, Some(revision))));
        };
        let Current { object: old, revision } = Current::of(call, &found)?;
        check_preconditions(call, &options, &old, name)?;
        if admit {
            call.admit(Admitted::delete(name, &old, options.dry_run))?;
            call.validate(Admitted::delete(name, &old, options.dry_run))?;
        }
        let key = stored.key(namespace, name);
        let step = next_step(&stored, &old, &options, call.now());
        let goes_on = matches!(step, Step::MarkAndRemove(_));
        let new = match step {
            Step::Wait => return Ok(Deleted::Pending(encode(&old).into())),
            Step::Mark(new) if crate::registry::is_unchanged(&new, &old) => {
                return Ok(Deleted::Pending(encode(&old).into()));
            }
            Step::Mark(new) | Step::MarkAndRemove(new) => Some(storable(call, *new)),
            Step::Remove => None,
        };
        if options.dry_run {
            return Ok(match new {
                Some(object) if goes_on => Deleted::Gone(dry(call, object, revision)),
                Some(object) => Deleted::Pending(dry(call, object, revision)),
                None => Deleted::Gone(encode(&old).into()),
            });
        }
        let op = match &new {
            Some(object) => Op::update(key, encode(object), revision),
            None => Op::delete(key).expecting(revision),
        };
        let mut effects = Effects::released(call.server, &stored, &old, new.is_none());
        let mut ops = vec![op];
        ops.append(&mut effects.ops);
        let touched = effects.touched(&stored);
        match call.server.registry.commit(ops, &touched).await {
            Ok(revision) => {
                effects.keep();
                match new {
                    Some(object) if goes_on => {
                        marked = Some((object, revision));
                        // The version has changed by this very deletion.
                        if let Some(wanted) = options.preconditions.as_mut().filter(|p| p.resource_version.is_some()) {
                            wanted.resource_version = Some(revision.to_string().into());
                        }
                    }
                    Some(object) => return Ok(Deleted::Pending(answer_json(call, object, Some(revision)))),
                    None => {
                        let mut old = old;
                        metadata_mut(&mut old).insert("resourceVersion", revision.to_string());
                        return Ok(Deleted::Gone(encode(&old).into()));
                    }
                }
            }
            Err(Refused::Conflict(conflict)) => {
                stored.cache.catch_up(conflict.revision).await.map_err(cache_status)?;
            }
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    let words = "the object has been modified; please apply your changes to the latest version and try again";
    Err(Status::conflict(&call.resource.gvr.group_resource(), name, words))
}

fn dry(call: &Call<'_>, object: Map, revision: capstan_storage::Revision) -> Bytes {
    let mut object = from_storage(&call.resource, object);
    metadata_mut(&mut object).insert("resourceVersion", revision.to_string());
    encode(&object).into()
}

pub(crate) fn check_preconditions(
    call: &Call<'_>,
    options: &DeleteOptions,
    old: &Map,
    name: &str,
) -> Result<(), Status> {
    let Some(wanted) = &options.preconditions else { return Ok(()) };
    let resource = &call.resource;
    let own_words = resource.gvr.resource == *"namespaces" || resource.gvr.group_resource() == custom::DEFINITIONS;
    let conflict = |words: String| {
        // Upstream names the kind here, not the resource, except for those that do it by themselves.
        let named = if own_words {
            resource.gvr.group_resource()
        } else {
            capstan_api::GroupResource::new(resource.gvk.group.clone(), resource.gvk.kind.clone())
        };
        Err(Status::conflict(&named, name, words))
    };
    if let Some(uid) = wanted.uid.as_deref().filter(|uid| *uid != meta(old, "uid")) {
        let found = meta(old, "uid");
        return conflict(if own_words {
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}")
        } else {
            format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have \
                 been deleted and then recreated"
            )
        });
    }
    if let Some(version) = wanted.resource_version.as_deref().filter(|v| *v != meta(old, "resourceVersion")) {
        let found = meta(old, "resourceVersion");
        return conflict(if own_words {
            format!(
                "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {found}"
            )
        } else {
            format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({found}). The object might have been modified"
            )
        });
    }
    Ok(())
}

/// What a delete does to the object as it is.
enum Step {
    /// Nothing: it is on its way already.
    Wait,
    /// It stays, marked.
    Mark(Box<Map>),
    /// It is marked, and then goes.
    MarkAndRemove(Box<Map>),
    /// It goes.
    Remove,
}

fn next_step(stored: &Stored, old: &Map, options: &DeleteOptions, now: Time) -> Step {
    if stored.strategy.resource == "namespaces" && stored.strategy.group.is_empty() {
        return namespace_step(old, options, now);
    }
    let mut new = old.clone();
    if stored.resource == custom::DEFINITIONS && meta(old, "deletionTimestamp").is_empty() {
        custom::deletion::mark(&mut new, now);
        return Step::Mark(Box::new(new));
    }
    let mut graceful = None;
    if stored.strategy.graceful_deletion {
        match grace(&mut new, options, now) {
            Grace::Pending => return Step::Wait,
            Grace::Seconds(seconds) => graceful = Some(seconds),
            Grace::None => {}
        }
    }
    set_finalizers(&mut new, stored.strategy.garbage_collection, options);
    let held = !paths::items(&new, "metadata.finalizers").is_empty();
    match graceful {
        Some(seconds) if held || seconds > 0 => Step::Mark(Box::new(new)),
        Some(_) => Step::MarkAndRemove(Box::new(new)),
        None if held => {
            mark(&mut new, now);
            Step::Mark(Box::new(new))
        }
        None => Step::Remove,
    }
}

enum Grace {
    /// It was asked to end before, and sooner or as soon.
    Pending,
    /// It has so long.
    Seconds(i64),
    /// It is not asked.
    None,
}

fn grow(object: &mut Map) {
    let generation = paths::number(object, "metadata.generation");
    if generation > 0 {
        paths::set(object, "metadata.generation", generation + 1);
    }
}

/// Asks a pod to end.
fn grace(object: &mut Map, options: &DeleteOptions, now: Time) -> Grace {
    let asked = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    let number = |object: &Map, path: &str| paths::get(object, path).and_then(Value::as_i64);
    let deadline: Option<Time> = meta(object, "deletionTimestamp").parse().ok();
    if let Some(deadline) = deadline {
        let period = number(object, "metadata.deletionGracePeriodSeconds").unwrap_or_default();
        if period == 0 {
            return Grace::None;
        }
        let Some(asked) = asked.filter(|asked| *asked < period) else { return Grace::Pending };
        let (mut sooner, mut seconds) = (shift(deadline, asked - period), asked);
        if sooner < now {
            sooner = now;
            seconds = if asked == 0 { 0 } else { 1 };
        }
        paths::set(object, "metadata.deletionTimestamp", sooner.to_string());
        paths::set(object, "metadata.deletionGracePeriodSeconds", seconds);
        return Grace::Seconds(seconds);
    }
    let mut seconds = asked.or_else(|| number(object, "spec.terminationGracePeriodSeconds")).unwrap_or_default();
    let over = matches!(paths::text(object, "status.phase"), "Failed" | "Succeeded");
    if paths::text(object, "spec.nodeName").is_empty() || over {
        seconds = 0;
    }
    let seconds = if seconds < 0 { 1 } else { seconds };
    paths::set(object, "metadata.deletionTimestamp", shift(now, seconds).to_string());
    paths::set(object, "metadata.deletionGracePeriodSeconds", seconds);
    grow(object);
    Grace::Seconds(seconds)
}

fn shift(time: Time, seconds: i64) -> Time {
    let stamp = capstan_clock::Timestamp::from(time);
    let shifted = capstan_clock::Timestamp::from_second(stamp.as_second().saturating_add(seconds));
    shifted.map_or(time, Time::from)
}

/// Marks an object that waits for its finalizers.
fn mark(object: &mut Map, now: Time) {
    let deadline: Option<Time> = meta(object, "deletionTimestamp").parse().ok();
    if deadline.is_none() {
        grow(object);
    }
    if deadline.is_none_or(|deadline| deadline > now) {
        paths::set(object, "metadata.deletionTimestamp", now.to_string());
    }
    paths::set(object, "metadata.deletionGracePeriodSeconds", 0);
}

/// The finalizers that tell the garbage collector what to do.
fn set_finalizers(object: &mut Map, policy: GarbageCollection, options: &DeleteOptions) {
    let old: Vec<String> =
        paths::items(object, "metadata.finalizers").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let has = |name: &str| old.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = if policy == GarbageCollection::Unsupported {
        (false, false)
    } else {
        match (options.orphan_dependents, options.propagation_policy) {
            (Some(orphan), _) => (orphan, false),
            (None, Some(policy)) => (policy == Propagation::Orphan, policy == Propagation::Foreground),
            (None, None) if has(ORPHAN) => (true, false),
            (None, None) if has(FOREGROUND) => (false, true),
            (None, None) => (policy == GarbageCollection::OrphanDependents, false),
        }
    };
    let mut new: Vec<&str> = old.iter().map(String::as_str).filter(|f| !matches!(*f, ORPHAN | FOREGROUND)).collect();
    if orphan {
        new.push(ORPHAN);
    }
    if foreground {
        new.push(FOREGROUND);
    }
    let same = new.len() == old.len() && new.iter().all(|finalizer| has(finalizer));
    if same {
        return;
    }
    if new.is_empty() {
        paths::remove(object, "metadata.finalizers");
    } else {
        let values: Vec<Value> = new.into_iter().map(Value::from).collect();
        paths::set(object, "metadata.finalizers", values);
    }
}

/// A namespace ends when its own finalizers are done.
fn namespace_step(old: &Map, options: &DeleteOptions, now: Time) -> Step {
    if meta(old, "deletionTimestamp").is_empty() {
        let mut new = old.clone();
        paths::set(&mut new, "metadata.deletionTimestamp", now.to_string());
        paths::set(&mut new, "status.phase", "Terminating");
        if options.orphan_dependents.is_some() || options.propagation_policy.is_some() {
            let foreground =
                options.orphan_dependents == Some(false) || options.propagation_policy == Some(Propagation::Foreground);
            let orphan =
                options.orphan_dependents == Some(true) || options.propagation_policy == Some(Propagation::Orphan);
            let propagation_policy = if foreground {
                Some(Propagation::Foreground)
            } else if orphan {
                Some(Propagation::Orphan)
            } else {
                Some(Propagation::Background)
            };
            let options = DeleteOptions { orphan_dependents: None, propagation_policy, ..options.clone() };
            set_finalizers(&mut new, GarbageCollection::DeleteDependents, &options);
        }
        return Step::Mark(Box::new(new));
    }
    if !paths::items(old, "spec.finalizers").is_empty() {
        return Step::Wait;
    }
    if paths::items(old, "metadata.finalizers").is_empty() {
        return Step::Remove;
    }
    let mut new = old.clone();
    mark(&mut new, now);
    Step::Mark(Box::new(new))
}
