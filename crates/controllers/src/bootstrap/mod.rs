//! Tokens by which new nodes join: `bootstrap-signer-controller` and `token-cleaner-controller`.

mod cleaner;
mod signer;

use capstan_clock::Timestamp;
use k8s_openapi::{api::core::v1::Secret, jiff::SignedDuration};

pub(crate) use cleaner::run as run_cleaner;
pub(crate) use signer::run as run_signer;

/// Where the tokens are.
const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";

fn is_token(secret: &Secret) -> bool {
    secret.type_.as_deref() == Some(SECRET_TYPE) && secret.metadata.namespace.as_deref() == Some(NAMESPACE)
}

fn data<'a>(secret: &'a Secret, key: &str) -> &'a str {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.and_then(|value| str::from_utf8(&value.0).ok()).unwrap_or_default()
}

/// How long a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Forever,
    For(SignedDuration),
    Over,
}

fn life(secret: &Secret, now: Timestamp) -> Life {
    match data(secret, "expiration") {
        "" => Life::Forever,
        text => match text.parse::<Timestamp>().map(|end| end.duration_since(now)) {
            Ok(left) if left.is_positive() => Life::For(left),
            _ => Life::Over,
        },
    }
}
