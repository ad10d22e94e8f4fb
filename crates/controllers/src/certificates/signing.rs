//! Signing: approved requests get their certificates, from the authority that was handed in.

use std::{sync::Arc, time::Duration};

use capstan_client::{Api, BoxFuture, Client, Key};
use capstan_clock::{SharedClock, Timestamp};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object};
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    CertificateSigner, Requests, SigningRequest, conditions, has_condition, queue,
    request::{Request, SIGNERS, validate},
    unissued,
};
use crate::{
    ControllerContext,
    drive::{drive, filled},
};

/// How many requests are worked on at the same time.
const WORKERS: usize = 5;
/// How long certificates are valid at most.
const DURATION: Duration = Duration::from_secs(365 * 24 * 3600);
/// What is asked for that is shorter becomes this.
const MIN_DURATION: Duration = Duration::from_mins(10);
/// Certificates are valid from this long before they are made.
const BACKDATE: Duration = Duration::from_mins(5);
/// From this length on, that time counts as part of it.
const SHORT: Duration = Duration::from_hours(8);

struct Signer {
    client: Client,
    clock: SharedClock,
    requests: Requests,
    authority: Arc<dyn CertificateSigner>,
}

/// Signs approved requests. Without an authority there is nothing to do.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let Some(authority) = context.options.certificate_signer.clone() else { return Box::pin(async {}) };
    let requests: Requests = context.informers.informer();
    let reconciler = Signer {
        client: context.client.clone(),
        clock: Arc::clone(&context.clock),
        requests: requests.clone(),
        authority,
    };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock))
        .with_queue(queue(context))
        .max_concurrent_reconciles(WORKERS);
    requests.add_event_handler(enqueue_request_for_object::<CertificateSigningRequest>(controller.queue().clone()));
    drive(context, "certificate_signing", vec![filled(&requests)], controller)
}

/// From now on how long the certificate is valid.
fn validity(expiration_seconds: Option<i32>) -> Duration {
    let asked = expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let duration = asked.map_or(DURATION, |seconds| Duration::from_secs(seconds).clamp(MIN_DURATION, DURATION));
    if duration < SHORT { duration } else { duration - BACKDATE }
}

impl Reconciler for Signer {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(csr) = unissued(&self.requests, &key) else { return Ok(Action::Done) };
        let failed = conditions(&csr).any(|c| c.type_ == "Failed" && (c.status.is_empty() || c.status == "True"));
        let approved = has_condition(&csr, "Approved") && !has_condition(&csr, "Denied");
        if !approved || failed || !SIGNERS.contains(&csr.spec.signer_name.as_str()) {
            return Ok(Action::Done);
        }
        let unreadable = |why: String| ReconcileError::Retry(format!("unable to parse csr {:?}: {why}", key.name()));
        let pem = str::from_utf8(&csr.spec.request.0).map_err(|error| unreadable(error.to_string()))?;
        let request = Request::parse(pem.as_bytes()).map_err(unreadable)?;
        let usages: Vec<_> = csr.spec.usages.iter().flatten().map(String::as_str).collect();
        let now = self.clock.now();
        let mut csr = CertificateSigningRequest::clone(&csr);
        let status = csr.status.get_or_insert_default();
        if let Err(message) = validate(&csr.spec.signer_name, &request, &usages) {
            status.conditions.get_or_insert_default().push(failure(message, now));
            self.write(&csr, "error adding failure condition for csr").await
        } else {
            let request = SigningRequest {
                signer_name: &csr.spec.signer_name,
                request: pem,
                usages: &usages,
                validity: validity(csr.spec.expiration_seconds),
                now,
            };
            let certificate = self.authority.sign(&request);
            let certificate =
                certificate.map_err(|why| ReconcileError::Retry(format!("error auto signing csr: {why}")))?;
            status.certificate = Some(ByteString(certificate.into_bytes()));
            self.write(&csr, "error updating signature for csr").await
        }
    }
}

fn failure(message: String, now: Timestamp) -> CertificateSigningRequestCondition {
    CertificateSigningRequestCondition {
        type_: "Failed".to_owned(),
        status: "True".to_owned(),
        reason: Some("SignerValidationFailure".to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: None,
    }
}

impl Signer {
    async fn write(&self, csr: &CertificateSigningRequest, why: &str) -> Result<Action, ReconcileError> {
        let result = Api::<CertificateSigningRequest>::all(&self.client).update_status(csr).await;
        result.map_err(|error| ReconcileError::Retry(format!("{why}: {error}")))?;
        Ok(Action::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_certificates_are_valid() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        for (asked, expected) in [
            (None, DURATION - BACKDATE),
            (Some(60), minutes(10)),
            (Some(3_600), minutes(60)),
            (Some(8 * 3_600), minutes(8 * 60 - 5)),
            (Some(i32::MAX), DURATION - BACKDATE),
        ] {
            assert_eq!(validity(asked), expected, "{asked:?}");
        }
    }
}
