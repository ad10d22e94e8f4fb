//! TLS for the server: client certificates are asked for, never demanded, and judged later.
//!
//! A bad client certificate is to be answered with 401, not with a broken handshake, so the handshake takes every
//! certificate whose key the client has; the authenticator checks who issued it.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
    version::{TLS12, TLS13},
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::Certified;

/// How the server speaks TLS: versions 1.2 and 1.3, `h2` before `http/1.1`. `authorities` are the ones whose client
/// certificates are welcome; clients choose theirs by that.
///
/// # Errors
/// When the certificate and the key cannot be used.
pub fn server_config(serving: &Certified, authorities: &[CertificateDer<'_>]) -> Result<ServerConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let names = authorities.iter().filter_map(|authority| {
        let (_, certificate) = X509Certificate::from_der(authority).ok()?;
        Some(DistinguishedName::from(certificate.subject().as_raw().to_vec()))
    });
    let verifier = AnyCertificate { names: names.collect(), provider: Arc::clone(&provider) };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(serving.chain(), serving.key.der())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct AnyCertificate {
    names: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyCertificate {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.names
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match X509Certificate::from_der(end_entity) {
            Ok(_) => Ok(ClientCertVerified::assertion()),
            Err(_) => Err(Error::InvalidCertificate(rustls::CertificateError::BadEncoding)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
