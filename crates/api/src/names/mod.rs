//! What things are called: groups, versions, kinds and resources, alone and together.
//!
//! A *kind* is the name of a shape (`Deployment`), a *resource* the name of a place it is served at (`deployments`).
//! Printing and parsing follow upstream to the letter: `apps/v1`, `apps/v1, Kind=Deployment`, `deployments.v1.apps`.

mod parse;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use parse::{ParseError, parse_kind_arg, parse_resource_arg};

use crate::Name;

/// The version that stands for the hub between external versions.
pub const INTERNAL_VERSION: &str = "__internal";

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident),+ }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name {
            $($(#[$field_doc])* #[serde(default)] pub $field: Name),+
        }

        impl $name {
            /// Puts the parts together.
            pub fn new($($field: impl Into<Name>),+) -> Self {
                $name { $($field: $field.into()),+ }
            }

            /// Puts parts together that are known at compile time.
            #[must_use]
            pub const fn from_static($($field: &'static str),+) -> Self {
                $name { $($field: Name::from_static($field)),+ }
            }

            /// Whether every part is empty.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                $(self.$field.is_empty())&&+
            }
        }
    };
}

named! {
    /// A group in one version: `apps/v1`, or `v1` for the core group.
    GroupVersion {
        /// The group, empty for the core group.
        group,
        /// The version.
        version
    }
}

named! {
    /// A kind, whatever its version: `Deployment.apps`.
    GroupKind {
        /// The group, empty for the core group.
        group,
        /// The kind.
        kind
    }
}

named! {
    /// The full name of a shape: `apps/v1, Kind=Deployment`.
    GroupVersionKind {
        /// The group, empty for the core group.
        group,
        /// The version.
        version,
        /// The kind.
        kind
    }
}

named! {
    /// A resource, whatever its version: `deployments.apps`.
    GroupResource {
        /// The group, empty for the core group.
        group,
        /// The resource, in the plural.
        resource
    }
}

named! {
    /// The full name of a place: `apps/v1, Resource=deployments`.
    GroupVersionResource {
        /// The group, empty for the core group.
        group,
        /// The version.
        version,
        /// The resource, in the plural.
        resource
    }
}

impl GroupVersion {
    /// The kind `kind` in this group and version.
    pub fn with_kind(&self, kind: impl Into<Name>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }

    /// The resource `resource` in this group and version.
    pub fn with_resource(&self, resource: impl Into<Name>) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: self.version.clone(), resource: resource.into() }
    }

    /// Where this group and version is served: `/api/v1`, `/apis/apps/v1`.
    #[must_use]
    pub fn path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }
}

impl GroupKind {
    /// This kind in version `version`.
    pub fn with_version(&self, version: impl Into<Name>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: version.into(), kind: self.kind.clone() }
    }
}

impl GroupResource {
    /// This resource in version `version`.
    pub fn with_version(&self, version: impl Into<Name>) -> GroupVersionResource {
        GroupVersionResource { group: self.group.clone(), version: version.into(), resource: self.resource.clone() }
    }
}

impl GroupVersionKind {
    /// The group and version.
    #[must_use]
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// The group and kind.
    #[must_use]
    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// What an object of this kind carries as `apiVersion`.
    #[must_use]
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

impl GroupVersionResource {
    /// The group and version.
    #[must_use]
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// The group and resource.
    #[must_use]
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.version)
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.kind, &self.group)
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.resource, &self.group)
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.resource)
    }
}

/// `name.group`, or `name` alone in the core group.
fn dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    f.write_str(name)?;
    if group.is_empty() { Ok(()) } else { write!(f, ".{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn print_as_upstream() {
        let deployment = GroupVersionKind::from_static("apps", "v1", "Deployment");
        let pod = GroupVersionKind::from_static("", "v1", "Pod");
        let pods = GroupVersionResource::from_static("", "v1", "pods");
        for (printed, expected) in [
            (deployment.to_string(), "apps/v1, Kind=Deployment"),
            (pod.to_string(), "/v1, Kind=Pod"),
            (pods.to_string(), "/v1, Resource=pods"),
            (deployment.group_version().to_string(), "apps/v1"),
            (pod.api_version(), "v1"),
            (deployment.group_kind().to_string(), "Deployment.apps"),
            (pods.group_resource().to_string(), "pods"),
            (deployment.group_version().path(), "/apis/apps/v1"),
            (pod.group_version().path(), "/api/v1"),
        ] {
            assert_eq!(printed, expected);
        }
    }
}
