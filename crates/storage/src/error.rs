//! What can go wrong, by operation, and what to do about it.

use std::{error::Error, fmt};

use bytes::Bytes;

use crate::{
    Key, KeyValue, Revision,
    limits::{MAX_COMMIT_BYTES, MAX_COMMIT_OPS, MAX_KEY_BYTES, MAX_VALUE_BYTES, MAX_WATCHES},
};

/// Input that no state of the store could accept. Nothing happened; the same again fails again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputError {
    /// A key without bytes.
    EmptyKey,
    /// A key, prefix or start above [`MAX_KEY_BYTES`].
    KeyTooLong {
        /// Its length.
        bytes: usize,
    },
    /// A value above [`MAX_VALUE_BYTES`].
    ValueTooLarge {
        /// Its length.
        bytes: usize,
    },
    /// Keys and values of one commit above [`MAX_COMMIT_BYTES`], or above what the etcd behind takes.
    CommitTooLarge {
        /// Their length together.
        bytes: usize,
    },
    /// More operations than [`MAX_COMMIT_OPS`].
    TooManyOps {
        /// How many.
        count: usize,
    },
    /// Two operations of one commit on the same key.
    DuplicateKey {
        /// The key.
        key: Key,
    },
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InputError::EmptyKey => write!(f, "the key is empty: give at least one byte"),
            InputError::KeyTooLong { bytes } => {
                write!(f, "the key has {bytes} bytes: at most {MAX_KEY_BYTES} are allowed, use a shorter one")
            }
            InputError::ValueTooLarge { bytes } => {
                write!(f, "the value has {bytes} bytes: at most {MAX_VALUE_BYTES} are allowed, split it or store less")
            }
            InputError::CommitTooLarge { bytes } => write!(
                f,
                "the commit has {bytes} bytes: at most {MAX_COMMIT_BYTES} (and with etcd its --max-request-bytes) \
                 are allowed, use several commits"
            ),
            InputError::TooManyOps { count } => {
                write!(
                    f,
                    "the commit has {count} operations: at most {MAX_COMMIT_OPS} are allowed, use several commits"
                )
            }
            InputError::DuplicateKey { key } => {
                write!(f, "the commit has two operations on {}: use one", printable(key))
            }
        }
    }
}

impl Error for InputError {}

/// Why a read, a watch or a compaction has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The revision asked for is before the last compaction (or the watch fell behind it): its state is gone for good.
    Compacted {
        /// What was asked for, or how far the watch had come.
        asked: Revision,
        /// The earliest revision that can still be asked for.
        compacted: Revision,
    },
    /// The revision asked for has not happened, also not within the wait.
    TooNew {
        /// What was asked for.
        asked: Revision,
        /// Where the store stood.
        current: Revision,
    },
    /// The question makes no sense.
    Input(InputError),
    /// The engine cannot answer now.
    Fault(Fault),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Compacted { asked, compacted } => write!(
                f,
                "revision {asked} is no longer kept (the earliest is {compacted}): read the present and go on from there"
            ),
            ReadError::TooNew { asked, current } => write!(
                f,
                "revision {asked} has not happened (the store is at {current}): retry later, or ask whether the \
                 revision came from another store"
            ),
            ReadError::Input(error) => error.fmt(f),
            ReadError::Fault(fault) => fault.fmt(f),
        }
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ReadError::Input(error) => Some(error),
            ReadError::Fault(fault) => Some(fault),
            ReadError::Compacted { .. } | ReadError::TooNew { .. } => None,
        }
    }
}

impl From<InputError> for ReadError {
    fn from(error: InputError) -> Self {
        ReadError::Input(error)
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        ReadError::Fault(fault)
    }
}

/// Why a commit was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// At least one precondition did not hold. Nothing happened.
    Conflict(Conflict),
    /// The commit makes no sense. Nothing happened.
    Input(InputError),
    /// The engine could not commit. Nothing happened and nothing will.
    Fault(Fault),
    /// The engine does not know whether it committed. It happened wholly, or not at all, or will happen wholly a little
    /// later: read (at present) before trying again.
    Uncertain(Fault),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::Conflict(conflict) => conflict.fmt(f),
            CommitError::Input(error) => error.fmt(f),
            CommitError::Fault(fault) => write!(f, "not committed: {fault}"),
            CommitError::Uncertain(fault) => {
                write!(f, "perhaps committed, read before trying again: {fault}")
            }
        }
    }
}

impl Error for CommitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CommitError::Conflict(conflict) => Some(conflict),
            CommitError::Input(error) => Some(error),
            CommitError::Fault(fault) | CommitError::Uncertain(fault) => Some(fault),
        }
    }
}

impl From<InputError> for CommitError {
    fn from(error: InputError) -> Self {
        CommitError::Input(error)
    }
}

/// Preconditions that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The revision of the state that was compared with.
    pub revision: Revision,
    /// Every operation whose precondition did not hold, in order; at least one. All of the one state.
    pub failed: Vec<ConflictingOp>,
}

