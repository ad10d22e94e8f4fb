//! Tokens of service accounts: what they claim, and whether that still holds.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use capstan_api::{
    Array, GroupResource, Map, Status, Str, Time, Value, go, json,
    validation::{name_is_dns_label, name_is_dns_subdomain},
};
use capstan_clock::Timestamp;

use super::{Authenticated, AuthenticationError, CREDENTIAL_ID, Outcome, intersect, jwt};
use crate::{
    authorization::UserInfo,
    base64,
    cache::Object,
    objects::Objects,
    pki::{PrivateKey, PublicKey},
};

/// The group of all service accounts.
pub const SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";
/// Who issued the tokens in Secrets.
pub const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
const USERNAME_PREFIX: &str = "system:serviceaccount:";
pub(crate) const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// Clocks differ by this many seconds, and what was deleted is not gone at once.
const LEEWAY: i64 = 60;
const INVALIDATED: &str = "service account token has been invalidated";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const AUTO_GENERATED: &str = "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated \
     secret-based tokens.";

/// The user name of a service account.
#[must_use]
pub fn username(namespace: &str, name: &str) -> Str {
    format!("{USERNAME_PREFIX}{namespace}:{name}").into()
}

/// The namespace and name of a service account from its user name, if it is one.
#[must_use]
pub fn split_username(username: &str) -> Option<(&str, &str)> {
    let (namespace, name) = username.strip_prefix(USERNAME_PREFIX)?.split_once(':')?;
    let good = name_is_dns_label(namespace, false).is_empty() && name_is_dns_subdomain(name, false).is_empty();
    good.then_some((namespace, name))
}

/// The groups of a service account.
#[must_use]
pub fn group_names(namespace: &str) -> Vec<Str> {
    vec![SERVICE_ACCOUNTS_GROUP.into(), format!("{SERVICE_ACCOUNTS_GROUP}:{namespace}").into()]
}

/// Whose tokens are believed.
#[derive(Clone, Debug)]
pub struct ServiceAccountConfig {
    /// The issuers; the first is the one that signs.
    pub issuers: Vec<Str>,
    /// The keys that tokens may be signed with.
    pub keys: Vec<PublicKey>,
}

/// A name and uid in a token.
pub(super) type Reference = (Str, Str);

/// What a token is to claim.
#[derive(Clone, Debug, Default)]
pub struct ServiceAccountToken {
    /// The namespace of the service account.
    pub namespace: Str,
    /// Its name and uid.
    pub service_account: (Str, Str),
    /// The pod that it is bound to.
    pub pod: Option<(Str, Str)>,
    /// The secret that it is bound to.
    pub secret: Option<(Str, Str)>,
    /// The node that it is bound to, or that its pod is on; the uid may be empty.
    pub node: Option<(Str, Str)>,
    /// For whom it is.
    pub audiences: Vec<Str>,
    /// How many seconds it is good for.
    pub expiration_seconds: i64,
    /// After how many seconds its use is frowned upon.
    pub warn_after: Option<i64>,
}

impl ServiceAccountToken {
    /// The claims of a token that is issued now; `id` is its own.
    #[must_use]
    pub fn claims(&self, issuer: &str, id: &str, now: Timestamp) -> Map {
        let now = now.as_second();
        let reference = |(name, uid): &Reference| -> Map {
            let parts = [("name", name), ("uid", uid)].into_iter().filter(|(_, text)| !text.is_empty());
            parts.map(|(key, text)| (Str::from(key), Value::from(text.clone()))).collect()
        };
        let mut own = Map::new();
        own.insert("namespace", self.namespace.clone());
        own.insert("serviceaccount", reference(&self.service_account));
        for (key, bound) in [("pod", &self.pod), ("secret", &self.secret), ("node", &self.node)] {
            if let Some(bound) = bound {
                own.insert(key, reference(bound));
            }
        }
        if let Some(seconds) = self.warn_after {
            own.insert("warnafter", now.saturating_add(seconds));
        }
        let mut claims = Map::new();
        if !self.audiences.is_empty() {
            claims.insert("aud", self.audiences.iter().cloned().map(Value::from).collect::<Array>());
        }
        claims.insert("exp", now.saturating_add(self.expiration_seconds));
        claims.insert("iat", now);
        claims.insert("nbf", now);
        claims.insert("iss", issuer);
        claims.insert("jti", id);
        claims.insert("sub", username(&self.namespace, &self.service_account.0));
        claims.insert("kubernetes.io", own);
        claims
    }
}

/// A token with these claims.
#[must_use]
pub fn sign_claims(key: &PrivateKey, claims: &Map) -> String {
    jwt::sign(key, claims)
}

