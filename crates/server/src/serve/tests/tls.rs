//! TLS: protocols, certificates, and those who do not speak it.

use rustls::{ClientConfig, RootCertStore, server::WebPkiClientVerifier};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

struct Identity {
    certificate: rustls_pki_types::CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

fn identity(name: &str) -> Identity {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    Identity {
        certificate: made.cert.der().clone(),
        key: PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()),
    }
}

fn roots(identity: &Identity) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    roots
}

struct TlsServer {
    server: Server,
    identity: Identity,
    client: Identity,
}

impl TlsServer {
    async fn start() -> Self {
        let (identity, client) = (identity("localhost"), identity("somebody"));
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots(&client))).allow_unauthenticated().build().unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        let config = config.with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key()).unwrap();
        let server = Server::with(Limits::default(), Some(Arc::new(config))).await;
        TlsServer { server, identity, client }
    }

    async fn connect(&self, protocols: &[&str], with_certificate: bool) -> TlsStream<TcpStream> {
        let config = ClientConfig::builder().with_root_certificates(roots(&self.identity));
        let mut config = if with_certificate {
            let chain = vec![self.client.certificate.clone()];
            config.with_client_auth_cert(chain, self.client.key.clone_key()).unwrap()
        } else {
            config.with_no_client_auth()
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, self.server.connect().await).await.unwrap()
    }

    async fn check_http1(&self, protocols: &[&str], with_certificate: bool, expected: &str) {
        let mut stream = self.connect(protocols, with_certificate).await;
        stream.write_all(b"GET /peer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with(expected), "{protocols:?}: {answer}");
    }
}

#[tokio::test]
async fn clients_speak_what_was_agreed() {
    let server = TlsServer::start().await;
    server.check_http1(&[], false, "127.0.0.1 0").await;
    server.check_http1(&["http/1.1"], false, "127.0.0.1 0").await;
    server.check_http1(&["http/1.1"], true, "127.0.0.1 1").await;

    let stream = server.connect(&["h2", "http/1.1"], true).await;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = http2_client(stream).await;
    let response = client.send_request(http2_get("/peer")).await.unwrap();
    assert_eq!(collect(response.into_body()).await, (b"127.0.0.1 1".to_vec(), true));
}

#[tokio::test]
async fn who_does_not_speak_tls_is_turned_away_and_nobody_else() {
    let server = TlsServer::start().await;
    let mut stream = server.server.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    server.check_http1(&[], false, "127.0.0.1 0").await;
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_ended() {
    let server = TlsServer::start().await;
    let mut stream = server.server.connect().await;
    stream.write_all(&[0x16, 3, 1]).await.unwrap();
    server.server.sleepers(1).await;
    assert!(server.server.until_closed(&mut stream).await >= limits::HEADER_TIMEOUT);
    server.check_http1(&[], false, "127.0.0.1 0").await;
}
