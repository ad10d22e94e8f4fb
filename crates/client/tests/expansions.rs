//! What only some kinds can do, on the real server in process.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::sync::Arc;

use capstan_api::options::DeleteOptions;
use capstan_client::{Client, Patch, expansion::RESTARTED_AT};
use capstan_clock::{ManualClock, SeededIds};
use capstan_server::{Config, Server, authentication::TokenIssuer, authorization::UserInfo, pki::PrivateKey};
use capstan_storage::{Memory, Options};
use k8s_openapi::api::{
    apps::v1::Deployment,
    authentication::v1::TokenRequest,
    certificates::v1::CertificateSigningRequestCondition,
    core::v1::{EphemeralContainer, Node, Pod, ServiceAccount},
    policy::v1::PodDisruptionBudget,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A request for a certificate of `tester`, made by openssl, in base64.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlITU1ITUNBUUF3RVRFUE1BMEdBMVVFQXd3R2RHVnpkR1Z5TUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowRApBUWNEUWdBRWVVNXBpcEM2TUIzR3VCNmNlTHVxbHFuamJyeitxeEdHRHdJeHNaS0hTZXFKd1pXNWprTWdINkoxCmZJQVMxWUVKUEpJNHdSa2N0enVNZ29Yc0UzZDZrcUFBTUFvR0NDcUdTTTQ5QkFNQ0Ewa0FNRVlDSVFEdTM5bEsKL0JLYTg1T0FGRXlYWTlQenVITUsrS2RpYTMwMlM3dDJjOENCUkFJaEFORExtOG40K3FFOFJ4b25zcDE4Ny82dAp3cmhibTlZaTk1endvS2xkU2JjeAotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";

async fn client() -> Client {
    let token_issuer = TokenIssuer {
        issuer: "https://kubernetes.default.svc".into(),
        key: Arc::new(PrivateKey::generate()),
        api_audiences: vec!["https://kubernetes.default.svc".into()],
        max_expiration_seconds: None,
        extend_expiration: false,
    };
    let config = Config { token_issuer: Some(token_issuer), ..Config::default() };
    let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
    let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
    let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    // What is refused for now is not asked again: nobody moves the clock.
    client.with_clock(Arc::new(clock), Arc::new(SeededIds::new(1))).with_max_retries(0)
}

fn of<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

#[tokio::test]
async fn pods_nodes_and_tokens() {
    let client = client().await;
    let accounts = client.core_v1().service_accounts("default");
    accounts.create(&of::<ServiceAccount>(json!({"metadata": {"name": "default"}}))).await.unwrap();
    let request: TokenRequest = of(json!({"spec": {"audiences": ["them"], "expirationSeconds": 600}}));
    let token = accounts.create_token("default", &request).await.unwrap().status.unwrap().token.unwrap();
    assert_eq!(token.split('.').count(), 3, "{token}");
    assert!(accounts.create_token("nobody", &request).await.unwrap_err().is_not_found());

    let nodes = client.core_v1().nodes();
    nodes.create(&of::<Node>(json!({"metadata": {"name": "n"}}))).await.unwrap();
    let cordoned = |node: Node| node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
    assert!(cordoned(nodes.cordon("n").await.unwrap()));
    assert!(!cordoned(nodes.uncordon("n").await.unwrap()));

    let pods = client.core_v1().pods("default");
    let spec = json!({"metadata": {"name": "p", "labels": {"app": "p"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    pods.create(&of::<Pod>(spec)).await.unwrap();
    pods.bind("p", "n").await.unwrap();
    assert!(pods.bind("p", "n").await.unwrap_err().is_conflict());
    let mut pod = pods.get("p").await.unwrap();
    let spec = pod.spec.as_mut().unwrap();
    assert_eq!(spec.node_name.as_deref(), Some("n"));
    spec.ephemeral_containers = Some(vec![EphemeralContainer {
        name: "look".into(),
        image: Some("busybox".into()),
        ..EphemeralContainer::default()
    }]);
    let pod = pods.update_ephemeral_containers(&pod).await.unwrap();
    assert_eq!(pod.spec.unwrap().ephemeral_containers.unwrap()[0].name, "look");

    // A budget that has not been looked at yet allows nothing.
    pods.patch_status(
        "p",
        &Patch::Merge(&json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})),
    )
    .await
    .unwrap();
    let budgets = client.policy_v1().pod_disruption_budgets("default");
    let budget =
        json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}});
    budgets.create(&of::<PodDisruptionBudget>(budget)).await.unwrap();
    let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    let refused = pods.evict("p", &at_once).await.unwrap_err();
    assert!(refused.is_too_many_requests(), "{refused}");
    budgets.delete("b", &DeleteOptions::default()).await.unwrap();
    pods.evict("p", &at_once).await.unwrap();
    assert_eq!(pods.get_opt("p").await.unwrap(), None);
}

#[tokio::test]
async fn restarts_and_approvals() {
    let client = client().await;
    let deployments = client.apps_v1().deployments("default");
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {
        "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    deployments.create(&of::<Deployment>(deployment)).await.unwrap();
    let restarted = deployments.restart("d").await.unwrap();
    let annotations = restarted.spec.unwrap().template.metadata.unwrap().annotations.unwrap();
    assert_eq!(annotations[RESTARTED_AT], "2026-01-01T00:00:00Z");
    assert_eq!(restarted.metadata.generation, Some(2));

    let requests = client.certificates_v1().certificate_signing_requests();
    let request = json!({"metadata": {"name": "r"}, "spec": {
        "request": REQUEST, "signerName": "example.com/signer", "usages": ["client auth"]}});
    let mut request = requests.create(&of(request)).await.unwrap();
    let condition = CertificateSigningRequestCondition {
        type_: "Approved".into(),
        status: "True".into(),
        reason: Some("Tested".into()),
        ..CertificateSigningRequestCondition::default()
    };
    request.status.get_or_insert_default().conditions = Some(vec![condition]);
    let approved = requests.update_approval(&request).await.unwrap();
    assert_eq!(approved.status.unwrap().conditions.unwrap()[0].type_, "Approved");
}
