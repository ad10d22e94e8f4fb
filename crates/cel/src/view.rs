//! Objects as expressions see them: JSON values with the types that a schema gives them.

use std::rc::Rc;

use capstan_api::{
    Array, Map as JsonMap, Name, Value,
    schema::{Format, ListType, NodeRef, Type},
};

use crate::{
    decl,
    escape::{escape, unescape},
    functions::{net, time},
    value::{EvalError, List, Map, Outcome, Text, Val},
};

/// What is known of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// Nothing: it is what its JSON is.
    Plain,
    /// What a schema says.
    Node(NodeRef<'a>),
    /// What a schema says of a whole object, which has a kind and a name in any case.
    Whole(NodeRef<'a>),
    /// That it is an object's metadata, of which only the names can be used.
    Meta,
    /// That it is a string.
    Text,
}

/// A list of an object.
#[derive(Clone, Copy, Debug)]
pub struct ListView<'a> {
    pub(crate) items: &'a Array,
    pub(crate) shape: Shape<'a>,
}

/// A map or an object in an object.
#[derive(Clone, Copy, Debug)]
pub struct MapView<'a> {
    pub(crate) map: &'a JsonMap,
    pub(crate) shape: Shape<'a>,
}

impl<'a> Shape<'a> {
    fn node(self) -> Option<NodeRef<'a>> {
        match self {
            Shape::Node(node) | Shape::Whole(node) => Some(node),
            _ => None,
        }
    }

    /// A whole object that says itself that it has a kind and a name is like any other.
    fn settle(self) -> Self {
        match self {
            Shape::Whole(node) if decl::has_type_and_meta(node) => Shape::Node(node),
            Shape::Node(node) if node.is_embedded_resource() && !decl::has_type_and_meta(node) => Shape::Whole(node),
            other => other,
        }
    }

    /// Whether it is an object with known fields, whose names are spelled as identifiers.
    fn has_fields(self) -> bool {
        match self {
            Shape::Plain | Shape::Text => false,
            Shape::Whole(_) | Shape::Meta => true,
            Shape::Node(node) => node.fields().len() > 0,
        }
    }

    fn property(self, name: &str) -> Option<Shape<'a>> {
        match self {
            Shape::Plain => Some(Shape::Plain),
            Shape::Text => None,
            Shape::Meta => matches!(name, "name" | "generateName").then_some(Shape::Text),
            Shape::Whole(_) if matches!(name, "kind" | "apiVersion") => Some(Shape::Text),
            Shape::Whole(_) if name == "metadata" => Some(Shape::Meta),
            Shape::Whole(node) => node.field(name).map(|field| Shape::Node(field.node)),
            Shape::Node(node) if self.has_fields() => node.field(name).map(|field| Shape::Node(field.node)),
            Shape::Node(node) => decl::map_values(node).map(Shape::Node),
        }
    }
}

