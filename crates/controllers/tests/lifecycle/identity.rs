//! Tokens, and roles made of others.

use capstan_client::Patch;
use serde_json::{Value, json};

use crate::harness::{Cluster, named, with};

fn encoded(text: &str) -> String {
    // Only what is needed: these texts are plain.
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

fn token(id: &str, expiration: &str) -> Value {
    let mut data = json!({"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"});
    if !expiration.is_empty() {
        data["expiration"] = json!(expiration);
    }
    let secret = named("v1", "Secret", &format!("bootstrap-token-{id}"));
    with(secret, json!({"type": "bootstrap.kubernetes.io/token", "stringData": data}))
}

#[tokio::test]
async fn bootstrap_tokens() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager(&["bootstrap-signer-controller", "token-cleaner-controller"]);
    let info = with(named("v1", "ConfigMap", "cluster-info"), json!({"data": {"kubeconfig": "the cluster"}}));
    cluster.create("v1/configmaps", "kube-public", info).await;
    cluster.create("v1/secrets", "kube-system", token("abcdef", "")).await;
    cluster.create("v1/secrets", "kube-system", token("ghijkl", "2026-01-01T00:02:00Z")).await;
    let signatures = || async {
        let map = cluster.get("v1/configmaps", "kube-public", "cluster-info").await.unwrap();
        let keys = map["data"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        keys.into_iter()
            .filter_map(|key| key.strip_prefix("jws-kubeconfig-").map(str::to_owned))
            .collect::<Vec<_>>()
            .join(" ")
    };
    cluster.until("both sign", || async { signatures().await == "abcdef ghijkl" }).await;
    manager.requests.take();
    cluster.advance(60).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);
    assert_eq!(signatures().await, "abcdef ghijkl");
    cluster.until("one is over", || async { signatures().await == "abcdef" }).await;
    assert!(!cluster.exists("v1/secrets", "kube-system", "bootstrap-token-ghijkl").await);
}

#[tokio::test]
async fn roles_of_roles() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager(&["clusterrole-aggregation-controller"]);
    const ROLES: &str = "rbac.authorization.k8s.io/v1/clusterroles";
    let role = |name: &str| named("rbac.authorization.k8s.io/v1", "ClusterRole", name);
    let rule = |verb: &str| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
    let selectors = json!([{"matchLabels": {"x.io/part": "yes"}}]);
    cluster
        .create(
            ROLES,
            "",
            with(role("whole"), json!({"aggregationRule": {"clusterRoleSelectors": selectors}, "rules": []})),
        )
        .await;
    for (name, verb) in [("part-b", "list"), ("part-a", "get"), ("part-c", "get")] {
        let part = with(role(name), json!({"metadata": {"labels": {"x.io/part": "yes"}}, "rules": rule(verb)}));
        cluster.create(ROLES, "", part).await;
    }
    let verbs = || async {
        let rules = cluster.get(ROLES, "", "whole").await.unwrap()["rules"].as_array().cloned().unwrap_or_default();
        rules.iter().map(|rule| rule["verbs"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    cluster.until("it is whole", || async { verbs().await == "get list" }).await;
    cluster.delete(ROLES, "", "part-b", "").await;
    cluster.until("a part is gone", || async { verbs().await == "get" }).await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"x.io/part": null}}}));
    cluster.api(ROLES, "").patch("part-a", &patch).await.unwrap();
    cluster.settle().await;
    // Nobody writes what is written: the server and this loop agree.
    manager.requests.take();
    cluster.advance(30).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);
    assert_eq!(verbs().await, "get");
}

