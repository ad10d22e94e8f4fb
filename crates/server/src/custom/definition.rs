//! What a CustomResourceDefinition says, as far as it is needed to serve its resource.

use std::{
    cmp::Ordering,
    sync::{Arc, OnceLock},
};

use capstan_api::{
    GroupVersion, GroupVersionKind, Map, Name, Str, Value, json,
    schema::{Schema, structural},
};

use super::{columns::Columns, names::Names, rules::Rules};
use crate::{cache::Object, discovery::version, registry::paths};

/// A definition whose names are accepted.
pub struct Definition {
    /// The identity of the definition's object.
    pub uid: Str,
    /// The group.
    pub group: Name,
    /// The names under which it is served.
    pub names: Names,
    /// Its objects live in namespaces.
    pub namespaced: bool,
    /// All versions, also those that are not served.
    pub versions: Box<[Version]>,
    /// The definition is going: nothing new is created.
    pub terminating: bool,
    /// Versions differ in more than their name, and somebody outside says how.
    pub webhook: bool,
    /// The definition as it is stored. Schemas are compiled from it when they are needed.
    source: Arc<Object>,
}

/// One version of a definition.
pub struct Version {
    /// Its name: `v1`.
    pub name: Name,
    /// It is served.
    pub served: bool,
    /// Objects are stored in this version.
    pub storage: bool,
    /// It has a status that is written on its own.
    pub status: bool,
    /// Where its replicas are.
    pub scale: Option<Scale>,
    /// The fields that objects can be selected by, as dotted paths.
    pub selectable: Box<[Name]>,
    /// What is said to those who use it, if it is deprecated.
    pub deprecation: Option<String>,
    compiled: OnceLock<Compiled>,
}

/// What is made of a version when it is first used.
struct Compiled {
    schema: Schema,
    columns: Columns,
    rules: Option<Rules>,
}

/// Where the numbers of a Scale are, by dotted path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// How many replicas are wanted.
    pub spec_replicas: String,
    /// How many there are.
    pub status_replicas: String,
    /// The selector by which they are found; empty when there is none.
    pub label_selector: String,
}

impl Definition {
    /// Reads a definition. `crd` is what `source` says.
    #[must_use]
    pub fn new(crd: &Map, source: Arc<Object>) -> Self {
        let group = Name::from(paths::text(crd, "spec.group"));
        let names = Names::of(paths::get(crd, "status.acceptedNames"));
        let all = paths::items(crd, "spec.versions");
        let versions = all.iter().map(|version| Version::new(version, all, &group, &names.kind)).collect();
        Definition {
            uid: Str::from(paths::text(crd, "metadata.uid")),
            namespaced: paths::text(crd, "spec.scope") == "Namespaced",
            versions,
            terminating: super::conditions::is_true(crd, "Terminating"),
            webhook: paths::text(crd, "spec.conversion.strategy") == "Webhook",
            group,
            names,
            source,
        }
    }

    /// The object that says all this, for those who need more of it.
    #[must_use]
    pub fn source(&self) -> &Arc<Object> {
        &self.source
    }

    /// The version that objects are stored in.
    #[must_use]
    pub fn storage(&self) -> usize {
        self.versions.iter().position(|version| version.storage).unwrap_or_default()
    }

    /// The kind in the version that objects are stored in.
    #[must_use]
    pub fn storage_gvk(&self) -> GroupVersionKind {
        self.gvk(self.storage())
    }

    /// The kind in a version.
    #[must_use]
    pub fn gvk(&self, at: usize) -> GroupVersionKind {
        let version = self.versions.get(at).map(|version| version.name.clone()).unwrap_or_default();
        GroupVersion { group: self.group.clone(), version }.with_kind(self.names.kind.clone())
    }

    /// The schema of a version.
    #[must_use]
    pub fn schema(&self, at: usize) -> &Schema {
        &self.compiled(at).schema
    }

    fn compiled(&self, at: usize) -> &Compiled {
        self.versions[at].compiled.get_or_init(|| {
            let crd = json::parse(&self.source.json).unwrap_or_default();
            let version = crd.get("spec").and_then(|spec| spec.get("versions")?.as_array()?.get(at));
            let schema = version.and_then(|version| version.get("schema")?.get("openAPIV3Schema"));
            // What is stored was validated; what upstream has stored long ago may say nothing that can be used.
            let schema = schema.and_then(|schema| structural::compile(schema, "").ok()).unwrap_or_else(anything);
            let columns = Columns::new(version.and_then(|version| version.get("additionalPrinterColumns")));
            Compiled { rules: Rules::compile(&schema), schema, columns }
        })
    }
}

