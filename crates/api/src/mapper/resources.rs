//! The mapper made of rows: all names of a resource, and what is meant when little is said.

use super::{ANY, DefaultRESTMapper, MatchError, PriorityRESTMapper, RESTMapper, RESTMapping};
use crate::{
    GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, Name, Resource, Scope, go, object,
};

/// A row: a kind, and how it is served. Discovery, the built-in table and definitions of custom resources all come down
/// to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// The kind.
    pub gvk: GroupVersionKind,
    /// The plural: `deployments`.
    pub plural: Name,
    /// The singular: `deployment`.
    pub singular: Name,
    /// Short names: `deploy`.
    pub short_names: Vec<Name>,
    /// Categories: `all`.
    pub categories: Vec<Name>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
}

impl ResourceInfo {
    /// The row of a Rust type, without short names and categories.
    #[must_use]
    pub fn of<T: Resource>() -> Self {
        let gvk = T::gvk();
        ResourceInfo {
            plural: T::gvr().resource,
            singular: gvk.kind.to_lowercase().into(),
            gvk,
            short_names: Vec::new(),
            categories: Vec::new(),
            scope: T::SCOPE,
        }
    }

    /// Adds short names.
    #[must_use]
    pub fn short_names<const N: usize>(mut self, names: [&str; N]) -> Self {
        self.short_names.extend(names.map(Name::from));
        self
    }

    /// Adds categories.
    #[must_use]
    pub fn categories<const N: usize>(mut self, categories: [&str; N]) -> Self {
        self.categories.extend(categories.map(Name::from));
        self
    }

    /// The resource.
    #[must_use]
    pub fn gvr(&self) -> GroupVersionResource {
        self.gvk.group_version().with_resource(self.plural.clone())
    }

    /// Where an object is served; see [`object::path`].
    #[must_use]
    pub fn path(&self, namespace: &str, name: &str) -> String {
        object::path(&self.gvr(), self.scope, namespace, name)
    }

    fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.gvk.group.clone(), resource: self.plural.clone() }
    }
}

/// Maps what its rows say.
///
/// The order of the rows is the order of preference, of groups and of the versions of a group; the core group always
/// comes first.
///
/// ```
/// use capstan_api::{GroupVersionKind, Scope, mapper::{RESTMapper, ResourceInfo, ResourceMapper}};
///
/// let row = |version| ResourceInfo {
///     gvk: GroupVersionKind::new("shop.example.com", version, "Order"),
///     plural: "orders".into(),
///     singular: "order".into(),
///     short_names: vec!["ord".into()],
///     categories: vec!["shop".into()],
///     scope: Scope::Namespaced,
/// };
/// let mapper = ResourceMapper::new(vec![row("v1"), row("v1beta1")]);
/// assert_eq!(mapper.mapping_for("ord")?.gvk.to_string(), "shop.example.com/v1, Kind=Order");
/// assert_eq!(mapper.mapping_for("orders.v1beta1.shop.example.com")?.gvk.version, "v1beta1");
/// assert_eq!(mapper.mapping_for("od").unwrap_err().to_string(), r#"the server doesn't have a resource type "od""#);
/// # Ok::<(), capstan_api::mapper::MatchError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ResourceMapper {
    rows: Vec<ResourceInfo>,
    mapper: PriorityRESTMapper<DefaultRESTMapper>,
}

