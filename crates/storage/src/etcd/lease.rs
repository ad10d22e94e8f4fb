//! Leases for lifetimes: one for many keys that live equally long, within bounds.

use std::time::Duration;

use capstan_clock::Moment;
use tokio::sync::Mutex;

use super::{client::Client, status::Failed, wire::LeaseGrantRequest};
use crate::{Ttl, limits::EXPIRY_LATENESS};

/// A lease is granted this much longer than asked, for the time until the commit, so that no key goes early.
const MARGIN: Duration = Duration::from_secs(1);

/// A lease is used for later keys for at most this long, and for at most a twentieth of the lifetime.
const REUSE: Duration = Duration::from_secs(3);

/// The most keys on one lease: they all go in one commit.
const MAX_KEYS: usize = 1_000;

/// How many leases of different lifetimes are kept for later keys.
const KEPT: usize = 8;

/// How late etcd looks for leases that have ended.
const ETCD_LATENESS: Duration = Duration::from_millis(500);

const _: () = assert!(
    MARGIN.as_millis() + REUSE.as_millis() + ETCD_LATENESS.as_millis() <= EXPIRY_LATENESS.as_millis(),
    "a key on a lease that is used again goes in time"
);

/// The leases that may be used for later keys.
#[derive(Default)]
pub(super) struct Leases {
    kept: Mutex<Vec<Lease>>,
}

struct Lease {
    ttl: Ttl,
    id: i64,
    /// Not before this moment.
    ends: Moment,
    keys: usize,
}

impl Leases {
    /// A lease for so many keys that are put now.
    pub(super) async fn lease(&self, client: &Client, ttl: Ttl, keys: usize) -> Result<i64, Failed> {
        let Some(mut kept) = client.before(client.deadline(), self.kept.lock()).await else {
            return Err(Failed::timed_out("the grant of a lease", false));
        };
        let now = client.clock.monotonic();
        let needed = now.plus(ttl.duration()).plus(MARGIN);
        kept.retain(|lease| lease.ends >= now.plus(lease.ttl.duration()).plus(MARGIN));
        let fits = |lease: &&mut Lease| lease.ttl == ttl && lease.ends >= needed && lease.keys + keys <= MAX_KEYS;
        if let Some(lease) = kept.iter_mut().find(fits) {
            lease.keys += keys;
            return Ok(lease.id);
        }
        let granted = client.call(LeaseGrantRequest { ttl: i64::from(granted_seconds(ttl)) }).await?;
        let seconds = u64::try_from(granted.ttl).unwrap_or(0);
        kept.retain(|lease| lease.ttl != ttl);
        if kept.len() == KEPT {
            kept.remove(0);
        }
        // Counted from before the grant, so that it ends here no later than at etcd.
        kept.push(Lease { ttl, id: granted.id, ends: now.plus(Duration::from_secs(seconds)), keys });
        Ok(granted.id)
    }

    /// Forgets a lease that etcd does not know, or no longer.
    pub(super) async fn forget(&self, id: i64) {
        self.kept.lock().await.retain(|lease| lease.id != id);
    }
}

/// For how many seconds a lease is granted.
fn granted_seconds(ttl: Ttl) -> u32 {
    let reuse = (ttl.0.get() / 20).min(REUSE.as_secs() as u32);
    ttl.0.get().saturating_add(reuse).saturating_add(MARGIN.as_secs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_a_little_longer_than_its_keys() {
        for (ttl, granted) in [(1, 2), (19, 20), (20, 22), (60, 64), (3600, 3604), (u32::MAX, u32::MAX)] {
            assert_eq!(granted_seconds(Ttl::seconds(ttl).expect("not zero")), granted);
        }
    }
}