/// A token for a Secret of type `kubernetes.io/service-account-token`.
#[must_use]
pub fn legacy_token(key: &PrivateKey, namespace: &str, name: &str, uid: &str, secret: &str) -> String {
    let mut claims = Map::new();
    claims.insert("iss", LEGACY_ISSUER);
    claims.insert("sub", username(namespace, name));
    claims.insert("kubernetes.io/serviceaccount/namespace", namespace);
    claims.insert("kubernetes.io/serviceaccount/secret.name", secret);
    claims.insert("kubernetes.io/serviceaccount/service-account.name", name);
    claims.insert("kubernetes.io/serviceaccount/service-account.uid", uid);
    jwt::sign(key, &claims)
}

fn text(value: &Value, key: &str) -> Str {
    value.get(key).and_then(Value::as_str).map(Str::from).unwrap_or_default()
}

fn get(objects: &dyn Objects, resource: &str, namespace: &str, name: &str) -> Option<std::sync::Arc<Object>> {
    objects.get(&GroupResource::new("", resource.to_owned()), namespace, name)
}

fn service_account(
    objects: &dyn Objects,
    namespace: &str,
    name: &str,
) -> Result<std::sync::Arc<Object>, AuthenticationError> {
    get(objects, "serviceaccounts", namespace, name)
        .ok_or_else(|| Status::not_found(&GroupResource::new("", "serviceaccounts"), name).message.into())
}

impl ServiceAccountConfig {
    pub(super) fn authenticate(
        &self,
        token: &str,
        wanted: &[Str],
        api_audiences: &[Str],
        objects: &dyn Objects,
        now: Timestamp,
    ) -> Outcome {
        let Some(parsed) = jwt::Token::parse(token) else { return Ok(None) };
        let claims = &parsed.claims;
        let issuer = text(claims, "iss");
        let legacy = issuer == LEGACY_ISSUER;
        if !legacy && !self.issuers.contains(&issuer) {
            return Ok(None);
        }
        let mut keys =
            self.keys.iter().filter(|key| parsed.key_id.is_empty() || key.key_id == parsed.key_id.as_str()).peekable();
        if keys.peek().is_none() {
            return Err("invalid signature, no keys found".into());
        }
        if !keys.any(|key| parsed.is_signed_by(key)) {
            return Err("go-jose/go-jose: error in cryptographic primitive".into());
        }
        let audiences = audiences(claims, wanted, api_audiences)?;
        if legacy {
            return legacy_user(token, claims, objects)
                .map(|(user, warnings)| Some(Authenticated { user, audiences, warnings }));
        }
        let user = user(claims, objects, now)?;
        Ok(Some(Authenticated { user, audiences, warnings: Vec::new() }))
    }
}

/// The audiences that are both the token's and wanted.
fn audiences(claims: &Value, wanted: &[Str], api_audiences: &[Str]) -> Result<Vec<Str>, AuthenticationError> {
    let mut own: Vec<Str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).map(Str::from).collect(),
        _ => Vec::new(),
    };
    if own.is_empty() {
        // A token without audiences is for this server alone.
        own = api_audiences.to_vec();
    }
    let wanted = if wanted.is_empty() { api_audiences } else { wanted };
    let common = intersect(&own, wanted);
    if common.is_empty() && !api_audiences.is_empty() {
        let (own, wanted) = (quoted(&own), quoted(wanted));
        return Err(format!("token audiences {own} is invalid for the target audiences {wanted}").into());
    }
    Ok(common)
}

fn quoted(texts: &[Str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| go::quote(text)).collect();
    format!("[{}]", texts.join(" "))
}

fn check_times(claims: &Value, now: i64) -> Result<(), AuthenticationError> {
    let time = |key| match claims.get(key) {
        Some(Value::Int(seconds)) => Some(*seconds),
        Some(Value::Float(seconds)) => Some(*seconds as i64),
        _ => None,
    };
    if time("nbf").is_some_and(|time| now.saturating_add(LEEWAY) < time) {
        return Err("service account token is not valid yet".into());
    }
    if time("exp").is_some_and(|time| now.saturating_sub(LEEWAY) > time) {
        return Err("service account token has expired".into());
    }
    if time("iat").is_some_and(|time| now.saturating_add(LEEWAY) < time) {
        return Err("service account token is issued in the future".into());
    }
    Ok(())
}

