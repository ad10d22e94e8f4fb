//! Statuses against what upstream's constructors yield.

use std::collections::BTreeMap;

use super::*;
use crate::{
    Value,
    field::Error,
    names::{GroupKind, GroupResource},
};

fn golden() -> BTreeMap<&'static str, &'static str> {
    include_str!("../../testdata/status.txt").lines().filter_map(|line| line.split_once('\t')).collect()
}

fn check(name: &str, status: &Status, expected: &str) {
    assert_eq!(serde_json::to_string(status).unwrap(), expected, "{name}");
    assert_eq!(&serde_json::from_str::<Status>(expected).unwrap(), status, "{name}");
}

fn field_errors() -> Vec<Error> {
    vec![
        Error::required("spec.x", "need it"),
        Error::invalid("spec[0]", "v", "bad"),
        Error::invalid("spec[0]", "v", "bad"),
        Error::too_long("spec[k]", 3),
        Error::not_supported("spec", "z", &["a", "b"]),
        Error::duplicate("spec", 1),
        Error::forbidden("spec", "no"),
        Error::too_many("spec", 3, 2),
        Error::type_invalid("spec", true, "must be"),
        Error::internal("spec", "boom"),
        Error::not_found("spec", Value::Null),
        Error::too_few("spec", 0, 1),
        Error::too_short("spec", 1),
    ]
}

#[test]
fn constructors_as_upstream() {
    let resource = GroupResource::from_static("apps", "deployments");
    let (core, none) = (GroupResource::from_static("", "pods"), GroupResource::default());
    let kind = GroupKind::from_static("apps", "Deployment");
    let cause = StatusCause {
        reason: cause::FIELD_MANAGER_CONFLICT,
        message: "conflict with \"x\"".to_owned(),
        field: ".spec.replicas".to_owned(),
    };
    let mut expired = Status::resource_expired("go on");
    expired.metadata.get_or_insert_default().continue_token = "token".to_owned();
    let made = [
        ("not_found", Status::not_found(&resource, "a\"b")),
        ("not_found_core", Status::not_found(&core, "a")),
        ("already_exists", Status::already_exists(&resource, "a")),
        ("generate_name_conflict", Status::generate_name_conflict(&resource, "a", 1)),
        ("unauthorized", Status::unauthorized("who are you")),
        ("unauthorized_empty", Status::unauthorized("")),
        ("forbidden", Status::forbidden(&resource, "a", "boom")),
        ("forbidden_no_name", Status::forbidden(&resource, "", "boom")),
        ("forbidden_none", Status::forbidden(&none, "a", "boom")),
        ("conflict", Status::conflict(&resource, "a", "boom")),
        ("apply_conflict", Status::apply_conflict(vec![cause], "Apply failed with 1 conflict")),
        ("gone", Status::gone("too late")),
        ("resource_expired", Status::resource_expired("too old resource version: 1 (2)")),
        ("invalid", Status::invalid(&kind, "a", &field_errors())),
        ("invalid_one", Status::invalid(&kind, "a", &vec![Error::required("spec", "")])),
        ("invalid_none", Status::invalid(&kind, "a", &vec![])),
        ("bad_request", Status::bad_request("nonsense")),
        ("too_many_requests", Status::too_many_requests("later", 7)),
        ("too_many_requests_error", Status::too_many_requests_error("later")),
        ("service_unavailable", Status::service_unavailable("away")),
        ("method_not_supported", Status::method_not_supported(&resource, "delete")),
        ("server_timeout", Status::server_timeout(&resource, "list", 2)),
        ("server_timeout_for_kind", Status::server_timeout_for_kind(&kind, "get", 0)),
        ("internal_error", Status::internal_error("boom")),
        ("timeout", Status::timeout("slow", 3)),
        ("timeout_no_retry", Status::timeout("slow", 0)),
        ("too_large_resource_version", Status::too_large_resource_version(20, 10, 1)),
        ("request_entity_too_large", Status::request_entity_too_large("limit is 3145728")),
        ("expired_continue", expired),
    ];
    let mut golden = golden();
    for (name, status) in made {
        check(name, &status, golden.remove(name).unwrap_or_else(|| panic!("{name} is not in the golden file")));
    }
    golden.retain(|name, _| !name.starts_with("generic"));
    assert!(golden.is_empty(), "not compared: {golden:?}");
}

#[test]
fn generic_responses_as_upstream() {
    let resource = GroupResource::from_static("apps", "deployments");
    let golden = golden();
    let cases: Vec<_> = golden.iter().filter(|(name, _)| name.starts_with("generic ")).collect();
    assert_eq!(cases.len(), 48);
    for (name, expected) in cases {
        let mut words = name.split(' ').skip(1);
        let code = words.next().unwrap().parse().unwrap();
        let verb = words.next().unwrap();
        let base = GenericResponse { code, verb, ..GenericResponse::default() };
        let response = match verb {
            "POST" => GenericResponse {
                resource: Some(&resource),
                name: "a",
                server_message: "said \"x\"",
                retry_after_seconds: 4,
                unexpected: true,
                ..base
            },
            "GET" => GenericResponse { resource: Some(&resource), server_message: "unknown", ..base },
            _ => GenericResponse { name: "a", ..base },
        };
        check(name, &response.into(), expected);
    }
}

#[test]
fn negotiation() {
    let status = Status::not_acceptable(&["application/json", "application/yaml"]);
    assert_eq!(status.message, "only the following media types are accepted: application/json, application/yaml");
    assert!(status.is_not_acceptable() && status.code == 406);
    let status = Status::not_acceptable_conversion("Table.v1.meta.k8s.io", &["application/json"]);
    let expected =
        "only the following media types are accepted when converting to Table.v1.meta.k8s.io: application/json";
    assert_eq!(status.message, expected);
    let status = Status::unsupported_media_type(&["application/json"]);
    let expected = "the body of the request was in an unknown format - accepted media types include: application/json";
    assert_eq!(status.message, expected);
    assert!(status.is_unsupported_media_type() && status.code == 415);
}

#[test]
fn predicates() {
    let resource = GroupResource::from_static("", "pods");
    let by_code = |code| Status { code, ..Status::default() };
    assert!(Status::not_found(&resource, "a").is_not_found());
    assert!(by_code(404).is_not_found());
    assert!(!Status { code: 404, ..Status::forbidden(&resource, "a", "") }.is_not_found());
    assert!(!by_code(409).is_already_exists() && by_code(409).is_conflict());
    assert!(!by_code(410).is_resource_expired() && by_code(410).is_gone());
    assert!(!Status::resource_expired("").is_gone());
    assert!(Status { code: 429, ..Status::bad_request("") }.is_too_many_requests());
    assert!(Status { code: 413, ..Status::bad_request("") }.is_request_entity_too_large());
    assert!(Status::too_large_resource_version(2, 1, 1).is_too_large_resource_version());
    assert!(!Status::timeout("", 1).is_too_large_resource_version());
    assert_eq!(Status::server_timeout(&resource, "get", 0).suggests_client_delay(), Some(0));
    assert_eq!(Status::timeout("", 0).suggests_client_delay(), None);
    assert_eq!(Status::timeout("", 5).suggests_client_delay(), Some(5));
    assert!(Status { reason: "Odd".into(), code: 403, ..Status::default() }.is_forbidden());
}

#[test]
fn reading_is_lenient() {
    let text = r#"{"metadata":null,"reason":null,"message":null,"details":{"causes":null,"name":null},"x":1}"#;
    let status: Status = serde_json::from_str(text).unwrap();
    assert_eq!(status, Status { details: Some(Box::default()), ..Status::default() });
}
