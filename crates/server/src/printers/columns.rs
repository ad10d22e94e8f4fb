//! Which cells the kinds have.

use super::{
    access, autoscaling,
    cell::Cell::{
        self, Age, Count, CreatedAt, Each, Filled, Flag, Int, IntIf, Labels, List, Many, Name, Of, Pair, Selector, Set,
        Text, With,
    },
    event, network, node, pod, storage, workload,
};

/// The names and images of the containers of a pod template.
const CONTAINERS: &str = "spec.template.spec.containers";

/// A group, a resource of it, and the cells.
type Entry = (&'static str, &'static str, &'static [Cell]);

/// What kinds without an entry show.
const DEFAULT: &[Cell] = &[Name, CreatedAt];

/// The cells of a resource.
pub(super) fn of(group: &str, resource: &str) -> &'static [Cell] {
    let found = TABLE.iter().find(|(in_group, name, _)| (*in_group, *name) == (group, resource));
    found.map_or(DEFAULT, |(_, _, cells)| cells)
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const STORAGE: &str = "storage.k8s.io";
const RESOURCE: &str = "resource.k8s.io";
const FLOWCONTROL: &str = "flowcontrol.apiserver.k8s.io";

const REPLICATED: [Cell; 7] = [
    Name,
    Int("spec.replicas"),
    Int("status.replicas"),
    Int("status.readyReplicas"),
    Age,
    Each(CONTAINERS, "name"),
    Each(CONTAINERS, "image"),
];
const BINDING: &[Cell] = &[Name, Pair("roleRef.kind", "roleRef.name"), Age, Many(access::subjects)];
const POLICY_BINDING: &[Cell] = &[Name, Text("spec.policyName"), With(access::param_ref), Age];
const CRON_CONTAINERS: &str = "spec.jobTemplate.spec.template.spec.containers";

const TABLE: &[Entry] = &[
    ("", "componentstatuses", &[Name, Many(node::component_status)]),
    ("", "configmaps", &[Name, Count(&["data", "binaryData"]), Age]),
    ("", "endpoints", &[Name, With(network::endpoints), Age]),
    ("", "events", &[Many(event::cells)]),
    ("events.k8s.io", "events", &[Many(event::cells)]),
    ("", "namespaces", &[Name, Text("status.phase"), Age]),
    (
        "",
        "nodes",
        &[
            Name,
            With(node::status),
            With(node::roles),
            Age,
            Text("status.nodeInfo.kubeletVersion"),
            With(node::internal_ip),
            With(node::external_ip),
            Filled("status.nodeInfo.osImage", "<unknown>"),
            With(node::kernel),
            Filled("status.nodeInfo.containerRuntimeVersion", "<unknown>"),
        ],
    ),
    ("", "persistentvolumeclaims", &[Name, Many(storage::claim), Age, Set("spec.volumeMode", "<unset>")]),
    (
        "",
        "persistentvolumes",
        &[Name, Many(storage::volume), Text("status.reason"), Age, Set("spec.volumeMode", "<unset>")],
    ),
    ("", "pods", &[Many(pod::cells)]),
    (
        "",
        "podtemplates",
        &[
            Name,
            Each("template.spec.containers", "name"),
            Each("template.spec.containers", "image"),
            Labels("template.metadata.labels"),
        ],
    ),
    ("", "replicationcontrollers", &with_end(Labels("spec.selector"))),
    ("apps", "replicasets", &with_end(Selector("spec.selector"))),
    ("", "resourcequotas", &[Name, Many(node::quota), Age]),
    ("", "secrets", &[Name, Text("type"), Count(&["data"]), Age]),
    ("", "serviceaccounts", &[Name, Age]),
    (
        "",
        "services",
        &[
            Name,
            Text("spec.type"),
            With(network::cluster_ip),
            With(network::external_ip),
            With(network::service_ports),
            Age,
            Labels("spec.selector"),
        ],
    ),
    (ADMISSION, "mutatingadmissionpolicies", &[Name, Count(&["spec.mutations"]), With(access::param_kind), Age]),
    (ADMISSION, "mutatingadmissionpolicybindings", POLICY_BINDING),
    (ADMISSION, "mutatingwebhookconfigurations", &[Name, Count(&["webhooks"]), Age]),
    (ADMISSION, "validatingadmissionpolicies", &[Name, Count(&["spec.validations"]), With(access::param_kind), Age]),
    (ADMISSION, "validatingadmissionpolicybindings", POLICY_BINDING),
    (ADMISSION, "validatingwebhookconfigurations", &[Name, Count(&["webhooks"]), Age]),
    ("apiregistration.k8s.io", "apiservices", &[Name, Many(access::api_service), Age]),
    ("apps", "controllerrevisions", &[Name, With(workload::controller), Int("revision"), Age]),
    (
        "apps",
        "daemonsets",
        &[
            Name,
            Int("status.desiredNumberScheduled"),
            Int("status.currentNumberScheduled"),
            Int("status.numberReady"),
            Int("status.updatedNumberScheduled"),
            Int("status.numberAvailable"),
            Labels("spec.template.spec.nodeSelector"),
            Age,
            Each(CONTAINERS, "name"),
            Each(CONTAINERS, "image"),
            Selector("spec.selector"),
        ],
    ),
    (
        "apps",
        "deployments",
        &[
            Name,
            Of("status.readyReplicas", "spec.replicas"),
            Int("status.updatedReplicas"),
            Int("status.availableReplicas"),
            Age,
            Each(CONTAINERS, "name"),
            Each(CONTAINERS, "image"),
            With(workload::selector),
        ],
    ),
    (
        "apps",
        "statefulsets",
        &[Name, Of("status.readyReplicas", "spec.replicas"), Age, Each(CONTAINERS, "name"), Each(CONTAINERS, "image")],
    ),
    ("autoscaling", "horizontalpodautoscalers", &[Name, Many(autoscaling::cells), Age]),
    (
        "batch",
        "cronjobs",
        &[
            Name,
            Text("spec.schedule"),
            Set("spec.timeZone", "<none>"),
            With(workload::suspended),
            Count(&["status.active"]),
            With(workload::last_schedule),
            Age,
            Each(CRON_CONTAINERS, "name"),
            Each(CRON_CONTAINERS, "image"),
            Selector("spec.jobTemplate.spec.selector"),
        ],
    ),
    (
        "batch",
        "jobs",
        &[
            Name,
            With(workload::job_status),
            With(workload::completions),
            With(workload::job_duration),
            Age,
            Each(CONTAINERS, "name"),
            Each(CONTAINERS, "image"),
            Selector("spec.selector"),
        ],
    ),
    (
        "certificates.k8s.io",
        "certificatesigningrequests",
        &[
            Name,
            Age,
            Filled("spec.signerName", "<none>"),
            Text("spec.username"),
            With(access::requested_duration),
            With(access::csr_status),
        ],
    ),
    ("coordination.k8s.io", "leases", &[Name, Text("spec.holderIdentity"), Age]),
    (
        "discovery.k8s.io",
        "endpointslices",
        &[Name, Text("addressType"), With(network::slice_ports), With(network::slice_endpoints), Age],
    ),
    (
        FLOWCONTROL,
        "flowschemas",
        &[
            Name,
            Text("spec.priorityLevelConfiguration.name"),
            Int("spec.matchingPrecedence"),
            Set("spec.distinguisherMethod.type", "<none>"),
            Age,
            With(access::dangling),
        ],
    ),
    (
        FLOWCONTROL,
        "prioritylevelconfigurations",
        &[
            Name,
            Text("spec.type"),
            IntIf("spec.limited.nominalConcurrencyShares"),
            IntIf("spec.limited.limitResponse.queuing.queues"),
            IntIf("spec.limited.limitResponse.queuing.handSize"),
            IntIf("spec.limited.limitResponse.queuing.queueLengthLimit"),
            Age,
        ],
    ),
    (NETWORKING, "ingressclasses", &[Many(network::ingress_class), Age]),
    (
        NETWORKING,
        "ingresses",
        &[
            Name,
            Set("spec.ingressClassName", "<none>"),
            With(network::hosts),
            With(network::load_balancer),
            With(network::ingress_ports),
            Age,
        ],
    ),
    // Upstream has an age for which there is no column.
    (NETWORKING, "ipaddresses", &[Name, With(network::parent_ref), Age]),
    (NETWORKING, "networkpolicies", &[Name, Selector("spec.podSelector"), Age]),
    (NETWORKING, "servicecidrs", &[Name, List("spec.cidrs"), Age]),
    ("node.k8s.io", "runtimeclasses", &[Name, Text("handler"), Age]),
    ("policy", "poddisruptionbudgets", &[Name, Many(workload::budget), Int("status.disruptionsAllowed"), Age]),
    (RBAC, "clusterrolebindings", BINDING),
    (RBAC, "rolebindings", BINDING),
    (RESOURCE, "deviceclasses", &[Name, Age]),
    (RESOURCE, "resourceclaims", &[Name, With(storage::resource_claim), Age]),
    (RESOURCE, "resourceclaimtemplates", &[Name, Age]),
    (RESOURCE, "resourceslices", &[Name, Text("spec.nodeName"), Text("spec.driver"), Text("spec.pool.name"), Age]),
    (
        "scheduling.k8s.io",
        "priorityclasses",
        &[Name, Int("value"), Flag("globalDefault", false), Age, Text("preemptionPolicy")],
    ),
    (
        STORAGE,
        "csidrivers",
        &[
            Name,
            Flag("spec.attachRequired", true),
            Flag("spec.podInfoOnMount", false),
            Flag("spec.storageCapacity", false),
            With(storage::audiences),
            Flag("spec.requiresRepublish", false),
            With(storage::modes),
            Age,
        ],
    ),
    (STORAGE, "csinodes", &[Name, Count(&["spec.drivers"]), Age]),
    (
        STORAGE,
        "storageclasses",
        &[
            With(storage::class_name),
            Text("provisioner"),
            Set("reclaimPolicy", "Delete"),
            Set("volumeBindingMode", "Immediate"),
            Flag("allowVolumeExpansion", false),
            Age,
        ],
    ),
    (
        STORAGE,
        "volumeattachments",
        &[
            Name,
            Text("spec.attacher"),
            Text("spec.source.persistentVolumeName"),
            Text("spec.nodeName"),
            Flag("status.attached", false),
            Age,
        ],
    ),
    (STORAGE, "volumeattributesclasses", &[Name, Text("driverName"), Age]),
];

/// The cells of what keeps replicas, and the last one.
const fn with_end(last: Cell) -> [Cell; 8] {
    let [name, desired, current, ready, age, names, images] = REPLICATED;
    [name, desired, current, ready, age, names, images, last]
}
