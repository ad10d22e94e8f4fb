//! The kind `At`: what is wanted, and how far it is. The custom resource definition is made from these types.

use k8s_openapi::api::core::v1::Container;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Runs a command at a given time.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cnat.programming-kubernetes.info",
    version = "v1alpha1",
    kind = "At",
    plural = "ats",
    namespaced,
    status = "AtStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Schedule","type":"string","jsonPath":".spec.schedule"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    crates(kube_core = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.command) != has(self.containers)",
    "message": "exactly one of command and containers is required"
}]))]
pub struct AtSpec {
    /// When to run, in UTC (RFC 3339): 2027-01-01T00:00:00Z. A time that has passed means at once.
    #[schemars(extend("format" = "date-time"))]
    pub schedule: String,

    /// What to run, as one would type it into a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub command: Option<String>,

    /// What to run, as in a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "containers")]
    pub containers: Option<Vec<Container>>,
}

/// How far it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AtStatus {
    /// PENDING until its time, then RUNNING, then DONE.
    #[serde(default)]
    pub phase: Phase,

    /// The pod that runs the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,

    /// What there is to say about it: why it does not run, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How far an [`At`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Phase {
    /// Its time has not come.
    #[default]
    Pending,
    /// Its pod is to run, or runs.
    Running,
    /// Its pod has ended.
    Done,
}

impl At {
    /// How far it is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.status.as_ref().map(|status| status.phase).unwrap_or_default()
    }
}

/// Containers have hundreds of fields, which the server checks when the pod is created; here only what they cannot do
/// without.
fn containers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "required": ["name", "image"],
            "properties": { "name": { "type": "string" }, "image": { "type": "string" } },
            "x-kubernetes-preserve-unknown-fields": true,
        },
    })
}
