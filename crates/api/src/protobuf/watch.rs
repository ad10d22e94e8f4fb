//! Frames of a watch: a length of four bytes, then an event without an envelope around an object with one.

use super::wire::Writer;
use crate::watch_event::EventType;

/// A frame of a watch; `object` is a whole message in its envelope.
#[must_use]
pub fn watch_frame(event_type: EventType, object: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.bytes(1, object);
    writer.header(2, 0);
    writer.bytes(1, event_type.as_str().as_bytes());
    // A frame that is too long for its length cannot be: objects are far smaller.
    let length = u32::try_from(writer.len()).unwrap_or(u32::MAX);
    writer.put(&length.to_be_bytes());
    writer.finish().to_vec()
}
