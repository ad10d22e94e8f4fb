//! The types that mutating policies make: what they would have of an object, and patches.

use crate::types::Type;

const OBJECT: &str = "Object";
const PATCH: &str = "JSONPatch";

/// The name of the type that upstream gives the fields that a patch does not have.
pub(crate) const NO_TYPE: &str = "";

fn is_object(name: &str) -> bool {
    name.strip_prefix(OBJECT).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The type of that name: a patch, the object, or a part of it by its path, such as `Object.spec`.
pub(crate) fn type_named(name: &str) -> Option<Type> {
    (name == PATCH || is_object(name)).then(|| Type::Struct(name.into()))
}

/// The type of a field. Without a schema all fields of objects are there.
pub(crate) fn field(name: &str, field: &str) -> Option<Type> {
    match field {
        _ if is_object(name) => Some(Type::Dyn),
        _ if name != PATCH => None,
        "op" | "path" | "from" => Some(Type::String),
        "value" => Some(Type::Dyn),
        _ => Some(Type::Struct(NO_TYPE.into())),
    }
}

impl Type {
    /// What a mutating policy would have of an object.
    #[must_use]
    pub fn applied() -> Type {
        Type::Struct(OBJECT.into())
    }

    /// What a mutating policy would change of an object, step by step.
    #[must_use]
    pub fn patches() -> Type {
        Type::list(Type::Struct(PATCH.into()))
    }
}
