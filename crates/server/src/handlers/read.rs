//! GET and LIST.

use std::{num::NonZeroUsize, sync::Arc};

use capstan_api::{Status, Str, object::ListMeta, selector::FieldSelector};
use capstan_storage::Revision;

use super::{call::Call, form::in_version};
use crate::{
    cache::{CacheError, ListQuery, Object, ReadAt},
    http::Response,
    registry::{Resource, Stored, live::cache_status},
    request::{ContinueToken, GetOptions, ListOptions, info::check_name, resource_version::parse_resource_version},
};

/// One object.
pub(crate) async fn get(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let export = call.query.get("export").filter(|export| !export.is_empty());
    if export.is_some_and(|export| !matches!(export, "0" | "f" | "F" | "false" | "FALSE" | "False")) {
        return Err(Status::bad_request("the export parameter, deprecated since v1.14, is no longer supported"));
    }
    check_name(call.resource.namespaced, call.namespace(), &call.info.name)?;
    let object = read_one(call).await?;
    form.object(&call.resource, 200, in_version(&call.resource, &object)?, call.now())
}

/// The object that the request names, as new as it asks.
pub(crate) async fn read_one(call: &Call<'_>) -> Result<Arc<Object>, Status> {
    let stored = call.stored()?;
    let options = GetOptions::parse(call.query);
    let at = match &*options.resource_version {
        "" => ReadAt::Consistent,
        "0" => ReadAt::Any,
        text => match parse_resource_version(text).map_err(|error| error.for_others())? {
            0 => ReadAt::Any,
            revision => ReadAt::NotOlderThan(Revision(revision)),
        },
    };
    let found =
        stored.cache.get(call.namespace(), &call.info.name, at).await.map_err(|error| refused(&stored, error))?;
    found.object.ok_or_else(|| not_found(&call.resource, &call.info.name))
}

/// Many objects.
pub(crate) async fn list(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    let options = list_options(call)?;
    let (metadata, items) = find(call, &options).await?;
    form.list(&call.resource, metadata, &items, call.now())
}

/// The options of list, watch and deletecollection, with the names that fields are stored under.
pub(crate) fn list_options(call: &Call<'_>) -> Result<ListOptions, Status> {
    let mut options = ListOptions::parse(call.query)?;
    options.field_selector = resolve_fields(&call.resource, &options.field_selector)?;
    // A watch of one name by its path.
    if !call.info.name.is_empty() && call.info.verb != "list" && call.info.verb != "deletecollection" {
        options = options.for_name(&call.info.name)?;
    }
    Ok(options)
}

fn resolve_fields(resource: &Resource, selector: &FieldSelector) -> Result<FieldSelector, Status> {
    selector.clone().transform(|label, value| {
        let name = resource.resolve_field(label).map_err(Status::bad_request)?;
        Ok((name, Str::from(value)))
    })
}

/// The objects that a list asks for, and the metadata of their list.
pub(crate) async fn find(call: &Call<'_>, options: &ListOptions) -> Result<(ListMeta, Vec<Arc<Object>>), Status> {
    let stored = call.stored()?;
    let start = options.start()?;
    let at = match (start.revision, start.not_older_than, &*options.resource_version) {
        (0, 0, "0") if options.continue_token.is_empty() => ReadAt::Any,
        (0, 0, _) => ReadAt::Consistent,
        (0, revision, _) => ReadAt::NotOlderThan(Revision(revision)),
        (revision, ..) => ReadAt::Exactly(Revision(revision)),
    };
    // Whoever takes any state gets all of it, as upstream's cache has no pages; what expires is not in it.
    let limit = usize::try_from(options.limit).ok().filter(|_| at != ReadAt::Any || stored.ttl.is_some());
    let namespace = call.namespace();
    let query = ListQuery {
        namespace: (!namespace.is_empty()).then(|| namespace.into()),
        labels: options.label_selector.clone(),
        fields: options.field_selector.clone(),
        at,
        limit: limit.and_then(NonZeroUsize::new),
        start: start.key,
    };
    let page = stored.cache.list(&query).await.map_err(|error| match error {
        CacheError::Expired { .. } if !options.continue_token.is_empty() => continue_expired(&options.continue_token),
        CacheError::Expired { .. } => Status::resource_expired("The resourceVersion for the provided list is too old."),
        other => refused(&stored, other),
    })?;
    let metadata = ListMeta {
        resource_version: page.revision.to_string(),
        continue_token: page.next.as_ref().map(ContinueToken::encode).unwrap_or_default(),
        remaining_item_count: page.remaining.and_then(|count| i64::try_from(count).ok()),
        ..ListMeta::default()
    };
    Ok((metadata, page.items))
}

/// What is told when objects can't be read. What expires is kept out of upstream's caches, so nobody is asked to wait
/// for them.
fn refused(stored: &Stored, error: CacheError) -> Status {
    let mut status = cache_status(error);
    if stored.ttl.is_some()
        && let Some(details) = &mut status.details
    {
        details.retry_after_seconds = 0;
    }
    status
}

/// The state of the first page is gone: a token to go on with the present one.
fn continue_expired(token: &str) -> Status {
    let mut status = Status::resource_expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    if let Ok(token) = ContinueToken::decode(token) {
        let continue_token = token.inconsistent().encode();
        status.metadata = Some(Box::new(ListMeta { continue_token, ..ListMeta::default() }));
    }
    status
}

pub(crate) fn not_found(resource: &Resource, name: &str) -> Status {
    Status::not_found(&resource.gvr.group_resource(), name)
}
