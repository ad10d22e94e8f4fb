//! A resource as it is served: what the road needs to know of a kind, and where its objects are.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use capstan_api::{
    GroupResource, GroupVersionKind, GroupVersionResource, Map, Name, Str, Time, Value,
    builtin::{self, Kind},
    json,
    schema::Schema,
    table::TableColumnDefinition,
};
use capstan_clock::SharedClock;
use capstan_storage::{SharedStore, Ttl};

use super::{layout, strategy::Strategy};
use crate::{
    cache::{CacheError, CacheOptions, CachedResource, FieldPaths, ReadAt, ResourceCache, SelectableFields},
    custom,
    printers::{self, Row},
};

/// A resource under one of its versions.
pub struct Resource {
    /// The group, version and resource.
    pub gvr: GroupVersionResource,
    /// The kind of its objects.
    pub gvk: GroupVersionKind,
    /// The kind of its lists.
    pub list_gvk: GroupVersionKind,
    /// Its objects live in namespaces.
    pub namespaced: bool,
    /// Who says what it is.
    pub definition: Definition,
    /// Where its objects are; nothing for what is answered and not stored, such as reviews.
    pub stored: Option<Arc<Stored>>,
}

/// Who says what a resource is.
pub enum Definition {
    /// It is built in.
    Builtin {
        /// The row of the table of built-in kinds.
        row: &'static Kind,
        /// What its objects look like.
        schema: Schema,
    },
    /// A CustomResourceDefinition.
    Custom(custom::Served),
}

/// The objects of a resource, whatever versions they are served in.
pub struct Stored {
    /// The group and resource.
    pub resource: GroupResource,
    /// The kind in the version that is stored.
    pub gvk: GroupVersionKind,
    /// How the kind differs from others. Of a custom resource that depends on the version, see [`Resource::strategy`].
    pub strategy: &'static Strategy,
    /// How long objects live, if they expire.
    pub ttl: Option<Ttl>,
    /// What the keys begin with, with the slash at the end.
    prefix: String,
    /// The read side.
    pub cache: LazyCache,
}

/// A cache that starts to follow the store when somebody first looks.
///
/// Reads that do not wait see nothing before it is filled, so [`Stored::filled`] comes before them.
pub struct LazyCache {
    started: OnceLock<ResourceCache>,
    start: Box<dyn Fn() -> ResourceCache + Send + Sync>,
}

impl LazyCache {
    fn new(start: impl Fn() -> ResourceCache + Send + Sync + 'static) -> Self {
        LazyCache { started: OnceLock::new(), start: Box::new(start) }
    }

    /// The cache, if anybody has looked.
    #[must_use]
    pub fn started(&self) -> Option<&ResourceCache> {
        self.started.get()
    }
}

impl Deref for LazyCache {
    type Target = ResourceCache;

    /// Starts the cache if need be, on the runtime of the caller.
    fn deref(&self) -> &ResourceCache {
        self.started.get_or_init(&self.start)
    }
}

impl Resource {
    /// A built-in resource.
    #[must_use]
    pub fn builtin(row: &'static Kind, stored: Option<Arc<Stored>>) -> Option<Self> {
        let gvk = row.gvk();
        let list_kind = row.list_kind.clone().unwrap_or_else(|| Name::from(format!("{}List", row.kind)));
        Some(Resource {
            list_gvk: GroupVersionKind { kind: list_kind, ..gvk.clone() },
            definition: Definition::Builtin { row, schema: builtin::schema(&gvk)? },
            gvr: row.gvr(),
            gvk,
            namespaced: row.namespaced,
            stored,
        })
    }

    /// A custom resource in one of its versions.
    #[must_use]
    pub fn custom(served: custom::Served, stored: Arc<Stored>) -> Self {
        let definition = served.definition();
        let gvk = served.gvk();
        Resource {
            list_gvk: GroupVersionKind { kind: Name::from(&*definition.names.list_kind), ..gvk.clone() },
            gvr: gvk.group_version().with_resource(Name::from(&*definition.names.plural)),
            gvk,
            namespaced: definition.namespaced,
            definition: Definition::Custom(served),
            stored: Some(stored),
        }
    }

    /// What a CustomResourceDefinition says of it; nothing for what is built in.
    #[must_use]
    pub fn as_custom(&self) -> Option<&custom::Served> {
        match &self.definition {
            Definition::Builtin { .. } => None,
            Definition::Custom(served) => Some(served),
        }
    }

    /// What its objects look like.
    #[must_use]
    pub fn schema(&self) -> &Schema {
        match &self.definition {
            Definition::Builtin { schema, .. } => schema,
            Definition::Custom(served) => served.schema(),
        }
    }

