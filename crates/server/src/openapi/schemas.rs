//! Schemas as OpenAPI has them, from the table of built-in kinds.

use capstan_api::{
    GroupVersion, builtin,
    builtin::text::{Absent, EMBEDDED, Field, TypeHead, UNION, full_name, short_name},
};

use super::OpenApiVersion;
use crate::{descriptions, discovery::json::Json};

/// Types that are written as a string, a number or anything, but that OpenAPI has a name for: the name in the table,
/// the one of OpenAPI, and the schema in version 3 and in version 2.
const SPECIAL: [(&str, &str, &str, &str); 12] = [
    ("time", "io.k8s.apimachinery.pkg.apis.meta.v1.Time", DATE_TIME, DATE_TIME),
    ("micro-time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", DATE_TIME, DATE_TIME),
    (
        "quantity",
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        r#"{"oneOf":[{"type":"string"},{"type":"number"}]}"#,
        r#"{"type":"string"}"#,
    ),
    (
        "int-or-string",
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        r#"{"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}]}"#,
        r#"{"type":"string","format":"int-or-string"}"#,
    ),
    ("raw", "io.k8s.apimachinery.pkg.runtime.RawExtension", OBJECT, OBJECT),
    ("", FIELDS, OBJECT, OBJECT),
    ("", PATCH, OBJECT, OBJECT),
    ("json", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "{}", "{}"),
    ("schema-or-bool", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "{}", "{}"),
    ("schema-or-list", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "{}", "{}"),
    (
        "schema-or-strings",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
        "{}",
        "{}",
    ),
    ("", VERSION_INFO, VERSION_INFO_SCHEMA, VERSION_INFO_SCHEMA),
];
const DATE_TIME: &str = r#"{"type":"string","format":"date-time"}"#;
const OBJECT: &str = r#"{"type":"object"}"#;
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";

/// The schema of the bodies of patches.
pub(super) const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";

/// The schema of what is at `/version`.
pub(super) const VERSION_INFO: &str = "io.k8s.apimachinery.pkg.version.Info";
const VERSION_INFO_SCHEMA: &str = concat!(
    r#"{"type":"object","required":["major","minor","gitVersion","gitCommit","gitTreeState","buildDate","goVersion","#,
    r#""compiler","platform"],"properties":{"buildDate":{"type":"string","default":""},"compiler":{"type":"string","#,
    r#""default":""},"emulationMajor":{"type":"string"},"emulationMinor":{"type":"string"},"gitCommit":{"type":"#,
    r#""string","default":""},"gitTreeState":{"type":"string","default":""},"gitVersion":{"type":"string","default":"#,
    r#"""},"goVersion":{"type":"string","default":""},"major":{"type":"string","default":""},"minCompatibilityMajor":"#,
    r#"{"type":"string"},"minCompatibilityMinor":{"type":"string"},"minor":{"type":"string","default":""},"platform":"#,
    r#"{"type":"string","default":""}}}"#,
);

/// Fields that refer to a schema and say nothing of their own, not even in upstream's words: there the reference is not
/// wrapped.
const UNDOCUMENTED: [(&str, &[&str]); 2] = [
    (
        "apiextensions.v1.JSONSchemaProps",
        &["additionalItems", "additionalProperties", "example", "externalDocs", "items", "not"],
    ),
    ("networking.v1.IngressRule", &["http"]),
];

/// The kinds of `meta.v1` that belong to every group and version.
const EVERYWHERE: [&str; 2] = ["meta.v1.DeleteOptions", "meta.v1.WatchEvent"];

/// Schemas of one document.
pub(super) struct Schemas<'a> {
    pub(super) version: OpenApiVersion,
    /// The group versions whose options and events the document speaks of.
    pub(super) group_versions: &'a [GroupVersion],
    /// The names of the schemas that what has been written refers to.
    pub(super) refs: Vec<String>,
}

