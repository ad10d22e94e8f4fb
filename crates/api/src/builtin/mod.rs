//! The kinds that Kubernetes has built in, as a table of facts.
//!
//! `table.txt` is made by `cargo xtask codegen` from the published definition of the API. It is part of the program as
//! it is; a type or a row is read when it is first asked for, so a program that uses three kinds pays for three. The
//! [schemas](schema) of all kinds share one arena.
//!
//! ```
//! use capstan_api::{builtin, names::GroupVersionKind};
//!
//! let deployment = GroupVersionKind::from_static("apps", "v1", "Deployment");
//! let row = builtin::kind(&deployment).unwrap();
//! assert_eq!((row.resource.as_str(), row.short_names[0].as_str()), ("deployments", "deploy"));
//!
//! let schema = builtin::schema(&deployment).unwrap();
//! let replicas = schema.root().field("spec").unwrap().node.field("replicas").unwrap();
//! assert_eq!(replicas.number, 1);
//! ```

mod check;
mod defaults;
mod index;
mod kind;
mod load;
pub mod text;

use std::sync::{LazyLock, OnceLock};

pub use check::check;
pub use defaults::{blank, default};
pub use kind::{Column, Kind, Subresource};

use crate::{
    names::{GroupVersion, GroupVersionKind, GroupVersionResource},
    schema::Schema,
};

/// The package of kinds that belong to every group and version: options, `Status`, discovery.
const META: &str = "meta.v1";

/// All kinds that are served under a resource of their own.
pub fn kinds() -> impl ExactSizeIterator<Item = &'static Kind> {
    (0..index::RESOURCES).map(kind::row)
}

/// The group versions that are served, in the order of discovery.
pub fn group_versions() -> impl Iterator<Item = GroupVersion> {
    groups().map(|(group, version, _)| GroupVersion::from_static(group, version))
}

/// The row of a kind. Kinds that have no resource of their own, such as `Scale` and `Status`, have no row.
#[must_use]
pub fn kind(kind: &GroupVersionKind) -> Option<&'static Kind> {
    BY_KIND.find([&kind.group, &kind.version, &kind.kind])
}

/// The row of a resource.
#[must_use]
pub fn resource(resource: &GroupVersionResource) -> Option<&'static Kind> {
    BY_RESOURCE.find([&resource.group, &resource.version, &resource.resource])
}

/// The schema of a kind: one that is served, one of a subresource, a list, options, or a `Status`.
#[must_use]
pub fn schema(kind: &GroupVersionKind) -> Option<Schema> {
    static SERVED: LazyLock<Box<[OnceLock<Option<Schema>>]>> =
        LazyLock::new(|| (0..index::RESOURCES).map(|_| OnceLock::new()).collect());
    match BY_KIND.position([&kind.group, &kind.version, &kind.kind]) {
        Some(at) => SERVED[at].get_or_init(|| find_schema(kind)).clone(),
        None => find_schema(kind),
    }
}

fn find_schema(kind: &GroupVersionKind) -> Option<Schema> {
    let own = package(&kind.group, &kind.version).and_then(|package| kind_type(package, &kind.kind));
    own.or_else(|| kind_type(META, &kind.kind)).map(rooted_at)
}

/// The schema of a type, kind or not, by its name in the table: `core.v1.PodSpec`.
#[must_use]
pub fn type_schema(name: &str) -> Option<Schema> {
    index::find_type(name).map(rooted_at)
}

/// The names of all types, in order, each with whether it is a kind.
pub fn types() -> impl ExactSizeIterator<Item = (&'static str, bool)> {
    (0..index::TYPES).map(index::type_head).map(|head| (head.name, head.kind))
}

/// The lines of a type in the table, the first of which is its [head](text::TypeHead): everything that is published
/// about it, also what schemas do not need.
#[must_use]
pub fn type_lines(name: &str) -> Option<std::str::Lines<'static>> {
    index::find_type(name).map(index::type_block)
}

