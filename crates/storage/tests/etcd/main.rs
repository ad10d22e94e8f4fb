//! The etcd engine keeps the contract, on real etcd.
//!
//! One etcd serves one store at a time and then, emptied and compacted, the next: revisions and compaction belong to
//! the whole of it. How many are started is how many stores live at a time.

#![cfg(feature = "etcd")]
#![expect(
    clippy::unwrap_used,
    reason = "only functions marked as tests are known as such, and these are files of them"
)]

mod faults;
mod process;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use capstan_storage::{
    Answer, Etcd, EtcdConfig, Fault, FaultKind, Op, Options, Range, SharedStore, Store,
    conformance::{Engine, model},
};
use process::Cluster;

/// More keys than these are not worth deleting one by one: the etcd is replaced.
const MANY_KEYS: u64 = 2_000;

/// An etcd and the store that uses it, or did.
struct Lent {
    etcd: Cluster,
    store: Weak<Etcd>,
    /// The directory of the case, which goes with it; until then the store may be opened again.
    directory: PathBuf,
    clean: bool,
}

static LENT: Mutex<Vec<Lent>> = Mutex::new(Vec::new());

#[derive(Clone)]
struct OnEtcd {
    etcd: PathBuf,
}

fn engine() -> Option<OnEtcd> {
    process::binary().map(|etcd| OnEtcd { etcd })
}

fn config(endpoint: &str) -> EtcdConfig {
    // A new process takes a moment to listen, longer while others are built and tested.
    EtcdConfig {
        retry_for: Duration::from_secs(30),
        request_timeout: Duration::from_secs(30),
        ..EtcdConfig::new([endpoint])
    }
}

impl OnEtcd {
    /// An etcd without keys that nobody uses.
    async fn take(&self, directory: &Path) -> Lent {
        loop {
            let free = {
                let mut lent = LENT.lock().unwrap();
                let free = lent.iter().position(|lent| lent.store.strong_count() == 0 && !lent.directory.exists());
                free.map(|free| lent.swap_remove(free))
            };
            let Some(mut lent) = free else {
                let etcd = Cluster::start(&self.etcd, 1, "http", &["--max-request-bytes=8388608"]);
                return Lent { etcd, store: Weak::new(), directory: directory.to_owned(), clean: true };
            };
            if lent.clean || empty(&lent.etcd.endpoints[0]).await {
                lent.clean = true;
                lent.directory = directory.to_owned();
                return lent;
            }
        }
    }

    /// Lends it to the store, or takes it back untouched.
    fn lend(&self, mut lent: Lent, opened: Result<Etcd, Fault>) -> Result<SharedStore, Fault> {
        let opened = opened.map(Arc::new);
        match &opened {
            Ok(store) => (lent.store, lent.clean) = (Arc::downgrade(store), false),
            Err(fault) => {
                lent.directory = PathBuf::new();
                // A file that cannot be read is refused before etcd is asked.
                lent.clean &= matches!(fault.kind, FaultKind::Corrupt | FaultKind::Io);
            }
        }
        LENT.lock().unwrap().push(lent);
        opened.map(|store| store as SharedStore)
    }
}

/// Deletes all keys and history; gives up when there are many.
async fn empty(endpoint: &str) -> bool {
    let store = Etcd::connect(config(endpoint), Options::default()).await.expect("etcd goes on");
    loop {
        let page = store.range(Range::default().limited(128).counted()).await.unwrap();
        if page.count.unwrap() > MANY_KEYS {
            return false;
        }
        if page.items.is_empty() {
            store.compact(page.revision).await.unwrap();
            return true;
        }
        store.commit(page.items.into_iter().map(|item| Op::delete(item.key)).collect()).await.unwrap();
    }
}

impl Engine for OnEtcd {
    fn open(&self, directory: &Path, options: Options) -> Answer<'_, SharedStore, Fault> {
        let directory = directory.to_owned();
        Box::pin(async move {
            let lent = self.take(&directory).await;
            let opened = Etcd::connect(config(&lent.etcd.endpoints[0]), options).await;
            self.lend(lent, opened)
        })
    }

    fn restore(&self, snapshot: &Path, directory: &Path, options: Options) -> Answer<'_, SharedStore, Fault> {
        let (snapshot, directory) = (snapshot.to_owned(), directory.to_owned());
        Box::pin(async move {
            let lent = self.take(&directory).await;
            let opened = Etcd::restore(&snapshot, config(&lent.etcd.endpoints[0]), options).await;
            self.lend(lent, opened)
        })
    }

    fn reopen(&self, directory: &Path, options: Options) -> Option<Answer<'_, SharedStore, Fault>> {
        let mut lent = LENT.lock().unwrap();
        let at = lent.iter().position(|lent| lent.directory == directory).expect("it was open before");
        let lent = lent.swap_remove(at);
        Some(Box::pin(async move {
            let opened = Etcd::connect(config(&lent.etcd.endpoints[0]), options).await;
            self.lend(lent, opened)
        }))
    }

    fn virtual_time(&self) -> bool {
        false
    }

    fn compacts_by_size(&self) -> bool {
        false
    }

    fn restores_revisions(&self) -> bool {
        false
    }
}

capstan_storage::conformance_tests!(match engine() {
    Some(engine) => engine,
    None => return,
});

#[test]
fn random_operations_agree_with_the_model() {
    if let Some(engine) = engine() {
        model::check(engine, 64);
    }
}
