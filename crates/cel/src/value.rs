//! Values at run time. What comes from objects is looked at where it is, not copied.

use std::{collections::BTreeMap, fmt, ops::Deref, rc::Rc};

use capstan_api::{Quantity, Value, go};

use crate::{
    functions::{authz::AuthzVal, formats::NamedFormat, net::Cidr, semver::Version, time::Stamp, urls::Url},
    view::{ListView, MapView},
};

/// Why an evaluation gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvalError {
    /// Something in the expression does not work out; `&&`, `||` and the like may go on without it.
    Failed(Rc<str>),
    /// The evaluation cost more than it may.
    CostLimit,
}

impl EvalError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        EvalError::Failed(message.into().into())
    }

    pub(crate) fn no_overload() -> Self {
        EvalError::new("no such overload")
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvalError::Failed(message) => message,
            EvalError::CostLimit => "operation cancelled: actual cost limit exceeded",
        })
    }
}

impl std::error::Error for EvalError {}

/// A value, or why there is none.
pub(crate) type Outcome<'a> = Result<Val<'a>, EvalError>;

/// A string: part of an object or of the expression, or made by it.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// Part of something else.
    Borrowed(&'a str),
    /// Made.
    Shared(Rc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

/// A key of a map, such that equal keys are equal: `1`, `1u` and `1.0` are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    Bool(bool),
    Number(i128),
    Double(u64),
    String(String),
    Other(String),
}

impl Key {
    pub(crate) fn of(value: &Val<'_>) -> Key {
        match value {
            Val::Bool(b) => Key::Bool(*b),
            Val::Int(n) => Key::Number((*n).into()),
            Val::Uint(n) => Key::Number((*n).into()),
            #[expect(clippy::cast_possible_truncation, reason = "whole numbers of that size fit")]
            Val::Double(d) if d.fract() == 0.0 && d.abs() < 1e30 => Key::Number(*d as i128),
            Val::Double(d) => Key::Double(d.to_bits()),
            Val::String(text) => Key::String(text.to_string()),
            other => Key::Other(other.show()),
        }
    }
}

/// A list.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Made by the expression.
    Made(Rc<Vec<Val<'a>>>),
    /// Part of an object.
    View(ListView<'a>),
}

/// The entries of a map that an expression made.
pub(crate) type Entries<'a> = BTreeMap<Key, (Val<'a>, Val<'a>)>;

/// A map or an object.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Made by the expression.
    Made(MadeMap<'a>),
    /// The same, with a value for every key that is not there.
    Defaulted(MadeMap<'a>, Rc<Val<'a>>),
    /// Part of an object.
    View(MapView<'a>),
}

/// A map that an expression made.
#[derive(Clone, Debug)]
pub struct MadeMap<'a>(pub(crate) Rc<Entries<'a>>);

/// A value.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is of the type of that name")]
pub enum Val<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Rc<[u8]>),
    /// In nanoseconds.
    Duration(i64),
    Timestamp(Stamp),
    List(List<'a>),
    Map(Map<'a>),
    /// A type, by its name.
    Type(Rc<str>),
    Optional(Option<Rc<Val<'a>>>),
    Quantity(Rc<Quantity>),
    Semver(Rc<Version>),
    Url(Rc<Url>),
    Ip(std::net::IpAddr),
    Cidr(Cidr),
    Format(NamedFormat),
    Authz(Rc<AuthzVal<'a>>),
    /// Something that a schema keeps without saying what it is.
    Preserved(&'a Value),
}

impl<'a> Val<'a> {
    /// A string of the expression's own making.
    #[must_use]
    pub fn text(text: impl Into<Rc<str>>) -> Self {
        Val::String(Text::Shared(text.into()))
    }

    /// A list.
    #[must_use]
    pub fn list(items: Vec<Val<'a>>) -> Self {
        Val::List(List::Made(Rc::new(items)))
    }

    /// A map.
    #[must_use]
    pub fn map(entries: impl IntoIterator<Item = (Val<'a>, Val<'a>)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (Key::of(&key), (key, value))).collect();
        Val::Map(Map::Made(MadeMap(Rc::new(entries))))
    }

    /// A map that gives `default` for every key that it does not have; `in` tells which it has.
    #[must_use]
    pub fn map_with_default(entries: impl IntoIterator<Item = (Val<'a>, Val<'a>)>, default: Val<'a>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (Key::of(&key), (key, value))).collect();
        Val::Map(Map::Defaulted(MadeMap(Rc::new(entries)), Rc::new(default)))
    }

    /// A semantic version.
    ///
    /// # Errors
    /// Says why it is none.
    pub fn semver(text: &str) -> Result<Self, String> {
        crate::functions::semver::parse(text).map(|version| Val::Semver(Rc::new(version)))
    }

    /// Something, as an optional.
    #[must_use]
    pub fn some(value: Val<'a>) -> Self {
        Val::Optional(Some(Rc::new(value)))
    }

    /// The name of the type at run time.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Val::Null => "null_type",
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::Uint(_) => "uint",
            Val::Double(_) => "double",
            Val::String(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::Duration(_) => "google.protobuf.Duration",
            Val::Timestamp(_) => "google.protobuf.Timestamp",
            Val::List(_) => "list",
            Val::Map(_) => "map",
            Val::Type(_) => "type",
            Val::Optional(_) => "optional_type",
            Val::Quantity(_) => "kubernetes.Quantity",
            Val::Semver(_) => "kubernetes.Semver",
            Val::Url(_) => "kubernetes.URL",
            Val::Ip(_) => "net.IP",
            Val::Cidr(_) => "net.CIDR",
            Val::Format(_) => "kubernetes.NamedFormat",
            Val::Authz(value) => value.type_name(),
            Val::Preserved(_) => "unknown",
        }
    }

    /// What `size` says, for what has a size.
    pub(crate) fn size(&self) -> Option<u64> {
        Some(match self {
            Val::String(text) => text.chars().count() as u64,
            Val::Bytes(bytes) => bytes.len() as u64,
            Val::List(list) => list.len() as u64,
            Val::Map(map) => map.len() as u64,
            Val::Ip(ip) => {
                if ip.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Val::Cidr(cidr) => u64::from(cidr.bits.div_ceil(8)),
            _ => return None,
        })
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Val::String(text) => Some(text),
            _ => None,
        }
    }

    /// How messages show it.
    pub(crate) fn show(&self) -> String {
        match self {
            Val::Null => "NULL_VALUE".to_owned(),
            Val::Bool(b) => b.to_string(),
            Val::Int(n) => n.to_string(),
            Val::Uint(n) => n.to_string(),
            Val::Double(d) => go_float(*d),
            Val::String(text) => text.to_string(),
            Val::Bytes(bytes) => {
                format!("[{}]", bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(" "))
            }
            Val::Duration(nanos) => capstan_api::Duration(*nanos).to_string(),
            Val::Timestamp(stamp) => stamp.show(),
            Val::Type(name) => name.to_string(),
            Val::Optional(None) => "optional.none()".to_owned(),
            Val::Optional(Some(value)) => format!("optional({})", value.show()),
            other => other.type_name().to_owned(),
        }
    }
}

/// A number as Go's `%g` and `%v` print it.
pub(crate) fn go_float(d: f64) -> String {
    go::float(d)
}

impl<'a> List<'a> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            List::Made(items) => items.len(),
            List::View(view) => view.items.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<Outcome<'a>> {
        match self {
            List::Made(items) => items.get(index).cloned().map(Ok),
            List::View(view) => view.get(index),
        }
    }

    /// All elements.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Outcome<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// All elements, or the first error among them.
    pub(crate) fn all(&self) -> Result<Vec<Val<'a>>, EvalError> {
        self.iter().collect()
    }
}

impl<'a> Map<'a> {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Map::Made(map) | Map::Defaulted(map, _) => map.0.len(),
            Map::View(view) => view.map.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value under a key.
    pub(crate) fn find(&self, key: &Val<'_>) -> Option<Outcome<'a>> {
        match self {
            Map::Made(map) => map.0.get(&Key::of(key)).map(|(_, value)| Ok(value.clone())),
            Map::Defaulted(map, default) => {
                Some(Ok(map.0.get(&Key::of(key)).map_or_else(|| Val::clone(default), |(_, value)| value.clone())))
            }
            Map::View(view) => view.find(key),
        }
    }

    /// Whether there is something under a key.
    pub(crate) fn contains(&self, key: &Val<'_>) -> Result<bool, EvalError> {
        match self {
            Map::Made(map) | Map::Defaulted(map, _) => Ok(map.0.contains_key(&Key::of(key))),
            Map::View(view) => view.find(key).transpose().map(|found| found.is_some()),
        }
    }

    /// The keys.
    pub(crate) fn keys(&self) -> Vec<Val<'a>> {
        match self {
            Map::Made(map) | Map::Defaulted(map, _) => map.0.values().map(|(key, _)| key.clone()).collect(),
            Map::View(view) => view.keys(),
        }
    }
}
