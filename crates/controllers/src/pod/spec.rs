//! What a pod is to be, as far as loops look at it.

use std::{collections::BTreeMap, hash::Hash};

use capstan_api::Str;
use k8s_openapi::{
    api::core::v1::{self as core, EphemeralVolumeSource, NodeSelectorRequirement, PersistentVolumeClaimVolumeSource},
    apimachinery::pkg::api::resource::Quantity,
};
use serde::{Deserialize, Deserializer};

use crate::shared::{List, Shared};

/// Amounts by name, as they are written.
pub(crate) type Amounts = BTreeMap<String, String>;

/// What a pod is to be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodSpec {
    pub(crate) node_name: Option<Str>,
    pub(crate) hostname: Option<Str>,
    pub(crate) subdomain: Option<Str>,
    pub(crate) priority_class_name: Option<Str>,
    pub(crate) active_deadline_seconds: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) containers: List<Container>,
    pub(crate) init_containers: Option<List<Container>>,
    pub(crate) tolerations: Option<List<Toleration>>,
    pub(crate) resource_claims: Option<List<PodResourceClaim>>,
    pub(crate) resources: Option<Shared<ResourceRequirements>>,
    #[serde(deserialize_with = "amounts")]
    pub(crate) overhead: Option<Shared<Amounts>>,
    pub(crate) affinity: Option<Box<Affinity>>,
    /// Those that a loop has to do with: with a claim, or with a Secret.
    #[serde(deserialize_with = "volumes")]
    pub(crate) volumes: Option<Box<[Volume]>>,
    #[serde(deserialize_with = "local_references")]
    image_pull_secrets: Option<List<String>>,
    /// Of these only which Secrets they read.
    ephemeral_containers: Option<List<Container>>,
}

impl PodSpec {
    /// The containers that go on beside the others although they are among those that come first.
    pub(crate) fn sidecars(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().flatten().filter(|container| container.restart_policy.as_deref() == Some("Always"))
    }

    /// The names of the Secrets that the pod reads, wherever they are named.
    pub(crate) fn secret_names(&self) -> impl Iterator<Item = &str> {
        let init = self.init_containers.iter().flatten();
        let containers = self.containers.iter().chain(init).chain(self.ephemeral_containers.iter().flatten());
        let of_containers = containers.flat_map(|container| container.env.iter().chain(&container.env_from));
        let of_volumes = self.volumes.iter().flatten().flat_map(|volume| volume.secrets.iter());
        of_containers.chain(of_volumes).chain(self.image_pull_secrets.iter().flatten()).map(String::as_str)
    }
}

/// Reads `null` as nothing.
pub(super) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

pub(super) fn amounts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Shared<Amounts>>, D::Error> {
    let amounts = Option::<BTreeMap<String, Quantity>>::deserialize(from)?;
    let texts = |amounts: BTreeMap<_, Quantity>| -> Amounts {
        amounts.into_iter().map(|(name, amount)| (name, amount.0)).collect()
    };
    Ok(amounts.map(|amounts| Shared::from(texts(amounts))))
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Container {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: Str,
    pub(crate) restart_policy: Option<Str>,
    pub(crate) ports: Option<Box<[ContainerPort]>>,
    pub(crate) resources: Option<ResourceRequirements>,
    /// The Secrets that variables are from.
    #[serde(deserialize_with = "env")]
    env: Box<[String]>,
    #[serde(deserialize_with = "env_from")]
    env_from: Box<[String]>,
}

fn env<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[String]>, D::Error> {
    let variables: Vec<core::EnvVar> = nullable(from)?;
    let secret = |variable: core::EnvVar| variable.value_from?.secret_key_ref.map(|reference| reference.name);
    Ok(variables.into_iter().filter_map(secret).collect())
}

fn env_from<'de, D: Deserializer<'de>>(from: D) -> Result<Box<[String]>, D::Error> {
    let sources: Vec<core::EnvFromSource> = nullable(from)?;
    Ok(sources.into_iter().filter_map(|source| source.secret_ref.map(|reference| reference.name)).collect())
}

fn local_references<'de, D: Deserializer<'de>>(from: D) -> Result<Option<List<String>>, D::Error> {
    let references: Vec<core::LocalObjectReference> = nullable(from)?;
    let names: Box<[String]> = references.into_iter().map(|reference| reference.name).collect();
    Ok((!names.is_empty()).then(|| names.into()))
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerPort {
    pub(crate) name: Option<Str>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) container_port: i32,
    pub(crate) protocol: Option<Str>,
}

/// What is asked for, and what may be had at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ResourceRequirements {
    #[serde(deserialize_with = "amounts")]
    pub(crate) limits: Option<Shared<Amounts>>,
    #[serde(deserialize_with = "amounts")]
    pub(crate) requests: Option<Shared<Amounts>>,
}

