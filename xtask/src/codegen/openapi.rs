//! Types out of OpenAPI v3: fields, types, defaults, list types, patch strategies, unions.

use capstan_api::{
    Map, Value,
    builtin::text::{Field, short_name},
    json,
};

use super::{
    model::{Table, Type},
    source::Source,
};

/// Types that the table knows as scalars.
const SCALARS: [(&str, &str); 10] = [
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "raw"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "micro-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "raw"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "json"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "schema-or-list"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "schema-or-bool"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "schema-or-strings"),
];

/// The body of a patch request, which is no type of its own.
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// Adds all types.
pub(crate) fn read(source: &Source, table: &mut Table) -> Result<(), String> {
    for document in &source.openapi {
        let schemas = document.get("components").and_then(|c| c.get("schemas")).and_then(Value::as_object);
        for (name, schema) in schemas.ok_or("an OpenAPI document without components.schemas")?.iter() {
            if name == PATCH || SCALARS.iter().any(|(scalar, _)| *scalar == name) {
                continue;
            }
            let ty = read_type(schema).map_err(|error| format!("{name}: {error}"))?;
            table.types.insert(short_name(name).ok_or_else(|| format!("{name} is in no known package"))?, ty);
        }
    }
    Ok(())
}

fn read_type(schema: &Value) -> Result<Type, String> {
    let mut ty = Type {
        kind: schema.get("x-kubernetes-group-version-kind").is_some(),
        atomic: text(schema, "x-kubernetes-map-type") == Some("atomic"),
        ..Type::default()
    };
    let required: Vec<&str> = strings(schema, "required");
    for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::iter) {
        let field = read_field(name, schema).map_err(|error| format!("{name}: {error}"))?;
        ty.fields.insert(field.name, Field { required: required.contains(&name), ..field });
    }
    for union in schema.get("x-kubernetes-unions").and_then(Value::as_array).into_iter().flatten() {
        let fields = union.get("fields-to-discriminateBy").and_then(Value::as_object);
        let fields = fields.into_iter().flat_map(Map::iter);
        let fields = fields.filter_map(|(field, value)| Some(format!(" {field}:{}", value.as_str()?)));
        ty.unions.push(text(union, "discriminator").unwrap_or("-").to_owned() + &fields.collect::<String>());
    }
    Ok(ty)
}

fn read_field(name: &str, schema: &Value) -> Result<Field<'static>, String> {
    let mut enumeration = None;
    let ty = type_text(schema, &mut enumeration)?;
    let keys = strings(schema, "x-kubernetes-list-map-keys").join(",");
    let list = text(schema, "x-kubernetes-list-type");
    Ok(Field {
        name: leak(name),
        number: "-",
        ty: leak(ty),
        default: schema.get("default").map(|value| leak(json::to_string(value))),
        list: list.map(|list| if keys.is_empty() { leak(list) } else { leak(format!("{list}:{keys}")) }),
        map: text(schema, "x-kubernetes-map-type").map(leak),
        patch: text(schema, "x-kubernetes-patch-strategy").map(leak),
        key: text(schema, "x-kubernetes-patch-merge-key").map(leak),
        enumeration: enumeration.map(leak),
        ..Field::default()
    })
}

/// The type as the table writes it; `enumeration` gets the values there are, if they are listed here or in the
/// elements.
fn type_text(schema: &Value, enumeration: &mut Option<String>) -> Result<String, String> {
    let all_of = schema.get("allOf").and_then(Value::as_array).and_then(|all| all.first());
    if let Some(reference) = all_of.or(Some(schema)).and_then(|schema| text(schema, "$ref")) {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return match SCALARS.iter().find(|(scalar, _)| *scalar == name) {
            Some((_, ty)) => Ok((*ty).to_owned()),
            None => short_name(name).ok_or_else(|| format!("{name} is in no known package")),
        };
    }
    if let Some(values) = schema.get("enum") {
        *enumeration = Some(json::to_string(values));
    }
    Ok(match (text(schema, "type"), text(schema, "format")) {
        (Some("array"), _) => "[]".to_owned() + &type_text(child(schema, "items")?, enumeration)?,
        (Some("object"), _) => "{}".to_owned() + &type_text(child(schema, "additionalProperties")?, enumeration)?,
        (Some("string"), None) => "string".to_owned(),
        (Some("string"), Some("byte")) => "bytes".to_owned(),
        (Some("integer"), Some(format @ ("int32" | "int64"))) => format.to_owned(),
        (Some("number"), Some("double")) => "double".to_owned(),
        (Some("boolean"), None) => "bool".to_owned(),
        other => return Err(format!("type and format {other:?}")),
    })
}

fn child<'a>(schema: &'a Value, name: &str) -> Result<&'a Value, String> {
    schema.get(name).ok_or_else(|| format!("no {name}"))
}

pub(crate) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

pub(crate) fn strings<'a>(value: &'a Value, name: &str) -> Vec<&'a str> {
    value.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The tool runs for a moment; its strings may live until its end.
pub(crate) fn leak(text: impl Into<String>) -> &'static str {
    text.into().leak()
}
