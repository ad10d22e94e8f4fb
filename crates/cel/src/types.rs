//! The types of expressions.

use std::sync::Arc;

use crate::decl::{DeclId, Decls};

/// A type.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each is the type of that name")]
pub enum Type {
    /// Whatever it is: decided at run time.
    Dyn,
    /// Whatever it is, but only one of it: not a list or a map.
    Any,
    /// That of an expression with an error in it.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    /// An object with fields that a schema declares.
    Object(DeclId),
    /// An object of a library, such as `kubernetes.Quantity`.
    Struct(Arc<str>),
    /// A type of its own, such as `net.IP` and `optional_type`.
    Opaque(Arc<str>, Arc<[Type]>),
    /// The type of a type.
    Type(Option<Arc<Type>>),
    /// A type that is found out while checking.
    Param(u32),
    /// A type parameter of an overload.
    Letter(char),
}

/// The name of optionals.
pub(crate) const OPTIONAL: &str = "optional_type";

impl Type {
    /// A list of these.
    #[must_use]
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// A map from these to those.
    #[must_use]
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// One of these or nothing.
    #[must_use]
    pub fn optional(of: Type) -> Type {
        Type::Opaque(OPTIONAL.into(), [of].into())
    }

    /// What an optional is of.
    pub(crate) fn unwrap_optional(&self) -> Option<&Type> {
        match self {
            Type::Opaque(name, params) if **name == *OPTIONAL => params.first(),
            _ => None,
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// The types inside.
    pub(crate) fn params(&self) -> Vec<&Type> {
        match self {
            Type::List(item) => vec![item],
            Type::Map(both) => vec![&both.0, &both.1],
            Type::Opaque(_, params) => params.iter().collect(),
            Type::Type(Some(of)) => vec![of],
            _ => Vec::new(),
        }
    }

    /// Rebuilds the type with the types inside changed.
    pub(crate) fn with_params(&self, mut change: impl FnMut(&Type) -> Type) -> Type {
        match self {
            Type::List(item) => Type::list(change(item)),
            Type::Map(both) => Type::map(change(&both.0), change(&both.1)),
            Type::Opaque(name, params) => Type::Opaque(name.clone(), params.iter().map(change).collect()),
            Type::Type(Some(of)) => Type::Type(Some(Arc::new(change(of)))),
            other => other.clone(),
        }
    }

    /// Whether the type is made of at most so many types.
    pub(crate) fn is_within(&self, most: usize) -> bool {
        let (mut todo, mut seen) = (vec![self], 0);
        while let Some(ty) = todo.pop() {
            seen += 1;
            if seen > most {
                return false;
            }
            todo.extend(ty.params());
        }
        true
    }

    /// How messages about types show it.
    pub(crate) fn show(&self, decls: &Decls) -> String {
        match self {
            Type::Duration => "duration".to_owned(),
            Type::Timestamp => "timestamp".to_owned(),
            Type::Null => "null".to_owned(),
            Type::Error => "!error!".to_owned(),
            Type::Any => "any".to_owned(),
            other => other.print(decls, Type::show),
        }
    }

    /// The declared name, as results are described.
    pub(crate) fn declared(&self, decls: &Decls) -> String {
        match self {
            Type::Duration => "google.protobuf.Duration".to_owned(),
            Type::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Type::Null => "null_type".to_owned(),
            Type::Error => "error".to_owned(),
            Type::Any => "google.protobuf.Any".to_owned(),
            other => other.print(decls, Type::declared),
        }
    }

    fn print(&self, decls: &Decls, inner: fn(&Type, &Decls) -> String) -> String {
        let name = match self {
            Type::Dyn => "dyn",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Type(_) => "type",
            Type::Object(id) => &decls.name(*id),
            Type::Struct(name) | Type::Opaque(name, _) => name,
            Type::Param(number) => &format!("_var{number}"),
            Type::Letter(letter) => &letter.to_string(),
            Type::Duration | Type::Timestamp | Type::Null | Type::Error | Type::Any => "",
        };
        let params = self.params();
        if params.is_empty() {
            return name.to_owned();
        }
        let params: Vec<String> = params.into_iter().map(|param| inner(param, decls)).collect();
        format!("{name}({})", params.join(", "))
    }
}

/// Reads a type as the library's table writes it.
pub(crate) fn parse(text: &str) -> Type {
    let (name, inside) = match text.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').expect("the table closes its parentheses")),
        None => (text, ""),
    };
    match name {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "list" => Type::list(parse(inside)),
        "map" => {
            let (key, value) = inside.split_once(':').expect("a map has a key and a value");
            Type::map(parse(key), parse(value))
        }
        "optional" => Type::optional(parse(inside)),
        "type" => Type::Type(Some(Arc::new(parse(inside)))),
        "IP" => Type::Opaque("net.IP".into(), [].into()),
        "CIDR" => Type::Opaque("net.CIDR".into(), [].into()),
        "URL" | "Quantity" | "Semver" | "NamedFormat" => Type::Struct(format!("kubernetes.{name}").into()),
        "Authorizer" | "PathCheck" | "GroupCheck" | "ResourceCheck" | "Decision" => {
            Type::Struct(format!("kubernetes.authorization.{name}").into())
        }
        letter => Type::Letter(letter.chars().next().expect("the table names types")),
    }
}
