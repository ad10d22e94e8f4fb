//! An authority that issues certificates.

use std::{fmt, net::IpAddr, time::Duration};

use capstan_api::Time;
use capstan_clock::{Ids, Timestamp};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer, UnixTime, pem::PemObject};
use x509_parser::{
    extensions::ParsedExtension,
    prelude::{FromDer, X509Certificate},
};

use super::{
    der::{self, Element, Elements},
    key::{PrivateKey, pem},
};
use crate::sha256::sha256;

/// Clocks differ: certificates are valid from a little before they were made.
const BACKDATE: Duration = Duration::from_mins(5);

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];

/// What a key may be used for, by the names of CertificateSigningRequests: the name, and the bit of the key usage or
/// the last number of the extended key usage.
const USAGES: &[(&str, Use)] = &[
    ("signing", Use::Bit(0)),
    ("digital signature", Use::Bit(0)),
    ("content commitment", Use::Bit(1)),
    ("key encipherment", Use::Bit(2)),
    ("data encipherment", Use::Bit(3)),
    ("key agreement", Use::Bit(4)),
    ("cert sign", Use::Bit(5)),
    ("crl sign", Use::Bit(6)),
    ("encipher only", Use::Bit(7)),
    ("server auth", Use::Extended(1)),
    ("client auth", Use::Extended(2)),
    ("code signing", Use::Extended(3)),
    ("email protection", Use::Extended(4)),
    ("s/mime", Use::Extended(4)),
    ("timestamping", Use::Extended(8)),
    ("ocsp signing", Use::Extended(9)),
];

#[derive(Clone, Copy)]
enum Use {
    Bit(u8),
    /// Below id-kp.
    Extended(u8),
}

/// Whom and what a certificate is for.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The common name: the user, for clients.
    pub common_name: &'a str,
    /// The organizations: the groups, for clients.
    pub organizations: &'a [&'a str],
    /// Names and addresses of a server.
    pub alt_names: &'a [&'a str],
    /// What it may be used for, by the names of CertificateSigningRequests (`client auth`).
    pub usages: &'a [&'a str],
    /// How long it is valid.
    pub validity: Duration,
}

/// Why a certificate cannot be issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IssueError {
    /// The request is not one in PEM form.
    Malformed,
    /// The request was not signed by the key that it is about.
    Signature,
    /// There is no such usage.
    Usage(String),
    /// The authority itself ends before the certificate would begin.
    Expired,
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IssueError::Malformed => f.write_str("not a certificate request in PEM form"),
            IssueError::Signature => f.write_str("the request is not signed by its own key"),
            IssueError::Usage(usage) => write!(f, "unrecognized key usage {usage:?}"),
            IssueError::Expired => f.write_str("the certificate authority has expired"),
        }
    }
}

impl std::error::Error for IssueError {}

/// A certificate and its key.
#[derive(Debug)]
pub struct Certified {
    /// The certificate, PEM.
    pub certificate: String,
    /// The key.
    pub key: PrivateKey,
}

impl Certified {
    /// The certificates in DER, the leaf first.
    #[must_use]
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(self.certificate.as_bytes()).filter_map(Result::ok).collect()
    }
}

/// A certificate authority with its key.
#[derive(Debug)]
pub struct Authority {
    /// Its certificate and key.
    pub own: Certified,
    /// The name, encoded.
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_after: i64,
}

impl Authority {
    /// A new one, self-signed.
    pub(super) fn generate(name: &str, validity: Duration, now: Timestamp, ids: &dyn Ids) -> Self {
        let key = PrivateKey::generate();
        let subject = distinguished_name(name, &[]);
        let not_after = end(now, validity, i64::MAX);
        let constraints = der::element(der::SEQUENCE, &[der::BOOLEAN_TRUE]);
        let key_id = key_identifier(&key.public().spki);
        let mut extensions = usage_extensions(&["digital signature", "key encipherment", "cert sign"])
            .expect("these usages are in the table");
        extensions.push(extension(BASIC_CONSTRAINTS, true, &constraints));
        extensions.push(extension(SUBJECT_KEY_ID, false, &der::element(der::OCTET_STRING, &[&key_id])));
        let parts = Parts { subject: &subject, spki: &key.public().spki, extensions, now, not_after };
        let certificate = certificate(&key, &subject, parts, ids);
        Authority { own: Certified { certificate, key }, subject, key_id: Some(key_id), not_after }
    }

