//! Wrong objects with what upstream's server says about them.

use capstan_api::{GroupVersionKind, Map, Value, json};

use super::{read, validate_create, validate_subresource_update, validate_update};

/// A line is `[object, [[field, message], …]]`, `[object, causes, old object]` for an update, or
/// `[object, causes, old object, subresource]` for an update of a part.
const CASES: &[&str] = &[include_str!("cases.jsonl"), include_str!("cases_workloads.jsonl")];

/// What stands for what is often in a line, in this order.
const SHORT: &[(&str, &str)] = &[
    ("@r", r#""strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}"#),
    ("@t", r#""template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"image":"i",@c}],@p}}"#),
    (
        "@s",
        concat!(
            r#""progressDeadlineSeconds":600,"replicas":1,"revisionHistoryLimit":10,"selector":{"matchLabels":"#,
            r#"{"a":"b"}}"#,
        ),
    ),
    (
        "@d",
        concat!(
            r#"alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g"#,
            r#". 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0"#,
            r#"-9]*[a-z0-9])?)*')"#,
        ),
    ),
    (
        "@q",
        concat!(
            r#"alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"#,
            r#" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za"#,
            r#"-z0-9_.]*)?[A-Za-z0-9]')"#,
        ),
    ),
    ("@p", r#""dnsPolicy":"ClusterFirst","restartPolicy":"Always","terminationGracePeriodSeconds":30"#),
    ("@c", r#""imagePullPolicy":"IfNotPresent","name":"c","terminationMessagePolicy":"File""#),
    ("@m", r#""metadata":{"name":"x","namespace":"default"}"#),
];

fn check(line: &str) -> Result<(), String> {
    let line = SHORT.iter().fold(line.to_owned(), |line, (short, long)| line.replace(short, long));
    let case = json::parse(line.as_bytes()).unwrap();
    let case = case.as_array().unwrap();
    let object = |i: usize| case.get(i).and_then(Value::as_object);
    let new: &Map = object(0).unwrap();
    let gvk = GroupVersionKind::from_api_version_and_kind(read::text(new, "apiVersion"), read::text(new, "kind"));
    let errors = match (object(2), case.get(3).and_then(Value::as_str)) {
        (Some(old), Some(subresource)) => validate_subresource_update(&gvk, subresource, new, old),
        (Some(old), None) => validate_update(&gvk, new, old),
        (None, _) => validate_create(&gvk, new),
    };
    let actual: Vec<_> = errors.iter().map(|error| (error.field.clone(), error.body())).collect();
    let causes = case[1].as_array().unwrap().iter().map(|cause| cause.as_array().unwrap());
    let expected: Vec<_> =
        causes.map(|cause| (cause[0].as_str().unwrap().to_owned(), cause[1].as_str().unwrap().to_owned())).collect();
    let shown = json::to_string(&case[0]);
    if actual == expected { Ok(()) } else { Err(format!("{shown}\n  expected {expected:?}\n  got      {actual:?}")) }
}

#[test]
fn as_upstream() {
    let lines = || CASES.iter().flat_map(|cases| cases.lines());
    let wrong: Vec<_> = lines().filter_map(|line| check(line).err()).collect();
    assert!(wrong.is_empty() && lines().count() > 700, "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}
