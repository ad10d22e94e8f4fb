//! Whether the server is well: `/healthz`, `/livez`, `/readyz`, and each of their checks on its own.

mod store;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt::Write,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use capstan_api::go;
use http::StatusCode;
pub(crate) use store::StoreCheck;

use crate::{
    http::Response,
    metrics::{self, Counter, Desc, Family, Gauge},
    request::Query,
};

/// A question that is answered with what is wrong, if anything. Asked by requests, so it must neither block nor wait.
pub type Test = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// One of the three paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Kept for clients of old.
    Healthz,
    /// Whether to leave the process alone.
    Livez,
    /// Whether to send it requests.
    Readyz,
}

impl Endpoint {
    /// All of them.
    pub const ALL: [Endpoint; 3] = [Endpoint::Healthz, Endpoint::Livez, Endpoint::Readyz];

    fn name(self) -> &'static str {
        match self {
            Endpoint::Healthz => "healthz",
            Endpoint::Livez => "livez",
            Endpoint::Readyz => "readyz",
        }
    }
}

#[derive(Clone)]
struct Check {
    name: String,
    endpoints: Vec<Endpoint>,
    test: Test,
}

/// The checks, in the order in which they are shown.
pub struct Health {
    checks: RwLock<Vec<Check>>,
    shutting_down: Arc<AtomicBool>,
    last: Family<Gauge>,
    total: Family<Counter>,
    start_time: f64,
}

const LAST: Desc = Desc {
    name: "kubernetes_healthcheck",
    help: "[STABLE] How a health check last went: 1 if it passed.",
    labels: &["name", "type"],
    bounds: &[],
};
const TOTAL: Desc = Desc {
    name: "kubernetes_healthchecks_total",
    help: "[STABLE] How often health checks were made, by how they went.",
    labels: &["name", "status", "type"],
    bounds: &[],
};
const START: Desc = Desc {
    name: "process_start_time_seconds",
    help: "[ALPHA] When the process began, in seconds since 1970.",
    labels: &[],
    bounds: &[],
};

impl Health {
    /// Health with the checks that every server has: `ping` and `log`, and `shutdown` at the end of `/readyz`.
    #[must_use]
    pub fn new(start_time: f64) -> Self {
        let shutting_down = Arc::new(AtomicBool::new(false));
        let health = Health {
            checks: RwLock::default(),
            shutting_down: Arc::clone(&shutting_down),
            last: Family::new(LAST),
            total: Family::new(TOTAL),
            start_time,
        };
        health.add("ping", &Endpoint::ALL, || Ok(()));
        health.add("log", &Endpoint::ALL, || Ok(()));
        health.add(SHUTDOWN, &[Endpoint::Readyz], move || {
            if shutting_down.load(Ordering::Acquire) { Err("process is shutting down".to_owned()) } else { Ok(()) }
        });
        health
    }

    /// Adds a check. It is shown behind those that are there, but before `shutdown`. One of the same name is replaced.
    pub fn add(
        &self,
        name: &str,
        endpoints: &[Endpoint],
        test: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let mut checks = self.checks.write().unwrap_or_else(PoisonError::into_inner);
        let check = Check { name: name.to_owned(), endpoints: endpoints.to_vec(), test: Arc::new(test) };
        if let Some(known) = checks.iter_mut().find(|check| check.name == name) {
            *known = check;
            return;
        }
        let end = checks.len() - usize::from(checks.last().is_some_and(|check| check.name == SHUTDOWN));
        checks.insert(end, check);
    }

    /// Adds `poststarthook/<name>`, a step of the start, which is well once the step has called
    /// [`finish`](Hook::finish).
    #[must_use]
    pub fn start_step(&self, name: &str) -> Hook {
        let hook = Hook(Arc::new(AtomicBool::new(false)));
        let done = Arc::clone(&hook.0);
        self.add(&format!("poststarthook/{name}"), &Endpoint::ALL, move || {
            if done.load(Ordering::Acquire) { Ok(()) } else { Err("not finished".to_owned()) }
        });
        hook
    }

    /// From now on `/readyz` fails: no more requests should come.
    pub fn shut_down(&self) {
        self.shutting_down.store(true, Ordering::Release);
    }

