//! The order of keys in YAML output: numbers in keys count as numbers, and letters come after everything else.

use std::cmp::Ordering;

/// Compares keys as Go's encoder does: `a2` comes before `a10`, `_` before `a`.
pub(super) fn compare(a: &str, b: &str) -> Ordering {
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
                let lead = u8::from(in_number && (x == '0' || y == '0'));
                let (m, n) = (number(left.as_str(), lead), number(right.as_str(), lead));
                m.cmp(&n).then(x.cmp(&y))
            }
        };
    }
}

/// The number at the beginning of `text`, behind the digit `lead`: how many digits it has without leading zeros, those digits,
/// and how many digits it has with them, which together compare as numbers of any length do.
fn number(text: &str, lead: u8) -> (usize, &str, usize) {
    let all = &text[..text.bytes().take_while(u8::is_ascii_digit).count()];
    let significant = if lead == 0 { all.trim_start_matches('0') } else { all };
    (significant.len(), significant, all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_keys_count() {
        let sorted =
            ["", "-", "1", "01", "2", "10", "A", "_", "a", "a1", "a01", "a2", "a9", "a10", "a10b", "a100", "ab", "é"];
        let mut keys = sorted;
        keys.reverse();
        keys.sort_by(|a, b| compare(a, b));
        assert_eq!(keys, sorted);
    }
}
