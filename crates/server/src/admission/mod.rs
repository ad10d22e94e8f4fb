//! What changes or refuses a write after it was authorized and before it is committed: a chain of small plugins.
//!
//! The order of a write: [`Plugin::admit`] of each plugin, the strategy and validation, [`Plugin::validate`] of each.
//! Plugins read other objects through [`Objects`] and never wait. [`Chain`] has those that are on in upstream's order;
//! what may wait, policies and webhooks, goes between its halves ([`Chain::split`]).

mod always_pull_images;
mod certificates;
mod chain;
mod claim_resize;
mod common;
mod default_class;
mod namespace_lifecycle;
mod node_restriction;
mod node_taint;
mod owner_references;
mod pod_node_selector;
mod pod_references;
mod pod_resize;
mod pod_topology_labels;
mod priority;
mod protection;
mod runtime_class;
mod service_account;
mod small;
#[cfg(test)]
mod tests;
mod tolerations;

mod forbidden;
#[cfg(test)]
mod golden;
pub mod limit_ranger;
pub mod pod_security;
pub mod resource_quota;
mod resources;

use capstan_api::{GroupVersionKind, GroupVersionResource, Map, Status, Time};

pub use always_pull_images::AlwaysPullImages;
pub use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
pub use chain::{Chain, ChoiceError, Parts};
pub use claim_resize::PersistentVolumeClaimResize;
pub use default_class::{DEFAULT_INGRESS_CLASS, DEFAULT_STORAGE_CLASS, DefaultClass};
pub use namespace_lifecycle::{NamespaceExists, NamespaceLifecycle};
pub use node_restriction::NodeRestriction;
pub use node_taint::TaintNodesByCondition;
pub use owner_references::OwnerReferencesPermissionEnforcement;
pub use pod_node_selector::PodNodeSelector;
pub use pod_resize::{NodeDeclaredFeatureValidator, PodResizeValidator};
pub use pod_topology_labels::PodTopologyLabels;
pub use priority::Priority;
pub use protection::{POD_GROUP_PROTECTION, Protection, STORAGE_OBJECT_IN_USE_PROTECTION};
pub use runtime_class::RuntimeClass;
pub use service_account::ServiceAccount;
pub use small::{AlwaysAdmit, AlwaysDeny, DenyServiceExternalIPs, LimitPodHardAntiAffinityTopology};
pub use tolerations::{DefaultTolerationSeconds, ExtendedResourceToleration};

use crate::{authorization::UserInfo, objects::Objects};

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed: PUT and PATCH, also those of subresources.
    Update,
    /// It is deleted.
    Delete,
    /// A connection to it is opened.
    Connect,
}

/// A write, as plugins see it.
pub struct Request<'a> {
    /// What is done.
    pub operation: Operation,
    /// The kind of `object`: that of the subresource where there is one (`Scale`, `Binding`).
    pub kind: &'a GroupVersionKind,
    /// The resource that the request names.
    pub resource: &'a GroupVersionResource,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The namespace; empty for objects of the cluster.
    pub namespace: &'a str,
    /// The name; empty for a create whose name is to be generated and for deletecollection.
    pub name: &'a str,
    /// Who asks.
    pub user: &'a UserInfo,
    /// Nothing will be written.
    pub dry_run: bool,
    /// The present time.
    pub now: Time,
    /// The new object; `None` for deletes and connections without options.
    pub object: Option<&'a mut Map>,
    /// The object as it is stored; `None` for creates.
    pub old_object: Option<&'a Map>,
    /// The options of the request as an object (`CreateOptions`, `UpdateOptions`, `DeleteOptions`), where it has some.
    pub options: Option<&'a Map>,
    /// What is stored.
    pub objects: &'a dyn Objects,
    /// What the client is to be warned of; plugins add to it.
    pub warnings: &'a mut Vec<String>,
    /// What is to be noted in the audit log, by key; plugins add to it.
    pub annotations: &'a mut Vec<(&'static str, String)>,
}

/// One rule of admission.
pub trait Plugin: Send + Sync {
    /// Its name, as `--enable-admission-plugins` has it.
    fn name(&self) -> &'static str;

    /// Changes the new object, or refuses the write.
    ///
    /// # Errors
    /// The answer to a write that is refused.
    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let _ = request;
        Ok(())
    }

    /// Refuses the write, or lets it pass as it is.
    ///
    /// # Errors
    /// The answer to a write that is refused.
    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let _ = request;
        Ok(())
    }
}
