//! SPDY/3.1, as much of it as Kubernetes' clients and kubelets use: streams that clients open, data both ways, pings.
//!
//! [`frame`] has no I/O: bytes go in, [`Frame`]s come out. [`connection`] reads and writes them, and [`tunnel()`] is
//! what carries them inside a WebSocket, as kubectl does it. There is no flow control, because no peer has it.
//!
//! Not for: what the streams mean. That is the client's and the kubelet's business.

pub mod connection;
pub mod frame;
mod headers;
pub mod tunnel;

pub use connection::{Connection, split};
pub use frame::{Decoder, Encoder, Frame, SpdyError, data, ping, reset};
pub use headers::{Headers, Inflater};
pub use tunnel::tunnel;
