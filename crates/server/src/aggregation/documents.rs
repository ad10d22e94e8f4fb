//! What the server of an APIService says it has, in the form that discovery here gives on: from the one document that
//! says everything at once, or from the older one of a group version.

use capstan_api::{GroupVersion, Value, json};

use crate::discovery::json::Json;

/// How the one document is asked for, the newer form first.
pub(super) const ACCEPT: &str = "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io,\
                                 application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io";

/// Whether the type of an answer is that of the one document.
pub(super) fn is_aggregated(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    parts.next() == Some("application/json")
        && parts.clone().any(|part| part == "g=apidiscovery.k8s.io")
        && parts.clone().any(|part| matches!(part, "v=v2" | "v=v2beta1"))
        && parts.any(|part| part == "as=APIGroupDiscoveryList")
}

/// What is told of a group version whose server does not say what it has.
pub(super) fn stale(group_version: &GroupVersion) -> Vec<u8> {
    version(group_version, &[], false)
}

/// What the one document says of a group version; nothing if it does not speak of it.
///
/// # Errors
/// Says what is wrong with the document.
pub(super) fn from_aggregated(group_version: &GroupVersion, document: &[u8]) -> Result<Vec<u8>, String> {
    let document = json::parse(document).map_err(|error| error.to_string())?;
    let group = list(&document, "items").iter().find(|group| {
        let name = group.get("metadata").and_then(|metadata| metadata.get("name"));
        name.and_then(Value::as_str).unwrap_or_default() == &*group_version.group
    });
    let versions = group.map_or(&[][..], |group| list(group, "versions"));
    let found = versions.iter().find(|version| text(version, "version") == &*group_version.version);
    Ok(version(group_version, found.map_or(&[][..], |version| list(version, "resources")), true))
}

/// What the older document says.
///
/// # Errors
/// Says what is wrong with the document.
pub(super) fn from_resource_list(group_version: &GroupVersion, document: &[u8]) -> Result<Vec<u8>, String> {
    let document = json::parse(document).map_err(|error| error.to_string())?;
    let mut resources: Vec<Value> = Vec::new();
    for row in list(&document, "resources").iter().filter(|row| !text(row, "name").contains('/')) {
        resources.push(resource(row, text(row, "name")));
    }
    for row in list(&document, "resources") {
        let Some((parent, part)) = text(row, "name").split_once('/') else { continue };
        let at = resources.iter().position(|resource| text(resource, "resource") == parent);
        let at = at.unwrap_or_else(|| {
            let mut nameless = capstan_api::Map::new();
            nameless.insert("resource", parent);
            nameless.insert("scope", scope(row));
            resources.push(nameless.into());
            resources.len() - 1
        });
        let mut subresource = capstan_api::Map::new();
        subresource.insert("subresource", part);
        subresource.insert("responseKind", kind(row));
        subresource.insert("verbs", list(row, "verbs").to_vec());
        if let Some(resource) = resources.get_mut(at).and_then(Value::as_object_mut) {
            let all = resource.get_or_insert_with("subresources", || Vec::<Value>::new().into());
            if let Some(all) = all.as_array_mut() {
                all.push(subresource.into());
            }
        }
    }
    Ok(version(group_version, &resources, true))
}

fn resource(row: &Value, name: &str) -> Value {
    let mut resource = capstan_api::Map::new();
    resource.insert("resource", name);
    resource.insert("responseKind", kind(row));
    resource.insert("scope", scope(row));
    resource.insert("singularResource", text(row, "singularName"));
    for key in ["verbs", "shortNames", "categories"] {
        resource.insert(key, list(row, key).to_vec());
    }
    resource.into()
}

fn kind(row: &Value) -> Value {
    let mut kind = capstan_api::Map::new();
    for key in ["group", "version", "kind"] {
        kind.insert(key, text(row, key));
    }
    kind.into()
}

fn scope(row: &Value) -> &'static str {
    let namespaced = row.get("namespaced").and_then(Value::as_bool).unwrap_or_default();
    if namespaced { "Namespaced" } else { "Cluster" }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], |items| items)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// One version as discovery writes it.
