//! The control loops of Kubernetes, one module each, reaching state only through the API.
//!
//! Each loop is level-driven: an event says that something changed, never what to do. A module has one public function,
//! `run`, which works on what all loops share (a [`ControllerContext`]) until it is told to stop; [`CONTROLLERS`] is
//! the table of all of them, by upstream's names.

mod admission_policy_status;
mod attach_detach;
mod bootstrap;
mod certificates;
mod cluster_role_aggregation;
mod context;
mod controller_ref;
mod cronjob;
mod daemonset;
mod deployment;
mod device_taint_eviction;
mod discovery;
mod disruption;
mod drive;
mod endpoints;
mod endpointslice;
mod endpointslice_mirroring;
mod ephemeral_volume;
mod fnv;
mod garbage_collector;
mod hash;
mod history;
mod job;
mod legacy_token_cleaner;
mod metadata;
mod namespace;
mod node_lifecycle;
mod node_ttl;
mod overlay;
mod percent;
mod persistentvolume;
mod pod;
mod pod_claims;
mod pod_gc;
mod pod_status;
mod podautoscaler;
mod pods;
mod queues;
mod recorder;
mod replicaset;
mod resource_claim;
mod resource_quota;
mod root_ca;
mod run;
mod service_cidr;
mod service_pods;
mod serviceaccount;
mod serviceaccount_token;
mod shared;
mod statefulset;
mod taint_eviction;
mod ttl_after_finished;
mod volume_expander;
mod volume_protection;
mod workload;
mod written;

pub use certificates::{CertificateSigner, SigningRequest};
pub use context::{ControllerContext, ControllerOptions, Descriptor, TokenSigner};
pub use metadata::MetadataInformers;
pub use persistentvolume::{LOCAL_PATH_PROVISIONER, LocalPath, RemoveDirectory};
pub use queues::{Log, Queues};
pub use run::{UnknownController, run, select};

/// All loops that there are, by upstream's names.
#[rustfmt::skip]
pub const CONTROLLERS: &[Descriptor] = &[
    Descriptor { name: "bootstrap-signer-controller", on_by_default: false, run: bootstrap::run_signer },
    Descriptor { name: "certificatesigningrequest-approving-controller", on_by_default: true, run: certificates::approving::run },
    Descriptor { name: "certificatesigningrequest-cleaner-controller", on_by_default: true, run: certificates::cleaner::run },
    Descriptor { name: "certificatesigningrequest-signing-controller", on_by_default: true, run: certificates::signing::run },
    Descriptor { name: "clusterrole-aggregation-controller", on_by_default: true, run: cluster_role_aggregation::run },
    Descriptor { name: "cronjob-controller", on_by_default: true, run: cronjob::run },
    Descriptor { name: "daemonset-controller", on_by_default: true, run: daemonset::run },
    Descriptor { name: "deployment-controller", on_by_default: true, run: deployment::run },
    Descriptor { name: "device-taint-eviction-controller", on_by_default: true, run: device_taint_eviction::run },
    Descriptor { name: "disruption-controller", on_by_default: true, run: disruption::run },
    Descriptor { name: "endpoints-controller", on_by_default: true, run: endpoints::run },
    Descriptor { name: "endpointslice-controller", on_by_default: true, run: endpointslice::run },
    Descriptor { name: "endpointslice-mirroring-controller", on_by_default: true, run: endpointslice_mirroring::run },
    Descriptor { name: "ephemeral-volume-controller", on_by_default: true, run: ephemeral_volume::run },
    Descriptor { name: "garbage-collector-controller", on_by_default: true, run: garbage_collector::run },
    Descriptor { name: "horizontal-pod-autoscaler-controller", on_by_default: true, run: podautoscaler::run },
    Descriptor { name: "job-controller", on_by_default: true, run: job::run },
    Descriptor { name: "legacy-serviceaccount-token-cleaner-controller", on_by_default: true, run: legacy_token_cleaner::run },
    Descriptor { name: "namespace-controller", on_by_default: true, run: namespace::run },
    Descriptor { name: "node-lifecycle-controller", on_by_default: true, run: node_lifecycle::run },
    Descriptor { name: "persistentvolume-attach-detach-controller", on_by_default: true, run: attach_detach::run },
    Descriptor { name: "persistentvolume-binder-controller", on_by_default: true, run: persistentvolume::run },
    Descriptor { name: "persistentvolume-expander-controller", on_by_default: true, run: volume_expander::run },
    Descriptor { name: "persistentvolume-protection-controller", on_by_default: true, run: volume_protection::volumes },
    Descriptor { name: "persistentvolumeclaim-protection-controller", on_by_default: true, run: volume_protection::claims },
    Descriptor { name: "pod-garbage-collector-controller", on_by_default: true, run: pod_gc::run },
    Descriptor { name: "replicaset-controller", on_by_default: true, run: replicaset::run },
    Descriptor { name: "replicationcontroller-controller", on_by_default: true, run: replicaset::run_rcs },
    Descriptor { name: "resourceclaim-controller", on_by_default: true, run: resource_claim::run },
    Descriptor { name: "resourcequota-controller", on_by_default: true, run: resource_quota::run },
    Descriptor { name: "root-ca-certificate-publisher-controller", on_by_default: true, run: root_ca::run },
    Descriptor { name: "service-cidr-controller", on_by_default: true, run: service_cidr::run },
    Descriptor { name: "serviceaccount-controller", on_by_default: true, run: serviceaccount::run },
    Descriptor { name: "serviceaccount-token-controller", on_by_default: true, run: serviceaccount_token::run },
    Descriptor { name: "statefulset-controller", on_by_default: true, run: statefulset::run },
    Descriptor { name: "taint-eviction-controller", on_by_default: true, run: taint_eviction::run },
    Descriptor { name: "token-cleaner-controller", on_by_default: false, run: bootstrap::run_cleaner },
    Descriptor { name: "ttl-after-finished-controller", on_by_default: true, run: ttl_after_finished::run },
    Descriptor { name: "ttl-controller", on_by_default: true, run: node_ttl::run },
    Descriptor { name: "validatingadmissionpolicy-status-controller", on_by_default: true, run: admission_policy_status::run },
    Descriptor { name: "volumeattributesclass-protection-controller", on_by_default: true, run: volume_protection::attributes_classes },
];
