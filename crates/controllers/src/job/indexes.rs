//! Sets of completion indexes, as a status writes them: `1,3-5`.

use std::{collections::BTreeSet, fmt};

/// Indexes as ranges that neither touch nor overlap, in order. A Job may have a hundred thousand, most of them done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i32, i32)>);

impl Indexes {
    /// Reads the text of a status; what is not below `completions` is left out: the Job may have shrunk.
    pub(super) fn parse(text: &str, completions: i32) -> Self {
        let mut ranges = Vec::new();
        for range in text.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) else { continue };
            if first >= completions {
                break;
            }
            ranges.push((first, last.min(completions - 1)));
        }
        Indexes::default().with_ranges(ranges)
    }

    fn with_ranges(&self, more: impl IntoIterator<Item = (i32, i32)>) -> Self {
        let mut all: Vec<_> = self.0.iter().copied().chain(more).collect();
        all.sort_unstable();
        let mut merged: Vec<(i32, i32)> = Vec::with_capacity(all.len());
        for (first, last) in all {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Indexes(merged)
    }

    /// These and more.
    pub(super) fn with(&self, more: impl IntoIterator<Item = i32>) -> Self {
        self.with_ranges(more.into_iter().map(|index| (index, index)))
    }

    /// Those of both.
    pub(super) fn union(&self, other: &Indexes) -> Self {
        self.with_ranges(other.0.iter().copied())
    }

    /// How many there are.
    pub(super) fn total(&self) -> i32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether this is one of them.
    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many of them are also among others.
    pub(super) fn overlap(&self, other: &Indexes) -> i32 {
        self.total() + other.total() - self.union(other).total()
    }

    /// The first that are missing below `completions`, so many at most.
    pub(super) fn missing(&self, completions: i32, count: usize) -> Vec<i32> {
        let mut found = Vec::with_capacity(count);
        let mut candidate = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            while candidate < first.min(completions) && found.len() < count {
                found.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last.saturating_add(1));
        }
        found
    }
}

impl FromIterator<i32> for Indexes {
    fn from_iter<I: IntoIterator<Item = i32>>(indexes: I) -> Self {
        Indexes::default().with(indexes.into_iter().collect::<BTreeSet<_>>())
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, completions, expected) in [
            ("", 5, ""),
            ("0", 5, "0"),
            ("0-2,4", 5, "0-2,4"),
            ("0,1,2,4", 5, "0-2,4"),
            ("3,4", 5, "3,4"),
            ("1-9", 5, "1-4"),
            ("1,7-9", 5, "1"),
            ("x,2,4-y", 9, "2"),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn sets() {
        let some = Indexes::parse("1-3,7", 10);
        assert_eq!(some.total(), 4);
        assert_eq!([0, 1, 3, 4, 7, 8].map(|index| some.contains(index)), [false, true, true, false, true, false]);
        assert_eq!(some.with([4, 0]).to_string(), "0-4,7");
        assert_eq!(some.union(&Indexes::parse("5,6", 10)).to_string(), "1-3,5-7");
        assert_eq!(some.overlap(&Indexes::parse("2-8", 10)), 3);
        assert_eq!(some.missing(10, 4), [0, 4, 5, 6]);
        assert_eq!(some.missing(10, 99), [0, 4, 5, 6, 8, 9]);
        assert_eq!(some.missing(2, 99), [0]);
        assert_eq!([2, 0, 1].into_iter().collect::<Indexes>().to_string(), "0-2");
    }
}
