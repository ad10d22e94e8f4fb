//! JSON web tokens in their compact form, as far as service accounts need them.

use capstan_api::{Map, Str, Value, go, json};

use crate::{
    base64,
    pki::{PrivateKey, PublicKey},
};

/// A token, taken apart and not believed.
pub(super) struct Token<'a> {
    /// What was signed.
    signed: &'a [u8],
    signature: Vec<u8>,
    algorithm: Str,
    /// The name of the key; may be empty.
    pub(super) key_id: Str,
    /// What it claims.
    pub(super) claims: Value,
}

impl<'a> Token<'a> {
    /// Takes a text apart, if it is a token.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let part = |text: &str| base64::decode_url(text.as_bytes()).ok();
        let claims = json::parse(&part(payload)?).ok().filter(|claims| claims.as_object().is_some())?;
        let header = json::parse(&part(header)?).ok()?;
        let text = |name| header.get(name).and_then(Value::as_str).map(Str::from);
        // Extensions that must be understood are not.
        if header.get("crit").is_some() {
            return None;
        }
        Some(Token {
            signed: signed.as_bytes(),
            signature: part(signature)?,
            algorithm: text("alg")?,
            key_id: text("kid").unwrap_or_default(),
            claims,
        })
    }

    /// Whether this key signed it, by the algorithm that belongs to the key.
    pub(super) fn is_signed_by(&self, key: &PublicKey) -> bool {
        self.algorithm == key.algorithm().name() && key.verifies(self.signed, &self.signature)
    }
}

/// A signed token with these claims.
pub(super) fn sign(key: &PrivateKey, claims: &Map) -> String {
    let public = key.public();
    let header = format!(r#"{{"alg":"{}","kid":"{}"}}"#, public.algorithm().name(), public.key_id);
    let mut payload = Vec::new();
    json::write_map(claims, &mut payload);
    let payload = go::escape_html(&String::from_utf8_lossy(&payload));
    let signed = format!("{}.{}", base64::encode_url(header.as_bytes()), base64::encode_url(payload.as_bytes()));
    let signature = base64::encode_url(&key.sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}