fn version(group_version: &GroupVersion, resources: &[Value], fresh: bool) -> Vec<u8> {
    let mut json = Json::default();
    json.object(|json| {
        json.field("version", &group_version.version);
        if !resources.is_empty() {
            json.key("resources");
            json.array(resources, |json, resource| {
                json.object(|json| {
                    json.field("resource", text(resource, "resource"));
                    response_kind(resource, json);
                    json.field("scope", text(resource, "scope"));
                    json.field("singularResource", text(resource, "singularResource"));
                    json.texts("verbs", &texts(resource, "verbs"));
                    json.some_texts("shortNames", &texts(resource, "shortNames"));
                    json.some_texts("categories", &texts(resource, "categories"));
                    let parts = list(resource, "subresources");
                    if !parts.is_empty() {
                        json.key("subresources");
                        json.array(parts, |json, part| {
                            json.object(|json| {
                                json.field("subresource", text(part, "subresource"));
                                response_kind(part, json);
                                json.texts("verbs", &texts(part, "verbs"));
                            });
                        });
                    }
                });
            });
        }
        json.field("freshness", if fresh { "Current" } else { "Stale" });
    });
    json.finish()
}

/// Always there, for there are clients that fall over without it.
fn response_kind(resource: &Value, json: &mut Json) {
    let kind = resource.get("responseKind").unwrap_or(&Value::Null);
    json.key("responseKind");
    json.object(|json| {
        for key in ["group", "version", "kind"] {
            json.field(key, text(kind, key));
        }
    });
}

fn texts<'a>(value: &'a Value, key: &str) -> Vec<&'a str> {
    list(value, key).iter().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gv() -> GroupVersion {
        GroupVersion::from_static("metrics.k8s.io", "v1beta1")
    }

    fn check(made: Result<Vec<u8>, String>, expected: &str) {
        assert_eq!(String::from_utf8(made.expect("a document")).expect("text"), expected);
    }

    #[test]
    fn types_of_answers() {
        for (content_type, expected) in [
            ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", true),
            ("application/json; as=APIGroupDiscoveryList; v=v2beta1; g=apidiscovery.k8s.io", true),
            ("application/json", false),
            ("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList", false),
        ] {
            assert_eq!(is_aggregated(content_type), expected, "{content_type}");
        }
    }

    #[test]
    fn the_older_document_says_the_same() {
        let list = br#"{"kind":"APIResourceList","groupVersion":"metrics.k8s.io/v1beta1","resources":[
            {"name":"pods/scale","singularName":"","namespaced":true,"kind":"Scale","group":"autoscaling",
             "version":"v1","verbs":["get"]},
            {"name":"pods","singularName":"pod","namespaced":true,"kind":"PodMetrics","verbs":["get","list"],
             "shortNames":["p"]}]}"#;
        let expected = concat!(
            r#"{"version":"v1beta1","resources":[{"resource":"pods","responseKind":{"group":"","version":"","#,
            r#""kind":"PodMetrics"},"scope":"Namespaced","singularResource":"pod","verbs":["get","list"],"#,
            r#""shortNames":["p"],"subresources":[{"subresource":"scale","responseKind":{"group":"autoscaling","#,
            r#""version":"v1","kind":"Scale"},"verbs":["get"]}]}],"freshness":"Current"}"#
        );
        check(from_resource_list(&gv(), list), expected);
        let document = format!(
            r#"{{"items":[{{"metadata":{{"name":"metrics.k8s.io"}},"versions":[{}]}}]}}"#,
            expected.replace(",\"freshness\":\"Current\"", "")
        );
        check(from_aggregated(&gv(), document.as_bytes()), expected);
    }

    #[test]
    fn what_is_not_said_is_empty() {
        check(from_aggregated(&gv(), b"{}"), r#"{"version":"v1beta1","freshness":"Current"}"#);
        check(Ok(stale(&gv())), r#"{"version":"v1beta1","freshness":"Stale"}"#);
        assert!(from_aggregated(&gv(), b"<html>").is_err());
    }
}
