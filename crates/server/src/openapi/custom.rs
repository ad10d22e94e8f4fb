//! Custom resources in the published definition.

use std::collections::BTreeMap;

use capstan_api::{GroupVersion, Map, Name, Value, json};

use super::{
    OpenApiVersion,
    paths::{Paths, Routes},
    schemas::write_gvk,
};
use crate::discovery::{ApiResource, json::Json};

/// A custom resource in one version.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomResource {
    /// What discovery says of it.
    pub resource: ApiResource,
    /// The kind of its lists.
    pub list_kind: Name,
    /// Its `openAPIV3Schema`, if it has one.
    pub schema: Option<Value>,
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

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
        let mut schema = self.schema.clone().unwrap_or_else(|| Value::Object(Map::new()));
        if version == OpenApiVersion::V2 {
            simplify(&mut schema);
        }
        embed(&mut schema, version);
        let Value::Object(mut object) = schema else { return b"{}".to_vec() };
        object.insert("type", Value::from("object"));
        if let Some(properties) = properties(&mut object) {
            add_metadata(properties, version);
        }
        let kind = format!(
            "[{{\"group\":{},\"kind\":{},\"version\":{}}}]",
            quoted(&self.resource.group_version.group),
            quoted(&self.resource.kind),
            quoted(&self.resource.group_version.version)
        );
        object.insert("x-kubernetes-group-version-kind", parsed(&kind));
        json::to_string(&Value::Object(object)).into_bytes()
    }

    fn list_schema(&self, version: OpenApiVersion) -> Vec<u8> {
        let items = format!("{}{}", version.references(), self.schema_name(&self.resource.kind));
        let mut json = Json::default();
        json.object(|json| {
            json.field("type", "object");
            json.texts("required", &["items"]);
            json.key("properties");
            json.object(|json| {
                for name in ["apiVersion", "kind"] {
                    json.key(name);
                    json.object(|json| json.field("type", "string"));
                }
                json.key("items");
                json.object(|json| {
                    json.field("type", "array");
                    json.key("items");
                    json.object(|json| json.field("$ref", &items));
                });
                json.key("metadata");
                json.raw(reference(LIST_META, version).as_bytes());
            });
            json.key("x-kubernetes-group-version-kind");
            json.array([()], |json, ()| write_gvk(&self.resource.group_version, &self.list_kind, json));
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

/// What version 2 cannot say is left out: then anything goes there.
fn simplify(schema: &mut Value) {
    let mut stack = vec![schema];
    while let Some(schema) = stack.pop() {
        let Value::Object(object) = schema else { continue };
        let is = |object: &Map, key: &str| object.get(key).and_then(Value::as_bool) == Some(true);
        let anything = is(object, "x-kubernetes-preserve-unknown-fields")
            || is(object, "nullable")
            || is(object, "x-kubernetes-int-or-string");
        if anything {
            for key in ["type", "properties", "items", "additionalProperties", "required", "format", "enum"] {
                object.remove(key);
            }
        }
        for key in ["nullable", "anyOf", "oneOf", "allOf", "not", "default", "x-kubernetes-int-or-string"] {
            object.remove(key);
        }
        stack.extend(below(object));
    }
}

/// Says what every embedded object has.
fn embed(schema: &mut Value, version: OpenApiVersion) {
    let mut stack = vec![schema];
    while let Some(schema) = stack.pop() {
        let Value::Object(object) = schema else { continue };
        if object.get("x-kubernetes-embedded-resource").and_then(Value::as_bool) == Some(true)
            && object.get("type").is_some()
        {
            object.insert("required", parsed(r#"["kind","apiVersion"]"#));
            if let Some(properties) = properties(object) {
                add_metadata(properties, version);
            }
        }
        stack.extend(below(object));
    }
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

fn properties(object: &mut Map) -> Option<&mut Map> {
    if object.get("properties").is_none() {
        object.insert("properties", Value::Object(Map::new()));
    }
    object.get_mut("properties").and_then(Value::as_object_mut)
}

fn add_metadata(properties: &mut Map, version: OpenApiVersion) {
    properties.insert("apiVersion", parsed(r#"{"type":"string"}"#));
    properties.insert("kind", parsed(r#"{"type":"string"}"#));
    properties.insert("metadata", parsed(&reference(OBJECT_META, version)));
}

fn reference(name: &str, version: OpenApiVersion) -> String {
    let reference = format!(r#"{{"$ref":"{}{name}"}}"#, version.references());
    match version {
        OpenApiVersion::V2 => reference,
        OpenApiVersion::V3 => format!(r#"{{"allOf":[{reference}]}}"#),
    }
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    json::write_str(text, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fn parsed(text: &str) -> Value {
    json::parse(text.as_bytes()).unwrap_or(Value::Null)
}
