//! What is made, what is kept, and what is refused.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};

use capstan_clock::{ManualClock, OsIds};
use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConnection, pki_types::ServerName};
use rustls_pki_types::pem::PemObject;

use super::*;
use crate::authentication::{Authenticator, CertificatePool, Config, PeerCertificates, RequestHeaders, tests::Fake};

const NOW: i64 = 1_794_793_163;

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("capstan-pki-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Directory(path)
    }

    fn open(&self, days: i64, extra: &[&str]) -> Result<Pki, PkiError> {
        let extra = extra.iter().map(|&name| name.to_owned()).collect();
        let options = Options { host: "box".into(), service_ip: "10.0.0.1".parse().unwrap(), extra };
        Pki::open(&self.0, &options, at(days), &OsIds)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn at(days: i64) -> Timestamp {
    Timestamp::from_second(NOW + days * DAY as i64).unwrap()
}

#[test]
fn made_once_and_kept() {
    let directory = Directory::new();
    directory.open(0, &[]).unwrap();
    let mut names: Vec<String> =
        fs::read_dir(&directory.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let expected = "admin.crt admin.key apiserver.crt apiserver.key ca.crt ca.key front-proxy-ca.crt front-proxy-ca.key \
                    sa.key sa.pub";
    assert_eq!(names.join(" "), expected);
    for name in &names {
        let mode = fs::metadata(directory.0.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if name.ends_with(".key") { 0o600 } else { 0o644 }, "{name}");
    }
    let before: Vec<String> = names.iter().map(|name| directory.read(name)).collect();
    directory.open(300, &[]).unwrap();
    let after: Vec<String> = names.iter().map(|name| directory.read(name)).collect();
    assert!(before == after, "nothing is made again while it is good");
}

#[test]
fn certificates_are_made_again_when_they_must() {
    let directory = Directory::new();
    directory.open(0, &[]).unwrap();
    let [ca, serving, admin] = ["ca.crt", "apiserver.crt", "admin.crt"].map(|name| directory.read(name));
    directory.open(0, &["api.example.com", "192.0.2.7", "box"]).unwrap();
    let with_names = directory.read("apiserver.crt");
    assert!(serving != with_names, "a name was missing");
    directory.open(0, &["192.0.2.7"]).unwrap();
    assert!(with_names == directory.read("apiserver.crt"), "a name more does no harm");
    assert!(admin == directory.read("admin.crt"));
    directory.open(336, &[]).unwrap();
    assert!(with_names != directory.read("apiserver.crt") && admin != directory.read("admin.crt"), "they end soon");
    assert!(ca == directory.read("ca.crt"));
    assert_eq!(
        directory.open(3651, &[]).unwrap_err().to_string(),
        format!(
            "{} has expired: put the right file there, or remove ca.crt and ca.key to have them made again (all \
             certificates that it signed become invalid)",
            directory.0.join("ca.crt").display()
        )
    );
}

#[test]
fn broken_files_are_named() {
    fn check(damage: impl FnOnce(&Directory), file: &str, problem: &str) {
        let directory = Directory::new();
        directory.open(0, &[]).unwrap();
        damage(&directory);
        let error = directory.open(0, &[]).unwrap_err();
        let name = error.file.file_name().unwrap().to_str().unwrap();
        assert_eq!((name, error.problem.as_str()), (file, problem));
        assert!(!error.to_string().contains('\n'));
    }
    fn write(name: &str, text: &str) -> impl FnOnce(&Directory) {
        move |directory| fs::write(directory.0.join(name), text).unwrap()
    }
    fn copy(from: &str, to: &str) -> impl FnOnce(&Directory) {
        move |directory| assert!(fs::copy(directory.0.join(from), directory.0.join(to)).unwrap() > 0)
    }
    fn remove(name: &str) -> impl FnOnce(&Directory) {
        move |directory| fs::remove_file(directory.0.join(name)).unwrap()
    }
    fn cut(name: &str) -> impl FnOnce(&Directory) {
        move |directory| {
            let text = directory.read(name);
            fs::write(directory.0.join(name), &text[..text.len() / 2]).unwrap();
        }
    }
    check(write("ca.crt", ""), "ca.crt", "holds no certificate in PEM form");
    check(cut("ca.crt"), "ca.crt", "holds no certificate in PEM form");
    check(cut("ca.key"), "ca.key", "holds no key in PEM form");
    check(cut("apiserver.crt"), "apiserver.crt", "holds no certificate in PEM form");
    check(remove("ca.key"), "ca.crt", "is there, but ca.key is not");
    check(copy("front-proxy-ca.key", "ca.key"), "ca.crt", "does not belong to the key beside it");
    check(copy("admin.key", "apiserver.key"), "apiserver.crt", "does not belong to the key beside it");
    check(copy("ca.key", "sa.key"), "sa.pub", "does not belong to the key beside it");
    check(
        |directory| {
            copy("front-proxy-ca.key", "ca.key")(directory);
            copy("front-proxy-ca.crt", "ca.crt")(directory);
        },
        "apiserver.crt",
        "was signed by another authority than the one in ca.crt",
    );
    check(
        |directory| {
            copy("admin.key", "ca.key")(directory);
            copy("admin.crt", "ca.crt")(directory);
        },
        "ca.crt",
        "is not the certificate of an authority",
    );
    // A start that was cut short leaves a key without a certificate behind.
    let directory = Directory::new();
    directory.open(0, &[]).unwrap();
    fs::remove_file(directory.0.join("apiserver.crt")).unwrap();
    directory.open(0, &[]).unwrap();
}

/// Lets both sides talk until neither has anything to say.
fn talk(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), rustls::Error> {
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            server.process_new_packets()?;
        }
        wire.clear();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}

/// Connects with a client certificate, or none, and says what the server saw.
fn connect(pki: &Pki, name: &str, client: Option<&Certified>) -> Option<PeerCertificates> {
    let config = server_config(&pki.serving, &pki.ca.own.chain()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(pki.ca.own.chain().remove(0)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider, Arc::new(FixedTime));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut client = match client {
        Some(client) => builder.with_client_auth_cert(client.chain(), client.key.der()).unwrap(),
        None => builder.with_no_client_auth(),
    };
    client.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    talk(&mut client, &mut server).unwrap();
    client.writer().write_all(b"hello").unwrap();
    talk(&mut client, &mut server).unwrap();
    let mut hello = [0; 5];
    server.reader().read_exact(&mut hello).unwrap();
    assert_eq!((&hello, server.alpn_protocol()), (b"hello", Some(&b"h2"[..])));
    PeerCertificates::new(
        server
            .peer_certificates()
            .unwrap_or_default()
            .iter()
            .cloned()
            .map(rustls::pki_types::CertificateDer::into_owned)
            .collect(),
    )
}

#[derive(Debug)]
struct FixedTime;

impl rustls::time_provider::TimeProvider for FixedTime {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        Some(rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(NOW as u64)))
    }
}

