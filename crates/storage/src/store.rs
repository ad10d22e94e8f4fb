//! The contract.

use std::{future::Future, path::Path, pin::Pin, sync::Arc};

use crate::{
    At, CommitError, Committed, ConsistencyHash, Fault, Found, Key, Op, Page, Range, ReadError, Revision, Watch,
    WatchRequest,
};

/// An engine that was chosen at run time.
pub type SharedStore = Arc<dyn Store>;

/// What the operations of a [`Store`] return: a future that owns or borrows what it needs.
pub type Answer<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// A snapshot that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The hash of what is in it, with its revision.
    pub hash: ConsistencyHash,
    /// The size of the file.
    pub bytes: u64,
}

/// Bytes under keys, with revisions. What is written here holds on every engine.
///
/// # Revisions
/// A store has one revision for all keys. It only grows. Every commit that changes something takes the next one,
/// without gaps from other sources than commits; the commits of all callers and the ends of lifetimes form one order.
/// (An etcd that others write to as well has their commits in that order too.)
///
/// # Commits
/// A commit is a list of operations on different keys. All preconditions are compared with one state, the one right
/// before the commit; if all hold, all operations take effect in one revision, else none does and the
/// [`Conflict`](crate::Conflict) tells what is under each key whose precondition failed. Preconditions compare the
/// key's modification revision, which is [`Revision::ABSENT`] for a key that is not there; without one an operation
/// always applies.
///
/// A commit that changes nothing (no operations, only checks, only deletions of keys that are not there) takes no
/// revision, is seen by no watch and succeeds with the revision at which it was found to change nothing. A put of the
/// value that is there already is a change.
///
/// Nothing is acknowledged before it is durable (`memory` aside), and nothing is seen by any read or watch before it is
/// durable. A commit whose future is dropped may still happen.
///
/// # Reads
/// `get` and `range` read one state and tell its revision. At [`At::Present`] that state has at least every commit that
/// was acknowledged, and every state that was read, before the read began: commits and present reads are linearizable.
/// At [`At::NotOlderThan`] it may be any state from that revision on; if the store has not reached it, the read waits
/// for up to [`Options::freshness_wait`](crate::Options::freshness_wait) and then fails as too new. At [`At::Exactly`]
/// it is the state of that revision; a revision after the present is too new at once.
///
/// Pages of a range follow each other by [`Range::following`], all of one state. An engine may give fewer items than
/// the limit; only `more` says whether there are others. The count, when asked for, is exact.
///
/// # Compaction
/// States before the compaction revision C are gone: to read or watch from a revision before C is
/// [`ReadError::Compacted`], C itself can still be read and watched from. C starts at the store's first revision,
/// [`Revision::INITIAL`] (so revision 0 is always compacted), moves only forward, by `compact` or by
/// [`Retention`](crate::Retention), and never past the present. Compacting changes nothing at present, takes no
/// revision and holds up nobody. History survives a restart as the keys do: a watch can be resumed across it.
///
/// # Watches
/// A watch delivers every change of a key with its prefix that was committed after its start revision: each once, in
/// the order of revisions, all of one revision in one batch (in the order of the commit's operations; expired keys by
/// key), with what was there before and after. What it delivers is durable and was committed; what it has delivered is
/// a prefix of what it will deliver, however it is resumed. [`WatchItem::Progress`](crate::WatchItem::Progress) is
/// never early: nothing at or below its revision will follow.
///
/// A start revision before the compaction revision, or after the present, is an error of `watch` itself. A reader that
/// is slow holds up neither commits nor other readers: nothing is queued for it without bound. It goes on from the
/// history where it stopped, and only if that has been compacted, its watch ends with [`ReadError::Compacted`]; it
/// never misses a change silently. A watch that is kept up with is not ended by compaction, however seldom its prefix
/// changes.
///
/// # Lifetimes
/// A key that was put with a [`Ttl`](crate::Ttl) is deleted by a commit of the store's own when its lifetime has
/// passed, never early, at most [`EXPIRY_LATENESS`](crate::limits::EXPIRY_LATENESS) late; until that commit it is
/// there. Keys that expire together may go in one commit. A later put replaces the lifetime or, without one, ends it.
/// Lifetimes survive a restart.
///
/// # Faults
/// No operation waits without a bound. An operation that fails leaves the store as it was, except for
/// [`CommitError::Uncertain`].
///
/// # For implementors
/// The trait can be made into an object: the server chooses the engine at run time. One allocation a call is nothing
/// beside a sync, and the reads that are hot are served by the cache above. Methods validate input by `check_ops`,
/// `check_key`, `check_range` and `check_prefix` before they do anything, so that the errors are the same everywhere.
pub trait Store: Send + Sync + 'static {
    /// The present revision, linearizable: as of a `get` at [`At::Present`].
    fn revision(&self) -> Answer<'_, Revision, ReadError>;

    /// What is under the key.
    fn get(&self, key: Key, at: At) -> Answer<'_, Found, ReadError>;

    /// The keys under a prefix, in order, a page at a time.
    fn range(&self, range: Range) -> Answer<'_, Page, ReadError>;

    /// Applies all operations in one revision, or none.
    fn commit(&self, ops: Vec<Op>) -> Answer<'_, Committed, CommitError>;

    /// The changes under a prefix, from a revision on. When this returns, the watch is in place.
    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch, ReadError>;

    /// Forgets the states before `revision`. Does nothing when they are forgotten already; too new when it is ahead.
    fn compact(&self, revision: Revision) -> Answer<'_, (), ReadError>;

    /// The hash of all keys of one state.
    fn hash(&self, at: At) -> Answer<'_, ConsistencyHash, ReadError>;

    /// Writes all keys of one state, not older than the present at the call, to a new file in the portable format of
    /// the crate's module `snapshot`, while commits go on. The file is there wholly and durably, or not at all; an
    /// existing file is replaced.
    ///
    /// Each engine has a constructor that restores from such a file: same keys, values, modification revisions,
    /// lifetimes and revision, with everything before compacted. (etcd gives out its own revisions: there only keys and
    /// values return.)
    fn snapshot<'a>(&'a self, path: &'a Path) -> Answer<'a, SnapshotInfo, Fault>;
}
