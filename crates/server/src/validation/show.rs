//! What Go prints of its own structs: internal names, every field, in the order of the declaration.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
};

/// A field of a struct: its name in Go, its key, and what it prints as when it is not set.
pub(super) type Field = (&'static str, &'static str, &'static str);

/// A struct that is printed as JSON with the names that its fields have in Go.
pub(super) fn show(map: &Map, fields: &[Field]) -> String {
    let parts: Vec<_> = fields
        .iter()
        .map(|(name, key, zero)| {
            let value = map.get(key).filter(|value| !value.is_null());
            format!("\"{name}\":{}", value.map_or_else(|| (*zero).to_owned(), json))
        })
        .collect();
    format!("{{{}}}", parts.join(","))
}

/// A value as JSON that is safe in HTML.
pub(super) fn json(value: &Value) -> String {
    go::escape_html(&value.to_string())
}

/// A wrong value that is not printed: where upstream prints none, or all of a large struct with Go's own names, which
/// nobody reads.
pub(super) fn hidden(errors: &mut ErrorList, path: &Path<'_>, detail: impl Into<String>) {
    errors.push(Error { bad_value: None, ..Error::invalid(path, "", detail) });
}
