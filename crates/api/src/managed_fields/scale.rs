//! The entries of an object seen through its `scale` subresource.

use super::{FieldSet, ManagedFieldsEntry, PathElement};
use crate::Str;

/// The version of scales.
const SCALE_VERSION: &str = "autoscaling/v1";

/// Translates entries between an object and its scale, which has one field that can be owned: `spec.replicas`.
#[derive(Clone, Copy, Debug)]
pub struct ScaleHandler<'a> {
    /// The versions of the object's kind, each with the path of its replicas if it has a scale. Entries of other
    /// versions are dropped.
    pub mappings: &'a [(&'a str, Option<&'a [PathElement]>)],
    /// The version in which the object is written.
    pub api_version: &'a str,
}

impl ScaleHandler<'_> {
    fn path(&self, version: &str) -> Option<Option<&[PathElement]>> {
        self.mappings.iter().find(|(known, _)| *known == version).map(|(_, path)| *path)
    }

    /// The entries of the scale, given those of the object.
    #[must_use]
    pub fn to_subresource(&self, entries: &[ManagedFieldsEntry]) -> Vec<ManagedFieldsEntry> {
        let owns = |entry: &&ManagedFieldsEntry| {
            self.path(&entry.api_version).flatten().is_some_and(|path| entry.fields.has(path))
        };
        let scale = |entry: &ManagedFieldsEntry| ManagedFieldsEntry {
            api_version: SCALE_VERSION.into(),
            fields: FieldSet::of_fields(&["spec.replicas"]),
            ..entry.clone()
        };
        entries.iter().filter(owns).map(scale).collect()
    }

    /// The entries of the object after its scale was written, given those it had before and those of the scale.
    ///
    /// An update has its version in its name, and that of the scale is another: an update through the scale takes the
    /// field from the same manager's update of the object, too.
    #[must_use]
    pub fn to_parent(
        &self,
        parent: Vec<ManagedFieldsEntry>,
        mut scale: Vec<ManagedFieldsEntry>,
    ) -> Vec<ManagedFieldsEntry> {
        let mut out = Vec::with_capacity(parent.len() + 1);
        for mut entry in parent {
            let Some(path) = self.path(&entry.api_version) else { continue };
            let Some(path) = path.filter(|path| entry.fields.has(path)) else {
                out.push(entry);
                continue;
            };
            match scale.iter().position(|other| entry.is_same(other)) {
                Some(at) => drop(scale.remove(at)),
                None => {
                    let mut replicas = FieldSet::new();
                    replicas.insert(path);
                    entry.fields = entry.fields.difference(&replicas);
                }
            }
            if !entry.fields.is_empty() {
                out.push(entry);
            }
        }
        let in_scale = FieldSet::of_fields(&["spec.replicas"]);
        for entry in scale.into_iter().filter(|entry| in_scale.is_subset(&entry.fields)) {
            let mut fields = FieldSet::new();
            fields.insert(self.path(self.api_version).flatten().unwrap_or_default());
            out.push(ManagedFieldsEntry { api_version: Str::from(self.api_version), fields, ..entry });
        }
        out
    }
}
