//! `legacy-serviceaccount-token-cleaner-controller`: tokens in Secrets that nobody has used for a year go.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use capstan_api::{
    options::{DeleteOptions, Preconditions},
    selector::Selector,
};
use capstan_client::{Api, BoxFuture, Client, Error, Lister, Patch};
use capstan_clock::{SharedClock, Timestamp};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret, ServiceAccount},
    jiff::{SignedDuration, civil::Date},
};
use serde_json::json;

use crate::{
    ControllerContext,
    drive::{every, filled, synced},
    pod::{Pod, PodSpec},
    serviceaccount_token::{ACCOUNT_NAME, ACCOUNT_UID, SECRET_TYPE},
};

/// How often tokens are looked through.
const SYNC_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// How long a token stays without being used, and again after it was marked as invalid.
const CLEAN_UP_PERIOD: SignedDuration = SignedDuration::from_hours(24 * 365);

const DAY: SignedDuration = SignedDuration::from_hours(24);
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// Where the server says since when it knows which tokens are used.
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";

pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let (secrets, pods) = (context.informers.informer::<Secret>(), context.informers.informer::<Pod>());
    let accounts = context.informers.informer::<ServiceAccount>();
    let (stop, clock) = (context.stop.clone(), Arc::clone(&context.clock));
    let cleaner = Cleaner {
        client: context.client.clone(),
        clock: Arc::clone(&clock),
        secrets: secrets.lister(),
        pods: pods.lister(),
        accounts: accounts.lister(),
    };
    Box::pin(async move {
        if synced(&stop, vec![filled(&secrets), filled(&pods), filled(&accounts)]).await {
            every(&stop, &clock, SYNC_INTERVAL, || cleaner.clean()).await;
        }
    })
}

struct Cleaner {
    client: Client,
    clock: SharedClock,
    secrets: Lister<Secret>,
    pods: Lister<Pod>,
    accounts: Lister<ServiceAccount>,
}

fn day(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

fn is_day(text: &str) -> bool {
    text.len() == 10 && text.parse::<Date>().is_ok()
}

/// What is to happen to a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    MarkInvalid,
    Delete,
}

/// By its age, its use, and whether it was marked before. `used` tells whether pods mount it.
fn judge(secret: &Secret, now: Timestamp, is_named: bool, is_mounted: impl FnOnce() -> bool) -> Verdict {
    let Ok(before) = now.checked_sub(CLEAN_UP_PERIOD) else { return Verdict::Keep };
    let label = |key: &str| secret.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let created = secret.metadata.creation_timestamp.as_ref();
    if secret.type_.as_deref() != Some(SECRET_TYPE)
        || secret.metadata.deletion_timestamp.is_some()
        || created.is_none_or(|created| created.0 >= before)
        || label(LAST_USED).is_some_and(|used| !is_day(used) || *used >= day(before))
        || !is_named
        || is_mounted()
    {
        return Verdict::Keep;
    }
    match label(INVALID_SINCE).filter(|since| is_day(since)) {
        None => Verdict::MarkInvalid,
        Some(since) if *since >= day(before) => Verdict::Keep,
        Some(_) => Verdict::Delete,
    }
}

impl Cleaner {
    /// Looks through all tokens, once the server has tracked their use for long enough.
    async fn clean(&self) {
        let now = self.clock.now();
        let Some(since) = self.tracked_since().await else { return };
        if since.checked_add(CLEAN_UP_PERIOD).is_ok_and(|due| now < due) {
            return;
        }
        let mut mounted: HashMap<String, BTreeSet<String>> = HashMap::new();
        for secret in self.secrets.list(&Selector::default()) {
            let name = secret.metadata.name.clone().unwrap_or_default();
            let namespace = secret.metadata.namespace.clone().unwrap_or_default();
            let verdict = judge(&secret, now, self.is_named(&secret, &namespace, &name), || {
                mounted.entry(namespace.clone()).or_insert_with(|| self.mounted(&namespace)).contains(&name)
            });
            // What fails is tried again the next day.
            let _ = self.carry_out(verdict, &secret, now).await;
        }
    }

