//! Events on the real server, on a clock that stands still, over a road that fails.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use capstan_api::options::ListOptions;
use capstan_client::{Body, BoxFuture, Transport};
use capstan_clock::{ManualClock, SeededIds};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use http::{Request, Response};

use super::*;

/// Fails for a while.
struct Faulty {
    client: Client,
    /// What writes that come answer with: `x` nothing comes back, `l` it comes back but the answer is lost.
    faults: Mutex<String>,
    asked: Arc<AtomicUsize>,
}

impl Transport for Faulty {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let client = self.client.clone();
        let write = request.method() != http::Method::GET;
        let fault = write.then(|| self.faults.lock().unwrap().pop()).flatten();
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match fault {
                Some('x') => Err(Error::Transport("connection refused".to_owned())),
                Some('l') => {
                    client.send(request).await?;
                    Err(Error::Transport("connection reset by peer".to_owned()))
                }
                _ => client.send(request).await,
            }
        })
    }
}

struct Setup {
    client: Client,
    faulty: Client,
    asked: Arc<AtomicUsize>,
    clock: ManualClock,
    ids: SharedIds,
}

async fn setup(faults: &str) -> Setup {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    let asked = Arc::new(AtomicUsize::new(0));
    let faults = Mutex::new(faults.chars().rev().collect());
    let faulty = Client::new(Faulty { client: client.clone(), faults, asked: Arc::clone(&asked) });
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    Setup { client, faulty, asked, clock, ids: Arc::new(SeededIds::new(7)) }
}

impl Setup {
    async fn events(&self, group: &'static str) -> Vec<Unstructured> {
        let resource = GroupVersionResource::from_static(group, "v1", "events");
        let events = Api::<Unstructured>::dynamic(&self.client, resource, "");
        events.list(&ListOptions::default()).await.unwrap().items
    }

    fn text(&self, event: &Unstructured, path: &[&str]) -> String {
        event.nested_str(path).unwrap().unwrap_or_default().to_owned()
    }
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference::new("v1", "Pod", "default", name).with_uid("u1")
}

#[tokio::test]
async fn counted() {
    let setup = setup("").await;
    let recorder =
        EventRecorder::for_host(&setup.client, "kubelet", "n1", Arc::new(setup.clock.clone()), Arc::clone(&setup.ids));
    let web = pod("web").with_field_path("spec.containers{web}");
    recorder.event(&web, EventType::Normal, "Pulled", "one");
    recorder.event(&web, EventType::Normal, "Pulled", "one");
    setup.clock.advance(Duration::from_secs(60));
    recorder.event(&web, EventType::Normal, "Pulled", "one");
    recorder.event(&web, EventType::Warning, "BackOff", "two");
    recorder.event(&ObjectReference::new("v1", "Node", "", "n_1"), EventType::Normal, "NodeReady", "ready");
    recorder.flush().await;
    let events = setup.events("").await;
    assert_eq!(events.len(), 3);
    let pulled = events.iter().find(|event| setup.text(event, &["reason"]) == "Pulled").unwrap();
    assert_eq!(pulled.nested_i64(["count"]).unwrap(), Some(3));
    for (path, expected) in [
        (&["metadata", "namespace"][..], "default"),
        (&["involvedObject", "name"], "web"),
        (&["involvedObject", "fieldPath"], "spec.containers{web}"),
        (&["source", "component"], "kubelet"),
        (&["source", "host"], "n1"),
        (&["reportingComponent"], "kubelet"),
        (&["reportingInstance"], "n1"),
        (&["firstTimestamp"], "2026-01-01T00:00:00Z"),
        (&["lastTimestamp"], "2026-01-01T00:01:00Z"),
        (&["message"], "one"),
        (&["type"], "Normal"),
    ] {
        assert_eq!(setup.text(pulled, path), expected, "{path:?}");
    }
    assert!(pulled.name().starts_with("web."));
    let ready = events.iter().find(|event| setup.text(event, &["reason"]) == "NodeReady").unwrap();
    assert_eq!((ready.namespace(), ready.name().len()), ("default", 36), "a name that cannot be is a uid");
    assert_eq!((recorder.dropped(), recorder.rejected()), (0, 0));
}

