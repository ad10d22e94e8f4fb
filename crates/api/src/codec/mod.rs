//! From bytes to values and back: limits, strictness, formats.

mod strict;

pub use strict::{MAX_STRICT_BYTES, MAX_STRICT_ERRORS, StrictError, StrictErrors, StrictPath};
