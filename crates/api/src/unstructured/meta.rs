//! The metadata of an object of any kind, read and written in place.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Unstructured, nested};
use crate::{
    Array, GroupVersion, GroupVersionKind, Map, Time, Value,
    object::{ManagedFieldsEntry, OwnerReference, controller_of},
    value::{from_value, to_value},
};

/// One getter and one setter for each string of the metadata.
macro_rules! strings {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $($path:literal)+;)+) => {
        /// Strings; the empty one is none, and setting it removes the field.
        impl Unstructured {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $get(&self) -> &str {
                    string_at(&self.object, &[$($path),+])
                }

                #[doc = concat!("Sets what [`", stringify!($get), "`](Self::", stringify!($get), ") returns.")]
                pub fn $set(&mut self, text: &str) {
                    set_string(&mut self.object, &[$($path),+], text);
                }
            )+
        }
    };
}

strings! {
    /// The name.
    name, set_name: "metadata" "name";
    /// How the name shall begin, if the server is to make one up.
    generate_name, set_generate_name: "metadata" "generateName";
    /// The namespace; empty for objects of the cluster.
    namespace, set_namespace: "metadata" "namespace";
    /// Tells this object from all others that ever had its name.
    uid, set_uid: "metadata" "uid";
    /// The version of the object.
    resource_version, set_resource_version: "metadata" "resourceVersion";
    /// No longer filled in.
    self_link, set_self_link: "metadata" "selfLink";
    /// In a list: what to send to get the next part of it.
    continue_token, set_continue_token: "metadata" "continue";
}

pub(super) fn string_at<'a>(object: &'a Map, path: &[&str]) -> &'a str {
    nested::str(object, path).ok().flatten().unwrap_or_default()
}

fn set_string(object: &mut Map, path: &[&str], text: &str) {
    set_or_remove(object, path, Some(text).filter(|text| !text.is_empty()));
}

/// Sets the value, or removes it when there is none. A `metadata` that is not a map stays as it is, as upstream has it.
pub(super) fn set_or_remove(object: &mut Map, path: &[&str], value: Option<impl Into<Value>>) {
    match value {
        Some(value) => drop(nested::set(object, path, value)),
        None => drop(nested::remove(object, path)),
    }
}

const GENERATION: &[&str] = &["metadata", "generation"];
const CREATION: &[&str] = &["metadata", "creationTimestamp"];
const DELETION: &[&str] = &["metadata", "deletionTimestamp"];
const GRACE: &[&str] = &["metadata", "deletionGracePeriodSeconds"];
pub(super) const REMAINING: &[&str] = &["metadata", "remainingItemCount"];
const LABELS: &[&str] = &["metadata", "labels"];
const ANNOTATIONS: &[&str] = &["metadata", "annotations"];
const OWNERS: &[&str] = &["metadata", "ownerReferences"];
const FINALIZERS: &[&str] = &["metadata", "finalizers"];
const MANAGED: &[&str] = &["metadata", "managedFields"];

/// The type, and the parts of the metadata that are not strings.
impl Unstructured {
    /// The group and version.
    #[must_use]
    pub fn api_version(&self) -> &str {
        string_at(&self.object, &["apiVersion"])
    }

    /// Sets the group and version.
    pub fn set_api_version(&mut self, api_version: &str) {
        self.object.insert("apiVersion", api_version);
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        string_at(&self.object, &["kind"])
    }

    /// Sets the kind.
    pub fn set_kind(&mut self, kind: &str) {
        self.object.insert("kind", kind);
    }

    /// The full name of the kind; nothing of it if the group and version cannot be read.
    #[must_use]
    pub fn gvk(&self) -> GroupVersionKind {
        gvk_of(&self.object)
    }

    /// Sets the full name of the kind.
    pub fn set_gvk(&mut self, gvk: &GroupVersionKind) {
        self.set_api_version(&gvk.api_version());
        self.set_kind(&gvk.kind);
    }

