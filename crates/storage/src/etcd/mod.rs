//! The `etcd` engine: a client of etcd 3.6, for when one machine is not enough.
//!
//! Keys and values are etcd's keys and values, byte for byte; the one key of its own is the one that kube-apiserver
//! compacts by. Nothing is kept here but connections, a token and leases that can be used again.
//! `docs/designs/0006-etcd-engine.md` says how each promise of [`Store`] follows from what etcd promises.

mod client;
mod commit;
mod compactor;
mod config;
mod lease;
mod portable;
mod read;
mod status;
mod watch;
mod wire;

use std::{
    fmt,
    path::Path,
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio::task::AbortHandle;

pub use config::{EtcdConfig, EtcdTls, EtcdUser};

use crate::{
    Answer, At, CommitError, Committed, ConsistencyHash, Fault, Found, Key, Op, Options, Page, Range, ReadError,
    Revision, SnapshotInfo, Store, Watch, WatchRequest,
};
use client::{Client, SharedClient};
use lease::Leases;

/// The shortest age by which history is compacted.
const MIN_AGE: Duration = Duration::from_secs(1);

/// A store in an etcd. See [`Store`] for what it promises.
///
/// Lifetimes go by etcd's clock, in whole seconds and at least etcd's minimum (two seconds by default); a key whose
/// commit takes longer than a second may go earlier by that much. History is compacted by age alone, in turn with
/// whoever else compacts this etcd. Belongs to the tokio runtime on which it was connected.
pub struct Etcd {
    inner: Arc<Inner>,
    compactor: AbortHandle,
}

struct Inner {
    client: SharedClient,
    options: Options,
    leases: Leases,
    /// How many watches there are.
    watches: Arc<AtomicUsize>,
}

impl Etcd {
    /// Connects, logs in if there is a user, and reads once to see that it can.
    ///
    /// # Errors
    /// When no endpoint can be reached ([`Unreachable`](crate::FaultKind::Unreachable)), certificates or credentials
    /// are not accepted ([`Denied`](crate::FaultKind::Denied)) or the cluster cannot answer
    /// ([`NoQuorum`](crate::FaultKind::NoQuorum), [`TimedOut`](crate::FaultKind::TimedOut)).
    pub async fn connect(config: EtcdConfig, options: Options) -> Result<Self, Fault> {
        let client = Arc::new(Client::new(config, Arc::clone(&options.clock))?);
        client.login(None).await.map_err(status::Failed::into_fault)?;
        let (clock, age) = (Arc::clone(&options.clock), options.retention.age.max(MIN_AGE));
        let inner = Arc::new(Inner { client, options, leases: Leases::default(), watches: Arc::default() });
        match inner.revision().await {
            Ok(_) => {}
            Err(ReadError::Fault(fault)) => return Err(fault),
            Err(error) => unreachable!("the revision cannot be wrong: {error}"),
        }
        let compactor = tokio::spawn(compactor::run(Arc::downgrade(&inner), clock, age)).abort_handle();
        Ok(Etcd { inner, compactor })
    }

    /// Connects to an etcd without keys and puts what a snapshot holds there. Revisions are etcd's own.
    ///
    /// # Errors
    /// As [`connect`](Etcd::connect); when the file cannot be read or is damaged, before anything is written; when
    /// there are keys already ([`Held`](crate::FaultKind::Held)); when a commit fails, after which some keys may be
    /// there.
    pub async fn restore(path: &Path, config: EtcdConfig, options: Options) -> Result<Self, Fault> {
        portable::check(path).await?;
        let etcd = Etcd::connect(config, options).await?;
        etcd.inner.restore(path).await?;
        Ok(etcd)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.compactor.abort();
    }
}

impl Store for Etcd {
    fn revision(&self) -> Answer<'_, Revision, ReadError> {
        Box::pin(self.inner.revision())
    }

    fn get(&self, key: Key, at: At) -> Answer<'_, Found, ReadError> {
        Box::pin(self.inner.get(key, at))
    }

    fn range(&self, range: Range) -> Answer<'_, Page, ReadError> {
        Box::pin(async move { self.inner.range(&range).await })
    }

    fn commit(&self, ops: Vec<Op>) -> Answer<'_, Committed, CommitError> {
        Box::pin(async move { self.inner.commit(&ops).await })
    }

    fn watch(&self, request: WatchRequest) -> Answer<'_, Watch, ReadError> {
        Box::pin(watch::start(&self.inner, request))
    }

    fn compact(&self, revision: Revision) -> Answer<'_, (), ReadError> {
        Box::pin(self.inner.compact(revision))
    }

    fn hash(&self, at: At) -> Answer<'_, ConsistencyHash, ReadError> {
        Box::pin(self.inner.hash(at))
    }

    fn snapshot<'a>(&'a self, path: &'a Path) -> Answer<'a, SnapshotInfo, Fault> {
        Box::pin(self.inner.snapshot(path))
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd").finish_non_exhaustive()
    }
}
