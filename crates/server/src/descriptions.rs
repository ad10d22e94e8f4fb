//! What kinds and fields are for, in words. They come from the `k8s-openapi` crate when this one is built.

use std::cmp::Ordering;

/// Lines `SCHEMA FIELD`, a tab and a JSON string, sorted by bytes; the one about the schema itself has no field.
static TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/descriptions.txt"));

/// The words about a field of a schema, or with an empty `field` about the schema itself, as a JSON string.
pub(crate) fn json(schema: &str, field: &str) -> Option<&'static str> {
    let (mut low, mut high) = (0, TEXT.len());
    while low < high {
        let start = line_start(low.midpoint(high));
        let line = TEXT[start..].lines().next()?;
        let (key, words) = line.split_once('\t')?;
        match key.split_once(' ')?.cmp(&(schema, field)) {
            Ordering::Equal => return Some(words),
            Ordering::Less => low = start + line.len() + 1,
            Ordering::Greater => high = start,
        }
    }
    None
}

/// The words about a field.
pub(crate) fn text(schema: &str, field: &str) -> Option<String> {
    let words = json(schema, field)?;
    let value = capstan_api::json::parse(words.as_bytes()).ok()?;
    value.as_str().map(str::to_owned)
}

fn line_start(at: usize) -> usize {
    TEXT.as_bytes()[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_found() {
        let mut found = 0;
        for line in TEXT.lines() {
            let (key, words) = line.split_once('\t').expect("a key and words");
            let (schema, field) = key.split_once(' ').expect("a schema and a field");
            assert_eq!(json(schema, field), Some(words), "{key}");
            found += 1;
        }
        assert!(found > 2_000, "{found}");
        assert_eq!(json("io.k8s.api.core.v1.Pod", "nope"), None);
        assert_eq!(json("a", ""), None);
        assert_eq!(json("z", ""), None);
    }
}
