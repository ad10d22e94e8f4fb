//! The bytes of an object, in the forms in which servers send it.

use std::borrow::Cow;

use serde::de::DeserializeOwned;

use super::ObjectError;
use crate::{
    GroupVersionKind, builtin,
    codec::Metadata,
    json::{self, Reader, Token},
    protobuf,
    schema::Schema,
    value::from_value,
};

/// What protobuf in its envelope begins with; JSON never does.
const ENVELOPE: &[u8] = b"k8s\0";

/// The bytes of an object: JSON, or protobuf with or without its envelope. Copies are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded<'a> {
    bytes: &'a [u8],
    is_message: bool,
    managed_fields: bool,
}

/// An object that is ready to be read.
pub(super) enum Opened<'a> {
    Json(Cow<'a, [u8]>),
    Message { schema: Schema, message: &'a [u8], gvk: GroupVersionKind },
}

impl<'a> Encoded<'a> {
    /// JSON, or protobuf in its envelope: the bytes tell.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Encoded { bytes, is_message: false, managed_fields: true }
    }

    /// A message without its envelope, such as the items of a list are. Who reads it has to know its kind.
    #[must_use]
    pub fn message(bytes: &'a [u8]) -> Self {
        Encoded { is_message: true, ..Encoded::new(bytes) }
    }

    /// Passes over who manages which fields: often half of an object, and seldom looked at.
    #[must_use]
    pub fn without_managed_fields(self) -> Self {
        Encoded { managed_fields: false, ..self }
    }

    /// The same object in its envelope, without what is not wanted of it, for those who keep it and read it later.
    /// Nothing when it is JSON.
    ///
    /// # Errors
    /// The bytes are no message.
    pub fn packed<B>(&self, gvk: Option<&GroupVersionKind>) -> Result<Option<B>, ObjectError>
    where
        B: for<'b> From<&'b [u8]>,
    {
        match self.whole().open(gvk)? {
            Opened::Json(_) => Ok(None),
            Opened::Message { message, gvk, .. } => {
                protobuf::pack(&gvk, message, self.managed_fields).map(Some).map_err(ObjectError::of)
            }
        }
    }

    fn whole(&self) -> Self {
        Encoded { managed_fields: true, ..*self }
    }

    /// Makes an object of JSON.
    pub(super) fn json<T: DeserializeOwned>(&self, text: &[u8]) -> Result<T, ObjectError> {
        from_value(json::parse(text)?).map_err(ObjectError::of)
    }

    pub(super) fn wants_managed_fields(&self) -> bool {
        self.managed_fields
    }

    /// The names, the version and the annotations, without reading the rest.
    ///
    /// # Errors
    /// The bytes are no object.
    pub fn metadata(&self) -> Result<Metadata<'a>, ObjectError> {
        let message = match self.bytes {
            bytes if self.is_message => bytes,
            bytes if bytes.starts_with(ENVELOPE) => protobuf::envelope(bytes).map_err(ObjectError::of)?.raw,
            bytes => return Metadata::scan(bytes).map_err(ObjectError::of),
        };
        protobuf::metadata(message).map_err(ObjectError::of)
    }

    pub(super) fn open(self, gvk: Option<&GroupVersionKind>) -> Result<Opened<'a>, ObjectError> {
        let (message, gvk) = match (self.is_message, gvk) {
            (true, Some(gvk)) => (self.bytes, gvk.clone()),
            (true, None) => return Err(ObjectError::of("Object 'Kind' is missing")),
            (false, _) if self.bytes.starts_with(ENVELOPE) => {
                let envelope = protobuf::envelope(self.bytes).map_err(ObjectError::of)?;
                let gvk = GroupVersionKind::from_api_version_and_kind(&envelope.api_version, &envelope.kind);
                (envelope.raw, gvk)
            }
            (false, _) if self.managed_fields => return Ok(Opened::Json(Cow::Borrowed(self.bytes))),
            (false, _) => return Ok(Opened::Json(without_managed_fields(self.bytes))),
        };
        match builtin::schema(&gvk) {
            Some(schema) => Ok(Opened::Message { schema, message, gvk }),
            None => Err(ObjectError::of(format!("no kind {:?} is known in version {:?}", gvk.kind, gvk.api_version()))),
        }
    }
}

/// The same JSON with `null` in the place of `metadata.managedFields`. Text that is not JSON stays as it is: who reads
/// it will say so.
fn without_managed_fields(text: &[u8]) -> Cow<'_, [u8]> {
    match managed_fields(text) {
        None => Cow::Borrowed(text),
        Some(value) => {
            // Both are parts of the text, so the difference of their addresses is where the value begins.
            let start = value.as_ptr() as usize - text.as_ptr() as usize;
            let mut shorter = Vec::with_capacity(text.len() - value.len() + 4);
            shorter.extend_from_slice(&text[..start]);
            shorter.extend_from_slice(b"null");
            shorter.extend_from_slice(&text[start + value.len()..]);
            Cow::Owned(shorter)
        }
    }
}

fn managed_fields(text: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(text);
    for wanted in ["metadata", "managedFields"] {
        if reader.next().ok()? != Token::BeginObject {
            return None;
        }
        loop {
            match reader.next().ok()? {
                Token::Key(key) if key == wanted => break,
                Token::Key(_) => drop(reader.skip().ok()?),
                _ => return None,
            }
        }
    }
    reader.skip().ok()
}

impl From<json::Error> for ObjectError {
    fn from(error: json::Error) -> Self {
        ObjectError::of(error)
    }
}
