//! What is between a reconciler and the server: requests are counted, and nobody writes who does not lead.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use capstan_client::{
    Body, BoxFuture, Client, Error, Transport,
    beat::{Either, race},
    transport::SharedTransport,
};
use capstan_clock::{SharedClock, SharedIds};
use http::{Request, Response};

use crate::{
    leader_election::Leadership,
    metrics::{Families, Histogram, Registry},
};

/// The upper bounds of the buckets of durations, in seconds.
const BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

#[derive(Default)]
struct Counts {
    /// Whose answers these are.
    host: String,
    /// By what was answered, and by the method.
    requests: BTreeMap<(String, String), u64>,
    took: BTreeMap<String, Histogram>,
}

impl Counts {
    fn collect(&self, families: &mut Families) {
        for ((code, method), count) in &self.requests {
            let labels = &[("code", &**code), ("host", &*self.host), ("method", &**method)];
            families.counter("rest_client_requests_total", "Requests by what was answered.", labels, *count);
        }
        for (verb, took) in &self.took {
            let labels = &[("host", &*self.host), ("verb", &**verb)];
            let help = "Seconds until the answer began.";
            families.histogram("rest_client_request_duration_seconds", help, labels, took);
        }
    }
}

/// What is told to those who would write and do not lead.
const LOST: &str = "leader election lost: only the leader writes";

struct Watched {
    road: SharedTransport,
    clock: SharedClock,
    counts: Arc<Mutex<Counts>>,
    leadership: Option<Leadership>,
}

/// Makes clients whose requests are counted together.
pub(super) struct Requests {
    client: Client,
    clock: SharedClock,
    counts: Arc<Mutex<Counts>>,
}

impl Requests {
    /// Clients like this one, on this clock.
    pub(super) fn new(client: &Client, clock: &SharedClock, ids: &SharedIds, registry: &Registry) -> Self {
        let counts = Counts { host: client.host().to_owned(), ..Counts::default() };
        let counts = Arc::new(Mutex::new(counts));
        let shown = Arc::clone(&counts);
        registry.register(move |families| shown.lock().unwrap_or_else(PoisonError::into_inner).collect(families));
        let client = client.with_clock(Arc::clone(clock), Arc::clone(ids));
        Requests { client, clock: Arc::clone(clock), counts }
    }

    /// A client whose requests are counted. With a `leadership` it writes only while that lasts.
    pub(super) fn client(&self, leadership: Option<Leadership>) -> Client {
        let (clock, counts) = (Arc::clone(&self.clock), Arc::clone(&self.counts));
        self.client.with_transport(|road| Watched { road, clock, counts, leadership })
    }
}

impl Transport for Watched {
    fn host(&self) -> &str {
        self.road.host()
    }

    fn send(&self, request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let leadership = self.leadership.clone().filter(|_| !request.method().is_safe());
        let lost = || Error::Transport(LOST.to_owned());
        if leadership.as_ref().is_some_and(|leadership| !leadership.is_leader()) {
            return Box::pin(std::future::ready(Err(lost())));
        }
        let (clock, counts) = (Arc::clone(&self.clock), Arc::clone(&self.counts));
        let (method, begun) = (request.method().as_str().to_owned(), clock.monotonic());
        let send = self.road.send(request);
        Box::pin(async move {
            let answer = match leadership {
                None => send.await,
                // One that still waits for a connection when the term ends is not to be sent.
                Some(leadership) => match race(send, leadership.lost()).await {
                    Either::First(answer) => answer,
                    Either::Second(()) => Err(lost()),
                },
            };
            let code = match &answer {
                Ok(response) => response.status().as_str().to_owned(),
                Err(_) => "<error>".to_owned(),
            };
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.requests.entry((code, method.clone())).or_default() += 1;
            let took = counts.took.entry(method).or_insert_with(|| Histogram::new(BUCKETS));
            took.observe(clock.monotonic().since(begun));
            drop(counts);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use capstan_api::Status;
    use capstan_client::Patch;
    use capstan_clock::{Clock as _, SeededIds};

    use super::*;
    use crate::testing::{ConfigMap, clock, over_time};

    /// Always asks to wait for five seconds, and counts.
    struct Busy(Arc<AtomicUsize>);

    impl Transport for Busy {
        fn send(&self, _: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            let text = serde_json::to_string(&Status::too_many_requests("slow down", 5)).unwrap();
            let body = Body::new(http_body_util::Full::new(Bytes::from(text)));
            let answer = Response::builder().status(429).header("retry-after", "5").body(body).unwrap();
            Box::pin(std::future::ready(Ok(answer)))
        }
    }

    #[tokio::test]
    async fn each_attempt_is_the_leaders_and_as_the_owner_of_the_client_wants_it() {
        let clock = clock();
        let shared: SharedClock = Arc::new(clock.clone());
        let sent = Arc::new(AtomicUsize::new(0));
        let user = Client::new(Busy(Arc::clone(&sent)));
        let until = Some(clock.monotonic().plus(Duration::from_secs(7)));
        let write = async |client: &Client, leads| {
            sent.store(0, Ordering::SeqCst);
            let ids: SharedIds = Arc::new(SeededIds::new(1));
            let requests = Requests::new(client, &shared, &ids, &Registry::default());
            let (_term, leadership) = Leadership::fixed(Arc::clone(&shared), if leads { until } else { None });
            let maps = capstan_client::Api::<ConfigMap>::namespaced(&requests.client(Some(leadership)), "default");
            let wrote = over_time(&clock, maps.patch("a", &Patch::Merge(()))).await;
            (wrote.unwrap_err().to_string(), sent.load(Ordering::SeqCst))
        };
        assert_eq!(write(&user, false).await, (LOST.to_owned(), 0));
        let (error, attempts) = write(&user.with_max_retries(0), true).await;
        assert!(error.contains("slow down") && attempts == 1, "{error} after {attempts}");
        // The term ends between the second attempt and the third.
        assert_eq!(write(&user, true).await, (LOST.to_owned(), 2));
    }
}
