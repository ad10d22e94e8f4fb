//! Putting the details of violations into words.

use std::collections::BTreeSet;

/// `"a", "b"`. Nothing is escaped, as upstream does not either.
pub(super) fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

/// The word for one or for more.
pub(super) fn plural<'a>(count: usize, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}

/// `container "a"`, `containers "a", "b"`.
pub(super) fn containers(names: &[&str]) -> String {
    format!("{} {}", plural(names.len(), "container", "containers"), quoted(names))
}

/// `pod and container "a"`: those that set what they must not; nothing if nobody does.
pub(super) fn setters(pod: bool, names: &[&str]) -> Option<String> {
    let who = pod.then(|| "pod".to_owned()).into_iter().chain((!names.is_empty()).then(|| containers(names)));
    Some(who.collect::<Vec<_>>().join(" and ")).filter(|who| !who.is_empty())
}

/// Sorted, each once.
pub(super) type Set<'a> = BTreeSet<&'a str>;
