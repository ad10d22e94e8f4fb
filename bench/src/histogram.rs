//! Latencies in buckets whose width grows with their value: less than 1 % off, in fixed memory.

use std::time::Duration;

/// Buckets for each doubling of the value.
const BUCKETS: u64 = 128;
/// How many bits tell the bucket inside a doubling.
const BITS: u32 = BUCKETS.trailing_zeros();
/// Doublings of a nanosecond above the exact ones: up to 2^43 ns, two hours.
const DOUBLINGS: usize = 36;

/// How often which latency was seen.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS as usize * (DOUBLINGS + 1)], total: 0, max: 0 }
    }
}

impl Histogram {
    /// Adds one latency.
    pub(crate) fn record(&mut self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let last = self.counts.len() - 1;
        self.counts[bucket(nanos).min(last)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// Adds all that another one has.
    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    /// The latency that this fraction did not exceed, in milliseconds; 0 when there is none.
    pub(crate) fn quantile(&self, fraction: f64) -> f64 {
        let rank = ((self.total as f64 * fraction).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper(at).min(self.max) as f64 / 1e6;
            }
        }
        0.0
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < BUCKETS {
        return nanos as usize;
    }
    let doubling = nanos.ilog2() - BITS;
    let within = (nanos >> doubling) - BUCKETS;
    ((u64::from(doubling) + 1) * BUCKETS + within) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < BUCKETS {
        return bucket;
    }
    let doubling = bucket / BUCKETS - 1;
    ((BUCKETS + bucket % BUCKETS + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_within_one_percent(mut nanos in prop::collection::vec(0_u64..10_000_000_000, 1..300), at in 0.0..1.0_f64) {
            let (mut whole, mut half) = (Histogram::default(), Histogram::default());
            for (n, value) in nanos.iter().enumerate() {
                if n % 2 == 0 { &mut whole } else { &mut half }.record(Duration::from_nanos(*value));
            }
            whole.merge(&half);
            nanos.sort_unstable();
            let rank = ((nanos.len() as f64 * at).ceil() as usize).max(1);
            let exact = nanos[rank - 1] as f64 / 1e6;
            let said = whole.quantile(at);
            prop_assert!(said >= exact && said <= exact * 1.01, "{said} for {exact}");
            prop_assert_eq!(whole.count(), nanos.len() as u64);
        }
    }

    #[test]
    fn nothing_is_zero_and_too_long_is_counted() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.99), 0.0);
        histogram.record(Duration::MAX);
        assert_eq!(histogram.count(), 1);
    }
}
