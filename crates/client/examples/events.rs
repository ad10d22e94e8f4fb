//! What an event costs an informer, from the bytes of a watch to its handler, without a connection:
//! `cargo run --release -p capstan-client --example events -- 200000`.
//!
//! Pods of 4 KB change one after the other, as protobuf; the handler wants to see each. What reading such a pod costs
//! alone is printed beside it.

#[expect(dead_code, reason = "of what examples share this one needs the pods alone")]
mod pods;

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, builtin,
    object::{Encoded, Object as _},
    options::ListOptions,
    protobuf,
    watch_event::{EventType, WatchEvent},
};
use capstan_client::{
    BoxFuture, Error, HandlerFuncs, ListPage, ListerWatcher, SharedIndexInformer, Watch, WatchStream,
    reflector::machine::Config,
};
use capstan_clock::{Clock as _, ManualClock, RealClock, SeededIds};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Notify;

/// How many pods there are.
const PODS: usize = 1_000;

/// How many events may be on their way to the handler.
const LEAD: usize = 100;

/// Pods as messages in their envelopes, and how many events there are to be.
#[derive(Debug)]
struct Changes {
    pods: Arc<[Bytes]>,
    events: usize,
    /// How often the handler was told of something.
    heard: Arc<AtomicUsize>,
}

impl ListerWatcher for Changes {
    fn list(&self, _: ListOptions) -> BoxFuture<'_, Result<ListPage, Error>> {
        Box::pin(async {
            Ok(ListPage {
                item_kind: Some(GroupVersionKind::new("", "v1", "Pod")),
                resource_version: "1".to_owned(),
                items: self.pods.to_vec(),
                ..ListPage::default()
            })
        })
    }

    fn watch(&self, _: ListOptions) -> BoxFuture<'_, Result<WatchStream, Error>> {
        let frames =
            self.pods.iter().map(|pod| Bytes::from(protobuf::watch_frame(EventType::Modified, pod)).slice(4..));
        let heard = Arc::clone(&self.heard);
        let watch = Frames { frames: frames.collect(), at: 0, events: self.events, rest: false, heard };
        Box::pin(async { Ok(WatchStream::new(watch)) })
    }
}

/// A watch on which one event comes at a time.
struct Frames {
    frames: Vec<Bytes>,
    at: usize,
    events: usize,
    /// Whether there is nothing just now: others see what came before the next one comes.
    rest: bool,
    heard: Arc<AtomicUsize>,
}

impl Watch for Frames {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<WatchEvent<Bytes>, Error>>> {
        if self.at == self.events {
            return Poll::Pending;
        }
        self.rest = !self.rest;
        // What changes before the handler has heard of it, or of its last change, would be no event to it.
        let (heard, pods) = (self.heard.load(Ordering::Relaxed), self.frames.len());
        if self.rest || heard < pods || heard + LEAD < pods + self.at {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let frame = &self.frames[self.at % self.frames.len()];
        self.at += 1;
        let event = protobuf::watch_event(frame)
            .map(|event| WatchEvent { event_type: event.event_type, object: frame.slice_ref(event.object) });
        Poll::Ready(Some(event.map_err(|error| Error::Decode(error.to_string()))))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let events: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let kind = GroupVersionKind::new("", "v1", "Pod");
    let schema = builtin::schema(&kind).expect("Pod is built in");
    let message = |at: usize| {
        let pod = schema.decode(pods::pod(at).as_bytes()).expect("it is a Pod").value;
        Bytes::from(protobuf::encode_object(&kind, &schema, &pod))
    };
    let pods: Arc<[Bytes]> = (0..PODS).map(message).collect();
    let clock = RealClock::new();
    let per_event = |begun: capstan_clock::Moment| clock.monotonic().since(begun).as_nanos() as usize / events;

    let begun = clock.monotonic();
    for at in 0..events {
        let encoded = Encoded::new(&pods[at % PODS]).without_managed_fields();
        black_box(Pod::decode(encoded, None).expect("it is a Pod"));
    }
    println!("a pod of {} bytes read: {} ns", pods[0].len(), per_event(begun));

    let manual = Arc::new(ManualClock::at("2026-01-01T00:00:00Z".parse().expect("it is a time")));
    let config = Config { no_managed_fields: true, no_watch_list: true, ..Config::default() };
    let heard = Arc::new(AtomicUsize::new(0));
    let source = Arc::new(Changes { pods, events, heard: Arc::clone(&heard) });
    let informer = SharedIndexInformer::<Pod>::new(source, config, manual, Arc::new(SeededIds::new(1)));
    informer.compact();
    let told = Arc::new(Notify::new());
    let (listed, tell) = (Arc::clone(&heard), Arc::clone(&told));
    let handler = HandlerFuncs::<Pod>::new()
        .on_add_key(move |_, _| {
            listed.fetch_add(1, Ordering::Relaxed);
        })
        .on_change(move |pod| {
            black_box(pod);
            if heard.fetch_add(1, Ordering::Relaxed) + 1 == PODS + events {
                tell.notify_one();
            }
        });
    informer.add_event_handler(handler);
    let begun = clock.monotonic();
    let running = informer.clone();
    let task = tokio::spawn(async move { running.run().await });
    told.notified().await;
    println!("{events} events: {} ns each", per_event(begun));
    task.abort();
}
