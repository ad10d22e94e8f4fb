//! Saying what fails: which controller, which object, and why.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use capstan_api::GroupVersionResource;
use capstan_client::Key;

use crate::lru::Lru;

/// How many different failures are counted at a time.
const REMEMBERED: usize = 1024;

/// Something that failed. Nothing ends by it: it is tried again, or waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The controller whose reconcile it was; empty for caches, events and the leader election.
    pub controller: String,
    /// What it is about, such as `deployments.apps`.
    pub resource: String,
    /// The object, if it is about one.
    pub key: Option<Key>,
    /// Why.
    pub error: String,
    /// How often the same was reported, this time included.
    pub count: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.controller.is_empty() {
            write!(f, "controller {}: ", self.controller)?;
        }
        f.write_str(&self.resource)?;
        if let Some(key) = &self.key {
            write!(f, " {key}")?;
        }
        write!(f, ": {}", self.error)?;
        if self.count > 1 {
            write!(f, " ({} times)", self.count)?;
        }
        Ok(())
    }
}

type Listener = Arc<dyn Fn(&Report) + Send + Sync>;

/// Counts reports and passes them on.
#[derive(Clone)]
pub(super) struct Reporter {
    listener: Listener,
    counts: Arc<Mutex<Lru<String, u64>>>,
}

impl Reporter {
    pub(super) fn new(listener: impl Fn(&Report) + Send + Sync + 'static) -> Self {
        Reporter { listener: Arc::new(listener), counts: Arc::new(Mutex::new(Lru::new(REMEMBERED))) }
    }

    pub(super) fn report(
        &self,
        controller: &str,
        resource: &GroupVersionResource,
        key: Option<&Key>,
        error: impl fmt::Display,
    ) {
        let (controller, resource) = (controller.to_owned(), resource.group_resource().to_string());
        let mut report = Report { controller, resource, key: key.cloned(), error: error.to_string(), count: 0 };
        {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            let count = counts.entry(&report.to_string(), || 0);
            *count += 1;
            report.count = *count;
        }
        (self.listener)(&report);
    }
}

impl Default for Reporter {
    /// Says each failure on standard error, and if it goes on, the tenth, the hundredth time and so on.
    fn default() -> Self {
        Reporter::new(|report| {
            if is_power_of_ten(report.count) {
                eprintln!("error: {report}");
            }
        })
    }
}

/// Knows what was said.
pub(super) struct Once(Mutex<Lru<String, bool>>);

impl Default for Once {
    fn default() -> Self {
        Once(Mutex::new(Lru::new(REMEMBERED)))
    }
}

impl Once {
    /// Whether this was not said before, or so long ago that it is forgotten.
    pub(super) fn is_new(&self, text: &str) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !std::mem::replace(said.entry(&text.to_owned(), || false), true)
    }
}

fn is_power_of_ten(count: u64) -> bool {
    count.checked_ilog10().is_some_and(|digits| count == 10u64.pow(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_once() {
        let once = Once::default();
        assert_eq!(["a", "b", "a", "b"].map(|text| once.is_new(text)), [true, true, false, false]);
    }

    #[test]
    fn the_same_is_counted() {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let to = Arc::clone(&seen);
        let reporter = Reporter::new(move |report| to.lock().unwrap().push(report.to_string()));
        let ats = GroupVersionResource::new("example.com", "v1", "ats");
        reporter.report("", &ats, None, "there is no such kind");
        reporter.report("cnat", &ats, Some(&Key::new("ns", "x")), "it failed");
        reporter.report("", &ats, None, "there is no such kind");
        let expected = [
            "ats.example.com: there is no such kind",
            "controller cnat: ats.example.com ns/x: it failed",
            "ats.example.com: there is no such kind (2 times)",
        ];
        assert_eq!(*seen.lock().unwrap(), expected);
        let said: Vec<_> = (0..=1000).filter(|count| is_power_of_ten(*count)).collect();
        assert_eq!(said, [1, 10, 100, 1000]);
    }
}
