//! Cleaning: requests that are done with, or that nobody does anything about, go after a while.

use std::{sync::Arc, time::Duration};

use capstan_client::{Api, BoxFuture, Client, Key};
use capstan_clock::{SharedClock, Timestamp};
use capstan_runtime::{Action, Controller, ReconcileError, Reconciler, handler::enqueue_request_for_object};
use k8s_openapi::{api::certificates::v1::CertificateSigningRequest, apimachinery::pkg::apis::meta::v1::Time};
use x509_parser::pem::parse_x509_pem;

use super::{Requests, conditions, is_issued};
use crate::{
    ControllerContext,
    drive::{drive, filled},
};

/// How long requests stay that were signed, denied, or failed.
const DONE_EXPIRATION: Duration = Duration::from_hours(1);
/// How long requests stay that nobody approved, or signed.
const PENDING_EXPIRATION: Duration = Duration::from_hours(24);

struct Cleaner {
    client: Client,
    clock: SharedClock,
    requests: Requests,
}

/// Deletes old requests, each when its time has come.
pub(crate) fn run(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let requests: Requests = context.informers.informer();
    let reconciler =
        Cleaner { client: context.client.clone(), clock: Arc::clone(&context.clock), requests: requests.clone() };
    let controller = Controller::new(reconciler, Arc::clone(&context.clock));
    requests.add_event_handler(enqueue_request_for_object::<CertificateSigningRequest>(controller.queue().clone()));
    drive(context, "certificate_cleaner", vec![filled(&requests)], controller)
}

/// When the request is to go, as it is now.
fn deadline(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    let after = |time: Option<&Time>, expiration: Duration| time?.0.checked_add(expiration).ok();
    let mut deadlines = Vec::new();
    if conditions(csr).next().is_none() {
        deadlines.extend(after(csr.metadata.creation_timestamp.as_ref(), PENDING_EXPIRATION));
    }
    for condition in conditions(csr) {
        let expiration = match condition.type_.as_str() {
            "Denied" | "Failed" => DONE_EXPIRATION,
            "Approved" if is_issued(csr) => DONE_EXPIRATION,
            "Approved" => PENDING_EXPIRATION,
            _ => continue,
        };
        deadlines.extend(after(condition.last_update_time.as_ref(), expiration));
        if condition.type_ == "Approved" {
            deadlines.extend(end_of_certificate(csr));
        }
    }
    deadlines.into_iter().min()
}

fn end_of_certificate(csr: &CertificateSigningRequest) -> Option<Timestamp> {
    let certificate = csr.status.as_ref()?.certificate.as_ref()?;
    let (_, block) = parse_x509_pem(&certificate.0).ok()?;
    let end = block.parse_x509().ok()?.validity().not_after.timestamp();
    Timestamp::from_second(end).ok()
}

impl Reconciler for Cleaner {
    async fn reconcile(&self, key: Key) -> Result<Action, ReconcileError> {
        let Some(csr) = self.requests.lister().get(&key) else { return Ok(Action::Done) };
        let Some(deadline) = deadline(&csr) else { return Ok(Action::Done) };
        // Past it, not at it.
        let left = Duration::try_from(deadline.duration_since(self.clock.now())).ok();
        if let Some(left) = left {
            return Ok(Action::RequeueAfter(left + Duration::from_secs(1)));
        }
        match Api::<CertificateSigningRequest>::all(&self.client).delete(key.name(), &Default::default()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn when_requests_go() {
        fn check(status: Value, expected: &str) {
            let csr: CertificateSigningRequest = serde_json::from_value(json!({
                "metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"request": "", "signerName": "x"}, "status": status,
            }))
            .unwrap();
            assert_eq!(deadline(&csr).map(|time| time.to_string()).unwrap_or_default(), expected, "{status}");
        }
        let at = |type_: &str| json!([{"type": type_, "status": "True", "lastUpdateTime": "2026-01-01T02:00:00Z"}]);
        check(json!({}), "2026-01-02T00:00:00Z");
        check(json!({"conditions": at("Denied")}), "2026-01-01T03:00:00Z");
        check(json!({"conditions": at("Failed")}), "2026-01-01T03:00:00Z");
        check(json!({"conditions": at("Approved")}), "2026-01-02T02:00:00Z");
        check(json!({"conditions": at("Approved"), "certificate": "eA=="}), "2026-01-01T03:00:00Z");
        check(json!({"conditions": at("Other")}), "");
    }
}