/// Who a client with this certificate and these headers is, so many days later.
fn who(pki: &Pki, client: Option<&Certified>, days: i64, lines: &[(&'static str, &str)]) -> String {
    let pool = |authority: &Authority| CertificatePool::from_pem(authority.own.certificate.as_bytes()).unwrap();
    let config = Config {
        client_ca: Some(pool(&pki.ca)),
        request_headers: Some(RequestHeaders {
            ca: pool(&pki.front_proxy_ca),
            allowed_names: vec!["front-proxy-client".into()],
            names: RequestHeaders::standard_names(),
        }),
        anonymous: true,
        ..Config::default()
    };
    let peer = connect(pki, "kubernetes.default.svc", client);
    let clock = Arc::new(ManualClock::at(at(days)));
    let authenticator = Authenticator::new(config, Arc::new(Fake::default()), clock);
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    let one = |result: Result<Option<crate::authentication::Authenticated>, _>| match result {
        Ok(Some(found)) => {
            let user = found.user;
            let extra: Vec<String> =
                user.extra.iter().map(|(key, values)| format!(" {key}={}", values.join(","))).collect();
            format!("{} {}{}", user.name, user.groups.join(","), extra.concat())
        }
        Ok(None) => "nobody".into(),
        Err(_) => "401".into(),
    };
    let first = one(authenticator.authenticate(&headers, peer.as_ref()));
    assert_eq!(one(authenticator.authenticate(&headers, peer.as_ref())), first, "what is remembered is the same");
    first
}

#[test]
fn client_certificates_name_users_and_groups() {
    let directory = Directory::new();
    let pki = directory.open(0, &[]).unwrap();
    let id = |certified: &Certified| {
        let hash = crate::sha256::sha256(&certified.chain()[0]);
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!(" authentication.kubernetes.io/credential-id=X509SHA256={hash}")
    };
    let admin = format!("kubernetes-admin system:masters,system:authenticated{}", id(&pki.admin));
    assert_eq!(who(&pki, Some(&pki.admin), 0, &[]), admin);
    assert_eq!(who(&pki, Some(&pki.admin), 366, &[]), "401", "expired");
    assert_eq!(who(&pki, Some(&pki.admin), -1, &[]), "401", "not yet valid");
    assert_eq!(who(&pki, None, 0, &[]), "system:anonymous system:unauthenticated");
    let jane = pki.client("jane", &["a", "b", "c"], at(0), &OsIds).unwrap();
    assert_eq!(who(&pki, Some(&jane), 0, &[]), format!("jane a,b,c,system:authenticated{}", id(&jane)));
    assert_eq!(who(&pki, Some(&pki.serving), 0, &[]), "401", "a server's certificate is not a client's");
    let other = Directory::new().open(0, &[]).unwrap();
    assert_eq!(who(&pki, Some(&other.admin), 0, &[]), "401", "of another authority");
    let nameless = pki.client("", &["a"], at(0), &OsIds).unwrap();
    assert_eq!(who(&pki, Some(&nameless), 0, &[]), "401", "the proxies' authority has refused it");
}

#[test]
fn proxies_vouch_for_users() {
    let directory = Directory::new();
    let pki = directory.open(0, &[]).unwrap();
    let issue = |name| pki.front_proxy_ca.issue(&client_request(name, &[]), at(0), &OsIds).unwrap();
    let (proxy, stranger) = (issue("front-proxy-client"), issue("stranger"));
    let lines = [
        ("x-remote-user", "jane"),
        ("x-remote-group", "a"),
        ("x-remote-group", "b"),
        ("x-remote-extra-sco%2fpe", "x"),
        ("x-remote-extra-sco%2fpe", "y"),
        ("x-remote-extra-%zz", "z"),
    ];
    assert_eq!(who(&pki, Some(&proxy), 0, &lines), "jane a,b,system:authenticated %zz=z sco/pe=x,y");
    assert_eq!(who(&pki, Some(&proxy), 0, &[]), "401", "a proxy is nobody by itself");
    assert_eq!(who(&pki, Some(&stranger), 0, &lines), "401");
    assert!(who(&pki, Some(&pki.admin), 0, &lines).starts_with("kubernetes-admin "), "only proxies are believed");
    assert_eq!(who(&pki, None, 0, &lines), "system:anonymous system:unauthenticated");
}

#[test]
fn requests_are_signed() {
    let directory = Directory::new();
    let pki = directory.open(0, &[]).unwrap();
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519] {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["a.example".into(), "192.0.2.1".into()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "system:node:n1");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "system:nodes");
        let request = params.serialize_request(&key).unwrap();
        let sign =
            |pem: &str, usages: &[&str]| pki.ca.sign_request(pem, usages, Duration::from_secs(DAY), at(0), &OsIds);
        let certificate = sign(&request.pem().unwrap(), &["digital signature", "client auth"]).unwrap();
        let der = rustls_pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
        let (_, parsed) = X509Certificate::from_der(&der).unwrap();
        assert!(pki.ca.signed(&parsed));
        let names = &parsed.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert_eq!(names[..], [GeneralName::DNSName("a.example"), GeneralName::IPAddress(&[192, 0, 2, 1])]);
        assert_eq!(parsed.subject().to_string(), "CN=system:node:n1, O=system:nodes");
        assert!(!parsed.is_ca());
        assert_eq!(parsed.validity().not_after.timestamp(), NOW + DAY as i64);
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth);
        assert_eq!(sign("", &[]), Err(IssueError::Malformed));
        assert_eq!(sign(&request.pem().unwrap(), &["flying"]), Err(IssueError::Usage("flying".into())));
        // One bit of the subject differs from what was signed.
        let mut forged = request.der().to_vec();
        let at = forged.windows(4).position(|four| four == b"node").unwrap();
        forged[at] ^= 1;
        assert_eq!(sign(&key::pem("CERTIFICATE REQUEST", &forged), &[]), Err(IssueError::Signature));
        for end in (0..forged.len()).step_by(7) {
            assert!(sign(&key::pem("CERTIFICATE REQUEST", &forged[..end]), &[]).is_err());
        }
    }
    assert_eq!(pki.ca.issue(&client_request("a", &[]), at(3651), &OsIds).unwrap_err(), IssueError::Expired);
}

#[test]
fn kubeconfigs_hold_everything() {
    let directory = Directory::new();
    let pki = directory.open(0, &[]).unwrap();
    let text = kubeconfig(
        "capstan",
        "https://127.0.0.1:6443",
        &pki.ca.own.certificate,
        "admin",
        Credential::Certificate(&pki.admin),
    );
    let config = capstan_api::codec::decode(text.as_bytes(), capstan_api::codec::Format::Yaml).unwrap();
    let first = |list: &str, field: &str, key: &str| {
        let one = config.get(list).unwrap().as_array().unwrap()[0].get(field).unwrap().get(key).unwrap();
        one.as_str().unwrap().to_owned()
    };
    assert_eq!(first("clusters", "cluster", "server"), "https://127.0.0.1:6443");
    assert_eq!(first("contexts", "context", "user"), "admin");
    let key = crate::base64::decode(&first("users", "user", "client-key-data")).unwrap();
    assert_eq!(PrivateKey::from_pem(&key).unwrap().public(), pki.admin.key.public());
}
