//! Rows of upstream's server, and ages.

use std::{collections::BTreeSet, fs, path::Path};

use capstan_api::{Map, Time, Value, builtin, builtin::Kind, json};

use super::{View, cells};

/// When upstream was asked, to the minute. Times in the objects are years before it, so that no age is near a change.
const NOW: &str = "2026-11-16T00:40:00Z";

/// The cells that upstream's server gave for its objects.
fn golden() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/rows.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    text.lines().map(|line| json::parse(line.as_bytes()).unwrap()).collect()
}

fn kind(group_version: &str, resource: &str) -> &'static Kind {
    let found =
        builtin::kinds().find(|kind| kind.group_version.to_string() == group_version && kind.resource == *resource);
    found.unwrap_or_else(|| panic!("{group_version} {resource}"))
}

fn text(value: &Value) -> String {
    let mut out = Vec::new();
    json::write(value, &mut out);
    String::from_utf8(out).unwrap()
}

/// The cells except the age, which is a second more or less.
fn without_age<'a>(kind: &'a Kind, cells: &'a [Value]) -> Vec<String> {
    let age = kind.columns.iter().position(|column| column.name == "Age");
    // Addresses have an age, but no column for it.
    let age = age.or_else(|| (kind.resource == *"ipaddresses").then_some(2));
    let kept = cells.iter().enumerate().filter(|(at, _)| Some(*at) != age);
    kept.map(|(_, cell)| text(cell)).collect()
}

#[test]
fn rows_are_those_of_upstream() {
    let mut wrong = Vec::new();
    for case in golden() {
        let view = View::of(Some(&case));
        let kind = kind(view.text("gv"), view.text("resource"));
        let object = case.get("object").and_then(Value::as_object).unwrap();
        let row = cells(kind, object, NOW.parse().unwrap());
        let expected = view.get("cells").and_then(Value::as_array).unwrap();
        let (got, expected) = (without_age(kind, &row.cells), without_age(kind, expected));
        if got != expected {
            wrong.push(format!(
                "{} {:?}\n  expected {expected:?}\n  got      {got:?}",
                kind.resource,
                object.get("metadata")
            ));
        }
        let conditions: Vec<_> =
            view.items("conditions").map(|condition| condition.text("reason").to_owned()).collect();
        let got: Vec<_> = row.conditions.iter().map(|condition| condition.reason.clone()).collect();
        assert_eq!(got, conditions, "{:?}", object.get("metadata"));
        for (got, expected) in row.conditions.iter().zip(view.items("conditions")) {
            assert_eq!(got.condition_type, expected.text("type"));
            assert_eq!(
                (got.status.as_str(), got.message.as_str()),
                (expected.text("status"), expected.text("message"))
            );
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_kind_that_has_columns_is_among_the_rows() {
    let cases = golden();
    let name =
        |case: &Value| (View::of(Some(case)).text("gv").to_owned(), View::of(Some(case)).text("resource").to_owned());
    let seen: BTreeSet<_> = cases.iter().map(name).collect();
    let kinds = builtin::kinds().filter(|kind| !kind.columns.is_empty());
    let names = kinds.map(|kind| (kind.group_version.to_string(), kind.resource.to_string()));
    let missing: Vec<_> = names.filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn there_are_as_many_cells_as_columns_even_for_nothing() {
    for kind in builtin::kinds().filter(|kind| !kind.columns.is_empty()) {
        let extra = usize::from(kind.resource == *"ipaddresses");
        let row = cells(kind, &Map::default(), Time::ZERO);
        assert_eq!(row.cells.len(), kind.columns.len() + extra, "{}", kind.resource);
    }
}

#[test]
fn ages() {
    let check = |group_version, resource, object: &str, column: usize, expected: &str| {
        let object = json::parse(object.as_bytes()).unwrap();
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        let row = cells(kind(group_version, resource), object.as_object().unwrap(), now);
        assert_eq!(row.cells[column].as_str(), Some(expected), "{resource}");
    };
    check("v1", "serviceaccounts", r#"{"metadata":{"creationTimestamp":"2026-01-03T00:00:00Z"}}"#, 1, "7d");
    check("v1", "serviceaccounts", r#"{"metadata":{"creationTimestamp":"2026-01-10T00:00:05Z"}}"#, 1, "<invalid>");
    check("v1", "serviceaccounts", r#"{"metadata":{"creationTimestamp":null}}"#, 1, "<unknown>");
    check("v1", "limitranges", "{}", 1, "0001-01-01T00:00:00Z");
    check("v1", "pods", r#"{"metadata":{"creationTimestamp":"2026-01-09T23:55:55Z"}}"#, 4, "4m5s");
    check("batch/v1", "jobs", r#"{"status":{"startTime":"2026-01-09T22:00:00Z"}}"#, 3, "120m");
    check("batch/v1", "jobs", "{}", 3, "");
}
