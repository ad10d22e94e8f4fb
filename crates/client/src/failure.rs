//! What an answer that is no success says. Not all that is between a client and a server speaks in statuses.

use bytes::Bytes;
use capstan_api::{GroupResource, Status, builtin, json, protobuf, status::GenericResponse, value::from_value};
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};

use crate::Error;

/// How much of an answer without a status is repeated.
const MAX_TEXT: usize = 2048;

/// What was asked, as far as words about its failure need it. Nothing is read before a request fails: all have one.
#[derive(Debug)]
pub(crate) struct Asked {
    method: Method,
    uri: Uri,
}

impl Asked {
    pub(crate) fn of(request: &Request<Bytes>) -> Self {
        Asked { method: request.method().clone(), uri: request.uri().clone() }
    }

    /// What the answer means.
    pub(crate) fn failure(&self, code: StatusCode, headers: &HeaderMap, text: &[u8]) -> Error {
        if let Some(status) = status_of(text) {
            return Error::from(status);
        }
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let is_text = headers.get(header::CONTENT_TYPE).is_none()
            || header(header::CONTENT_TYPE).is_some_and(|kind| kind.trim_start().starts_with("text/"));
        let text = String::from_utf8_lossy(&text[..text.len().min(MAX_TEXT)]);
        let (resource, name) = about(self.uri.path()).unzip();
        Error::from(Status::from(GenericResponse {
            code: code.as_u16().into(),
            verb: self.method.as_str(),
            resource: resource.as_ref(),
            name: name.as_deref().unwrap_or_default(),
            server_message: if is_text { text.trim() } else { "unknown" },
            retry_after_seconds: header(header::RETRY_AFTER).and_then(|said| said.parse().ok()).unwrap_or_default(),
            unexpected: true,
        }))
    }
}

/// What ended a watch, from its last event.
pub(crate) fn of_event(object: &[u8]) -> Error {
    Error::from(status_of(object).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(object).trim().to_owned();
        Status { code: 500, ..Status::unknown(format!("unexpected object: {text}")) }
    }))
}

/// A status in any form, if it says something.
fn status_of(bytes: &[u8]) -> Option<Status> {
    let value = match protobuf::envelope(bytes) {
        Ok(envelope) => protobuf::decode_message(&builtin::type_schema("meta.v1.Status")?, envelope.raw).ok()?,
        Err(_) => json::parse(bytes).ok()?,
    };
    from_value(value).ok().filter(|status: &Status| status.code != 0 || status.reason.is_known())
}

