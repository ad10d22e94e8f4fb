//! What the servers of APIServices publish, beside what this server does: their documents of OpenAPI 3 are listed here
//! and read there, their document of OpenAPI 2 is merged into the one that there is.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{GroupVersion, Map, Str, Value, json};

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
/// What definitions that are the same may differ in.
const KINDS: &str = "x-kubernetes-group-version-kind";

/// What one server publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RemoteSpec {
    /// Where its documents of version 3 are, by path.
    pub(super) v3: BTreeMap<String, String>,
    /// Its document of version 2, as far as it is about its group version.
    pub(super) v2: Option<Value>,
}

impl RemoteSpec {
    /// Takes the list of its documents of version 3; none if it is none.
    pub(crate) fn index(&mut self, document: &[u8]) {
        let Ok(document) = json::parse(document) else { return };
        let Some(paths) = document.get("paths").and_then(Value::as_object) else { return };
        for (path, place) in paths.iter() {
            if let Some(url) = place.get("serverRelativeURL").and_then(Value::as_str) {
                self.v3.insert(path.to_owned(), url.to_owned());
            }
        }
    }

    /// Takes its document of version 2, as far as it is about a group version; nothing if it is none.
    pub(crate) fn v2(&mut self, group_version: &GroupVersion, document: &[u8]) {
        let Ok(Value::Object(document)) = json::parse(document) else { return };
        let prefix = format!("{}/", group_version.path());
        let paths = document.get("paths").and_then(Value::as_object);
        let paths: Map = paths
            .into_iter()
            .flat_map(Map::iter)
            .filter(|(path, _)| path.starts_with(&prefix))
            .map(|(path, item)| (Str::from(path), item.clone()))
            .collect();
        if !paths.is_empty() {
            self.v2 = Some(used(paths, &document).into());
        }
    }
}

fn object<'a>(document: &'a Map, key: &str) -> Option<&'a Map> {
    document.get(key).and_then(Value::as_object)
}

/// These paths, with the definitions and parameters of a document that they use.
fn used(paths: Map, document: &Map) -> Map {
    let mut names: BTreeSet<Str> = BTreeSet::new();
    let mut new = Vec::new();
    let paths = Value::from(paths);
    references(&paths, &mut new);
    while let Some(reference) = new.pop() {
        if names.insert(reference.clone())
            && let Some(name) = reference.strip_prefix(DEFINITIONS)
            && let Some(definition) = object(document, "definitions").and_then(|all| all.get(name))
        {
            references(definition, &mut new);
        }
    }
    let keep = |key: &str, prefix: &str| -> Map {
        let all = object(document, key).into_iter().flat_map(Map::iter);
        let kept = all.filter(|(name, _)| names.contains(&*format!("{prefix}{name}")));
        kept.map(|(name, value)| (Str::from(name), value.clone())).collect()
    };
    let mut out = Map::new();
    out.insert("definitions", keep("definitions", DEFINITIONS));
    out.insert("parameters", keep("parameters", PARAMETERS));
    out.insert("paths", paths);
    out
}

