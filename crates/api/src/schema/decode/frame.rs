//! Where the decoder is: the open containers, and what their places are called.

use std::{borrow::Cow, collections::HashSet};

use super::{NodeRef, error::Mismatch};
use crate::{
    Str,
    codec::StrictPath,
    schema::{Format, Type},
};

/// An open container.
#[derive(Debug)]
pub(super) struct Frame<'s, 'a> {
    /// The container's node.
    pub(super) node: NodeRef<'s>,
    /// The node of the value that comes next.
    pub(super) current: NodeRef<'s>,
    pub(super) place: Place<'a>,
    /// Unknown and duplicate fields are nobody's business here.
    pub(super) lenient: bool,
}

/// Which of the container's places is being read.
#[derive(Debug)]
pub(super) enum Place<'a> {
    /// A field, by its position; the fields that came already are in `seen`.
    Field { position: usize, seen: u128 },
    /// The value of a key.
    Key { key: Cow<'a, str>, seen: Keys },
    /// An element.
    Index(usize),
}

/// The keys of a map that came already.
#[derive(Debug, Default)]
pub(super) struct Keys {
    last: Option<Str>,
    /// All of them, once they do not come in order.
    all: Option<HashSet<Str, foldhash::fast::RandomState>>,
}

impl Keys {
    /// Whether none came.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Adds a key and says whether it is new; `earlier` has those that were added before.
    pub(super) fn insert<'k>(&mut self, key: &str, earlier: impl Iterator<Item = &'k str>) -> bool {
        if self.all.is_none() && self.last.as_ref().is_none_or(|last| last.as_str() < key) {
            self.last = Some(key.into());
            return true;
        }
        self.all.get_or_insert_with(|| earlier.map(Str::from).collect()).insert(key.into())
    }
}

/// The path to the field `key` of the innermost container.
pub(super) fn strict_path(frames: &[Frame<'_, '_>], key: &str) -> String {
    let mut path = StrictPath::default();
    let outer = frames.split_last().map_or(frames, |(_, outer)| outer);
    for frame in outer {
        match &frame.place {
            Place::Field { position, .. } => path.key(frame.node.field_at(*position).name),
            Place::Key { key, .. } => path.key(key),
            Place::Index(index) => path.index(*index),
        }
    }
    path.field(key)
}

/// The error of a value that does not have the type of its place.
pub(super) fn mismatch(frames: &[Frame<'_, '_>], node: NodeRef<'_>, value: String, ty: Option<&str>) -> Box<Mismatch> {
    let (mut path, mut owner, mut levels) = (Vec::new(), None, 0);
    for frame in frames {
        if let Place::Field { position, .. } = frame.place {
            let name = frame.node.field_at(position).name.as_str();
            let go = frame.node.go_field(name);
            path.extend(go.iter().flat_map(|go| go.embedded.iter().copied()));
            path.push(name);
            owner = Some((frame.node.type_name().unwrap_or_default().to_owned(), go));
            levels = 0;
        } else {
            levels += 1;
        }
    }
    let go = owner.as_ref().and_then(|(_, go)| go.as_ref());
    let known = go.and_then(|go| element(&go.ty, levels).or_else(|| element(&go.plain, levels)));
    let ty = ty.or(known).map_or_else(|| plain_type(node), str::to_owned);
    let is_scalar = !matches!(node.ty(), Type::Array | Type::Object) && !ty.starts_with(['[', 'm']);
    let scalar = is_scalar.then(|| plain_type(node));
    Box::new(Mismatch { value, field: owner.map(|(owner, _)| (owner, path.join("."))), ty, scalar })
}

/// What is inside `levels` lists and maps of the Go type `ty`.
fn element(ty: &str, levels: usize) -> Option<&str> {
    (0..levels).try_fold(ty, |ty, _| match ty.strip_prefix("map[") {
        Some(rest) => rest.split_once(']').map(|(_, value)| value),
        None => ty.strip_prefix("[]"),
    })
}

/// The Go type of a place of which Go knows nothing more.
fn plain_type(node: NodeRef<'_>) -> String {
    let name = match (node.ty(), node.format()) {
        (Type::String, Format::Byte) => "[]uint8",
        (Type::String, _) => "string",
        (Type::Integer, Format::Int32) => "int32",
        (Type::Integer, _) => "int64",
        (Type::Number, _) => "float64",
        (Type::Boolean, _) => "bool",
        (Type::Array, _) => "[]interface {}",
        (Type::Object, _) => match node.full_type_name().map(|name| name.rsplitn(3, '.').collect::<Vec<_>>()) {
            Some(parts) if parts.len() == 3 => return format!("{}.{}", parts[1], parts[0]),
            _ => "map[string]interface {}",
        },
        (Type::Any, _) => "interface {}",
    };
    name.to_owned()
}
