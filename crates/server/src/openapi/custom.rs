//! Custom resources in the published definition.

use std::collections::BTreeMap;

use capstan_api::{GroupVersion, Map, Name, Value, json};

use super::{
    OpenApiVersion,
    paths::{Paths, Routes},
    schemas::write_gvk,
};
use crate::{
    descriptions,
    discovery::{ApiResource, json::Json},
};

/// A custom resource in one version.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomResource {
    /// What discovery says of it.
    pub resource: ApiResource,
    /// The kind of its lists.
    pub list_kind: Name,
    /// Its `openAPIV3Schema`, if it has one.
    pub schema: Option<Value>,
    /// The paths of the fields that can be selected by, as they are written in a selector.
    pub selectable_fields: Vec<String>,
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// A kind whose words about what every object has are as good as any other's.
const ANY_KIND: &str = "io.k8s.api.core.v1.Pod";

const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const INT_OR_STRING: &str = r#"[{"type":"integer"},{"type":"string"}]"#;

impl CustomResource {
    /// The path of its document behind `/openapi/v3/`.
    pub(super) fn path(&self) -> String {
        self.resource.group_version.path().trim_start_matches('/').to_owned()
    }

    /// The name of a schema: `com.example.stable.v1.CronTab`.
    fn schema_name(&self, kind: &str) -> String {
        let GroupVersion { group, version } = &self.resource.group_version;
        let reversed: Vec<&str> = group.rsplit('.').collect();
        format!("{}.{version}.{kind}", reversed.join("."))
    }

    fn object_schema(&self, version: OpenApiVersion) -> Vec<u8> {
        let mut object = match &self.schema {
            Some(Value::Object(root)) if version == OpenApiVersion::V3 || !is(root, PRESERVE) => {
                let mut schema = Value::Object(root.clone());
                match version {
                    OpenApiVersion::V2 => simplify(&mut schema),
                    OpenApiVersion::V3 => unfold(&mut schema),
                }
                embed(&mut schema, version);
                let Value::Object(mut object) = schema else { return b"{}".to_vec() };
                add_metadata(&mut object, version);
                object
            }
            // Whoever knows some fields of it in version 2 refuses all others.
            _ => Map::from_iter([("type".into(), Value::from("object"))]),
        };
        let mut kind = Json::default();
        kind.array([()], |json, ()| write_gvk(&self.resource.group_version, &self.resource.kind, json));
        object.insert("x-kubernetes-group-version-kind", json::parse(&kind.finish()).unwrap_or_default());
        if !self.selectable_fields.is_empty() {
            let mut fields = Json::default();
            self.write_selectable_fields(&mut fields);
            object.insert("x-kubernetes-selectable-fields", json::parse(&fields.finish()).unwrap_or_default());
        }
        json::to_string(&Value::Object(object)).into_bytes()
    }

    fn write_selectable_fields(&self, json: &mut Json) {
        json.array(&self.selectable_fields, |json, path| json.object(|json| json.field("fieldPath", path)));
    }

    fn list_schema(&self, version: OpenApiVersion) -> Vec<u8> {
        let items = format!("{}{}", version.references(), self.schema_name(&self.resource.kind));
        let mut json = Json::default();
        json.object(|json| {
            json.field("description", &format!("{} is a list of {}", self.list_kind, self.resource.kind));
            json.field("type", "object");
            json.texts("required", &["items"]);
            json.key("properties");
            json.object(|json| {
                for name in ["apiVersion", "kind"] {
                    json.key(name);
                    json.raw(type_meta(name).as_bytes());
                }
                json.key("items");
                json.object(|json| {
                    let list = format!("List of {}. More info: {CONVENTIONS}", self.resource.resource);
                    json.field("description", &list);
                    json.field("type", "array");
                    json.key("items");
                    json.object(|json| json.field("$ref", &items));
                });
                json.key("metadata");
                let words = format!("\"Standard list metadata. More info: {CONVENTIONS}#types-kinds\"");
                json.raw(reference(LIST_META, &words, version).as_bytes());
            });
            json.key("x-kubernetes-group-version-kind");
            json.array([()], |json, ()| write_gvk(&self.resource.group_version, &self.list_kind, json));
            if !self.selectable_fields.is_empty() {
                json.key("x-kubernetes-selectable-fields");
                self.write_selectable_fields(json);
            }
        });
        json.finish()
    }
}

/// The operations on custom resources of one group version.
pub(super) fn paths(group_version: &GroupVersion, resources: &[&CustomResource]) -> Paths {
    let mut routes = Routes::new(group_version);
    for custom in resources {
        let object = custom.schema_name(&custom.resource.kind);
        routes.resource(&custom.resource, &object, &custom.schema_name(&custom.list_kind));
    }
    routes.paths
}