    /// The paths that are answered, for the list at `/`.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
        let mut paths: Vec<_> = Endpoint::ALL.iter().map(|endpoint| format!("/{}", endpoint.name())).collect();
        for check in checks.iter() {
            paths.extend(check.endpoints.iter().map(|endpoint| format!("/{}/{}", endpoint.name(), check.name)));
        }
        paths
    }

    /// Whether a path is one of health.
    #[must_use]
    pub fn is_asked(path: &str) -> bool {
        let first = path.split('/').nth(1).unwrap_or_default();
        Endpoint::ALL.iter().any(|endpoint| endpoint.name() == first)
    }

    /// The answer to a path, whatever the method; `None` if the path is not one of health.
    #[must_use]
    pub fn answer(&self, path: &str, query: &str) -> Option<Response> {
        let path = path.strip_prefix('/')?;
        let (endpoint, name) = match path.split_once('/') {
            Some((endpoint, name)) => (endpoint, Some(name)),
            None => (path, None),
        };
        let endpoint = Endpoint::ALL.into_iter().find(|known| known.name() == endpoint)?;
        let checks: Vec<_> = {
            let checks = self.checks.read().unwrap_or_else(PoisonError::into_inner);
            checks.iter().filter(|check| check.endpoints.contains(&endpoint)).cloned().collect()
        };
        match name {
            None => Some(self.all(endpoint, &checks, &Query::parse(query))),
            Some(name) => checks.iter().find(|check| check.name == name).map(one),
        }
    }

    fn all(&self, endpoint: Endpoint, checks: &[Check], query: &Query<'_>) -> Response {
        let excluded: BTreeSet<_> = query.all("exclude").collect();
        let mut unknown = excluded.clone();
        let (mut out, mut failed) = (String::new(), false);
        for Check { name, test, .. } in checks {
            let line = if excluded.contains(name.as_str()) {
                unknown.remove(name.as_str());
                format!("[+]{name} excluded: ok\n")
            } else if self.run(endpoint, name, test) {
                format!("[+]{name} ok\n")
            } else {
                failed = true;
                // Everybody may read this; what is wrong is told by the single check to those who may ask it.
                format!("[-]{name} failed: reason withheld\n")
            };
            out.push_str(&line);
        }
        if !unknown.is_empty() {
            let names: Vec<_> = unknown.iter().map(|name| go::quote(name)).collect();
            let names = names.join(",");
            writeln!(out, "warn: some health checks cannot be excluded: no matches for {names}")
                .expect("a String takes everything");
        }
        let name = endpoint.name();
        if failed {
            return text(StatusCode::INTERNAL_SERVER_ERROR, true, format!("{out}{name} check failed\n"));
        }
        let body = if query.get("verbose").is_some() { format!("{out}{name} check passed\n") } else { "ok".to_owned() };
        text(StatusCode::OK, true, body)
    }

    fn run(&self, endpoint: Endpoint, name: &str, test: &Test) -> bool {
        let ok = test().is_ok();
        self.last.with(&[name, endpoint.name()]).set(if ok { 1.0 } else { 0.0 });
        self.total.with(&[name, if ok { "success" } else { "error" }, endpoint.name()]).inc();
        ok
    }

    /// The answer to `/metrics/slis`: how the checks went.
    #[must_use]
    pub fn slis(&self) -> Response {
        let start = Family::<Gauge>::new(START);
        start.with(&[]).set(self.start_time);
        metrics::exposition(metrics::render(vec![&self.last, &self.total, &start]), self.start_time)
    }
}

const SHUTDOWN: &str = "shutdown";

/// A step of the start that has not finished until it says so.
#[derive(Clone, Debug)]
pub struct Hook(Arc<AtomicBool>);

impl Hook {
    /// The step is done.
    pub fn finish(&self) {
        self.0.store(true, Ordering::Release);
    }
}

fn one(check: &Check) -> Response {
    match (check.test)() {
        Ok(()) => text(StatusCode::OK, false, "ok".to_owned()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, true, format!("internal server error: {error}\n")),
    }
}

fn text(status: StatusCode, nosniff: bool, body: String) -> Response {
    let mut builder = http::Response::builder()
        .status(status)
        .header("cache-control", "no-cache, private")
        .header("content-type", "text/plain; charset=utf-8");
    if nosniff {
        builder = builder.header("x-content-type-options", "nosniff");
    }
    builder.body(body.into()).expect("all headers are plain text")
}
