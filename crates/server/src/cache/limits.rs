//! Every bound of a cache, named.

use std::time::Duration;

/// How many events a cache remembers for watchers that are behind.
pub const HISTORY_EVENTS: usize = 16 * 1024;

/// About how many bytes of events a cache remembers, objects and frames together. (One commit may go past it.)
pub const HISTORY_BYTES: usize = 16 * 1024 * 1024;

/// How many states a cache keeps for lists that go on page by page.
pub const SNAPSHOTS: usize = 16;

/// How long such a state is kept.
pub const SNAPSHOT_AGE: Duration = Duration::from_secs(5 * 60);

/// How many revisions before the present a new cache begins, so that watchers can resume across a restart.
pub const SEED_REVISIONS: u64 = 1_000;

/// How long a read waits for a revision.
pub const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// How often a watcher that wants bookmarks gets one.
pub const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// How long before a bookmark the store is asked how far it has come.
pub const BOOKMARK_NOTICE: Duration = Duration::from_secs(1);

/// The most watchers of one cache.
pub const MAX_WATCHERS: usize = 100_000;

/// How long a cache pauses after the first fault of the store; twice as long after each further one.
pub const RETRY_FIRST: Duration = Duration::from_millis(50);

/// The longest such pause.
pub const RETRY_LAST: Duration = Duration::from_secs(5);
