//! Checks and what they answer.

use http_body_util::BodyExt;

use super::*;

fn health() -> (Health, Hook) {
    let health = Health::new(1_794_792_949.43);
    health.add("etcd", &Endpoint::ALL, || Ok(()));
    health.add("informer-sync", &[Endpoint::Readyz], || Ok(()));
    let hook = health.start_step("rbac/bootstrap-roles");
    (health, hook)
}

async fn read(response: Response) -> (u16, bool, String) {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (
        parts.status.as_u16(),
        parts.headers.contains_key("x-content-type-options"),
        String::from_utf8(body.into()).unwrap(),
    )
}

/// Asks a server that is well, and compares with what upstream says to the same.
async fn check(target: &str, expected: (u16, bool, &str)) {
    let (health, hook) = health();
    hook.finish();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let (status, nosniff, body) = read(health.answer(path, query).expect("a path of health")).await;
    assert_eq!((status, nosniff, body.as_str()), expected, "{target}");
}

#[tokio::test]
async fn a_server_that_is_well() {
    check("/healthz", (200, true, "ok")).await;
    check("/livez?exclude=nope", (200, true, "ok")).await;
    check(
        "/livez?verbose&exclude=etcd&exclude=nope&exclude=a\"b",
        (
            200,
            true,
            "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]poststarthook/rbac/bootstrap-roles ok\n\
             warn: some health checks cannot be excluded: no matches for \"a\\\"b\",\"nope\"\nlivez check passed\n",
        ),
    )
    .await;
    check(
        "/readyz?verbose=0",
        (
            200,
            true,
            "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]informer-sync ok\n[+]poststarthook/rbac/bootstrap-roles ok\n\
             [+]shutdown ok\nreadyz check passed\n",
        ),
    )
    .await;
    check("/readyz/ping", (200, false, "ok")).await;
    check("/readyz/shutdown", (200, false, "ok")).await;
    check("/readyz/poststarthook/rbac/bootstrap-roles", (200, false, "ok")).await;
}

#[test]
fn other_paths_are_none_of_it() {
    let (health, _) = health();
    for path in ["/readyz/", "/readyz/nope", "/livez/shutdown", "/healthz/informer-sync", "/", "", "readyz", "/metrics"]
    {
        assert!(health.answer(path, "").is_none(), "{path}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_told_only_by_the_single_check() {
    let (health, hook) = health();
    let (status, nosniff, body) = read(health.answer("/livez", "").unwrap()).await;
    let expected = "[+]ping ok\n[+]log ok\n[+]etcd ok\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\n\
                    livez check failed\n";
    assert_eq!((status, nosniff, body.as_str()), (500, true, expected));
    let (status, nosniff, body) = read(health.answer("/livez/poststarthook/rbac/bootstrap-roles", "").unwrap()).await;
    assert_eq!((status, nosniff, body.as_str()), (500, true, "internal server error: not finished\n"));
    let excluded = health.answer("/livez", "exclude=poststarthook/rbac/bootstrap-roles").unwrap();
    assert_eq!(read(excluded).await.0, 200);
    hook.finish();
    assert_eq!(read(health.answer("/livez", "").unwrap()).await.0, 200);
}

#[tokio::test]
async fn a_server_that_shuts_down_is_alive_but_not_ready() {
    let (health, hook) = health();
    hook.finish();
    health.shut_down();
    assert_eq!(read(health.answer("/livez", "").unwrap()).await.0, 200);
    let (status, _, body) = read(health.answer("/readyz", "").unwrap()).await;
    assert_eq!(status, 500);
    assert!(body.ends_with("[-]shutdown failed: reason withheld\nreadyz check failed\n"), "{body}");
    let (_, _, slis) = read(health.slis()).await;
    assert!(slis.contains("kubernetes_healthcheck{name=\"shutdown\",type=\"readyz\"} 0\n"), "{slis}");
    assert!(
        slis.contains("kubernetes_healthchecks_total{name=\"ping\",status=\"success\",type=\"readyz\"} 1\n"),
        "{slis}"
    );
    assert!(slis.ends_with("process_start_time_seconds 1.79479294943e+09\n"), "{slis}");
}

#[test]
fn paths_are_listed() {
    let (health, _) = health();
    let mut paths = health.paths();
    paths.sort();
    assert_eq!(paths.len(), 3 + 3 * 4 + 2);
    assert!(paths.contains(&"/readyz/poststarthook/rbac/bootstrap-roles".to_owned()), "{paths:?}");
}
