//! Client certificates: the common name is the user, the organizations are the groups.

use std::{fmt, sync::OnceLock, time::Duration};

use capstan_api::Str;
use capstan_clock::Timestamp;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{
    oid_registry::{Oid, asn1_rs::oid},
    prelude::{FromDer, X509Certificate},
};

use super::{Authenticated, AuthenticationError, CREDENTIAL_ID, Outcome};
use crate::{authorization::UserInfo, sha256::sha256};

/// More certificates than this do not make a chain; more work than this is not done for a stranger.
const MAX_CHAIN: usize = 10;
/// Where a subject names the uid (1.3.6.1.4.1.57683.2).
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// Some bytes are not the certificate of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidAuthority;

impl fmt::Display for InvalidAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("data does not contain any valid RSA or ECDSA certificates")
    }
}

impl std::error::Error for InvalidAuthority {}

/// The certificates that a client showed when it connected, the leaf first. One value a connection: what was found out
/// about them is kept, so only the first request of a connection pays for the signatures. They must be shown to one
/// authenticator only.
#[derive(Debug, Default)]
pub struct PeerCertificates {
    chain: Vec<CertificateDer<'static>>,
    as_client: OnceLock<(Identity, Window)>,
    as_proxy: OnceLock<(Identity, Window)>,
}

impl PeerCertificates {
    /// What a client showed; `None` if that is nothing.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Option<Self> {
        (!chain.is_empty()).then(|| PeerCertificates { chain, ..PeerCertificates::default() })
    }
}

/// What a certificate says about its owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Identity {
    pub(super) common_name: Str,
    organizations: Vec<Str>,
    uids: Vec<Option<Str>>,
    fingerprint: String,
}

/// From when and until when a chain is valid, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Window(i64, i64);

impl Window {
    fn of(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        Window(validity.not_before.timestamp(), validity.not_after.timestamp())
    }

    fn and(self, other: Window) -> Self {
        Window(self.0.max(other.0), self.1.min(other.1))
    }

    fn holds(self, now: Timestamp) -> bool {
        (self.0..=self.1).contains(&now.as_second())
    }
}

/// Authorities whose certificates are believed.
#[derive(Clone, Debug)]
pub struct CertificatePool {
    anchors: Vec<TrustAnchor<'static>>,
    /// The validity of each anchor.
    windows: Vec<Window>,
}

impl CertificatePool {
    /// All certificates in a PEM text.
    ///
    /// # Errors
    /// When there is none, or one is broken.
    pub fn from_pem(pem: &[u8]) -> Result<Self, InvalidAuthority> {
        let mut pool = CertificatePool { anchors: Vec::new(), windows: Vec::new() };
        for der in CertificateDer::pem_slice_iter(pem) {
            let der = der.map_err(|_| InvalidAuthority)?;
            let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| InvalidAuthority)?;
            pool.anchors.push(anchor_from_trusted_cert(&der).map_err(|_| InvalidAuthority)?.to_owned());
            pool.windows.push(Window::of(&certificate));
        }
        if pool.anchors.is_empty() { Err(InvalidAuthority) } else { Ok(pool) }
    }

    /// The user of a client certificate.
    pub(super) fn authenticate(&self, peer: &PeerCertificates, now: Timestamp) -> Outcome {
        let identity = self.verify(peer, &peer.as_client, now)?;
        if identity.common_name.is_empty() {
            return Ok(None);
        }
        let uid = match &identity.uids[..] {
            [] => Str::default(),
            [None] => return Err("unable to parse UID into a string".into()),
            [Some(uid)] if uid.is_empty() => return Err("UID cannot be an empty string".into()),
            [Some(uid)] => uid.clone(),
            several => {
                let several: Vec<&str> = several.iter().map(|uid| uid.as_deref().unwrap_or("")).collect();
                return Err(format!("expected 1 UID, but found multiple: [{}]", several.join(" ")).into());
            }
        };
        let mut user =
            UserInfo { name: identity.common_name, uid, groups: identity.organizations, ..UserInfo::default() };
        user.extra.insert(CREDENTIAL_ID.into(), vec![format!("X509SHA256={}", identity.fingerprint).into()]);
        Ok(Some(Authenticated { user, ..Authenticated::default() }))
    }

    /// Who a proxy's certificate belongs to.
    pub(super) fn proxy(&self, peer: &PeerCertificates, now: Timestamp) -> Result<Identity, AuthenticationError> {
        self.verify(peer, &peer.as_proxy, now)
    }

    fn verify(
        &self,
        peer: &PeerCertificates,
        known: &OnceLock<(Identity, Window)>,
        now: Timestamp,
    ) -> Result<Identity, AuthenticationError> {
        if let Some((identity, window)) = known.get()
            && window.holds(now)
        {
            return Ok(identity.clone());
        }
        let leaf = peer.chain.first().ok_or("no certificate")?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| "malformed certificate")?;
        let window = self.check(peer, now).map_err(|problem| {
            let serial = &parsed.tbs_certificate.serial;
            format!("verifying certificate SN={serial} failed: x509: {problem}")
        })?;
        let identity = identity(&parsed, leaf);
        // Somebody else may have been first, and found the same.
        let _ = known.set((identity.clone(), window));
        Ok(identity)
    }

    /// When a chain to one of the anchors is valid, if it is now.
    fn check(&self, peer: &PeerCertificates, now: Timestamp) -> Result<Window, String> {
        let (leaf, others) = peer.chain.split_first().ok_or("no certificate")?;
        if others.len() >= MAX_CHAIN {
            return Err("too many intermediates for path length constraint".into());
        }
        let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
        let leaf_certificate = EndEntityCert::try_from(leaf).map_err(|error| error.to_string())?;
        let path = leaf_certificate
            .verify_for_usage(ALL_VERIFICATION_ALGS, &self.anchors, others, time, KeyUsage::client_auth(), None, None)
            .map_err(|error| error.to_string())?;
        let anchor = self.anchors.iter().position(|anchor| anchor == path.anchor());
        let window = anchor.map_or(Window(0, i64::MAX), |at| self.windows[at]);
        // Upstream looks at the dates of the authority too.
        if !window.holds(now) {
            return Err("certificate has expired or is not yet valid".into());
        }
        let shown = [leaf].into_iter().chain(others).filter_map(|der| X509Certificate::from_der(der).ok());
        Ok(shown
            .map(|(_, certificate)| Window::of(&certificate))
            .filter(|own| own.holds(now))
            .fold(window, Window::and))
    }
}

fn identity(certificate: &X509Certificate<'_>, der: &CertificateDer<'_>) -> Identity {
    let subject = certificate.subject();
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(Str::from);
    Identity {
        // The last one counts, as in Go.
        common_name: subject.iter_common_name().last().and_then(text).unwrap_or_default(),
        organizations: subject.iter_organization().filter_map(text).collect(),
        uids: subject.iter_by_oid(&UID).map(text).collect(),
        fingerprint: sha256(der).iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}
