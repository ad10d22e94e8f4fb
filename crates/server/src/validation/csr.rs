//! Requests for certificates.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::{is_dns1123_label, is_dns1123_subdomain},
};
use x509_parser::{certification_request::X509CertificationRequest, pem::Pem, prelude::FromDer};

use super::{
    diff::diff,
    read::{at, int, list, objects, text},
    shape::{Field, TEXT, list as show_list},
};
use crate::base64;

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");
const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const MIN_SECONDS: i64 = 600;
const MAX_DOMAIN: usize = 253;
/// A domain, a slash, and a path that has room for a label, a dot and a subdomain.
const MAX_SIGNER: usize = MAX_DOMAIN + 1 + MAX_DOMAIN + 63 + 1;
/// More blocks than this are too many for a chain of certificates.
const MAX_BLOCKS: usize = 1_000;
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Base64 as it is in objects.
fn bytes(text: &str) -> Vec<u8> {
    let url = text.trim_end_matches('=').replace('+', "-").replace('/', "_");
    base64::decode_url(url.as_bytes()).unwrap_or_default()
}

fn blocks(pem: &[u8]) -> Vec<Pem> {
    Pem::iter_from_buffer(pem).take(MAX_BLOCKS).map_while(Result::ok).collect()
}

/// What is wrong with a request for a certificate, if anything.
fn request_error(pem: &[u8]) -> Option<String> {
    match blocks(pem).first() {
        Some(block) if block.label == "CERTIFICATE REQUEST" => {
            let error = X509CertificationRequest::from_der(&block.contents).err()?;
            // What Go says to all that ends too early; other words are the parser's own.
            let words = error.to_string();
            Some(if words.contains("Eof") { "asn1: syntax error: data truncated".to_owned() } else { words })
        }
        _ => Some("PEM block type must be CERTIFICATE REQUEST".to_owned()),
    }
}

/// What is wrong with certificates, if anything. The parser that is used reads no headers, so these are looked for
/// by hand.
fn certificate_error(pem: &[u8]) -> Option<String> {
    if pem.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(pem);
    let mut lines = text.lines();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.trim_end().strip_suffix("-----"))
        else {
            continue;
        };
        if label != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {}", go::quote(label)));
        }
        if lines.next().is_some_and(|line| line.contains(':')) {
            return Some("no PEM block headers are permitted".to_owned());
        }
        count += 1;
    }
    if count == 0 {
        return Some("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    blocks(pem).iter().find_map(|block| block.parse_x509().err()).map(|error| error.to_string())
}

fn usages(csr: &Map) -> impl Iterator<Item = &str> {
    list(at(csr, "spec"), "usages").iter().map(|usage| usage.as_str().unwrap_or(""))
}

fn conditions<'a>(csr: &'a Map, ty: &'a str) -> Vec<&'a Map> {
    let all = objects(at(csr, "status"), "conditions").map(|(_, condition)| condition);
    all.filter(|condition| text(condition, "type") == ty).collect()
}

fn types(csr: &Map) -> Vec<&str> {
    objects(at(csr, "status"), "conditions").map(|(_, condition)| text(condition, "type")).collect()
}

fn has_twice<'a>(items: impl IntoIterator<Item = &'a str>) -> bool {
    let mut seen = BTreeSet::new();
    items.into_iter().any(|item| !seen.insert(item))
}

pub(super) fn create(csr: &Map, errors: &mut ErrorList) {
    body(csr, None, errors);
}

fn body(csr: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    let spec = at(csr, "spec");
    let request = text(spec, "request");
    if let Some(error) = request_error(&bytes(request)) {
        errors.push(Error::invalid(SPEC.child("request"), spec.get("request").cloned().unwrap_or_default(), error));
    }
    let path = SPEC.child("usages");
    if usages(csr).next().is_none() {
        errors.push(Error::required(path, ""));
    }
    if !old.is_some_and(|old| usages(old).any(|usage| !USAGES.contains(&usage))) {
        for (i, usage) in usages(csr).enumerate().filter(|(_, usage)| !USAGES.contains(usage)) {
            errors.push(Error::not_supported(path.index(i), usage, USAGES));
        }
    }
    if !old.is_some_and(|old| has_twice(usages(old))) {
        let mut seen = BTreeSet::new();
        for (i, usage) in usages(csr).enumerate() {
            if !seen.insert(usage) {
                errors.push(Error::duplicate(path.index(i), usage));
            }
        }
    }
    let signer = text(spec, "signerName");
    let may_be_legacy = old.is_some_and(|old| text(at(old, "spec"), "signerName") == LEGACY_SIGNER);
    if signer == LEGACY_SIGNER && !may_be_legacy {
        let detail = "the legacy signerName is not allowed via this API version";
        errors.push(Error::invalid(SPEC.child("signerName"), signer, detail));
    } else {
        signer_name(signer, &SPEC.child("signerName"), errors);
    }
    if let Some(seconds) = int(spec, "expirationSeconds").filter(|seconds| *seconds < MIN_SECONDS) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(Error::invalid(SPEC.child("expirationSeconds"), seconds, detail));
    }
    check_conditions(csr, old, errors);
    let certificate = |csr| bytes(text(at(csr, "status"), "certificate"));
    let now = certificate(csr);
    if old.is_some_and(|old| certificate(old) == now || certificate_error(&certificate(old)).is_some()) {
        return;
    }
    if let Some(error) = certificate_error(&now) {
        errors.push(Error::invalid(STATUS.child("certificate"), "<certificate data>", error));
    }
}

