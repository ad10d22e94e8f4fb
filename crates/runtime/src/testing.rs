//! For tests: the real server in this process, a road to it that fails, and time that passes as soon as all wait.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{GroupResource, GroupVersionKind, GroupVersionResource, ObjectMeta, Resource, Scope, Status};
use capstan_client::{Body, BoxFuture, Client, Error, Transport};
use capstan_clock::{Clock, Ids, ManualClock, SeededIds};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Method, Request, Response};
use serde::{Deserialize, Serialize};

/// A kind for tests: a ConfigMap or a Secret without its data.
macro_rules! kind {
    ($name:ident, $plural:literal, $data:ident) => {
        #[doc = concat!("A ", stringify!($name), ".")]
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub(crate) struct $name {
            pub(crate) metadata: ObjectMeta,
            pub(crate) $data: BTreeMap<String, String>,
        }

        impl Resource for $name {
            const SCOPE: Scope = Scope::Namespaced;
            type Meta = ObjectMeta;

            fn gvk() -> GroupVersionKind {
                GroupVersionKind::from_static("", "v1", stringify!($name))
            }

            fn gvr() -> GroupVersionResource {
                GroupVersionResource::from_static("", "v1", $plural)
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

kind!(ConfigMap, "configmaps", data);
kind!(Secret, "secrets", string_data);

pub(crate) fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta::namespaced("default", name), ..ConfigMap::default() }
}

pub(crate) fn secret(name: &str) -> Secret {
    Secret { metadata: ObjectMeta::namespaced("default", name), ..Secret::default() }
}

/// A client of a new server.
pub(crate) async fn client() -> Client {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])))
}

pub(crate) fn clock() -> ManualClock {
    ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
}

/// Waits for something, while time passes: whenever nothing has happened for a while, up to the next thing that
/// somebody waits for.
pub(crate) async fn over_time<T>(clock: &ManualClock, wait: impl Future<Output = T>) -> T {
    let mut wait = pin!(wait);
    for turns in 1u32.. {
        let ready = std::future::poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx))).await;
        if let Poll::Ready(answer) = ready {
            return answer;
        }
        assert!(turns < 3_000_000, "it ends");
        tokio::task::yield_now().await;
        if turns % 100 != 0 {
            continue;
        }
        // The server has threads of its own.
        std::thread::yield_now();
        if let Some(next) = clock.next_deadline() {
            // No more than a second at a time: who is busy notices.
            clock.advance(next.since(clock.monotonic()).min(Duration::from_secs(1)));
        }
    }
    unreachable!("it ends or it does not")
}

/// Waits until something is so, while time passes.
pub(crate) async fn until(clock: &ManualClock, mut is: impl FnMut() -> bool) {
    over_time(clock, std::future::poll_fn(|_| if is() { Poll::Ready(()) } else { Poll::Pending })).await;
}

/// A road that fails: one of `odds` requests, in one of many ways.
pub(crate) struct Faulty {
    client: Client,
    clock: ManualClock,
    ids: Arc<SeededIds>,
    odds: u64,
    pub(crate) on: Arc<AtomicBool>,
    pub(crate) faults: Arc<AtomicUsize>,
}

impl Faulty {
    pub(crate) fn new(client: &Client, clock: &ManualClock, seed: u64, odds: u64) -> Self {
        let ids = Arc::new(SeededIds::new(seed));
        let (on, faults) = (Arc::new(AtomicBool::new(true)), Arc::default());
        Faulty { client: client.clone(), clock: clock.clone(), ids, odds, on, faults }
    }
}

impl Transport for Faulty {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let (client, clock) = (self.client.clone(), self.clock.clone());
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let is_write = request.method() != Method::GET;
        let fails = self.on.load(Ordering::SeqCst) && self.ids.below(self.odds) == 0;
        let (which, slow) = (self.ids.below(7), self.ids.below(20));
        self.faults.fetch_add(usize::from(fails), Ordering::SeqCst);
        // Watches do not last for ever even when nothing fails.
        let lasts = if self.on.load(Ordering::SeqCst) { self.ids.below(30) as usize } else { usize::MAX };
        Box::pin(async move {
            if fails {
                match which {
                    0 => return Err(Error::Transport("connection refused".to_owned())),
                    1 => return Err(Status::internal_error("a fault").into()),
                    2 => return Err(Status::too_many_requests("slow down", 1).into()),
                    3 if !is_write => return Err(Status::resource_expired("too old resource version").into()),
                    3 => return Err(Status::conflict(&GroupResource::new("", "things"), "a", "a fault").into()),
                    4 => {
                        client.send(request).await?;
                        return Err(Error::Transport("connection reset by peer".to_owned()));
                    }
                    _ => clock.sleep(Duration::from_secs(slow)).await,
                }
            }
            let response = client.send(request).await?;
            Ok(response.map(|body| if is_watch { Body::new(Cut { body, left: lasts }) } else { body }))
        })
    }
}

/// A body that breaks off.
struct Cut {
    body: Body,
    left: usize,
}

impl http_body::Body for Cut {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.body.poll_chunk(cx).map(|chunk| chunk.transpose().map(|chunk| chunk.map(http_body::Frame::data)))
    }
}
