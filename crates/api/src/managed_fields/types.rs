//! How a schema says that values belong together: what is a leaf, and what is told apart by which keys.

use std::sync::OnceLock;

use crate::{
    Name, Str, Value, builtin,
    schema::{Format, ListType, MapType, NodeRef, Schema, Type},
};

use super::{MAX_DEPTH, PathElement};

/// What values of a scalar type may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    /// Any of them.
    Untyped,
}

impl Scalar {
    /// Whether a value is one of these. None at all always is.
    pub(super) fn takes(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) => true,
            (Scalar::Numeric, Value::Int(_) | Value::Float(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_)) => true,
            (Scalar::Untyped, value) => !matches!(value, Value::Array(_) | Value::Object(_)),
            _ => false,
        }
    }
}

/// The type of a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ty<'a> {
    /// What a schema says.
    Node {
        node: NodeRef<'a>,
        /// The schema is a built-in one.
        builtin: bool,
        /// Somewhere above, unknown fields are preserved: then they are below, too.
        preserve: bool,
        /// The root of a user's kind: it has `apiVersion`, `kind` and `metadata`, whatever the schema says.
        resource: bool,
    },
    /// A string.
    String,
    /// Whatever it is: maps are granular, lists are atomic.
    Deduced,
    /// Whatever it is, it is one value.
    Atomic,
}

/// A type of lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a> {
    pub(super) element: Ty<'a>,
    pub(super) relation: Relation<'a>,
}

/// How elements of a list are told apart.
#[derive(Clone, Copy, Debug)]
pub(super) enum Relation<'a> {
    /// They are not: the list is one value.
    Atomic,
    /// By their values.
    Set,
    /// By the values of these fields.
    Keys(&'a [Name]),
}

/// A type of maps and objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    ty: Ty<'a>,
    pub(super) atomic: bool,
    /// The type of fields that are not known; nothing if there can be none.
    pub(super) element: Option<Ty<'a>>,
}

/// What a value is, given the type of its place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Map(Fields<'a>),
    Scalar(Scalar),
    List(List<'a>),
}

/// The metadata of all kinds.
fn object_meta() -> Option<NodeRef<'static>> {
    static META: OnceLock<Option<Schema>> = OnceLock::new();
    META.get_or_init(|| builtin::type_schema("meta.v1.ObjectMeta")).as_ref().map(Schema::root)
}

/// Whether an object may be in the place of a boolean, which is published without a type.
fn takes_object(node: NodeRef<'_>) -> bool {
    node.ty() == Type::Boolean && node.alternative().is_some()
}

impl<'a> Ty<'a> {
    /// The type of whole objects of a schema.
    pub(super) fn of(schema: &'a Schema) -> Self {
        let node = schema.root();
        let builtin = node.full_type_name().is_some();
        Ty::Node { node, builtin, preserve: false, resource: !builtin }
    }

    fn below(self, node: NodeRef<'a>) -> Self {
        let (builtin, preserve) = match self {
            Ty::Node { node: above, builtin, preserve, .. } => {
                (builtin, !builtin && (preserve || above.preserves_unknown()))
            }
            _ => (false, false),
        };
        Ty::Node { node, builtin, preserve, resource: !builtin && node.is_embedded_resource() }
    }

    /// Whether only one kind of value is possible.
    fn is_single(self) -> bool {
        match self {
            Ty::Node { node, builtin, .. } => {
                !(node.ty() == Type::Any || takes_object(node)) || builtin && node.is_int_or_string()
            }
            Ty::String => true,
            Ty::Deduced | Ty::Atomic => false,
        }
    }

    fn scalar(self) -> Option<Scalar> {
        match self {
            Ty::Node { node, builtin, .. } => match (node.ty(), node.format()) {
                (Type::String, Format::None | Format::Byte) if builtin => Some(Scalar::String),
                (Type::String, Format::None | Format::Byte) if node.rules().all(|rules| rules.format.is_none()) => {
                    Some(Scalar::String)
                }
                (Type::String | Type::Any, _) => Some(Scalar::Untyped),
                (Type::Integer | Type::Number, _) => Some(Scalar::Numeric),
                (Type::Boolean, _) if takes_object(node) => Some(Scalar::Untyped),
                (Type::Boolean, _) => Some(Scalar::Boolean),
                (Type::Object | Type::Array, _) => None,
            },
            Ty::String => Some(Scalar::String),
            Ty::Deduced | Ty::Atomic => Some(Scalar::Untyped),
        }
    }