/// A signer is a domain and a path.
pub(super) fn signer_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        return errors.push(Error::required(path, ""));
    }
    let parts: Vec<_> = name.split('/').collect();
    let [domain, place] = parts[..] else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.push(Error::invalid(path, name, detail));
    };
    if domain.len() > MAX_DOMAIN {
        errors.push(Error::too_long(path, MAX_DOMAIN));
    }
    labels(domain, is_dns1123_label, path, errors);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.push(Error::invalid(path, domain, detail));
    }
    labels(place, is_dns1123_subdomain, path, errors);
    if name.len() > MAX_SIGNER {
        errors.push(Error::too_long(path, MAX_SIGNER));
    }
}

/// What is wrong with the first label that is wrong.
fn labels(part: &str, rule: fn(&str) -> Vec<String>, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some((label, messages)) =
        part.split('.').map(|label| (label, rule(label))).find(|(_, messages)| !messages.is_empty())
    {
        let told = |message| format!("validating label {}: {message}", go::quote(label));
        errors.extend(messages.into_iter().map(|message| Error::invalid(path, part, told(message))));
    }
}

fn check_conditions(csr: &Map, old: Option<&Map>, errors: &mut ErrorList) {
    let path = STATUS.child("conditions");
    let old_types = old.map(types).unwrap_or_default();
    let has = |ty: &str| old_types.contains(&ty);
    let (may_be_empty, may_repeat) = (has(""), has_twice(old_types.iter().copied()));
    let may_contradict = has("Approved") && has("Denied");
    let mut seen = BTreeSet::new();
    for (i, condition) in objects(at(csr, "status"), "conditions") {
        let path = path.index(i);
        let (ty, status) = (text(condition, "type"), text(condition, "status"));
        if ty.is_empty() && !may_be_empty {
            errors.push(Error::required(path.child("type"), ""));
        }
        let known =
            if ["Approved", "Denied", "Failed"].contains(&ty) { &["True"][..] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            errors.push(Error::required(path.child("status"), ""));
        } else if !known.contains(&status) {
            errors.push(Error::not_supported(path.child("status"), status, known));
        }
        let opposite = match ty {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "\0",
        };
        if !may_contradict && seen.contains(opposite) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            errors.push(Error::invalid(STATUS.child("conditions"), ty, detail));
        }
        if !seen.insert(ty) && !may_repeat {
            errors.push(Error::duplicate(path.child("type"), ty));
        }
    }
}

/// Conditions as Go prints them.
const CONDITION: &[Field] = &[
    ("Type", "type", TEXT),
    ("Status", "status", TEXT),
    ("Reason", "reason", TEXT),
    ("Message", "message", TEXT),
    ("LastUpdateTime", "lastUpdateTime", super::shape::NIL),
    ("LastTransitionTime", "lastTransitionTime", super::shape::NIL),
];

/// What may be written where.
#[derive(Clone, Copy, Default)]
struct Allowed {
    approval: bool,
    certificate: bool,
}

fn changes(new: &Map, old: &Map, allowed: Allowed, errors: &mut ErrorList) {
    body(new, Some(old), errors);
    let path = STATUS.child("conditions");
    for ty in ["Approved", "Denied", "Failed"] {
        if conditions(new, ty).len() < conditions(old, ty).len() {
            let detail = format!("updates may not remove a condition of type \"{ty}\"");
            errors.push(Error::forbidden(path, detail));
        }
    }
    if !allowed.approval {
        for ty in ["Approved", "Denied"] {
            let (now, before) = (conditions(new, ty), conditions(old, ty));
            if now.len() > before.len() {
                errors.push(Error::forbidden(path, format!("updates may not add a condition of type \"{ty}\"")));
            } else if now.len() == before.len() && now != before {
                let shown = |all: &[&Map]| {
                    let all: Vec<Value> = all.iter().map(|one| Value::from((*one).clone())).collect();
                    show_list(Some(&Value::from(all)), CONDITION)
                };
                let diff = diff(&shown(&before), &shown(&now));
                let detail = format!("updates may not modify a condition of type \"{ty}\"\n{diff}");
                errors.push(Error::forbidden(path, detail));
            }
        }
    }
    let certificate = |csr| text(at(csr, "status"), "certificate");
    if certificate(new) != certificate(old) {
        let path = STATUS.child("certificate");
        if !allowed.certificate {
            errors.push(Error::forbidden(path, "updates may not set certificate content"));
        } else if !certificate(old).is_empty() {
            errors.push(Error::forbidden(path, "updates may not modify existing certificate content"));
        }
    }
}

pub(super) fn update(new: &Map, old: &Map, errors: &mut ErrorList) {
    changes(new, old, Allowed::default(), errors);
}

pub(super) fn status(new: &Map, old: &Map, errors: &mut ErrorList) {
    changes(new, old, Allowed { certificate: true, ..Allowed::default() }, errors);
}

pub(super) fn approval(new: &Map, old: &Map, errors: &mut ErrorList) {
    changes(new, old, Allowed { approval: true, ..Allowed::default() }, errors);
}