/// Who a token with a good signature stands for, if all that it is bound to is still there.
fn user(claims: &Value, objects: &dyn Objects, now: Timestamp) -> Result<UserInfo, AuthenticationError> {
    check_times(claims, now.as_second())?;
    let deleted = |object: &Object| {
        let time = object.deletion_timestamp.as_deref();
        // A time that cannot be read is long ago.
        time.is_some_and(|time| !time.parse::<Time>().is_ok_and(|time| time.unix_seconds() >= now.as_second() - LEEWAY))
    };
    let own = claims.get("kubernetes.io").unwrap_or(&Value::Null);
    let namespace = text(own, "namespace");
    let reference = |key: &str| -> Option<Reference> {
        own.get(key).filter(|value| !value.is_null()).map(|value| (text(value, "name"), text(value, "uid")))
    };
    let (name, uid) = reference("serviceaccount").unwrap_or_default();
    let account = service_account(objects, &namespace, &name)?;
    if account.uid != uid {
        return Err(format!("service account UID ({}) does not match claim ({uid})", account.uid).into());
    }
    if deleted(&account) {
        return Err(format!("service account {namespace}/{name} has been deleted").into());
    }
    let check = |kind: &str, namespace: &str, (name, uid): &Reference| {
        let object = get(objects, &format!("{kind}s"), namespace, name).ok_or(INVALIDATED)?;
        if object.uid != *uid {
            let problem =
                format!("{kind} UID ({}) does not match service account {kind} ref claim ({uid})", object.uid);
            return Err(AuthenticationError::from(problem));
        }
        if deleted(&object) { Err(INVALIDATED.into()) } else { Ok(()) }
    };
    let (secret, pod, node) = (reference("secret"), reference("pod"), reference("node"));
    if let Some(secret) = &secret {
        check("secret", &namespace, secret)?;
    }
    if let Some(pod) = &pod {
        check("pod", &namespace, pod)?;
    } else if let Some(node) = &node {
        // The node of a pod's token is told, not checked.
        check("node", "", node)?;
    }
    let mut user =
        UserInfo { name: username(&namespace, &name), uid, groups: group_names(&namespace), ..UserInfo::default() };
    let mut extra = |key: &str, value: Str| user.extra.insert(key.into(), vec![value]);
    if let Some((name, uid)) = pod.filter(|(name, uid)| !name.is_empty() && !uid.is_empty()) {
        extra("authentication.kubernetes.io/pod-name", name);
        extra("authentication.kubernetes.io/pod-uid", uid);
    }
    if let Some((name, uid)) = node.filter(|(name, _)| !name.is_empty()) {
        extra(NODE_NAME, name);
        if !uid.is_empty() {
            extra("authentication.kubernetes.io/node-uid", uid);
        }
    }
    let id = text(claims, "jti");
    if !id.is_empty() {
        extra(CREDENTIAL_ID, format!("JTI={id}").into());
    }
    Ok(user)
}

/// Who the token of a Secret stands for, if the Secret and the account are still there.
fn legacy_user(
    token: &str,
    claims: &Value,
    objects: &dyn Objects,
) -> Result<(UserInfo, Vec<&'static str>), AuthenticationError> {
    let claim = |key: &str, name: &str| {
        let value = text(claims, key);
        if value.is_empty() { Err(AuthenticationError::from(format!("{name} claim is missing"))) } else { Ok(value) }
    };
    let subject = claim("sub", "sub")?;
    let namespace = claim("kubernetes.io/serviceaccount/namespace", "namespace")?;
    let secret_name = claim("kubernetes.io/serviceaccount/secret.name", "secretName")?;
    let name = claim("kubernetes.io/serviceaccount/service-account.name", "serviceAccountName")?;
    let uid = claim("kubernetes.io/serviceaccount/service-account.uid", "serviceAccountUID")?;
    if split_username(&subject) != Some((&namespace, &name)) {
        return Err("sub claim is invalid".into());
    }
    let secret = get(objects, "secrets", &namespace, &secret_name).filter(|secret| secret.deletion_timestamp.is_none());
    let secret = secret.ok_or("Token has been invalidated")?;
    let kept = json::parse(&secret.json).unwrap_or_default();
    let kept = kept.get("data").and_then(|data| data.get("token")).and_then(Value::as_str).and_then(base64::decode);
    verify_slices_are_equal(&kept.unwrap_or_default(), token.as_bytes())
        .map_err(|_| "Token does not match server's copy")?;
    let account = service_account(objects, &namespace, &name)?;
    if account.deletion_timestamp.is_some() {
        return Err(format!("ServiceAccount {namespace}/{name} has been deleted").into());
    }
    if account.uid != uid {
        return Err(format!("ServiceAccount UID ({}) does not match claim ({uid})", account.uid).into());
    }
    if secret.labels.iter().any(|(key, value)| key == INVALID_SINCE && !value.is_empty()) {
        return Err(format!(
            "the token in secret {namespace}/{secret_name} for service account {namespace}/{name} has been marked \
             invalid. Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
             '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        )
        .into());
    }
    let account = json::parse(&account.json).unwrap_or_default();
    let secrets = account.get("secrets").and_then(Value::as_array);
    let generated = secrets.is_some_and(|secrets| secrets.iter().any(|secret| text(secret, "name") == secret_name));
    let user = UserInfo { name: subject, uid, groups: group_names(&namespace), ..UserInfo::default() };
    Ok((user, if generated { vec![AUTO_GENERATED] } else { Vec::new() }))
}
