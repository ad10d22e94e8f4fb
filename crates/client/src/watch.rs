//! A watch: events as the server sends them, one a line, and as objects.

use std::{
    marker::PhantomData,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use capstan_api::{
    codec::Metadata,
    object::Object,
    watch_event::{EventType, WatchEvent},
};

use crate::{Error, Watch, WatchStream, client, transport::Body};

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

/// Events with objects of a type. It ends when it is dropped.
#[derive(Debug)]
pub struct TypedWatch<K> {
    stream: WatchStream,
    of: PhantomData<fn() -> K>,
}

impl<K: Object> TypedWatch<K> {
    pub(crate) fn new(stream: WatchStream) -> Self {
        TypedWatch { stream, of: PhantomData }
    }

    /// The next event; none when the server has ended the watch.
    ///
    /// # Errors
    /// The server says why the watch ends, the connection broke, or the object is not of the type.
    pub async fn try_next(&mut self) -> Result<Option<Event<K>>, Error> {
        let Some(event) = self.stream.next().await else { return Ok(None) };
        let event = event?;
        let object = || K::decode_as(&event.object, None).map_err(|error| Error::Decode(error.to_string()));
        Ok(Some(match event.event_type {
            EventType::Added => Event::Added(object()?),
            EventType::Modified => Event::Modified(object()?),
            EventType::Deleted => Event::Deleted(object()?),
            EventType::Bookmark => {
                let metadata = Metadata::scan(&event.object).unwrap_or_default();
                Event::Bookmark(metadata.resource_version.into_owned())
            }
            EventType::Error => return Err(client::failure(500, &event.object)),
        }))
    }
}