    /// The authority with this certificate (PEM) and key.
    ///
    /// # Errors
    /// What is wrong, to be put behind the name of the file.
    pub fn load(certificate: String, key: PrivateKey, now: Timestamp) -> Result<Self, &'static str> {
        let own = Certified { certificate, key };
        let chain = own.chain();
        let der = chain.first().ok_or("holds no certificate in PEM form")?;
        let (_, parsed) = X509Certificate::from_der(der).map_err(|_| "holds a broken certificate")?;
        if parsed.public_key().raw != own.key.public().spki {
            return Err("does not belong to the key beside it");
        }
        if !parsed.is_ca() {
            return Err("is not the certificate of an authority");
        }
        let not_after = parsed.validity().not_after.timestamp();
        if not_after < now.as_second() {
            return Err("has expired");
        }
        let key_id = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        let subject = parsed.subject().as_raw().to_vec();
        Ok(Authority { own, subject, key_id, not_after })
    }

    /// Whether this authority's key signed the certificate.
    pub(super) fn signed(&self, certificate: &X509Certificate<'_>) -> bool {
        let chain = self.own.chain();
        let Some(anchor) = chain.first().and_then(|own| webpki::anchor_from_trusted_cert(own).ok()) else {
            return false;
        };
        let der = CertificateDer::from(certificate.as_raw());
        let Ok(leaf) = webpki::EndEntityCert::try_from(&der) else { return false };
        // Its dates are somebody else's question, so it is judged at a moment when it was valid.
        let then = u64::try_from(certificate.validity().not_before.timestamp()).unwrap_or(0);
        let then = UnixTime::since_unix_epoch(Duration::from_secs(then));
        leaf.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &[anchor], &[], then, AnyUse, None, None).is_ok()
    }

    /// A certificate with a new key.
    ///
    /// # Errors
    /// When a usage is unknown or the authority has expired.
    pub fn issue(&self, request: &Request<'_>, now: Timestamp, ids: &dyn Ids) -> Result<Certified, IssueError> {
        let key = PrivateKey::generate();
        let subject = distinguished_name(request.common_name, request.organizations);
        let names = (!request.alt_names.is_empty()).then(|| alt_names(request.alt_names));
        let spki = &key.public().spki;
        let certificate =
            self.certify(&subject, spki, names.as_deref(), request.usages, request.validity, (now, ids))?;
        Ok(Certified { certificate, key })
    }

    /// A certificate (PEM) for whoever made this request (PEM): its subject, key and alternative names are taken over,
    /// nothing else.
    ///
    /// # Errors
    /// When the request is broken or not signed by its key, a usage is unknown, or the authority has expired.
    pub fn sign_request(
        &self,
        request: &str,
        usages: &[&str],
        validity: Duration,
        now: Timestamp,
        ids: &dyn Ids,
    ) -> Result<String, IssueError> {
        let der =
            CertificateSigningRequestDer::from_pem_slice(request.as_bytes()).map_err(|_| IssueError::Malformed)?;
        let parsed = ParsedRequest::read(&der).ok_or(IssueError::Malformed)?;
        if !parsed.is_signed_by_its_key() {
            return Err(IssueError::Signature);
        }
        self.certify(parsed.subject, parsed.spki, parsed.alt_names, usages, validity, (now, ids))
    }

    fn certify(
        &self,
        subject: &[u8],
        spki: &[u8],
        alt_names: Option<&[u8]>,
        usages: &[&str],
        validity: Duration,
        (now, ids): (Timestamp, &dyn Ids),
    ) -> Result<String, IssueError> {
        if self.not_after < now.as_second() {
            return Err(IssueError::Expired);
        }
        let mut extensions = usage_extensions(usages)?;
        extensions.push(extension(BASIC_CONSTRAINTS, true, &der::element::<&[u8]>(der::SEQUENCE, &[])));
        if let Some(id) = &self.key_id {
            let id = der::element(der::implicit(0), &[id]);
            extensions.push(extension(AUTHORITY_KEY_ID, false, &der::element(der::SEQUENCE, &[id])));
        }
        if let Some(names) = alt_names {
            extensions.push(extension(SUBJECT_ALT_NAME, false, names));
        }
        let parts = Parts { subject, spki, extensions, now, not_after: end(now, validity, self.not_after) };
        Ok(certificate(&self.own.key, &self.subject, parts, ids))
    }
}

