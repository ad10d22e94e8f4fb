//! Certificate signing requests: approved, signed, cleaned.

use std::{path::Path, sync::Arc, time::Duration};

use capstan_api::options::UpdateOptions;
use capstan_client::Api;
use capstan_clock::{Clock as _, SeededIds};
use capstan_controllers::{CertificateSigner, SigningRequest};
use capstan_server::pki::{Options, Pki};
use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::{
            CertificateSigningRequest, CertificateSigningRequestCondition as Condition, CertificateSigningRequestSpec,
        },
        rbac::v1::ClusterRoleBinding,
    },
};
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::json;

use crate::harness::Cluster;

const ALL: &[&str] = &[
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-cleaner-controller",
];

struct Authority(Pki, Arc<SeededIds>);

impl CertificateSigner for Authority {
    fn sign(&self, request: &SigningRequest<'_>) -> Result<String, String> {
        let SigningRequest { request, usages, validity, now, .. } = request;
        self.0.ca.sign_request(request, usages, *validity, *now, &*self.1).map_err(|error| error.to_string())
    }
}

async fn start(name: &str) -> Cluster {
    let mut cluster = Cluster::start().await;
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pki-{name}-{}", std::process::id()));
    let options = Options { host: "h".to_owned(), service_ip: "10.0.0.1".parse().unwrap(), extra: Vec::new() };
    let pki = Pki::open(&directory, &options, cluster.clock.now(), &*cluster.ids).unwrap();
    cluster.options.certificate_signer = Some(Arc::new(Authority(pki, Arc::clone(&cluster.ids))));
    cluster
}

/// A request that is to be signed.
fn request(
    name: &str,
    signer: &str,
    common_name: &str,
    organization: &str,
    dns: &[&str],
    usages: &[&str],
) -> CertificateSigningRequest {
    let mut params = CertificateParams::new(dns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.distinguished_name.push(DnType::OrganizationName, organization);
    let pem = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
    let mut csr = CertificateSigningRequest {
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: format!("kubernetes.io/{signer}"),
            usages: Some(usages.iter().map(|usage| (*usage).to_owned()).collect()),
            expiration_seconds: Some(3_600),
            ..CertificateSigningRequestSpec::default()
        },
        ..CertificateSigningRequest::default()
    };
    csr.metadata.name = Some(name.to_owned());
    csr
}

async fn until_condition(cluster: &Cluster, name: &str, type_: &str) -> Condition {
    cluster
        .until(&format!("{name} {type_}"), || async {
            let csr: CertificateSigningRequest = cluster.get("", name).await?;
            csr.status?.conditions?.into_iter().find(|condition| condition.type_ == type_)
        })
        .await
}

async fn until_issued(cluster: &Cluster, name: &str) -> String {
    cluster
        .until(&format!("{name} is issued"), || async {
            let csr: CertificateSigningRequest = cluster.get("", name).await?;
            Some(String::from_utf8(csr.status?.certificate?.0).unwrap())
        })
        .await
}

