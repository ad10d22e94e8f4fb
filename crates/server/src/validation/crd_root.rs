//! What the schema of a whole custom resource may say.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
};

use super::{
    internal,
    read::{object, text},
};

/// What may be said of a whole object whose status is a resource of its own: the schema of the status stands alone too.
const AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Says the first of what may not be said there.
pub(super) fn root(schema: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    const WHEN: &str = "at the root of the schema if the status subresource is enabled";
    let Some(schema) = object(schema, "openAPIV3Schema") else { return };
    for (name, key, _) in internal::fields("JSONSchemaProps") {
        let set = match schema.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(value) => value.as_str() != Some(""),
        };
        if !set || AT_ROOT.contains(name) && (*name != "Type" || text(schema, "type") == "object") {
            continue;
        }
        errors.push(if *name == "Type" {
            let detail = format!("only \"object\" is allowed as the type {WHEN}");
            Error::invalid(path.child("openAPIV3Schema.type"), text(schema, "type"), detail)
        } else {
            let detail = format!("only [{}] fields are allowed {WHEN}", AT_ROOT.join(" "));
            Error::invalid_shown(path.child("openAPIV3Schema"), internal::show("JSONSchemaProps", schema), detail)
        });
        return;
    }
}

/// Whether a schema says somewhere what a field is when it is not set.
pub(super) fn has_default(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.iter().any(|(key, value)| match key {
            "default" => !value.is_null(),
            // What stands there are names of fields.
            "properties" => value.as_object().is_some_and(|fields| fields.iter().any(|(_, field)| has_default(field))),
            "enum" | "example" => false,
            _ => has_default(value),
        }),
        Value::Array(items) => items.iter().any(has_default),
        _ => false,
    }
}