/// A precondition that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictingOp {
    /// Which operation of the commit, from 0.
    pub index: usize,
    /// What is under its key.
    pub current: Option<KeyValue>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at revision {}:", self.revision)?;
        for (n, ConflictingOp { index, current }) in self.failed.iter().enumerate() {
            let separator = if n == 0 { " " } else { ", " };
            match current {
                Some(item) => {
                    write!(f, "{separator}operation {index} found {} as of {}", printable(&item.key), item.mod_revision)
                }
                None => write!(f, "{separator}operation {index} found no key"),
            }?;
        }
        write!(f, ": decide again from the current values")
    }
}

impl Error for Conflict {}

/// Something outside the caller's hands is wrong: the machine, the disk, the network, the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What, so far as it decides what to do.
    pub kind: FaultKind,
    /// What exactly: the file, the endpoint, the operating system's words.
    pub detail: String,
}

/// The kinds of [`Fault`]; each is worth another reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// No room on the disk, or etcd's quota is used up. Reads go on.
    Full,
    /// The disk or the file system failed.
    Io,
    /// What is stored is not what was written.
    Corrupt,
    /// What was to be opened is something else.
    NotAStore,
    /// Another process holds the store.
    Held,
    /// No endpoint can be reached.
    Unreachable,
    /// The cluster has no leader or no quorum.
    NoQuorum,
    /// The credentials or certificates are not accepted.
    Denied,
    /// No answer within the bound.
    TimedOut,
    /// A queue of the engine is full.
    Busy,
    /// The store was closed, or its task ended.
    Closed,
}

impl FaultKind {
    /// What this is, and what to do next.
    fn advice(self) -> (&'static str, &'static str) {
        match self {
            FaultKind::Full => {
                ("no room is left", "free some or raise the quota; reads go on and writes resume by themselves")
            }
            FaultKind::Io => ("the disk failed", "look at the disk, then restart"),
            FaultKind::Corrupt => {
                ("stored data is damaged", "restore from a snapshot; do not delete the damaged files")
            }
            FaultKind::NotAStore => {
                ("this is not a store that can be opened", "give another directory; nothing in this one was changed")
            }
            FaultKind::Held => ("another process holds the store", "stop it, or use another directory"),
            FaultKind::Unreachable => ("no endpoint can be reached", "check the endpoints and the network; retry"),
            FaultKind::NoQuorum => ("the cluster has no quorum", "bring its members back; retry"),
            FaultKind::Denied => ("access was denied", "check the credentials and certificates"),
            FaultKind::TimedOut => ("no answer came in time", "retry with a pause"),
            FaultKind::Busy => ("too much is under way", "retry with a pause"),
            FaultKind::Closed => ("the store is closed", "open it again"),
        }
    }
}

impl Fault {
    /// A fault of this kind.
    #[must_use]
    pub fn new(kind: FaultKind, detail: impl fmt::Display) -> Self {
        Fault { kind, detail: detail.to_string() }
    }

    /// What the store answers when [`MAX_WATCHES`] are open.
    #[must_use]
    pub fn too_many_watches() -> Self {
        Fault::new(FaultKind::Busy, format_args!("{MAX_WATCHES} watches are open"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, advice) = self.kind.advice();
        write!(f, "{what} ({}): {advice}", self.detail)
    }
}

impl Error for Fault {}

fn printable(key: &Bytes) -> impl fmt::Display {
    format!("\"{}\"", key.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_is_wrong_and_what_to_do() {
        let current = KeyValue { key: "a\0".into(), value: "".into(), mod_revision: Revision(7) };
        let failed =
            vec![ConflictingOp { index: 0, current: Some(current) }, ConflictingOp { index: 2, current: None }];
        let (asked, compacted) = (Revision(3), Revision(5));
        let cases: [(&dyn Error, &str); 6] = [
            (
                &CommitError::Conflict(Conflict { revision: Revision(9), failed }),
                "at revision 9: operation 0 found \"a\\x00\" as of 7, operation 2 found no key: decide again from the \
                 current values",
            ),
            (
                &CommitError::Uncertain(Fault::new(FaultKind::TimedOut, "after 5s")),
                "perhaps committed, read before trying again: no answer came in time (after 5s): retry with a pause",
            ),
            (
                &CommitError::Input(InputError::DuplicateKey { key: "k".into() }),
                "the commit has two operations on \"k\": use one",
            ),
            (
                &ReadError::Compacted { asked, compacted },
                "revision 3 is no longer kept (the earliest is 5): read the present and go on from there",
            ),
            (
                &ReadError::TooNew { asked, current: Revision(2) },
                "revision 3 has not happened (the store is at 2): retry later, or ask whether the revision came from \
                 another store",
            ),
            (
                &ReadError::Input(InputError::ValueTooLarge { bytes: 2_000_000 }),
                "the value has 2000000 bytes: at most 1572864 are allowed, split it or store less",
            ),
        ];
        for (error, expected) in cases {
            assert_eq!(error.to_string(), expected);
        }
    }
}