/// Lets the recorder wait as long as it likes.
async fn flush_over_time(setup: &Setup, recorder: &EventRecorder) {
    let mut flush = Box::pin(recorder.flush());
    let mut ticks = 0;
    std::future::poll_fn(|cx| {
        if flush.as_mut().poll(cx).is_ready() {
            return std::task::Poll::Ready(());
        }
        ticks += 1;
        assert!(ticks < 100_000, "it ends");
        if let Some(next) = setup.clock.next_deadline().filter(|_| ticks % 50 == 0) {
            setup.clock.advance(next.since(setup.clock_now()));
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

impl Setup {
    fn clock_now(&self) -> capstan_clock::Moment {
        capstan_clock::Clock::monotonic(&self.clock)
    }
}

#[tokio::test]
async fn tried_again() {
    // A create that is lost, a create whose answer is lost, a patch that is lost.
    let setup = setup("x.l.x").await;
    let recorder = EventRecorder::new(&setup.faulty, "c", Arc::new(setup.clock.clone()), Arc::clone(&setup.ids));
    recorder.event(&pod("a"), EventType::Normal, "R", "lost");
    recorder.event(&pod("a"), EventType::Normal, "R", "unanswered");
    recorder.event(&pod("a"), EventType::Normal, "R", "lost");
    flush_over_time(&setup, &recorder).await;
    let events = setup.events("").await;
    let mut found: Vec<_> = events
        .iter()
        .map(|event| (setup.text(event, &["message"]), event.nested_i64(["count"]).unwrap().unwrap()))
        .collect();
    found.sort();
    assert_eq!(found, [("lost".to_owned(), 2), ("unanswered".to_owned(), 1)]);
}

#[tokio::test]
async fn given_up() {
    let setup = setup(&"x".repeat(12)).await;
    let recorder = EventRecorder::new(&setup.faulty, "c", Arc::new(setup.clock.clone()), Arc::clone(&setup.ids));
    let nowhere = ObjectReference::new("v1", "Pod", "no-such-namespace", "a");
    recorder.event(&pod("a"), EventType::Normal, "R", "given up");
    recorder.event(&nowhere, EventType::Normal, "R", "refused");
    recorder.event(&pod("a"), EventType::Normal, "R", "written");
    flush_over_time(&setup, &recorder).await;
    let events = setup.events("").await;
    assert_eq!(events.len(), 1);
    assert_eq!(setup.text(&events[0], &["message"]), "written");
    assert_eq!((recorder.rejected(), setup.asked.load(Ordering::SeqCst)), (2, 14));
}

#[tokio::test]
async fn never_waits() {
    let setup = setup("").await;
    let recorder = EventRecorder::new(&setup.client, "c", Arc::new(setup.clock.clone()), Arc::clone(&setup.ids));
    // The task has no chance to run meanwhile.
    for at in 0..MAX_QUEUED_EVENTS + 5 {
        recorder.event(&pod(&format!("p{at}")), EventType::Normal, "R", "m");
    }
    assert_eq!(recorder.dropped(), 5);
}

#[tokio::test]
async fn two_recorders_at_the_same_time() {
    let setup = setup("").await;
    let new = |name| EventRecorder::new(&setup.client, name, Arc::new(setup.clock.clone()), Arc::clone(&setup.ids));
    let recorders = ["a", "b"].map(new);
    for recorder in &recorders {
        recorder.event(&pod("a"), EventType::Normal, "R", "m");
        recorder.event(&pod("a"), EventType::Normal, "R", "m");
        recorder.flush().await;
    }
    let counts: Vec<_> = setup.events("").await.iter().map(|event| event.nested_i64(["count"]).unwrap()).collect();
    assert_eq!(counts, [Some(2), Some(2)]);
}

#[tokio::test]
async fn series() {
    let setup = setup("").await;
    let clock: SharedClock = Arc::new(setup.clock.clone());
    let recorder = EventRecorder::events_v1(&setup.client, "scheduler", "scheduler-1", clock, Arc::clone(&setup.ids));
    let tell = || {
        let node = ObjectReference::new("v1", "Node", "", "n1");
        recorder.eventf(&pod("web"), Some(&node), EventType::Normal, "Scheduled", "Binding", "it goes to n1");
    };
    let count = |event: &Unstructured| event.nested_i64(["series", "count"]).unwrap();
    tell();
    recorder.flush().await;
    let events = setup.events("events.k8s.io").await;
    assert_eq!((events.len(), count(&events[0])), (1, None));
    for (path, expected) in [
        (&["regarding", "name"][..], "web"),
        (&["related", "name"], "n1"),
        (&["action"], "Binding"),
        (&["reportingController"], "scheduler"),
        (&["reportingInstance"], "scheduler-1"),
        (&["eventTime"], "2026-01-01T00:00:00.000000Z"),
        (&["note"], "it goes to n1"),
    ] {
        assert_eq!(setup.text(&events[0], path), expected, "{path:?}");
    }
    tell();
    tell();
    tell();
    recorder.flush().await;
    assert_eq!(count(&setup.events("events.k8s.io").await[0]), Some(2), "the rest is written later");
    // Twice, since the series is looked at from time to time and must have been quiet for as long.
    for _ in 0..2 {
        setup.clock.advance(Duration::from_secs(6 * 60));
        flush_over_time(&setup, &recorder).await;
        while setup.clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
    }
    let events = setup.events("events.k8s.io").await;
    assert_eq!((events.len(), count(&events[0])), (1, Some(4)));
    tell();
    recorder.flush().await;
    assert_eq!(setup.events("events.k8s.io").await.len(), 2, "the series was over");
}

#[tokio::test]
async fn lines_for_tests() {
    let (recorder, mut lines) = EventRecorder::fake(Arc::new(ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())));
    recorder.event(&pod("a"), EventType::Warning, "Failed", "it failed");
    assert_eq!(lines.recv().await.as_deref(), Some("Warning Failed it failed"));
}
