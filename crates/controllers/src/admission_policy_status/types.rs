//! What expressions of policies may speak of, from what the server tells of its kinds.

use std::sync::Arc;

use capstan_api::{GroupVersionKind, schema::structural, value::to_value};
use capstan_cel::{Decls, Env, Type};
use capstan_client::Client;
use serde_json::{Map, Value, json};

use super::output;

/// How deep a schema is followed. Below, and where it contains itself, anything goes.
const MAX_DEPTH: usize = 24;

/// A schema that says nothing.
pub(super) fn any() -> Value {
    json!({"x-kubernetes-preserve-unknown-fields": true})
}

/// The schema of a kind, with all that it refers to; none if the server has none.
pub(super) async fn schema(client: &Client, kind: &GroupVersionKind) -> Option<Value> {
    let group = if kind.group.is_empty() { "api".to_owned() } else { format!("apis/{}", kind.group) };
    let document = client.get_raw(&format!("/openapi/v3/{group}/{}", kind.version)).await.ok()?;
    let document: Value = serde_json::from_slice(&document).ok()?;
    let schemas = document["components"]["schemas"].as_object()?;
    let is_it = |schema: &&Value| {
        let kinds = schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten();
        kinds.into_iter().any(|known| {
            known["group"] == *kind.group && known["version"] == *kind.version && known["kind"] == *kind.kind
        })
    };
    Some(expand(schemas.values().find(is_it)?, schemas, &mut Vec::new()))
}

/// A schema without references, and without all that is not about types.
fn expand<'a>(schema: &'a Value, all: &'a Map<String, Value>, above: &mut Vec<&'a str>) -> Value {
    // What has a default or a description of its own wraps the reference.
    let wrapped = schema["allOf"].as_array().and_then(|parts| parts.first()).unwrap_or(schema);
    if let Some(reference) = wrapped["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        let Some(found) = all.get(name).filter(|_| above.len() < MAX_DEPTH && !above.contains(&name)) else {
            return any();
        };
        above.push(name);
        let expanded = expand(found, all, above);
        above.pop();
        return expanded;
    }
    if schema["format"] == "int-or-string" || schema["x-kubernetes-int-or-string"] == true {
        return json!({"x-kubernetes-int-or-string": true});
    }
    let mut simple = Map::new();
    match schema["type"].as_str() {
        Some("object") => {
            if let Some(fields) = schema["properties"].as_object().filter(|fields| !fields.is_empty()) {
                let fields = fields.iter().map(|(name, field)| (name.clone(), expand(field, all, above)));
                simple.insert("properties".to_owned(), Value::Object(fields.collect()));
            } else if schema["additionalProperties"].is_object() {
                simple.insert("additionalProperties".to_owned(), expand(&schema["additionalProperties"], all, above));
            } else {
                return any();
            }
        }
        Some("array") => {
            simple.insert("items".to_owned(), expand(&schema["items"], all, above));
        }
        Some("string" | "integer" | "number" | "boolean") => {
            if let Some(format) = schema.get("format") {
                simple.insert("format".to_owned(), format.clone());
            }
        }
        _ => return any(),
    }
    simple.insert("type".to_owned(), schema["type"].clone());
    Value::Object(simple)
}

/// An object with these fields, each `name:type`; `[]` before a type is a list and `{}` a map.
fn object(fields: &str, more: &[(&str, Value)]) -> Value {
    fn of(text: &str) -> Value {
        match text {
            "time" => json!({"type": "string", "format": "date-time"}),
            "any" => any(),
            _ => match (text.strip_prefix("[]"), text.strip_prefix("{}")) {
                (Some(items), _) => json!({"type": "array", "items": of(items)}),
                (_, Some(values)) => json!({"type": "object", "additionalProperties": of(values)}),
                _ => json!({"type": text}),
            },
        }
    }
    let fields = fields.split_whitespace().filter_map(|field| field.split_once(':'));
    let fields = fields.map(|(name, ty)| (name.to_owned(), of(ty)));
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
    json!({"type": "object", "properties": fields.chain(more).collect::<Map<_, _>>()})
}

fn request() -> Value {
    let kind = object("group:string version:string kind:string", &[]);
    let resource = object("group:string version:string resource:string", &[]);
    let user = object("username:string uid:string groups:[]string extra:{}[]string", &[]);
    object(
        "subResource:string requestSubResource:string name:string namespace:string operation:string dryRun:boolean \
         options:any",
        &[
            ("kind", kind.clone()),
            ("requestKind", kind),
            ("resource", resource.clone()),
            ("requestResource", resource),
            ("userInfo", user),
        ],
    )
}

fn namespace() -> Value {
    let condition = object("status:string type:string lastTransitionTime:time message:string reason:string", &[]);
    let metadata = object(
        "name:string generateName:string namespace:string labels:{}string annotations:{}string UID:string \
         creationTimestamp:time deletionGracePeriodSeconds:integer deletionTimestamp:time generation:integer \
         resourceVersion:string finalizers:[]string",
        &[],
    );
    let status = object("phase:string", &[("conditions", json!({"type": "array", "items": condition}))]);
    object("", &[("metadata", metadata), ("spec", object("finalizers:[]string", &[])), ("status", status)])
}

/// A schema for the result of a variable, as far as one can be said.
fn of_type(ty: &Type) -> Value {
    match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int => json!({"type": "integer"}),
        Type::Double => json!({"type": "number"}),
        Type::String => json!({"type": "string"}),
        Type::Timestamp => json!({"type": "string", "format": "date-time"}),
        Type::List(item) => json!({"type": "array", "items": of_type(item)}),
        _ => any(),
    }
}

fn typed(fields: &Map<String, Value>) -> Option<Env> {
    let whole = to_value(&json!({"type": "object", "properties": fields})).ok()?;
    let schema = structural::compile(&whole, "").ok()?;
    let decls = Arc::new(Decls::new(schema.root(), false));
    let mut env = Env::new(Arc::clone(&decls), None).with("authorizer", Type::Dyn);
    for name in fields.keys() {
        let node = schema.root().field(name)?.node;
        env = env.with(name, decls.of(node).map_or(Type::Dyn, |id| decls.ty(id)));
    }
    Some(env)
}

/// What the expressions of a policy are checked against. A variable may use those before it.
pub(super) fn environment<'a>(
    object: &Value,
    params: Option<&Value>,
    variables: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<Env> {
    let mut fields = Map::new();
    fields.insert("object".to_owned(), object.clone());
    fields.insert("oldObject".to_owned(), object.clone());
    fields.insert("request".to_owned(), request());
    fields.insert("namespaceObject".to_owned(), namespace());
    if let Some(params) = params {
        fields.insert("params".to_owned(), params.clone());
    }
    let mut known = Map::new();
    for (name, expression) in variables {
        // One with an error is warned of where it is used in vain, if at all.
        let ty = output(expression, &typed(&fields)?).unwrap_or(Type::Dyn);
        known.insert(name.to_owned(), of_type(&ty));
        fields.insert("variables".to_owned(), json!({"type": "object", "properties": known}));
    }
    typed(&fields)
}
