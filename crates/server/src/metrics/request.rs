//! What is recorded of each request that a handler has answered.

use std::{sync::Arc, time::Duration};

use http::StatusCode;

use super::family::{Collect, Counter, Desc, Family, Histogram, Interned, OTHER};
use crate::request::{Query, RequestInfo};

const DURATIONS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];
const SIZES: &[f64] = &[1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9];
/// The verbs that are told apart.
const VERBS: [&str; 14] = [
    "APPLY",
    "CONNECT",
    "CREATE",
    "DELETE",
    "DELETECOLLECTION",
    "GET",
    "LIST",
    "PATCH",
    "POST",
    "PROXY",
    "PUT",
    "UPDATE",
    "WATCH",
    "WATCHLIST",
];
/// The subresources that are connections.
const CONNECTIONS: [&str; 5] = ["log", "exec", "portforward", "attach", "proxy"];
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Whether a request is about one object, a namespace or the cluster; empty for paths that are no resource's.
#[must_use]
pub fn scope(info: &RequestInfo) -> &'static str {
    if !info.name.is_empty() || info.verb == "create" {
        "resource"
    } else if !info.namespace.is_empty() {
        "namespace"
    } else if info.is_resource_request {
        "cluster"
    } else {
        ""
    }
}

/// The verb that metrics show: the HTTP method, but that lists, watches, applies and connections have their own.
#[must_use]
pub fn verb(method: &str, content_type: &str, query: &Query<'_>, info: &RequestInfo) -> &'static str {
    let method = VERBS.iter().chain(&["HEAD"]).find(|verb| verb.eq_ignore_ascii_case(method)).copied().unwrap_or(OTHER);
    let canonical = match method {
        "GET" | "HEAD" if !matches!(scope(info), "resource" | "") => "LIST",
        "GET" | "HEAD" => "GET",
        method => method,
    };
    let watches = |value: &str| value != "0" && !value.eq_ignore_ascii_case("false");
    if info.is_resource_request && CONNECTIONS.contains(&info.subresource.as_str()) {
        "CONNECT"
    } else if canonical == "PATCH" && content_type == APPLY_PATCH {
        "APPLY"
    // `/api/v1/watch/pods` is a watch without a parameter.
    } else if canonical == "WATCHLIST"
        || matches!(method, "GET" | "LIST") && query.get("watch").is_some_and(watches)
        || info.is_resource_request && matches!(info.verb.as_str(), "watch" | "watchlist")
    {
        "WATCH"
    } else {
        canonical
    }
}

/// The `dry_run` label: `All`, `invalid`, or empty.
#[must_use]
pub fn dry_run(query: &Query<'_>) -> &'static str {
    if query.get("dryRun").is_none() {
        ""
    } else if query.all("dryRun").all(|value| value == "All") {
        "All"
    } else {
        "invalid"
    }
}

/// What tells requests apart. Group, version, resource and subresource must be of something that is served: requests
/// for anything else are not recorded upstream either.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestLabels<'a> {
    /// As [`verb`] has it.
    pub verb: &'a str,
    /// As [`dry_run`] has it.
    pub dry_run: &'a str,
    /// The API group.
    pub group: &'a str,
    /// The version.
    pub version: &'a str,
    /// The resource.
    pub resource: &'a str,
    /// The subresource; for health checks their path.
    pub subresource: &'a str,
    /// As [`scope`] has it.
    pub scope: &'a str,
    /// `apiserver`; empty for health checks and OpenAPI.
    pub component: &'a str,
}

impl<'a> RequestLabels<'a> {
    /// The labels of a request for a resource that is served.
    #[must_use]
    pub fn resource(info: &'a RequestInfo, verb: &'a str, dry_run: &'a str) -> Self {
        RequestLabels {
            verb,
            dry_run,
            group: &info.api_group,
            version: &info.api_version,
            resource: &info.resource,
            subresource: &info.subresource,
            scope: scope(info),
            component: "apiserver",
        }
    }

    /// The labels of a path that is no resource's: `/readyz`, `openapi/v3`.
    #[must_use]
    pub fn path(verb: &'a str, path: &'a str) -> Self {
        RequestLabels { verb, subresource: path, ..RequestLabels::default() }
    }
}

const fn without_code(name: &'static str, help: &'static str, bounds: &'static [f64]) -> Desc {
    Desc { name, help, labels: &["component", "group", "resource", "scope", "subresource", "verb", "version"], bounds }
}

const TOTAL: Desc = Desc {
    name: "apiserver_request_total",
    help: "[STABLE] Requests that were answered, by what they asked for and the status of the answer.",
    labels: &["code", "component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"],
    bounds: &[],
};
const DURATION: Desc = Desc {
    name: "apiserver_request_duration_seconds",
    help: "[STABLE] How long requests took, in seconds.",
    labels: &["component", "dry_run", "group", "resource", "scope", "subresource", "verb", "version"],
    bounds: DURATIONS,
};
const SLI: Desc = without_code(
    "apiserver_request_sli_duration_seconds",
    "[ALPHA] How long requests took without what others than the server took, in seconds.",
    DURATIONS.split_at(2).1,
);
const RESPONSE_SIZES: Desc =
    without_code("apiserver_response_sizes", "[STABLE] How long the answers to reads are, in bytes.", SIZES);

/// The series of one set of labels.
struct Series {
    total: Arc<Counter>,
    duration: Arc<Histogram>,
    /// None for dry runs.
    sli: Option<Arc<Histogram>>,
    /// None but for reads.
    sizes: Option<Arc<Histogram>>,
}

/// Counters and histograms of requests, found by one lookup that allocates nothing.
pub struct Requests {
    total: Family<Counter>,
    duration: Family<Histogram>,
    sli: Family<Histogram>,
    sizes: Family<Histogram>,
    series: Interned<Series>,
}

impl Requests {
    pub(super) fn new() -> Self {
        Requests {
            total: Family::new(TOTAL),
            duration: Family::new(DURATION),
            sli: Family::new(SLI),
            sizes: Family::new(RESPONSE_SIZES),
            series: Interned::new(),
        }
    }

    pub(super) fn families(&self) -> [&dyn Collect; 4] {
        [&self.total, &self.duration, &self.sli, &self.sizes]
    }

    /// Records an answer: its status, its length, how long it took, and how much of that others took, such as webhooks.
    pub fn record(&self, labels: &RequestLabels<'_>, code: StatusCode, size: usize, took: Duration, others: Duration) {
        let RequestLabels { verb, dry_run, group, version, resource, subresource, scope, component } = *labels;
        let key = [code.as_str(), component, dry_run, group, resource, scope, subresource, verb, version];
        let act = |series: &Arc<Series>| {
            series.total.inc();
            series.duration.observe(took.as_secs_f64());
            if let Some(sli) = &series.sli {
                sli.observe(took.saturating_sub(others).as_secs_f64());
            }
            if let Some(sizes) = &series.sizes {
                sizes.observe(size as f64);
            }
        };
        self.series.with(&key, |key| self.make(key), act);
    }

    fn make(&self, key: &[&str]) -> Series {
        let [_, component, dry_run, group, resource, scope, subresource, verb, version] = *key else {
            unreachable!("a key has as many labels as the counter");
        };
        let without_code = [component, group, resource, scope, subresource, verb, version];
        Series {
            total: self.total.with(key),
            duration: self.duration.with(&key[1..]),
            sli: dry_run.is_empty().then(|| self.sli.with(&without_code)),
            sizes: matches!(verb, "GET" | "LIST").then(|| self.sizes.with(&without_code)),
        }
    }
}
