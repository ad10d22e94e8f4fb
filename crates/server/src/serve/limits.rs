//! Every bound of a server's sockets, named. Most are upstream's.

use std::time::Duration;

/// The most connections at once; more wait unaccepted.
pub const CONNECTIONS: usize = 65_536;

/// How long a client may take for the TLS handshake, and how long for the head of a request.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(32);

/// How long a connection may be idle.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a client may not read anything of what is sent to it.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// How many bytes the head of a request may have.
pub const HEADER_BYTES: u32 = 1 << 20;

/// What the head may have beyond [`HEADER_BYTES`] over HTTP/1, as Go's server allows it for its buffer.
pub const HEADER_BYTES_SLOP: u32 = 4096;

/// How many headers a request may have over HTTP/1.
pub const HEADERS: usize = 512;

/// How many requests one HTTP/2 connection may have open.
pub const STREAMS: u32 = 100;

/// How much of a request's body an HTTP/2 client may send before it is read.
pub const STREAM_WINDOW: u32 = 256 * 1024;

/// How much an HTTP/2 client may send before it is read, over all its requests.
pub const CONNECTION_WINDOW: u32 = STREAM_WINDOW * STREAMS;

/// How many bytes of an answer are kept ready for one HTTP/2 stream.
pub const STREAM_SEND_BUFFER: usize = 512 * 1024;

/// How often an HTTP/2 client is asked whether it is there.
pub const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long it may take to say so.
pub const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// How long an HTTP/2 client that was told to go away may take to go.
pub const GO_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a connection that is closed before the client has sent all stays half open, so that the client can still
/// read the answer.
pub const LINGER: Duration = Duration::from_secs(2);

/// How long the first pause is when no connection can be accepted (no descriptors left); twice as long after each more.
pub const ACCEPT_RETRY_FIRST: Duration = Duration::from_millis(5);

/// The longest such pause.
pub const ACCEPT_RETRY_LAST: Duration = Duration::from_secs(1);

/// How long a request may take that is not long-running.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How many reads may be under way.
pub const READS_IN_FLIGHT: usize = 400;

/// How many writes may be under way.
pub const WRITES_IN_FLIGHT: usize = 200;

/// How long a shutdown waits for requests that are under way.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers that are larger than this are compressed.
pub const GZIP_THRESHOLD: u64 = 128 * 1024;

/// The largest WebSocket message that is read, to be ignored: a watcher has nothing to say.
pub const WEBSOCKET_MESSAGE_BYTES: usize = 64 * 1024;

/// The bounds that a server can be given other values of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// See [`CONNECTIONS`].
    pub connections: usize,
    /// See [`HEADER_TIMEOUT`].
    pub header_timeout: Duration,
    /// See [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// See [`WRITE_TIMEOUT`].
    pub write_timeout: Duration,
    /// See [`STREAMS`].
    pub streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: CONNECTIONS,
            header_timeout: HEADER_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            write_timeout: WRITE_TIMEOUT,
            streams: STREAMS,
        }
    }
}