/// Every use will do.
struct AnyUse;

impl webpki::ExtendedKeyUsageValidator for AnyUse {
    fn validate(&self, _: webpki::KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        Ok(())
    }
}

/// When a certificate made now ends: never after its authority.
fn end(now: Timestamp, validity: Duration, authority: i64) -> i64 {
    let seconds = i64::try_from(validity.as_secs()).unwrap_or(i64::MAX);
    now.as_second().saturating_add(seconds).min(authority)
}

struct Parts<'a> {
    subject: &'a [u8],
    spki: &'a [u8],
    extensions: Vec<Vec<u8>>,
    now: Timestamp,
    not_after: i64,
}

fn certificate(signer: &PrivateKey, issuer: &[u8], parts: Parts<'_>, ids: &dyn Ids) -> String {
    let mut serial = [0; 16];
    ids.fill(&mut serial);
    let algorithm = signer.public().x509_algorithm();
    let not_before = parts.now.as_second() - BACKDATE.as_secs() as i64;
    let validity = der::element(der::SEQUENCE, &[time(not_before), time(parts.not_after)]);
    // Version 3 is written as 2.
    let version = der::element(der::field(0), &[der::unsigned(&[2])]);
    let extensions = der::element(der::field(3), &[der::element(der::SEQUENCE, &parts.extensions)]);
    let serial = der::unsigned(&serial);
    let fields = [&version, &serial, &algorithm, issuer, &validity, parts.subject, parts.spki, &extensions];
    let body = der::element(der::SEQUENCE, &fields);
    let signature = der::bits(&signer.sign_x509(&body));
    pem("CERTIFICATE", &der::element(der::SEQUENCE, &[body, algorithm, signature]))
}

/// Certificates write years before 2050 with two digits, and must.
fn time(seconds: i64) -> Vec<u8> {
    let digits: String = Time::from_unix(seconds, 0).to_string().replace(['-', ':', 'T'], "");
    match digits.as_str() {
        short if ("1950".."2050").contains(&short) => der::element(der::UTC_TIME, &[&short[2..]]),
        long => der::element(der::GENERALIZED_TIME, &[long]),
    }
}

fn distinguished_name(common_name: &str, organizations: &[&str]) -> Vec<u8> {
    let part = |oid: &[u8], text: &str| {
        let pair = [der::element(der::OID, &[oid]), der::element(der::UTF8_STRING, &[text])];
        der::element(der::SET, &[der::element(der::SEQUENCE, &pair)])
    };
    let mut parts: Vec<Vec<u8>> = organizations.iter().map(|name| part(ORGANIZATION, name)).collect();
    parts.push(part(COMMON_NAME, common_name));
    der::element(der::SEQUENCE, &parts)
}

fn alt_names(names: &[&str]) -> Vec<u8> {
    let names = names.iter().map(|name| match name.parse() {
        Ok(IpAddr::V4(address)) => der::element(der::implicit(7), &[address.octets()]),
        Ok(IpAddr::V6(address)) => der::element(der::implicit(7), &[address.octets()]),
        Err(_) => der::element(der::implicit(2), &[name]),
    });
    der::element(der::SEQUENCE, &names.collect::<Vec<_>>())
}

fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical = if critical { der::BOOLEAN_TRUE } else { &[] };
    let value = der::element(der::OCTET_STRING, &[value]);
    der::element(der::SEQUENCE, &[&der::element(der::OID, &[oid]), critical, &value])
}