/// A taint that the pod puts up with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Toleration {
    pub(crate) key: Option<String>,
    pub(crate) operator: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) effect: Option<String>,
    pub(crate) toleration_seconds: Option<i64>,
}

/// Devices that the pod claims.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodResourceClaim {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    pub(crate) resource_claim_name: Option<String>,
    pub(crate) resource_claim_template_name: Option<String>,
}

/// Where the pod wants to be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(from = "core::Affinity")]
pub(crate) struct Affinity {
    /// What the fields of its node must be.
    pub(crate) match_fields: Box<[NodeSelectorRequirement]>,
    /// Whether pods of other namespaces matter.
    pub(crate) crosses_namespaces: bool,
}

impl From<core::Affinity> for Affinity {
    fn from(from: core::Affinity) -> Self {
        let required = from.node_affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution);
        let terms = required.into_iter().flat_map(|required| required.node_selector_terms);
        let match_fields = terms.flat_map(|term| term.match_fields.into_iter().flatten()).collect();
        let (with, without) = (from.pod_affinity.unwrap_or_default(), from.pod_anti_affinity.unwrap_or_default());
        let required = [
            with.required_during_scheduling_ignored_during_execution,
            without.required_during_scheduling_ignored_during_execution,
        ];
        let preferred = [
            with.preferred_during_scheduling_ignored_during_execution,
            without.preferred_during_scheduling_ignored_during_execution,
        ];
        let preferred = preferred.into_iter().flatten().flatten().map(|term| term.pod_affinity_term);
        let crosses = |term: core::PodAffinityTerm| {
            term.namespaces.is_some_and(|namespaces| !namespaces.is_empty()) || term.namespace_selector.is_some()
        };
        let crosses_namespaces = required.into_iter().flatten().flatten().chain(preferred).any(crosses);
        Affinity { match_fields, crosses_namespaces }
    }
}

/// A volume with a claim or with Secrets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Volume {
    pub(crate) name: String,
    pub(crate) persistent_volume_claim: Option<PersistentVolumeClaimVolumeSource>,
    pub(crate) ephemeral: Option<Box<EphemeralVolumeSource>>,
    /// The Secrets that it needs.
    secrets: Vec<String>,
}

impl From<core::Volume> for Volume {
    fn from(from: core::Volume) -> Self {
        let projected = from.projected.into_iter().flat_map(|projected| projected.sources.into_iter().flatten());
        let references = [
            from.cephfs.and_then(|source| source.secret_ref),
            from.cinder.and_then(|source| source.secret_ref),
            from.csi.and_then(|source| source.node_publish_secret_ref),
            from.flex_volume.and_then(|source| source.secret_ref),
            from.iscsi.and_then(|source| source.secret_ref),
            from.rbd.and_then(|source| source.secret_ref),
            from.scale_io.map(|source| source.secret_ref),
            from.storageos.and_then(|source| source.secret_ref),
        ];
        let named = [from.secret.and_then(|secret| secret.secret_name), from.azure_file.map(|file| file.secret_name)];
        let references = references.into_iter().flatten().map(|reference| reference.name);
        let projected = projected.filter_map(|source| source.secret.map(|secret| secret.name));
        Volume {
            name: from.name,
            persistent_volume_claim: from.persistent_volume_claim,
            ephemeral: from.ephemeral.map(Box::new),
            secrets: named.into_iter().flatten().chain(references).chain(projected).collect(),
        }
    }
}

fn volumes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<[Volume]>>, D::Error> {
    let all: Vec<core::Volume> = nullable(from)?;
    let matters = |volume: &Volume| {
        volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() || !volume.secrets.is_empty()
    };
    let kept: Box<[Volume]> = all.into_iter().map(Volume::from).filter(matters).collect();
    Ok((!kept.is_empty()).then_some(kept))
}
