//! Whether the store answers. It is asked when somebody asks for health: an idle server leaves it alone.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use capstan_clock::SharedClock;
use capstan_storage::SharedStore;

/// How long a store that is well may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What the store said when it was last asked.
pub(crate) struct StoreCheck {
    store: SharedStore,
    clock: SharedClock,
    last: Mutex<Result<(), String>>,
}

impl StoreCheck {
    pub(crate) fn new(store: SharedStore, clock: SharedClock) -> Self {
        StoreCheck { store, clock, last: Mutex::new(Ok(())) }
    }

    /// Asks the store.
    pub(crate) async fn ask(&self) {
        let answer = tokio::select! {
            biased;
            answer = self.store.revision() => answer.map(drop).map_err(|error| error.to_string()),
            () = self.clock.sleep(TIMEOUT) => Err("the store does not answer".to_owned()),
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    }

    /// What it said.
    pub(crate) fn last(&self) -> Result<(), String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use capstan_storage::{
        Answer, At, CommitError, Committed, ConsistencyHash, Fault, FaultKind, Found, Key, Memory, Op, Options, Page,
        Range, ReadError, Revision, SnapshotInfo, Store, Watch, WatchRequest,
    };

    use crate::{
        Config, Server,
        authorization::UserInfo,
        http::{Body, Request},
    };

    struct Mortal(Memory, AtomicBool);

    impl Store for Mortal {
        fn revision(&self) -> Answer<'_, Revision, ReadError> {
            if self.1.load(Ordering::Relaxed) {
                return Box::pin(async { Err(Fault::new(FaultKind::Unreachable, "gone").into()) });
            }
            self.0.revision()
        }

        fn get(&self, key: Key, at: At) -> Answer<'_, Found, ReadError> {
            self.0.get(key, at)
        }

        fn range(&self, range: Range) -> Answer<'_, Page, ReadError> {
            self.0.range(range)
        }

        fn commit(&self, ops: Vec<Op>) -> Answer<'_, Committed, CommitError> {
            self.0.commit(ops)
        }

        fn watch(&self, request: WatchRequest) -> Answer<'_, Watch, ReadError> {
            self.0.watch(request)
        }

        fn compact(&self, revision: Revision) -> Answer<'_, (), ReadError> {
            self.0.compact(revision)
        }

        fn hash(&self, at: At) -> Answer<'_, ConsistencyHash, ReadError> {
            self.0.hash(at)
        }

        fn snapshot<'a>(&'a self, path: &'a Path) -> Answer<'a, SnapshotInfo, Fault> {
            self.0.snapshot(path)
        }
    }

    #[tokio::test]
    async fn a_server_without_a_store_is_not_well() {
        let store = Arc::new(Mortal(Memory::new(Options::default()), AtomicBool::new(false)));
        let server = Server::start(Arc::<Mortal>::clone(&store), Config::default()).await.unwrap();
        let check = async |path: &str, expected: u16| {
            let mut request = Request::new(Body::empty());
            *request.uri_mut() = path.parse().unwrap();
            let mut service = server.as_user(UserInfo::new("admin", ["system:masters"]));
            let response = tower_service::Service::call(&mut service, request).await.unwrap();
            assert_eq!(response.status(), expected, "{path}");
        };
        let steps = ["/healthz/poststarthook/crd-informer-synced", "/livez/autoregister-completion"];
        for path in ["/healthz", "/livez", "/readyz", "/readyz/etcd", "/readyz/etcd-readiness"].iter().chain(&steps) {
            check(path, 200).await;
        }
        store.1.store(true, Ordering::Relaxed);
        for path in ["/healthz", "/livez", "/readyz", "/readyz/etcd", "/readyz/etcd-readiness"] {
            check(path, 500).await;
        }
        check(steps[0], 200).await;
        store.1.store(false, Ordering::Relaxed);
        check("/readyz", 200).await;
    }
}
