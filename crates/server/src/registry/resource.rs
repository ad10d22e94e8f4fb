//! A resource as it is served: what the road needs to know of a kind, and where its objects are.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{
    GroupResource, GroupVersionKind, GroupVersionResource, Map, Name, Str, Value,
    builtin::{self, Kind},
    json,
    schema::Schema,
};
use capstan_clock::SharedClock;
use capstan_storage::{SharedStore, Ttl};

use super::{layout, strategy::Strategy};
use crate::cache::{CacheOptions, CachedResource, FieldPaths, ResourceCache, SelectableFields};

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
    /// The row of the table of built-in kinds.
    pub row: &'static Kind,
    /// What its objects look like.
    pub schema: Schema,
    /// Where its objects are; nothing for what is answered and not stored, such as reviews.
    pub stored: Option<Arc<Stored>>,
    /// What the fields can be selected by; of a kind that is not stored, the usual.
    pub fields: super::fields::SelectableFields,
}

/// The objects of a resource, whatever versions they are served in.
pub struct Stored {
    /// The group and resource.
    pub resource: GroupResource,
    /// The kind in the version that is stored.
    pub gvk: GroupVersionKind,
    /// How the kind differs from others.
    pub strategy: &'static Strategy,
    /// How long objects live, if they expire.
    pub ttl: Option<Ttl>,
    /// The read side.
    pub cache: ResourceCache,
}

impl Resource {
    /// A built-in resource.
    #[must_use]
    pub fn builtin(row: &'static Kind, stored: Option<Arc<Stored>>) -> Option<Self> {
        let gvk = row.gvk();
        let list_kind = row.list_kind.clone().unwrap_or_else(|| Name::from(format!("{}List", row.kind)));
        let strategy = Strategy::of(&row.gvr().group_resource());
        Some(Resource {
            list_gvk: GroupVersionKind { kind: list_kind, ..gvk.clone() },
            schema: builtin::schema(&gvk)?,
            gvr: row.gvr(),
            gvk,
            namespaced: row.namespaced,
            row,
            stored,
            fields: strategy.map_or(super::fields::SelectableFields::COMMON, |strategy| strategy.fields),
        })
    }

    /// Whether objects of this version are other than those that are stored.
    #[must_use]
    pub fn converts(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.gvk != self.gvk)
    }

    /// Whether a verb can be asked of the resource, or of one of its subresources.
    #[must_use]
    pub fn has_verb(&self, subresource: &str, verb: &str) -> bool {
        let verbs = match subresource {
            "" => Some(&self.row.verbs),
            name => self.row.subresource(name).map(|sub| &sub.verbs),
        };
        verbs.is_some_and(|verbs| verbs.iter().any(|known| known == verb))
    }
}

impl Stored {
    /// Starts to follow the objects of a built-in resource.
    #[must_use]
    pub fn start(gvk: GroupVersionKind, strategy: &'static Strategy, store: SharedStore, clock: SharedClock) -> Self {
        let resource = GroupResource::new(strategy.group, strategy.resource);
        let row = builtin::kind(&gvk);
        let cached = CachedResource::new(&layout::list_prefix(&resource, ""), row.is_some_and(|row| row.namespaced));
        let cached = cached.with_fields(Fields::new(strategy));
        let cached = if strategy.resource == "pods" { cached.indexed_by("spec.nodeName") } else { cached };
        let cache = ResourceCache::start(store, cached, CacheOptions::with_clock(clock));
        Stored { resource, gvk, strategy, ttl: None, cache }
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
        layout::key(&self.resource, namespace, name).into()
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
