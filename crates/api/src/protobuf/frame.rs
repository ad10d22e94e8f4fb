//! The envelope around every message: four bytes that say what it is, then the kind and the message itself.

use super::{
    Error,
    wire::{DELIMITED, Reader, Writer},
};
use crate::Str;

/// What Kubernetes' messages begin with.
const PREFIX: &[u8] = b"k8s\0";

/// What the envelope says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The group and version.
    pub api_version: Str,
    /// The kind.
    pub kind: Str,
    /// The message.
    pub raw: &'a [u8],
}

/// Opens the envelope.
///
/// # Errors
/// When it is none.
pub fn envelope(bytes: &[u8]) -> Result<Envelope<'_>, Error> {
    let body = match bytes.strip_prefix(PREFIX) {
        _ if bytes.is_empty() => return Err(Error::NoData),
        None => return Err(Error::NoPrefix),
        Some([]) => return Err(Error::NoBody),
        Some(body) => body,
    };
    let mut envelope = Envelope::default();
    let mut type_meta = Vec::new();
    message(body, "Unknown", &["TypeMeta", "Raw", "ContentEncoding", "ContentType"], |number, bytes| match number {
        1 => type_meta.push(bytes),
        2 => envelope.raw = bytes,
        _ => {}
    })?;
    for bytes in type_meta {
        message(bytes, "TypeMeta", &["APIVersion", "Kind"], |number, bytes| {
            let text = Str::from_utf8_lossy(bytes);
            *if number == 1 { &mut envelope.api_version } else { &mut envelope.kind } = text;
        })?;
    }
    Ok(envelope)
}

/// Reads a message whose fields all have a length.
fn message<'a>(bytes: &'a [u8], ty: &str, fields: &[&str], mut take: impl FnMut(i32, &'a [u8])) -> Result<(), Error> {
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let tag = reader.tag(|| ty.to_owned())?;
        match fields.get(tag.number as usize - 1) {
            Some(field) if tag.wire != DELIMITED => {
                return Err(Error::WrongWireType { wire: tag.wire, field: (*field).to_owned() });
            }
            Some(_) => take(tag.number, reader.delimited()?),
            None => reader.skip(tag.wire)?,
        }
    }
    Ok(())
}

/// Puts the envelope of a kind before the message that is written since `mark`.
pub(super) fn close(writer: &mut Writer, mark: usize, api_version: &str, kind: &str) {
    writer.header(2, mark);
    let mark = writer.len();
    writer.bytes(2, kind.as_bytes());
    writer.bytes(1, api_version.as_bytes());
    writer.header(1, mark);
    writer.put(PREFIX);
}

/// Where the envelope ends: no encoding and no content type of its own.
pub(super) const END: &[u8] = &[0x1a, 0, 0x22, 0];
