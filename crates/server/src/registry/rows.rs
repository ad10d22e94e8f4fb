//! The rows: what upstream's strategies say, kind by kind, sorted by group and resource.

use super::{
    fields::{EVENTS_V1, Refusal, SelectableFields},
    names::NameRule,
    strategy::{Endpoint, GarbageCollection, Generation, Strategy},
};

const SPEC: Generation = Generation::When(&["spec"]);
const KEEP_STATUS: Endpoint = Endpoint { subresource: "", keeps: &["status"] };

/// What `/status` leaves alone of the metadata in kinds that are strict about it.
macro_rules! strict_status {
    ($($more:literal),*) => {
        &[
            KEEP_STATUS,
            Endpoint {
                subresource: "status",
                keeps: &[
                    "spec",
                    "metadata.deletionTimestamp",
                    "metadata.selfLink",
                    "metadata.labels",
                    "metadata.annotations",
                    "metadata.finalizers",
                    "metadata.ownerReferences",
                    $($more),*
                ],
            },
        ]
    };
}

const STATUS: &[Endpoint] = &[KEEP_STATUS, Endpoint { subresource: "status", keeps: &["spec"] }];
const STRICT_STATUS: &[Endpoint] = strict_status!();
const ALL_METADATA_STATUS: &[Endpoint] =
    strict_status!("metadata.generateName", "metadata.name", "metadata.uid", "metadata.deletionGracePeriodSeconds");

/// A kind with neither status nor generation.
const fn plain(group: &'static str, resource: &'static str) -> Strategy {
    Strategy {
        group,
        resource,
        allow_create_on_update: false,
        allow_unconditional_update: true,
        resets_status: false,
        endpoints: &[],
        generation: Generation::Never,
        name: NameRule::DnsSubdomain,
        garbage_collection: GarbageCollection::DeleteDependents,
        graceful_deletion: false,
        fields: SelectableFields::COMMON,
    }
}

/// A kind with a status.
const fn status(group: &'static str, resource: &'static str) -> Strategy {
    Strategy { resets_status: true, endpoints: STATUS, ..plain(group, resource) }
}

/// A kind with a status that counts the changes of its spec.
const fn workload(group: &'static str, resource: &'static str) -> Strategy {
    Strategy { generation: SPEC, ..status(group, resource) }
}

/// A kind with a spec that counts its changes, and no status.
const fn counted(group: &'static str, resource: &'static str) -> Strategy {
    Strategy { generation: SPEC, ..plain(group, resource) }
}

/// Admission kinds: their PUT needs a resourceVersion.
const fn admission(resource: &'static str, generation: Generation) -> Strategy {
    Strategy { generation, allow_unconditional_update: false, ..plain("admissionregistration.k8s.io", resource) }
}

const fn rbac(resource: &'static str) -> Strategy {
    Strategy {
        allow_create_on_update: true,
        name: NameRule::PathSegment,
        ..plain("rbac.authorization.k8s.io", resource)
    }
}

/// Custom resources without a status subresource.
pub(super) const CUSTOM: Strategy =
    Strategy { allow_unconditional_update: false, generation: Generation::Content, ..plain("", "") };

/// Custom resources with one.
pub(super) const CUSTOM_WITH_STATUS: Strategy = Strategy {
    resets_status: true,
    // A hook keeps all else that is not status: custom resources may have any fields.
    endpoints: STRICT_STATUS,
    generation: Generation::ContentButStatus,
    ..CUSTOM
};

const WEBHOOKS: Generation = Generation::When(&["webhooks"]);
const STORAGE: &str = "storage.k8s.io";
const NETWORKING: &str = "networking.k8s.io";
const FLOWCONTROL: &str = "flowcontrol.apiserver.k8s.io";