#[tokio::test]
async fn tokens_in_secrets() {
    let cluster = Cluster::new().await;
    let manager = cluster.manager(&["serviceaccount-token-controller"]);
    let account = named("v1", "ServiceAccount", "robot");
    let account = with(account, json!({"secrets": [{"name": "robot-token"}, {"name": "other"}]}));
    let account = cluster.create("v1/serviceaccounts", "default", account).await;
    let secret = |name: &str, account: &str| {
        let annotations = json!({"metadata": {"annotations": {"kubernetes.io/service-account.name": account}}});
        with(with(named("v1", "Secret", name), annotations), json!({"type": "kubernetes.io/service-account-token"}))
    };
    cluster.create("v1/secrets", "default", secret("robot-token", "robot")).await;
    cluster.create("v1/secrets", "default", secret("robot-other", "robot")).await;
    cluster.create("v1/secrets", "default", secret("nobody-token", "nobody")).await;
    cluster
        .until("the token is there", || async {
            !cluster.get("v1/secrets", "default", "robot-token").await.unwrap()["data"]["token"].is_null()
        })
        .await;
    let found = cluster.get("v1/secrets", "default", "robot-token").await.unwrap();
    assert_eq!(found["data"]["ca.crt"], encoded("the root"));
    assert_eq!(found["data"]["namespace"], encoded("default"));
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io/serviceaccount/namespace": "default",
        "kubernetes.io/serviceaccount/secret.name": "robot-token",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": account.uid(),
    });
    assert_eq!(found["data"]["token"], encoded(&claims.to_string()));
    assert_eq!(found["metadata"]["annotations"]["kubernetes.io/service-account.uid"], account.uid());
    cluster
        .until("nobody's token goes", || async { !cluster.exists("v1/secrets", "default", "nobody-token").await })
        .await;
    cluster.settle().await;
    manager.requests.take();
    cluster.advance(30).await;
    assert_eq!(manager.requests.besides_discovery(), [""; 0]);

    // A token that is gone is forgotten, one whose account is gone goes.
    cluster.delete("v1/secrets", "default", "robot-token", "").await;
    cluster
        .until("it is forgotten", || async {
            cluster.get("v1/serviceaccounts", "default", "robot").await.unwrap()["secrets"]
                == json!([{"name": "other"}])
        })
        .await;
    cluster.delete("v1/serviceaccounts", "default", "robot", "").await;
    cluster.until("it goes", || async { !cluster.exists("v1/secrets", "default", "robot-other").await }).await;
}

#[tokio::test]
async fn tokens_that_nobody_uses() {
    let cluster = Cluster::new().await;
    let tracked = with(
        named("v1", "ConfigMap", "kube-apiserver-legacy-service-account-token-tracking"),
        json!({"data": {"since": "2026-01-01"}}),
    );
    let maps = cluster.api("v1/configmaps", "kube-system");
    let _ = maps.create(&capstan_api::Unstructured::decode(tracked.to_string().as_bytes()).unwrap()).await;
    let account = with(named("v1", "ServiceAccount", "robot"), json!({"secrets": [{"name": "old"}, {"name": "used"}]}));
    cluster.create("v1/serviceaccounts", "default", account).await;
    let secret = |name: &str, labels: Value| {
        let metadata = json!({"annotations": {"kubernetes.io/service-account.name": "robot"}, "labels": labels});
        with(named("v1", "Secret", name), json!({"metadata": metadata, "type": "kubernetes.io/service-account-token"}))
    };
    cluster.create("v1/secrets", "default", secret("old", json!({}))).await;
    cluster
        .create("v1/secrets", "default", secret("used", json!({"kubernetes.io/legacy-token-last-used": "2028-01-01"})))
        .await;
    cluster.clock.advance(std::time::Duration::from_secs(370 * 24 * 3600));
    let manager = cluster.manager(&["legacy-serviceaccount-token-cleaner-controller"]);
    cluster
        .until("it is marked", || async {
            let old = cluster.get("v1/secrets", "default", "old").await.unwrap();
            old["metadata"]["labels"]["kubernetes.io/legacy-token-invalid-since"] == "2027-01-06"
        })
        .await;
    for _ in 0..370 {
        cluster.clock.advance(std::time::Duration::from_secs(24 * 3600));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    cluster.until("it goes", || async { !cluster.exists("v1/secrets", "default", "old").await }).await;
    assert!(cluster.exists("v1/secrets", "default", "used").await);
    assert!(manager.requests.writes() == 2, "one mark, one deletion");
}