/// All that a value refers to.
fn references(value: &Value, found: &mut Vec<Str>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter() {
                match value.as_str().filter(|_| key == "$ref") {
                    Some(reference) => found.push(reference.into()),
                    None => references(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// Adds what another server publishes to a document of version 2. Paths that are there already stay; definitions and
/// parameters that are there already but say something else get other names.
pub(super) fn merge(document: &mut Map, other: &Value) {
    let Some(other) = other.as_object() else { return };
    let mut renamed: BTreeMap<Str, Str> = BTreeMap::new();
    for (key, prefix) in [("definitions", DEFINITIONS), ("parameters", PARAMETERS)] {
        let Some(new) = object(other, key) else { continue };
        for (name, value) in new.iter() {
            let have = |name: &str| object(document, key).and_then(|all| all.get(name));
            let mut free = name.to_owned();
            let mut count = 1;
            while have(&free).is_some_and(|have| !same(have, value)) || (free != name && new.get(&free).is_some()) {
                count += 1;
                free = format!("{name}_v{count}");
            }
            if free != name {
                renamed.insert(format!("{prefix}{name}").into(), format!("{prefix}{free}").into());
            }
        }
    }
    for (key, prefix) in [("definitions", DEFINITIONS), ("parameters", PARAMETERS), ("paths", "")] {
        let Some(new) = object(other, key) else { continue };
        let Some(all) = document.get_or_insert_with(key, || Map::new().into()).as_object_mut() else { continue };
        for (name, value) in new.iter() {
            let renamed_to = renamed.get(&*format!("{prefix}{name}")).map(|full| &full[prefix.len()..]);
            let name = renamed_to.unwrap_or(name);
            if all.get(name).is_none() {
                let mut value = value.clone();
                rename(&mut value, &renamed);
                all.insert(name, value);
            }
        }
    }
}

fn same(a: &Value, b: &Value) -> bool {
    let without = |value: &Value| {
        let mut value = value.clone();
        value.as_object_mut().map(|map| map.remove(KINDS));
        value
    };
    a == b || without(a) == without(b)
}

fn rename(value: &mut Value, renamed: &BTreeMap<Str, Str>) {
    if renamed.is_empty() {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                match value.as_str().filter(|_| key == "$ref").and_then(|old| renamed.get(old)) {
                    Some(new) => *value = Value::from(&**new),
                    None => rename(value, renamed),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, renamed)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: &str = r##"{
        "paths":{
            "/apis/g/v1/things":{"get":{"parameters":[{"$ref":"#/parameters/p"}],
                "responses":{"200":{"schema":{"$ref":"#/definitions/Thing"}}}}},
            "/apis/g/v2/others":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/Other"}}}}}},
        "definitions":{"Thing":{"properties":{"meta":{"$ref":"#/definitions/Meta"}}},"Meta":{"type":"object"},
            "Other":{}},
        "parameters":{"p":{"name":"p"},"q":{"name":"q"}}}"##;

    fn check(ours: &str, expected: &str) {
        let mut spec = RemoteSpec::default();
        spec.v2(&GroupVersion::from_static("g", "v1"), THEIRS.as_bytes());
        let mut document = json::parse(ours.as_bytes()).expect("JSON").as_object().expect("an object").clone();
        merge(&mut document, &spec.v2.expect("it is about the group version"));
        let expected = json::parse(expected.as_bytes()).expect("JSON");
        assert_eq!(json::to_string(&document.into()), json::to_string(&expected));
    }

    #[test]
    fn what_is_used_comes_along() {
        check(
            "{}",
            r##"{"definitions":{"Meta":{"type":"object"},"Thing":{"properties":{"meta":{"$ref":"#/definitions/Meta"}}}},
                "parameters":{"p":{"name":"p"}},
                "paths":{"/apis/g/v1/things":{"get":{"parameters":[{"$ref":"#/parameters/p"}],
                    "responses":{"200":{"schema":{"$ref":"#/definitions/Thing"}}}}}}}"##,
        );
    }

    #[test]
    fn what_is_there_stays_and_what_differs_is_renamed() {
        check(
            r#"{"definitions":{"Meta":{"type":"string"},"Meta_v2":{"type":"number"}},"parameters":{"p":{"name":"p"}},
                "paths":{"/a":{}}}"#,
            r##"{"definitions":{"Meta":{"type":"string"},"Meta_v2":{"type":"number"},"Meta_v3":{"type":"object"},
                    "Thing":{"properties":{"meta":{"$ref":"#/definitions/Meta_v3"}}}},
                "parameters":{"p":{"name":"p"}},
                "paths":{"/a":{},"/apis/g/v1/things":{"get":{"parameters":[{"$ref":"#/parameters/p"}],
                    "responses":{"200":{"schema":{"$ref":"#/definitions/Thing"}}}}}}}"##,
        );
    }

    #[test]
    fn lists_of_documents() {
        let mut spec = RemoteSpec::default();
        spec.index(br#"{"paths":{"apis/g/v1":{"serverRelativeURL":"/openapi/v3/apis/g/v1?hash=A"}}}"#);
        spec.index(b"<html>");
        assert_eq!(spec.v3["apis/g/v1"], "/openapi/v3/apis/g/v1?hash=A");
    }
}