/// The schema of those who say nothing.
fn anything() -> Schema {
    let open: Map = [
        (Str::from("type"), Value::from("object")),
        (Str::from("x-kubernetes-preserve-unknown-fields"), Value::Bool(true)),
    ]
    .into_iter()
    .collect();
    structural::compile(&open.into(), "").expect("the open schema is structural")
}

impl Version {
    fn new(version: &Value, all: &[Value], group: &Name, kind: &Name) -> Self {
        let flag = |key: &str| version.get(key).and_then(Value::as_bool) == Some(true);
        let sub = |name: &str| version.get("subresources").and_then(|all| all.get(name)).filter(|one| !one.is_null());
        let scale = sub("scale").map(|scale| {
            let path = |key: &str| {
                let path = scale.get(key).and_then(Value::as_str).unwrap_or_default();
                path.strip_prefix('.').unwrap_or(path).to_owned()
            };
            Scale {
                spec_replicas: path("specReplicasPath"),
                status_replicas: path("statusReplicasPath"),
                label_selector: path("labelSelectorPath"),
            }
        });
        let fields = version.get("selectableFields").and_then(Value::as_array).map_or(&[][..], |fields| fields);
        let selectable = fields.iter().filter_map(|field| field.get("jsonPath")?.as_str());
        Version {
            name: Name::from(name_of(version)),
            served: flag("served"),
            storage: flag("storage"),
            status: sub("status").is_some(),
            scale,
            selectable: selectable.map(|path| Name::from(path.strip_prefix('.').unwrap_or(path))).collect(),
            deprecation: flag("deprecated").then(|| deprecation(version, all, group, kind)),
            compiled: OnceLock::new(),
        }
    }
}

fn name_of(version: &Value) -> &str {
    version.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// The warning of a deprecated version: its own words, or which version to use instead.
fn deprecation(version: &Value, all: &[Value], group: &Name, kind: &Name) -> String {
    if let Some(words) = version.get("deprecationWarning").and_then(Value::as_str) {
        return words.to_owned();
    }
    let name = name_of(version);
    let flag = |version: &&Value, key: &str| version.get(key).and_then(Value::as_bool) == Some(true);
    let better = all.iter().filter(|other| flag(other, "served") && !flag(other, "deprecated")).map(name_of);
    // The order is that of preference: what is preferred comes first.
    let newer = better.filter(|other| version::compare(other, name) == Ordering::Less);
    match newer.min_by(|a, b| version::compare(a, b)) {
        Some(newer) => format!("{group}/{name} {kind} is deprecated; use {group}/{newer} {kind}"),
        None => format!("{group}/{name} {kind} is deprecated"),
    }
}

/// A version of a definition, as it is served.
#[derive(Clone)]
pub struct Served {
    definition: Arc<Definition>,
    at: usize,
}

impl Served {
    /// All versions of a definition that are served.
    pub fn all(definition: &Arc<Definition>) -> impl Iterator<Item = Served> {
        let served = (0..definition.versions.len()).filter(|at| definition.versions[*at].served);
        served.map(|at| Served { definition: Arc::clone(definition), at })
    }

    /// The whole definition.
    #[must_use]
    pub fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    /// This version of it.
    #[must_use]
    pub fn version(&self) -> &Version {
        &self.definition.versions[self.at]
    }

    /// The kind.
    #[must_use]
    pub fn gvk(&self) -> GroupVersionKind {
        self.definition.gvk(self.at)
    }

    /// What objects look like.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        self.definition.schema(self.at)
    }

    /// The columns and how their cells are found.
    pub(super) fn printed(&self) -> &Columns {
        &self.definition.compiled(self.at).columns
    }

    /// The rules of `x-kubernetes-validations`, if there are any.
    pub(super) fn rules(&self) -> Option<&Rules> {
        self.definition.compiled(self.at).rules.as_ref()
    }

    /// The field that a field selector's label stands for.
    ///
    /// # Errors
    /// Upstream's words, if objects cannot be selected by it.
    pub fn resolve_field(&self, label: &str) -> Result<Str, String> {
        let known = match label {
            "metadata.name" => true,
            "metadata.namespace" => self.definition.namespaced,
            other => self.version().selectable.iter().any(|field| *field == *other),
        };
        if known { Ok(label.into()) } else { Err(format!("field label not supported: {label}")) }
    }
}
