//! The verbs: what is done with a request once it is known what it asks, who asks, and that it is allowed.
//!
//! One road for every kind. Reads answer from the cache ([`read`], [`watch`]); writes decode, admit, prepare, validate
//! and commit ([`write`], [`create`], [`update`], [`delete`]). Kinds that are answered and not stored, and subresources
//! that are more than a part of their object, have a few lines each.

pub(crate) mod call;
pub(crate) mod components;
pub(crate) mod condition;
pub(crate) mod connect;
pub(crate) mod create;
pub(crate) mod decode;
pub(crate) mod delete;
mod devices;
pub(crate) mod form;
pub(crate) mod managed;
pub(crate) mod patch;
pub(crate) mod pods;
pub(crate) mod read;
pub(crate) mod reviews;
pub(crate) mod scale;
#[cfg(test)]
mod tests;
pub(crate) mod token;
pub(crate) mod update;
pub(crate) mod watch;
pub(crate) mod write;

use capstan_api::{Map, Status};

use self::call::Call;
use crate::{conversion, http::Response, registry::Resource, request::PatchType};

/// The stored form of an object in the version that is asked for.
pub(crate) fn from_storage(resource: &Resource, object: Map) -> Map {
    match resource.as_custom() {
        _ if !resource.converts() => object,
        Some(served) => served.from_storage(object),
        None => conversion::from_storage(&resource.gvk, object),
    }
}

/// The form of an object that is stored.
pub(crate) fn to_storage(resource: &Resource, object: Map) -> Map {
    match resource.as_custom() {
        _ if !resource.converts() => object,
        Some(served) => served.to_storage(object),
        None => conversion::to_storage(&resource.gvk, object),
    }
}

/// Answers a request for a resource that exists and that the user may make.
///
/// # Errors
/// What the client is told instead.
pub(crate) async fn dispatch(call: &mut Call<'_>) -> Result<Response, Status> {
    let response = answer(call).await?;
    // A table that can't be made is told last: what was asked for has been done.
    if call.info.verb != "watch" && call.query.get("includeObject").is_some() {
        call.form()?.check_table(call.query)?;
    }
    Ok(response)
}

async fn answer(call: &mut Call<'_>) -> Result<Response, Status> {
    let (verb, subresource) = (call.info.verb.clone(), call.info.subresource.clone());
    let resource = std::sync::Arc::clone(&call.resource);
    // The routes of built-in resources have been looked at, but a watch comes by the route of the list.
    if (resource.as_custom().is_some() || verb == "watch") && !resource.has_verb(&subresource, &verb) {
        return Err(not_allowed(call, &verb));
    }
    if let Some(served) = resource.as_custom().filter(|served| served.definition().webhook && resource.converts()) {
        let words = "webhooks that convert are not called by this server";
        return Err(Status::internal_error(format!("conversion webhook for {:?} failed: {words}", served.gvk())));
    }
    if resource.as_custom().is_some() && matches!(&*verb, "update" | "patch") && call.info.name.is_empty() {
        if verb == "patch" {
            PatchType::parse_custom(call.header(http::header::CONTENT_TYPE))?;
        }
        return Err(Status::bad_request("name must be provided"));
    }
    // Writes need much more room than reads, which are not to carry it along.
    match (&*resource.gvr.resource, &*subresource) {
        ("pods", "binding") | ("bindings", "") => return Box::pin(pods::bind(call)).await,
        ("componentstatuses", "") => return components::components(call),
        ("pods", "eviction") => return Box::pin(pods::evict(call)).await,
        ("serviceaccounts", "token") => return Box::pin(token::request(call)).await,
        (_, "scale") => return Box::pin(scale::dispatch(call, &verb)).await,
        (_, "") if resource.stored.is_none() && verb == "create" => return Box::pin(reviews::review(call)).await,
        (_, "attach" | "exec" | "log" | "portforward" | "proxy") => {
            return Box::pin(connect::connect(call, &subresource)).await;
        }
        _ => {}
    }
    match &*verb {
        "get" => read::get(call).await,
        "list" => read::list(call).await,
        "watch" => watch::watch(call).await,
        "create" => Box::pin(create::create(call)).await,
        "update" => Box::pin(update::update(call)).await,
        "patch" => Box::pin(patch::patch(call)).await,
        "delete" => Box::pin(delete::delete(call)).await,
        "deletecollection" => Box::pin(delete::delete_collection(call)).await,
        _ => Err(not_allowed(call, &verb)),
    }
}

/// 405: the path has the method, but the resource does not do what it would.
fn not_allowed(call: &Call<'_>, verb: &str) -> Status {
    Status::method_not_supported(&call.resource.gvr.group_resource(), verb)
}
