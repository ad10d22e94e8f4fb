//! Custom resources, their definitions, and what configures admission.

use std::collections::BTreeSet;

use capstan_api::{Map, Value, go, validation::is_qualified_name};

use crate::validation::read;

/// Finalizers that need no domain.
const FINALIZERS: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
/// The formats of strings that mean something, without hyphens.
const FORMATS: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Finalizers that were added and have no domain. For objects of custom kinds.
pub(super) fn custom_resource(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    let finalizers = |object| -> BTreeSet<&str> {
        read::list(read::at(object, "metadata"), "finalizers").iter().filter_map(Value::as_str).collect()
    };
    let known = old.map(finalizers).unwrap_or_default();
    for finalizer in finalizers(object).into_iter().filter(|finalizer| !known.contains(finalizer)) {
        let shown = go::quote(finalizer);
        for message in is_qualified_name(finalizer) {
            out.push(format!("metadata.finalizers: {shown}: {message}"));
        }
        if !finalizer.contains('/') && !FINALIZERS.contains(&finalizer) {
            let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
            out.push(format!(
                "metadata.finalizers: {shown}: prefer a domain-qualified finalizer name{path} to avoid accidental \
                 conflicts with other finalizer writers"
            ));
        }
    }
}

/// Formats in the schemas of a definition that mean nothing and were not there before.
pub(super) fn definition(object: &Map, old: Option<&Map>, out: &mut Vec<String>) {
    let known: BTreeSet<_> = old.map(unknown_formats).unwrap_or_default().into_iter().collect();
    for format in unknown_formats(object).into_iter().filter(|format| !known.contains(format)) {
        out.push(format!("unrecognized format {}", go::quote(format)));
    }
}

fn unknown_formats(definition: &Map) -> Vec<&str> {
    let mut formats = Vec::new();
    for (_, version) in read::objects(read::at(definition, "spec"), "versions") {
        let mut work: Vec<&Map> = read::object(read::at(version, "schema"), "openAPIV3Schema").into_iter().collect();
        while let Some(schema) = work.pop() {
            let (format, ty) = (read::text(schema, "format"), read::text(schema, "type"));
            let known = match ty {
                "" | "string" => FORMATS.contains(&format.replace('-', "").as_str()),
                "integer" => matches!(format, "int32" | "int64"),
                "number" => matches!(format, "float" | "double"),
                // Formats of other types are not looked at.
                _ => true,
            };
            if !format.is_empty() && !known {
                formats.push(format);
            }
            // What is pushed last is looked at first.
            let first = work.len();
            children(schema, &mut work);
            work[first..].reverse();
        }
    }
    formats
}

/// The schemas within a schema, in the order in which they are looked at.
fn children<'a>(schema: &'a Map, out: &mut Vec<&'a Map>) {
    let one = |key| schema.get(key).and_then(Value::as_object);
    let list = |key| read::list(schema, key).iter().filter_map(Value::as_object);
    let map = |key| read::at(schema, key).values().filter_map(Value::as_object);
    out.extend(one("items"));
    out.extend(list("items").chain(list("allOf")).chain(list("anyOf")).chain(list("oneOf")));
    out.extend(one("not"));
    out.extend(map("properties"));
    out.extend(one("additionalProperties"));
    out.extend(map("patternProperties"));
    out.extend(one("additionalItems"));
    out.extend(map("definitions").chain(map("dependencies")));
}

/// Names that belong to configuration from files.
pub(super) fn static_suffix(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    const SUFFIX: &str = ".static.k8s.io";
    if read::text(read::at(object, "metadata"), "name").ends_with(SUFFIX) {
        out.push(format!(
            "metadata.name: names ending with \"{SUFFIX}\" are reserved for static manifest-based configurations and \
             cannot be managed via the API"
        ));
    }
}
