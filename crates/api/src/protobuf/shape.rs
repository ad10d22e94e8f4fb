//! What a node is in a message.

use crate::schema::{Absent, Format, NodeRef, Type};

/// The form of one value; that of a list is said of its elements.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'s> {
    String,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// A message whose field 1 is JSON.
    Raw,
    /// A message of two fields of which one counts.
    Either(Either<'s>),
    /// A message with the elements of a list as its field 1.
    Wrapped(NodeRef<'s>),
    Struct(NodeRef<'s>),
}

/// What may be a schema or something else; each is a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Either<'s> {
    /// A boolean in field 1, or a schema in field 2.
    Bool(NodeRef<'s>),
    /// A schema in field 1, or schemas in field 2.
    List(NodeRef<'s>),
    /// A schema in field 1, or strings in field 2.
    Strings(NodeRef<'s>),
}

/// How often a field comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Plan<'s> {
    /// Once.
    One(Shape<'s>),
    /// As often as the list has elements.
    List(Shape<'s>),
    /// As often as the map has entries, each a message of a key and a value.
    Map(Shape<'s>),
}

impl<'s> Plan<'s> {
    /// The plan of a field of `owner`.
    pub(super) fn of(node: NodeRef<'s>, owner: NodeRef<'s>) -> Self {
        match (node.ty(), node.items(), node.additional()) {
            (Type::Array, Some(items), _) if !node.is_wrapped() => Plan::List(Shape::of(items)),
            (Type::Object, _, Some(values)) => Plan::Map(match Shape::of(values) {
                // The only map of values of any type is that of a schema's dependencies.
                Shape::Raw => Shape::Either(Either::Strings(owner)),
                shape => shape,
            }),
            _ => Plan::One(Shape::of(node)),
        }
    }
}

impl<'s> Shape<'s> {
    pub(super) fn of(node: NodeRef<'s>) -> Self {
        match (node.ty(), node.format()) {
            (Type::String, Format::Byte) => Shape::Bytes,
            (Type::String, Format::DateTime) => Shape::Time,
            (Type::String, Format::MicroTime) => Shape::MicroTime,
            (Type::String, Format::Quantity) => Shape::Quantity,
            (Type::String, _) => Shape::String,
            (Type::Integer, Format::Int32) => Shape::Int32,
            (Type::Integer, _) => Shape::Int64,
            (Type::Number, _) => Shape::Double,
            (Type::Any, Format::IntOrString) => Shape::IntOrString,
            (Type::Boolean, _) => node.alternative().map_or(Shape::Bool, |schema| Shape::Either(Either::Bool(schema))),
            (Type::Any, _) => node.alternative().map_or(Shape::Raw, |schema| Shape::Either(Either::List(schema))),
            (Type::Array, _) => Shape::Wrapped(node.items().unwrap_or(node)),
            (Type::Object, _) => Shape::Struct(node),
        }
    }
}

/// Whether Go has a pointer in the place of a field, so that it can be missing in a message.
pub(super) fn is_pointer(node: NodeRef<'_>, shape: Shape<'_>) -> bool {
    match node.absent() {
        Absent::Zero => false,
        Absent::Omitted => !node.drops_zero(),
        // These print `null` by themselves when they are not set.
        Absent::Null => !matches!(shape, Shape::Time | Shape::MicroTime | Shape::Raw | Shape::Wrapped(_)),
    }
}
