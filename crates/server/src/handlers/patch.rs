//! PATCH: what is to change of the object.

use std::sync::Arc;

use capstan_api::{
    GroupKind, GroupVersionKind, Map, Status, Value,
    codec::{self, Format, StrictErrors},
    field::{Error, Path},
    json,
    patch::{json_patch, merge, strategic},
    schema::{DecodeError, Mismatch, Schema},
    status::GenericResponse,
};

use super::{
    call::{Call, ensure_namespace},
    decode,
    form::Form,
    managed,
    update::{admitted, check_object_name},
    write::{self, Change},
};
use crate::{
    custom::{self, decode::Nulls},
    http::Response,
    request::{PatchOptions, PatchType, info::check_name, options::FieldValidation},
};

/// A patch that has been read.
pub(crate) enum Patch {
    Json(json_patch::JsonPatch),
    Merge(Value),
    Strategic(Map),
}

/// What a patched object must be.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Builtin(&'a GroupVersionKind, &'a Schema),
    Custom(&'a custom::Served),
}

pub(crate) async fn patch(call: &mut Call<'_>) -> Result<Response, Status> {
    let content_type = call.header(http::header::CONTENT_TYPE);
    let patch_type = match call.resource.as_custom() {
        Some(_) => PatchType::parse_custom(content_type)?,
        None => PatchType::parse(content_type)?,
    };
    let form = call.form()?;
    let name = call.info.name.clone();
    let options = PatchOptions::parse(call.query, patch_type)?;
    check_name(call.resource.namespaced, call.namespace(), &name)?;
    if patch_type == PatchType::Apply {
        return apply_configuration(call, form, &name, &options).await;
    }
    let options = options.write;
    let resource = Arc::clone(&call.resource);
    let validation = options.field_validation;
    // What is wrong with a patch is told only of an object that is there.
    let patch = read(&call.body, patch_type, validation);
    // Warnings are given once, however often the patch is applied.
    let before = call.warnings.len();
    let mut make = |call: &mut Call<'_>, old: Option<&Map>| {
        call.warnings.truncate(before);
        let Some(old) = old else { return Err(super::read::not_found(&call.resource, &name)) };
        let (patch, duplicates) = patch.as_ref().map_err(Clone::clone)?;
        let kind = match resource.as_custom() {
            Some(served) => Target::Custom(served),
            None => Target::Builtin(&resource.gvk, resource.schema()),
        };
        let mut object = apply(patch, old, duplicates.clone(), validation, kind, &mut call.warnings)?;
        managed::track(call, Some(old), &mut object, &options.field_manager);
        ensure_namespace(call.namespace(), &mut object)?;
        check_object_name(&object, &name)?;
        admitted(call, object, Some(old), &name, options.dry_run)
    };
    let change = Change {
        name: &name,
        subresource: &call.info.subresource.clone(),
        dry_run: options.dry_run,
        create: false,
        same_uid: false,
        make: &mut make,
    };
    let written = write::change(call, change).await?;
    form.object(&resource, if written.created { 201 } else { 200 }, written.json, call.now())
}