impl Schemas<'_> {
    /// Writes a reference.
    pub(super) fn reference(&mut self, name: &str, json: &mut Json) {
        let path = format!("{}{name}", self.version.references());
        json.object(|json| json.field("$ref", &path));
        self.refs.push(name.to_owned());
    }

    /// The schema of that name, if it is a built-in one.
    pub(super) fn builtin(&mut self, name: &str) -> Option<Vec<u8>> {
        if let Some((.., v3, v2)) = SPECIAL.iter().find(|(_, full, ..)| *full == name) {
            let schema = match self.version {
                OpenApiVersion::V3 => (*v3).to_owned(),
                // It has no defaults.
                OpenApiVersion::V2 => v2.replace(r#","default":"""#, ""),
            };
            return Some(described(name, &schema));
        }
        let short = short_name(name)?;
        let mut lines = builtin::type_lines(&short)?;
        let head = TypeHead::parse(lines.next()?)?;
        let mut json = Json::default();
        json.object(|json| self.ty(&head, lines, json));
        Some(json.finish())
    }

    fn ty(&mut self, head: &TypeHead<'_>, lines: std::str::Lines<'static>, json: &mut Json) {
        let full = full_name(head.name);
        describe(&full, "", json);
        json.field("type", "object");
        let fields: Vec<Field<'_>> = lines
            .clone()
            .filter(|line| !line.starts_with(EMBEDDED) && !line.starts_with(UNION))
            .filter_map(Field::parse)
            .collect();
        let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
        json.some_texts("required", &required);
        let bare = UNDOCUMENTED.iter().find(|(name, _)| *name == head.name).map_or(&[][..], |(_, fields)| fields);
        if !fields.is_empty() {
            json.key("properties");
            json.object(|json| {
                for field in &fields {
                    json.key(field.name);
                    match reference_of(field.ty, field.go).filter(|_| bare.contains(&field.name)) {
                        Some(name) => self.reference(&name, json),
                        None => self.field(&full, field, json),
                    }
                }
            });
        }
        if head.kind {
            let kind = head.name.rsplit('.').next().unwrap_or_default();
            json.key("x-kubernetes-group-version-kind");
            json.array(self.group_versions_of(head.name), |json, group_version| {
                write_gvk(&group_version, kind, json);
            });
        }
        if head.atomic {
            json.field("x-kubernetes-map-type", "atomic");
        }
        let unions: Vec<&str> = lines.filter_map(|line| line.strip_prefix(UNION)).collect();
        if !unions.is_empty() {
            json.key("x-kubernetes-unions");
            json.array(unions, write_union);
        }
    }

    fn group_versions_of(&self, name: &str) -> Vec<GroupVersion> {
        match builtin::type_group_version(name) {
            Some(own) => vec![own],
            None if EVERYWHERE.contains(&name) => {
                let core = GroupVersion::from_static("", "v1");
                let mut all = self.group_versions.to_vec();
                all.push(core);
                all.sort_by(|a, b| (&*a.group, &*a.version).cmp(&(&*b.group, &*b.version)));
                all.dedup();
                all
            }
            None => vec![GroupVersion::from_static("", "v1")],
        }
    }

    fn field(&mut self, schema: &str, field: &Field<'_>, json: &mut Json) {
        let default = field.default.or_else(|| (field.absent == Absent::Zero).then(|| zero(field.ty)).flatten());
        let default = default.filter(|_| self.version == OpenApiVersion::V3);
        let ty = field.ty.trim_start_matches('*');
        if let Some(name) = reference_of(ty, field.go) {
            let says_more = descriptions::json(schema, field.name).is_some()
                || default.is_some() || field.map.is_some() || field.patch.is_some();
            match self.version {
                OpenApiVersion::V2 if !says_more => return self.reference(&name, json),
                OpenApiVersion::V2 => {
                    let path = format!("{}{name}", self.version.references());
                    self.refs.push(name);
                    return json.object(|json| {
                        json.field("$ref", &path);
                        describe(schema, field.name, json);
                        merging(field, json);
                    });
                }
                OpenApiVersion::V3 => {}
            }
            return json.object(|json| {
                describe(schema, field.name, json);
                if let Some(default) = default {
                    json.key("default");
                    json.raw(default.as_bytes());
                }
                json.key("allOf");
                json.array([name], |json, name| self.reference(&name, json));
                merging(field, json);
            });
        }
        json.object(|json| {
            describe(schema, field.name, json);
            self.value(ty, field, default, json);
            merging(field, json);
        });
    }

    /// What values of a type look like, without the braces.
    fn value(&mut self, ty: &str, field: &Field<'_>, default: Option<&str>, json: &mut Json) {
        let of_list = ty.strip_prefix("[]");
        if let Some(element) = of_list.or(ty.strip_prefix("{}")) {
            json.field("type", if of_list.is_some() { "array" } else { "object" });
            if let Some(default) = default {
                json.key("default");
                json.raw(default.as_bytes());
            }
            json.key(if of_list.is_some() { "items" } else { "additionalProperties" });
            return self.element(element.trim_start_matches('*'), field, json);
        }
        let (ty, format) = scalar(ty);
        json.field("type", ty);
        if let Some(format) = format {
            json.field("format", format);
        }
        if let Some(default) = default {
            json.key("default");
            json.raw(default.as_bytes());
        }
        if let Some(values) = field.enumeration {
            json.key("enum");
            json.raw(values.as_bytes());
        }
    }

    fn element(&mut self, ty: &str, field: &Field<'_>, json: &mut Json) {
        let default = zero(ty).filter(|_| self.version == OpenApiVersion::V3);
        let Some(name) = reference_of(ty, None) else {
            return json.object(|json| self.value(ty, field, default, json));
        };
        let Some(default) = default else { return self.reference(&name, json) };
        json.object(|json| {
            json.key("default");
            json.raw(default.as_bytes());
            json.key("allOf");
            json.array([name], |json, name| self.reference(&name, json));
        });
    }
}

