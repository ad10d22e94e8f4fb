//! Names as in DNS: labels and subdomains.

use super::{Form, Messages, check, max_len_error};

/// How long a DNS label may be.
pub(crate) const LABEL_MAX: usize = 63;
/// How long a DNS name may be.
pub(crate) const SUBDOMAIN_MAX: usize = 253;

const LABEL: Form = Form {
    sentence: "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
               and must start and end with an alphanumeric character",
    regex: "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
    examples: &["my-name", "123-abc"],
};

pub(crate) const SUBDOMAIN: Form = Form {
    sentence: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
               and must start and end with an alphanumeric character",
    regex: r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    examples: &["example.com"],
};

const SUBDOMAIN_WITH_UNDERSCORE: Form = Form {
    sentence: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', \
               and must start and end with an alphanumeric character",
    regex: r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*",
    examples: &["example.com"],
};

const WILDCARD_SUBDOMAIN: Form = Form {
    sentence: "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
               which must consist of lower case alphanumeric characters, '-' or '.' \
               and end with an alphanumeric character",
    regex: r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*",
    examples: &["*.example.com"],
};

const LABEL_1035: Form = Form {
    sentence: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
               start with an alphabetic character, and end with an alphanumeric character",
    regex: "[a-z]([-a-z0-9]*[a-z0-9])?",
    examples: &["my-name", "abc-123"],
};

fn is_lower_alphanumeric(c: u8) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

/// Whether there is something, of which the ends are lower case letters or digits, and the rest may be `inner` too.
fn is_word(text: &str, inner: &[u8]) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => is_lower_alphanumeric(*one),
        [first, middle @ .., last] => {
            is_lower_alphanumeric(*first)
                && is_lower_alphanumeric(*last)
                && middle.iter().all(|c| is_lower_alphanumeric(*c) || inner.contains(c))
        }
    }
}

fn matches_label(text: &str) -> bool {
    is_word(text, b"-")
}

pub(crate) fn matches_subdomain(text: &str) -> bool {
    text.split('.').all(matches_label)
}

/// A label: lower case letters, digits and `-`.
#[must_use]
pub fn is_dns1123_label(value: &str) -> Messages {
    let mut messages = Messages::new();
    if value.len() > LABEL_MAX {
        messages.push(max_len_error(LABEL_MAX));
    }
    if !matches_label(value) {
        let dots = matches_subdomain(value);
        messages.push(if dots { "must not contain dots".to_owned() } else { LABEL.message() });
    }
    messages
}

/// Labels with dots between them.
#[must_use]
pub fn is_dns1123_subdomain(value: &str) -> Messages {
    check(value, SUBDOMAIN_MAX, matches_subdomain(value), &SUBDOMAIN)
}

/// Labels with dots between them, which may also contain underscores, or begin with one.
#[must_use]
pub fn is_dns1123_subdomain_with_underscore(value: &str) -> Messages {
    let matches = value.split('.').all(|label| is_word(label.strip_prefix('_').unwrap_or(label), b"-_"));
    check(value, SUBDOMAIN_MAX, matches, &SUBDOMAIN_WITH_UNDERSCORE)
}

/// `*.` and a subdomain.
#[must_use]
pub fn is_wildcard_dns1123_subdomain(value: &str) -> Messages {
    let matches = value.strip_prefix("*.").is_some_and(matches_subdomain);
    check(value, SUBDOMAIN_MAX, matches, &WILDCARD_SUBDOMAIN)
}

/// A label that begins with a letter.
#[must_use]
pub fn is_dns1035_label(value: &str) -> Messages {
    let matches = matches_label(value) && value.starts_with(|c: char| c.is_ascii_lowercase());
    check(value, LABEL_MAX, matches, &LABEL_1035)
}

/// A prefix to which something is going to be appended may end with a dash.
///
/// Upstream takes away two characters and appends one; so do we, since length and the last but one character count.
fn mask_trailing_dash(name: &str, prefix: bool) -> String {
    let cut = name.len().checked_sub(2).and_then(|end| name.get(..end));
    match cut {
        Some(cut) if prefix && name.ends_with('-') => format!("{cut}a"),
        _ => name.to_owned(),
    }
}

/// The name of an object that is a DNS subdomain, as most are; `prefix` for a `generateName`.
#[must_use]
pub fn name_is_dns_subdomain(name: &str, prefix: bool) -> Messages {
    is_dns1123_subdomain(&mask_trailing_dash(name, prefix))
}

/// The name of an object that is a DNS label; `prefix` for a `generateName`.
#[must_use]
pub fn name_is_dns_label(name: &str, prefix: bool) -> Messages {
    is_dns1123_label(&mask_trailing_dash(name, prefix))
}

/// The name of an object that is a DNS label with a letter in front; `prefix` for a `generateName`.
#[must_use]
pub fn name_is_dns1035_label(name: &str, prefix: bool) -> Messages {
    is_dns1035_label(&mask_trailing_dash(name, prefix))
}
