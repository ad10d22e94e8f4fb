//! Numbers about the server, under upstream's names, for Prometheus to collect.
//!
//! Recording is a few atomic additions behind one lookup; whoever records often on the same labels keeps the series
//! that [`Family::with`] hands out. The number of series is bounded by [`MAX_SERIES`].

mod family;
mod process;
mod request;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

pub use family::{Collect, Counter, Desc, Family, Gauge, Histogram, MAX_SERIES, Metric, OTHER};
pub use process::start_time;
pub use request::{RequestLabels, Requests, dry_run, scope, verb};
pub use text::{CONTENT_TYPE, render};

use crate::http::Response;

const fn desc(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Desc {
    Desc { name, help, labels, bounds: &[] }
}

const fn bounded(mut desc: Desc, bounds: &'static [f64]) -> Desc {
    desc.bounds = bounds;
    desc
}

const ADMISSION: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const STORAGE: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
const WATCH_EVENTS: &[f64] = &[1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131_072.0];
/// Doubling from a millisecond.
const AUTHENTICATION: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

/// Declares the families of the server in one table.
macro_rules! families {
    ($($(#[$doc:meta])+ $field:ident: $kind:ty = $desc:expr;)*) => {
        /// All numbers of a server.
        pub struct Metrics {
            /// Requests by what they ask for.
            pub requests: Requests,
            $($(#[$doc])+ pub $field: Family<$kind>,)*
            start_time: f64,
        }

        impl Metrics {
            /// Metrics that have seen nothing. `start_time` is in seconds since 1970; see [`start_time`].
            #[must_use]
            pub fn new(start_time: f64) -> Self {
                Metrics { requests: Requests::new(), $($field: Family::new($desc),)* start_time }
            }

            fn families(&self) -> Vec<&dyn Collect> {
                let mut all: Vec<&dyn Collect> = self.requests.families().into();
                $(all.push(&self.$field);)*
                all
            }
        }
    };
}

families! {
    /// What is being answered now: `mutating` and `readOnly`.
    inflight: Gauge = desc(
        "apiserver_current_inflight_requests",
        "[STABLE] How many requests were being answered at once, by whether they change something.",
        &["request_kind"],
    );
    /// Watches and connections that are open.
    long_running: Gauge = desc(
        "apiserver_longrunning_requests",
        "[STABLE] How many watches and connections are open.",
        &["component", "group", "resource", "scope", "subresource", "verb", "version"],
    );
    /// Deprecated APIs that somebody has asked for: 1.
    deprecated: Gauge = desc(
        "apiserver_requested_deprecated_apis",
        "[STABLE] Deprecated APIs that have been asked for.",
        &["group", "removed_release", "resource", "subresource", "version"],
    );
    /// Events that were sent to watchers.
    watch_events: Counter = desc(
        "apiserver_watch_events_total",
        "[ALPHA] How many events were sent to watchers.",
        &["group", "resource", "version"],
    );
    /// How long those events were.
    watch_events_sizes: Histogram = bounded(
        desc(
            "apiserver_watch_events_sizes",
            "[ALPHA] How long the events are that were sent to watchers, in bytes.",
            &["group", "resource", "version"],
        ),
        WATCH_EVENTS,
    );
    /// Objects that are stored, by `pods` or `deployments.apps`. Use [`Metrics::set_objects`].
    storage_objects: Gauge = desc(
        "apiserver_storage_objects",
        "[STABLE] (Deprecated since 1.34.0) How many objects are stored; see apiserver_resource_objects.",
        &["resource"],
    );
    /// Objects that are stored. Use [`Metrics::set_objects`].
    resource_objects: Gauge = desc(
        "apiserver_resource_objects",
        "[ALPHA] How many objects are stored.",
        &["group", "resource"],
    );
    /// How long the store took, by operation: `create`, `get`, `update`, `delete`, `list`.
    storage_duration: Histogram = bounded(
        desc(
            "etcd_request_duration_seconds",
            "[ALPHA] How long the store took, in seconds.",
            &["group", "operation", "resource"],
        ),
        STORAGE,
    );
    /// Attempts to authenticate: `success`, `failure`, `error`.
    authentication_attempts: Counter =
        desc("authentication_attempts", "[ALPHA] Attempts to authenticate, by how they ended.", &["result"]);
    /// How long those took.
    authentication_duration: Histogram = bounded(
        desc("authentication_duration_seconds", "[ALPHA] How long authenticating took, in seconds.", &["result"]),
        AUTHENTICATION,
    );
    /// Requests by user; see [`user_label`].
    authenticated_users: Counter =
        desc("authenticated_user_requests", "[ALPHA] Requests of users that were authenticated.", &["username"]);
    /// Decisions of authorizers: `allowed`, `denied`, `no-opinion`, `error`.
    authorization_attempts: Counter =
        desc("authorization_attempts_total", "[ALPHA] Decisions on who may do what, by the decision.", &["result"]);
    /// How long those took.
    authorization_duration: Histogram = bounded(
        desc("authorization_duration_seconds", "[ALPHA] How long the decisions took, in seconds.", &["result"]),
        AUTHENTICATION,
    );
    /// How long a plugin took; `type` is `admit` or `validate`.
    admission_duration: Histogram = bounded(
        desc(
            "apiserver_admission_controller_admission_duration_seconds",
            "[STABLE] How long an admission plugin took, in seconds.",
            &["name", "operation", "rejected", "type"],
        ),
        ADMISSION,
    );
    /// Audit events that were written.
    audit_events: Counter = desc("apiserver_audit_event_total", "[ALPHA] Audit events that were written.", &[]);
    /// Requests by how much of them is audited.
    audit_levels: Counter =
        desc("apiserver_audit_level_total", "[ALPHA] Requests by how much of them is audited.", &["level"]);
    /// Requests that were let through to be executed.
    dispatched: Counter = desc(
        "apiserver_flowcontrol_dispatched_requests_total",
        "[BETA] Requests that were let through to be executed.",
        &["flow_schema", "priority_level"],
    );
    /// Requests that are being executed.
    executing: Gauge = desc(
        "apiserver_flowcontrol_current_executing_requests",
        "[BETA] Requests that are being executed; of watches only the beginning counts.",
        &["flow_schema", "priority_level"],
    );
    /// APIServices whose servers do not answer: 1, and 0 for the others.
    unavailable_api_services: Gauge = desc(
        "aggregator_unavailable_apiservice",
        "[ALPHA] APIServices whose servers do not answer.",
        &["name"],
    );
    /// How often servers of APIServices have stopped to answer, and why.
    api_service_outages: Counter = desc(
        "aggregator_unavailable_apiservice_total",
        "[ALPHA] How often the servers of APIServices have stopped to answer.",
        &["name", "reason"],
    );
    /// Connections that failed before they were encrypted.
    tls_handshake_errors: Counter =
        desc("apiserver_tls_handshake_errors_total", "[ALPHA] Connections that failed in their TLS handshake.", &[]);
}

impl Metrics {
    /// Says how many objects of a resource there are; `None` if the resource is gone.
    pub fn set_objects(&self, group: &str, resource: &str, count: Option<usize>) {
        let joined = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        match count {
            Some(count) => {
                self.storage_objects.with(&[&joined]).set(count as f64);
                self.resource_objects.with(&[group, resource]).set(count as f64);
            }
            None => {
                self.storage_objects.remove(&[&joined]);
                self.resource_objects.remove(&[group, resource]);
            }
        }
    }

    /// Counts a request that begins; it ends when the guard is dropped.
    #[must_use]
    pub fn begin(gauge: &Arc<Gauge>) -> Running {
        gauge.add(1.0);
        Running(Arc::clone(gauge))
    }

    /// All numbers as text, with those of the process.
    #[must_use]
    pub fn text(&self) -> String {
        let process = process::families(self.start_time);
        let mut families = self.families();
        families.extend(process.iter().map(|family| &**family as &dyn Collect));
        render(families)
    }

    /// The answer to `/metrics`.
    #[must_use]
    pub fn answer(&self) -> Response {
        exposition(self.text(), self.start_time)
    }

    /// When the process began, in seconds since 1970.
    #[must_use]
    pub fn start_time(&self) -> f64 {
        self.start_time
    }
}

/// An answer that is metrics.
pub(crate) fn exposition(text: String, start_time: f64) -> Response {
    http::Response::builder()
        .header("cache-control", "no-cache, private")
        .header("content-type", CONTENT_TYPE)
        .header("process-start-time-unix", start_time.round() as i64)
        .body(text.into())
        .expect("all headers are plain text")
}

/// Something that is counted as long as it lives.
#[derive(Debug)]
pub struct Running(Arc<Gauge>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.add(-1.0);
    }
}

/// The label for a user: people are told apart neither here nor upstream, only a few names that are the same everywhere.
#[must_use]
pub fn user_label(name: &str) -> &str {
    match name {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => name,
        _ if name.contains('@') => "email_id",
        _ => OTHER,
    }
}