    fn list(self) -> Option<List<'a>> {
        let untyped = List { element: Ty::Atomic, relation: Relation::Atomic };
        match self {
            Ty::Node { node, .. } if matches!(node.ty(), Type::Array | Type::Any) => {
                let relation = match node.list_type() {
                    ListType::Atomic => Relation::Atomic,
                    ListType::Set => Relation::Set,
                    ListType::Map => Relation::Keys(node.list_map_keys()),
                };
                Some(node.items().map_or(untyped, |items| List { element: self.below(items), relation }))
            }
            Ty::Deduced | Ty::Atomic => Some(untyped),
            Ty::Node { .. } | Ty::String => None,
        }
    }

    fn map(self) -> Option<Fields<'a>> {
        match self {
            // Of built-in types, these are the ones whose values are bytes to upstream.
            Ty::Node { node, builtin: true, .. } if node.ty() == Type::Any || takes_object(node) => {
                Some(Fields { ty: self, atomic: true, element: Some(Ty::Atomic) })
            }
            Ty::Node { node, builtin, preserve, resource } if matches!(node.ty(), Type::Object | Type::Any) => {
                let element = match node.additional() {
                    Some(additional) => Some(self.below(additional)),
                    None if !builtin && (preserve || node.preserves_unknown()) => Some(Ty::Deduced),
                    None if node.fields().len() == 0 && !resource => Some(Ty::Deduced),
                    None => None,
                };
                Some(Fields { ty: self, atomic: node.map_type() == MapType::Atomic, element })
            }
            Ty::Deduced => Some(Fields { ty: self, atomic: false, element: Some(Ty::Deduced) }),
            Ty::Atomic => Some(Fields { ty: self, atomic: true, element: Some(Ty::Atomic) }),
            Ty::Node { .. } | Ty::String => None,
        }
    }

    /// What a value here is. What fits nothing that is possible, and `null`, is taken for a map if there can be one,
    /// else for a scalar, else for a list.
    pub(super) fn shape(self, value: Option<&Value>, depth: usize) -> Shape<'a> {
        let ty = if depth >= MAX_DEPTH { Ty::Atomic } else { self };
        let fitting = match value {
            Some(Value::Object(_)) => ty.map().map(Shape::Map),
            Some(Value::Array(_)) => ty.list().map(Shape::List),
            Some(Value::Null) | None => None,
            Some(_) => ty.scalar().map(Shape::Scalar),
        };
        let any = || ty.map().map(Shape::Map).or_else(|| ty.scalar().map(Shape::Scalar));
        fitting.or_else(any).or_else(|| ty.list().map(Shape::List)).unwrap_or(Shape::Scalar(Scalar::Untyped))
    }

    /// Whether two values are seen as of different shapes. `null` is unlike all others where several are possible.
    pub(super) fn differ(self, a: &Value, b: &Value) -> bool {
        fn class(value: &Value) -> u8 {
            match value {
                Value::Null => 0,
                Value::Object(_) => 1,
                Value::Array(_) => 2,
                _ => 3,
            }
        }
        class(a) != class(b) && !self.is_single()
    }
}

impl<'a> Fields<'a> {
    /// The type of a known field.
    pub(super) fn field(&self, name: &str) -> Option<Ty<'a>> {
        let Ty::Node { node, resource, .. } = self.ty else { return None };
        if resource {
            match name {
                "apiVersion" | "kind" => return Some(Ty::String),
                "metadata" => {
                    let meta = |node| Ty::Node { node, builtin: true, preserve: false, resource: false };
                    return object_meta().map(meta);
                }
                _ => {}
            }
        }
        node.field(name).map(|field| self.ty.below(field.node))
    }

    /// As [`at`](Fields::at), for names that come in their order: each is looked for behind the one before.
    pub(super) fn at_from(&self, from: &mut usize, name: &str) -> Option<(Ty<'a>, bool)> {
        match self.ty {
            Ty::Node { node, resource: false, .. } => match node.field_from(from, name) {
                Some(field) => Some((self.ty.below(field.node), true)),
                None => self.element.map(|ty| (ty, false)),
            },
            _ => self.at(name),
        }
    }

    /// The type of a field, and whether it is a known one.
    pub(super) fn at(&self, name: &str) -> Option<(Ty<'a>, bool)> {
        self.field(name).map(|ty| (ty, true)).or_else(|| self.element.map(|ty| (ty, false)))
    }

    /// Whether there are no known fields, and the others can be anything.
    pub(super) fn is_deduced(&self) -> bool {
        let known = match self.ty {
            Ty::Node { node, resource, .. } => resource || node.fields().len() > 0,
            _ => false,
        };
        let free = match self.element {
            Some(Ty::Deduced) => true,
            Some(ty) => ty.scalar() == Some(Scalar::Untyped),
            None => false,
        };
        free && !known
    }
}

static EMPTY: Value = Value::String(Str::const_new(""));

impl<'a> List<'a> {
    /// The path element of an element.
    pub(super) fn path_element(&self, item: &Value) -> Result<PathElement, String> {
        match self.relation {
            Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            Relation::Keys(keys) => self.keyed(keys, item),
            Relation::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(PathElement::Value(Box::new(scalar.clone()))),
            },
        }
    }

    /// Whether two elements have the same keys, as they are written: one that lacks a key which the other writes out as
    /// its default is taken for another.
    pub(super) fn has_same_keys(&self, a: &Value, b: &Value) -> bool {
        match self.relation {
            Relation::Atomic => false,
            Relation::Keys(keys) => keys.iter().all(|key| a.get(key) == b.get(key)),
            Relation::Set => a == b,
        }
    }

    fn keyed(&self, keys: &[Name], item: &Value) -> Result<PathElement, String> {
        let map = match item {
            Value::Object(map) => map,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut fields = Vec::with_capacity(keys.len());
        for key in keys {
            let value = map.get(key).or_else(|| self.key_default(key));
            fields.extend(value.map(|value| (Str::from(key.as_str()), value.clone())));
        }
        if fields.is_empty() && !keys.is_empty() {
            let keys: Vec<_> = keys.iter().map(|key| crate::go::quote(key)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                keys.join(" ")
            ));
        }
        if !fields.is_sorted_by(|(a, _), (b, _)| a <= b) {
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        Ok(PathElement::Key(fields.into()))
    }

    /// What a key field is that is not there.
    fn key_default(&self, key: &str) -> Option<&'a Value> {
        match self.element {
            // An empty name is one, though it is never written.
            Ty::Node { node, builtin: true, .. } if node.full_type_name() == Some("core.v1.LocalObjectReference") => {
                Some(&EMPTY)
            }
            Ty::Node { node, .. } => node.field(key)?.node.default(),
            _ => None,
        }
    }
}
