//! The built-in kinds by name: `client.core_v1().pods("default")`, as Go's clientset has them.
//!
//! There is one table and no file per kind: each entry is an [`Api`] of a type of `k8s-openapi`.

use crate::{Api, Client};

macro_rules! kind {
    (namespaced $method:ident $kind:ident $($path:ident)::+) => {
        /// The objects of this kind in a namespace; in all of them when it is empty.
        #[must_use]
        pub fn $method(&self, namespace: &str) -> Api<$($path)::+::$kind> {
            Api::namespaced(self.0, namespace)
        }
    };
    (cluster $method:ident $kind:ident $($path:ident)::+) => {
        /// The objects of this kind.
        #[must_use]
        pub fn $method(&self) -> Api<$($path)::+::$kind> {
            Api::all(self.0)
        }
    };
}

/// `module Type path { scope method Kind, … }`: what a path cannot be repeated inside of is passed on as tokens.
macro_rules! clientset {
    ($($module:ident $name:ident $($path:ident)::+ { $($scope:ident $method:ident $kind:ident,)+ })+) => {
        impl Client {
            $(
                /// The kinds of this group and version.
                #[must_use]
                pub fn $module(&self) -> $name<'_> {
                    $name(self)
                }
            )+
        }
        $(
            /// The kinds of a group and version.
            #[derive(Clone, Copy, Debug)]
            pub struct $name<'a>(&'a Client);

            clientset!(@kinds $name [$($path)::+] $($scope $method $kind,)+);
        )+
    };
    (@kinds $name:ident [$($path:ident)::+]) => {};
    (@kinds $name:ident [$($path:ident)::+] $scope:ident $method:ident $kind:ident, $($rest:tt)*) => {
        impl $name<'_> {
            kind!($scope $method $kind $($path)::+);
        }
        clientset!(@kinds $name [$($path)::+] $($rest)*);
    };
}

clientset! {
    admissionregistration_v1 AdmissionregistrationV1 k8s_openapi::api::admissionregistration::v1 {
        cluster mutating_admission_policies MutatingAdmissionPolicy,
        cluster mutating_admission_policy_bindings MutatingAdmissionPolicyBinding,
        cluster mutating_webhook_configurations MutatingWebhookConfiguration,
        cluster validating_admission_policies ValidatingAdmissionPolicy,
        cluster validating_admission_policy_bindings ValidatingAdmissionPolicyBinding,
        cluster validating_webhook_configurations ValidatingWebhookConfiguration,
    }
    apiextensions_v1 ApiextensionsV1 k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 {
        cluster custom_resource_definitions CustomResourceDefinition,
    }
    apiregistration_v1 ApiregistrationV1 k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1 {
        cluster api_services APIService,
    }
    apps_v1 AppsV1 k8s_openapi::api::apps::v1 {
        namespaced controller_revisions ControllerRevision, namespaced daemon_sets DaemonSet,
        namespaced deployments Deployment, namespaced replica_sets ReplicaSet, namespaced stateful_sets StatefulSet,
    }
    authentication_v1 AuthenticationV1 k8s_openapi::api::authentication::v1 {
        cluster self_subject_reviews SelfSubjectReview, cluster token_reviews TokenReview,
    }
    authorization_v1 AuthorizationV1 k8s_openapi::api::authorization::v1 {
        namespaced local_subject_access_reviews LocalSubjectAccessReview,
        cluster self_subject_access_reviews SelfSubjectAccessReview,
        cluster self_subject_rules_reviews SelfSubjectRulesReview, cluster subject_access_reviews SubjectAccessReview,
    }
    autoscaling_v1 AutoscalingV1 k8s_openapi::api::autoscaling::v1 {
        namespaced horizontal_pod_autoscalers HorizontalPodAutoscaler,
    }
    autoscaling_v2 AutoscalingV2 k8s_openapi::api::autoscaling::v2 {
        namespaced horizontal_pod_autoscalers HorizontalPodAutoscaler,
    }
    batch_v1 BatchV1 k8s_openapi::api::batch::v1 {
        namespaced cron_jobs CronJob, namespaced jobs Job,
    }
    certificates_v1 CertificatesV1 k8s_openapi::api::certificates::v1 {
        cluster certificate_signing_requests CertificateSigningRequest,
    }
    coordination_v1 CoordinationV1 k8s_openapi::api::coordination::v1 {
        namespaced leases Lease,
    }
    core_v1 CoreV1 k8s_openapi::api::core::v1 {
        namespaced bindings Binding, cluster component_statuses ComponentStatus, namespaced config_maps ConfigMap,
        namespaced endpoints Endpoints, namespaced events Event, namespaced limit_ranges LimitRange,
        cluster namespaces Namespace, cluster nodes Node, namespaced persistent_volume_claims PersistentVolumeClaim,
        cluster persistent_volumes PersistentVolume, namespaced pod_templates PodTemplate, namespaced pods Pod,
        namespaced replication_controllers ReplicationController, namespaced resource_quotas ResourceQuota,
        namespaced secrets Secret, namespaced service_accounts ServiceAccount, namespaced services Service,
    }
    discovery_v1 DiscoveryV1 k8s_openapi::api::discovery::v1 {
        namespaced endpoint_slices EndpointSlice,
    }
    events_v1 EventsV1 k8s_openapi::api::events::v1 {
        namespaced events Event,
    }
    flowcontrol_v1 FlowcontrolV1 k8s_openapi::api::flowcontrol::v1 {
        cluster flow_schemas FlowSchema, cluster priority_level_configurations PriorityLevelConfiguration,
    }
    networking_v1 NetworkingV1 k8s_openapi::api::networking::v1 {
        cluster ingress_classes IngressClass, namespaced ingresses Ingress, cluster ip_addresses IPAddress,
        namespaced network_policies NetworkPolicy, cluster service_cidrs ServiceCIDR,
    }
    node_v1 NodeV1 k8s_openapi::api::node::v1 {
        cluster runtime_classes RuntimeClass,
    }
    policy_v1 PolicyV1 k8s_openapi::api::policy::v1 {
        namespaced pod_disruption_budgets PodDisruptionBudget,
    }
    rbac_v1 RbacV1 k8s_openapi::api::rbac::v1 {
        cluster cluster_role_bindings ClusterRoleBinding, cluster cluster_roles ClusterRole,
        namespaced role_bindings RoleBinding, namespaced roles Role,
    }
    resource_v1 ResourceV1 k8s_openapi::api::resource::v1 {
        cluster device_classes DeviceClass, namespaced resource_claim_templates ResourceClaimTemplate,
        namespaced resource_claims ResourceClaim, cluster resource_slices ResourceSlice,
    }
    scheduling_v1 SchedulingV1 k8s_openapi::api::scheduling::v1 {
        cluster priority_classes PriorityClass,
    }
    storage_v1 StorageV1 k8s_openapi::api::storage::v1 {
        cluster csi_drivers CSIDriver, cluster csi_nodes CSINode,
        namespaced csi_storage_capacities CSIStorageCapacity, cluster storage_classes StorageClass,
        cluster volume_attachments VolumeAttachment, cluster volume_attributes_classes VolumeAttributesClass,
    }
}
