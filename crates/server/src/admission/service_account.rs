//! ServiceAccount: every pod runs as somebody, and gets that one's token and pull secrets.

use capstan_api::{GroupResource, Map, Status, Value};
use capstan_clock::SharedIds;

use super::{
    Operation, Plugin, Request,
    common::{
        MIRROR_POD, PODS, SERVICE_ACCOUNTS, annotation, each, each_mut, flag, forbidden, is_of, map, object, push,
        stored,
    },
    pod_references::{projects_tokens, service_account, uses_secrets},
};
use crate::registry::paths;

const DEFAULT_NAME: &str = "default";
const ENFORCE_MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";
const VOLUME_PREFIX: &str = "kube-api-access-";
const VOLUME_SUFFIX_LENGTH: usize = 5;
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and seven seconds, by which tokens can be told that kubelets renew.
const TOKEN_SECONDS: i64 = 60 * 60 + 7;
/// 0644.
const DEFAULT_MODE: i64 = 420;

/// The plugin.
#[derive(Debug)]
pub struct ServiceAccount {
    ids: SharedIds,
}

impl ServiceAccount {
    /// A plugin that makes up names of volumes from these ids.
    #[must_use]
    pub fn new(ids: SharedIds) -> Self {
        ServiceAccount { ids }
    }

    /// The token is mounted into the containers that have nothing in its place.
    fn mount_token(&self, pod: &mut Map) {
        let present = each(pod, "spec.volumes")
            .map(|volume| paths::text(volume, "name"))
            .find(|name| name.starts_with(VOLUME_PREFIX))
            .map(str::to_owned);
        let is_new = present.is_none();
        let name = present.unwrap_or_else(|| format!("{VOLUME_PREFIX}{}", self.ids.suffix(VOLUME_SUFFIX_LENGTH)));
        let mut is_needed = false;
        for list in ["spec.initContainers", "spec.containers"] {
            for container in each_mut(pod, list) {
                if each(container, "volumeMounts").any(|mount| paths::text(mount, "mountPath") == MOUNT_PATH) {
                    continue;
                }
                let mount =
                    map([("mountPath", MOUNT_PATH.into()), ("name", name.as_str().into()), ("readOnly", true.into())]);
                push(container, "volumeMounts", mount);
                is_needed = true;
            }
        }
        if is_new && is_needed {
            push(pod, "spec.volumes", map([("name", name.into()), ("projected", token_source())]));
        }
    }
}

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if ignores(request) || request.operation != Operation::Create {
            return Ok(());
        }
        if annotation(object(request), MIRROR_POD).is_none() {
            let name = match service_account(object(request)) {
                "" => DEFAULT_NAME,
                name => name,
            }
            .to_owned();
            let account = find(request, &name)?;
            if let Some(pod) = request.object.as_deref_mut() {
                paths::set(pod, "spec.serviceAccountName", name.as_str());
                paths::set(pod, "spec.serviceAccount", name);
                let automount =
                    [(&*pod, "spec.automountServiceAccountToken"), (&account, "automountServiceAccountToken")];
                if automount.into_iter().find_map(|(object, path)| flag(object, path)).unwrap_or(true) {
                    self.mount_token(pod);
                }
                let secrets = each(&account, "imagePullSecrets");
                if paths::items(pod, "spec.imagePullSecrets").is_empty() && secrets.clone().next().is_some() {
                    let secrets = secrets.map(|secret| map([("name", paths::text(secret, "name").into())]));
                    paths::set(pod, "spec.imagePullSecrets", secrets.collect::<Vec<_>>());
                }
            }
        }
        self.validate(request)
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if ignores(request) {
            return Ok(());
        }
        let pod = object(request);
        let is_ephemeral = request.operation == Operation::Update && request.subresource == "ephemeralcontainers";
        if !is_ephemeral {
            if request.operation != Operation::Create {
                return Ok(());
            }
            if annotation(pod, MIRROR_POD).is_some() {
                return match mirror_refusal(pod) {
                    Some(error) => Err(forbidden(request, error)),
                    None => Ok(()),
                };
            }
        }
        let name = service_account(pod);
        if name.is_empty() {
            let place = format!("{}/{}", request.namespace, paths::text(pod, "metadata.name"));
            return Err(forbidden(request, format!("no service account specified for pod {place}")));
        }
        let account = find(request, name)?;
        if !annotation(&account, ENFORCE_MOUNTABLE_SECRETS).is_some_and(is_true) {
            return Ok(());
        }
        let account = Mountable { name, account: &account };
        if is_ephemeral {
            // Upstream forgets to make a refusal of this one, so it answers as an error without a reason.
            return account
                .check_containers(pod, "spec.ephemeralContainers", "ephemeral container")
                .map_err(Status::unknown);
        }
        account.check(pod).map_err(|error| forbidden(request, error))
    }
}

