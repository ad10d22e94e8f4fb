//! Families, series and their text.

use std::time::Duration;

use http::StatusCode;

use super::*;
use crate::request::{Query, RequestInfo};

fn metrics() -> Metrics {
    Metrics::new(1_794_792_949.43)
}

/// The lines of the exposition that begin so.
fn lines(metrics: &Metrics, prefix: &str) -> Vec<String> {
    metrics.text().lines().filter(|line| line.starts_with(prefix)).map(str::to_owned).collect()
}

#[test]
fn text_is_as_upstream_writes_it() {
    let metrics = metrics();
    let pods = RequestLabels {
        verb: "LIST",
        version: "v1",
        resource: "pods",
        scope: "cluster",
        component: "apiserver",
        ..RequestLabels::default()
    };
    let ms = Duration::from_millis;
    metrics.requests.record(&pods, StatusCode::OK, 10_000, ms(30), ms(0));
    metrics.requests.record(&pods, StatusCode::OK, 2_000_000, ms(2500), ms(500));
    metrics.requests.record(&RequestLabels::path("GET", "/readyz"), StatusCode::OK, 2, ms(1), ms(0));
    assert_eq!(
        lines(&metrics, "apiserver_request_total"),
        [
            r#"apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/readyz",verb="GET",version=""} 1"#,
            r#"apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1"} 2"#,
        ]
    );
    let labels =
        r#"component="apiserver",group="",resource="pods",scope="cluster",subresource="",verb="LIST",version="v1""#;
    let sizes: Vec<_> =
        [("1000", 0), ("10000", 1), ("100000", 1), ("1e+06", 1), ("1e+07", 2), ("1e+08", 2), ("1e+09", 2), ("+Inf", 2)]
            .map(|(le, count)| format!("apiserver_response_sizes_bucket{{{labels},le=\"{le}\"}} {count}"))
            .into();
    let got = lines(&metrics, "apiserver_response_sizes");
    assert_eq!(got[10..18], sizes);
    assert_eq!(got[18], format!("apiserver_response_sizes_sum{{{labels}}} 2.01e+06"));
    assert_eq!(got[19], format!("apiserver_response_sizes_count{{{labels}}} 2"));
    let sli = lines(&metrics, &format!("apiserver_request_sli_duration_seconds_bucket{{{labels},le=\"2\""));
    assert!(sli[0].ends_with(" 2"), "what others took does not count: {sli:?}");
    let duration = lines(&metrics, "apiserver_request_duration_seconds_bucket{component=\"apiserver\"");
    assert!(duration.iter().any(|line| line.contains("le=\"2\"") && line.ends_with(" 1")), "{duration:?}");
}

#[test]
fn families_have_a_head_and_come_in_order() {
    let metrics = metrics();
    metrics.inflight.with(&["readOnly"]).set(1.0);
    let text = metrics.text();
    assert!(text.contains("# TYPE apiserver_current_inflight_requests gauge\napiserver_current_inflight_requests{request_kind=\"readOnly\"} 1\n"));
    assert!(text.contains("process_start_time_seconds 1.79479294943e+09\n"));
    assert!(text.contains("apiserver_audit_event_total 0\n"), "without labels there is a series from the start");
    assert!(!text.contains("apiserver_longrunning_requests"), "without series there is no head");
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert!(names.iter().all(|name| text.contains(&format!("# HELP {}", name.split(' ').next().unwrap()))));
}

