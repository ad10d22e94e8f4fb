//! The files of volumes that show objects: config maps, secrets, fields of the pod, tokens.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use capstan_client::Api;
use capstan_clock::Timestamp;
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{
        ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, Secret, ServiceAccount, ServiceAccountTokenProjection, Volume,
    },
};
use serde_json::json;

use super::{
    Volumes,
    atomic::{FileProjection, Payload},
};
use crate::{
    downward::{self, Facts},
    lifecycle::{plus, since},
};

/// The mode of files when nobody says otherwise.
const DEFAULT_MODE: i32 = 0o644;
/// The longest that a token is used although it is still valid.
const MAX_TOKEN_AGE: Duration = Duration::from_secs(24 * 3600);

impl Volumes {
    /// What a volume is to show.
    pub(super) async fn payload(&mut self, pod: &Pod, volume: &Volume, facts: &Facts) -> Result<Payload, String> {
        let mut all = Payload::new();
        if let Some(source) = &volume.config_map {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            let optional = source.optional.unwrap_or(false);
            self.config_map(pod, &source.name, optional, source.items.as_deref(), mode, &mut all).await?;
        }
        if let Some(source) = &volume.secret {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            let name = source.secret_name.as_deref().unwrap_or_default();
            let optional = source.optional.unwrap_or(false);
            self.secret(pod, name, optional, source.items.as_deref(), mode, &mut all).await?;
        }
        if let Some(source) = &volume.downward_api {
            let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
            fields(pod, source.items.as_deref().unwrap_or_default(), mode, facts, &mut all)?;
        }
        if let Some(projected) = &volume.projected {
            let mode = projected.default_mode.unwrap_or(DEFAULT_MODE);
            for source in projected.sources.iter().flatten() {
                if let Some(map) = &source.config_map {
                    let optional = map.optional.unwrap_or(false);
                    self.config_map(pod, &map.name, optional, map.items.as_deref(), mode, &mut all).await?;
                }
                if let Some(secret) = &source.secret {
                    let optional = secret.optional.unwrap_or(false);
                    self.secret(pod, &secret.name, optional, secret.items.as_deref(), mode, &mut all).await?;
                }
                if let Some(downward) = &source.downward_api {
                    fields(pod, downward.items.as_deref().unwrap_or_default(), mode, facts, &mut all)?;
                }
                if let Some(token) = &source.service_account_token {
                    let data = self.token(pod, &volume.name, token).await?.into_bytes();
                    // Who runs as another user must be able to read the token as well.
                    let mode = if runs_as_other(pod) { 0o600 | 0o044 } else { mode };
                    all.insert(PathBuf::from(&token.path), file(data, mode));
                }
            }
        }
        Ok(all)
    }

    async fn config_map(
        &self,
        pod: &Pod,
        name: &str,
        optional: bool,
        items: Option<&[KeyToPath]>,
        mode: i32,
        all: &mut Payload,
    ) -> Result<(), String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = Api::<ConfigMap>::namespaced(&self.client, namespace).get_opt(name).await;
        let Some(map) = found.map_err(|error| error.to_string())? else {
            return if optional { Ok(()) } else { Err(format!("configmap \"{name}\" not found")) };
        };
        let mut data: BTreeMap<String, Vec<u8>> =
            map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes())).collect();
        data.extend(map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0)));
        project("configmap", data, items, optional, mode, all)
    }

    async fn secret(
        &self,
        pod: &Pod,
        name: &str,
        optional: bool,
        items: Option<&[KeyToPath]>,
        mode: i32,
        all: &mut Payload,
    ) -> Result<(), String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let found = Api::<Secret>::namespaced(&self.client, namespace).get_opt(name).await;
        let Some(secret) = found.map_err(|error| error.to_string())? else {
            return if optional { Ok(()) } else { Err(format!("secret \"{name}\" not found")) };
        };
        let data = secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect();
        project("secret", data, items, optional, mode, all)
    }

    /// A token for the pod, the same until most of its time is over.
    async fn token(
        &mut self,
        pod: &Pod,
        volume: &str,
        wanted: &ServiceAccountTokenProjection,
    ) -> Result<String, String> {
        let key = format!("{volume}/{}", wanted.path);
        let now = self.clock.now();
        if let Some((token, until)) = self.tokens.get(&key)
            && *until > now
        {
            return Ok(token.clone());
        }
        let (metadata, spec) = (&pod.metadata, pod.spec.as_ref());
        let account = spec.and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let seconds = wanted.expiration_seconds.unwrap_or(3600);
        let audiences: Vec<&str> = wanted.audience.as_deref().filter(|text| !text.is_empty()).into_iter().collect();
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid},
            },
        });
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let accounts = Api::<ServiceAccount>::namespaced(&self.client, namespace);
        let fetch = |error: &dyn std::fmt::Display| format!("failed to fetch token: {error}");
        let answer = accounts.create_subresource(account, "token", &request).await.map_err(|error| fetch(&error))?;
        let answer: TokenRequest = serde_json::from_slice(&answer).map_err(|error| fetch(&error))?;
        let status = answer.status.ok_or_else(|| fetch(&"no status"))?;
        let refresh = refresh_at(now, status.expiration_timestamp.0);
        self.tokens.insert(key, (status.token.clone(), refresh));
        Ok(status.token)
    }
}

/// After four fifths of its life, and after a day at the latest.
fn refresh_at(now: Timestamp, expires: Timestamp) -> Timestamp {
    plus(now, (since(expires, now) / 5 * 4).min(MAX_TOKEN_AGE))
}

fn runs_as_other(pod: &Pod) -> bool {
    let Some(spec) = pod.spec.as_ref() else { return false };
    let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
    spec.containers.iter().any(|container| {
        let own = container.security_context.as_ref().and_then(|context| context.run_as_user);
        own.or(of_pod).is_some_and(|user| user != 0)
    })
}

fn file(data: Vec<u8>, mode: i32) -> FileProjection {
    FileProjection { data, mode: u32::try_from(mode).unwrap_or(0o644) }
}

/// The keys that are wanted, at the paths where they are wanted.
fn project(
    kind: &str,
    mut data: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    optional: bool,
    mode: i32,
    all: &mut Payload,
) -> Result<(), String> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        all.extend(data.into_iter().map(|(key, data)| (PathBuf::from(key), file(data, mode))));
        return Ok(());
    };
    for item in items {
        match data.remove(&item.key) {
            Some(data) => {
                all.insert(PathBuf::from(&item.path), file(data, item.mode.unwrap_or(mode)));
            }
            None if optional => {}
            None => return Err(format!("{kind} references non-existent {kind} key: {}", item.key).replace(
                "configmap key",
                "config key",
            )),
        }
    }
    Ok(())
}

fn fields(
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
    facts: &Facts,
    all: &mut Payload,
) -> Result<(), String> {
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            downward::field(pod, &field.field_path, facts)?
        } else if let Some(resource) = &item.resource_field_ref {
            downward::resource(pod, None, resource, facts)?
        } else {
            continue;
        };
        all.insert(PathBuf::from(&item.path), file(text.into_bytes(), item.mode.unwrap_or(mode)));
    }
    Ok(())
}
