//! Kinds that are served in more than one version, read and written through the one that is stored.
//!
//! In v1.36 these are the HorizontalPodAutoscaler (`autoscaling/v1` and `v2`, stored as `v2`) and the Event (of the
//! core group and of `events.k8s.io`, stored as the core group's). [`scale`] is beside them: a kind of its own that is
//! read out of others.
//!
//! A write is converted once it is decoded and has its defaults, so that strategies and validation see the stored
//! version alone; a read is converted on its way out.

mod autoscaling;
mod events;
mod metrics;
pub mod scale;
#[cfg(test)]
mod tests;

use capstan_api::{GroupResource, GroupVersion, GroupVersionKind, Map, builtin, schema::Schema};

use crate::registry;

pub(crate) type Convert = fn(Map) -> Map;

/// A version that is not stored, or one that is and has to be cleaned: group, version, kind, the group and version that
/// is stored, the way there and the way back.
type Row = (&'static str, &'static str, &'static str, (&'static str, &'static str), Convert, Convert);

static ROWS: &[Row] = &[
    ("autoscaling", "v1", autoscaling::KIND, ("autoscaling", "v2"), autoscaling::v1_to_v2, autoscaling::v2_to_v1),
    ("autoscaling", "v2", autoscaling::KIND, ("autoscaling", "v2"), autoscaling::without_annotations, |object| object),
    ("events.k8s.io", "v1", "Event", ("", "v1"), events::to_core, events::from_core),
];

fn find(gvk: &GroupVersionKind) -> Option<&'static Row> {
    ROWS.iter().find(|(group, version, kind, ..)| {
        gvk.kind.as_str() == *kind && gvk.group.as_str() == *group && gvk.version.as_str() == *version
    })
}

/// The kinds of which a field is an annotation in the version that is shown, with what takes those annotations away.
///
/// Upstream reads metadata alone from its own version, in which they still are fields.
static ANNOTATED: &[(&str, &str, &str, Convert)] = &[
    ("apps", "v1", "DaemonSet", |mut object| {
        registry::hooks::drop_template_generation(&mut object);
        object
    }),
    ("autoscaling", "v1", autoscaling::KIND, autoscaling::without_annotations),
];

/// What takes the annotations away that are fields of the kind, if it has such.
pub(crate) fn annotations_of(gvk: &GroupVersionKind) -> Option<Convert> {
    let is = |(group, version, kind, _): &&(&str, &str, &str, Convert)| {
        gvk.kind == **kind && gvk.group == **group && gvk.version == **version
    };
    ANNOTATED.iter().find(is).map(|(.., without)| *without)
}

/// What Go encodes of an object that nothing was ever set in, in the version that is shown: what may be missing there
/// and is a number in the version that it is made of is zero.
pub(crate) fn blank(gvk: &GroupVersionKind, schema: &Schema) -> Map {
    let mut object = builtin::blank(schema);
    if matches!(&*gvk.kind, "Deployment" | "ReplicaSet" | "StatefulSet") {
        registry::paths::set(&mut object, "spec.replicas", 0);
    }
    object
}

/// What an object has by default only once it has been converted to the stored version and back.
pub(crate) fn default_v1(gvk: &GroupVersionKind, object: &mut Map) {
    if gvk.kind == *autoscaling::KIND && gvk.version == *"v1" && gvk.group == *"autoscaling" {
        autoscaling::default_v1(object);
    }
}

/// Whether objects of this kind change on their way to the store or back. Most don't.
#[must_use]
pub fn needs_conversion(gvk: &GroupVersionKind) -> bool {
    find(gvk).is_some()
}

/// Whether a stored kind is served in other versions too.
#[must_use]
pub fn has_versions(stored: &GroupVersionKind) -> bool {
    ROWS.iter().any(|(_, _, kind, (group, version), ..)| {
        (*kind, *group, *version) == (stored.kind.as_str(), stored.group.as_str(), stored.version.as_str())
    })
}

/// The group and version in which a built-in resource is stored; nothing if it is not built in.
#[must_use]
pub fn storage_version(resource: &GroupResource) -> Option<GroupVersion> {
    let same = |kind: &&builtin::Kind| kind.gvr().group_resource() == *resource;
    let kind = builtin::kinds().find(same)?;
    Some(find(&kind.gvk()).map_or_else(
        || kind.group_version.clone(),
        |(_, _, _, (group, version), ..)| GroupVersion::from_static(group, version),
    ))
}

/// An object of this kind as it is stored. The defaults of the stored version are still to be filled in.
#[must_use]
pub fn to_storage(gvk: &GroupVersionKind, object: Map) -> Map {
    match find(gvk) {
        None => object,
        Some((_, _, kind, (group, version), to, _)) => {
            let mut object = to(object);
            object.insert("apiVersion", GroupVersionKind::from_static(group, version, kind).api_version());
            object
        }
    }
}

/// A stored object as this kind.
#[must_use]
pub fn from_storage(gvk: &GroupVersionKind, object: Map) -> Map {
    match find(gvk) {
        None => object,
        Some((.., from)) => {
            let mut object = from(object);
            object.insert("apiVersion", gvk.api_version());
            object
        }
    }
}