#[tokio::test]
async fn nodes_get_their_certificates() {
    let cluster = start("nodes").await;
    let running = cluster.run(ALL);
    let usages = ["digital signature", "client auth"];
    let make =
        |name: &str| request(name, "kube-apiserver-client-kubelet", "system:node:n1", "system:nodes", &[], &usages);
    // The administrator may ask for any node.
    cluster.api::<CertificateSigningRequest>("").create(&make("any")).await.unwrap();
    let approved = until_condition(&cluster, "any", "Approved").await;
    assert_eq!(approved.reason.as_deref(), Some("AutoApproved"));
    let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
    assert!(approved.message.as_deref() == Some(message) || approved.message.as_deref().unwrap().contains("kubelet"));
    let pem = until_issued(&cluster, "any").await;
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let certificate = block.parse_x509().unwrap();
    assert_eq!(certificate.subject().to_string(), "CN=system:node:n1, O=system:nodes");
    let now = cluster.clock.now().as_second();
    let left = certificate.validity().not_after.timestamp() - now;
    assert!((3_500..=3_600).contains(&left), "{left}");

    // A node may ask for itself once it is allowed to, and is not approved before: no hot loop meanwhile.
    let node = cluster.as_user("system:node:n1", &["system:nodes", "system:authenticated"]);
    Api::<CertificateSigningRequest>::all(&node).create(&make("self")).await.unwrap();
    cluster.settle(&running).await;
    let before = running.requests();
    cluster.pass(&running, 60).await;
    let asked = running.requests() - before;
    assert!(asked <= 30, "{asked} requests in a minute");
    let csr: CertificateSigningRequest = cluster.get("", "self").await.unwrap();
    assert_eq!(csr.status.and_then(|status| status.conditions), None);
    let _: ClusterRoleBinding = cluster
        .create(json!({
            "metadata": {"name": "self"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                        "name": "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
        }))
        .await;
    let approved = until_condition(&cluster, "self", "Approved").await;
    let message = "Auto approving self kubelet client certificate after SubjectAccessReview.";
    assert_eq!(approved.message.as_deref(), Some(message));
    until_issued(&cluster, "self").await;

    // An hour later they are gone.
    cluster.clock.advance(Duration::from_secs(3_500));
    cluster.settle(&running).await;
    assert!(cluster.get::<CertificateSigningRequest>("", "self").await.is_some(), "not before");
    cluster.clock.advance(Duration::from_secs(200));
    cluster
        .until("all gone", || async { cluster.list::<CertificateSigningRequest>("").await.is_empty().then_some(()) })
        .await;
    running.kill();
}

#[tokio::test]
async fn every_signer_signs_what_it_may() {
    let cluster = start("signers").await;
    let running = cluster.run(ALL);
    let api = cluster.api::<CertificateSigningRequest>("");
    let sign = "digital signature";
    let cases = [
        ("a", "kube-apiserver-client", "jane", "people", vec![], vec![sign, "client auth"], None),
        ("b", "kubelet-serving", "system:node:n", "system:nodes", vec!["n"], vec![sign, "server auth"], None),
        (
            "d",
            "kube-apiserver-client",
            "jane",
            "people",
            vec![],
            vec![sign, "server auth"],
            Some("invalid usage for client certificate: server auth"),
        ),
        (
            "e",
            "kubelet-serving",
            "system:node:n",
            "system:nodes",
            vec![],
            vec![sign, "server auth"],
            Some("DNS or IP subjectAltName is required"),
        ),
    ];
    for (name, signer, common_name, organization, dns, usages, failure) in cases {
        let mut csr = api.create(&request(name, signer, common_name, organization, &dns, &usages)).await.unwrap();
        let condition = Condition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("ByHand".to_owned()),
            ..Condition::default()
        };
        csr.status.get_or_insert_default().conditions = Some(vec![condition]);
        api.update_with(&csr, "approval", &UpdateOptions::default()).await.unwrap();
        match failure {
            None => drop(until_issued(&cluster, name).await),
            Some(message) => {
                let failed = until_condition(&cluster, name, "Failed").await;
                assert_eq!(failed.reason.as_deref(), Some("SignerValidationFailure"));
                assert_eq!(failed.message.as_deref(), Some(message), "{name}");
            }
        }
    }
    // Nobody approves this one: it stays a day.
    api.create(&request("f", "kube-apiserver-client", "x", "y", &[], &["client auth"])).await.unwrap();
    cluster.settle(&running).await;
    cluster.clock.advance(Duration::from_secs(7_200));
    cluster
        .until("the others are gone", || async {
            (cluster.list::<CertificateSigningRequest>("").await.len() == 1).then_some(())
        })
        .await;
    let left: Vec<_> = cluster.list::<CertificateSigningRequest>("").await;
    assert_eq!(left.len(), 1, "{left:?}");
    cluster.clock.advance(Duration::from_secs(80_000));
    cluster
        .until("all gone", || async { cluster.list::<CertificateSigningRequest>("").await.is_empty().then_some(()) })
        .await;
    running.kill();
}
