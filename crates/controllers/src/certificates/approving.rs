//! Approving: requests of nodes for their own certificates, if they may make them.

use std::sync::Arc;

use capstan_api::options::UpdateOptions;
use capstan_client::{Api, BoxFuture, Client, Key};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
};

use super::{
    Requests, has_condition, queue,
    request::{Request, kubelet_client},
    unissued,
};
use crate::{
    ControllerContext,
    drive::{drive, filled},
};

/// How many requests are worked on at the same time.
const WORKERS: usize = 5;

/// Which permission lets a request be approved, and what is said then.
struct Recognizer {
    subresource: &'static str,
    message: &'static str,
    only_self: bool,
}

const RECOGNIZERS: [Recognizer; 2] = [
    Recognizer {
        subresource: "selfnodeclient",
        message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
        only_self: true,
    },
    Recognizer {
        subresource: "nodeclient",
        message: "Auto approving kubelet client certificate after SubjectAccessReview.",
        only_self: false,
    },
];

struct Approver {
    client: Client,
    requests: Requests,
}

/// Approves requests of nodes.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let requests: Requests = context.informers.informer();
    let reconciler = Approver { client: context.client.clone(), requests: requests.clone() };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock))
        .with_queue(queue(context))
        .max_concurrent_reconciles(WORKERS);
    requests.add_event_handler(enqueue_request_for_object::<CertificateSigningRequest>(controller.queue().clone()));
    drive(context, "certificate", vec![filled(&requests)], controller)
}

impl Reconciler for Approver {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(csr) = unissued(&self.requests, &key) else { return Ok(Action::Done) };
        if has_condition(&csr, "Approved") || has_condition(&csr, "Denied") {
            return Ok(Action::Done);
        }
        let request = Request::parse(&csr.spec.request.0)
            .map_err(|why| ReconcileError::Retry(format!("unable to parse csr {:?}: {why}", key.name())))?;
        let usages: Vec<_> = csr.spec.usages.iter().flatten().map(String::as_str).collect();
        if csr.spec.signer_name != "kubernetes.io/kube-apiserver-client-kubelet"
            || kubelet_client(&request, &usages).is_err()
        {
            return Ok(Action::Done);
        }
        let is_self = csr.spec.username.as_deref() == Some(&request.common_name);
        let mut tried = Vec::new();
        for recognizer in RECOGNIZERS.iter().filter(|recognizer| is_self || !recognizer.only_self) {
            tried.push(recognizer.subresource);
            if self.may(&csr, recognizer.subresource).await? {
                return self.approve(&csr, recognizer.message).await;
            }
        }
        Err(ReconcileError::Retry(format!(
            "recognized csr {:?} as [{}] but subject access review was not approved",
            key.name(),
            tried.join(" ")
        )))
    }
}

impl Approver {
    async fn may(&self, csr: &CertificateSigningRequest, subresource: &str) -> Result<bool, ReconcileError> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: csr.spec.username.clone(),
                uid: csr.spec.uid.clone(),
                groups: csr.spec.groups.clone(),
                extra: csr.spec.extra.clone(),
                resource_attributes: Some(ResourceAttributes {
                    group: Some("certificates.k8s.io".to_owned()),
                    resource: Some("certificatesigningrequests".to_owned()),
                    verb: Some("create".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    version: Some("*".to_owned()),
                    ..ResourceAttributes::default()
                }),
                non_resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let answer = Api::<SubjectAccessReview>::all(&self.client).create(&review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    async fn approve(&self, csr: &CertificateSigningRequest, message: &str) -> Result<Action, ReconcileError> {
        let mut csr = csr.clone();
        let condition = CertificateSigningRequestCondition {
            type_: "Approved".to_owned(),
            status: "True".to_owned(),
            reason: Some("AutoApproved".to_owned()),
            message: Some(message.to_owned()),
            ..CertificateSigningRequestCondition::default()
        };
        csr.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        let api = Api::<CertificateSigningRequest>::all(&self.client);
        let result = api.update_with(&csr, "approval", &UpdateOptions::default()).await;
        result.map_err(|error| ReconcileError::Retry(format!("error updating approval for csr: {error}")))?;
        Ok(Action::Done)
    }
}
