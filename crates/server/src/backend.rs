//! What all share that go to another server for an answer: whom they believe, which headers stay behind, how bodies and
//! connections are handed through, and how Go puts it when that fails.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use http_body::Frame;
use hyper::{body::Incoming, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::serve::ShutdownSignal;

/// How long it may take to reach another server.
pub(crate) const DIAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Headers that are about one connection, not about the request.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Removes the headers that are about one connection.
pub(crate) fn strip_hops(headers: &mut HeaderMap) {
    HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(name)));
}

/// The headers of a request as they go on to another server; `upgrade` says whether the connection is to be used for
/// something else, as the client asked.
pub(crate) fn pass_on(headers: &HeaderMap, upgrade: bool) -> HeaderMap {
    let protocol = headers.get(header::UPGRADE).cloned();
    let mut headers = headers.clone();
    strip_hops(&mut headers);
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    if let (true, Some(protocol)) = (upgrade, protocol) {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    headers
}

/// Takes any certificate whose key the other side has.
#[derive(Debug)]
pub(crate) struct Unchecked(pub(crate) Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Believes those whom these authorities have signed for, and those who are among them themselves, as Go does: many
/// servers show a certificate that they have signed themselves and that could sign for others.
#[derive(Debug)]
pub(crate) struct Believing {
    authorities: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl Believing {
    /// The certificates are the authorities.
    pub(crate) fn new(named: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        named.iter().try_for_each(|certificate| roots.add(certificate.clone()))?;
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Believing { authorities: authorities.map_err(|error| Error::General(error.to_string()))?, named })
    }

    fn is_named(&self, shown: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<bool, Error> {
        if !self.named.iter().any(|named| named == shown) {
            return Ok(false);
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        let bad = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, parsed) = X509Certificate::from_der(shown).map_err(bad)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let (from, to) = (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        if !(from..=to).contains(&now) {
            return Err(Error::InvalidCertificate(CertificateError::Expired));
        }
        Ok(true)
    }
}

impl ServerCertVerifier for Believing {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.is_named(end_entity, name, now)? {
            return Ok(ServerCertVerified::assertion());
        }
        self.authorities.verify_server_cert(end_entity, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// A connection, whatever it is made of.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// Whether a request wants to use its connection for something else.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let says = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().windows(7).any(|part| part == b"upgrade");
    headers.get_all(header::CONNECTION).iter().any(says)
}

/// Hands everything through, until one side is done or the server ends.
pub(crate) async fn tunnel(client: OnUpgrade, backend: OnUpgrade, closing: Option<ShutdownSignal>) {
    let (Ok(client), Ok(backend)) = tokio::join!(client, backend) else { return };
    let aborted = async {
        match &closing {
            Some(signal) => signal.aborted().await,
            None => std::future::pending().await,
        }
    };
    let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
    tokio::select! {
        // Whoever breaks off knows why.
        _ = copy_bidirectional(&mut client, &mut backend) => {}
        () = aborted => {}
    }
}

/// A host and a port as one text.
pub(crate) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Why a connection failed, in Go's words.
pub(crate) fn words(error: &io::Error) -> String {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        return tls_words(error);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

fn tls_words(error: &Error) -> String {
    let why = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "x509: certificate signed by unknown authority".to_owned()
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented }) => {
            let quoted = |name: &String| name.split('"').nth(1).unwrap_or(name).to_owned();
            let presented: Vec<String> = presented.iter().map(quoted).collect();
            format!("x509: certificate is valid for {}, not {}", presented.join(", "), expected.to_str())
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "x509: certificate has expired or is not yet valid".to_owned()
        }
        Error::InvalidCertificate(other) => format!("x509: {other}"),
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: {why}")
}

/// A body on its way from one server through another.
pub(crate) struct Relay(pub(crate) Incoming);

impl http_body::Body for Relay {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_behind() {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("host", "a"), ("content-length", "3"), ("x", "y")]
        {
            headers.insert(name, HeaderValue::from_static(value));
        }
        assert!(is_upgrade(&headers));
        let plain = pass_on(&headers, false);
        assert_eq!(plain.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x"]);
        let upgraded = pass_on(&headers, true);
        assert_eq!(upgraded[header::UPGRADE], "SPDY/3.1");
        assert!(is_upgrade(&upgraded));
    }

    #[test]
    fn failures_in_go_words() {
        let name = ServerName::try_from("a.b.svc").expect("a name");
        let wrong_name = CertificateError::NotValidForNameContext {
            expected: name.to_owned(),
            presented: vec!["DnsName(\"x.y.svc\")".to_owned()],
        };
        for (error, expected) in [
            (io::Error::from(io::ErrorKind::ConnectionRefused), "connect: connection refused"),
            (
                io::Error::other(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
                "tls: failed to verify certificate: x509: certificate signed by unknown authority",
            ),
            (
                io::Error::other(Error::InvalidCertificate(wrong_name)),
                "tls: failed to verify certificate: x509: certificate is valid for x.y.svc, not a.b.svc",
            ),
        ] {
            assert_eq!(words(&error), expected);
        }
    }
}
