//! Certificate signing requests: those of nodes are approved, approved ones are signed, old ones are cleaned away.

pub(crate) mod approving;
pub(crate) mod cleaner;
mod request;
pub(crate) mod signing;

use std::{sync::Arc, time::Duration};

use capstan_client::{Key, SharedIndexInformer};
use capstan_clock::Timestamp;
use capstan_runtime::workqueue::PriorityQueue;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition};

use crate::{ControllerContext, endpointslice::slice_queue};

/// How long a failure waits at first.
const BACKOFF: Duration = Duration::from_millis(200);
/// How long a failure waits at most.
const MAX_BACKOFF: Duration = Duration::from_secs(1_000);

/// A request for a certificate, as it goes to an authority.
#[derive(Clone, Debug)]
pub struct SigningRequest<'a> {
    /// Who is to sign: `kubernetes.io/kubelet-serving` for instance.
    pub signer_name: &'a str,
    /// The request in PEM form; its signature is still to be checked.
    pub request: &'a str,
    /// What the certificate is to be for, by the names of CertificateSigningRequests.
    pub usages: &'a [&'a str],
    /// How long it is to be valid.
    pub validity: Duration,
    /// The time.
    pub now: Timestamp,
}

/// An authority that signs what was approved. It holds the keys; no loop does.
pub trait CertificateSigner: Send + Sync + 'static {
    /// The certificate in PEM form.
    ///
    /// # Errors
    /// Why there is none.
    fn sign(&self, request: &SigningRequest<'_>) -> Result<String, String>;
}

fn queue(context: &ControllerContext) -> PriorityQueue<Key> {
    slice_queue(context, BACKOFF, MAX_BACKOFF)
}

type Requests = SharedIndexInformer<CertificateSigningRequest>;

fn conditions(csr: &CertificateSigningRequest) -> impl Iterator<Item = &CertificateSigningRequestCondition> {
    csr.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten()
}

fn has_condition(csr: &CertificateSigningRequest, type_: &str) -> bool {
    conditions(csr).any(|condition| condition.type_ == type_)
}

fn is_issued(csr: &CertificateSigningRequest) -> bool {
    let certificate = csr.status.as_ref().and_then(|status| status.certificate.as_ref());
    certificate.is_some_and(|certificate| !certificate.0.is_empty())
}

/// The request of this key, unless it has its certificate already.
fn unissued(requests: &Requests, key: &Key) -> Option<Arc<CertificateSigningRequest>> {
    requests.lister().get(key).filter(|csr| !is_issued(csr))
}