    /// Counts the changes of what is wanted.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.i64_at(GENERATION).unwrap_or_default()
    }

    /// Sets the count of changes; zero removes it.
    pub fn set_generation(&mut self, generation: i64) {
        set_or_remove(&mut self.object, GENERATION, Some(generation).filter(|n| *n != 0));
    }

    /// When the object was made.
    #[must_use]
    pub fn creation_timestamp(&self) -> Option<Time> {
        self.time_at(CREATION)
    }

    /// Sets when the object was made.
    pub fn set_creation_timestamp(&mut self, time: Option<Time>) {
        self.set_time(CREATION, time);
    }

    /// By when the object is to be gone, if its deletion has been asked for.
    #[must_use]
    pub fn deletion_timestamp(&self) -> Option<Time> {
        self.time_at(DELETION)
    }

    /// Sets by when the object is to be gone.
    pub fn set_deletion_timestamp(&mut self, time: Option<Time>) {
        self.set_time(DELETION, time);
    }

    /// How long the object may take to end.
    #[must_use]
    pub fn deletion_grace_period_seconds(&self) -> Option<i64> {
        self.i64_at(GRACE)
    }

    /// Sets how long the object may take to end.
    pub fn set_deletion_grace_period_seconds(&mut self, seconds: Option<i64>) {
        set_or_remove(&mut self.object, GRACE, seconds);
    }

    /// In a list: how many objects come after this part, if that is known.
    #[must_use]
    pub fn remaining_item_count(&self) -> Option<i64> {
        self.i64_at(REMAINING)
    }

    /// In a list: sets how many objects come after this part.
    pub fn set_remaining_item_count(&mut self, count: Option<i64>) {
        set_or_remove(&mut self.object, REMAINING, count);
    }

    /// The labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        nested::null_coercing_string_map(&self.object, LABELS).ok().flatten().unwrap_or_default()
    }

    /// Sets the labels; nothing removes them.
    pub fn set_labels(&mut self, labels: Option<&BTreeMap<String, String>>) {
        set_or_remove(&mut self.object, LABELS, labels.map(string_map));
    }

    /// The annotations.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<String, String> {
        nested::null_coercing_string_map(&self.object, ANNOTATIONS).ok().flatten().unwrap_or_default()
    }

    /// Sets the annotations; nothing removes them.
    pub fn set_annotations(&mut self, annotations: Option<&BTreeMap<String, String>>) {
        set_or_remove(&mut self.object, ANNOTATIONS, annotations.map(string_map));
    }

    /// The owners; none if one of them is not a map.
    #[must_use]
    pub fn owner_references(&self) -> Vec<OwnerReference> {
        let references = nested::slice(&self.object, OWNERS).ok().flatten();
        let references = references.into_iter().flatten().map(|item| item.as_object().map(owner_reference));
        references.collect::<Option<_>>().unwrap_or_default()
    }

    /// Sets the owners; nothing removes them.
    pub fn set_owner_references(&mut self, references: Option<&[OwnerReference]>) {
        set_or_remove(&mut self.object, OWNERS, references.map(values));
    }

    /// The owner that controls this object, if one does.
    #[must_use]
    pub fn controller(&self) -> Option<OwnerReference> {
        controller_of(&self.owner_references()).cloned()
    }

    /// The finalizers; none if one of them is not a string.
    #[must_use]
    pub fn finalizers(&self) -> Vec<String> {
        nested::string_slice(&self.object, FINALIZERS).ok().flatten().unwrap_or_default()
    }

    /// Sets the finalizers; nothing removes them.
    pub fn set_finalizers(&mut self, finalizers: Option<&[String]>) {
        let list = finalizers.map(|list| list.iter().map(|text| Value::from(text.as_str())).collect::<Array>());
        set_or_remove(&mut self.object, FINALIZERS, list);
    }

    /// Who manages which fields; none if one of the entries is not what it should be.
    #[must_use]
    pub fn managed_fields(&self) -> Vec<ManagedFieldsEntry> {
        let entries = nested::slice(&self.object, MANAGED).ok().flatten();
        let entries = entries.into_iter().flatten().map(|item| from_value(item.clone()).ok());
        entries.collect::<Option<_>>().unwrap_or_default()
    }

    /// Sets who manages which fields; nothing removes it.
    pub fn set_managed_fields(&mut self, entries: Option<&[ManagedFieldsEntry]>) {
        set_or_remove(&mut self.object, MANAGED, entries.map(values));
    }

    fn i64_at(&self, path: &[&str]) -> Option<i64> {
        nested::i64(&self.object, path).ok().flatten()
    }

    fn set_time(&mut self, path: &[&str], time: Option<Time>) {
        set_or_remove(&mut self.object, path, time.filter(|time| !time.is_zero()).map(|time| time.to_string()));
    }

    fn time_at(&self, path: &[&str]) -> Option<Time> {
        string_at(&self.object, path).parse().ok().filter(|time: &Time| !time.is_zero())
    }
}

pub(super) fn gvk_of(object: &Map) -> GroupVersionKind {
    let api_version = string_at(object, &["apiVersion"]).parse::<GroupVersion>();
    api_version.map(|gv| gv.with_kind(string_at(object, &["kind"]))).unwrap_or_default()
}

fn string_map(map: &BTreeMap<String, String>) -> Map {
    map.iter().map(|(key, text)| (key.into(), Value::from(text.as_str()))).collect()
}

fn values<T: Serialize>(items: &[T]) -> Array {
    items.iter().map(|item| to_value(item).unwrap_or_default()).collect()
}

/// Fields of the wrong type read as missing.
fn owner_reference(map: &Map) -> OwnerReference {
    let text = |name| string_at(map, &[name]).to_owned();
    let flag = |name| map.get(name).and_then(Value::as_bool);
    OwnerReference {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
        uid: text("uid"),
        controller: flag("controller"),
        block_owner_deletion: flag("blockOwnerDeletion"),
    }
}
