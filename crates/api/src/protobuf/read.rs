//! Messages that are opened only as far as a client has to: lists, events, and the names of objects.

use std::borrow::Cow;

use super::{
    Error,
    wire::{DELIMITED, Reader},
};
use crate::{
    codec::Metadata,
    watch_event::{EventType, WatchEvent},
};

/// A list, its items still messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<'a> {
    /// The version of the whole that the list shows.
    pub resource_version: Cow<'a, str>,
    /// What to send to get the next page.
    pub continue_token: Cow<'a, str>,
    /// The objects.
    pub items: Vec<&'a [u8]>,
}

/// Opens a list without its envelope: all lists have their metadata first and their items second.
///
/// # Errors
/// The bytes are no message.
pub fn list(message: &[u8]) -> Result<List<'_>, Error> {
    let mut list = List::default();
    fields(message, |number, bytes| {
        match number {
            1 => fields(bytes, |number, bytes| {
                match number {
                    2 => list.resource_version = String::from_utf8_lossy(bytes),
                    3 => list.continue_token = String::from_utf8_lossy(bytes),
                    _ => {}
                }
                Ok(())
            })?,
            2 => list.items.push(bytes),
            _ => {}
        }
        Ok(())
    })?;
    Ok(list)
}

/// Opens an event of a watch, without the length that is before it. The object is in its envelope.
///
/// # Errors
/// The bytes are no event.
pub fn watch_event(frame: &[u8]) -> Result<WatchEvent<&[u8]>, Error> {
    let (mut event_type, mut object): (Option<EventType>, &[u8]) = (None, b"");
    fields(frame, |number, bytes| {
        match number {
            1 => event_type = str::from_utf8(bytes).ok().and_then(|name| name.parse().ok()),
            2 => fields(bytes, |number, bytes| {
                if number == 1 {
                    object = bytes;
                }
                Ok(())
            })?,
            _ => {}
        }
        Ok(())
    })?;
    let event_type = event_type.ok_or(Error::NoBody)?;
    Ok(WatchEvent { event_type, object })
}

/// Which object a message is: its names and version, and its annotations. The rest is left out.
///
/// # Errors
/// The bytes are no message.
pub fn metadata(message: &[u8]) -> Result<Metadata<'_>, Error> {
    let mut found = Metadata::default();
    fields(message, |number, bytes| {
        if number != 1 {
            return Ok(());
        }
        fields(bytes, |number, bytes| {
            let text = || String::from_utf8_lossy(bytes);
            match number {
                1 => found.name = text(),
                3 => found.namespace = text(),
                5 => found.uid = text(),
                6 => found.resource_version = text(),
                12 => {
                    let mut entry = (Cow::Borrowed(""), Cow::Borrowed(""));
                    fields(bytes, |number, bytes| {
                        *if number == 1 { &mut entry.0 } else { &mut entry.1 } = String::from_utf8_lossy(bytes);
                        Ok(())
                    })?;
                    found.annotations.push(entry);
                }
                _ => {}
            }
            Ok(())
        })
    })?;
    Ok(found)
}

/// The fields that have a length.
fn fields<'a>(message: &'a [u8], mut take: impl FnMut(i32, &'a [u8]) -> Result<(), Error>) -> Result<(), Error> {
    let mut reader = Reader::new(message);
    while !reader.is_at_end() {
        let tag = reader.tag(|| "Message".to_owned())?;
        if tag.wire == DELIMITED {
            take(tag.number, reader.delimited()?)?;
        } else {
            reader.skip(tag.wire)?;
        }
    }
    Ok(())
}
