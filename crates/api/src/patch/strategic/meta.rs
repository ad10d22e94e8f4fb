//! What the schema says to a strategic merge patch.

use super::Error;
use crate::{
    Name,
    schema::{Absent, Format, NodeRef, PatchStrategy, Type},
};

/// What is said about a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meta<'a> {
    /// The object's node; of a list, that of its elements.
    pub(super) node: NodeRef<'a>,
    /// What to do with it.
    pub(super) strategy: PatchStrategy,
    /// What tells the elements of a list apart.
    pub(super) merge_key: Option<&'a str>,
}

/// The kind of Go's type for such values, which messages name.
pub(super) fn kind(node: NodeRef<'_>) -> &'static str {
    match (node.ty(), node.format()) {
        (Type::Object, _) if node.additional().is_some() => "map",
        (Type::Object | Type::Any, _) => "struct",
        // A schema or a boolean.
        (Type::Boolean, _) if node.preserves_unknown() => "struct",
        (_, Format::IntOrString | Format::Quantity | Format::DateTime | Format::MicroTime) => "struct",
        (Type::Array, _) | (Type::String, Format::Byte) => "slice",
        (Type::String, _) => "string",
        (Type::Integer, Format::Int32) => "int32",
        (Type::Integer, _) => "int64",
        (Type::Number, _) => "float64",
        (Type::Boolean, _) => "bool",
    }
}

/// What is said about a field that has an object.
pub(super) fn of_object<'a>(parent: NodeRef<'a>, key: &str) -> Result<Meta<'a>, Error> {
    let parent_kind = kind(parent);
    if parent_kind != "struct" {
        return Err(Error::NotAStruct(parent_kind));
    }
    let field = parent
        .field(key)
        // As Go's decoder, upstream is content with a name that differs in case.
        .or_else(|| parent.fields().find(|field| field.name.eq_ignore_ascii_case(key)))
        .ok_or_else(|| {
            let ty = parent.type_name().unwrap_or_default();
            Error::UnknownField(ty.into(), key.into())
        })?;
    Ok(Meta {
        node: field.node,
        strategy: field.node.patch_strategy(),
        merge_key: field.node.merge_key().map(Name::as_str),
    })
}

/// What is said about a field that has a list.
pub(super) fn of_list<'a>(parent: NodeRef<'a>, key: &str) -> Result<Meta<'a>, Error> {
    let meta = of_object(parent, key)?;
    match meta.node.items() {
        Some(items) if kind(items) == "slice" => Err(Error::SliceOfSlice),
        Some(items) => Ok(Meta { node: items, ..meta }),
        // Bytes are a list in Go. Upstream looks behind pointers, and is content with what it finds; what is encoded as
        // null when it was never set is no pointer.
        None if kind(meta.node) == "slice" => Ok(meta),
        None if meta.node.ty() == Type::Any && meta.node.absent() != Absent::Null => Ok(meta),
        None => Err(Error::NotASlice),
    }
}

/// Completes an error from inside of the field `key` by the name of its type, if only Go has one for it.
pub(super) fn complete(error: Error, parent: NodeRef<'_>, key: &str) -> Error {
    match error {
        Error::UnknownField(ty, field) if ty.is_empty() => {
            let ty = parent.go_field(key).map_or(String::new(), |field| field.ty);
            Error::UnknownField(ty.rsplit('.').next().unwrap_or_default().into(), field)
        }
        other => other,
    }
}
