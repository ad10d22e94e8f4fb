//! WATCH: a stream of changes that ends by time, by the server's end, or by the client.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, Map, Status, Value, protobuf, value,
    watch_event::{EventType, WatchEvent},
};
use capstan_clock::Sleep;
use capstan_storage::Revision;
use http_body::Frame;

use super::{
    call::Call,
    form::{Form, answer, in_version, message, versioned},
    read::list_options,
};
use crate::{
    cache::{CacheError, ReadAt, WatchItem, WatchQuery, WatchStart, WatchedEvent, Watcher, bookmark_frame},
    conversion,
    http::{Body, Response},
    registry::{Resource, encode, live::cache_status},
    request::{ListOptions, MediaType, Transform, resource_version::parse_resource_version},
    server::Inner,
};

/// How long a watch lasts at least when the client does not say; a random part is added to it.
const MIN_DURATION: Duration = Duration::from_secs(1800);

/// How long before the end of a watch the last bookmark is due.
const LAST_BOOKMARK_BEFORE: Duration = Duration::from_secs(2);

pub(crate) async fn watch(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form()?;
    form.check_table(call.query)?;
    let options = list_options(call)?;
    let stored = call.stored()?;
    let namespace = call.namespace();
    let start = match start(&options) {
        Ok(start) => start,
        Err(status) if status.is_resource_expired() => return Ok(expired(form, &status)),
        Err(status) => return Err(status),
    };
    let query = WatchQuery {
        namespace: (!namespace.is_empty()).then(|| namespace.into()),
        labels: options.label_selector.clone(),
        fields: options.field_selector.clone(),
        start,
        bookmarks: options.allow_watch_bookmarks,
    };
    let watcher = match stored.cache.watch(query).await {
        Ok(watcher) => Source::Watcher(Box::new(watcher)),
        Err(error @ CacheError::Expired { .. }) => Source::Error(Some(error)),
        Err(error) => return Err(cache_status(error)),
    };
    Form::check_stream(call.wishes().accept, &call.resource, call.info)?;
    let clock = &call.server.registry.clock;
    let seconds = options.timeout_seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|s| *s > 0);
    let duration =
        seconds.map_or_else(|| MIN_DURATION.mul_f64(1.0 + call.server.registry.ids.fraction()), Duration::from_secs);
    let stream = Stream {
        server: Arc::clone(call.server),
        resource: Arc::clone(&call.resource),
        form,
        source: watcher,
        deadline: clock.sleep(duration),
        closing: call.closing.clone().map(|closing| Box::pin(async move { closing.closed().await }) as _),
        // The last bookmark comes a little before the end, so a short watch has none.
        bookmarks: options.allow_watch_bookmarks && duration > LAST_BOOKMARK_BEFORE,
        columns: true,
    };
    Ok(answer(200, form.negotiated.stream_content_type(), Body::stream(stream)))
}

/// A stream that says that the version asked for is gone, and nothing else.
fn expired(form: Form, status: &Status) -> Response {
    answer(200, form.negotiated.stream_content_type(), Body::from(error_event(form, status)))
}

/// An event in the form agreed on.
fn frame(form: Form, event_type: EventType, object: &[u8]) -> Bytes {
    if form.negotiated.media_type == MediaType::Protobuf {
        return protobuf::watch_frame(event_type, &message(object).unwrap_or_default()).into();
    }
    WatchEvent { event_type, object }.to_line().into()
}

fn error_event(form: Form, status: &Status) -> Bytes {
    let value = value::to_value(status).unwrap_or_default();
    let object = value.as_object().map(encode).unwrap_or_default();
    frame(form, EventType::Error, &object)
}

fn start(options: &ListOptions) -> Result<WatchStart, Status> {
    let version = parse_resource_version(&options.resource_version).map_err(|error| error.for_others())?;
    let closing_bookmark = options.send_initial_events == Some(true) && options.allow_watch_bookmarks;
    Ok(match (options.send_initial_events, version, &*options.resource_version) {
        (Some(true), 0, "") => WatchStart::State { at: ReadAt::Consistent, closing_bookmark },
        (Some(true), 0, _) => WatchStart::State { at: ReadAt::Any, closing_bookmark },
        (Some(true), revision, _) => {
            WatchStart::State { at: ReadAt::NotOlderThan(Revision(revision)), closing_bookmark }
        }
        (Some(false), 0, _) => WatchStart::Now,
        (None, 0, "") => WatchStart::State { at: ReadAt::Consistent, closing_bookmark },
        (None, 0, _) => WatchStart::State { at: ReadAt::Any, closing_bookmark },
        (_, revision, _) => WatchStart::After(Revision(revision)),
    })
}

enum Source {
    Watcher(Box<Watcher>),
    Error(Option<CacheError>),
    Done,
}

