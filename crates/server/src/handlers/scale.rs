//! `/scale`: how many replicas, whatever the kind.

use std::sync::Arc;

use capstan_api::{
    GroupVersionKind, Map, Status, Time, Value, builtin,
    field::{Error, Path},
    managed_fields::{ApplyError, write_entries},
    schema::Schema,
    table::TableColumnDefinition,
};

use super::{
    call::{Admitted, Call, ensure_namespace, meta},
    decode, managed, patch,
    read::{not_found, read_one},
    update::check_object_name,
    write::{self, Change, Current},
};
use crate::{
    admission::Operation,
    conversion::scale,
    custom,
    http::Response,
    printers,
    registry::{Resource, encode, live, paths},
    request::{PatchOptions, PatchType, WriteOptions, info::check_name},
};

pub(crate) const SCALE: GroupVersionKind = GroupVersionKind::from_static("autoscaling", "v1", "Scale");

/// What a custom resource has that does not say how many replicas it wants.
const NO_REPLICAS: i64 = i32::MIN as i64;

fn schema() -> Result<Schema, Status> {
    builtin::schema(&SCALE).ok_or_else(|| Status::internal_error("Scale has no schema"))
}

fn read(resource: &Resource, object: &Map) -> Result<Map, Status> {
    match paths_of(resource) {
        Some(paths) => {
            let (mut scale, found) = custom::scale::read(paths, object).map_err(Status::bad_request)?;
            if !found {
                paths::set(&mut scale, "spec.replicas", NO_REPLICAS);
            }
            Ok(scale)
        }
        None => scale::read(object).map_err(Status::bad_request),
    }
}

/// Where a custom resource has its numbers.
fn paths_of(resource: &Resource) -> Option<&custom::Scale> {
    resource.as_custom()?.version().scale.as_ref()
}

/// Reads or writes the number of replicas.
pub(crate) async fn dispatch(call: &mut Call<'_>, verb: &str) -> Result<Response, Status> {
    check_name(call.resource.namespaced, call.namespace(), &call.info.name)?;
    match verb {
        "get" => get(call).await,
        "update" => update(call).await,
        _ => patch(call).await,
    }
}

async fn get(call: &Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let found = read_one(call).await?;
    let object = Current::of(call, &found)?.object;
    let scale = match paths_of(&call.resource) {
        Some(paths) => custom::scale::get(paths, &object)?,
        None => read(&call.resource, &object)?,
    };
    if let Some(table) = form.table(columns(paths_of(&call.resource).is_some()), cells(call, &scale), &scale) {
        return Ok(table);
    }
    form.object(&call.resource, 200, encode(&scale).into(), call.now())
}

/// The columns of a scale, which those of custom resources have by other words.
fn columns(custom: bool) -> Vec<TableColumnDefinition> {
    let age = if custom { "date" } else { "string" };
    let types = [("Name", "string"), ("Desired", "integer"), ("Available", "integer"), ("Age", age)];
    let of = if custom { "customscale" } else { "scale" };
    let define = |(name, ty): (&str, &str)| TableColumnDefinition {
        name: name.to_owned(),
        column_type: ty.to_owned(),
        format: if custom && name == "Name" { "name".to_owned() } else { String::new() },
        description: printers::describe(of, name),
        ..TableColumnDefinition::default()
    };
    types.into_iter().map(define).collect()
}

fn cells(call: &Call<'_>, scale: &Map) -> Vec<Value> {
    let age = meta(scale, "creationTimestamp").parse::<Time>();
    let age = age.map_or_else(|_| "<unknown>".to_owned(), |then| printers::age(then, call.now()));
    vec![
        meta(scale, "name").into(),
        paths::number(scale, "spec.replicas").into(),
        paths::number(scale, "status.replicas").into(),
        age.into(),
    ]
}

async fn update(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let options = WriteOptions::for_update(call.query)?;
    let content_type = call.header(http::header::CONTENT_TYPE);
    let validation = options.field_validation;
    let mut sent = decode::object(&call.body, content_type, &SCALE, &schema()?, validation, &mut call.warnings)?;
    ensure_namespace(call.namespace(), &mut sent)?;
    check_object_name(&sent, &call.info.name)?;
    let mut make = |call: &mut Call<'_>, old: Option<&Map>| {
        scaled(call, sent.clone(), old, options.dry_run, By::Update(&options.field_manager))
    };
    finish(call, form, options.dry_run, &mut make).await
}

