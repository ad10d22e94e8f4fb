//! Keys and values of labels.

use super::{
    Form, Messages,
    dns::{SUBDOMAIN, SUBDOMAIN_MAX, matches_subdomain},
};
use crate::field::{Error, ErrorList, Path};

/// How long the name of a key and a value may be.
const MAX: usize = 63;

const KEY: Form = Form {
    sentence: "must consist of alphanumeric characters, '-', '_' or '.', \
               and must start and end with an alphanumeric character",
    regex: "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]",
    examples: &["MyName", "my.name", "123-abc"],
};

const VALUE: Form = Form {
    sentence: "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
               and must start and end with an alphanumeric character",
    regex: "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    examples: &["MyValue", "my_value", "12345"],
};

/// Here lengths are told in bytes.
fn max_len_error(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

fn matches_name(text: &str) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => one.is_ascii_alphanumeric(),
        [first, middle @ .., last] => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && middle.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
        }
    }
}

/// The key of a label: a name, and maybe a DNS subdomain and a slash in front.
#[must_use]
pub fn is_qualified_name(value: &str) -> Messages {
    let mut messages = Messages::new();
    let name = match value.split_once('/') {
        None => value,
        Some((_, name)) if name.contains('/') => {
            let form = KEY.message();
            let prefix = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {form} {prefix}")];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > SUBDOMAIN_MAX {
                    messages.push(format!("prefix part {}", max_len_error(SUBDOMAIN_MAX)));
                }
                if !matches_subdomain(prefix) {
                    messages.push(format!("prefix part {}", SUBDOMAIN.message()));
                }
            }
            name
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX {
        messages.push(format!("name part {}", max_len_error(MAX)));
    }
    if !matches_name(name) {
        messages.push(format!("name part {}", KEY.message()));
    }
    messages
}

/// The value of a label: nothing, or letters, digits, and dashes, dots and underscores between them.
#[must_use]
pub fn is_valid_label_value(value: &str) -> Messages {
    let long = (value.len() > MAX).then(|| max_len_error(MAX));
    let wrong = (!value.is_empty() && !matches_name(value)).then(|| VALUE.message());
    long.into_iter().chain(wrong).collect()
}

/// The key of a label, or anything else that is a qualified name.
#[must_use]
pub fn validate_label_name(name: &str, path: &Path<'_>) -> ErrorList {
    is_qualified_name(name).into_iter().map(|message| Error::invalid(path, name, message)).collect()
}

/// Keys and values of labels.
#[must_use]
pub fn validate_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in labels {
        errors.extend(validate_label_name(key, path));
        errors.extend(is_valid_label_value(value).into_iter().map(|message| Error::invalid(path, value, message)));
    }
    errors
}
