//! Who owns what after a write, and what an object is after an apply.

use super::{
    FieldSet, Filter, ManagedFieldsEntry, Operation, OtherVersions, PathElement,
    compare::{self, Comparison},
    fields::{ensure_named, field_set, reconcile},
    merge::{merge, remove_items},
    prune::{has_empty_list, prune},
    types::Ty,
};
use crate::{Map, Str, Value, schema::Schema};

#[cfg(test)]
#[path = "prune_tests.rs"]
mod prune_tests;

/// Why a write cannot be seen to.
#[derive(Debug)]
pub(super) enum Failure {
    /// Others own what is applied.
    Conflicts(Vec<Conflict>),
    /// Something else, as upstream says it.
    Other(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure::Other(message)
    }
}

/// What an apply has made.
#[derive(Debug)]
pub(super) struct Applied {
    /// The object, without entries.
    pub(super) object: Map,
    /// Whether it is another than before.
    pub(super) changed: bool,
    pub(super) entries: Vec<ManagedFieldsEntry>,
}

/// A field that another manager owns.
#[derive(Clone, Debug)]
pub(super) struct Conflict {
    /// The entry, without fields.
    pub(super) owner: ManagedFieldsEntry,
    pub(super) path: Vec<PathElement>,
}

/// The schemas of the versions that are spoken of.
pub(super) struct Updater<'a> {
    pub(super) version: &'a str,
    pub(super) schemas: Vec<(Str, Schema)>,
    pub(super) versions: &'a dyn OtherVersions,
    pub(super) filter: &'a Filter,
}

/// An object in a version.
#[derive(Clone)]
struct Typed<'s> {
    value: Value,
    version: Str,
    ty: Ty<'s>,
}

/// The object in another version, if there is such a version.
type Converted<'s> = Result<Option<Typed<'s>>, String>;

impl<'a> Updater<'a> {
    /// For objects of `version` and the entries that they have.
    pub(super) fn new(
        version: &'a str,
        schema: &Schema,
        versions: &'a dyn OtherVersions,
        filter: &'a Filter,
        entries: &[ManagedFieldsEntry],
    ) -> Self {
        let mut schemas = vec![(Str::from(version), schema.clone())];
        for entry in entries {
            if schemas.iter().all(|(known, _)| *known != entry.api_version)
                && let Some(schema) = versions.schema(&entry.api_version)
            {
                schemas.push((entry.api_version.clone(), schema));
            }
        }
        Updater { version, schemas, versions, filter }
    }

