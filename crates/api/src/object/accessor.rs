//! The metadata of an object, whether it has a Rust type or not: apimachinery's `meta.Accessor`.

use std::{borrow::Cow, collections::BTreeMap};

use serde::de::DeserializeOwned;

use super::{Metadata as _, Object, OwnerReference, Resource};
use crate::{GroupVersionKind, Unstructured};

/// Reads and changes the metadata of an object of any type. The names differ from those of [`Resource`], so that both
/// traits can be in scope.
pub trait Accessor: Object {
    /// The full name of the kind.
    fn object_gvk(&self) -> GroupVersionKind;
    /// Counts the changes of what is wanted.
    fn object_generation(&self) -> i64;
    /// Whether its deletion has been asked for.
    fn is_being_deleted(&self) -> bool;
    /// The labels.
    fn object_labels(&self) -> Cow<'_, BTreeMap<String, String>>;
    /// The annotations.
    fn object_annotations(&self) -> Cow<'_, BTreeMap<String, String>>;
    /// The finalizers.
    fn object_finalizers(&self) -> Cow<'_, [String]>;
    /// Sets the finalizers.
    fn set_object_finalizers(&mut self, finalizers: Vec<String>);
    /// Sets the owners.
    fn set_object_owners(&mut self, owners: Vec<OwnerReference>);
}

impl<T: Resource + DeserializeOwned + Send + Sync + 'static> Accessor for T {
    fn object_gvk(&self) -> GroupVersionKind {
        T::gvk()
    }

    fn object_generation(&self) -> i64 {
        self.meta().generation()
    }

    fn is_being_deleted(&self) -> bool {
        self.meta().deletion_timestamp().is_some()
    }

    fn object_labels(&self) -> Cow<'_, BTreeMap<String, String>> {
        Cow::Borrowed(self.meta().labels())
    }

    fn object_annotations(&self) -> Cow<'_, BTreeMap<String, String>> {
        Cow::Borrowed(self.meta().annotations())
    }

    fn object_finalizers(&self) -> Cow<'_, [String]> {
        Cow::Borrowed(self.meta().finalizers())
    }

    fn set_object_finalizers(&mut self, finalizers: Vec<String>) {
        *self.meta_mut().finalizers_mut() = finalizers;
    }

    fn set_object_owners(&mut self, owners: Vec<OwnerReference>) {
        self.meta_mut().set_owner_references(owners);
    }
}

impl Accessor for Unstructured {
    fn object_gvk(&self) -> GroupVersionKind {
        self.gvk()
    }

    fn object_generation(&self) -> i64 {
        self.generation()
    }

    fn is_being_deleted(&self) -> bool {
        self.deletion_timestamp().is_some()
    }

    fn object_labels(&self) -> Cow<'_, BTreeMap<String, String>> {
        Cow::Owned(self.labels())
    }

    fn object_annotations(&self) -> Cow<'_, BTreeMap<String, String>> {
        Cow::Owned(self.annotations())
    }

    fn object_finalizers(&self) -> Cow<'_, [String]> {
        Cow::Owned(self.finalizers())
    }

    fn set_object_finalizers(&mut self, finalizers: Vec<String>) {
        self.set_finalizers(Some(&finalizers).filter(|finalizers| !finalizers.is_empty()).map(Vec::as_slice));
    }

    fn set_object_owners(&mut self, owners: Vec<OwnerReference>) {
        self.set_owner_references(Some(&owners).filter(|owners| !owners.is_empty()).map(Vec::as_slice));
    }
}
