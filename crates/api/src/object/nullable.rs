//! Reading `null` as nothing, as Go does.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// The value, or its default for `null`.
pub(crate) fn value<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

/// A map of strings; `null` is the empty one, and a value that is `null` the empty string.
pub(super) fn strings<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let map: BTreeMap<String, Option<String>> = value(from)?;
    Ok(map.into_iter().map(|(key, text)| (key, text.unwrap_or_default())).collect())
}
