//! Names that carry the domain of who made them up.

use super::{Form, is_dns1123_label, is_dns1123_subdomain, is_qualified_name};
use crate::field::{Error, ErrorList, Path};

const HTTP_PATH: Form = Form { sentence: "Invalid path", regex: r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+", examples: &[] };

/// A subdomain of at least three segments.
#[must_use]
pub fn is_fully_qualified_name(path: &Path<'_>, name: &str) -> ErrorList {
    if name.is_empty() {
        return vec![Error::required(path, "")];
    }
    let messages = is_dns1123_subdomain(name);
    if !messages.is_empty() {
        return vec![Error::invalid(path, name, messages.join(","))];
    }
    if name.split('.').count() < 3 {
        return vec![Error::invalid(path, name, "should be a domain with at least three segments separated by dots")];
    }
    ErrorList::new()
}

/// A subdomain of at least two labels, and maybe a dot at the end.
#[must_use]
pub fn is_fully_qualified_domain_name(path: &Path<'_>, name: &str) -> ErrorList {
    if name.is_empty() {
        return vec![Error::required(path, "")];
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let messages = is_dns1123_subdomain(name);
    if !messages.is_empty() {
        return vec![Error::invalid(path, name, messages.join(","))];
    }
    if name.split('.').count() < 2 {
        return vec![Error::invalid(path, name, "should be a domain with at least two segments separated by dots")];
    }
    let wrong = name.split('.').map(|label| (label, is_dns1123_label(label))).find(|(_, wrong)| !wrong.is_empty());
    wrong.map(|(label, wrong)| Error::invalid(path, label, wrong.join(","))).into_iter().collect()
}

/// A subdomain, a slash and a path: `acme.io/foo`.
#[must_use]
pub fn is_domain_prefixed_path(path: &Path<'_>, value: &str) -> ErrorList {
    if value.is_empty() {
        return vec![Error::required(path, "")];
    }
    let Some((host, rest)) = value.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) else {
        return vec![Error::invalid(path, value, "must be a domain-prefixed path (such as \"acme.io/foo\")")];
    };
    let mut errors: ErrorList =
        is_dns1123_subdomain(host).into_iter().map(|message| Error::invalid(path, host, message)).collect();
    if !rest.bytes().all(|c| c.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&c)) {
        errors.push(Error::invalid(path, rest, HTTP_PATH.message()));
    }
    errors
}

/// A qualified name that has a prefix: `acme.io/foo`.
#[must_use]
pub fn is_domain_prefixed_key(path: &Path<'_>, key: &str) -> ErrorList {
    if key.is_empty() {
        return vec![Error::required(path, "")];
    }
    let mut errors: ErrorList =
        is_qualified_name(key).into_iter().map(|message| Error::invalid(path, key, message)).collect();
    if errors.is_empty() && !key.contains('/') {
        errors.push(Error::invalid(path, key, "must be a domain-prefixed key (such as \"acme.io/foo\")"));
    }
    errors
}
