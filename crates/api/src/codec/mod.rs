//! From bytes to values and back: limits, strictness, formats.

mod decode;
mod metadata;
mod strict;

pub use decode::{DecodeError, Format, MAX_BODY_BYTES, decode, decode_strict, duplicate_fields};
pub use metadata::{Metadata, MetadataError, Owner};
pub use strict::{MAX_STRICT_BYTES, MAX_STRICT_ERRORS, StrictError, StrictErrors, StrictPath};
