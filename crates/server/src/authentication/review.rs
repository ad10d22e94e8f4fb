//! TokenReview and SelfSubjectReview: who a token's owner is, and who oneself is.

use capstan_api::{Array, Map, Status, Str, Value};
use capstan_clock::Timestamp;
use http::{HeaderMap, HeaderValue, header};

use super::{Authenticator, intersect, token_request};
use crate::authorization::UserInfo;

const API_VERSION: &str = "authentication.k8s.io/v1";

/// The answer to a TokenReview: the same object with what was found out in its status.
///
/// # Errors
/// When there is no token, or the audiences cannot be right.
pub fn token_review(authenticator: &Authenticator, mut review: Map) -> Result<Map, Status> {
    let spec = review.get("spec").and_then(Value::as_object);
    let token = spec.and_then(|spec| spec.get("token")).and_then(Value::as_str).unwrap_or("");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let mut audiences = spec.map(|spec| strings(spec, "audiences")).unwrap_or_default();
    if audiences.is_empty() {
        audiences = authenticator.api_audiences().to_vec();
    }
    let mut headers = HeaderMap::new();
    // What no header can carry is no token that we know.
    let value = HeaderValue::from_bytes(format!("Bearer {token}").as_bytes());
    headers.insert(header::AUTHORIZATION, value.unwrap_or(HeaderValue::from_static("Bearer ?")));
    let mut status = Map::new();
    status.insert("user", Map::new());
    match authenticator.authenticate_for(&headers, None, &audiences) {
        Ok(Some(found)) => {
            if !audiences.is_empty() && intersect(&audiences, &found.audiences).is_empty() {
                return Err(Status::internal_error("error validating audiences"));
            }
            status.insert("authenticated", true);
            status.insert("user", user_info(&found.user));
            if !found.audiences.is_empty() {
                status.insert("audiences", list(&found.audiences));
            }
        }
        Ok(None) => {}
        Err(error) => _ = status.insert("error", error.to_string()),
    }
    review.insert("apiVersion", API_VERSION);
    review.insert("kind", "TokenReview");
    review.insert("status", status);
    Ok(review)
}

/// The answer to a SelfSubjectReview: who asks. Of the request nothing is kept.
#[must_use]
pub fn self_subject_review(user: &UserInfo, now: Timestamp) -> Map {
    let (mut metadata, mut status, mut review) = (Map::new(), Map::new(), Map::new());
    metadata.insert("creationTimestamp", token_request::time(now, 0));
    status.insert("userInfo", user_info(user));
    review.insert("apiVersion", API_VERSION);
    review.insert("kind", "SelfSubjectReview");
    review.insert("metadata", metadata);
    review.insert("status", status);
    review
}

/// A user as objects carry it; what is empty is left out.
fn user_info(user: &UserInfo) -> Map {
    let mut info = Map::new();
    for (field, text) in [("username", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            info.insert(field, text.clone());
        }
    }
    if !user.groups.is_empty() {
        info.insert("groups", list(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.clone(), Value::from(list(values))));
        info.insert("extra", extra.collect::<Map>());
    }
    info
}

fn list(texts: &[Str]) -> Array {
    texts.iter().cloned().map(Value::from).collect()
}

fn strings(map: &Map, field: &str) -> Vec<Str> {
    let items = map.get(field).and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(Str::from).collect()
}
