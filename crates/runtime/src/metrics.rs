//! Numbers for Prometheus: who has some adds a collector, and what is asked for is made when it is asked for.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use capstan_api::go;

/// The media type of what [`Registry::render`] makes.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

/// How many took at most so long, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    bounds: &'static [f64],
    /// How many took at most as long as each bound, not counting those of smaller bounds; the last has no bound.
    buckets: Vec<u64>,
    /// All of them together, in seconds.
    pub sum: f64,
    /// How many.
    pub count: u64,
}

impl Histogram {
    /// An empty one with these upper bounds, which grow.
    #[must_use]
    pub fn new(bounds: &'static [f64]) -> Self {
        Histogram { bounds, buckets: vec![0; bounds.len() + 1], sum: 0.0, count: 0 }
    }

    /// Counts one.
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        self.buckets[bucket] += 1;
        self.sum += seconds;
        self.count += 1;
    }

    /// The same with the first of its bounds alone.
    pub(crate) fn with_fewer_bounds(&self, count: usize) -> Self {
        let (kept, rest) = self.buckets.split_at(count.min(self.bounds.len()));
        let buckets = kept.iter().copied().chain([rest.iter().sum()]).collect();
        Histogram { bounds: &self.bounds[..kept.len()], buckets, ..*self }
    }
}

struct Family {
    help: &'static str,
    kind: &'static str,
    lines: String,
}

/// What collectors fill: samples by the names of their metrics, so that those of one name come together.
#[derive(Default)]
pub struct Families(BTreeMap<&'static str, Family>);

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Families {
    fn sample(&mut self, name: &'static str, kind: &'static str, help: &'static str) -> &mut String {
        &mut self.0.entry(name).or_insert_with(|| Family { help, kind, lines: String::new() }).lines
    }

    /// A number that only grows.
    pub fn counter(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: u64) {
        line(self.sample(name, "counter", help), name, labels, value as f64);
    }

    /// A number that goes up and down.
    pub fn gauge(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        line(self.sample(name, "gauge", help), name, labels, value);
    }

    /// How long things took.
    pub fn histogram(&mut self, name: &'static str, help: &'static str, labels: &[(&str, &str)], value: &Histogram) {
        let out = self.sample(name, "histogram", help);
        let mut sum = 0;
        for (at, count) in value.buckets.iter().enumerate() {
            sum += count;
            let bound = value.bounds.get(at).map_or("+Inf".to_owned(), |bound| go::float(*bound));
            let mut with_bound = labels.to_vec();
            with_bound.push(("le", &bound));
            line(out, &format!("{name}_bucket"), &with_bound, sum as f64);
        }
        line(out, &format!("{name}_sum"), labels, value.sum);
        line(out, &format!("{name}_count"), labels, value.count as f64);
    }
}

impl fmt::Display for Families {
    /// Prometheus' text format.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Family { help, kind, lines }) in &self.0 {
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}")?;
        }
        Ok(())
    }
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    out.push_str(name);
    for (at, (label, text)) in labels.iter().enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(out, "{label}=\"{text}\"");
    }
    if !labels.is_empty() {
        out.push('}');
    }
    out.push(' ');
    out.push_str(&go::float(value));
    out.push('\n');
}

type Collector = Arc<dyn Fn(&mut Families) + Send + Sync>;

/// All who have numbers. Clones are the same registry.
#[derive(Clone, Default)]
pub struct Registry(Arc<Mutex<Vec<Collector>>>);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}

impl Registry {
    /// Adds somebody who has numbers. It is asked whenever all are.
    pub fn register(&self, collector: impl Fn(&mut Families) + Send + Sync + 'static) {
        // Nothing panics under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(collector));
    }

    /// All numbers in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        let collectors = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut families = Families::default();
        for collector in collectors {
            collector(&mut families);
        }
        families.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text() {
        let registry = Registry::default();
        for name in ["a", "b\"\n"] {
            registry.register(move |families| {
                families.counter("x_total", "Counts.", &[("name", name), ("k", "v")], 2_000_000);
                let mut took = Histogram::new(&[1e-5, 0.1, 1.0]);
                for seconds in [0.1, 0.5, 7.0] {
                    took.observe(Duration::from_secs_f64(seconds));
                }
                families.histogram("took_seconds", "Took.", &[], &took);
                families.gauge("g", "Is.", &[], 0.5);
            });
        }
        let text = registry.render();
        let expected = "# HELP g Is.\n# TYPE g gauge\ng 0.5\ng 0.5\n# HELP took_seconds Took.\n# TYPE took_seconds histogram\n\
             took_seconds_bucket{le=\"1e-05\"} 0\ntook_seconds_bucket{le=\"0.1\"} 1\ntook_seconds_bucket{le=\"1\"} 2\n\
             took_seconds_bucket{le=\"+Inf\"} 3\ntook_seconds_sum 7.6\ntook_seconds_count 3\n";
        assert!(text.starts_with(expected), "{text}");
        let expected = "# HELP x_total Counts.\n# TYPE x_total counter\nx_total{name=\"a\",k=\"v\"} 2e+06\n\
             x_total{name=\"b\\\"\\n\",k=\"v\"} 2e+06\n";
        assert!(text.ends_with(expected), "{text}");
    }
}