/// The table's name of the type of a kind: `core.v1.Pod`.
#[must_use]
pub fn type_name(kind: &GroupVersionKind) -> Option<&'static str> {
    kind_type(package(&kind.group, &kind.version)?, &kind.kind).map(index::type_name)
}

/// The group and version that a type belongs to. The types of `meta.v1` belong to all.
#[must_use]
pub fn type_group_version(name: &str) -> Option<GroupVersion> {
    let (of, _) = name.rsplit_once('.')?;
    let (group, version, _) = groups().find(|(_, _, package)| *package == of)?;
    Some(GroupVersion::from_static(group, version))
}

/// All types seen from the one at `ty`.
fn rooted_at(ty: usize) -> Schema {
    static ALL: OnceLock<Schema> = OnceLock::new();
    ALL.get_or_init(new_arena).rooted_at(load::root(ty))
}

fn new_arena() -> Schema {
    Schema::lazy_with_notes(load::DEFINITIONS, load::load, &load::NOTES)
}

fn kind_type(package: &str, kind: &str) -> Option<usize> {
    index::find_type(&format!("{package}.{kind}")).filter(|&ty| index::type_head(ty).kind)
}

/// The rows of the table by group, version and a name: every request looks one up, often more than once.
struct Rows {
    rows: Box<[([&'static str; 3], usize)]>,
    /// Which of the rows has a hash, or the next one behind it that is free. [`FREE`] where none is.
    slots: Box<[u16]>,
}

const FREE: u16 = u16::MAX;

static BY_KIND: LazyLock<Rows> = LazyLock::new(|| Rows::by(|[_, _, kind, ..]| kind));
static BY_RESOURCE: LazyLock<Rows> = LazyLock::new(|| Rows::by(|[_, resource, ..]| resource));

impl Rows {
    fn by(name: impl Fn([&'static str; 5]) -> &'static str) -> Self {
        let row = |at| {
            let head = kind::head(at);
            let (group, version) = split(head[0]);
            ([group, version, name(head)], at)
        };
        let mut rows: Box<[_]> = (0..index::RESOURCES).map(row).collect();
        rows.sort();
        let mut slots = vec![FREE; (4 * rows.len()).next_power_of_two()].into_boxed_slice();
        for (number, (names, _)) in (0..FREE).zip(&*rows) {
            let mut slot = hash(*names) % slots.len();
            while slots[slot] != FREE {
                slot = (slot + 1) % slots.len();
            }
            slots[slot] = number;
        }
        Rows { rows, slots }
    }

    /// The first row of these names.
    fn find(&self, names: [&str; 3]) -> Option<&'static Kind> {
        self.position(names).map(kind::row)
    }

    /// Where the table has it.
    fn position(&self, names: [&str; 3]) -> Option<usize> {
        let mut slot = hash(names) % self.slots.len();
        loop {
            let (row, at) = self.rows.get(usize::from(self.slots[slot]))?;
            if *row == names {
                return Some(*at);
            }
            slot = (slot + 1) % self.slots.len();
        }
    }
}

/// Firefox's: names are short and nobody chooses them to collide, for what is not in the table is not put in.
fn hash(names: [&str; 3]) -> usize {
    let words = names.iter().flat_map(|name| name.as_bytes().chunks(8)).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let hash = words.fold(0, |hash: u64, word| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95));
    (hash >> 32) as usize
}

/// Groups, versions, and the packages of their types.
fn groups() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    index::groups().filter_map(|line| {
        let (group_version, package) = line.strip_prefix("group ")?.split_once(' ')?;
        let (group, version) = split(group_version);
        Some((group, version, package))
    })
}

fn package(group: &str, version: &str) -> Option<&'static str> {
    groups().find(|(g, v, _)| (*g, *v) == (group, version)).map(|(_, _, package)| package)
}

fn split(group_version: &'static str) -> (&'static str, &'static str) {
    group_version.split_once('/').unwrap_or(("", group_version))
}
