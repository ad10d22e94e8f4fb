//! Bytes under keys, with revisions, watches and durability.
//!
//! The store under the API server. It knows keys, bytes and revisions; it knows no kinds, no JSON and no paths, and it
//! caches nothing for its readers (the server's cache is fed by [`Store::watch`]). What an engine promises is written
//! on [`Store`], once for all engines; what the promises cost is bounded by the constants in [`limits`].
//!
//! Engines: [`Memory`] (tests, forks), [`Embedded`] (one machine, on disk) and `Etcd` (feature `etcd`; when one machine
//! is not enough). An engine is chosen at run time as a [`SharedStore`].
//!
//! A new engine implements [`Store`] and runs the conformance suite (feature `conformance`); the pieces that engines
//! share are [`ConsistencyHasher`], the portable snapshot file (`snapshot`) and, for engines inside this process, the
//! watch hub (`hub`), the bounded wait for a revision (`freshness`) and deadlines (`expiry`).

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod embedded;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod expiry;
mod freshness;
mod hash;
mod hub;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleavings;
pub mod limits;
mod memory;
mod op;
mod options;
mod read;
mod snapshot;
mod store;
mod sync;
mod watch;

pub use bytes::Bytes;
pub use embedded::Embedded;
pub use error::{CommitError, Conflict, ConflictingOp, Fault, FaultKind, InputError, ReadError};
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdConfig, EtcdTls, EtcdUser};
pub use hash::{ConsistencyHash, ConsistencyHasher};
pub use memory::Memory;
pub use op::{Action, Committed, Key, KeyValue, Op, Revision, Ttl, Value};
pub use options::{Options, Retention};
pub use read::{At, Found, Page, Range};
pub use store::{Answer, SharedStore, SnapshotInfo, Store};
pub use watch::{Batch, Event, Watch, WatchItem, WatchRequest, WatchSource};
