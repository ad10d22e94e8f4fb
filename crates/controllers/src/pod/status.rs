//! What has become of a pod, as far as loops look at it.

use std::ops::Deref;

use capstan_api::Str;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, de::IgnoredAny};

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
#[serde(from = "Told")]
pub(crate) struct PodCondition {
    about: Shared<About>,
    pub(crate) last_transition_time: Option<Time>,
}

/// What is so of a pod. It is so of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct About {
    pub(crate) type_: Str,
    pub(crate) status: Str,
    pub(crate) reason: Option<Str>,
    /// Only of the condition that loops write themselves.
    pub(crate) message: Option<Str>,
}

impl From<About> for PodCondition {
    fn from(about: About) -> Self {
        PodCondition { about: about.into(), last_transition_time: None }
    }
}

impl Deref for PodCondition {
    type Target = About;

    fn deref(&self) -> &About {
        &self.about
    }
}

/// A condition as it is told.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    #[serde(rename = "type", deserialize_with = "nullable")]
    type_: Str,
    #[serde(deserialize_with = "nullable")]
    status: Str,
    reason: Option<Str>,
    message: Option<Str>,
    last_transition_time: Option<Time>,
}

impl From<Told> for PodCondition {
    fn from(Told { type_, status, reason, message, last_transition_time }: Told) -> Self {
        let message = message.filter(|_| type_ == DISRUPTION_TARGET);
        PodCondition { about: About { type_, status, reason, message }.into(), last_transition_time }
    }
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