/// All resources whose objects are stored.
pub(super) static ROWS: &[Strategy] = &[
    plain("", "configmaps"),
    Strategy { allow_create_on_update: true, ..plain("", "endpoints") },
    Strategy {
        allow_create_on_update: true,
        garbage_collection: GarbageCollection::Unsupported,
        fields: SelectableFields::new(&[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
            "metadata.namespace",
            "metadata.name",
        ]),
        ..plain("", "events")
    },
    Strategy { allow_create_on_update: true, ..plain("", "limitranges") },
    Strategy {
        name: NameRule::DnsLabel,
        endpoints: &[
            Endpoint { subresource: "", keeps: &["status", "spec.finalizers"] },
            Endpoint { subresource: "status", keeps: &["spec"] },
            Endpoint { subresource: "finalize", keeps: &["status"] },
        ],
        fields: SelectableFields::new(&["status.phase", "metadata.name"]),
        ..status("", "namespaces")
    },
    Strategy {
        // Nodes register themselves with their status.
        resets_status: false,
        fields: SelectableFields::new(&["metadata.name", "spec.unschedulable"]),
        ..status("", "nodes")
    },
    status("", "persistentvolumeclaims"),
    status("", "persistentvolumes"),
    Strategy {
        graceful_deletion: true,
        endpoints: &[
            KEEP_STATUS,
            Endpoint {
                subresource: "status",
                keeps: &["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"],
            },
        ],
        fields: SelectableFields {
            aliases: &[("spec.host", "spec.nodeName")],
            ..SelectableFields::new(&[
                "metadata.name",
                "metadata.namespace",
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.podIPs",
                "status.nominatedNodeName",
            ])
        },
        ..workload("", "pods")
    },
    Strategy { generation: Generation::When(&["template"]), ..plain("", "podtemplates") },
    Strategy {
        garbage_collection: GarbageCollection::OrphanDependents,
        fields: SelectableFields::new(&["metadata.name", "metadata.namespace", "status.replicas"]),
        ..workload("", "replicationcontrollers")
    },
    status("", "resourcequotas"),
    Strategy {
        fields: SelectableFields::new(&["type", "metadata.namespace", "metadata.name"]),
        ..plain("", "secrets")
    },
    plain("", "serviceaccounts"),
    Strategy {
        allow_create_on_update: true,
        name: NameRule::Dns1035Label,
        fields: SelectableFields::new(&["metadata.namespace", "metadata.name", "spec.clusterIP", "spec.type"]),
        ..status("", "services")
    },
    admission("mutatingadmissionpolicies", SPEC),
    admission("mutatingadmissionpolicybindings", SPEC),
    admission("mutatingwebhookconfigurations", WEBHOOKS),
    Strategy { resets_status: true, endpoints: STRICT_STATUS, ..admission("validatingadmissionpolicies", SPEC) },
    admission("validatingadmissionpolicybindings", SPEC),
    admission("validatingwebhookconfigurations", WEBHOOKS),
    Strategy { allow_unconditional_update: false, ..workload("apiextensions.k8s.io", "customresourcedefinitions") },
    Strategy {
        allow_unconditional_update: false,
        endpoints: &[
            KEEP_STATUS,
            Endpoint {
                subresource: "status",
                keeps: &[
                    "spec",
                    "metadata.labels",
                    "metadata.annotations",
                    "metadata.finalizers",
                    "metadata.ownerReferences",
                ],
            },
        ],
        ..status("apiregistration.k8s.io", "apiservices")
    },
    plain("apps", "controllerrevisions"),
    workload("apps", "daemonsets"),
    Strategy {
        generation: Generation::When(&["spec", "metadata.annotations"]),
        endpoints: &[KEEP_STATUS, Endpoint { subresource: "status", keeps: &["spec", "metadata.labels"] }],
        ..workload("apps", "deployments")
    },
    workload("apps", "replicasets"),
    Strategy { name: NameRule::DnsLabel, ..workload("apps", "statefulsets") },
    status("autoscaling", "horizontalpodautoscalers"),
    workload("batch", "cronjobs"),
    Strategy {
        garbage_collection: GarbageCollection::OrphanDependents,
        fields: SelectableFields {
            names: &["metadata.name", "metadata.namespace", "status.successful"],
            aliases: &[],
            refusal: Refusal::Between("field label ", " not supported for Job"),
        },
        ..workload("batch", "jobs")
    },
    Strategy {
        name: NameRule::PathSegment,
        endpoints: &[
            Endpoint { subresource: "", keeps: &["spec", "status"] },
            Endpoint { subresource: "status", keeps: &["spec"] },
            Endpoint { subresource: "approval", keeps: &["spec", "status.certificate"] },
        ],
        fields: SelectableFields::new(&["metadata.name", "spec.signerName"]),
        ..status("certificates.k8s.io", "certificatesigningrequests")
    },
    Strategy {
        allow_create_on_update: true,
        allow_unconditional_update: false,
        ..plain("coordination.k8s.io", "leases")
    },
    Strategy { generation: Generation::ContentOrLabels, ..plain("discovery.k8s.io", "endpointslices") },
    Strategy {
        allow_create_on_update: true,
        garbage_collection: GarbageCollection::Unsupported,
        fields: EVENTS_V1,
        ..plain("events.k8s.io", "events")
    },
    Strategy { endpoints: ALL_METADATA_STATUS, ..workload(FLOWCONTROL, "flowschemas") },
    Strategy { endpoints: ALL_METADATA_STATUS, ..workload(FLOWCONTROL, "prioritylevelconfigurations") },
    counted(NETWORKING, "ingressclasses"),
    workload(NETWORKING, "ingresses"),
    Strategy { name: NameRule::IpAddress, ..plain(NETWORKING, "ipaddresses") },
    counted(NETWORKING, "networkpolicies"),
    Strategy { endpoints: STRICT_STATUS, ..status(NETWORKING, "servicecidrs") },
    Strategy {
        allow_create_on_update: true,
        allow_unconditional_update: false,
        ..plain("node.k8s.io", "runtimeclasses")
    },
    Strategy { allow_unconditional_update: false, ..workload("policy", "poddisruptionbudgets") },
    rbac("clusterrolebindings"),
    rbac("clusterroles"),
    rbac("rolebindings"),
    rbac("roles"),
    counted("resource.k8s.io", "deviceclasses"),
    Strategy { endpoints: STRICT_STATUS, ..status("resource.k8s.io", "resourceclaims") },
    plain("resource.k8s.io", "resourceclaimtemplates"),
    Strategy {
        fields: SelectableFields {
            names: &["metadata.name", "spec.nodeName", "spec.driver"],
            aliases: &[],
            refusal: Refusal::Before("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: "),
        },
        ..counted("resource.k8s.io", "resourceslices")
    },
    Strategy { generation: Generation::Once, ..plain("scheduling.k8s.io", "priorityclasses") },
    Strategy {
        allow_unconditional_update: false,
        generation: Generation::Unset(&["spec"]),
        ..plain(STORAGE, "csidrivers")
    },
    Strategy { allow_unconditional_update: false, ..plain(STORAGE, "csinodes") },
    Strategy { allow_unconditional_update: false, ..plain(STORAGE, "csistoragecapacities") },
    plain(STORAGE, "storageclasses"),
    Strategy { allow_unconditional_update: false, endpoints: STRICT_STATUS, ..status(STORAGE, "volumeattachments") },
    plain(STORAGE, "volumeattributesclasses"),
];