/// The body of an apply.
pub(crate) fn read_configuration(body: &[u8]) -> Result<(Map, StrictErrors), Status> {
    let refuse = |words: String| Status::bad_request(format!("error decoding YAML: {words}"));
    let (value, duplicates) = codec::decode_strict(body, Format::Yaml)
        .map_err(|error| refuse(format!("error converting YAML to JSON: {error}")))?;
    let what = match value {
        Value::Object(config) => return Ok((config, duplicates)),
        Value::Null => return Ok((Map::new(), duplicates)),
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    let words = "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal";
    Err(refuse(format!("{words} {what} into Go value of type map[string]interface {{}}")))
}

/// Server-side apply: the fields that one manager wants, merged with those of others.
async fn apply_configuration(
    call: &mut Call<'_>,
    form: Form,
    name: &str,
    options: &PatchOptions,
) -> Result<Response, Status> {
    let resource = Arc::clone(&call.resource);
    let (config, duplicates) = read_configuration(&call.body)?;
    let write = &options.write;
    let before = call.warnings.len();
    let mut make = |call: &mut Call<'_>, old: Option<&Map>| {
        call.warnings.truncate(before);
        let force = options.force.unwrap_or_default();
        let applied = managed::apply(call, old, config.clone(), &write.field_manager, force)?;
        match write.field_validation {
            FieldValidation::Strict => duplicates.clone().into_result().map_err(|error| {
                let text = error.to_string();
                let text = text.strip_prefix("strict decoding error: ").unwrap_or(&text);
                Status::bad_request(format!("error strict decoding YAML: {text}"))
            })?,
            _ => drop(decode::strict(duplicates.clone(), write.field_validation, &mut call.warnings)),
        }
        let entries = applied.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
        let text = json::to_string(&Value::Object(applied));
        let mut object = match resource.as_custom() {
            Some(served) => {
                let (object, found) = custom::decode::object(served, text.as_bytes(), Format::Json, Nulls::Kept)
                    .map_err(|refused| match refused {
                        custom::decode::Refused::Unrecognized(words) | custom::decode::Refused::Other(_, _, words) => {
                            write::as_it_is(words)
                        }
                    })?;
                drop(decode::strict(found, FieldValidation::Ignore, &mut call.warnings));
                object
            }
            None => {
                let decoded = resource.schema().convert(text.as_bytes());
                let decoded = decoded.map_err(|error| {
                    let (group_version, kind) = (resource.gvk.group_version(), &resource.gvk.kind);
                    let (group, version) = (&group_version.group, &group_version.version);
                    let meta = |field| super::call::meta(&config, field);
                    let (namespace, name) = (meta("namespace"), meta("name"));
                    let what = format!("{group}/{version}, Kind={kind}");
                    write::as_it_is(format!(
                        "failed to convert new object ({namespace}/{name}; {what}) to proper version: unable to convert \
                         unstructured object to {what}: {error}"
                    ))
                })?;
                decode::finish(decoded.value, &resource.gvk, resource.schema())
            }
        };
        if let Some(entries) = entries {
            super::call::metadata_mut(&mut object).insert("managedFields", entries);
        }
        let uid = super::call::meta(&object, "uid");
        if old.is_none() && !uid.is_empty() {
            let words =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(Status::conflict(&resource.gvr.group_resource(), name, words));
        }
        ensure_namespace(call.namespace(), &mut object)?;
        check_object_name(&object, name)?;
        admitted(call, object, old, name, write.dry_run)
    };
    let change = Change {
        name,
        subresource: &call.info.subresource.clone(),
        dry_run: write.dry_run,
        create: call.info.subresource.is_empty(),
        same_uid: false,
        make: &mut make,
    };
    let written = write::change(call, change).await?;
    form.object(&resource, if written.created { 201 } else { 200 }, written.json, call.now())
}

pub(crate) fn read(body: &[u8], ty: PatchType, validation: FieldValidation) -> Result<(Patch, StrictErrors), Status> {
    let strict = validation != FieldValidation::Ignore;
    let bad = |error: &dyn std::fmt::Display| {
        let prefix = if strict && ty != PatchType::StrategicMerge { "error decoding patch: " } else { "" };
        Status::bad_request(format!("{prefix}{error}"))
    };
    let (value, duplicates) = codec::decode_strict(body, Format::Json).map_err(|error| bad(&error))?;
    let duplicates = if strict { duplicates } else { StrictErrors::default() };
    let go_map = |value: &Value| {
        let what = value.type_name();
        bad(&format!("json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"))
    };
    let patch = match ty {
        PatchType::Json => {
            if strict {
                check_operations(&value).map_err(|error| bad(&error))?;
            }
            let patch = json_patch::JsonPatch::from_value(value).map_err(|error| match error {
                json_patch::DecodeError::TooManyOperations(_) => Status::request_entity_too_large(error.to_string()),
                _ => bad(&error),
            })?;
            Patch::Json(patch)
        }
        PatchType::Merge => match value {
            Value::Object(_) | Value::Null => Patch::Merge(value),
            other if strict => return Err(go_map(&other)),
            other => Patch::Merge(other),
        },
        PatchType::StrategicMerge => match value {
            Value::Object(map) => Patch::Strategic(map),
            Value::Null => Patch::Strategic(Map::new()),
            other => return Err(go_map(&other)),
        },
        PatchType::Apply => return Err(Status::unsupported_media_type(&[])),
    };
    Ok((patch, duplicates))
}

/// What Go's strict look at a JSON patch finds first.
fn check_operations(patch: &Value) -> Result<(), String> {
    let wrong = |value: &Value, ty: &str| {
        Err(format!("json: cannot unmarshal {} into Go value of type {ty}handlers.jsonPatchOp", value.type_name()))
    };
    match patch {
        Value::Null => Ok(()),
        Value::Array(operations) => {
            let odd = operations.iter().find(|operation| !matches!(operation, Value::Object(_) | Value::Null));
            odd.map_or(Ok(()), |odd| wrong(odd, ""))
        }
        other => wrong(other, "[]"),
    }
}

