//! Documents as JSON.

use std::collections::BTreeMap;

use capstan_api::GroupVersion;

use super::{
    OpenApiVersion,
    paths::{Media, Operation, Parameter, Paths},
    schemas::{Schemas, write_gvk},
};
use crate::discovery::{API_VERSION, json::Json};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The media types of patches. The strategic one is not for custom resources.
const PATCHES: [&str; 4] =
    ["application/json-patch+json", "application/merge-patch+json", STRATEGIC, "application/apply-patch+yaml"];
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl Media {
    /// The media types of answers.
    fn produces(self) -> &'static [&'static str] {
        match self {
            Media::Objects => &[JSON, YAML, PROTOBUF],
            Media::Streams => &[
                JSON,
                YAML,
                PROTOBUF,
                "application/json;stream=watch",
                "application/vnd.kubernetes.protobuf;stream=watch",
            ],
            Media::Custom => &[JSON, YAML],
            Media::Logs => &["text/plain", JSON, YAML, PROTOBUF],
            Media::Json => &[JSON],
            Media::Keys => &["application/jwk-set+json"],
            Media::Any => &["*/*"],
        }
    }
}

impl Operation {
    /// The media types of bodies.
    fn consumes(&self) -> Vec<&'static str> {
        let custom = self.media == Media::Custom;
        match self.action {
            Some("patch") => PATCHES.into_iter().filter(|media| !custom || *media != STRATEGIC).collect(),
            _ if custom => vec![JSON, YAML],
            None if self.answer.is_none() => Vec::new(),
            None => self.media.produces().to_vec(),
            _ => vec!["*/*"],
        }
    }
}

/// What a status code is called. OpenAPI wants a description.
fn phrase(code: u16) -> &'static str {
    http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason()).unwrap_or_default()
}

/// Renders a document. `custom` are the schemas that are not built in, each as JSON with what it refers to.
pub(super) fn document(
    version: OpenApiVersion,
    paths: &Paths,
    group_versions: &[GroupVersion],
    custom: &BTreeMap<String, (Vec<u8>, Vec<String>)>,
) -> Vec<u8> {
    let mut schemas = Schemas { version, group_versions, refs: Vec::new() };
    let mut json = Json::default();
    json.object(|json| {
        match version {
            OpenApiVersion::V3 => json.field("openapi", "3.0.0"),
            OpenApiVersion::V2 => json.field("swagger", "2.0"),
        }
        json.key("info");
        json.object(|json| {
            json.field("title", "Kubernetes");
            json.field("version", &API_VERSION[..2].join("."));
        });
        json.key("paths");
        json.object(|json| {
            for (path, operations) in paths {
                json.key(path);
                json.object(|json| path_item(operations, &mut schemas, json));
            }
        });
        let all = closure(&mut schemas, custom);
        let write_all = |json: &mut Json| {
            json.object(|json| {
                for (name, schema) in &all {
                    json.key(name);
                    json.raw(schema);
                }
            });
        };
        match version {
            OpenApiVersion::V3 => {
                json.key("components");
                json.object(|json| {
                    if !all.is_empty() {
                        json.key("schemas");
                        write_all(json);
                    }
                    json.key("securitySchemes");
                    security(json);
                });
            }
            OpenApiVersion::V2 => {
                json.key("definitions");
                write_all(json);
                json.key("parameters");
                json.object(|json| {
                    for parameter in shared_parameters(paths) {
                        json.key(&shared_name(parameter));
                        json.object(|json| write_parameter(version, parameter, json));
                    }
                });
                json.key("securityDefinitions");
                security(json);
                json.key("security");
                json.array([()], |json, ()| json.object(|json| json.texts::<&str>("BearerToken", &[])));
            }
        }
    });
    json.finish()
}

fn security(json: &mut Json) {
    json.object(|json| {
        json.key("BearerToken");
        json.object(|json| {
            json.field("type", "apiKey");
            json.field("name", "authorization");
            json.field("in", "header");
        });
    });
}

/// All schemas that are referred to, and those that they refer to.
fn closure(schemas: &mut Schemas<'_>, custom: &BTreeMap<String, (Vec<u8>, Vec<String>)>) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    while let Some(name) = schemas.refs.pop() {
        if all.contains_key(&name) {
            continue;
        }
        let schema = match custom.get(&name) {
            Some((schema, refs)) => {
                schemas.refs.extend(refs.iter().cloned());
                schema.clone()
            }
            None => match schemas.builtin(&name) {
                Some(schema) => schema,
                None => continue,
            },
        };
        all.insert(name, schema);
    }
    all
}

