//! Resources inside of resources: they must say what they are.

use crate::{
    Map, Value,
    field::{Error, ErrorList},
    names::GroupVersion,
};

pub(super) const NOT_A_STRING: &str = "must be a string";

/// Checks `apiVersion` and `kind` of an embedded resource. Its metadata is for those to check who know the metadata of
/// objects.
pub(super) fn check(map: &Map, path: impl Fn(&str) -> String, errors: &mut ErrorList) {
    for field in ["apiVersion", "kind"] {
        if !map.contains_key(field) {
            errors.push(Error::required(path(field), ""));
        }
    }
    for field in ["apiVersion", "kind"] {
        let detail = match map.get(field) {
            None => continue,
            Some(Value::String(text)) if text.is_empty() => "must not be empty".to_owned(),
            Some(Value::String(text)) if field == "kind" => match wrong_label(&text.to_lowercase()) {
                Some(wrong) => format!("may have mixed case, but should otherwise match: {wrong}"),
                None => continue,
            },
            Some(Value::String(text)) => match text.parse::<GroupVersion>() {
                Err(error) => error.to_string(),
                Ok(_) => continue,
            },
            Some(_) => NOT_A_STRING.to_owned(),
        };
        let value = map.get(field).cloned().unwrap_or_default();
        errors.push(Error::invalid(path(field), value, detail));
    }
}

/// What keeps `text` from being a label of RFC 1035.
fn wrong_label(text: &str) -> Option<String> {
    const MAX: usize = 63;
    const FORM: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
                        start with an alphabetic character, and end with an alphanumeric character \
                        (e.g. 'my-name',  or 'abc-123', regex used for validation is \
                        '[a-z]([-a-z0-9]*[a-z0-9])?')";
    let letter = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let right = bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.last().is_some_and(letter)
        && bytes.iter().all(|b| letter(b) || *b == b'-');
    let mut wrong = Vec::new();
    if text.len() > MAX {
        wrong.push(format!("must be no more than {MAX} characters"));
    }
    if !right {
        wrong.push(FORM.to_owned());
    }
    (!wrong.is_empty()).then(|| wrong.join(","))
}
