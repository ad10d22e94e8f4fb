//! The kinds of metrics, and families of them that differ by their labels.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// How many series a family may have. Those beyond are counted as one, whose labels all say [`OTHER`].
pub const MAX_SERIES: usize = 10_000;
/// The label of what is not told apart.
pub const OTHER: &str = "other";
/// Locks are spread over so many shards, so that requests on different cores seldom meet.
const SHARDS: usize = 16;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Counts several.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// What has been counted.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Changes it.
    pub fn add(&self, by: f64) {
        add_float(&self.0, by);
    }

    /// What it is.
    #[must_use]
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

fn add_float(cell: &AtomicU64, by: f64) {
    let add = |bits| Some((f64::from_bits(bits) + by).to_bits());
    // The closure never refuses, so neither does the update.
    let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
}

/// How observations are distributed.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One for each bound, and one for what is beyond them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Takes note of a value.
    pub fn observe(&self, value: f64) {
        // There are a few dozen bounds, and most values are below the first ones.
        let bucket = self.bounds.iter().position(|&bound| value <= bound).unwrap_or(self.bounds.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        add_float(&self.sum, value);
    }

    /// Takes note of a duration, in seconds.
    pub fn observe_duration(&self, duration: Duration) {
        self.observe(duration.as_secs_f64());
    }

    /// The bounds with how many values are at most that, and at the end the number of all of them.
    pub(super) fn cumulated(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let counts = self.buckets.iter().scan(0, |sum, bucket| {
            *sum += bucket.load(Ordering::Relaxed);
            Some(*sum)
        });
        bounds.zip(counts)
    }

    pub(super) fn sum(&self) -> f64 {
        f64::from_bits(self.sum.load(Ordering::Relaxed))
    }
}

/// One of the three kinds of metrics.
pub trait Metric: Send + Sync {
    /// What the exposition calls it.
    const TYPE: &'static str;
    /// A new one; only histograms have bounds.
    fn new(bounds: &'static [f64]) -> Self;
    /// Appends the lines of one series. `labels` is what is in the braces.
    fn write(&self, name: &str, labels: &str, out: &mut String);
}

impl Metric for Counter {
    const TYPE: &'static str = "counter";

    fn new(_: &'static [f64]) -> Self {
        Counter::default()
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        super::text::sample(name, "", labels, self.get() as f64, out);
    }
}

impl Metric for Gauge {
    const TYPE: &'static str = "gauge";

    fn new(_: &'static [f64]) -> Self {
        Gauge::default()
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        super::text::sample(name, "", labels, self.get(), out);
    }
}

impl Metric for Histogram {
    const TYPE: &'static str = "histogram";

    fn new(bounds: &'static [f64]) -> Self {
        Histogram::new(bounds)
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        super::text::histogram(name, labels, self, out);
    }
}

/// What a family is called and tells.
#[derive(Clone, Copy, Debug)]
pub struct Desc {
    /// The name.
    pub name: &'static str,
    /// How stable the name and labels are, in upstream's words, and a sentence on what it tells.
    pub help: &'static str,
    /// The names of the labels, in the order of the alphabet, which is the order of the exposition.
    pub labels: &'static [&'static str],
    /// The upper bounds of a histogram's buckets.
    pub bounds: &'static [f64],
}

/// Values by labels. Finding one that is there takes a shard's read lock and allocates nothing.
pub(super) struct Interned<V> {
    shards: [RwLock<Shard<V>>; SHARDS],
    len: AtomicUsize,
}

/// By hash, then by the labels themselves: the map cannot look up a borrowed list of texts otherwise.
type Shard<V> = HashMap<u64, Vec<(Labels, Arc<V>)>>;
pub(super) type Labels = Box<[Box<str>]>;

impl<V> Interned<V> {
    pub(super) fn new() -> Self {
        Interned { shards: Default::default(), len: AtomicUsize::new(0) }
    }