/// Says what a field is for, or with an empty `field` the schema, where there are words for it.
fn describe(schema: &str, field: &str, json: &mut Json) {
    if let Some(words) = descriptions::json(schema, field) {
        json.key("description");
        json.raw(words.as_bytes());
    }
}

/// A schema with the words for it.
fn described(name: &str, schema: &str) -> Vec<u8> {
    match (descriptions::json(name, ""), schema.strip_prefix('{')) {
        (Some(words), Some("}")) => format!(r#"{{"description":{words}}}"#),
        (Some(words), Some(rest)) => format!(r#"{{"description":{words},{rest}"#),
        _ => schema.to_owned(),
    }
    .into_bytes()
}

/// How two values of a field become one.
fn merging(field: &Field<'_>, json: &mut Json) {
    if let Some(list) = field.list {
        let (list, keys) = list.split_once(':').map_or((list, None), |(list, keys)| (list, Some(keys)));
        if let Some(keys) = keys {
            json.texts("x-kubernetes-list-map-keys", &keys.split(',').collect::<Vec<_>>());
        }
        json.field("x-kubernetes-list-type", list);
    }
    for (key, value) in [
        ("x-kubernetes-map-type", field.map),
        ("x-kubernetes-patch-merge-key", field.key),
        ("x-kubernetes-patch-strategy", field.patch),
    ] {
        if let Some(value) = value {
            json.field(key, value);
        }
    }
}

/// The schema that a field refers to, if it is not written in place.
fn reference_of(ty: &str, go: Option<&str>) -> Option<String> {
    if ty.starts_with('[') || ty.starts_with('{') {
        return None;
    }
    if go == Some("v1.FieldsV1") {
        return Some(FIELDS.to_owned());
    }
    match SPECIAL.iter().find(|(short, ..)| *short == ty) {
        Some((_, full, ..)) => Some((*full).to_owned()),
        None => ty.contains('.').then(|| full_name(ty)),
    }
}

/// What a Go value of a type is when nothing was set, where OpenAPI says so.
fn zero(ty: &str) -> Option<&'static str> {
    match ty {
        "string" => Some("\"\""),
        "bool" => Some("false"),
        "int32" | "int64" | "double" => Some("0"),
        _ if ty.starts_with('[') || ty.starts_with('{') => None,
        _ => ty.contains('.').then_some("{}"),
    }
}

/// The type and format of a scalar.
pub(super) fn scalar(ty: &str) -> (&'static str, Option<&'static str>) {
    match ty {
        "bool" => ("boolean", None),
        "int32" => ("integer", Some("int32")),
        "int64" => ("integer", Some("int64")),
        "double" => ("number", Some("double")),
        "bytes" => ("string", Some("byte")),
        _ => ("string", None),
    }
}

pub(super) fn write_gvk(group_version: &GroupVersion, kind: &str, json: &mut Json) {
    json.object(|json| {
        json.field("group", &group_version.group);
        json.field("kind", kind);
        json.field("version", &group_version.version);
    });
}

/// A union's line: the discriminator, and the fields with their names there.
fn write_union(json: &mut Json, line: &str) {
    let mut words = line.split(' ');
    json.object(|json| {
        if let Some(discriminator) = words.next().filter(|word| *word != "-") {
            json.field("discriminator", discriminator);
        }
        json.key("fields-to-discriminateBy");
        json.object(|json| {
            for (field, value) in words.filter_map(|word| word.split_once(':')) {
                json.field(field, value);
            }
        });
    });
}
