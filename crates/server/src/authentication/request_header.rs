//! A proxy in front that has authenticated the user itself, and says who it is in headers. It is believed by its own
//! client certificate.

use capstan_api::Str;
use capstan_clock::Timestamp;
use http::HeaderMap;

use super::{Authenticated, CertificatePool, Outcome, PeerCertificates};
use crate::{authorization::UserInfo, request::url::unescape_path};

/// The headers in which proxies name the user.
#[derive(Clone, Debug, Default)]
pub struct HeaderNames {
    /// The name: the first of these that has a value.
    pub username: Vec<String>,
    /// The uid: the first of these that has a value.
    pub uid: Vec<String>,
    /// The groups: all values of all of these.
    pub group: Vec<String>,
    /// Extra: all values of headers that begin with one of these, by the rest of the name.
    pub extra_prefix: Vec<String>,
}

/// Which proxies are believed, and where they say what.
#[derive(Clone, Debug)]
pub struct RequestHeaders {
    /// Who signs the proxies' certificates.
    pub ca: CertificatePool,
    /// The common names of the proxies; empty for all that `ca` signed.
    pub allowed_names: Vec<String>,
    /// Where they name the user.
    pub names: HeaderNames,
}

impl RequestHeaders {
    /// The headers that everybody uses.
    #[must_use]
    pub fn standard_names() -> HeaderNames {
        let one = |name: &str| vec![name.to_owned()];
        HeaderNames {
            username: one("X-Remote-User"),
            uid: one("X-Remote-Uid"),
            group: one("X-Remote-Group"),
            extra_prefix: one("X-Remote-Extra-"),
        }
    }

    pub(super) fn authenticate(&self, headers: &HeaderMap, peer: &PeerCertificates, now: Timestamp) -> Outcome {
        let proxy = self.ca.proxy(peer, now)?.common_name;
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|name| *name == proxy) {
            return Err(format!("x509: subject with cn={proxy} is not in the allowed list").into());
        }
        let first = |names: &[String]| {
            let mut values = names.iter().map(|name| header_text(headers, name));
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        let name = first(&self.names.username);
        if name.is_empty() {
            return Ok(None);
        }
        let mut user = UserInfo { name, uid: first(&self.names.uid), ..UserInfo::default() };
        let groups = self.names.group.iter().flat_map(|name| header_texts(headers, name));
        user.groups = groups.filter(|group| !group.is_empty()).collect();
        for prefix in &self.names.extra_prefix {
            for (key, values) in headers_with_prefix(headers, prefix) {
                user.extra.entry(key).or_default().extend(values);
            }
        }
        Ok(Some(Authenticated { user, ..Authenticated::default() }))
    }
}

impl HeaderNames {
    /// Removes these headers.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        for name in self.username.iter().chain(&self.uid).chain(&self.group) {
            headers.remove(name.as_str());
        }
        for prefix in &self.extra_prefix {
            remove_with_prefix(headers, prefix);
        }
    }
}

/// The headers whose names begin so, by the rest of their names, percent-decoded where that can be done.
pub(crate) fn headers_with_prefix<'a>(
    headers: &'a HeaderMap,
    prefix: &str,
) -> impl Iterator<Item = (Str, Vec<Str>)> + use<'a> {
    let prefix = prefix.to_ascii_lowercase();
    headers.keys().filter_map(move |name| {
        let rest = name.as_str().strip_prefix(prefix.as_str())?;
        Some((Str::from(unescape_path(rest)), header_texts(headers, name.as_str()).collect()))
    })
}

/// Removes the headers whose names begin so.
pub(crate) fn remove_with_prefix(headers: &mut HeaderMap, prefix: &str) {
    let prefix = prefix.to_ascii_lowercase();
    let names: Vec<_> = headers.keys().filter(|name| name.as_str().starts_with(&prefix)).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// The first value of a header; empty if there is none.
pub(crate) fn header_text(headers: &HeaderMap, name: &str) -> Str {
    header_texts(headers, name).next().unwrap_or_default()
}

/// All values of a header. Bytes that are no text become the sign for that: no name that matters has it.
pub(crate) fn header_texts(headers: &HeaderMap, name: &str) -> impl Iterator<Item = Str> {
    headers.get_all(name).iter().map(|value| Str::from_utf8_lossy(value.as_bytes()))
}