#[test]
fn labels_are_escaped() {
    let metrics = metrics();
    metrics.authenticated_users.with(&["a\"b\\c\nd"]).inc();
    assert_eq!(
        lines(&metrics, "authenticated_user_requests"),
        [r#"authenticated_user_requests{username="a\"b\\c\nd"} 1"#]
    );
}

#[test]
fn the_number_of_series_is_bounded() {
    let metrics = metrics();
    for number in 0..MAX_SERIES + 5 {
        metrics.authenticated_users.with(&[&number.to_string()]).inc();
    }
    assert_eq!(lines(&metrics, "authenticated_user_requests").len(), MAX_SERIES + 1);
    assert_eq!(metrics.authenticated_users.with(&[OTHER]).get(), 5);
}

#[test]
fn what_runs_is_counted_while_it_lives() {
    let metrics = metrics();
    let gauge = metrics.executing.with(&["catch-all", "catch-all"]);
    let (one, two) = (Metrics::begin(&gauge), Metrics::begin(&gauge));
    assert_eq!(gauge.get(), 2.0);
    drop((one, two));
    assert_eq!(gauge.get(), 0.0);
}

#[test]
fn objects_that_are_gone_have_no_number() {
    let metrics = metrics();
    metrics.set_objects("apps", "deployments", Some(3));
    metrics.set_objects("", "pods", Some(2_000_000));
    assert_eq!(
        lines(&metrics, "apiserver_storage_objects"),
        [
            r#"apiserver_storage_objects{resource="deployments.apps"} 3"#,
            r#"apiserver_storage_objects{resource="pods"} 2e+06"#
        ]
    );
    metrics.set_objects("apps", "deployments", None);
    assert_eq!(lines(&metrics, "apiserver_resource_objects").len(), 1);
}

#[test]
fn verbs_are_those_of_upstream() {
    fn check(method: &str, target: &str, content_type: &str, expected: &str) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut info = RequestInfo::default();
        path.clone_into(&mut info.path);
        let parts: Vec<_> = path.trim_matches('/').split('/').collect();
        if let ["api", "v1", rest @ ..] = &parts[..] {
            info.is_resource_request = true;
            info.verb = if method == "POST" { "create" } else { "get" }.into();
            let rest = match rest {
                ["watch", rest @ ..] => {
                    info.verb = "watch".into();
                    rest
                }
                rest => rest,
            };
            let rest = match rest {
                ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                    info.namespace = (*namespace).into();
                    rest
                }
                rest => rest,
            };
            info.resource = rest[0].into();
            info.name = rest.get(1).copied().unwrap_or_default().into();
            info.subresource = rest.get(2).copied().unwrap_or_default().into();
        }
        assert_eq!(verb(method, content_type, &Query::parse(query), &info), expected, "{method} {target}");
    }
    const APPLY: &str = "application/apply-patch+yaml";
    check("GET", "/api/v1/pods", "", "LIST");
    check("HEAD", "/api/v1/pods", "", "LIST");
    check("GET", "/api/v1/namespaces/a/pods/b", "", "GET");
    check("GET", "/api/v1/pods?watch", "", "WATCH");
    check("GET", "/api/v1/pods?watch=1", "", "WATCH");
    check("GET", "/api/v1/pods?watch=False", "", "LIST");
    check("GET", "/api/v1/watch/pods", "", "WATCH");
    check("POST", "/api/v1/namespaces/a/pods?watch=1", "", "POST");
    check("DELETE", "/api/v1/namespaces/a/pods", "", "DELETE");
    check("PATCH", "/api/v1/namespaces/a/pods/b", APPLY, "APPLY");
    check("PATCH", "/api/v1/namespaces/a/pods/b", "application/json-patch+json", "PATCH");
    check("GET", "/api/v1/namespaces/a/pods/b/log", "", "CONNECT");
    check("POST", "/api/v1/namespaces/a/pods/b/exec", "", "CONNECT");
    check("FOO", "/api/v1/pods", "", "other");
    check("GET", "/readyz", "", "GET");
    check("POST", "/readyz", "", "POST");
}

#[test]
fn dry_runs() {
    for (query, expected) in [
        ("", ""),
        ("dryRun=All", "All"),
        ("dryRun=All&dryRun=All", "All"),
        ("dryRun=x", "invalid"),
        ("dryRun", "invalid"),
    ] {
        assert_eq!(dry_run(&Query::parse(query)), expected, "{query}");
    }
}

#[test]
fn users_are_few() {
    for (name, expected) in [("admin", "admin"), ("me@example.com", "email_id"), ("system:node:x", "other")] {
        assert_eq!(user_label(name), expected);
    }
}
