//! The types that kube knows as resources are ours: those of the `k8s-openapi` crate, and those of its users.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};

use super::{Metadata, OwnerReference, Resource, Scope};
use crate::{GroupVersionKind, GroupVersionResource, Name, Time};

/// A scope of that crate in our words. Subresources have neither, so they are no resources of their own.
pub trait KnownScope {
    /// The scope.
    const SCOPE: Scope;
}

impl KnownScope for ClusterResourceScope {
    const SCOPE: Scope = Scope::Cluster;
}

impl KnownScope for NamespaceResourceScope {
    const SCOPE: Scope = Scope::Namespaced;
}

impl<K> Resource for K
where
    K: kube_core::Resource<DynamicType = (), Scope: KnownScope>,
{
    const SCOPE: Scope = <K as kube_core::Resource>::Scope::SCOPE;
    type Meta = meta::ObjectMeta;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind { group: name(K::group(&())), version: name(K::version(&())), kind: name(K::kind(&())) }
    }

    fn gvr() -> GroupVersionResource {
        GroupVersionResource {
            group: name(K::group(&())),
            version: name(K::version(&())),
            resource: name(K::plural(&())),
        }
    }

    fn meta(&self) -> &meta::ObjectMeta {
        kube_core::Resource::meta(self)
    }

    fn meta_mut(&mut self) -> &mut meta::ObjectMeta {
        kube_core::Resource::meta_mut(self)
    }
}

fn name(name: Cow<'static, str>) -> Name {
    match name {
        Cow::Borrowed(name) => Name::from_static(name),
        Cow::Owned(name) => name.into(),
    }
}

static NO_STRINGS: BTreeMap<String, String> = BTreeMap::new();

impl Metadata for meta::ObjectMeta {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn set_name(&mut self, name: String) {
        self.name = unless_empty(name);
    }

    fn generate_name(&self) -> &str {
        self.generate_name.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    fn set_namespace(&mut self, namespace: String) {
        self.namespace = unless_empty(namespace);
    }

    fn uid(&self) -> &str {
        self.uid.as_deref().unwrap_or_default()
    }

    fn resource_version(&self) -> &str {
        self.resource_version.as_deref().unwrap_or_default()
    }

    fn set_resource_version(&mut self, version: String) {
        self.resource_version = unless_empty(version);
    }

    fn generation(&self) -> i64 {
        self.generation.unwrap_or_default()
    }

    fn creation_timestamp(&self) -> Option<Time> {
        self.creation_timestamp.as_ref().map(|time| time.0.into())
    }

    fn deletion_timestamp(&self) -> Option<Time> {
        self.deletion_timestamp.as_ref().map(|time| time.0.into())
    }

    fn labels(&self) -> &BTreeMap<String, String> {
        self.labels.as_ref().unwrap_or(&NO_STRINGS)
    }

    fn labels_mut(&mut self) -> &mut BTreeMap<String, String> {
        self.labels.get_or_insert_default()
    }

    fn annotations(&self) -> &BTreeMap<String, String> {
        self.annotations.as_ref().unwrap_or(&NO_STRINGS)
    }

    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String> {
        self.annotations.get_or_insert_default()
    }

    fn finalizers(&self) -> &[String] {
        self.finalizers.as_deref().unwrap_or_default()
    }

    fn finalizers_mut(&mut self) -> &mut Vec<String> {
        self.finalizers.get_or_insert_default()
    }

    fn owner_references(&self) -> Cow<'_, [OwnerReference]> {
        self.owner_references.iter().flatten().cloned().map(OwnerReference::from).collect()
    }

    fn set_owner_references(&mut self, references: Vec<OwnerReference>) {
        self.owner_references = Some(references.into_iter().map(Into::into).collect());
    }
}

fn unless_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<meta::OwnerReference> for OwnerReference {
    fn from(from: meta::OwnerReference) -> Self {
        OwnerReference {
            api_version: from.api_version,
            kind: from.kind,
            name: from.name,
            uid: from.uid,
            controller: from.controller,
            block_owner_deletion: from.block_owner_deletion,
        }
    }
}

impl From<OwnerReference> for meta::OwnerReference {
    fn from(from: OwnerReference) -> Self {
        meta::OwnerReference {
            api_version: from.api_version,
            kind: from.kind,
            name: from.name,
            uid: from.uid,
            controller: from.controller,
            block_owner_deletion: from.block_owner_deletion,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::{Node, Pod},
    };

    use super::*;

    #[test]
    fn built_in_types_are_resources() {
        for (path, expected) in [
            (Pod::path("default", "web"), "/api/v1/namespaces/default/pods/web"),
            (Pod::path("", ""), "/api/v1/pods"),
            (Deployment::path("shop", ""), "/apis/apps/v1/namespaces/shop/deployments"),
            (Node::path("ignored", "a/b?c"), "/api/v1/nodes/a%2Fb%3Fc"),
        ] {
            assert_eq!(path, expected);
        }
        assert_eq!(Deployment::gvk().to_string(), "apps/v1, Kind=Deployment");
    }

    /// As kube's derive macro implements it.
    struct At(meta::ObjectMeta);

    impl kube_core::Resource for At {
        type DynamicType = ();
        type Scope = NamespaceResourceScope;

        fn kind((): &()) -> Cow<'_, str> {
            "At".into()
        }

        fn group((): &()) -> Cow<'_, str> {
            "cnat.programming-kubernetes.info".into()
        }

        fn version((): &()) -> Cow<'_, str> {
            "v1alpha1".into()
        }

        fn plural((): &()) -> Cow<'_, str> {
            String::from("ats").into()
        }

        fn meta(&self) -> &meta::ObjectMeta {
            &self.0
        }

        fn meta_mut(&mut self) -> &mut meta::ObjectMeta {
            &mut self.0
        }
    }

    #[test]
    fn types_of_kube_are_resources() {
        let mut at = At(meta::ObjectMeta::default());
        Resource::meta_mut(&mut at).set_name("example".into());
        assert_eq!(at.name(), "example");
        assert_eq!(
            At::path("default", "example"),
            "/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/default/ats/example"
        );
        assert_eq!(At::gvk().to_string(), "cnat.programming-kubernetes.info/v1alpha1, Kind=At");
    }

    #[test]
    fn owners() {
        let mut owner = ReplicaSet::default();
        owner.meta_mut().set_name("web-1".into());
        owner.metadata.uid = Some("u1".into());
        let mut pod = Pod::default();
        assert!(pod.controller().is_none() && !pod.is_controlled_by(&owner));
        pod.meta_mut().set_owner_references(vec![OwnerReference::to(&owner)]);
        assert!(!pod.is_controlled_by(&owner));
        pod.meta_mut().set_owner_references(vec![OwnerReference::to(&owner), OwnerReference::controller(&owner)]);
        assert!(pod.is_controlled_by(&owner));
        let reference = pod.controller().unwrap();
        assert_eq!((reference.api_version.as_str(), reference.kind.as_str()), ("apps/v1", "ReplicaSet"));
        assert_eq!((reference.name.as_str(), reference.block_owner_deletion), ("web-1", Some(true)));
        owner.metadata.uid = Some("u2".into());
        assert!(!pod.is_controlled_by(&owner));
    }

    #[test]
    fn empty_and_absent_are_the_same() {
        let mut pod = Pod::default();
        assert!(pod.labels().is_empty() && pod.name().is_empty());
        pod.labels_mut().insert("patch".into(), "v1".into());
        pod.meta_mut().set_name(String::new());
        assert_eq!(serde_json::to_string(&pod.metadata).unwrap(), r#"{"labels":{"patch":"v1"}}"#);
    }
}
