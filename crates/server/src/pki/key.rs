//! Keys that sign: P-256, which we make ourselves, and RSA, which others may hand us.

use std::fmt;

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_SHA256, UnparsedPublicKey,
    },
};
use rustls_pki_types::{
    PrivateKeyDer, PrivatePkcs8KeyDer,
    pem::{PemObject, SectionKind},
};
use x509_parser::{
    prelude::{FromDer, X509Certificate},
    public_key::PublicKey as Parsed,
    x509::SubjectPublicKeyInfo,
};

use super::der;
use crate::{base64, sha256::sha256};

/// Why something is no key that we can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// There is no PEM block with a key.
    NoKey,
    /// The key is broken, or of a kind that is not supported.
    Unsupported,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyError::NoKey => "holds no key in PEM form",
            KeyError::Unsupported => "holds a key that is broken or neither P-256 nor RSA (2048 to 8192 bits)",
        })
    }
}

impl std::error::Error for KeyError {}

/// The signature algorithms of tokens, by their names in JOSE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// RSA PKCS #1 v1.5 with SHA-256.
    Rs256,
}

impl Algorithm {
    /// The name in JOSE.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Rs256 => "RS256",
        }
    }
}

/// A key that signs.
pub struct PrivateKey {
    pair: Pair,
    public: PublicKey,
    /// As it was read or made.
    der: PrivateKeyDer<'static>,
}

enum Pair {
    P256(EcdsaKeyPair),
    Rsa(Box<rsa::KeyPair>),
}

impl PrivateKey {
    /// A new key on P-256.
    #[must_use]
    pub fn generate() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key can always be made");
        let document = pair.to_pkcs8v1().expect("a key that was just made can be written");
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(document.as_ref().to_vec()));
        Self::from_der(der).expect("a key that was just written can be read")
    }

    /// The first key in a PEM text: PKCS #8, PKCS #1 or SEC 1.
    ///
    /// # Errors
    /// When there is none, or none that can be used.
    pub fn from_pem(pem: &[u8]) -> Result<Self, KeyError> {
        Self::from_der(PrivateKeyDer::from_pem_slice(pem).map_err(|_| KeyError::NoKey)?)
    }

    fn from_der(der: PrivateKeyDer<'static>) -> Result<Self, KeyError> {
        let p256 = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = match &der {
            PrivateKeyDer::Pkcs8(key) => {
                let key = key.secret_pkcs8_der();
                EcdsaKeyPair::from_pkcs8(p256, key)
                    .map(Pair::P256)
                    .or_else(|_| rsa::KeyPair::from_pkcs8(key).map(|pair| Pair::Rsa(Box::new(pair))))
            }
            PrivateKeyDer::Pkcs1(key) => {
                rsa::KeyPair::from_der(key.secret_pkcs1_der()).map(|pair| Pair::Rsa(Box::new(pair)))
            }
            PrivateKeyDer::Sec1(key) => EcdsaKeyPair::from_private_key_der(p256, key.secret_sec1_der()).map(Pair::P256),
            _ => return Err(KeyError::Unsupported),
        };
        let pair = pair.map_err(|_| KeyError::Unsupported)?;
        let spki: PublicKeyX509Der<'_> = match &pair {
            Pair::P256(pair) => pair.public_key().as_der(),
            Pair::Rsa(pair) => pair.public_key().as_der(),
        }
        .map_err(|_| KeyError::Unsupported)?;
        let public = PublicKey::from_spki(spki.as_ref())?;
        Ok(PrivateKey { pair, public, der })
    }

    /// The key as PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        let label = match self.der {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        pem(label, self.der.secret_der())
    }

    /// The key as TLS takes it.
    #[must_use]
    pub fn der(&self) -> PrivateKeyDer<'static> {
        self.der.clone_key()
    }

    /// What verifies this key's signatures.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// A signature as JOSE has it.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::P256(pair) => pair.sign(&random, message).expect("a loaded key signs").as_ref().to_vec(),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("a loaded key signs");
                signature
            }
        }
    }

    /// A signature as certificates have it.
    pub(super) fn sign_x509(&self, message: &[u8]) -> Vec<u8> {
        let signature = self.sign(message);
        match &self.pair {
            Pair::P256(_) => {
                let (r, s) = signature.split_at(signature.len() / 2);
                der::element(der::SEQUENCE, &[der::unsigned(r), der::unsigned(s)])
            }
            Pair::Rsa(_) => signature,
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key itself.
        write!(f, "PrivateKey({})", self.public.key_id)
    }
}

