//! Why a read or a watch has no answer.

use std::{error::Error, fmt};

use capstan_storage::{ReadError, Revision};

use super::limits::MAX_WATCHERS;

/// Why a read or a watch has no answer, or no more of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheError {
    /// The revision asked for has not happened, also not within the wait.
    TooLarge {
        /// What was asked for.
        asked: Revision,
        /// Where the store stands.
        current: Revision,
    },
    /// What the revision asked for needs is gone, or the watcher was too slow: list again and go on from there.
    Expired {
        /// What was asked for, or how far the watcher had come.
        asked: Revision,
        /// The earliest revision that is left.
        oldest: Revision,
    },
    /// The cache did not catch up with the store within the wait: try again.
    Behind {
        /// What was to be reached.
        wanted: Revision,
        /// Where the cache stands.
        current: Revision,
    },
    /// [`MAX_WATCHERS`] watch already.
    TooManyWatchers,
    /// The cache was shut down.
    Closed,
    /// The store has no answer.
    Store(ReadError),
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::TooLarge { asked, current } => {
                write!(f, "Too large resource version: {asked}, current: {current}")
            }
            CacheError::Expired { asked, oldest } => write!(f, "too old resource version: {asked} ({oldest})"),
            CacheError::Behind { wanted, current } => {
                write!(f, "the cache is at {current} and did not reach {wanted} in time: retry with a pause")
            }
            CacheError::TooManyWatchers => write!(f, "{MAX_WATCHERS} watches are open: retry with a pause"),
            CacheError::Closed => f.write_str("the cache is shut down"),
            CacheError::Store(error) => error.fmt(f),
        }
    }
}

impl Error for CacheError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            CacheError::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ReadError> for CacheError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Compacted { asked, compacted } => CacheError::Expired { asked, oldest: compacted },
            ReadError::TooNew { asked, current } => CacheError::TooLarge { asked, current },
            other => CacheError::Store(other),
        }
    }
}
