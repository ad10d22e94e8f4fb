//! From bytes to values and back: limits, strictness, formats.

mod metadata;
mod strict;

pub use metadata::{Metadata, MetadataError, Owner};
pub use strict::{MAX_STRICT_BYTES, MAX_STRICT_ERRORS, StrictError, StrictErrors, StrictPath};
