//! What others need to verify service account tokens: the documents of OpenID discovery.

use std::{collections::BTreeSet, fmt};

use bytes::Bytes;
use capstan_api::{go, json};

use crate::{
    base64,
    pki::{Numbers, PublicKey},
};

/// Where the configuration is served, as `application/json`.
pub const OPENID_CONFIG_PATH: &str = "/.well-known/openid-configuration";
/// Where the keys are served.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// The type of the keys' document.
pub const JWKS_CONTENT_TYPE: &str = "application/jwk-set+json";
/// How long clients may keep both: `Cache-Control: public, max-age=3600`.
pub const MAX_AGE_SECONDS: u32 = 3600;

/// Why there are no documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenIdError {
    /// The issuer must be an https URL.
    Scheme(String),
    /// It may have no query.
    Query(String),
    /// It may have no fragment.
    Fragment(String),
    /// The URL of the keys must be an https URL.
    JwksScheme(String),
    /// There are no keys.
    NoKeys,
}

impl fmt::Display for OpenIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenIdError::Scheme(issuer) => write!(f, "issuer URL must use https scheme, got: {issuer}"),
            OpenIdError::Query(issuer) => write!(f, "issuer URL may not include a query, got: {issuer}"),
            OpenIdError::Fragment(issuer) => write!(f, "issuer URL may not include a fragment, got: {issuer}"),
            OpenIdError::JwksScheme(url) => write!(f, "jwksURI requires https scheme, parsed as: {url}"),
            OpenIdError::NoKeys => f.write_str("no keys provided for validating keyset"),
        }
    }
}

impl std::error::Error for OpenIdError {}

/// Both documents, as they are served.
#[derive(Clone, Debug)]
pub struct OpenIdDocuments {
    /// The configuration.
    pub configuration: Bytes,
    /// The keys.
    pub keys: Bytes,
}

impl OpenIdDocuments {
    /// The documents of an issuer whose keys are served at `jwks_uri`; see [`JWKS_PATH`].
    ///
    /// # Errors
    /// When the issuer is none that OpenID allows.
    pub fn new(issuer: &str, jwks_uri: &str, keys: &[PublicKey]) -> Result<Self, OpenIdError> {
        let is_https = |url: &str| url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"));
        let (rest, fragment) = issuer.split_once('#').unwrap_or((issuer, ""));
        if !is_https(issuer) {
            return Err(OpenIdError::Scheme(issuer.into()));
        }
        if rest.split_once('?').is_some_and(|(_, query)| !query.is_empty()) {
            return Err(OpenIdError::Query(issuer.into()));
        }
        if !fragment.is_empty() {
            return Err(OpenIdError::Fragment(issuer.into()));
        }
        if !is_https(jwks_uri) {
            return Err(OpenIdError::JwksScheme(jwks_uri.into()));
        }
        if keys.is_empty() {
            return Err(OpenIdError::NoKeys);
        }
        let algorithms: BTreeSet<String> = keys.iter().map(|key| format!("{:?}", key.algorithm().name())).collect();
        let algorithms: Vec<String> = algorithms.into_iter().collect();
        let configuration = format!(
            r#"{{"issuer":{},"jwks_uri":{},"response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":[{}]}}"#,
            quoted(issuer),
            quoted(jwks_uri),
            algorithms.join(","),
        );
        let keys: Vec<String> = keys.iter().map(json_web_key).collect();
        let keys = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        Ok(OpenIdDocuments { configuration: configuration.into(), keys: keys.into() })
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::write_str(text, &mut out);
    go::escape_html(&String::from_utf8_lossy(&out))
}

fn json_web_key(key: &PublicKey) -> String {
    let (id, algorithm) = (&key.key_id, key.algorithm().name());
    match key.numbers() {
        Numbers::P256 { x, y } => format!(
            r#"{{"use":"sig","kty":"EC","kid":"{id}","crv":"P-256","alg":"{algorithm}","x":"{}","y":"{}"}}"#,
            base64::encode_url(x),
            base64::encode_url(y)
        ),
        Numbers::Rsa { n, e } => format!(
            r#"{{"use":"sig","kty":"RSA","kid":"{id}","alg":"{algorithm}","n":"{}","e":"{}"}}"#,
            base64::encode_url(n),
            base64::encode_url(e)
        ),
    }
}
