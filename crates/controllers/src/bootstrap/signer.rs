//! `bootstrap-signer-controller`: who knows a token can tell that what it reads of the cluster is true.

use std::{collections::BTreeMap, sync::Arc};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use capstan_api::selector::Selector;
use capstan_client::{Api, BoxFuture, Client, HandlerFuncs, Key, Lister};
use capstan_clock::{SharedClock, Timestamp};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;

use super::{Life, NAMESPACE, data, is_token, life};
use crate::{
    ControllerContext,
    drive::{drive, filled},
};

const INFO_NAMESPACE: &str = "kube-public";
const INFO_NAME: &str = "cluster-info";
const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";
const SECRET_PREFIX: &str = "bootstrap-token-";

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (secrets, maps) = (context.informers.informer::<Secret>(), context.informers.informer::<ConfigMap>());
    let signer = Signer {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        secrets: secrets.lister(),
        maps: maps.lister(),
    };
    let controller = Controller::new(signer, Arc::clone(&context.clock));
    let queue = controller.queue().clone();
    let sign = move || queue.add(Key::new(INFO_NAMESPACE, INFO_NAME));
    let see = {
        let sign = sign.clone();
        move |secret: &Secret| {
            if is_token(secret) {
                sign();
            }
        }
    };
    let (update, delete) = (see.clone(), see.clone());
    secrets.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |new: &Arc<Secret>, _| see(new))
            .on_update(move |_, new| update(new))
            .on_delete(move |gone| delete(gone.object())),
    );
    let see = move |map: &ConfigMap| {
        if Key::of(map) == Key::new(INFO_NAMESPACE, INFO_NAME) {
            sign();
        }
    };
    let update = see.clone();
    maps.add_event_handler(
        HandlerFuncs::new().on_add(move |new: &Arc<ConfigMap>, _| see(new)).on_update(move |_, new| update(new)),
    );
    drive(context, "bootstrap_signer_queue", vec![filled(&secrets), filled(&maps)], controller)
}

/// A JWS whose content is left out: who checks it has that.
fn signature(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes());
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
}

/// The id and secret of a token that may sign.
fn signing(secret: &Secret, now: Timestamp) -> Option<(&str, &str)> {
    let of_name = secret.metadata.name.as_deref()?.strip_prefix(SECRET_PREFIX)?;
    let is_id = of_name.len() == 6 && of_name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let (id, value) = (data(secret, "token-id"), data(secret, "token-secret"));
    let may_sign = data(secret, "usage-bootstrap-signing") == "true" && life(secret, now) != Life::Over;
    (is_id && id == of_name && !value.is_empty() && may_sign).then_some((id, value))
}

/// The data of the map with the signatures of these tokens and no others, if that is a change.
fn signed<'a>(map: &ConfigMap, tokens: impl Iterator<Item = (&'a str, &'a str)>) -> Option<BTreeMap<String, String>> {
    let old = map.data.as_ref()?;
    let content = old.get(KUBECONFIG)?;
    let mut new: BTreeMap<_, _> = old
        .iter()
        .filter(|(key, _)| !key.starts_with(SIGNATURE))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    new.extend(tokens.map(|(id, secret)| (format!("{SIGNATURE}{id}"), signature(content, id, secret))));
    (new != *old).then_some(new)
}

struct Signer {
    client: Client,
    clock: SharedClock,
    secrets: Lister<Secret>,
    maps: Lister<ConfigMap>,
}

impl Reconciler for Signer {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(map) = self.maps.get(&key) else { return Ok(Action::Done) };
        let secrets = self.secrets.namespace(NAMESPACE).list(&Selector::default());
        let now = self.clock.now();
        let tokens = secrets.iter().filter(|secret| is_token(secret)).filter_map(|secret| signing(secret, now));
        let Some(data) = signed(&map, tokens) else { return Ok(Action::Done) };
        let changed = ConfigMap { data: Some(data), ..ConfigMap::clone(&map) };
        match Api::<ConfigMap>::namespaced(&self.client, key.namespace()).update(&changed).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures() {
        // The same content, id and secret as in the tests of the library that kubeadm uses.
        assert_eq!(
            signature(
                "Hello from the other side. I must have called a thousand times.",
                "joshua",
                "my voice is my passcode"
            ),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"
        );
    }

    #[test]
    fn who_signs() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let check = |name: &str, more: &[(&str, &str)], expected: bool| {
            let mut values = BTreeMap::from([
                ("token-id", "abcdef"),
                ("token-secret", "0123456789abcdef"),
                ("usage-bootstrap-signing", "true"),
            ]);
            values.extend(more.iter().copied());
            let secret = json!({
                "metadata": {"name": name},
                "data": values.iter().map(|(key, value)| ((*key).to_owned(), json!(base64::engine::general_purpose::STANDARD.encode(value)))).collect::<serde_json::Map<_, _>>(),
            });
            let secret: Secret = serde_json::from_value(secret).unwrap();
            assert_eq!(signing(&secret, now).is_some(), expected, "{name} {more:?}");
        };
        check("bootstrap-token-abcdef", &[], true);
        check("bootstrap-token-abcdef", &[("expiration", "2026-01-01T00:00:01Z")], true);
        check("bootstrap-token-abcdef", &[("expiration", "2026-01-01T00:00:00Z")], false);
        check("bootstrap-token-abcdef", &[("expiration", "tomorrow")], false);
        check("bootstrap-token-abcdef", &[("token-id", "ghijkl")], false);
        check("bootstrap-token-abcdef", &[("token-secret", "")], false);
        check("bootstrap-token-abcdef", &[("usage-bootstrap-signing", "yes")], false);
        check("bootstrap-token-ABCDEF", &[("token-id", "ABCDEF")], false);
        check("other", &[], false);
    }

    #[test]
    fn old_signatures_go() {
        let map: ConfigMap =
            serde_json::from_value(json!({"data": {"kubeconfig": "x", "jws-kubeconfig-old": "s", "other": "y"}}))
                .unwrap();
        let data = signed(&map, [("new", "secret")].into_iter()).unwrap();
        assert_eq!(data.keys().collect::<Vec<_>>(), ["jws-kubeconfig-new", "kubeconfig", "other"]);
        let map = ConfigMap { data: Some(data), ..map };
        assert_eq!(signed(&map, [("new", "secret")].into_iter()), None);
        assert!(signed(&map, std::iter::empty()).is_some());
        assert_eq!(signed(&ConfigMap::default(), std::iter::empty()), None);
    }
}
