//! What every engine is opened with.

use std::{sync::Arc, time::Duration};

use capstan_clock::{RealClock, SharedClock};

use crate::limits::{FRESHNESS_WAIT, RETENTION_AGE, RETENTION_BYTES};

/// What every engine is opened with; engines have their own settings beside it.
#[derive(Clone, Debug)]
pub struct Options {
    /// What lifetimes, retention and bounded waits go by. (etcd's leases go by etcd's own clock.)
    pub clock: SharedClock,
    /// How much history is kept.
    pub retention: Retention,
    /// How long a read waits for the revision of [`At::NotOlderThan`](crate::At::NotOlderThan).
    pub freshness_wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options::with_clock(Arc::new(RealClock::new()))
    }
}

impl Options {
    /// The usual ones, on this clock.
    #[must_use]
    pub fn with_clock(clock: SharedClock) -> Self {
        Options { clock, retention: Retention::default(), freshness_wait: FRESHNESS_WAIT }
    }
}

/// How much history is kept: whichever bound is reached first compacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// A state is kept for at least so long after it stopped being the present, and not much more than twice as long
    /// while commits go on.
    pub age: Duration,
    /// About how many bytes of superseded keys and values are kept. (etcd does not tell; its engine goes by age alone.)
    pub bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Retention { age: RETENTION_AGE, bytes: RETENTION_BYTES }
    }
}
