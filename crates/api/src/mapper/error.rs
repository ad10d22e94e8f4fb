//! Why a name could not be mapped, word for word as upstream says it.

use std::{collections::BTreeSet, fmt};

use crate::{GroupKind, GroupVersion, GroupVersionKind, GroupVersionResource, Name, go};

/// A name that means nothing, or too much.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MatchError {
    /// No resource is called so.
    NoResource(GroupVersionResource),
    /// No kind is called so.
    NoKind {
        /// The kind.
        kind: GroupKind,
        /// The versions it was looked for in; none for all.
        versions: Vec<Name>,
    },
    /// A resource may be more than one thing.
    AmbiguousResource {
        /// What was asked for.
        resource: GroupVersionResource,
        /// The resources that it may be.
        resources: Vec<GroupVersionResource>,
        /// The kinds that it may be.
        kinds: Vec<GroupVersionKind>,
    },
    /// A kind may be more than one thing.
    AmbiguousKind {
        /// What was asked for.
        kind: GroupVersionKind,
        /// The kinds that it may be.
        kinds: Vec<GroupVersionKind>,
    },
    /// The name of the resource is empty.
    ResourceRequired(GroupVersionResource),
    /// A resource has no singular.
    NoSingular(String),
    /// A resource has several singulars.
    ManySingulars {
        /// What was asked for.
        resource: String,
        /// The resources that it may be.
        resources: Vec<GroupVersionResource>,
    },
    /// What a user typed is neither a resource nor a kind.
    NoSuchType(Name),
}

impl MatchError {
    pub(super) fn no_kind(kind: &GroupKind, versions: &[&str]) -> Self {
        MatchError::NoKind { kind: kind.clone(), versions: versions.iter().map(|v| (*v).into()).collect() }
    }

    pub(super) fn ambiguous_kinds(resource: &GroupVersionResource, kinds: Vec<GroupVersionKind>) -> Self {
        MatchError::AmbiguousResource { resource: resource.clone(), resources: Vec::new(), kinds }
    }

    pub(super) fn ambiguous_resources(resource: &GroupVersionResource, resources: Vec<GroupVersionResource>) -> Self {
        MatchError::AmbiguousResource { resource: resource.clone(), resources, kinds: Vec::new() }
    }

    /// Whether nothing is called so.
    #[must_use]
    pub fn is_no_match(&self) -> bool {
        matches!(self, MatchError::NoResource(_) | MatchError::NoKind { .. } | MatchError::NoSuchType(_))
    }

    /// Whether several things may be meant.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, MatchError::AmbiguousResource { .. } | MatchError::AmbiguousKind { .. })
    }
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatchError::NoResource(resource) => write!(f, "no matches for {resource}"),
            MatchError::NoKind { kind, versions } => {
                write!(f, "no matches for kind {} in ", go::quote(&kind.kind))?;
                let versions: BTreeSet<String> = versions
                    .iter()
                    .map(|version| GroupVersion::new(kind.group.clone(), version.clone()).to_string())
                    .collect();
                let quoted: Vec<String> = versions.iter().map(|version| go::quote(version)).collect();
                match quoted.as_slice() {
                    [] => write!(f, "group {}", go::quote(&kind.group)),
                    [version] => write!(f, "version {version}"),
                    versions => write!(f, "versions [{}]", versions.join(" ")),
                }
            }
            MatchError::AmbiguousResource { resource, resources, kinds } => {
                write!(f, "{resource} matches multiple ")?;
                match (resources.is_empty(), kinds.is_empty()) {
                    (false, false) => write!(f, "resources {} and kinds {}", list(resources), list(kinds)),
                    (true, false) => write!(f, "kinds {}", list(kinds)),
                    (false, true) => write!(f, "resources {}", list(resources)),
                    (true, true) => f.write_str("resources or kinds"),
                }
            }
            MatchError::AmbiguousKind { kind, kinds } => write!(f, "{kind} matches multiple kinds {}", list(kinds)),
            MatchError::ResourceRequired(resource) => write!(f, "a resource must be present, got: {resource}"),
            MatchError::NoSingular(resource) => write!(f, "no singular of resource {resource} has been defined"),
            MatchError::ManySingulars { resource, resources } => {
                write!(f, "multiple possible singular resources ({}) found for {resource}", list(resources))
            }
            MatchError::NoSuchType(name) => {
                write!(f, "the server doesn't have a resource type {}", go::quote(name))
            }
        }
    }
}

impl std::error::Error for MatchError {}

/// A list as Go prints it: `[a b]`.
fn list<T: ToString>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("[{}]", items.join(" "))
}