    /// How writes to it differ from those to others; nothing for what is not stored.
    #[must_use]
    pub fn strategy(&self) -> Option<&'static Strategy> {
        match &self.definition {
            Definition::Builtin { .. } => self.stored.as_ref().map(|stored| stored.strategy),
            Definition::Custom(served) => Some(Strategy::custom(served.version().status)),
        }
    }

    /// Whether objects of this version are other than those that are stored.
    #[must_use]
    pub fn converts(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.gvk != self.gvk)
    }

    /// The kind that is read and written at a subresource, if there is one of this name.
    #[must_use]
    pub fn subresource(&self, name: &str) -> Option<&GroupVersionKind> {
        match &self.definition {
            Definition::Builtin { row, .. } => row.subresource(name).map(|sub| &sub.kind),
            Definition::Custom(served) => match name {
                "status" if served.version().status => Some(&self.gvk),
                "scale" if served.version().scale.is_some() => Some(&custom::SCALE),
                _ => None,
            },
        }
    }

    /// Whether a verb can be asked of the resource, or of one of its subresources.
    #[must_use]
    pub fn has_verb(&self, subresource: &str, verb: &str) -> bool {
        match (&self.definition, subresource) {
            (Definition::Builtin { row, .. }, "") => row.verbs.iter().any(|known| known == verb),
            (Definition::Builtin { row, .. }, name) => {
                row.subresource(name).is_some_and(|sub| sub.verbs.iter().any(|known| known == verb))
            }
            (Definition::Custom(_), "") => custom::VERBS.contains(&verb),
            (Definition::Custom(_), name) => {
                self.subresource(name).is_some() && custom::SUBRESOURCE_VERBS.contains(&verb)
            }
        }
    }

    /// The columns that its lists are printed with.
    #[must_use]
    pub fn columns(&self) -> Vec<TableColumnDefinition> {
        match &self.definition {
            Definition::Builtin { row, .. } => row.columns.iter().map(|column| define(row, column)).collect(),
            Definition::Custom(served) => served.columns(),
        }
    }

    /// The row of an object in a table.
    #[must_use]
    pub fn cells(&self, object: &Map, now: Time) -> Row {
        match &self.definition {
            Definition::Builtin { row, .. } => printers::cells(row, object, now),
            Definition::Custom(served) => Row { cells: served.cells(object, now), conditions: Vec::new() },
        }
    }

    /// The field that a field selector's label stands for.
    ///
    /// # Errors
    /// Upstream's words, if objects cannot be selected by it.
    pub fn resolve_field(&self, label: &str) -> Result<Str, String> {
        match &self.definition {
            Definition::Builtin { .. } => {
                let strategy = Strategy::of(&self.gvr.group_resource());
                let fields = strategy.map_or(super::fields::SelectableFields::COMMON, |strategy| strategy.fields);
                fields.resolve(label).map(Str::from)
            }
            Definition::Custom(served) => served.resolve_field(label),
        }
    }

    /// What is said to everybody who asks for it.
    #[must_use]
    pub fn deprecation(&self) -> Option<&str> {
        match &self.definition {
            Definition::Builtin { .. } => crate::warnings::deprecated(&self.gvk),
            Definition::Custom(served) => served.version().deprecation.as_deref(),
        }
    }
}

fn define(row: &Kind, column: &builtin::Column) -> TableColumnDefinition {
    TableColumnDefinition {
        name: column.name.to_owned(),
        column_type: column.ty.to_owned(),
        format: column.format.to_owned(),
        description: printers::describe(&row.resource, column.name),
        priority: column.priority,
    }
}

impl Stored {
    /// Starts to follow the objects of a built-in resource.
    #[must_use]
    pub fn start(gvk: GroupVersionKind, strategy: &'static Strategy, store: SharedStore, clock: SharedClock) -> Self {
        let resource = GroupResource::new(strategy.group, strategy.resource);
        let row = builtin::kind(&gvk);
        let prefix = layout::list_prefix(&resource, "");
        let cached = CachedResource::new(&prefix, row.is_some_and(|row| row.namespaced));
        let cached = cached.with_fields(Fields::new(strategy));
        let cached = if strategy.resource == "pods" { cached.indexed_by("spec.nodeName") } else { cached };
        let stored = Stored::new(resource, gvk, strategy, cached, store, clock);
        // Built-in resources are followed from the start.
        let _: &ResourceCache = &stored.cache;
        stored
    }

    /// The objects of a custom resource. They are followed when somebody first asks for them.
    #[must_use]
    pub fn custom(definition: &Arc<custom::Definition>, store: SharedStore, clock: SharedClock) -> Self {
        let resource = GroupResource::new(definition.group.clone(), &*definition.names.plural);
        let prefix = layout::custom_prefix(&resource);
        let cached = CachedResource::new(&prefix, definition.namespaced);
        let cached = cached.with_fields(custom::Stored::new(Arc::clone(definition)));
        Stored::new(resource, definition.storage_gvk(), Strategy::custom(true), cached, store, clock)
    }

