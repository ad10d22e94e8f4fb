//! What is between a reconciler and the server: requests are counted, and nobody writes who does not lead.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use capstan_client::{Body, BoxFuture, Client, Error, Transport};
use capstan_clock::SharedClock;
use http::{Method, Request, Response, header};

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

struct Watched {
    client: Client,
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
    pub(super) fn new(client: &Client, clock: &SharedClock, registry: &Registry) -> Self {
        let counts = Counts { host: client.host().to_owned(), ..Counts::default() };
        let counts = Arc::new(Mutex::new(counts));
        let shown = Arc::clone(&counts);
        registry.register(move |families| shown.lock().unwrap_or_else(PoisonError::into_inner).collect(families));
        Requests { client: client.clone(), clock: Arc::clone(clock), counts }
    }

    /// A client whose requests are counted. With a `leadership` it writes only while that lasts.
    pub(super) fn client(&self, leadership: Option<Leadership>) -> Client {
        let (clock, counts) = (Arc::clone(&self.clock), Arc::clone(&self.counts));
        Client::new(Watched { client: self.client.clone(), clock, counts, leadership })
            .with_default_namespace(self.client.default_namespace())
            .with_protobuf(self.client.protobuf())
    }
}

impl Transport for Watched {
    fn host(&self) -> &str {
        self.client.host()
    }

    fn send(&self, mut request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        if let Some(leadership) = &self.leadership
            && request.method() != Method::GET
            && !leadership.is_leader()
        {
            let refused = Error::Transport("leader election lost: only the leader writes".to_owned());
            return Box::pin(std::future::ready(Err(refused)));
        }
        // The client below has the name that its owner gave it.
        request.headers_mut().remove(header::USER_AGENT);
        let (client, clock, counts) = (self.client.clone(), Arc::clone(&self.clock), Arc::clone(&self.counts));
        Box::pin(async move {
            let (method, begun) = (request.method().as_str().to_owned(), clock.monotonic());
            let answer = client.send(request).await;
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
