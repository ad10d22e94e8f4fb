//! Answering: which form, whether the client has it already, how long it may keep it.

use bytes::Bytes;
use capstan_api::Time;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{Document, OpenApi, index, relative_url, v2, v2_protobuf, v3};
use crate::{
    http::{Body, Response},
    request::{Query, accept},
};

/// How long a document whose hash was named may be kept.
const YEAR_DAYS: i64 = 365;

/// The subtypes of the forms that there are; the name with `@` is what clients ask for, the other what is answered.
const JSON: &str = "json";
const V2_PROTOBUF: &str = "com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V2_PROTOBUF_AT: &str = "com.github.proto-openapi.spec.v2@v1.0+protobuf";

const DAY: i64 = 24 * 60 * 60;

impl OpenApi {
    /// Answers what is asked at a path, if it is one of `/openapi`. `now` is the time of day.
    #[must_use]
    pub fn answer(&self, path: &str, query: &Query<'_>, headers: &HeaderMap, now: Time) -> Option<Response> {
        let snapshot = self.snapshot();
        if path == "/openapi/v2" {
            let mut response = negotiated(headers, &[JSON, V2_PROTOBUF, V2_PROTOBUF_AT], |subtype| match subtype {
                JSON => document(v2(&snapshot), JSON, headers),
                _ => document(v2_protobuf(&snapshot), V2_PROTOBUF, headers),
            });
            response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
            return Some(response);
        }
        if path == "/openapi/v3" {
            let index = index(&snapshot);
            return Some(response(StatusCode::OK, Some("text/plain; charset=utf-8"), index));
        }
        let path = path.strip_prefix("/openapi/v3/")?;
        let Some(lazy) = snapshot.v3.get(path) else {
            return Some(response(StatusCode::NOT_FOUND, None, Bytes::new()));
        };
        Some(negotiated(headers, &[JSON], |_| {
            let found = v3(&snapshot, path, lazy);
            match query.get("hash").unwrap_or_default() {
                "" => document(found, JSON, headers),
                hash if hash == found.hash => keep(document(found, JSON, headers), now),
                _ => moved(path, found),
            }
        }))
    }
}

/// Answers in the form that the client likes most of those there are, if it takes any: `forms` are subtypes of
/// `application`.
fn negotiated(headers: &HeaderMap, forms: &[&'static str], answer: impl FnOnce(&str) -> Response) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let accept = if accept.is_empty() { "*/*" } else { accept };
    let form = accept::parse(accept).iter().find_map(|clause| {
        let fits = |form: &&&str| matches!(clause.ty, "*" | "application") && [**form, "*"].contains(&clause.subtype);
        forms.iter().find(fits).copied()
    });
    let mut response = form.map_or_else(|| response(StatusCode::NOT_ACCEPTABLE, None, Bytes::new()), answer);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn document(document: &Document, subtype: &str, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", document.hash);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    let known = known.split(',').map(|known| known.trim().trim_start_matches("W/"));
    let mut response = if known.into_iter().any(|known| known == tag || known == "*") {
        response(StatusCode::NOT_MODIFIED, None, Bytes::new())
    } else {
        let mut response = response(StatusCode::OK, None, document.bytes());
        insert(&mut response, header::CONTENT_TYPE, &format!("application/{subtype}"));
        response
    };
    insert(&mut response, header::ETAG, &tag);
    response
}

/// Says that the answer never changes.
fn keep(mut response: Response, now: Time) -> Response {
    insert(&mut response, header::CACHE_CONTROL, "public, immutable");
    insert(&mut response, header::EXPIRES, &in_a_year(now));
    response
}

/// The hash is of another state of the document.
fn moved(path: &str, document: &Document) -> Response {
    let mut response = response(StatusCode::MOVED_PERMANENTLY, Some("application/json"), Bytes::new());
    insert(&mut response, header::ETAG, &format!("\"{}\"", document.hash));
    insert(&mut response, header::LOCATION, &relative_url(path, &document.hash));
    response
}

fn response(status: StatusCode, content_type: Option<&'static str>, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    if let Some(content_type) = content_type {
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    response
}

fn insert(response: &mut Response, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// `Tue, 16 Nov 2027 02:12:47 UTC`, as Go writes it.
fn in_a_year(now: Time) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let then = Time::from_unix(now.unix_seconds().saturating_add(YEAR_DAYS * DAY), 0);
    let day = then.unix_seconds().div_euclid(DAY).rem_euclid(7);
    let day = usize::try_from(day).ok().and_then(|day| DAYS.get(day)).copied().unwrap_or_default();
    let text = then.to_string();
    let (date, time) = text.trim_end_matches('Z').split_once('T').unwrap_or_default();
    let mut parts = date.splitn(3, '-');
    let [year, month, of_month] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let month = month.parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?)).copied();
    format!("{day}, {of_month} {} {year} {time} UTC", month.unwrap_or_default())
}
