//! PUT: the object as it is to be, also of those subresources that are a part of it.

use std::sync::Arc;

use capstan_api::{Map, Status};

use super::{
    call::{Admitted, Call, ensure_namespace, meta},
    decode, managed,
    write::{self, Change},
};
use crate::{
    admission::Operation,
    http::Response,
    request::{WriteOptions, info::check_name},
};

pub(crate) async fn update(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let name = call.info.name.clone();
    let options = WriteOptions::for_update(call.query)?;
    let resource = Arc::clone(&call.resource);
    let content_type = call.header(http::header::CONTENT_TYPE);
    let mut object = decode::of(&resource, &call.body, content_type, options.field_validation, &mut call.warnings)?;
    ensure_namespace(call.namespace(), &mut object)?;
    check_object_name(&object, &name)?;
    check_name(call.resource.namespaced, call.namespace(), &name)?;
    write::dedup_owners(call, &mut object, false);
    managed::keep_clearing(call, &mut object);
    let mut make = |call: &mut Call<'_>, old: Option<&Map>| {
        let mut object = object.clone();
        managed::track(call, old, &mut object, &options.field_manager);
        admitted(call, object, old, &name, options.dry_run)
    };
    let change = Change {
        name: &name,
        subresource: &call.info.subresource.clone(),
        dry_run: options.dry_run,
        create: false,
        same_uid: true,
        make: &mut make,
    };
    let written = write::change(call, change).await?;
    form.object(&resource, if written.created { 201 } else { 200 }, written.json, call.now())
}

/// The object after admission.
pub(crate) fn admitted(
    call: &mut Call<'_>,
    mut object: Map,
    old: Option<&Map>,
    name: &str,
    dry_run: bool,
) -> Result<Map, Status> {
    if old.is_none() {
        write::check_terminating(&call.resource, name)?;
    }
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    call.admit(Admitted { operation, name, object: Some(&mut object), old, dry_run, kind: None })?;
    write::dedup_owners(call, &mut object, true);
    Ok(object)
}

/// The object is the one that the request names.
pub(crate) fn check_object_name(object: &Map, name: &str) -> Result<(), Status> {
    match meta(object, "name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        same if same == name => Ok(()),
        other => Err(Status::bad_request(format!(
            "the name of the object ({other}) does not match the name on the URL ({name})"
        ))),
    }
}