    fn new(
        resource: GroupResource,
        gvk: GroupVersionKind,
        strategy: &'static Strategy,
        cached: CachedResource,
        store: SharedStore,
        clock: SharedClock,
    ) -> Self {
        let prefix = cached.prefix.clone();
        let cache = LazyCache::new(move || {
            let options = CacheOptions::with_clock(Arc::clone(&clock));
            ResourceCache::start(Arc::clone(&store), cached.clone(), options)
        });
        Stored { resource, gvk, strategy, ttl: None, prefix, cache }
    }

    /// Waits until reads that do not wait can be relied on.
    ///
    /// # Errors
    /// When the store has no answer.
    pub async fn filled(&self) -> Result<(), CacheError> {
        if self.cache.revision().0 == 0 {
            self.cache.get("", "", ReadAt::Any).await?;
        }
        Ok(())
    }

    /// Whether a delete that is done answers with the object, and not with a status.
    #[must_use]
    pub fn returns_deleted(&self) -> bool {
        let (group, resource) = (self.strategy.group, self.strategy.resource);
        RETURNS_DELETED.contains(&resource)
            && (group.is_empty() || group == "storage.k8s.io" || group == "resource.k8s.io")
    }

    /// The key of an object.
    #[must_use]
    pub fn key(&self, namespace: &str, name: &str) -> Bytes {
        let slash = if namespace.is_empty() { "" } else { "/" };
        [&*self.prefix, namespace, slash, name].concat().into()
    }
}

/// Resources whose deletes answer with the object.
const RETURNS_DELETED: &[&str] = &[
    "csidrivers",
    "csinodes",
    "deviceclasses",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "podtemplates",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourcequotas",
    "resourceslices",
    "serviceaccounts",
    "services",
    "storageclasses",
    "volumeattachments",
    "volumeattributesclasses",
];

/// The fields that objects are selected by. Go prints what is not set, so some have a value when they are absent.
struct Fields {
    paths: FieldPaths,
    absent: Vec<(Name, Str)>,
    events: bool,
}

const ABSENT: &[(&str, &str)] = &[
    ("spec.unschedulable", "false"),
    ("spec.hostNetwork", "false"),
    ("status.replicas", "0"),
    ("status.successful", "0"),
];

impl Fields {
    fn new(strategy: &Strategy) -> Self {
        let names = strategy.fields.names.iter().filter(|name| !name.starts_with("metadata."));
        let mut paths: Vec<&'static str> = names.copied().collect();
        let absent = ABSENT.iter().filter(|(name, _)| paths.contains(name));
        let absent = absent.map(|(name, value)| (Name::from_static(name), Str::from(*value))).collect();
        let events = strategy.resource == "events";
        if events {
            paths.retain(|path| *path != "source");
            paths.push("source.component");
        }
        if paths.contains(&"status.successful") {
            paths.push("status.succeeded");
        }
        Fields { paths: FieldPaths::new(paths.into_iter().map(Name::from_static)), absent, events }
    }
}

impl SelectableFields for Fields {
    fn extract(&self, object: &[u8]) -> Vec<(Name, Str)> {
        let mut found = self.paths.extract(object);
        if self.events {
            let of =
                |name: &str| found.iter().find(|(field, _)| field.as_str() == name).map(|(_, value)| value.clone());
            let source =
                of("source.component").filter(|source| !source.is_empty()).or_else(|| of("reportingComponent"));
            found.extend(source.map(|source| (Name::from_static("source"), source)));
        }
        for (field, _) in &mut found {
            if field.as_str() == "status.succeeded" {
                *field = Name::from_static("status.successful");
            }
        }
        for (name, value) in &self.absent {
            if !found.iter().any(|(field, _)| field == name) {
                found.push((name.clone(), value.clone()));
            }
        }
        found
    }
}

/// The JSON of an object with its kind first, as Go writes it: what a list leaves out is at the beginning.
#[must_use]
pub fn encode(object: &Map) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    let mut begin = b'{';
    for key in ["kind", "apiVersion"] {
        if let Some(value) = object.get(key) {
            field(begin, key, value, &mut out);
            begin = b',';
        }
    }
    for (key, value) in object.iter().filter(|(key, _)| !matches!(*key, "kind" | "apiVersion")) {
        field(begin, key, value, &mut out);
        begin = b',';
    }
    if begin == b'{' {
        out.push(b'{');
    }
    out.push(b'}');
    out
}

fn field(before: u8, key: &str, value: &Value, out: &mut Vec<u8>) {
    out.push(before);
    json::write_str(key, out);
    out.push(b':');
    json::write(value, out);
}