/// A key that verifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    /// As certificates have it (SubjectPublicKeyInfo).
    pub spki: Vec<u8>,
    /// The hash of `spki`, as tokens name the key.
    pub key_id: String,
    numbers: Numbers,
}

/// What a key consists of, big-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// The point, uncompressed, and its two halves in one.
    P256 { x: Vec<u8>, y: Vec<u8> },
    /// Modulus and exponent.
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// When it is broken or of a kind that is not supported.
    pub fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        /// An uncompressed point on P-256: a tag and two numbers of 32 bytes.
        const POINT: usize = 65;
        let (rest, info) = SubjectPublicKeyInfo::from_der(spki).map_err(|_| KeyError::Unsupported)?;
        let numbers = match info.parsed().map_err(|_| KeyError::Unsupported)? {
            Parsed::EC(point) if point.data().len() == POINT && point.data()[0] == 4 => {
                Numbers::P256 { x: point.data()[1..33].to_vec(), y: point.data()[33..].to_vec() }
            }
            Parsed::RSA(key) => {
                Numbers::Rsa { n: without_zeros(key.modulus).to_vec(), e: without_zeros(key.exponent).to_vec() }
            }
            _ => return Err(KeyError::Unsupported),
        };
        if !rest.is_empty() {
            return Err(KeyError::Unsupported);
        }
        Ok(PublicKey { spki: spki.to_vec(), key_id: base64::encode_url(&sha256(spki)), numbers })
    }

    /// All keys in a PEM text: public ones, and those of private keys and of certificates.
    ///
    /// # Errors
    /// When there is none, or one that cannot be used.
    pub fn all_from_pem(pem: &[u8]) -> Result<Vec<Self>, KeyError> {
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
            let (kind, der) = section.map_err(|_| KeyError::NoKey)?;
            keys.push(match kind {
                SectionKind::PublicKey => PublicKey::from_spki(&der)?,
                SectionKind::Certificate => {
                    let (_, certificate) = X509Certificate::from_der(&der).map_err(|_| KeyError::Unsupported)?;
                    PublicKey::from_spki(certificate.public_key().raw)?
                }
                kind => match PrivateKeyDer::from_pem(kind, der) {
                    Some(key) => PrivateKey::from_der(key)?.public,
                    None => continue,
                },
            });
        }
        if keys.is_empty() { Err(KeyError::NoKey) } else { Ok(keys) }
    }

    /// The key as PEM.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem("PUBLIC KEY", &self.spki)
    }

    /// What it verifies.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.numbers {
            Numbers::P256 { .. } => Algorithm::Es256,
            Numbers::Rsa { .. } => Algorithm::Rs256,
        }
    }

    pub(crate) fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Whether the signature, as JOSE has it, is this key's.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.algorithm() {
            Algorithm::Es256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.spki).verify(message, signature),
            Algorithm::Rs256 => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.spki).verify(message, signature)
            }
        }
        .is_ok()
    }

    /// How certificates name the algorithm of this key's signatures.
    pub(super) fn x509_algorithm(&self) -> Vec<u8> {
        let (oid, parameters): (&[u8], &[u8]) = match self.algorithm() {
            // ecdsa-with-SHA256
            Algorithm::Es256 => (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02], &[]),
            // sha256WithRSAEncryption, whose parameters are NULL
            Algorithm::Rs256 => (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b], &[0x05, 0x00]),
        };
        der::element(der::SEQUENCE, &[&der::element(der::OID, &[oid]), parameters])
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    &number[number.iter().take_while(|&&byte| byte == 0).count()..]
}

/// Bytes as a PEM block.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for start in (0..text.len()).step_by(64) {
        out.push_str(&text[start..text.len().min(start + 64)]);
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}