/// The resource and the name that a path is about; nothing for paths that are not those of resources.
fn about(path: &str) -> Option<(GroupResource, String)> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let group = match segments.next()? {
        "api" => "",
        "apis" => segments.next()?,
        _ => return None,
    };
    let (_version, first) = (segments.next()?, segments.next()?);
    let rest: Vec<&str> = segments.collect();
    let (resource, name) = match (first, rest.as_slice()) {
        // Of the namespace itself, or of what is in it.
        ("namespaces", [_, resource, name @ ..]) if !matches!(*resource, "status" | "finalize") => {
            (*resource, name.first())
        }
        (resource, name) => (resource, name.first()),
    };
    Some((
        GroupResource { group: group.to_owned().into(), resource: resource.to_owned().into() },
        name.copied().unwrap_or_default().to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(asked: (&str, &str), code: u16, headers: &[(&str, &str)], text: &str) -> Status {
        let request = Request::builder().method(asked.0).uri(asked.1).body(Bytes::new()).unwrap();
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.insert(name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap());
        }
        let code = StatusCode::from_u16(code).unwrap();
        Asked::of(&request).failure(code, &all, text.as_bytes()).status().unwrap().clone()
    }

    #[test]
    fn every_code_in_the_words_of_client_go() {
        const AT: &str = "/apis/example.com/v1/namespaces/default/ats/x";
        let unavailable = "the server was unable to return a response in the time allotted, \
                           but may still be processing the request";
        let cases = [
            ("GET", 404, "NotFound", "the server could not find the requested resource"),
            ("POST", 404, "NotFound", "the server could not find the requested resource"),
            ("GET", 400, "BadRequest", "the server rejected our request for an unknown reason"),
            ("GET", 401, "Unauthorized", "the server has asked for the client to provide credentials"),
            ("GET", 403, "Forbidden", "it says"),
            ("PUT", 405, "MethodNotAllowed", "the server does not allow this method on the requested resource"),
            ("GET", 406, "NotAcceptable", "it says"),
            ("POST", 409, "AlreadyExists", "the server reported a conflict"),
            ("PUT", 409, "Conflict", "the server reported a conflict"),
            ("GET", 410, "", "the server responded with the status code 410 but did not return more information"),
            ("POST", 413, "", "the server responded with the status code 413 but did not return more information"),
            ("PATCH", 415, "UnsupportedMediaType", "it says"),
            ("PATCH", 422, "Invalid", "the server rejected our request due to an error in our request"),
            (
                "GET",
                429,
                "TooManyRequests",
                "the server has received too many requests and has asked us to try again later",
            ),
            (
                "GET",
                500,
                "InternalError",
                "an error on the server (\"it says\") has prevented the request from succeeding",
            ),
            (
                "DELETE",
                502,
                "InternalError",
                "an error on the server (\"it says\") has prevented the request from succeeding",
            ),
            ("GET", 503, "ServiceUnavailable", "the server is currently unable to handle the request"),
            ("GET", 504, "Timeout", unavailable),
        ];
        for (verb, code, reason, message) in cases {
            let headers = [("content-type", "text/plain; charset=utf-8"), ("retry-after", "7")];
            let status = failure((verb, AT), code, &headers, "it says\n");
            let expected = format!("{message} ({} ats.example.com x)", verb.to_lowercase());
            assert_eq!((status.reason.as_str(), &*status.message), (reason, &*expected), "{verb} {code}");
            let details = status.details.clone().unwrap();
            assert_eq!((&*details.group, &*details.kind, &*details.name), ("example.com", "ats", "x"));
            assert_eq!((status.code, details.retry_after_seconds), (i32::from(code), 7), "{verb} {code}");
            let causes: Vec<_> = details.causes.iter().map(|cause| (&*cause.reason, &*cause.message)).collect();
            assert_eq!(causes, [("UnexpectedServerResponse", "it says")], "{verb} {code}");
            assert!(status.is_unexpected_server_error());
        }
        let gone = Error::from(failure(("GET", AT), 410, &[], ""));
        let large = Error::from(failure(("POST", AT), 413, &[], ""));
        assert!(gone.is_gone() && gone.is_expired() && large.is_request_entity_too_large());
    }

    #[test]
    fn what_was_said_and_how() {
        let check = |headers: &[(&str, &str)], text: &str, expected: &str| {
            let status = failure(("GET", "/version"), 500, headers, text);
            let expected = format!("an error on the server ({expected}) has prevented the request from succeeding");
            assert_eq!(status.message, expected);
        };
        check(&[], " without a type \n", "\"without a type\"");
        check(&[("content-type", "text/html")], "<p>", "\"<p>\"");
        check(&[("content-type", "application/json")], "{\"error\":\"a proxy's\"}", "\"unknown\"");
        check(&[("content-type", "text/plain")], &"x".repeat(5000), &format!("{:?}", "x".repeat(2048)));
        let status = failure(("GET", "/version"), 406, &[("content-type", "image/png")], "png");
        assert_eq!(status.message, "the server was unable to respond with a content type that the client supports");
        let said = r#"{"kind":"Status","status":"Failure","message":"no","reason":"Forbidden","code":403}"#;
        let status = failure(("GET", "/api/v1/pods"), 403, &[("content-type", "application/json")], said);
        assert_eq!((status.message.as_str(), status.details), ("no", None), "a status counts as it is");
    }

    #[test]
    fn what_paths_are_about() {
        let check = |path: &str, expected: &str| {
            let found = about(path).map(|(resource, name)| format!("{resource} {name}"));
            assert_eq!(found.unwrap_or_default().trim(), expected, "{path}");
        };
        check("/api/v1/pods", "pods");
        check("/api/v1/namespaces/a/pods/x", "pods x");
        check("/api/v1/namespaces/a/pods/x/log", "pods x");
        check("/api/v1/namespaces", "namespaces");
        check("/api/v1/namespaces/a", "namespaces a");
        check("/api/v1/namespaces/a/finalize", "namespaces a");
        check("/apis/apps/v1/namespaces/a/deployments", "deployments.apps");
        check("/apis/apps/v1", "");
        check("/apis", "");
        check("/version", "");
    }
}
