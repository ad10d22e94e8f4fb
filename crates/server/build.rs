//! Takes the words that describe kinds and their fields out of the `k8s-openapi` crate, so that they are in no file of
//! ours: lines `SCHEMA FIELD`, a tab and a JSON string, sorted. The line without a field is about the schema itself.

use std::{env, fmt::Write as _, fs, path::PathBuf};

use k8s_openapi::{
    api::{
        admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
        authorization::v1 as authorization, autoscaling::v1 as autoscaling, autoscaling::v2 as autoscaling_v2,
        batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
        discovery::v1 as discovery, events::v1 as events, flowcontrol::v1 as flowcontrol, networking::v1 as networking,
        node::v1 as node, policy::v1 as policy, rbac::v1 as rbac, resource::v1 as resource, scheduling::v1 as scheduling,
        storage::v1 as storage,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    apimachinery::pkg::{apis::meta::v1 as meta, version},
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration,
    schemars::{SchemaGenerator, generate::SchemaSettings},
};

/// Has the generator look at kinds, and at all that they are made of.
macro_rules! look {
    ($generator:ident, [$($kind:ty),* $(,)?]) => { $($generator.subschema_for::<$kind>();)* };
}

fn look(generator: &mut SchemaGenerator) {
    look!(generator, [
        admission::MutatingAdmissionPolicy, admission::MutatingAdmissionPolicyBinding,
        admission::MutatingWebhookConfiguration, admission::ValidatingAdmissionPolicy,
        admission::ValidatingAdmissionPolicyBinding, admission::ValidatingWebhookConfiguration,
        apps::ControllerRevision, apps::DaemonSet, apps::Deployment, apps::ReplicaSet, apps::StatefulSet,
        autoscaling::HorizontalPodAutoscaler, autoscaling_v2::HorizontalPodAutoscaler,
        batch::CronJob, batch::Job, certificates::CertificateSigningRequest, coordination::Lease,
        core::ComponentStatus, core::ConfigMap, core::Endpoints, core::Event, core::LimitRange, core::Namespace,
        core::Node, core::PersistentVolume, core::PersistentVolumeClaim, core::Pod, core::PodTemplate,
        core::ReplicationController, core::ResourceQuota, core::Secret, core::Service, core::ServiceAccount,
        discovery::EndpointSlice, events::Event, flowcontrol::FlowSchema, flowcontrol::PriorityLevelConfiguration,
        networking::Ingress, networking::IngressClass, networking::IPAddress, networking::NetworkPolicy,
        networking::ServiceCIDR, node::RuntimeClass, policy::PodDisruptionBudget,
        rbac::ClusterRole, rbac::ClusterRoleBinding, rbac::Role, rbac::RoleBinding,
        resource::DeviceClass, resource::ResourceClaim, resource::ResourceClaimTemplate, resource::ResourceSlice,
        scheduling::PriorityClass, storage::CSIDriver, storage::CSINode, storage::CSIStorageCapacity,
        storage::StorageClass, storage::VolumeAttachment, storage::VolumeAttributesClass,
        apiextensions::CustomResourceDefinition, apiregistration::APIService,
        authentication::SelfSubjectReview, authentication::TokenRequest, authentication::TokenReview,
        authorization::LocalSubjectAccessReview, authorization::SelfSubjectAccessReview,
        authorization::SelfSubjectRulesReview, authorization::SubjectAccessReview,
        autoscaling::Scale, core::Binding, policy::Eviction, meta::APIGroup, meta::APIGroupList, meta::APIResourceList,
        meta::APIVersions, meta::DeleteOptions, meta::Patch, meta::Status, meta::WatchEvent<core::Pod>, version::Info,
    ]);
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = SchemaSettings::default().into_generator();
    look(&mut generator);
    let mut lines = Vec::new();
    for (name, schema) in generator.definitions() {
        lines.extend(schema.get("description").map(|words| format!("{name} \t{words}")));
        let properties = schema.get("properties").and_then(|properties| properties.as_object());
        for (field, schema) in properties.into_iter().flatten() {
            lines.extend(schema.get("description").map(|words| format!("{name} {field}\t{words}")));
        }
    }
    lines.sort_unstable();
    let mut text = String::new();
    for line in &lines {
        writeln!(text, "{line}").expect("a string takes all");
    }
    let directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where to write"));
    fs::write(directory.join("descriptions.txt"), text).expect("the output directory can be written to");
}