    fn ty(&self, version: &str) -> Option<Ty<'_>> {
        self.schemas.iter().find(|(known, _)| known == version).map(|(_, schema)| Ty::of(schema))
    }

    fn own_ty(&self) -> Ty<'_> {
        Ty::of(&self.schemas[0].1)
    }

    fn convert<'s>(&'s self, object: &Typed<'s>, version: &str) -> Converted<'s> {
        if object.version == version {
            return Ok(Some(object.clone()));
        }
        let Some(map) = object.value.as_object() else { return Ok(None) };
        let Some(value) = self.convert_map(map, version)? else { return Ok(None) };
        let Some(ty) = self.ty(version) else { return Ok(None) };
        Ok(Some(Typed { value: value.into(), version: version.into(), ty }))
    }

    fn convert_map(&self, object: &Map, version: &str) -> Result<Option<Map>, String> {
        match self.ty(version) {
            Some(_) => self.versions.convert(object, version).map(Some),
            None => Ok(None),
        }
    }

    /// Drops entries of versions that there are no more, and fits the others to the schema.
    fn reconcile(&self, entries: &mut Vec<ManagedFieldsEntry>) {
        entries.retain_mut(|entry| match self.ty(&entry.api_version) {
            Some(ty) => {
                reconcile(&mut entry.fields, ty);
                true
            }
            None => false,
        });
    }

    fn compare(&self, ty: Ty<'_>, old: &Map, new: &Map) -> Result<Comparison, String> {
        let comparison =
            compare::compare(ty, old, new).map_err(|error| format!("failed to compare objects: {error}"))?;
        Ok(comparison.without(self.filter))
    }

    /// Takes from all entries but that at `own` what the change gives to the writer, and what it takes away.
    fn disown(
        &self,
        live: &Map,
        new: &Map,
        entries: &mut Vec<ManagedFieldsEntry>,
        own: Option<usize>,
        force: bool,
    ) -> Result<Comparison, Failure> {
        let main = self.compare(self.own_ty(), live, new)?;
        let mut others: Vec<(Str, Comparison)> = Vec::new();
        let mut conflicts = Vec::new();
        let mut taken = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            if Some(at) == own {
                taken.push(None);
                continue;
            }
            if entry.api_version != self.version && others.iter().all(|(version, _)| *version != entry.api_version) {
                let version = entry.api_version.as_str();
                let old = self
                    .convert_map(live, version)
                    .map_err(|error| format!("failed to convert old object: {error}"))?;
                let new =
                    self.convert_map(new, version).map_err(|error| format!("failed to convert new object: {error}"))?;
                let (Some(old), Some(new), Some(ty)) = (old, new, self.ty(version)) else {
                    taken.push(None);
                    continue;
                };
                others.push((entry.api_version.clone(), self.compare(ty, &old, &new)?));
            }
            let other = others.iter().find(|(version, _)| *version == entry.api_version);
            let comparison = other.map_or(&main, |(_, comparison)| comparison);
            let lost =
                entry.fields.intersection(&comparison.modified).union(entry.fields.intersection(&comparison.added));
            if !lost.is_empty() && !force {
                let owner = ManagedFieldsEntry { fields: FieldSet::new(), ..entry.clone() };
                conflicts.extend(lost.paths().into_iter().map(|path| Conflict { owner: owner.clone(), path }));
            }
            let gone = entry.fields.intersection(&comparison.removed);
            taken.push(Some(lost.union(gone)));
        }
        if !conflicts.is_empty() {
            conflicts.sort_by_cached_key(|conflict| conflict.owner.identifier());
            return Err(Failure::Conflicts(conflicts));
        }
        let mut taken = taken.into_iter();
        entries.retain_mut(|entry| {
            if let Some(taken) = taken.next().flatten() {
                entry.fields = std::mem::take(&mut entry.fields).difference(&taken);
            }
            !entry.fields.is_empty()
        });
        Ok(main)
    }

    /// The entries after `live` has become `new`, and what the writer has changed.
    pub(super) fn update(
        &self,
        live: &Map,
        new: &Map,
        mut entries: Vec<ManagedFieldsEntry>,
    ) -> Result<(Vec<ManagedFieldsEntry>, FieldSet), Failure> {
        self.reconcile(&mut entries);
        let Comparison { modified, added, .. } = self.disown(live, new, &mut entries, None, true)?;
        Ok((entries, modified.union(added)))
    }

    /// What `live` becomes when `manager` applies `config`, of which it has the fields.
    pub(super) fn apply(
        &self,
        live: &Map,
        config: Value,
        mut entries: Vec<ManagedFieldsEntry>,
        mut manager: ManagedFieldsEntry,
        force: bool,
    ) -> Result<Applied, Failure> {
        self.reconcile(&mut entries);
        let ty = self.own_ty();
        let set = self.filter.apply(std::mem::take(&mut manager.fields));
        let merged = merge(ty, live, config).map_err(|error| format!("failed to merge config: {error}"))?;
        let (own, last) = match entries.iter().position(|entry| entry.is_same(&manager)) {
            Some(at) => {
                let time = entries[at].time.take();
                let own = ManagedFieldsEntry { fields: set, time, ..manager };
                (at, Some(std::mem::replace(&mut entries[at], own)))
            }
            None => {
                entries.push(ManagedFieldsEntry { fields: set, ..manager });
                (entries.len() - 1, None)
            }
        };
        let merged = Typed { value: merged, version: self.version.into(), ty };
        let Typed { value, .. } = self
            .prune(merged, &entries, own, last.as_ref())
            .map_err(|error| format!("failed to prune fields: {error}"))?;
        let Value::Object(object) = value else {
            return Err(Failure::Other("nothing is left of the object".to_owned()));
        };
        let changed = !is_same(live, &object);
        if changed {
            self.disown(live, &object, &mut entries, Some(own), force)?;
        } else {
            entries.retain(|entry| !entry.fields.is_empty());
        }
        Ok(Applied { object, changed, entries })
    }

    /// Takes out what the manager applied the last time but not now, and nobody else owns.
    fn prune<'s>(
        &'s self,
        mut merged: Typed<'s>,
        entries: &[ManagedFieldsEntry],
        own: usize,
        last: Option<&ManagedFieldsEntry>,
    ) -> Result<Typed<'s>, String> {
        let Some(last) = last.filter(|last| !last.fields.is_empty()) else { return Ok(merged) };
        // What is applied again stays, so nothing is to be taken out. Most applies end here.
        if last.api_version == self.version && last.fields.is_subset(&entries[own].fields) {
            return Ok(merged);
        }
        if entries.iter().chain([last]).all(|entry| entry.api_version == self.version)
            && !has_empty_list(&merged.value, 0)
        {
            let managed: Vec<&FieldSet> = entries.iter().map(|entry| &entry.fields).collect();
            prune(merged.ty, &mut merged.value, &last.fields, &managed);
            return Ok(merged);
        }
        self.prune_by_copies(merged, entries, own, last)
    }

    /// As [`prune`](Updater::prune), by copies: also when not all have applied in the same version.
    fn prune_by_copies<'s>(
        &'s self,
        merged: Typed<'s>,
        entries: &[ManagedFieldsEntry],
        own: usize,
        last: &ManagedFieldsEntry,
    ) -> Result<Typed<'s>, String> {
        let version = last.api_version.as_str();
        let Some(merged) = self.convert(&merged, version)? else { return Ok(merged) };
        let mut gone = last.fields.clone();
        ensure_named(&mut gone, Some(merged.ty), 0);
        let mut pruned = merged.clone();
        remove_items(pruned.ty, &mut pruned.value, &gone, 0);
        let pruned = self.add_back_owned(&merged, pruned, entries, version)?;
        let pruned = self.add_back_dangling(&merged, &pruned, last)?;
        Ok(self.convert(&pruned, &entries[own].api_version)?.unwrap_or(pruned))
    }

    fn add_back_owned<'s>(
        &'s self,
        merged: &Typed<'s>,
        mut pruned: Typed<'s>,
        entries: &[ManagedFieldsEntry],
        version: &str,
    ) -> Result<Typed<'s>, String> {
        let mut merged = merged.clone();
        let mut managed: Vec<(Str, FieldSet)> = vec![(version.into(), FieldSet::new())];
        for entry in entries {
            match managed.iter_mut().find(|(version, _)| *version == entry.api_version) {
                Some((_, set)) => *set = std::mem::take(set).union(entry.fields.clone()),
                None => managed.push((entry.api_version.clone(), entry.fields.clone())),
            }
        }
        for (version, mut managed) in managed {
            let Some(at_version) = self.convert(&merged, &version)? else { continue };
            merged = at_version;
            let Some(at_version) = self.convert(&pruned, &version)? else { continue };
            pruned = at_version;
            let (mut all, mut left) = (field_set(merged.ty, &merged.value)?, field_set(pruned.ty, &pruned.value)?);
            for set in [&mut all, &mut left, &mut managed] {
                ensure_named(set, Some(merged.ty), 0);
            }
            pruned = merged.clone();
            remove_items(pruned.ty, &mut pruned.value, &all.difference(&left.union(managed)), 0);
        }
        Ok(pruned)
    }

    fn add_back_dangling<'s>(
        &'s self,
        merged: &Typed<'s>,
        pruned: &Typed<'s>,
        last: &ManagedFieldsEntry,
    ) -> Result<Typed<'s>, String> {
        let mut out = merged.clone();
        let Some(pruned) = self.convert(pruned, &last.api_version)? else { return Ok(out) };
        let (mut left, mut all) = (field_set(pruned.ty, &pruned.value)?, field_set(merged.ty, &merged.value)?);
        let mut last = last.fields.clone();
        for set in [&mut left, &mut all, &mut last] {
            ensure_named(set, Some(merged.ty), 0);
        }
        remove_items(out.ty, &mut out.value, &all.difference(&left).intersection(&last), 0);
        Ok(out)
    }
}

/// Whether two objects are the same, entries aside.
fn is_same(a: &Map, b: &Map) -> bool {
    fn same<'v>(
        a: impl Iterator<Item = (&'v str, &'v Value)>,
        mut b: impl Iterator<Item = (&'v str, &'v Value)>,
    ) -> bool {
        for (key, value) in a {
            match (b.next(), key, value) {
                (Some((other, Value::Object(b))), "metadata", Value::Object(a)) if other == key => {
                    let stays = |(key, _): &(&str, &Value)| *key != "managedFields";
                    if !a.iter().filter(stays).eq(b.iter().filter(stays)) {
                        return false;
                    }
                }
                (Some((other, b)), _, _) if other == key && compare::equal(value, b) => {}
                _ => return false,
            }
        }
        b.next().is_none()
    }
    same(a.iter(), b.iter())
}

impl Operation {
    pub(super) fn is_update(self) -> bool {
        self == Operation::Update
    }
}
