//! Tokens of service accounts, on request.

use std::sync::Arc;

use capstan_api::Status;

use super::{call::Call, managed, pods::sent};
use crate::{
    authentication::{TokenRequestContext, token_request},
    http::Response,
    registry::encode,
};

/// Answers a TokenRequest.
pub(crate) async fn request(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form_of_create()?;
    let (mut request, options) = sent(call, None)?;
    if let Some(kind) = call.resource.subresource(&call.info.subresource) {
        managed::track_request(call, kind, &mut request, &options.field_manager);
    }
    let server = Arc::clone(call.server);
    let Some(issuer) = &server.token_issuer else {
        return Err(Status::internal_error("this server signs no tokens: it has no key for service accounts"));
    };
    let context = TokenRequestContext {
        namespace: &call.info.namespace,
        name: &call.info.name,
        objects: &*server.registry,
        now: server.registry.clock.now(),
        ids: &*server.registry.ids,
    };
    let answer = token_request(issuer, &context, request, &mut call.warnings)?;
    form.object(&call.resource, 201, encode(&answer).into(), call.now())
}
