//! Who did what and when: audit events, as the policy asks for them.
//!
//! Without a policy there is nothing here but the `Audit-Id` of a request. With one, [`Audit::begin`] says for each
//! request how much of it is recorded; the road then tells the `Record` what it learns, which is written at each stage.

mod event;
mod log;
mod policy;
mod record;
mod request;
#[cfg(test)]
mod road_tests;
#[cfg(test)]
mod tests;

use std::{io, sync::Arc};

use capstan_api::{MicroTime, Time};
use capstan_clock::{Ids, SharedClock};
pub use event::Event;
use http::{HeaderMap, HeaderName, HeaderValue};
pub use log::{LogConfig, LogFile};
pub use policy::{Config, Level, Policy, PolicyError, Stage, Stages};
pub(crate) use record::Record;
pub use request::{source_ips, user_agent};

use crate::{
    authorization::Attributes,
    metrics::{Counter, Metrics},
};

/// The header that names a request, in both directions.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The id of a request: what the client says, as it is, else a new uid.
#[must_use]
pub fn audit_id(headers: &HeaderMap, ids: &dyn Ids) -> HeaderValue {
    match headers.get(AUDIT_ID) {
        Some(id) if !id.is_empty() => id.clone(),
        _ => HeaderValue::from_str(&ids.uid()).expect("a uid is plain text"),
    }
}

/// Where events go, one line of JSON each.
pub trait Sink: Send + Sync {
    /// Writes a line, which has its newline. Returns when it is written.
    ///
    /// # Errors
    /// When it could not be written.
    fn write(&self, line: &[u8]) -> io::Result<()>;
}

/// What is recorded of requests, and where that goes.
pub type Recording = (Policy, Box<dyn Sink>);

/// Audit with a policy.
pub struct Audit {
    policy: Policy,
    sink: Box<dyn Sink>,
    clock: SharedClock,
    events: Arc<Counter>,
    levels: [Arc<Counter>; 4],
}

/// What is known of a request when it begins.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Its id, as [`audit_id`] tells.
    pub id: &'a HeaderValue,
    /// Path and query as they were sent.
    pub uri: &'a str,
    /// Where it came from, as [`source_ips`] tells.
    pub source_ips: &'a [String],
    /// As [`user_agent`] tells.
    pub user_agent: &'a str,
    /// When it came.
    pub received: Time,
    /// Who asks for what.
    pub attributes: &'a Attributes<'a>,
}

impl Audit {
    /// Records what the policy asks for.
    #[must_use]
    pub fn new(policy: Policy, sink: Box<dyn Sink>, clock: SharedClock, metrics: &Metrics) -> Self {
        let levels = Level::ALL.map(|level| metrics.audit_levels.with(&[level.name()]));
        Audit { policy, sink, clock, events: metrics.audit_events.with(&[]), levels }
    }

    /// The event for a request; `None` if nothing of it is recorded.
    #[must_use]
    pub fn begin(&self, request: &Request<'_>) -> Option<Event> {
        let config = self.policy.evaluate(request.attributes);
        self.levels[config.level as usize].inc();
        (config.level > Level::None).then(|| Event::new(config, request))
    }

    /// Writes the event as it is now, unless the policy omits the stage.
    ///
    /// # Errors
    /// When it could not be written. At the first stage the request is then refused; later that is too late.
    pub fn write(&self, event: &mut Event, stage: Stage) -> io::Result<()> {
        if event.config().omit_stages.has(stage) {
            return Ok(());
        }
        let now = if stage == Stage::RequestReceived { event.received() } else { self.clock.now().into() };
        let line = event.line(stage, MicroTime(now));
        self.events.inc();
        self.sink.write(&line)
    }
}
