//! What is served: a row for each resource.

use std::sync::OnceLock;

use super::index::{RESOURCES, find_type, resource_block};
use crate::{
    Name,
    names::{GroupVersion, GroupVersionKind, GroupVersionResource},
};

/// A kind that is served under a resource.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The group and version.
    pub group_version: GroupVersion,
    /// The kind: `Deployment`.
    pub kind: Name,
    /// The kind of its lists, if it can be listed: `DeploymentList`.
    pub list_kind: Option<Name>,
    /// The resource: `deployments`.
    pub resource: Name,
    /// The resource in the singular: `deployment`.
    pub singular: Name,
    /// Its objects live in namespaces.
    pub namespaced: bool,
    /// Shorter names: `deploy`.
    pub short_names: Box<[Name]>,
    /// Groups of resources that it belongs to: `all`.
    pub categories: Box<[Name]>,
    /// What can be done with it.
    pub verbs: Box<[Name]>,
    /// The columns that its lists are printed with.
    pub columns: Box<[Column]>,
    /// Its parts that are served on their own.
    pub subresources: Box<[Subresource]>,
}

/// A column of a printed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its title.
    pub name: &'static str,
    /// The type of its cells: `string`, `integer`, `date` …
    pub ty: &'static str,
    /// `name` for the column of names, else empty.
    pub format: &'static str,
    /// 0 if it is always printed, more if only wide lists have it.
    pub priority: i32,
}

/// A part of a resource that is served on its own.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// Its name: `scale`.
    pub name: Name,
    /// The kind that is read and written there.
    pub kind: GroupVersionKind,
    /// What can be done with it.
    pub verbs: Box<[Name]>,
}

impl Kind {
    /// The kind with its group and version.
    #[must_use]
    pub fn gvk(&self) -> GroupVersionKind {
        self.group_version.with_kind(self.kind.clone())
    }

    /// The resource with its group and version.
    #[must_use]
    pub fn gvr(&self) -> GroupVersionResource {
        self.group_version.with_resource(self.resource.clone())
    }

    /// The subresource of that name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == *name)
    }
}

/// The row at `at`, read when first asked for.
pub(super) fn row(at: usize) -> &'static Kind {
    static ROWS: [OnceLock<Kind>; RESOURCES] = [const { OnceLock::new() }; RESOURCES];
    ROWS[at].get_or_init(|| read(at).expect("codegen has written the table"))
}

/// The words of the first line: group version, resource, kind, scope, singular.
pub(super) fn head(at: usize) -> [&'static str; 5] {
    let mut words = resource_block(at).next().unwrap_or_default().split(' ').skip(1);
    [(); 5].map(|()| words.next().unwrap_or_default())
}

fn read(at: usize) -> Option<Kind> {
    let [group_version, resource, kind, scope, singular] = head(at);
    let group_version = parse(group_version);
    let mut row = Kind {
        list_kind: list_kind(&group_version, kind),
        group_version,
        kind: Name::from_static(kind),
        resource: Name::from_static(resource),
        singular: Name::from_static(singular),
        namespaced: scope == "Namespaced",
        short_names: Box::default(),
        categories: Box::default(),
        verbs: Box::default(),
        columns: Box::default(),
        subresources: Box::default(),
    };
    let (mut columns, mut subresources) = (Vec::new(), Vec::new());
    for line in resource_block(at).skip(1) {
        let (word, rest) = line.strip_prefix(' ')?.split_once(' ')?;
        match word {
            "short" => row.short_names = names(rest),
            "categories" => row.categories = names(rest),
            "verbs" => row.verbs = names(rest),
            "column" => {
                let [ty, format, priority, name] = words(rest)?;
                let format = if format == "-" { "" } else { format };
                columns.push(Column { name, ty, format, priority: priority.parse().ok()? });
            }
            "sub" => {
                let [name, group_version, kind, verbs] = words(rest)?;
                let kind = parse(group_version).with_kind(Name::from_static(kind));
                subresources.push(Subresource { name: Name::from_static(name), kind, verbs: names(verbs) });
            }
            _ => return None,
        }
    }
    Some(Kind { columns: columns.into(), subresources: subresources.into(), ..row })
}

/// Three words and the rest.
fn words(text: &'static str) -> Option<[&'static str; 4]> {
    text.splitn(4, ' ').collect::<Vec<_>>().try_into().ok()
}

fn names(text: &'static str) -> Box<[Name]> {
    text.split(' ').map(Name::from_static).collect()
}

fn parse(text: &'static str) -> GroupVersion {
    let (group, version) = text.split_once('/').unwrap_or(("", text));
    GroupVersion::from_static(group, version)
}

fn list_kind(group_version: &GroupVersion, kind: &str) -> Option<Name> {
    let package = super::package(&group_version.group, &group_version.version)?;
    let ty = find_type(&format!("{package}.{kind}List"))?;
    super::index::type_name(ty).rsplit('.').next().map(Name::from_static)
}
