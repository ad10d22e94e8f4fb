//! What has become of a pod, as far as loops look at it.

use capstan_api::Str;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer, de::IgnoredAny};

use super::{
    ResourceRequirements,
    spec::{Amounts, amounts, nullable},
};
use crate::{pod_status::DISRUPTION_TARGET, shared::Shared};

/// What has become of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<Str>,
    pub(crate) reason: Option<Str>,
    #[serde(rename = "podIP")]
    pub(crate) pod_ip: Option<Str>,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Option<Box<[PodIP]>>,
    pub(crate) qos_class: Option<Str>,
    pub(crate) resize: Option<Str>,
    pub(crate) start_time: Option<Time>,
    pub(crate) observed_generation: Option<i64>,
    #[serde(deserialize_with = "conditions")]
    pub(crate) conditions: Option<Box<[PodCondition]>>,
    pub(crate) container_statuses: Option<Box<[ContainerStatus]>>,
    pub(crate) init_container_statuses: Option<Box<[ContainerStatus]>>,
    pub(crate) resource_claim_statuses: Option<Box<[PodResourceClaimStatus]>>,
    pub(crate) extended_resource_claim_status: Option<Box<PodExtendedResourceClaimStatus>>,
}

/// An address of a pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct PodIP {
    #[serde(deserialize_with = "nullable")]
    pub(crate) ip: Str,
}

/// What is so of a pod, and since when.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodCondition {
    #[serde(rename = "type", deserialize_with = "nullable")]
    pub(crate) type_: Str,
    #[serde(deserialize_with = "nullable")]
    pub(crate) status: Str,
    pub(crate) reason: Option<Str>,
    /// Only of the condition that loops write themselves.
    pub(crate) message: Option<Box<str>>,
    pub(crate) last_transition_time: Option<Time>,
}

fn conditions<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<[PodCondition]>>, D::Error> {
    let mut conditions = Option::<Box<[PodCondition]>>::deserialize(from)?;
    let others = conditions.iter_mut().flatten().filter(|condition| condition.type_ != DISRUPTION_TARGET);
    others.for_each(|condition| condition.message = None);
    Ok(conditions)
}

/// What has become of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatus {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: Str,
    #[serde(deserialize_with = "nullable")]
    pub(crate) restart_count: i32,
    pub(crate) state: Option<ContainerState>,
    pub(crate) resources: Option<Shared<ResourceRequirements>>,
    #[serde(deserialize_with = "amounts")]
    pub(crate) allocated_resources: Option<Shared<Amounts>>,
}

/// Whether a container waits, runs or has ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<IgnoredAny>,
    pub(crate) running: Option<IgnoredAny>,
    pub(crate) terminated: Option<Box<ContainerStateTerminated>>,
}

/// How a container has ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStateTerminated {
    #[serde(deserialize_with = "nullable")]
    pub(crate) exit_code: i32,
    pub(crate) finished_at: Option<Time>,
}

/// Which claim stands for one of the pod's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodResourceClaimStatus {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    pub(crate) resource_claim_name: Option<String>,
}

/// Which claim stands for extended resources.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodExtendedResourceClaimStatus {
    #[serde(deserialize_with = "nullable")]
    pub(crate) resource_claim_name: String,
}