/// Parameters that all operations of a path have are the path's.
fn path_item(operations: &BTreeMap<&'static str, Operation>, schemas: &mut Schemas<'_>, json: &mut Json) {
    let has = |operation: &Operation, parameter| operation.parameters.contains(parameter);
    let first = operations.values().next().map_or(&[][..], |operation| &operation.parameters);
    let common: Vec<&Parameter> =
        first.iter().filter(|parameter| operations.values().all(|operation| has(operation, parameter))).collect();
    for (method, operation) in operations {
        let own: Vec<&Parameter> = operation.parameters.iter().filter(|own| !common.contains(own)).collect();
        json.key(method);
        json.object(|json| write_operation(operation, &own, schemas, json));
    }
    if !common.is_empty() {
        json.key("parameters");
        json.array(common, |json, parameter| reference_parameter(schemas.version, parameter, json));
    }
}

fn write_operation(operation: &Operation, own: &[&Parameter], schemas: &mut Schemas<'_>, json: &mut Json) {
    let v2 = schemas.version == OpenApiVersion::V2;
    json.texts("tags", &[&operation.tag]);
    json.field("operationId", &operation.id);
    if v2 {
        json.some_texts("consumes", &operation.consumes());
        json.texts("produces", operation.media.produces());
        json.texts("schemes", &["https"]);
    }
    let body = operation.body.as_ref();
    if !own.is_empty() || v2 && body.is_some() {
        json.key("parameters");
        let body = body.filter(|_| v2).map(|body| (Some(body), None));
        let own = own.iter().map(|&parameter| (None, Some(parameter)));
        json.array(body.into_iter().chain(own), |json, (body, parameter)| match (body, parameter) {
            (Some((name, required)), _) => json.object(|json| {
                json.field("name", "body");
                json.field("in", "body");
                if *required {
                    json.flag("required", true);
                }
                json.key("schema");
                schemas.reference(name, json);
            }),
            (None, Some(parameter)) => reference_parameter(schemas.version, parameter, json),
            (None, None) => {}
        });
    }
    if let (Some((name, required)), false) = (body, v2) {
        json.key("requestBody");
        json.object(|json| {
            contents(&operation.consumes(), Some(name), schemas, json);
            if *required {
                json.flag("required", true);
            }
        });
    }
    json.key("responses");
    json.object(|json| {
        for &code in operation.codes {
            json.key(&code.to_string());
            json.object(|json| {
                json.field("description", phrase(code));
                if v2 {
                    json.key("schema");
                    write_schema(operation.answer.as_deref(), schemas, json);
                } else {
                    contents(operation.media.produces(), operation.answer.as_deref(), schemas, json);
                }
            });
        }
        json.key("401");
        json.object(|json| json.field("description", phrase(401)));
    });
    if let (Some(action), Some(kind)) = (operation.action, &operation.kind) {
        json.field("x-kubernetes-action", action);
        json.key("x-kubernetes-group-version-kind");
        write_gvk(&kind.group_version(), &kind.kind, json);
    }
}

fn contents(media: &[&str], schema: Option<&str>, schemas: &mut Schemas<'_>, json: &mut Json) {
    json.key("content");
    json.object(|json| {
        for media in media {
            json.key(media);
            json.object(|json| {
                json.key("schema");
                write_schema(schema, schemas, json);
            });
        }
    });
}

fn write_schema(name: Option<&str>, schemas: &mut Schemas<'_>, json: &mut Json) {
    match name {
        Some(name) => schemas.reference(name, json),
        None => json.object(|json| json.field("type", "string")),
    }
}

/// A parameter where it is used: version 2 has them all in one place.
fn reference_parameter(version: OpenApiVersion, parameter: &Parameter, json: &mut Json) {
    json.object(|json| match version {
        OpenApiVersion::V3 => write_parameter(version, parameter, json),
        OpenApiVersion::V2 => json.field("$ref", &format!("#/parameters/{}", shared_name(parameter))),
    });
}

fn shared_name(parameter: &Parameter) -> String {
    format!("{}-{}-{}", parameter.name, parameter.place, parameter.ty)
}

fn shared_parameters(paths: &Paths) -> std::collections::BTreeSet<&Parameter> {
    paths.values().flat_map(BTreeMap::values).flat_map(|operation| &operation.parameters).collect()
}

fn write_parameter(version: OpenApiVersion, parameter: &Parameter, json: &mut Json) {
    json.field("name", parameter.name);
    json.field("in", parameter.place);
    if parameter.place == "path" {
        json.flag("required", true);
    }
    let ty = |json: &mut Json| {
        json.field("type", parameter.ty);
        json.flag("uniqueItems", true);
    };
    match version {
        OpenApiVersion::V2 => ty(json),
        OpenApiVersion::V3 => {
            json.key("schema");
            json.object(ty);
        }
    }
}