/// The object that a patch makes of another.
pub(crate) fn apply(
    patch: &Patch,
    old: &Map,
    mut strict: StrictErrors,
    validation: FieldValidation,
    target: Target<'_>,
    warnings: &mut Vec<String>,
) -> Result<Map, Status> {
    let patched = match patch {
        Patch::Json(patch) => patch.apply(Value::Object(old.clone())).map_err(|error| {
            let server_message = &*error.to_string();
            Status::from(GenericResponse { code: 422, server_message, ..GenericResponse::default() })
        })?,
        Patch::Merge(patch) => merge::apply(Value::Object(old.clone()), patch.clone())
            .map_err(|error| Status::bad_request(error.to_string()))?,
        Patch::Strategic(patch) => {
            // Custom resources have been asked for another kind of patch.
            let Target::Builtin(_, schema) = target else { return Err(Status::unsupported_media_type(&[])) };
            let patched = strategic::apply(old.clone(), patch.clone(), schema.root());
            Value::Object(patched.map_err(|error| strategic_error(&error))?)
        }
    };
    let text = json::to_string(&patched);
    let invalid = |error: &dyn std::fmt::Display| {
        // A strategic patch is shown itself, others by what they have made.
        let shown = match patch {
            Patch::Strategic(patch) => go_map(patch),
            _ => text.clone(),
        };
        let error = Error::invalid(Path::new("patch"), shown, error.to_string());
        Status::invalid(&GroupKind::new("", ""), "", &vec![error])
    };
    let (gvk, schema) = match target {
        Target::Builtin(gvk, schema) => (gvk, schema),
        Target::Custom(served) => {
            let (object, found) = custom::decode::object(served, text.as_bytes(), Format::Json, Nulls::Dropped)
                .map_err(|refused| match refused {
                    custom::decode::Refused::Unrecognized(words) | custom::decode::Refused::Other(_, _, words) => {
                        invalid(&words)
                    }
                })?;
            strict.extend(found);
            decode::strict(strict, validation, warnings).map_err(|errors| invalid(&errors))?;
            return Ok(object);
        }
    };
    let strategic = matches!(patch, Patch::Strategic(_));
    if !strategic {
        decode::check_kind(text.as_bytes(), gvk).map_err(|error| invalid(&error))?;
    }
    let decoded = schema.decode(text.as_bytes()).map_err(|error| match &error {
        DecodeError::Mismatch(mismatch) if strategic => invalid(&restored(mismatch)),
        other => invalid(other),
    })?;
    strict.extend(decoded.strict);
    decode::strict(strict, validation, warnings).map_err(|errors| invalid(&errors))?;
    let mut object = decode::finish(decoded.value, gvk, schema);
    managed::keep_cleared(&patched, &mut object);
    Ok(object)
}

/// A map as Go prints it.
fn go_map(map: &Map) -> String {
    let items: Vec<_> = map.iter().map(|(key, value)| format!("{key}:{}", go_value(value))).collect();
    format!("map[{}]", items.join(" "))
}

fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_value).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => go_map(map),
        other => json::to_string(other),
    }
}

/// Whether Go has a conversion for the kind of a value to a scalar of another kind.
fn converts(scalar: Option<&str>, kind: &str) -> bool {
    matches!((scalar, kind), (Some("string"), "int64") | (Some("int32" | "int64"), "float64"))
}

/// What Go's converter says where its decoder says that types differ.
fn restored(mismatch: &Mismatch) -> String {
    let found = mismatch.value.split(' ').next().unwrap_or_default();
    let kind = match found {
        "number" if mismatch.value.contains('.') => "float64",
        "number" => "int64",
        "object" => "map",
        "array" => "slice",
        other => other,
    };
    match &*mismatch.ty {
        // Go can make text of an integer and an integer of a fraction, which is not what JSON means: only then it
        // knows both types.
        ty if converts(mismatch.scalar.as_deref(), kind) => format!("cannot convert {kind} to {ty}"),
        _ if let Some(scalar) = &mismatch.scalar => format!("unrecognized type: {scalar}"),
        ty if ty.starts_with("map[") => format!("cannot restore map from {kind}"),
        ty if ty.starts_with("[]") => format!("cannot restore slice from {kind}"),
        ty if ty.contains('.') => format!("cannot restore struct from: {kind}"),
        ty => format!("cannot convert {kind} to {ty}"),
    }
}

fn strategic_error(error: &strategic::Error) -> Status {
    use strategic::Error::{ListOfLists, PrimitiveList, RetainKeys, SetElementOrder};
    match error {
        PrimitiveList | RetainKeys | SetElementOrder => Status::bad_request(error.to_string()),
        ListOfLists => {
            let server_message = &*error.to_string();
            GenericResponse { code: 422, server_message, ..GenericResponse::default() }.into()
        }
        other => Status::unknown(other.to_string()),
    }
}