/// The body of a watch.
struct Stream {
    server: Arc<Inner>,
    resource: Arc<Resource>,
    form: Form,
    source: Source,
    deadline: Sleep,
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    bookmarks: bool,
    /// The next table is the first, which has the columns.
    columns: bool,
}

impl Stream {
    fn is_plain(&self) -> bool {
        !self.is_protobuf() && self.form.negotiated.transform.is_none() && !self.resource.converts()
    }

    fn is_protobuf(&self) -> bool {
        self.form.negotiated.media_type == MediaType::Protobuf
    }

    fn event(&mut self, event: &WatchedEvent) -> Result<Bytes, Status> {
        if self.is_plain() {
            return Ok(event.frame());
        }
        if self.is_protobuf() && self.form.negotiated.transform.is_none() && !self.resource.converts() {
            return Ok(protobuf::watch_frame(event.event_type(), event.object().message(message)).into());
        }
        let json = in_version(&self.resource, event.object())?;
        let columns = std::mem::take(&mut self.columns);
        let object = self.form.shape(&self.resource, json, self.server.registry.now(), columns)?;
        Ok(frame(self.form, event.event_type(), &object))
    }

    fn bookmark(&mut self, revision: Revision, initial_events_end: bool) -> Bytes {
        match self.form.negotiated.transform {
            transform if self.is_protobuf() => {
                let partial = capstan_api::partial::PARTIAL_OBJECT_METADATA;
                let gvk = if transform.is_none() { &self.resource.gvk } else { &partial };
                let object = encode(&blank(gvk, revision, initial_events_end));
                frame(self.form, EventType::Bookmark, &object)
            }
            None if self.resource.as_custom().is_none() => {
                let mut object = conversion::blank(&self.resource.gvk, self.resource.schema());
                for (key, value) in blank(&self.resource.gvk, revision, initial_events_end) {
                    object.insert(key, value);
                }
                frame(self.form, EventType::Bookmark, &encode(&object))
            }
            None => bookmark_frame(&self.resource.gvk, revision, initial_events_end),
            Some(Transform::Table(_)) => {
                let mut object = blank(&self.resource.gvk, revision, initial_events_end);
                object.remove("status");
                let json = Bytes::from(encode(&object));
                let columns = std::mem::take(&mut self.columns);
                let now = self.server.registry.now();
                let object = self.form.shape(&self.resource, json, now, columns).unwrap_or_default();
                WatchEvent { event_type: EventType::Bookmark, object }.to_line().into()
            }
            Some(_) => {
                let gvk = capstan_api::partial::PARTIAL_OBJECT_METADATA;
                versioned(bookmark_frame(&gvk, revision, initial_events_end), self.form.meta_version())
            }
        }
    }

    /// The last bookmark, so that the client goes on where this watch ends.
    fn end(&mut self) -> Option<Bytes> {
        let source = std::mem::replace(&mut self.source, Source::Done);
        let Source::Watcher(watcher) = source else { return None };
        let revision = watcher.delivered().filter(|_| self.bookmarks)?;
        Some(self.bookmark(revision, false))
    }

    /// The next frame. Frames are not gathered: they are shared with all who watch the same.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let item = match &mut self.source {
            Source::Done => return Poll::Ready(None),
            Source::Error(error) => match error.take() {
                Some(error) => Poll::Ready(Err(error)),
                None => return Poll::Ready(None),
            },
            Source::Watcher(watcher) => watcher.poll_next(cx),
        };
        Poll::Ready(match item {
            Poll::Ready(Ok(WatchItem::Event(event))) => match self.event(&event) {
                Ok(frame) => Some(frame),
                // What cannot be made of objects is noticed too late to say so.
                Err(_) => {
                    self.source = Source::Done;
                    None
                }
            },
            Poll::Ready(Ok(WatchItem::Bookmark { revision, initial_events_end })) => {
                Some(self.bookmark(revision, initial_events_end))
            }
            Poll::Ready(Err(error)) => {
                self.source = Source::Done;
                (error != CacheError::Closed).then(|| error_event(self.form, &cache_status(error)))
            }
            Poll::Pending => {
                let closed = self.closing.as_mut().is_some_and(|closing| closing.as_mut().poll(cx).is_ready());
                if !closed && self.deadline.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.end()
            }
        })
    }
}

fn blank(gvk: &GroupVersionKind, revision: Revision, initial_events_end: bool) -> Map {
    let line = bookmark_frame(gvk, revision, initial_events_end);
    let event = capstan_api::json::parse(&line).ok();
    event.and_then(|event| event.get("object").and_then(Value::as_object).cloned()).unwrap_or_default()
}

impl http_body::Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.get_mut().poll(cx).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}
