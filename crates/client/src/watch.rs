//! A watch: events as the server sends them, one a line, and as objects.

use std::{
    future::poll_fn,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use capstan_api::{
    object::{Encoded, Object},
    protobuf,
    watch_event::{EventType, WatchEvent},
};

use futures_core::Stream;

use crate::{Error, Watch, WatchStream, error::decode, failure, transport::Body};

/// The longest event that is read: the longest object, both states of it, and room for what is around.
pub const MAX_EVENT: usize = 8 << 20;

/// Events out of the lines of a body.
pub(crate) struct EventLines {
    body: Body,
    /// What has come and is not a whole line yet.
    rest: BytesMut,
    /// How much of that is known to have no end of a line.
    searched: usize,
}

impl EventLines {
    pub(crate) fn new(body: Body) -> Self {
        EventLines { body, rest: BytesMut::new(), searched: 0 }
    }

    fn line(&mut self) -> Option<Bytes> {
        loop {
            let at = self.rest[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(at) = at else {
                self.searched = self.rest.len();
                return None;
            };
            let line = self.rest.split_to(self.searched + at + 1).freeze();
            self.searched = 0;
            if line.iter().any(|byte| !byte.is_ascii_whitespace()) {
                return Some(line);
            }
        }
    }
}

impl Watch for EventLines {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>> {
        loop {
            if let Some(line) = self.line() {
                let event = WatchEvent::parse(&line)
                    .map(|event| WatchEvent { event_type: event.event_type, object: line.slice_ref(event.object) });
                return Poll::Ready(Some(
                    event.map_err(|error| Error::Decode(format!("unable to decode an event: {error}"))),
                ));
            }
            if self.rest.len() > MAX_EVENT {
                return Poll::Ready(Some(Err(Error::Decode(format!("an event is longer than {MAX_EVENT} bytes")))));
            }
            match ready!(self.body.poll_chunk(cx)) {
                Ok(Some(chunk)) => self.rest.extend_from_slice(&chunk),
                // What is left without an end of its line was cut off.
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

/// Events out of the frames of a body: a length of four bytes each, then the event as protobuf.
pub(crate) struct EventFrames {
    body: Body,
    rest: BytesMut,
}

impl EventFrames {
    pub(crate) fn new(body: Body) -> Self {
        EventFrames { body, rest: BytesMut::new() }
    }

    fn frame(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(length) = self.rest.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > MAX_EVENT {
            return Err(Error::Decode(format!("an event is longer than {MAX_EVENT} bytes")));
        }
        if self.rest.len() < 4 + length {
            return Ok(None);
        }
        let frame = self.rest.split_to(4 + length).freeze();
        Ok(Some(frame.slice(4..)))
    }
}

impl Watch for EventFrames {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>> {
        loop {
            match self.frame() {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(Some(frame)) => {
                    let event = protobuf::watch_event(&frame).map(|event| WatchEvent {
                        event_type: event.event_type,
                        object: frame.slice_ref(event.object),
                    });
                    return Poll::Ready(Some(
                        event.map_err(|error| Error::Decode(format!("unable to decode an event: {error}"))),
                    ));
                }
                Ok(None) => {}
            }
            match ready!(self.body.poll_chunk(cx)) {
                Ok(Some(chunk)) => self.rest.extend_from_slice(&chunk),
                Ok(None) => return Poll::Ready(None),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

/// What happened to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<K> {
    /// It came to be, or came to be selected.
    Added(K),
    /// It changed.
    Modified(K),
    /// It is gone, or no longer selected; this is its last state.
    Deleted(K),
    /// All events up to this version have been sent.
    Bookmark(String),
}

/// Events with objects of a type: a stream that ends when the server has ended the watch, or after an error of it. An
/// object that is not of the type is an error too, but others may follow.
///
/// Dropping it ends the watch.
#[derive(Debug)]
pub struct TypedWatch<K> {
    stream: Option<WatchStream>,
    of: PhantomData<fn() -> K>,
}

impl<K: Object> TypedWatch<K> {
    pub(crate) fn new(stream: WatchStream) -> Self {
        TypedWatch { stream: Some(stream), of: PhantomData }
    }

    /// The next event; none when the server has ended the watch.
    ///
    /// # Errors
    /// The server says why the watch ends, the connection broke, or the object is not of the type.
    pub async fn try_next(&mut self) -> Result<Option<Event<K>>, Error> {
        poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await.transpose()
    }
}

impl<K: Object> Stream for TypedWatch<K> {
    type Item = Result<Event<K>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(None) };
        let event = match ready!(stream.poll_next(cx)) {
            Some(Ok(event)) if event.event_type == EventType::Error => Err(failure::of_event(&event.object)),
            Some(Ok(event)) => return Poll::Ready(Some(read(&event))),
            Some(Err(error)) => Err(error),
            None => {
                self.stream = None;
                return Poll::Ready(None);
            }
        };
        self.stream = None;
        Poll::Ready(Some(event))
    }
}

fn read<K: Object>(event: &WatchEvent<Bytes>) -> Result<Event<K>, Error> {
    let encoded = Encoded::new(&event.object);
    Ok(match event.event_type {
        EventType::Added => Event::Added(decode(encoded, None)?),
        EventType::Modified => Event::Modified(decode(encoded, None)?),
        EventType::Deleted => Event::Deleted(decode(encoded, None)?),
        EventType::Bookmark | EventType::Error => {
            Event::Bookmark(encoded.metadata().unwrap_or_default().resource_version.into_owned())
        }
    })
}