impl ResourceMapper {
    /// A mapper of these rows. Rows of subresources (with a slash) are left out.
    #[must_use]
    pub fn new(mut rows: Vec<ResourceInfo>) -> Self {
        rows.retain(|row| !row.plural.contains('/'));
        let mut versions = vec![GroupVersion::from_static("", "v1")];
        let mut groups: Vec<Name> = Vec::new();
        for row in &rows {
            let gv = row.gvk.group_version();
            if !groups.contains(&gv.group) {
                groups.push(gv.group.clone());
            }
            if !versions.contains(&gv) {
                versions.push(gv);
            }
        }
        // A version is preferred by what comes before it; at last a group is, whatever the version.
        let mut patterns = versions.clone();
        patterns.extend(groups.into_iter().map(|group| GroupVersion { group, version: Name::from_static(ANY) }));
        let mut delegate = DefaultRESTMapper::new(versions);
        for row in &rows {
            let gv = row.gvk.group_version();
            let singular =
                if row.singular.is_empty() { row.gvk.kind.to_lowercase().into() } else { row.singular.clone() };
            delegate.add_specific(row.gvk.clone(), row.gvr(), gv.with_resource(singular), row.scope);
        }
        let mapper = PriorityRESTMapper {
            delegate,
            resource_priority: patterns.iter().map(|gv| gv.with_resource(ANY)).collect(),
            kind_priority: patterns.iter().map(|gv| gv.with_kind(ANY)).collect(),
        };
        ResourceMapper { rows, mapper }
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[ResourceInfo] {
        &self.rows
    }

    /// The resources of a category, such as `all`; nothing if there is no such category.
    #[must_use]
    pub fn expand_category(&self, category: &str) -> Option<Vec<GroupResource>> {
        let mut found = Vec::new();
        for row in self.rows.iter().filter(|row| row.categories.iter().any(|name| name == category)) {
            let resource = row.group_resource();
            if !found.contains(&resource) {
                found.push(resource);
            }
        }
        if found.is_empty() { None } else { Some(found) }
    }

    /// The resource that a short name stands for, and warnings about others that it might.
    ///
    /// What is a full name already stays as it is, and so does what is no short name.
    #[must_use]
    pub fn expand_shortcut(&self, resource: &GroupVersionResource) -> (GroupVersionResource, Vec<String>) {
        let name = &resource.resource;
        let of_group = |row: &&ResourceInfo| resource.group.is_empty() || row.gvk.group == resource.group;
        let mut of_groups = self.rows.iter().filter(of_group);
        if of_groups.any(|row| row.plural == *name || row.singular == *name) {
            return (resource.clone(), Vec::new());
        }
        let short = self.rows.iter().filter(|row| row.short_names.contains(name));
        let mut long: Vec<GroupResource> = Vec::new();
        for row in short.clone().filter(of_group) {
            let found = row.group_resource();
            if !long.contains(&found) {
                long.push(found);
            }
        }
        if let Some((first, others)) = long.split_first() {
            let warn = |other: &GroupResource| {
                format!("short name {} could also match lower priority resource {other}", go::quote(name))
            };
            return (first.with_version(""), others.iter().map(warn).collect());
        }
        let mut of_prefix = short.filter(|row| row.gvk.group.starts_with(resource.group.as_str()));
        match of_prefix.next() {
            Some(row) if !resource.group.is_empty() => {
                (row.group_resource().with_version(resource.version.clone()), Vec::new())
            }
            _ => (resource.clone(), Vec::new()),
        }
    }
}

impl RESTMapper for ResourceMapper {
    fn kinds_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionKind>, MatchError> {
        self.mapper.kinds_for(&self.expand_shortcut(resource).0)
    }

    fn resources_for(&self, resource: &GroupVersionResource) -> Result<Vec<GroupVersionResource>, MatchError> {
        self.mapper.resources_for(&self.expand_shortcut(resource).0)
    }

    fn rest_mappings(&self, kind: &GroupKind, versions: &[&str]) -> Result<Vec<RESTMapping>, MatchError> {
        self.mapper.rest_mappings(kind, versions).map_err(|_| MatchError::no_kind(kind, versions))
    }

    fn resource_singularizer(&self, resource: &str) -> Result<Name, MatchError> {
        let found = self.resource_for(&GroupVersionResource::new("", "", resource))?;
        let singular = self.mapper.delegate.singular(&found);
        singular.cloned().ok_or_else(|| MatchError::NoSingular(resource.to_owned()))
    }

    fn kind_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionKind, MatchError> {
        self.mapper.kind_for(&self.expand_shortcut(resource).0)
    }

    fn resource_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionResource, MatchError> {
        self.mapper.resource_for(&self.expand_shortcut(resource).0)
    }

    fn rest_mapping(&self, kind: &GroupKind, versions: &[&str]) -> Result<RESTMapping, MatchError> {
        self.mapper.rest_mapping(kind, versions).map_err(|error| match error.is_no_match() {
            true => MatchError::no_kind(kind, versions),
            false => error,
        })
    }
}
