//! What upstream fills in for whom, as data.
//!
//! A rule sets a field that is not set. Go cannot tell a missing number, string or boolean from a zero one unless the
//! field is a pointer, so for those zero counts as not set; the schema knows which is which.

use super::hooks;
use crate::{Map, Value};

/// A value that is filled in.
#[derive(Clone, Copy, Debug)]
pub(super) enum Literal {
    Text(&'static str),
    Int(i64),
    Bool(bool),
    Object,
    /// Anything larger, as JSON.
    Json(&'static str),
}

impl From<Literal> for Value {
    fn from(literal: Literal) -> Self {
        match literal {
            Literal::Text(text) => text.into(),
            Literal::Int(n) => n.into(),
            Literal::Bool(b) => b.into(),
            Literal::Object => Map::new().into(),
            Literal::Json(text) => crate::json::parse(text.as_bytes()).expect("a literal is JSON"),
        }
    }
}

/// When a rule applies.
#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Always,
    /// The field has this value.
    Is(&'static str, &'static str),
    /// The field has a value.
    Set(&'static str),
    /// The field has none.
    Unset(&'static str),
}

/// One thing that is done to an object of a type. Paths are fields with dots between, from that object on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// Sets the field at the path if it is not set.
    Fill(&'static str, Literal, When),
    /// What no rule can say.
    Call(fn(&mut Map)),
}

const fn text(path: &'static str, value: &'static str) -> Rule {
    Rule::Fill(path, Literal::Text(value), When::Always)
}

const fn int(path: &'static str, value: i64) -> Rule {
    Rule::Fill(path, Literal::Int(value), When::Always)
}

const fn bool(path: &'static str, value: bool) -> Rule {
    Rule::Fill(path, Literal::Bool(value), When::Always)
}

const fn object(path: &'static str) -> Rule {
    Rule::Fill(path, Literal::Object, When::Always)
}

const fn json(path: &'static str, value: &'static str) -> Rule {
    Rule::Fill(path, Literal::Json(value), When::Always)
}

impl Rule {
    const fn when(self, when: When) -> Self {
        match self {
            Rule::Fill(path, value, _) => Rule::Fill(path, value, when),
            Rule::Call(hook) => Rule::Call(hook),
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

const CONTAINER: &[Rule] = &[
    Rule::Call(hooks::container_pull_policy),
    text("terminationMessagePath", "/dev/termination-log"),
    text("terminationMessagePolicy", "File"),
];

const WEBHOOK: &[Rule] = &[
    text("failurePolicy", "Fail"),
    text("matchPolicy", "Equivalent"),
    object("namespaceSelector"),
    object("objectSelector"),
    int("timeoutSeconds", 10),
    text("reinvocationPolicy", "Never"),
];

const VALIDATING_WEBHOOK: &[Rule] = WEBHOOK.split_last().expect("it has rules").1;

const DEVICE_REQUEST: &[Rule] =
    &[text("allocationMode", "ExactCount"), int("count", 1).when(When::Is("allocationMode", "ExactCount"))];

const FILE_MODE: i64 = 0o644;

/// The rules of each type, sorted by the type's name (the last three parts of its OpenAPI name).
pub(super) const RULES: &[(&str, &[Rule])] = &[
    (
        "admissionregistration.v1.MatchResources",
        &[text("matchPolicy", "Equivalent"), object("namespaceSelector"), object("objectSelector")],
    ),
    ("admissionregistration.v1.MutatingAdmissionPolicySpec", &[text("failurePolicy", "Fail")]),
    ("admissionregistration.v1.MutatingWebhook", WEBHOOK),
    ("admissionregistration.v1.NamedRuleWithOperations", &[text("scope", "*")]),
    ("admissionregistration.v1.RuleWithOperations", &[text("scope", "*")]),
    ("admissionregistration.v1.ServiceReference", &[int("port", 443)]),
    ("admissionregistration.v1.ValidatingAdmissionPolicySpec", &[text("failurePolicy", "Fail")]),
    ("admissionregistration.v1.ValidatingWebhook", VALIDATING_WEBHOOK),
    (
        "apiextensions.v1.CustomResourceDefinition",
        &[Rule::Call(hooks::custom_resource_definition), json("spec.conversion", r#"{"strategy":"None"}"#)],
    ),
    ("apiextensions.v1.ServiceReference", &[int("port", 443)]),
    ("apiregistration.v1.ServiceReference", &[int("port", 443)]),
    (
        "apps.v1.DaemonSet",
        &[
            text("spec.updateStrategy.type", "RollingUpdate"),
            object("spec.updateStrategy.rollingUpdate").when(When::Is("spec.updateStrategy.type", "RollingUpdate")),
            int("spec.revisionHistoryLimit", 10),
        ],
    ),
    (
        "apps.v1.Deployment",
        &[
            int("spec.replicas", 1),
            text("spec.strategy.type", "RollingUpdate"),
            object("spec.strategy.rollingUpdate").when(When::Is("spec.strategy.type", "RollingUpdate")),
            int("spec.revisionHistoryLimit", 10),
            int("spec.progressDeadlineSeconds", 600),
        ],
    ),
    ("apps.v1.ReplicaSet", &[int("spec.replicas", 1)]),
    ("apps.v1.RollingUpdateDaemonSet", &[int("maxUnavailable", 1), int("maxSurge", 0)]),
    ("apps.v1.RollingUpdateDeployment", &[text("maxUnavailable", "25%"), text("maxSurge", "25%")]),
    ("apps.v1.RollingUpdateStatefulSetStrategy", &[int("partition", 0)]),
    (
        "apps.v1.StatefulSet",
        &[
            text("spec.podManagementPolicy", "OrderedReady"),
            object("spec.updateStrategy.rollingUpdate").when(When::Unset("spec.updateStrategy.type")),
            text("spec.updateStrategy.type", "RollingUpdate"),
            text("spec.persistentVolumeClaimRetentionPolicy.whenDeleted", "Retain"),
            text("spec.persistentVolumeClaimRetentionPolicy.whenScaled", "Retain"),
            int("spec.replicas", 1),
            int("spec.revisionHistoryLimit", 10),
            Rule::Call(hooks::claim_templates),
        ],
    ),
    ("authentication.v1.TokenRequestSpec", &[int("expirationSeconds", 3600)]),
    ("autoscaling.v1.HorizontalPodAutoscaler", &[int("spec.minReplicas", 1)]),
    (
        "autoscaling.v2.HorizontalPodAutoscaler",
        &[int("spec.minReplicas", 1), json("spec.metrics", hooks::HPA_METRICS), Rule::Call(hooks::hpa_behavior)],
    ),
    (
        "batch.v1.CronJob",
        &[
            text("spec.concurrencyPolicy", "Allow"),
            bool("spec.suspend", false),
            int("spec.successfulJobsHistoryLimit", 3),
            int("spec.failedJobsHistoryLimit", 1),
        ],
    ),
    (
        "batch.v1.Job",
        &[
            int("spec.completions", 1).when(When::Unset("spec.parallelism")),
            int("spec.parallelism", 1),
            int("spec.backoffLimit", i32::MAX as i64).when(When::Set("spec.backoffLimitPerIndex")),
            int("spec.backoffLimit", 6),
            Rule::Call(hooks::labels_from_template),
            text("spec.completionMode", "NonIndexed"),
            bool("spec.suspend", false),
            text("spec.podReplacementPolicy", "Failed").when(When::Set("spec.podFailurePolicy")),
            text("spec.podReplacementPolicy", "TerminatingOrFailed"),
            bool("spec.manualSelector", false),
        ],
    ),
    ("batch.v1.PodFailurePolicyOnPodConditionsPattern", &[text("status", "True")]),
    ("core.v1.ConfigMapVolumeSource", &[int("defaultMode", FILE_MODE)]),
    ("core.v1.Container", CONTAINER),
    ("core.v1.DownwardAPIVolumeSource", &[int("defaultMode", FILE_MODE)]),
    ("core.v1.EndpointPort", &[text("protocol", "TCP")]),
    ("core.v1.EphemeralContainer", CONTAINER),
    ("core.v1.HTTPGetAction", &[text("path", "/"), text("scheme", "HTTP")]),
    ("core.v1.HostPathVolumeSource", &[text("type", "")]),
    ("core.v1.LimitRangeItem", &[Rule::Call(hooks::limit_range_item)]),
    ("core.v1.Namespace", &[Rule::Call(hooks::namespace_label), text("status.phase", "Active")]),
    ("core.v1.NodeSpec", &[Rule::Call(hooks::pod_cidrs)]),
    ("core.v1.NodeStatus", &[Rule::Call(hooks::allocatable_from_capacity)]),
    ("core.v1.ObjectFieldSelector", &[text("apiVersion", "v1")]),
    (
        "core.v1.PersistentVolume",
        &[
            text("status.phase", "Pending"),
            text("spec.persistentVolumeReclaimPolicy", "Retain"),
            text("spec.volumeMode", "Filesystem"),
        ],
    ),
    ("core.v1.PersistentVolumeClaim", &[text("status.phase", "Pending")]),
    ("core.v1.PersistentVolumeClaimSpec", &[text("volumeMode", "Filesystem")]),
    (
        "core.v1.Pod",
        &[
            Rule::Call(hooks::pod_requests_from_limits),
            Rule::Call(super::pod_resources::pod_level_resources),
            bool("spec.enableServiceLinks", true),
            Rule::Call(hooks::host_network_ports),
            Rule::Call(hooks::grace_period),
        ],
    ),
    (
        "core.v1.PodSpec",
        &[
            text("dnsPolicy", "ClusterFirst"),
            text("restartPolicy", "Always"),
            object("securityContext"),
            int("terminationGracePeriodSeconds", 30),
            text("schedulerName", "default-scheduler"),
            Rule::Call(hooks::service_account),
        ],
    ),
    ("core.v1.PodStatus", &[Rule::Call(hooks::pod_ips)]),
    (
        "core.v1.Probe",
        &[int("timeoutSeconds", 1), int("periodSeconds", 10), int("successThreshold", 1), int("failureThreshold", 3)],
    ),
    ("core.v1.ProjectedVolumeSource", &[int("defaultMode", FILE_MODE)]),
    ("core.v1.ReplicationController", &[Rule::Call(hooks::selector_and_labels_from_template)]),
    ("core.v1.Secret", &[text("type", "Opaque")]),
    ("core.v1.SecretVolumeSource", &[int("defaultMode", FILE_MODE)]),
    (
        "core.v1.Service",
        &[text("spec.sessionAffinity", "None"), text("spec.type", "ClusterIP"), Rule::Call(hooks::service)],
    ),
    ("core.v1.ServiceAccountTokenProjection", &[int("expirationSeconds", 3600)]),
    ("core.v1.Volume", &[Rule::Call(hooks::volume)]),
    ("discovery.v1.EndpointPort", &[text("name", ""), text("protocol", "TCP")]),
    (
        "flowcontrol.v1.ExemptPriorityLevelConfiguration",
        &[int("nominalConcurrencyShares", 0), int("lendablePercent", 0)],
    ),
    ("flowcontrol.v1.FlowSchemaSpec", &[int("matchingPrecedence", 1000)]),
    (
        "flowcontrol.v1.LimitedPriorityLevelConfiguration",
        &[int("nominalConcurrencyShares", 30), int("lendablePercent", 0)],
    ),
    ("flowcontrol.v1.QueuingConfiguration", &[int("handSize", 8), int("queues", 64), int("queueLengthLimit", 50)]),
    ("networking.v1.IngressClassParametersReference", &[text("scope", "Cluster")]),
    (
        "networking.v1.NetworkPolicy",
        &[
            json("spec.policyTypes", r#"["Ingress","Egress"]"#).when(When::Set("spec.egress")),
            json("spec.policyTypes", r#"["Ingress"]"#),
        ],
    ),
    ("networking.v1.NetworkPolicyPort", &[text("protocol", "TCP")]),
    ("rbac.v1.ClusterRoleBinding", &[text("roleRef.apiGroup", RBAC)]),
    ("rbac.v1.RoleBinding", &[text("roleRef.apiGroup", RBAC)]),
    (
        "rbac.v1.Subject",
        &[
            text("apiGroup", RBAC).when(When::Is("kind", "User")),
            text("apiGroup", RBAC).when(When::Is("kind", "Group")),
        ],
    ),
    ("resource.v1.DeviceSubRequest", DEVICE_REQUEST),
    ("resource.v1.ExactDeviceRequest", DEVICE_REQUEST),
    ("scheduling.v1.PriorityClass", &[text("preemptionPolicy", "PreemptLowerPriority")]),
    (
        "storage.v1.CSIDriverSpec",
        &[
            bool("attachRequired", true),
            bool("podInfoOnMount", false),
            bool("storageCapacity", false),
            text("fsGroupPolicy", "ReadWriteOnceWithFSType"),
            json("volumeLifecycleModes", r#"["Persistent"]"#),
            bool("requiresRepublish", false),
            bool("seLinuxMount", false),
        ],
    ),
    ("storage.v1.StorageClass", &[text("reclaimPolicy", "Delete"), text("volumeBindingMode", "Immediate")]),
];
