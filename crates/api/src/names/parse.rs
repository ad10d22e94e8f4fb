//! Reading names: `apps/v1`, `deployments.apps`, `deployments.v1.apps`, `Deployment.v1.apps`.

use std::{fmt, str::FromStr};

use super::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
use crate::Name;

/// A group and version with more than one slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError(String);

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unexpected GroupVersion string: {}", self.0)
    }
}

impl std::error::Error for ParseError {}

impl FromStr for GroupVersion {
    type Err = ParseError;

    /// Reads `group/version`, or `version` alone for the core group. Nothing, or a lone slash, is the empty one.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() || text == "/" {
            return Ok(GroupVersion::default());
        }
        match text.split_once('/') {
            None => Ok(GroupVersion::new("", text)),
            Some((group, version)) if !version.contains('/') => Ok(GroupVersion::new(group, version)),
            Some(_) => Err(ParseError(text.to_owned())),
        }
    }
}

impl GroupVersionKind {
    /// Reads what an object carries as `apiVersion` and `kind`; an `apiVersion` that cannot be read leaves group and
    /// version empty.
    #[must_use]
    pub fn from_api_version_and_kind(api_version: &str, kind: &str) -> Self {
        api_version.parse::<GroupVersion>().unwrap_or_default().with_kind(kind)
    }
}

impl From<&str> for GroupKind {
    /// Reads `Kind.group`: all after the first dot is the group.
    fn from(text: &str) -> Self {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        GroupKind::new(group, kind)
    }
}

impl From<&str> for GroupResource {
    /// Reads `resource.group`: all after the first dot is the group.
    fn from(text: &str) -> Self {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        GroupResource::new(group, resource)
    }
}

/// Reads what a user typed as a resource, both ways that it can be meant.
///
/// `deployments.v1.apps` may be resource `deployments` of `apps/v1` or resource `deployments` of the group `v1.apps`.
/// The first is only there when there are at least two dots.
#[must_use]
pub fn parse_resource_arg(text: &str) -> (Option<GroupVersionResource>, GroupResource) {
    let full = three_parts(text).map(|(resource, version, group)| GroupVersionResource { group, version, resource });
    (full, text.into())
}

/// Reads what a user typed as a kind, both ways that it can be meant; see [`parse_resource_arg`].
#[must_use]
pub fn parse_kind_arg(text: &str) -> (Option<GroupVersionKind>, GroupKind) {
    let full = three_parts(text).map(|(kind, version, group)| GroupVersionKind { group, version, kind });
    (full, text.into())
}

fn three_parts(text: &str) -> Option<(Name, Name, Name)> {
    let (first, rest) = text.split_once('.')?;
    let (second, third) = rest.split_once('.')?;
    Some((first.into(), second.into(), third.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_versions() {
        for (text, group, version) in [
            ("v1", "", "v1"),
            ("apps/v1", "apps", "v1"),
            ("", "", ""),
            ("/", "", ""),
            ("/v1", "", "v1"),
            ("a/", "a", ""),
        ] {
            assert_eq!(text.parse(), Ok(GroupVersion::new(group, version)), "{text}");
        }
        let error = "a/b/c".parse::<GroupVersion>().unwrap_err();
        assert_eq!(error.to_string(), "unexpected GroupVersion string: a/b/c");
    }

    #[test]
    fn resource_args() {
        let deployments = Some(GroupVersionResource::new("apps", "v1", "deployments"));
        assert_eq!(
            parse_resource_arg("deployments.v1.apps"),
            (deployments, GroupResource::new("v1.apps", "deployments"))
        );
        assert_eq!(parse_resource_arg("deployments.apps"), (None, GroupResource::new("apps", "deployments")));
        assert_eq!(parse_resource_arg("pods"), (None, GroupResource::new("", "pods")));
        let roles = Some(GroupVersionResource::new("rbac.authorization.k8s.io", "v1", "roles"));
        assert_eq!(parse_resource_arg("roles.v1.rbac.authorization.k8s.io").0, roles);
    }

    #[test]
    fn kind_args() {
        let deployment = Some(GroupVersionKind::new("apps", "v1", "Deployment"));
        assert_eq!(parse_kind_arg("Deployment.v1.apps"), (deployment, GroupKind::new("v1.apps", "Deployment")));
        assert_eq!(parse_kind_arg("Pod"), (None, GroupKind::new("", "Pod")));
    }
}
