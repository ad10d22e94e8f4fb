//! Field paths and field errors: how validation names a place and says what is wrong there.

mod error;
mod path;

pub use error::{Error, ErrorList, ErrorType, aggregate};
pub use path::{Path, Segment, render};
