//! Every bound of the contract, named.
//!
//! They hold on all engines. An engine's own queues and caches have their bounds beside them.

use std::time::Duration;

/// The largest value: 1.5 MiB, as etcd's.
pub const MAX_VALUE_BYTES: usize = 3 * 512 * 1024;

/// The longest key, and the longest prefix or start of a range. Kubernetes' keys stay below 1 KiB.
pub const MAX_KEY_BYTES: usize = 4 * 1024;

/// The most operations in one commit: etcd's default `--max-txn-ops`.
pub const MAX_COMMIT_OPS: usize = 128;

/// The most bytes of keys and values in one commit. An etcd that was started with a smaller `--max-request-bytes` (1.5
/// MiB for the whole request by default) refuses earlier, with the same error.
pub const MAX_COMMIT_BYTES: usize = 4 * 1024 * 1024;

/// The most items of one page of a range, also when no limit was asked for.
pub const MAX_PAGE_ITEMS: usize = 10_000;

/// A page ends early, with `more` set, once its keys and values reach this many bytes. (One item may go past it. etcd
/// cannot count bytes for us, so its engine may go past it by more.)
pub const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// The most watches that one store serves at a time.
pub const MAX_WATCHES: usize = 100_000;

/// How long a read waits for the revision of [`At::NotOlderThan`](crate::At::NotOlderThan) unless the options say
/// otherwise.
pub const FRESHNESS_WAIT: Duration = Duration::from_secs(3);

/// How long history is kept unless the options say otherwise.
pub const RETENTION_AGE: Duration = Duration::from_secs(5 * 60);

/// How many bytes of superseded keys and values are kept unless the options say otherwise.
pub const RETENTION_BYTES: u64 = 256 * 1024 * 1024;

/// How late an expired key may disappear on a healthy store. (etcd looks for expired leases twice a second and rounds
/// short lifetimes up to its own minimum of about two seconds.)
pub const EXPIRY_LATENESS: Duration = Duration::from_secs(5);

const _: () = assert!(MAX_VALUE_BYTES + MAX_KEY_BYTES <= MAX_COMMIT_BYTES, "the largest value fits a commit");
const _: () = assert!(MAX_COMMIT_BYTES <= PAGE_BYTES, "what one commit writes, one page can read");
