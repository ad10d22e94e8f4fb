//! What audit learns of one request on its way, and when that is written.
//!
//! A record is filled by the road and completed when it is dropped: with the answer, with the end of a stream that is
//! the answer, or with a client that did not wait. So no way out of a request is forgotten.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, Status, Value, builtin,
    codec::{self, Format},
    json, protobuf,
    status::{FAILURE, SUCCESS, StatusReason},
    value::from_value,
};
use http::{HeaderMap, StatusCode, header};
use http_body::{Frame, SizeHint};

use super::{Audit, Event, Request, Stage};
use crate::{
    authorization::Decision,
    http::{Body, Response, Stream},
    impersonation::Impersonated,
};

/// So far into an answer its kind is told, whatever its form.
const HEAD: usize = 64;

/// What is recorded of a request; nothing unless there is a policy that asks for it.
#[derive(Default)]
pub(crate) struct Record(Option<Open>);

struct Open {
    audit: Arc<Audit>,
    event: Event,
    /// Whether it is also told when the answer begins.
    long_running: bool,
}

impl Open {
    /// What cannot be written later than at the first stage is lost: it is too late to refuse the request.
    fn write(&mut self, stage: Stage) {
        let _ = self.audit.write(&mut self.event, stage);
    }
}

impl Record {
    /// Begins a record, of which nothing is written yet.
    pub(crate) fn new(audit: &Arc<Audit>, request: &Request<'_>, long_running: bool) -> Self {
        Record(audit.begin(request).map(|event| Open { audit: Arc::clone(audit), event, long_running }))
    }

    /// Writes that the request came.
    ///
    /// # Errors
    /// The answer if that cannot be written.
    pub(crate) fn received(&mut self) -> Result<(), Status> {
        let Some(open) = &mut self.0 else { return Ok(()) };
        let written = open.audit.write(&mut open.event, Stage::RequestReceived);
        if written.is_err() {
            self.0 = None;
        }
        written.map_err(Status::internal_error)
    }

    /// Whom the user acts as.
    pub(crate) fn impersonated(&mut self, impersonated: &Impersonated) {
        if let Some(open) = &mut self.0 {
            open.event.impersonate(&impersonated.user, &impersonated.constraint);
        }
    }

    /// How it was decided on.
    pub(crate) fn decided(&mut self, decision: &Decision) {
        if let Some(open) = &mut self.0 {
            open.event.decision(decision.is_allowed(), decision.reason());
        }
    }

    /// What admission has to note.
    pub(crate) fn annotated(&mut self, annotations: &[(&str, String)]) {
        if let Some(open) = &mut self.0 {
            annotations.iter().for_each(|(key, value)| open.event.annotate(key, value));
        }
    }

    /// What the client has sent.
    pub(crate) fn sent(&mut self, headers: &HeaderMap, body: &[u8]) {
        if let Some(open) = &mut self.0
            && let Some(object) = object(headers, body)
        {
            open.event.request_object(object);
        }
    }

    /// What the client gets.
    pub(crate) fn answered(&mut self, response: &Response) {
        let Some(open) = &mut self.0 else { return };
        if let Body::Slices(slices) = response.body()
            && (open.event.wants_response() || !is_success(response.status()) || is_status(slices.front()))
        {
            let whole: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            match object(response.headers(), &whole) {
                Some(object) if object.get("kind").and_then(Value::as_str) == Some("Status") => {
                    open.event.response_status(&from_value(object).unwrap_or_default());
                }
                Some(object) => open.event.response_object(object),
                None => {}
            }
        }
        open.event.code(response.status().as_u16());
        if open.long_running {
            open.write(Stage::ResponseStarted);
        }
    }

    /// An answer to somebody whose request went no further than to be read: all that is written is that it began.
    pub(crate) fn refused(&mut self, response: &Response) {
        if let Some(open) = &mut self.0 {
            open.long_running = true;
        }
        self.answered(response);
        self.0 = None;
    }

    /// Whoever answers has panicked.
    pub(crate) fn panicked(&mut self, panic: &str) {
        let Some(mut open) = self.0.take() else { return };
        let (reason, message) = (StatusReason::InternalError, format!("APIServer panic'd: {panic}"));
        let code = reason.code();
        open.event.status(Status { status: FAILURE, reason, message, code, ..Status::default() });
        open.write(Stage::Panic);
    }

    /// Completes the record with the answer: if that is a stream, when it ends.
    pub(crate) fn complete(self, mut response: Response) -> Response {
        if self.0.is_none() {
            return response;
        }
        if let Body::Stream(stream) = response.body_mut() {
            let stream = std::mem::replace(stream, Box::pin(Body::empty()));
            *response.body_mut() = Body::stream(Recorded { stream, _record: self });
        }
        response
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Some(mut open) = self.0.take() else { return };
        if !open.event.has_status() {
            let message = "Connection closed early".to_owned();
            open.event.status(Status { status: SUCCESS, message, code: 200, ..Status::default() });
            if open.long_running {
                open.write(Stage::ResponseStarted);
            }
        }
        open.write(Stage::ResponseComplete);
    }
}

/// A stream whose end completes a record.
struct Recorded {
    stream: Stream,
    _record: Record,
}

impl http_body::Body for Recorded {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.get_mut().stream.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.stream.size_hint()
    }
}

fn is_success(status: StatusCode) -> bool {
    status.is_success() || status.is_informational()
}

/// Whether an answer may be a status, which is told at every level; what is none is not read for this.
fn is_status(first: Option<&Bytes>) -> bool {
    let head = first.map_or(&b""[..], |first| &first[..first.len().min(HEAD)]);
    head.windows(b"Status".len()).any(|part| part == b"Status")
}

/// The object in a body, whatever its form; `None` if it is none. Only what was understood here is ever written, so
/// nobody can send what looks like an event of its own.
fn object(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or(Ok(""), |value| value.to_str()).ok()?;
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    match media_type.rsplit(['/', '+', '.']).next().unwrap_or_default() {
        "" | "json" => json::parse(body).ok(),
        "yaml" => codec::decode(body, Format::Yaml).ok(),
        "protobuf" => {
            let envelope = protobuf::envelope(body).ok()?;
            let gvk = GroupVersionKind::from_api_version_and_kind(&envelope.api_version, &envelope.kind);
            let mut object = protobuf::decode_message(&builtin::schema(&gvk)?, envelope.raw).ok()?;
            let fields = object.as_object_mut()?;
            fields.insert("apiVersion", envelope.api_version);
            fields.insert("kind", envelope.kind);
            Some(object)
        }
        _ => None,
    }
}
