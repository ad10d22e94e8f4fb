//! Files that somebody else writes anew: the token of a pod's account, and the certificates that vouch for the server.
//!
//! They are looked at whenever they are needed and read again when they are other ones, so that what comes first after
//! a rotation has the new one already; client-go may take minutes. While a file cannot be read, what it said last
//! counts.

use std::{
    fmt, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use http::HeaderValue;
use rustls::{
    DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

/// A file, and what it last said.
struct Rotated<T> {
    path: PathBuf,
    parse: fn(&[u8]) -> io::Result<T>,
    read: Mutex<(Stamp, T)>,
}

/// What changes when a file is written anew or another one takes its place.
pub(crate) type Stamp = (u64, u64, Option<SystemTime>);

impl<T: Clone> Rotated<T> {
    fn open(path: PathBuf, parse: fn(&[u8]) -> io::Result<T>) -> io::Result<Self> {
        let read = Mutex::new((stamp(&path)?, parse(&fs::read(&path)?)?));
        Ok(Rotated { path, parse, read })
    }

    fn get(&self) -> T {
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // The stamp is taken first: what is written between the two is read again the next time.
        if let Ok(stamp) = stamp(&self.path)
            && stamp != known.0
            && let Ok(read) = fs::read(&self.path).and_then(|bytes| (self.parse)(&bytes))
        {
            *known = (stamp, read);
        }
        known.1.clone()
    }
}

pub(crate) fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.ino(), metadata.len(), metadata.modified().ok()))
}

fn wrong(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_owned())
}

/// A file with a token.
pub(crate) struct TokenFile(Rotated<HeaderValue>);

impl TokenFile {
    /// Reads the token.
    ///
    /// # Errors
    /// The file cannot be read, or what it has is no token.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        Rotated::open(path, token).map(TokenFile)
    }

    /// The header that shows the token.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.get()
    }
}

fn token(bytes: &[u8]) -> io::Result<HeaderValue> {
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("it is no token"))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(wrong("it is empty"));
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| wrong("it is no token"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Believes servers that the certificates of a file vouch for. Connections that are there stay.
pub(crate) struct CaFile(Rotated<Arc<WebPkiServerVerifier>>);

impl CaFile {
    /// Reads the certificates.
    ///
    /// # Errors
    /// The file cannot be read, or there is none in it.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        Rotated::open(path, verifier).map(CaFile)
    }
}

fn verifier(pem: &[u8]) -> io::Result<Arc<WebPkiServerVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let added = certificate.map_err(|error| error.to_string()).map(|certificate| roots.add(certificate));
        added.and_then(|added| added.map_err(|error| error.to_string())).map_err(|error| wrong(&error))?;
    }
    WebPkiServerVerifier::builder(Arc::new(roots)).build().map_err(|error| wrong(&error.to_string()))
}

impl fmt::Debug for CaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CaFile").field(&self.0.path).finish()
    }
}

impl ServerCertVerifier for CaFile {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.get().verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.get().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.get().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.get().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_token_that_can_be_read() {
        let directory = std::env::temp_dir().join(format!("capstan-token-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("token");
        let write = |text: &str| {
            // As a kubelet does it: another file takes the place of the old one.
            fs::write(directory.join("new"), text).unwrap();
            fs::rename(directory.join("new"), &path).unwrap();
        };
        let opened = || TokenFile::open(path.clone()).map(|file| file.header());
        assert!(opened().is_err(), "there is no such file");
        write(" \n");
        assert_eq!(opened().unwrap_err().to_string(), "it is empty");
        write("one\n");
        let file = TokenFile::open(path.clone()).unwrap();
        assert_eq!(file.header(), "Bearer one");
        write("two");
        assert_eq!(file.header(), "Bearer two");
        write("not\na token");
        assert_eq!(file.header(), "Bearer two");
        fs::remove_file(&path).unwrap();
        assert_eq!(file.header(), "Bearer two");
        write("three");
        assert_eq!(file.header(), "Bearer three");
        fs::remove_dir_all(&directory).unwrap();
    }
}
