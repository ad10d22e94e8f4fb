//! Keys, values, revisions, and what a commit is made of.

use std::{fmt, num::NonZeroU32, time::Duration};

use bytes::Bytes;

use crate::{
    InputError, Range,
    limits::{MAX_COMMIT_BYTES, MAX_COMMIT_OPS, MAX_KEY_BYTES, MAX_VALUE_BYTES},
};

/// A key: 1 to [`MAX_KEY_BYTES`] bytes of any kind, ordered bytewise.
pub type Key = Bytes;

/// A value: up to [`MAX_VALUE_BYTES`] bytes of any kind, also none.
pub type Value = Bytes;

/// A point in a store's history.
///
/// A new store stands at [`Revision::INITIAL`] with no keys; the first commit makes revision 2, as in etcd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl Revision {
    /// The modification revision of a key that is not there. No store ever stands at it.
    pub const ABSENT: Revision = Revision(0);

    /// Where a new store stands.
    pub const INITIAL: Revision = Revision(1);

    /// The one after this.
    #[must_use]
    pub fn next(self) -> Self {
        Revision(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key with its value and the revision that put it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Key,
    /// The value.
    pub value: Value,
    /// The revision of the commit that put this value.
    pub mod_revision: Revision,
}

/// A lifetime in whole seconds, at least one (the grain of etcd's leases).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(pub NonZeroU32);

impl Ttl {
    /// The lifetime of `seconds`; nothing when that is zero.
    #[must_use]
    pub fn seconds(seconds: u32) -> Option<Self> {
        NonZeroU32::new(seconds).map(Ttl)
    }

    /// The lifetime as a duration.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0.get().into())
    }
}

/// What an operation does to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sets the value. Without `expires` the key stays until deleted, also when it had a lifetime before.
    Put {
        /// The new value.
        value: Value,
        /// How long from this commit on the key lives.
        expires: Option<Ttl>,
    },
    /// Removes the key; nothing to do when it is not there.
    Delete,
    /// Changes nothing: the operation is there for its precondition.
    Check,
}

/// One operation of a commit: a key, what must hold of it, and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    /// The key.
    pub key: Key,
    /// The modification revision that the key must have ([`Revision::ABSENT`]: must not be there). `None`: any.
    pub expected: Option<Revision>,
    /// What is done.
    pub action: Action,
}

impl Op {
    /// Puts the value, whatever is there.
    #[must_use]
    pub fn put(key: impl Into<Key>, value: impl Into<Value>) -> Self {
        Op { key: key.into(), expected: None, action: Action::Put { value: value.into(), expires: None } }
    }

    /// Puts the value if the key is not there.
    #[must_use]
    pub fn create(key: impl Into<Key>, value: impl Into<Value>) -> Self {
        Op::put(key, value).expecting(Revision::ABSENT)
    }

    /// Puts the value if the key was last modified at `expected`.
    #[must_use]
    pub fn update(key: impl Into<Key>, value: impl Into<Value>, expected: Revision) -> Self {
        Op::put(key, value).expecting(expected)
    }

    /// Deletes the key, if it is there.
    #[must_use]
    pub fn delete(key: impl Into<Key>) -> Self {
        Op { key: key.into(), expected: None, action: Action::Delete }
    }

    /// Only requires that the key was last modified at `expected`.
    #[must_use]
    pub fn check(key: impl Into<Key>, expected: Revision) -> Self {
        Op { key: key.into(), expected: Some(expected), action: Action::Check }
    }

    /// The same with a precondition.
    #[must_use]
    pub fn expecting(mut self, expected: Revision) -> Self {
        self.expected = Some(expected);
        self
    }

    /// The same with a lifetime, when it puts a value.
    #[must_use]
    pub fn expiring(mut self, ttl: Ttl) -> Self {
        if let Action::Put { expires, .. } = &mut self.action {
            *expires = Some(ttl);
        }
        self
    }
}

/// What a successful commit tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The revision that the commit took; when it changed nothing, the one that the store stood at.
    pub revision: Revision,
    /// Whether anything changed.
    pub changed: bool,
}

/// Checks what every engine refuses before it looks at its state. Engines call it first in `commit`.
pub(crate) fn check_ops(ops: &[Op]) -> Result<(), InputError> {
    if ops.len() > MAX_COMMIT_OPS {
        return Err(InputError::TooManyOps { count: ops.len() });
    }
    let mut bytes = 0;
    for op in ops {
        check_key(&op.key)?;
        bytes += op.key.len();
        if let Action::Put { value, .. } = &op.action {
            if value.len() > MAX_VALUE_BYTES {
                return Err(InputError::ValueTooLarge { bytes: value.len() });
            }
            bytes += value.len();
        }
    }
    if bytes > MAX_COMMIT_BYTES {
        return Err(InputError::CommitTooLarge { bytes });
    }
    let mut keys: Vec<&Key> = ops.iter().map(|op| &op.key).collect();
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(InputError::DuplicateKey { key: pair[0].clone() }),
        None => Ok(()),
    }
}

/// Checks a key that is read or written.
pub(crate) fn check_key(key: &Key) -> Result<(), InputError> {
    if key.is_empty() { Err(InputError::EmptyKey) } else { check_prefix(key) }
}

/// Checks a prefix, which may be empty.
pub(crate) fn check_prefix(prefix: &Key) -> Result<(), InputError> {
    if prefix.len() > MAX_KEY_BYTES { Err(InputError::KeyTooLong { bytes: prefix.len() }) } else { Ok(()) }
}

/// Checks the prefix and the start of a range.
pub(crate) fn check_range(range: &Range) -> Result<(), InputError> {
    check_prefix(&range.prefix)?;
    // The least start after the longest key is one byte longer than that.
    let bytes = range.start.len();
    if bytes > MAX_KEY_BYTES + 1 { Err(InputError::KeyTooLong { bytes }) } else { Ok(()) }
}