async fn patch(call: &mut Call<'_>) -> Result<Response, Status> {
    let content_type = call.header(http::header::CONTENT_TYPE);
    let patch_type = match paths_of(&call.resource) {
        Some(_) => PatchType::parse_custom(content_type)?,
        None => PatchType::parse(content_type)?,
    };
    let form = call.form()?;
    let options = PatchOptions::parse(call.query, patch_type)?;
    if patch_type == PatchType::Apply {
        let (config, _) = patch::read_configuration(&call.body)?;
        let by = By::Apply(&options.write.field_manager, options.force.unwrap_or_default());
        let dry_run = options.write.dry_run;
        let mut make = |call: &mut Call<'_>, old: Option<&Map>| scaled(call, config.clone(), old, dry_run, by);
        return finish(call, form, dry_run, &mut make).await;
    }
    let options = options.write;
    let patch = patch::read(&call.body, patch_type, options.field_validation);
    let schema = schema()?;
    let before = call.warnings.len();
    let mut make = |call: &mut Call<'_>, old: Option<&Map>| {
        call.warnings.truncate(before);
        let Some(object) = old else { return Err(not_found(&call.resource, &call.info.name)) };
        let (patch, duplicates) = patch.as_ref().map_err(Clone::clone)?;
        let duplicates = duplicates.clone();
        let validation = options.field_validation;
        let target = patch::Target::Builtin(&SCALE, &schema);
        let mut sent =
            patch::apply(patch, &read(&call.resource, object)?, duplicates, validation, target, &mut call.warnings)?;
        ensure_namespace(call.namespace(), &mut sent)?;
        check_object_name(&sent, &call.info.name)?;
        scaled(call, sent, old, options.dry_run, By::Update(&options.field_manager))
    };
    finish(call, form, options.dry_run, &mut make).await
}

/// How a Scale is written, and by whom.
#[derive(Clone, Copy)]
enum By<'a> {
    Update(&'a str),
    Apply(&'a str, bool),
}

/// The object with as many replicas as the Scale says.
fn scaled(call: &mut Call<'_>, mut sent: Map, old: Option<&Map>, dry_run: bool, by: By<'_>) -> Result<Map, Status> {
    let name = call.info.name.clone();
    let Some(old) = old else { return Err(not_found(&call.resource, &name)) };
    let old_scale = read(&call.resource, old)?;
    let now = call.now().to_string();
    let entries = managed::track_scale(call, old, &old_scale, &mut sent, |fields, live, scale| {
        match by {
            By::Update(named) => fields.update(Some(live), scale, &managed::manager(call, named), &now),
            By::Apply(manager, force) => {
                let config = std::mem::take(scale);
                let applied = fields.apply(Some(live), config, manager, force, &now);
                *scale = applied.map_err(ApplyError::into_status)?;
            }
        }
        Ok(())
    })?;
    call.admit(Admitted {
        operation: Operation::Update,
        name: &name,
        object: Some(&mut sent),
        old: Some(&old_scale),
        dry_run,
        kind: Some(&SCALE),
    })?;
    let replicas = paths::number(&sent, "spec.replicas");
    let custom = paths_of(&call.resource).is_some();
    if let Some(paths) = paths_of(&call.resource).filter(|_| replicas == NO_REPLICAS) {
        let path = capstan_api::go::quote(&format!(".{}", paths.spec_replicas));
        return Err(Status::bad_request(format!("the spec replicas field {path} cannot be empty")));
    }
    if replicas < 0 && !custom {
        let path = Path::new("spec");
        let words = "must be greater than or equal to 0";
        let error = Error::invalid(path.child("replicas"), replicas, words);
        return Err(Status::invalid(&SCALE.group_kind(), &name, &vec![error]));
    }
    let mut new = old.clone();
    match paths_of(&call.resource) {
        Some(paths) => custom::scale::write(paths, &mut new, replicas)?,
        None => scale::write(&mut new, &sent),
    }
    write_entries(&mut new, entries);
    let metadata = write::metadata(&mut new);
    for field in ["resourceVersion", "uid"] {
        match meta(&sent, field) {
            // Who says no version does not care, but custom resources need one.
            "" if custom => {}
            "" => drop(metadata.remove(field)),
            text => drop(metadata.insert(field, text)),
        }
    }
    Ok(new)
}

async fn finish(
    call: &mut Call<'_>,
    form: super::form::Form,
    dry_run: bool,
    make: &mut write::Make<'_>,
) -> Result<Response, Status> {
    let name = call.info.name.clone();
    let change = Change { name: &name, subresource: "", dry_run, create: false, same_uid: true, make };
    let written = write::change(call, change).await?;
    let scale = read(&call.resource, &live::parse(&written.json)?)?;
    let resource = Arc::clone(&call.resource);
    debug_assert!(scale.get("kind").and_then(Value::as_str).is_some());
    form.object(&resource, 200, encode(&scale).into(), call.now())
}