/// The schemas of custom resources by name, each with what it refers to.
pub(super) fn schemas(
    version: OpenApiVersion,
    resources: &[&CustomResource],
) -> BTreeMap<String, (Vec<u8>, Vec<String>)> {
    let each = |custom: &&CustomResource| {
        let (object, list) = (custom.schema_name(&custom.resource.kind), custom.schema_name(&custom.list_kind));
        let lists = (custom.list_schema(version), vec![object.clone(), LIST_META.to_owned()]);
        [(object, (custom.object_schema(version), vec![OBJECT_META.to_owned()])), (list, lists)]
    };
    resources.iter().flat_map(each).collect()
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn is(object: &Map, key: &str) -> bool {
    object.get(key).and_then(Value::as_bool) == Some(true)
}

/// Does something to each schema, from the outside in.
fn each(schema: &mut Value, visit: impl Fn(&mut Map)) {
    let mut stack = vec![schema];
    while let Some(schema) = stack.pop() {
        let Value::Object(object) = schema else { continue };
        visit(object);
        stack.extend(below(object));
    }
}

/// What version 2 cannot say is left out: then anything goes there.
fn simplify(schema: &mut Value) {
    each(schema, |object| {
        for key in ["anyOf", "oneOf", "allOf", "not", "default"] {
            object.remove(key);
        }
        let nullable = object.remove("nullable").and_then(|nullable| nullable.as_bool()) == Some(true);
        if nullable || is(object, PRESERVE) {
            object.remove("items");
            object.remove("properties");
        }
        let ty = object.get("type").and_then(Value::as_str);
        let untyped =
            ty == Some("array") && object.get("items").is_none() || ty == Some("object") && is(object, PRESERVE);
        if nullable || untyped {
            object.remove("type");
        }
        forget_nullable(object);
    });
}

/// Who must have a field that may be null need not have it, since version 2 knows no null.
fn forget_nullable(object: &mut Map) {
    let can_be_null = |schema: Option<&Value>| schema.and_then(Value::as_object).is_some_and(|own| is(own, "nullable"));
    let required = object.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let kept = |name: &Value| !can_be_null(name.as_str().and_then(|name| object.get("properties")?.get(name)));
    let kept: Vec<Value> = required.iter().filter(|name| kept(name)).cloned().collect();
    if kept.is_empty() || can_be_null(object.get("additionalProperties")) {
        object.remove("required");
    } else {
        object.insert("required", Value::Array(kept.into()));
    }
}

/// Says in words of OpenAPI what is an integer or a string, unless the schema itself does.
fn unfold(schema: &mut Value) {
    each(schema, |object| {
        let either = parsed(INT_OR_STRING);
        let all_of = object.get("allOf").and_then(Value::as_array).cloned().unwrap_or_default();
        let says_so =
            object.get("anyOf") == Some(&either) || all_of.first().and_then(|one| one.get("anyOf")) == Some(&either);
        if !is(object, "x-kubernetes-int-or-string") || says_so {
            return;
        }
        if object.get("anyOf").is_none() {
            object.insert("anyOf", either);
            return;
        }
        let first = Value::Object(Map::from_iter([("anyOf".into(), either)]));
        let all: Vec<Value> = std::iter::once(first).chain(all_of.iter().cloned()).collect();
        object.insert("allOf", Value::Array(all.into()));
    });
}

/// Says what every embedded object has.
fn embed(schema: &mut Value, version: OpenApiVersion) {
    each(schema, |object| {
        // Whoever knows some fields of it in version 2 refuses all others.
        let open = version == OpenApiVersion::V2 && is(object, PRESERVE);
        if open || !is(object, "x-kubernetes-embedded-resource") {
            return;
        }
        add_metadata(object, version);
        let mut required: Vec<Value> =
            object.get("required").and_then(Value::as_array).into_iter().flatten().cloned().collect();
        for name in ["kind", "apiVersion"].map(Value::from) {
            if !required.contains(&name) {
                required.push(name);
            }
        }
        object.insert("required", Value::Array(required.into()));
    });
}

/// The schemas right below one.
fn below(object: &mut Map) -> Vec<&mut Value> {
    let mut found = Vec::new();
    for (key, value) in object.iter_mut() {
        match (key, value) {
            ("properties", Value::Object(properties)) => found.extend(properties.iter_mut().map(|(_, value)| value)),
            ("items" | "additionalProperties", value) => found.push(value),
            _ => {}
        }
    }
    found
}

/// Says what every object has.
fn add_metadata(object: &mut Map, version: OpenApiVersion) {
    if object.get("properties").is_none() {
        object.insert("properties", Value::Object(Map::new()));
    }
    let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for name in ["apiVersion", "kind"] {
        properties.insert(name, parsed(&type_meta(name)));
    }
    let words = descriptions::json(ANY_KIND, "metadata").unwrap_or_default();
    properties.insert("metadata", parsed(&reference(OBJECT_META, words, version)));
}

fn type_meta(name: &str) -> String {
    let words = descriptions::json(ANY_KIND, name).unwrap_or_default();
    format!(r#"{{"description":{words},"type":"string"}}"#)
}

/// A reference with words, which are a JSON string.
fn reference(name: &str, words: &str, version: OpenApiVersion) -> String {
    let reference = format!(r#""$ref":"{}{name}""#, version.references());
    match version {
        OpenApiVersion::V2 => format!(r#"{{"description":{words},{reference}}}"#),
        OpenApiVersion::V3 => format!(r#"{{"allOf":[{{{reference}}}],"description":{words}}}"#),
    }
}

fn parsed(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or(Value::Null)
}