fn usage_extensions(usages: &[&str]) -> Result<Vec<Vec<u8>>, IssueError> {
    let (mut bits, mut extended) = (0_u8, Vec::new());
    for usage in usages {
        let found = USAGES.iter().find(|(name, _)| name == usage);
        match found.ok_or_else(|| IssueError::Usage((*usage).to_owned()))?.1 {
            Use::Bit(bit) => bits |= 0x80 >> bit,
            Use::Extended(number) => {
                extended.push(der::element(der::OID, &[[0x2b, 6, 1, 5, 5, 7, 3, number]]));
            }
        }
    }
    let mut out = Vec::new();
    if bits != 0 {
        let unused = bits.trailing_zeros() as u8;
        out.push(extension(KEY_USAGE, true, &der::element(der::BIT_STRING, &[[unused, bits]])));
    }
    if !extended.is_empty() {
        out.push(extension(EXTENDED_KEY_USAGE, false, &der::element(der::SEQUENCE, &extended)));
    }
    Ok(out)
}

fn key_identifier(spki: &[u8]) -> Vec<u8> {
    /// As long as the SHA-1 hashes that were used for this.
    const LENGTH: usize = 20;
    sha256(spki)[..LENGTH].to_vec()
}

/// The parts of a certificate request that are taken over, and those that prove it.
struct ParsedRequest<'a> {
    subject: &'a [u8],
    spki: &'a [u8],
    alt_names: Option<&'a [u8]>,
    body: &'a [u8],
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> ParsedRequest<'a> {
    fn read(request: &'a [u8]) -> Option<Self> {
        let mut outer = Elements(Elements(request).next()?.of(der::SEQUENCE)?);
        let body = outer.next()?;
        let algorithm = outer.next()?.of(der::SEQUENCE)?;
        let (&unused, signature) = outer.next()?.of(der::BIT_STRING)?.split_first()?;
        let mut inner = Elements(body.of(der::SEQUENCE)?);
        inner.next()?.of(der::INTEGER)?;
        let (subject, spki) = (inner.next()?, inner.next()?);
        subject.of(der::SEQUENCE)?;
        spki.of(der::SEQUENCE)?;
        if unused != 0 {
            return None;
        }
        let alt_names = inner.find_map(|element| element.of(der::field(0))).and_then(requested_alt_names);
        Some(ParsedRequest {
            subject: subject.whole,
            spki: spki.whole,
            alt_names,
            body: body.whole,
            algorithm,
            signature,
        })
    }

    fn is_signed_by_its_key(&self) -> bool {
        let parts = || {
            let mut parts = Elements(Elements(self.spki).next()?.of(der::SEQUENCE)?);
            let algorithm = parts.next()?.of(der::SEQUENCE)?;
            let (_, key) = parts.next()?.of(der::BIT_STRING)?.split_first()?;
            Some((algorithm, key))
        };
        let Some((key_algorithm, key)) = parts() else { return false };
        webpki::ALL_VERIFICATION_ALGS.iter().any(|algorithm| {
            algorithm.signature_alg_id().as_ref() == self.algorithm
                && algorithm.public_key_alg_id().as_ref() == key_algorithm
                && algorithm.verify_signature(key, self.body, self.signature).is_ok()
        })
    }
}

/// The alternative names among a request's attributes.
fn requested_alt_names(attributes: &[u8]) -> Option<&[u8]> {
    let with_oid = |oid: &'static [u8]| {
        move |element: Element<'_>| Elements(element.contents).next().is_some_and(|first| first.contents == oid)
    };
    let attribute = Elements(attributes).find(|element| with_oid(EXTENSION_REQUEST)(*element))?;
    let values = Elements(attribute.contents).nth(1)?.of(der::SET)?;
    let extensions = Elements(values).next()?.of(der::SEQUENCE)?;
    let names = Elements(extensions).find(|element| with_oid(SUBJECT_ALT_NAME)(*element))?;
    Elements(names.contents).find_map(|element| element.of(der::OCTET_STRING))
}