fn ignores(request: &Request<'_>) -> bool {
    !is_of(request, &PODS) || !matches!(request.subresource, "" | "ephemeralcontainers") || request.object.is_none()
}

fn find(request: &Request<'_>, name: &str) -> Result<Map, Status> {
    stored(request, &SERVICE_ACCOUNTS, request.namespace, name).ok_or_else(|| {
        let error = Status::not_found(&GroupResource::from_static("", "serviceaccount"), name).message;
        forbidden(request, format!("error looking up service account {}/{name}: {error}", request.namespace))
    })
}

fn mirror_refusal(pod: &Map) -> Option<&'static str> {
    if !service_account(pod).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if uses_secrets(pod) {
        return Some("a mirror pod may not reference secrets");
    }
    projects_tokens(pod).then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// Reads a boolean as Go's `strconv.ParseBool` does.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "TRUE" | "true" | "True")
}

/// An account whose pods may use its own secrets only.
struct Mountable<'a> {
    name: &'a str,
    account: &'a Map,
}

impl Mountable<'_> {
    fn has(&self, list: &str, secret: &str) -> bool {
        each(self.account, list).any(|own| paths::text(own, "name") == secret)
    }

    fn check(&self, pod: &Map) -> Result<(), String> {
        for volume in each(pod, "spec.volumes").filter(|volume| volume.get("secret").is_some_and(|s| !s.is_null())) {
            self.check_secret("volume with", paths::text(volume, "secret.secretName"))?;
        }
        self.check_containers(pod, "spec.initContainers", "init container")?;
        self.check_containers(pod, "spec.containers", "container")?;
        for (index, secret) in each(pod, "spec.imagePullSecrets").enumerate() {
            let name = paths::text(secret, "name");
            if !self.has("imagePullSecrets", name) {
                return Err(format!(
                    "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account {} does not \
                     reference that imagePullSecret",
                    self.name
                ));
            }
        }
        Ok(())
    }

    fn check_containers(&self, pod: &Map, list: &str, what: &str) -> Result<(), String> {
        let reference = |object: &Map, path: &str| paths::get(object, path).and_then(Value::as_object).cloned();
        for container in each(pod, list) {
            let name = paths::text(container, "name");
            for entry in each(container, "env") {
                if let Some(secret) = reference(entry, "valueFrom.secretKeyRef") {
                    let user = format!("{what} {name} with envVar {} referencing", paths::text(entry, "name"));
                    self.check_secret(&user, paths::text(&secret, "name"))?;
                }
            }
            for source in each(container, "envFrom") {
                if let Some(secret) = reference(source, "secretRef") {
                    let user = format!("{what} {name} with envFrom referencing");
                    self.check_secret(&user, paths::text(&secret, "name"))?;
                }
            }
        }
        Ok(())
    }

    fn check_secret(&self, user: &str, secret: &str) -> Result<(), String> {
        if self.has("secrets", secret) {
            return Ok(());
        }
        Err(format!(
            "{user} secret.secretName=\"{secret}\" is not allowed because service account {} does not reference that \
             secret",
            self.name
        ))
    }
}

/// A volume with the token, the certificate of the cluster and the name of the namespace.
fn token_source() -> Value {
    let item = |fields: Value| Value::from(vec![fields]);
    let field = map([("apiVersion", "v1".into()), ("fieldPath", "metadata.namespace".into())]);
    let sources = vec![
        map([("serviceAccountToken", map([("expirationSeconds", TOKEN_SECONDS.into()), ("path", "token".into())]))]),
        map([(
            "configMap",
            map([
                ("items", item(map([("key", "ca.crt".into()), ("path", "ca.crt".into())]))),
                ("name", "kube-root-ca.crt".into()),
            ]),
        )]),
        map([("downwardAPI", map([("items", item(map([("fieldRef", field), ("path", "namespace".into())])))]))]),
    ];
    map([("defaultMode", DEFAULT_MODE.into()), ("sources", sources.into())])
}
