//! Packs the descriptions of the `k8s-openapi` crate, so that no sentence of upstream's is in our repository and none of
//! its types in our binary.

use std::{env, fs, io::Write as _, path::Path};

use flate2::{Compression, write::DeflateEncoder};
use k8s_openapi::{
    api::{
        admissionregistration::v1 as admissionregistration_v1,
        apps::v1 as apps_v1,
        authentication::v1 as authentication_v1,
        authorization::v1 as authorization_v1,
        autoscaling::v1 as autoscaling_v1,
        autoscaling::v2 as autoscaling_v2,
        batch::v1 as batch_v1,
        certificates::v1 as certificates_v1,
        coordination::v1 as coordination_v1,
        core::v1 as core_v1,
        discovery::v1 as discovery_v1,
        events::v1 as events_v1,
        flowcontrol::v1 as flowcontrol_v1,
        networking::v1 as networking_v1,
        node::v1 as node_v1,
        policy::v1 as policy_v1,
        rbac::v1 as rbac_v1,
        resource::v1 as resource_v1,
        scheduling::v1 as scheduling_v1,
        storage::v1 as storage_v1,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions_v1,
    apimachinery::pkg::apis::meta::v1 as meta_v1,
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration_v1,
};
use serde_json::{Map, Value};

macro_rules! all {
    ($generator:ident, $($module:ident { $($kind:ident),+ $(,)? })+) => {
        $($(
            $generator.subschema_for::<$module::$kind>();
        )+)+
    };
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut generator = schemars::SchemaGenerator::default();
    all!(generator,
        admissionregistration_v1 {
            MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding, MutatingWebhookConfiguration,
            ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
        }
        apps_v1 { ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet }
        autoscaling_v1 { HorizontalPodAutoscaler }
        autoscaling_v2 { HorizontalPodAutoscaler }
        batch_v1 { CronJob, Job }
        certificates_v1 { CertificateSigningRequest }
        coordination_v1 { Lease }
        core_v1 {
            ComponentStatus, ConfigMap, Endpoints, Event, LimitRange, Namespace, Node, PersistentVolume,
            PersistentVolumeClaim, Pod, PodTemplate, ReplicationController, ResourceQuota, Secret, Service,
            ServiceAccount,
        }
        discovery_v1 { EndpointSlice }
        events_v1 { Event }
        flowcontrol_v1 { FlowSchema, PriorityLevelConfiguration }
        networking_v1 { IPAddress, Ingress, IngressClass, NetworkPolicy, ServiceCIDR }
        node_v1 { RuntimeClass }
        policy_v1 { PodDisruptionBudget }
        rbac_v1 { ClusterRole, ClusterRoleBinding, Role, RoleBinding }
        resource_v1 { DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice }
        scheduling_v1 { PriorityClass }
        storage_v1 {
            CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass,
        }
        apiextensions_v1 { CustomResourceDefinition }
        apiregistration_v1 { APIService }
        authentication_v1 { SelfSubjectReview, TokenRequest, TokenReview }
        authorization_v1 {
            LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
        }
        autoscaling_v1 { Scale }
        core_v1 { Binding }
        policy_v1 { Eviction }
        meta_v1 { APIGroup, APIGroupList, APIResourceList, APIVersions, DeleteOptions, Patch, Status }
    );
    let mut out = Map::new();
    for (name, schema) in generator.definitions() {
        let mut texts = Map::new();
        let description = |schema: &Value| schema.get("description").filter(|text| text.is_string()).cloned();
        texts.extend(description(schema).map(|text| (String::new(), text)));
        for (field, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            texts.extend(description(schema).map(|text| (field.clone(), text)));
        }
        if !texts.is_empty() {
            out.insert(name.clone(), Value::Object(texts));
        }
    }
    let text = serde_json::to_vec(&Value::Object(out)).expect("it is made of texts");
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&text).expect("a vector takes everything");
    let packed = encoder.finish().expect("a vector takes everything");
    let file = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("descriptions.deflate");
    fs::write(&file, packed).expect("cargo gives a directory that can be written");
}
