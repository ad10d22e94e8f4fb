//! Kubernetes' protobuf: messages of built-in kinds, read and written by the numbers that the schema knows.
//!
//! What comes in is a [`Value`](crate::Value) as JSON would have brought it, so that nothing behind the decoder knows
//! in which form a request came. What goes out is, byte by byte, what Go's generated code writes.

mod de;
mod decode;
mod encode;
mod error;
mod frame;
#[cfg(test)]
mod golden;
mod pack;
mod read;
mod shape;
#[cfg(test)]
mod tests;
mod watch;
mod wire;

pub use de::from_message;
pub(crate) use de::{Elements, Entries, Object, One};
pub use decode::{MAX_DEPTH, decode, decode_message};
pub use encode::{encode, encode_object};
pub use error::Error;
pub use frame::{Envelope, envelope};
pub use pack::pack;
pub use read::{List, list, metadata, watch_event};
pub use watch::watch_frame;
