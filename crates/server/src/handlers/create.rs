//! POST: a new object.

use std::sync::Arc;

use capstan_api::Status;

use super::{
    call::{Admitted, Call, meta, metadata_mut},
    decode, managed, write,
};
use crate::{http::Response, request::WriteOptions};

/// Fields that only the server fills in.
pub(super) const SYSTEM_FIELDS: [&str; 5] =
    ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

pub(crate) async fn create(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form_of_create()?;
    let resource = Arc::clone(&call.resource);
    let content_type = call.header(http::header::CONTENT_TYPE);
    let options = WriteOptions::for_create(call.query)?;
    let mut object = decode::of(&resource, &call.body, content_type, options.field_validation, &mut call.warnings)?;
    let metadata = metadata_mut(&mut object);
    SYSTEM_FIELDS.iter().for_each(|field| drop(metadata.remove(field)));
    call.check_namespace(&mut object)?;
    write::dedup_owners(call, &mut object, false);
    managed::keep_clearing(call, &mut object);
    managed::track(call, None, &mut object, &options.field_manager);
    let name = meta(&object, "name").to_owned();
    write::check_terminating(&resource, &name)?;
    call.admit(Admitted::create(&name, &mut object, options.dry_run))?;
    write::dedup_owners(call, &mut object, true);
    let written = write::store_new(call, object, options.dry_run, false).await?;
    form.object(&resource, 201, written.json, call.now())
}