fn wrong<'a>(message: impl Into<String>) -> Outcome<'a> {
    Err(EvalError::new(message))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A JSON value as expressions see it.
///
/// # Errors
/// It is not what its schema says.
pub fn view<'a>(value: &'a Value, shape: Shape<'a>) -> Result<Val<'a>, EvalError> {
    let node = match shape.settle() {
        Shape::Plain => return Ok(plain(value)),
        Shape::Text => {
            return match value {
                Value::Null => wrong("invalid data, got null for schema with nullable=false"),
                Value::String(text) => Ok(Val::String(Text::Borrowed(text))),
                other => wrong(format!("invalid data, expected string, got {}", go_type(other))),
            };
        }
        Shape::Meta => {
            return match value {
                Value::Null => wrong("invalid data, got null for schema with nullable=false"),
                Value::Object(map) => Ok(Val::Map(Map::View(MapView { map, shape: Shape::Meta }))),
                _ => wrong("invalid data, expected a map for the provided schema with type=object"),
            };
        }
        Shape::Node(node) | Shape::Whole(node) => node,
    };
    if value.is_null() {
        return if node.is_nullable() {
            Ok(Val::Null)
        } else {
            wrong("invalid data, got null for schema with nullable=false")
        };
    }
    if node.is_int_or_string() {
        return match value {
            Value::String(text) => Ok(Val::String(Text::Borrowed(text))),
            Value::Int(n) => Ok(Val::Int(*n)),
            _ => wrong("invalid data, expected XIntOrString value to be either a string or integer"),
        };
    }
    match (node.ty(), value) {
        (Type::Object, Value::Object(map)) => Ok(Val::Map(Map::View(MapView { map, shape: shape.settle() }))),
        (Type::Object, _) => wrong("invalid data, expected a map for the provided schema with type=object"),
        (Type::Array, Value::Array(_)) if node.items().is_none() => {
            wrong("invalid array type, expected Items with a non-empty Schema")
        }
        (Type::Array, Value::Array(items)) => Ok(Val::List(List::View(ListView { items, shape: Shape::Node(node) }))),
        (Type::Array, _) => wrong("invalid data, expected an array for the provided schema with type=array"),
        (Type::String, Value::String(text)) => string(text, decl::format(node)),
        (Type::String, other) => wrong(format!("invalid data, expected string, got {}", go_type(other))),
        #[expect(clippy::cast_precision_loss, reason = "that is what a number is")]
        (Type::Number, Value::Int(n)) => Ok(Val::Double(*n as f64)),
        (Type::Number, Value::Float(d)) => Ok(Val::Double(*d)),
        (Type::Number, other) => wrong(format!("invalid data, expected float, got {}", go_type(other))),
        (Type::Integer, Value::Int(n)) => Ok(Val::Int(*n)),
        (Type::Integer, other) => wrong(format!("invalid data, expected int, got {}", go_type(other))),
        (Type::Boolean, Value::Bool(b)) => Ok(Val::Bool(*b)),
        (Type::Boolean, other) => wrong(format!("invalid data, expected bool, got {}", go_type(other))),
        (Type::Any, value) if node.preserves_unknown() => Ok(Val::Preserved(value)),
        (Type::Any, _) => wrong(
            "invalid type, expected object, array, number, integer, boolean or string, or no type with \
             x-kubernetes-int-or-string or x-kubernetes-preserve-unknown-fields is true, got ",
        ),
    }
}

fn string<'a>(text: &'a str, format: Format) -> Outcome<'a> {
    match format {
        Format::Duration => match time::open_api_duration(text) {
            Ok(nanos) => Ok(Val::Duration(nanos)),
            Err(error) => wrong(format!("Invalid duration {text}: {error}")),
        },
        Format::Date => match time::parse_date(text) {
            Ok(stamp) => Ok(Val::Timestamp(stamp)),
            Err(error) => wrong(format!("Invalid date formatted string {text}: {error}")),
        },
        Format::DateTime | Format::MicroTime => match time::open_api_date_time(text) {
            Ok(stamp) => Ok(Val::Timestamp(stamp)),
            Err(error) => wrong(format!("Invalid date-time formatted string {text}: {error}")),
        },
        Format::Byte => match net::base64(text) {
            Some(bytes) => Ok(Val::Bytes(bytes.into())),
            None => wrong(format!("Invalid byte formatted string {text}: illegal base64 data")),
        },
        _ => Ok(Val::String(Text::Borrowed(text))),
    }
}

fn plain(value: &Value) -> Val<'_> {
    match value {
        Value::Null => Val::Null,
        Value::Bool(b) => Val::Bool(*b),
        Value::Int(n) => Val::Int(*n),
        Value::Float(d) => Val::Double(*d),
        Value::String(text) => Val::String(Text::Borrowed(text)),
        Value::Array(items) => Val::List(List::View(ListView { items, shape: Shape::Plain })),
        Value::Object(map) => Val::Map(Map::View(MapView { map, shape: Shape::Plain })),
    }
}

impl<'a> ListView<'a> {
    fn item_shape(&self) -> Shape<'a> {
        self.shape.node().and_then(NodeRef::items).map_or(Shape::Plain, Shape::Node)
    }

    pub(crate) fn get(&self, index: usize) -> Option<Outcome<'a>> {
        self.items.get(index).map(|item| view(item, self.item_shape()))
    }

    pub(crate) fn list_type(&self) -> ListType {
        self.shape.node().map_or(ListType::Atomic, NodeRef::list_type)
    }

    /// The fields by which elements are told apart.
    pub(crate) fn keys(&self) -> Vec<&'a str> {
        self.shape.node().map_or(&[][..], NodeRef::list_map_keys).iter().map(Name::as_str).collect()
    }
}

impl<'a> MapView<'a> {
    pub(crate) fn find(&self, key: &Val<'_>) -> Option<Outcome<'a>> {
        let Some(name) = key.as_str() else {
            return if matches!(self.shape, Shape::Plain) { None } else { Some(Err(EvalError::no_overload())) };
        };
        let fields = self.shape.has_fields();
        let name = if fields { unescape(name)? } else { name.into() };
        let value = self.map.get(&name)?;
        if fields && value.is_null() {
            return None;
        }
        self.shape.property(&name).map(|shape| view(value, shape))
    }

    pub(crate) fn keys(&self) -> Vec<Val<'a>> {
        let fields = self.shape.has_fields();
        let known = self.map.iter().filter(|(name, _)| self.shape.property(name).is_some());
        known
            .map(|(name, _)| match escape(name).filter(|_| fields) {
                Some(std::borrow::Cow::Owned(escaped)) => Val::text(Rc::from(escaped)),
                _ => Val::String(Text::Borrowed(name)),
            })
            .collect()
    }

    /// Whether a key is one that the schema knows.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.shape.property(name).is_some()
    }
}
