//! Messages that are kept as they came.

use super::{
    Error, frame,
    wire::{DELIMITED, Reader, Writer},
};
use crate::GroupVersionKind;

/// The number of the metadata in every object, and in it that of who manages which fields.
const METADATA: i32 = 1;
const MANAGED_FIELDS: i32 = 17;

/// How much an envelope takes at most, unless its kind is very long.
const ENVELOPE: usize = 128;

/// The message of an object in its envelope, without who manages which fields unless that is wanted. Nothing else of it
/// is opened. What holds the bytes is the caller's choice.
///
/// # Errors
/// The bytes are no message.
pub fn pack<B: for<'a> From<&'a [u8]>>(
    gvk: &GroupVersionKind,
    message: &[u8],
    managed_fields: bool,
) -> Result<B, Error> {
    let mut writer = Writer::with_room(message.len() + ENVELOPE);
    writer.put(frame::END);
    let mark = writer.len();
    match if managed_fields { None } else { metadata(message)? } {
        None => writer.put(message),
        Some((before, metadata, after)) => {
            writer.put(after);
            let mark = writer.len();
            for field in fields(metadata)?.iter().rev().filter(|(number, _)| *number != MANAGED_FIELDS) {
                writer.put(field.1);
            }
            writer.header(METADATA.unsigned_abs(), mark);
            writer.put(before);
        }
    }
    frame::close(&mut writer, mark, &gvk.api_version(), &gvk.kind);
    Ok(writer.finish().into())
}

/// What is before the metadata, the metadata, and what is after it.
type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn metadata(message: &[u8]) -> Result<Option<Parts<'_>>, Error> {
    let mut reader = Reader::new(message);
    while !reader.is_at_end() {
        let start = reader.at;
        let tag = reader.tag(|| "Message".to_owned())?;
        if (tag.number, tag.wire) == (METADATA, DELIMITED) {
            let metadata = reader.delimited()?;
            return Ok(Some((&message[..start], metadata, &message[reader.at..])));
        }
        reader.skip(tag.wire)?;
    }
    Ok(None)
}

/// The fields with their numbers, tags included.
fn fields(message: &[u8]) -> Result<Vec<(i32, &[u8])>, Error> {
    let (mut reader, mut found) = (Reader::new(message), Vec::new());
    while !reader.is_at_end() {
        let start = reader.at;
        let tag = reader.tag(|| "Message".to_owned())?;
        reader.skip(tag.wire)?;
        found.push((tag.number, &message[start..reader.at]));
    }
    Ok(found)
}
