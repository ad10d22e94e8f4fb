//! Our patches against what upstream's libraries answered: `testdata/patches`.

use std::fmt::Display;

use super::{json_patch::JsonPatch, merge, strategic};
use crate::{Map, Value, builtin, json, schema::Schema};

/// Runs `ours` on every case of a file and compares.
///
/// A case has `out` if upstream succeeded, `err` if it failed, `panic` if it did that; then we must fail, in whatever
/// words.
fn check<E: Display>(file: &str, ours: impl Fn(&Map) -> Result<Value, E>) {
    let path = format!("{}/testdata/patches/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut differences = Vec::new();
    let mut cases = 0;
    for line in text.lines() {
        cases += 1;
        let Value::Object(case) = json::parse(line.as_bytes()).unwrap() else { panic!("{line}") };
        let ours = ours(&case).map_err(|error| error.to_string());
        let same = match (&ours, case.get("out"), case.get("err")) {
            (Ok(ours), Some(out), _) => ours == out,
            (Err(ours), _, Some(error)) => Some(ours.as_str()) == error.as_str(),
            (Err(_), None, None) => case.contains_key("panic"),
            _ => false,
        };
        if !same {
            differences.push(format!("{line}\n  ours: {ours:?}"));
        }
    }
    assert!(cases > 50, "{path} has too few cases");
    let count = differences.len();
    differences.truncate(10);
    assert!(count == 0, "{count} of {cases} differ:\n{}", differences.join("\n"));
}

fn object(case: &Map, field: &str) -> Map {
    case.get(field).and_then(Value::as_object).unwrap().clone()
}

#[test]
fn json_patches() {
    check("json_patch.jsonl", |case| {
        let patch = JsonPatch::from_value(case.get("patch").unwrap().clone()).map_err(|error| error.to_string())?;
        patch.apply(case.get("doc").unwrap().clone()).map_err(|error| error.to_string())
    });
}

#[test]
fn merge_patches() {
    check("merge.jsonl", |case| merge::apply(case.get("doc").unwrap().clone(), case.get("patch").unwrap().clone()));
}

#[test]
fn merge_patches_made() {
    check("merge_diff.jsonl", |case| {
        let (original, modified) = (object(case, "original"), object(case, "modified"));
        Ok::<_, String>(Value::from(match case.contains_key("current") {
            true => merge::three_way(&original, &modified, &object(case, "current")),
            false => merge::diff(&original, &modified),
        }))
    });
}

#[test]
fn strategic_patches() {
    check("strategic.jsonl", |case| {
        let schema = schema(case.get("kind").and_then(Value::as_str).unwrap());
        strategic::apply(object(case, "doc"), object(case, "patch"), schema.root()).map(Value::from)
    });
}

#[test]
fn strategic_patches_made() {
    check("strategic_diff.jsonl", |case| {
        let schema = schema(case.get("kind").and_then(Value::as_str).unwrap());
        let (original, modified) = (object(case, "original"), object(case, "modified"));
        if !case.contains_key("current") {
            return strategic::diff(&original, &modified, schema.root()).map(Value::from).map_err(|e| e.to_string());
        }
        let overwrite = case.get("overwrite").and_then(Value::as_bool).unwrap();
        let patch = strategic::three_way(&original, &modified, &object(case, "current"), schema.root(), overwrite);
        patch.map(Value::from).map_err(|error| match error {
            strategic::Error::Conflict(..) => "conflict".into(),
            other => other.to_string(),
        })
    });
}

/// The schema of a kind or type of one of these packages.
pub(super) fn schema(kind: &str) -> Schema {
    let packages = ["core.v1", "apps.v1", "policy.v1", "apiextensions.v1", "meta.v1"];
    packages.iter().find_map(|package| builtin::type_schema(&format!("{package}.{kind}"))).expect(kind)
}
