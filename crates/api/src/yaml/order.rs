//! The order of keys in YAML output: numbers in keys count as numbers, and letters come after everything else.

use std::cmp::Ordering;

use crate::Str;

/// Sorts entries by their keys as Go's encoder does.
///
/// Its way to compare two keys is not an order (`10` comes before `1a`, that before `9`, and that before `10`), which
/// the sort of the standard library may answer with a panic. Merging does not mind.
pub(super) fn sort<V>(mut entries: Vec<&(Str, V)>) -> Vec<&(Str, V)> {
    let mut sorted = 1;
    while sorted < entries.len() {
        let mut merged = Vec::with_capacity(entries.len());
        for pair in entries.chunks(2 * sorted) {
            let (left, right) = pair.split_at(sorted.min(pair.len()));
            let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
            while let Some(next) = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) if compare(&r.0, &l.0) == Ordering::Less => right.next(),
                (Some(_), _) => left.next(),
                (None, _) => right.next(),
            } {
                merged.push(*next);
            }
        }
        entries = merged;
        sorted *= 2;
    }
    entries
}

/// Compares keys: `a2` comes before `a10`, `_` before `a`.
fn compare(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.chars(), b.chars());
    // Whether the digits before here, which both have, are more than zeros.
    let mut in_number = false;
    loop {
        let (x, y) = match (left.clone().next(), right.clone().next()) {
            (Some(x), Some(y)) => (x, y),
            (x, y) => return x.is_some().cmp(&y.is_some()),
        };
        if x == y {
            in_number = x.is_ascii_digit() && (in_number || x != '0');
            left.next();
            right.next();
            continue;
        }
        return match (x.is_alphabetic(), y.is_alphabetic()) {
            (true, true) => x.cmp(&y),
            (x, y) if x != y => x.cmp(&y),
            _ => {
                // Where one has a zero, digits before it make both numbers longer by one digit.
                let longer = in_number && (x == '0' || y == '0');
                number(left.as_str(), longer).cmp(&number(right.as_str(), longer)).then(x.cmp(&y))
            }
        };
    }
}

/// The number at the beginning of `text`: how many digits count, those digits, and how many there are with leading
/// zeros, which together compare as numbers do however long they are. Behind other digits zeros are not leading.
fn number(text: &str, behind_digits: bool) -> (usize, &str, usize) {
    let all = &text[..text.bytes().take_while(u8::is_ascii_digit).count()];
    let significant = if behind_digits { all } else { all.trim_start_matches('0') };
    (significant.len(), significant, all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_keys_count() {
        let sorted =
            ["", "-", "_", "1", "01", "2", "9", "10", "100", "A", "a", "a1", "a01", "a2", "a10", "a100", "ab", "é"];
        let entries: Vec<_> = sorted.iter().rev().map(|&key| (Str::from(key), ())).collect();
        let found: Vec<_> = sort(entries.iter().collect()).iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(found, sorted);
    }

    #[test]
    fn what_has_no_order_is_sorted_somehow() {
        let entries: Vec<_> = (0..1000).map(|n| (Str::from(["10", "1a", "9"][n % 3]), ())).collect();
        assert_eq!(sort(entries.iter().collect()).len(), 1000);
    }
}
