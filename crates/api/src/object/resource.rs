//! What a Rust type tells about itself to be an object of the API.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _};

use super::{ObjectMeta, OwnerReference, controller_of};
use crate::{GroupVersionKind, GroupVersionResource, Time};

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Each in a namespace.
    Namespaced,
    /// In the cluster itself.
    Cluster,
}

impl Scope {
    /// As custom resource definitions name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Scope::Namespaced => "Namespaced",
            Scope::Cluster => "Cluster",
        }
    }
}

/// A Rust type that is a kind of the API: what it is called, where it is served, and where its metadata is.
///
/// ```
/// use capstan_api::{GroupVersionKind, GroupVersionResource, ObjectMeta, Resource, Scope};
///
/// struct At {
///     metadata: ObjectMeta,
/// }
///
/// impl Resource for At {
///     const SCOPE: Scope = Scope::Namespaced;
///     type Meta = ObjectMeta;
///
///     fn gvk() -> GroupVersionKind {
///         GroupVersionKind::from_static("cnat.programming-kubernetes.info", "v1alpha1", "At")
///     }
///
///     fn gvr() -> GroupVersionResource {
///         GroupVersionResource::from_static("cnat.programming-kubernetes.info", "v1alpha1", "ats")
///     }
///
///     fn meta(&self) -> &ObjectMeta {
///         &self.metadata
///     }
///
///     fn meta_mut(&mut self) -> &mut ObjectMeta {
///         &mut self.metadata
///     }
/// }
///
/// let mut at = At { metadata: ObjectMeta::namespaced("default", "example-at") };
/// at.labels_mut().insert("run".into(), "soon".into());
/// assert_eq!(at.name(), "example-at");
/// assert_eq!(At::path("default", "example-at"), "/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/default/ats/example-at");
/// ```
///
/// With the feature `k8s-openapi` all types are resources that kube knows as such: those of the crate `k8s-openapi`,
/// and those that derive `kube::CustomResource`.
pub trait Resource {
    /// Whether objects live in namespaces.
    const SCOPE: Scope;

    /// The type of the metadata.
    type Meta: Metadata;

    /// The full name of the kind.
    #[must_use]
    fn gvk() -> GroupVersionKind;

    /// The full name of the resource.
    #[must_use]
    fn gvr() -> GroupVersionResource;

    /// The metadata.
    fn meta(&self) -> &Self::Meta;

    /// The metadata, to be changed.
    fn meta_mut(&mut self) -> &mut Self::Meta;

    /// Where an object is served; see [`path`].
    #[must_use]
    fn path(namespace: &str, name: &str) -> String {
        path(&Self::gvr(), Self::SCOPE, namespace, name)
    }

    /// The name.
    fn name(&self) -> &str {
        self.meta().name()
    }

    /// The namespace; empty for objects of the cluster.
    fn namespace(&self) -> &str {
        self.meta().namespace()
    }

    /// The labels.
    fn labels(&self) -> &BTreeMap<String, String> {
        self.meta().labels()
    }

    /// The labels, to be changed.
    fn labels_mut(&mut self) -> &mut BTreeMap<String, String> {
        self.meta_mut().labels_mut()
    }

    /// The annotations.
    fn annotations(&self) -> &BTreeMap<String, String> {
        self.meta().annotations()
    }

    /// The annotations, to be changed.
    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String> {
        self.meta_mut().annotations_mut()
    }

    /// The reference to the owner that controls this object, if one does.
    fn controller(&self) -> Option<OwnerReference> {
        controller_of(&self.meta().owner_references()).cloned()
    }

    /// Whether `owner` controls this object.
    fn is_controlled_by<O: Resource>(&self, owner: &O) -> bool {
        controller_of(&self.meta().owner_references()).is_some_and(|reference| reference.uid == owner.meta().uid())
    }
}

/// Where objects are served: `/api/v1/namespaces/default/pods/web`.
///
/// Without a name it is the place of all of them, without a namespace the place of those of all namespaces. What does
/// not belong into a path is escaped.
#[must_use]
pub fn path(resource: &GroupVersionResource, scope: Scope, namespace: &str, name: &str) -> String {
    let mut path = resource.group_version().path();
    if scope == Scope::Namespaced && !namespace.is_empty() {
        path.push_str("/namespaces/");
        push_segment(&mut path, namespace);
    }
    path.push('/');
    path.push_str(&resource.resource);
    if !name.is_empty() {
        path.push('/');
        push_segment(&mut path, name);
    }
    path
}

fn push_segment(path: &mut String, segment: &str) {
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b':' | b'@' => path.push(byte.into()),
            _ => write!(path, "%{byte:02X}").expect("memory takes all"),
        }
    }
}

/// Metadata, whichever type holds it.
pub trait Metadata {
    /// The name.
    fn name(&self) -> &str;
    /// Sets the name.
    fn set_name(&mut self, name: String);
    /// How the name shall begin, if the server is to make one up.
    fn generate_name(&self) -> &str;
    /// The namespace; empty for objects of the cluster.
    fn namespace(&self) -> &str;
    /// Sets the namespace.
    fn set_namespace(&mut self, namespace: String);
    /// Tells this object from all others that ever had its name.
    fn uid(&self) -> &str;
    /// The version of the object.
    fn resource_version(&self) -> &str;
    /// Sets the version of the object.
    fn set_resource_version(&mut self, version: String);
    /// Counts the changes of what is wanted.
    fn generation(&self) -> i64;
    /// When the object was made.
    fn creation_timestamp(&self) -> Option<Time>;
    /// By when the object is to be gone, if its deletion has been asked for.
    fn deletion_timestamp(&self) -> Option<Time>;
    /// The labels.
    fn labels(&self) -> &BTreeMap<String, String>;
    /// The labels, to be changed.
    fn labels_mut(&mut self) -> &mut BTreeMap<String, String>;
    /// The annotations.
    fn annotations(&self) -> &BTreeMap<String, String>;
    /// The annotations, to be changed.
    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String>;
    /// The finalizers.
    fn finalizers(&self) -> &[String];
    /// The finalizers, to be changed.
    fn finalizers_mut(&mut self) -> &mut Vec<String>;
    /// The owners.
    fn owner_references(&self) -> Cow<'_, [OwnerReference]>;
    /// Sets the owners.
    fn set_owner_references(&mut self, references: Vec<OwnerReference>);
}

impl Metadata for ObjectMeta {
    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn generate_name(&self) -> &str {
        &self.generate_name
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn set_namespace(&mut self, namespace: String) {
        self.namespace = namespace;
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }

    fn set_resource_version(&mut self, version: String) {
        self.resource_version = version;
    }

    fn generation(&self) -> i64 {
        self.generation
    }

    fn creation_timestamp(&self) -> Option<Time> {
        self.creation_timestamp
    }

    fn deletion_timestamp(&self) -> Option<Time> {
        self.deletion_timestamp
    }

    fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    fn labels_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.labels
    }

    fn annotations(&self) -> &BTreeMap<String, String> {
        &self.annotations
    }

    fn annotations_mut(&mut self) -> &mut BTreeMap<String, String> {
        &mut self.annotations
    }

    fn finalizers(&self) -> &[String] {
        &self.finalizers
    }

    fn finalizers_mut(&mut self) -> &mut Vec<String> {
        &mut self.finalizers
    }

    fn owner_references(&self) -> Cow<'_, [OwnerReference]> {
        Cow::Borrowed(&self.owner_references)
    }

    fn set_owner_references(&mut self, references: Vec<OwnerReference>) {
        self.owner_references = references;
    }
}