    fn shard(&self, labels: &[&str]) -> (u64, &RwLock<Shard<V>>) {
        let mut hasher = DefaultHasher::new();
        labels.hash(&mut hasher);
        let hash = hasher.finish();
        (hash, &self.shards[(hash >> 32) as usize % SHARDS])
    }

    /// Does something with the value that has these labels, which is made if it is missing.
    pub(super) fn with<R>(
        &self,
        labels: &[&str],
        make: impl FnOnce(&[&str]) -> V,
        act: impl FnOnce(&Arc<V>) -> R,
    ) -> R {
        let (hash, shard) = self.shard(labels);
        let read = shard.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = find(&read, hash, labels) {
            return act(value);
        }
        drop(read);
        if self.len.load(Ordering::Relaxed) >= MAX_SERIES && !labels.iter().all(|&label| label == OTHER) {
            // One level deep: these labels are let in whatever the number.
            let others = vec![OTHER; labels.len()];
            return self.with(&others, make, act);
        }
        let mut write = shard.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = find(&write, hash, labels) {
            return act(value);
        }
        let value = Arc::new(make(labels));
        let result = act(&value);
        write.entry(hash).or_default().push((labels.iter().map(|&label| label.into()).collect(), value));
        self.len.fetch_add(1, Ordering::Relaxed);
        result
    }

    fn remove(&self, labels: &[&str]) {
        let (hash, shard) = self.shard(labels);
        let mut write = shard.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = write.get_mut(&hash) {
            let before = bucket.len();
            bucket.retain(|(own, _)| !is(own, labels));
            self.len.fetch_sub(before - bucket.len(), Ordering::Relaxed);
        }
    }

    /// All values, in the order of their labels.
    fn sorted(&self) -> Vec<(Labels, Arc<V>)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.read().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.values().flatten().map(|(labels, value)| (labels.clone(), Arc::clone(value))));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

fn find<'a, V>(shard: &'a Shard<V>, hash: u64, labels: &[&str]) -> Option<&'a Arc<V>> {
    shard.get(&hash)?.iter().find(|(own, _)| is(own, labels)).map(|(_, value)| value)
}

fn is(own: &Labels, labels: &[&str]) -> bool {
    own.len() == labels.len() && own.iter().zip(labels).all(|(own, label)| **own == **label)
}

/// Metrics of one name that differ by their labels.
pub struct Family<M> {
    desc: Desc,
    series: Interned<M>,
}

impl<M: Metric> Family<M> {
    /// A family without series. One that has no labels has its one series at once, as upstream's.
    #[must_use]
    pub fn new(desc: Desc) -> Self {
        let family = Family { desc, series: Interned::new() };
        if desc.labels.is_empty() {
            drop(family.with(&[]));
        }
        family
    }

    /// The series with these labels, in the order of the description. Worth keeping where it is used often.
    pub fn with(&self, labels: &[&str]) -> Arc<M> {
        debug_assert_eq!(labels.len(), self.desc.labels.len(), "{}", self.desc.name);
        self.series.with(labels, |_| M::new(self.desc.bounds), Arc::clone)
    }

    /// Forgets a series.
    pub fn remove(&self, labels: &[&str]) {
        self.series.remove(labels);
    }
}

/// A family of whatever kind, for the exposition.
pub trait Collect: Send + Sync {
    /// The name.
    fn name(&self) -> &'static str;
    /// Appends the text of all series; nothing if there are none.
    fn write(&self, out: &mut String);
}

impl<M: Metric> Collect for Family<M> {
    fn name(&self) -> &'static str {
        self.desc.name
    }

    fn write(&self, out: &mut String) {
        let series = self.series.sorted();
        if series.is_empty() {
            return;
        }
        super::text::head(self.desc.name, self.desc.help, M::TYPE, out);
        for (values, metric) in series {
            metric.write(self.desc.name, &super::text::labels(self.desc.labels, &values), out);
        }
    }
}
