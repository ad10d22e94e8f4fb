//! What was measured: cases, and for each side the samples of its rounds.

use crate::{histogram::Histogram, process::Usage};

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

/// One row of the report.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// Ours is to be so many times better than the peer.
    pub(crate) goal: Option<f64>,
    /// Ours is to be at least, or at most, this.
    pub(crate) bound: Option<f64>,
    /// The curve that it is a point of, and where on it.
    pub(crate) point: Option<(String, f64)>,
}

impl Case {
    pub(crate) fn more(name: impl Into<String>, unit: &'static str) -> Self {
        Case { name: name.into(), unit, better: Better::More, goal: None, bound: None, point: None }
    }

    pub(crate) fn less(name: impl Into<String>, unit: &'static str) -> Self {
        Case { better: Better::Less, ..Case::more(name, unit) }
    }

    pub(crate) fn goal(self, times: impl Into<Option<f64>>) -> Self {
        Case { goal: times.into(), ..self }
    }

    pub(crate) fn bound(self, bound: f64) -> Self {
        Case { bound: Some(bound), ..self }
    }

    /// Makes it a point of a curve over the count of something.
    pub(crate) fn point(self, curve: &str, at: usize) -> Self {
        Case { point: Some((curve.to_owned(), at as f64)), ..self }
    }
}

/// One round of one side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    pub(crate) latency: Option<Histogram>,
    /// Resident memory at the end, in MB.
    pub(crate) rss: f64,
    /// The most of it during the round, in MB.
    pub(crate) peak: f64,
    /// CPU microseconds of the server's processes, for each operation.
    pub(crate) cpu: f64,
    /// Bytes on the wire, for each operation.
    pub(crate) wire: f64,
    /// Operations that failed.
    pub(crate) errors: u64,
}

impl Sample {
    pub(crate) fn of(value: f64) -> Self {
        Sample { value, ..Sample::default() }
    }

    /// With what the server used for so many operations.
    pub(crate) fn used(self, before: Usage, after: Usage, operations: u64) -> Self {
        let cpu = (after.cpu - before.cpu) * 1e6 / operations.max(1) as f64;
        Sample { rss: after.rss, peak: after.peak, cpu, ..self }
    }
}

/// A case with its samples.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) benchmark: &'static str,
    pub(crate) case: Case,
    /// By the name of the side, in the order in which they came.
    pub(crate) samples: Vec<(&'static str, Vec<Sample>)>,
}

impl Row {
    pub(crate) fn new(benchmark: &'static str, case: Case) -> Self {
        Row { benchmark, case, samples: Vec::new() }
    }

    pub(crate) fn add(&mut self, side: &'static str, sample: Sample) {
        match self.samples.iter_mut().find(|(name, _)| *name == side) {
            Some((_, samples)) => samples.push(sample),
            None => self.samples.push((side, vec![sample])),
        }
    }

    /// What is told of a side.
    pub(crate) fn summary(&self, side: &str) -> Option<Summary> {
        let (_, samples) = self.samples.iter().find(|(name, samples)| *name == side && !samples.is_empty())?;
        let of = |field: fn(&Sample) -> f64| median(samples.iter().map(field).collect());
        let values = || samples.iter().map(|sample| sample.value);
        let mut latency = Histogram::default();
        for sample in samples.iter().filter_map(|sample| sample.latency.as_ref()) {
            latency.merge(sample);
        }
        Some(Summary {
            value: of(|sample| sample.value),
            low: values().fold(f64::INFINITY, f64::min),
            high: values().fold(f64::NEG_INFINITY, f64::max),
            rss: of(|sample| sample.rss),
            peak: of(|sample| sample.peak),
            cpu: of(|sample| sample.cpu),
            wire: of(|sample| sample.wire),
            errors: samples.iter().map(|sample| sample.errors).sum(),
            latency: (latency.count() > 0).then_some(latency),
        })
    }

    /// How many times better ours is.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (ours, theirs) = (self.summary("capstan")?.value, self.summary("upstream")?.value);
        let ratio = match self.case.better {
            Better::More => ours / theirs,
            Better::Less => theirs / ours,
        };
        ratio.is_finite().then_some(ratio)
    }

    /// Whether the goals are met, when there are any that can be told.
    pub(crate) fn met(&self) -> Option<bool> {
        let ratio = self.case.goal.and_then(|goal| Some(self.ratio()? >= goal));
        let bound = self.case.bound.and_then(|bound| {
            let ours = self.summary("capstan")?.value;
            Some(if self.case.better == Better::More { ours >= bound } else { ours <= bound })
        });
        match (ratio, bound) {
            (None, None) => None,
            (ratio, bound) => Some(ratio.unwrap_or(true) && bound.unwrap_or(true)),
        }
    }
}

/// The rounds of one side, in one: medians, and the latencies of all.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rss: f64,
    pub(crate) peak: f64,
    pub(crate) cpu: f64,
    pub(crate) wire: f64,
    pub(crate) errors: u64,
    pub(crate) latency: Option<Histogram>,
}

/// The one in the middle, or between the two that are.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: Case, ours: &[f64], theirs: &[f64]) -> Row {
        let mut row = Row::new("B0", case);
        for (side, values) in [("capstan", ours), ("upstream", theirs)] {
            for value in values {
                row.add(side, Sample::of(*value));
            }
        }
        row
    }

    #[test]
    fn ratios_say_how_many_times_better_ours_is() {
        let check = |case: Case, ours: &[f64], theirs: &[f64], ratio: Option<f64>, met: Option<bool>| {
            let row = row(case, ours, theirs);
            assert_eq!((row.ratio(), row.met()), (ratio, met), "{ours:?} {theirs:?}");
        };
        check(Case::more("a", "ops/s"), &[80.0, 100.0, 900.0], &[10.0, 10.0], Some(10.0), None);
        check(Case::more("a", "ops/s").goal(8.0), &[80.0], &[10.0], Some(8.0), Some(true));
        check(Case::less("a", "ms").goal(8.0), &[10.0, 30.0], &[80.0], Some(4.0), Some(false));
        check(Case::less("a", "ms").bound(50.0), &[60.0], &[], None, Some(false));
        check(Case::less("a", "ms").goal(8.0).bound(50.0), &[40.0], &[400.0], Some(10.0), Some(true));
        check(Case::more("a", "ops/s").goal(8.0), &[], &[1.0], None, None);
        check(Case::more("a", "ops/s").goal(8.0), &[1.0], &[0.0], None, None);
    }
}