    /// Since when the use of tokens is tracked, at the latest.
    async fn tracked_since(&self) -> Option<Timestamp> {
        let map = Api::<ConfigMap>::namespaced(&self.client, "kube-system").get_opt(TRACKING).await.ok()??;
        let since = map.data?.remove("since").filter(|since| is_day(since))?;
        format!("{since}T00:00:00Z").parse::<Timestamp>().ok()?.checked_add(DAY).ok()
    }

    fn mounted(&self, namespace: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for pod in self.pods.namespace(namespace).list(&Selector::default()) {
            found.extend(pod.spec.iter().flat_map(PodSpec::secret_names).map(str::to_owned));
        }
        found
    }

    /// Whether the account of a token names it, as it did when tokens were made for all accounts.
    fn is_named(&self, secret: &Secret, namespace: &str, name: &str) -> bool {
        let annotation = |key: &str| secret.metadata.annotations.as_ref().and_then(|all| all.get(key));
        let Some(account) = annotation(ACCOUNT_NAME) else { return false };
        let Some(account) = self.accounts.namespace(namespace).get(account) else { return false };
        let is_meant =
            annotation(ACCOUNT_UID).is_none_or(|uid| uid.is_empty() || Some(uid) == account.metadata.uid.as_ref());
        is_meant && account.secrets.iter().flatten().any(|reference| reference.name.as_deref() == Some(name))
    }

    async fn carry_out(&self, verdict: Verdict, secret: &Secret, now: Timestamp) -> Result<(), Error> {
        let metadata = &secret.metadata;
        let api = Api::<Secret>::namespaced(&self.client, metadata.namespace.as_deref().unwrap_or_default());
        let name = metadata.name.as_deref().unwrap_or_default();
        match verdict {
            Verdict::Keep => Ok(()),
            Verdict::MarkInvalid => {
                let patch = json!({"metadata": {"uid": metadata.uid, "labels": {INVALID_SINCE: day(now)}}});
                api.patch(name, &Patch::Merge(patch)).await.map(drop)
            }
            Verdict::Delete => {
                let resource_version = metadata.resource_version.clone();
                let preconditions = Some(Preconditions { resource_version, ..Preconditions::default() });
                api.delete(name, &DeleteOptions { preconditions, ..DeleteOptions::default() }).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts() {
        let now: Timestamp = "2026-06-01T00:00:00Z".parse().unwrap();
        let check = |created: &str, used: &str, invalid: &str, expected: Verdict| {
            let mut labels = serde_json::Map::new();
            for (key, value) in [(LAST_USED, used), (INVALID_SINCE, invalid)] {
                if !value.is_empty() {
                    labels.insert(key.to_owned(), json!(value));
                }
            }
            let created = format!("{created}T00:00:00Z");
            let secret = json!({"type": SECRET_TYPE, "metadata": {"creationTimestamp": created, "labels": labels}});
            let secret: Secret = serde_json::from_value(secret).unwrap();
            assert_eq!(judge(&secret, now, true, || false), expected, "{created} {used} {invalid}");
            assert_eq!(judge(&secret, now, false, || false), Verdict::Keep);
            assert_eq!(judge(&secret, now, true, || true), Verdict::Keep);
        };
        check("2026-01-01", "", "", Verdict::Keep);
        check("2024-01-01", "", "", Verdict::MarkInvalid);
        check("2024-01-01", "2026-05-01", "", Verdict::Keep);
        check("2024-01-01", "2025-05-01", "", Verdict::MarkInvalid);
        check("2024-01-01", "whenever", "", Verdict::Keep);
        check("2024-01-01", "", "2026-05-01", Verdict::Keep);
        check("2024-01-01", "", "2025-05-01", Verdict::Delete);
        check("2024-01-01", "", "never", Verdict::MarkInvalid);
    }

    #[test]
    fn names_in_pods() {
        let spec: PodSpec = serde_json::from_value(json!({
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}}],
                "envFrom": [{"secretRef": {"name": "from"}}, {"configMapRef": {"name": "no"}}],
            }],
            "volumes": [
                {"name": "v", "secret": {"secretName": "volume"}},
                {"name": "w", "projected": {"sources": [{"secret": {"name": "projected"}}]}},
                {"name": "x", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "y", "configMap": {"name": "no"}},
            ],
        }))
        .unwrap();
        let found: BTreeSet<_> = spec.secret_names().collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["csi", "env", "from", "projected", "pull", "volume"]);
    }
}
