//! The functions there are: a table of names, overloads and types.

use std::{collections::HashMap, sync::LazyLock};

use crate::types::{self, Type};

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub(crate) id: &'static str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
}

/// All ways to call a function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) overloads: Vec<Overload>,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut all: HashMap<&'static str, Function> = HashMap::new();
    for line in include_str!("library.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().expect("a line of the table has four columns");
        let (name, id, args, result) = (next(), next(), next(), next());
        let (name, member) = name.strip_prefix('.').map_or((name, false), |name| (name, true));
        let args = args.split(',').filter(|arg| !arg.is_empty()).map(types::parse).collect();
        let overload = Overload { id, member, args, result: types::parse(result) };
        all.entry(name).or_insert_with(|| Function { name, overloads: Vec::new() }).overloads.push(overload);
    }
    all
});

/// The function of that name.
pub(crate) fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.get(name.strip_prefix('.').unwrap_or(name))
}

/// The type that a name stands for in expressions.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    Some(match name.strip_prefix('.').unwrap_or(name) {
        "bool" => Type::Bool,
        "bytes" => Type::Bytes,
        "double" => Type::Double,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "string" => Type::String,
        "null_type" => Type::Null,
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(None),
        "google.protobuf.Duration" => Type::Duration,
        "google.protobuf.Timestamp" => Type::Timestamp,
        "net.IP" => types::parse("IP"),
        "net.CIDR" => types::parse("CIDR"),
        types::OPTIONAL => Type::optional(Type::Dyn),
        _ => return None,
    })
}
