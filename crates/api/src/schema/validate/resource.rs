//! Resources inside of resources: they must say what they are, and their metadata must be right.

use crate::{
    Map, Value, builtin,
    field::{Error, ErrorList, Path},
    json,
    names::GroupVersion,
    schema::Decoded,
    validation,
};

pub(super) const NOT_A_STRING: &str = "must be a string";

/// Checks `apiVersion`, `kind` and `metadata` of an embedded resource.
pub(super) fn check(map: &Map, path: impl Fn(&str) -> String, errors: &mut ErrorList) {
    for field in ["apiVersion", "kind"] {
        if !map.contains_key(field) {
            errors.push(Error::required(path(field), ""));
        }
    }
    for field in ["apiVersion", "kind"] {
        let detail = match map.get(field) {
            None => continue,
            Some(Value::String(text)) if text.is_empty() => "must not be empty".to_owned(),
            Some(Value::String(text)) if field == "kind" => {
                let wrong = validation::is_dns1035_label(&text.to_lowercase());
                if wrong.is_empty() {
                    continue;
                }
                format!("may have mixed case, but should otherwise match: {}", wrong.join(","))
            }
            Some(Value::String(text)) => match text.parse::<GroupVersion>() {
                Err(error) => error.to_string(),
                Ok(_) => continue,
            },
            Some(_) => NOT_A_STRING.to_owned(),
        };
        let value = map.get(field).cloned().unwrap_or_default();
        errors.push(Error::invalid(path(field), value, detail));
    }
    if let Some(metadata) = map.get("metadata") {
        check_metadata(metadata, &path("metadata"), errors);
    }
}

/// What is wrong with the metadata of an embedded resource: it must be that of an object, and right.
fn check_metadata(metadata: &Value, path: &str, errors: &mut ErrorList) {
    let schema = builtin::type_schema("meta.v1.ObjectMeta").expect("the metadata of objects is built in");
    match schema.decode(json::to_string(metadata).as_bytes()) {
        Err(error) => errors.push(Error::invalid(path, metadata.clone(), error.to_string())),
        Ok(Decoded { value: Value::Object(mut metadata), .. }) => {
            // Nothing asks for a name here.
            metadata.get_or_insert_with("name", || "fakename".into());
            let namespaced = metadata.contains_key("namespace");
            let rule = |name: &str, prefix: bool| match prefix {
                true => validation::is_path_segment_prefix(name),
                false => validation::is_path_segment_name(name),
            };
            errors.extend(validation::validate_object_meta(&metadata, namespaced, rule, &Path::new(path)));
        }
        Ok(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata() {
        fn check_texts(metadata: &str, expected: &[&str]) {
            let mut errors = ErrorList::new();
            check_metadata(&json::parse(metadata.as_bytes()).unwrap(), "spec.metadata", &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{metadata}");
        }
        check_texts("{}", &[]);
        check_texts(r#"{"name":"a","namespace":"b","labels":{"x":"y"},"unknown":1}"#, &[]);
        check_texts(r#"{"name":"a/b"}"#, &[r#"spec.metadata.name: Invalid value: "a/b": may not contain '/'"#]);
        let expected = r#"spec.metadata: Invalid value: {"labels":{"a":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"#;
        check_texts(r#"{"labels":{"a":1}}"#, &[expected]);
    }
}
