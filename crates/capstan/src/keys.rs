//! The keys that control loops sign with: the cluster's in `capstan up`, those in files in `capstan controllers`.

use std::{path::Path, sync::Arc};

use capstan_api::{Value, json};
use capstan_clock::{OsIds, Timestamp};
use capstan_controllers::{CertificateSigner, SigningRequest, TokenSigner};
use capstan_server::{
    authentication::sign_claims,
    pki::{Authority, Pki, PrivateKey},
};

use crate::server::read;

/// Signs with what it has.
pub(crate) struct Keys<T>(pub(crate) T);

fn certificate(ca: &Authority, request: &SigningRequest<'_>) -> Result<String, String> {
    let signed = ca.sign_request(request.request, request.usages, request.validity, request.now, &OsIds);
    signed.map_err(|error| error.to_string())
}

fn token(key: &PrivateKey, claims: &serde_json::Value) -> Result<String, String> {
    match json::parse(claims.to_string().as_bytes()) {
        Ok(Value::Object(claims)) => Ok(sign_claims(key, &claims)),
        _ => Err("claims are an object".to_owned()),
    }
}

impl CertificateSigner for Keys<Arc<Pki>> {
    fn sign(&self, request: &SigningRequest<'_>) -> Result<String, String> {
        certificate(&self.0.ca, request)
    }
}

impl TokenSigner for Keys<Arc<Pki>> {
    fn sign(&self, claims: &serde_json::Value) -> Result<String, String> {
        token(&self.0.service_account, claims)
    }
}

impl CertificateSigner for Keys<Authority> {
    fn sign(&self, request: &SigningRequest<'_>) -> Result<String, String> {
        certificate(&self.0, request)
    }
}

impl TokenSigner for Keys<PrivateKey> {
    fn sign(&self, claims: &serde_json::Value) -> Result<String, String> {
        token(&self.0, claims)
    }
}

/// The authority in two files.
pub(crate) fn authority(certificate: &Path, key: &Path, now: Timestamp) -> Result<Keys<Authority>, String> {
    let text = String::from_utf8_lossy(&read(certificate)?).into_owned();
    let loaded = Authority::load(text, private_key(key)?.0, now);
    loaded.map(Keys).map_err(|problem| format!("{} {problem}", certificate.display()))
}

/// The key in a file.
pub(crate) fn private_key(file: &Path) -> Result<Keys<PrivateKey>, String> {
    let key = PrivateKey::from_pem(&read(file)?);
    key.map(Keys).map_err(|error| format!("{} {error}", file.display()))
}
