//! Who may approve, sign and attest for which signer: CertificateApproval, CertificateSigning, ClusterTrustBundleAttest
//! and CertificateSubjectRestriction.

use std::sync::Arc;

use capstan_api::{GroupResource, Map, Status, Value, go};
use x509_parser::{
    certification_request::X509CertificationRequest, pem::parse_x509_pem, prelude::FromDer, x509::X509Name,
};

use super::{
    Operation, Plugin, Request,
    common::{forbidden, is_about, is_of, is_write, object, old_object, same_meaning},
};
use crate::{
    authorization::{Attributes, Authorizer},
    base64,
    registry::paths,
};

const GROUP: &str = "certificates.k8s.io";
pub(super) const CSRS: GroupResource = GroupResource::from_static(GROUP, "certificatesigningrequests");
const BUNDLES: GroupResource = GroupResource::from_static(GROUP, "clustertrustbundles");
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const SIGNER: &str = "spec.signerName";

/// Whether a user may do something for a signer, or for all signers of its domain.
fn may(authorizer: &dyn Authorizer, request: &Request<'_>, verb: &str, signer: &str) -> bool {
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    [signer, &domain].into_iter().any(|name| {
        let attributes = Attributes { name, ..Attributes::resource(request.user, verb, GROUP, "signers") };
        authorizer.authorize(&attributes).is_allowed()
    })
}

macro_rules! plugin {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        pub struct $name {
            authorizer: Arc<dyn Authorizer>,
        }

        impl $name {
            /// A plugin that asks this authorizer.
            #[must_use]
            pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
                $name { authorizer }
            }
        }
    };
}

plugin! {
    /// CertificateApproval: who approves requests must be allowed to for their signer.
    CertificateApproval
}

impl Plugin for CertificateApproval {
    fn name(&self) -> &'static str {
        "CertificateApproval"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if request.operation != Operation::Update || request.subresource != "approval" || !is_of(request, &CSRS) {
            return Ok(());
        }
        // The stored signer counts: the new one may be an attempt to change it.
        let signer = paths::text(old_object(request), SIGNER);
        if may(&*self.authorizer, request, "approve", signer) {
            return Ok(());
        }
        let error = format!("user not permitted to approve requests with signerName {}", go::quote(signer));
        Err(forbidden(request, error))
    }
}

plugin! {
    /// CertificateSigning: who signs or judges requests must be allowed to for their signer.
    CertificateSigning
}

impl Plugin for CertificateSigning {
    fn name(&self) -> &'static str {
        "CertificateSigning"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if request.operation != Operation::Update || request.subresource != "status" || !is_of(request, &CSRS) {
            return Ok(());
        }
        let (new, old) = (object(request), old_object(request));
        let signer = paths::text(old, SIGNER);
        let is_same = ["status.certificate", "status.conditions"].iter().all(|path| paths::same(new, old, path));
        if is_same || may(&*self.authorizer, request, "sign", signer) {
            return Ok(());
        }
        Err(forbidden(request, format!("user not permitted to sign requests with signerName {}", go::quote(signer))))
    }
}

plugin! {
    /// ClusterTrustBundleAttest: who writes a signer's bundle must be allowed to attest for it. Bundles are behind a
    /// gate that is closed by default.
    ClusterTrustBundleAttest
}

impl Plugin for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        "ClusterTrustBundleAttest"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_of(request, &BUNDLES) || !is_write(request) {
            return Ok(());
        }
        let new = object(request);
        let signer = paths::text(new, SIGNER);
        if signer.is_empty()
            || request.old_object.is_some_and(|old| differs_for_collection_only(new, old))
            || may(&*self.authorizer, request, "attest", signer)
        {
            return Ok(());
        }
        Err(forbidden(request, format!("user not permitted to attest for signerName {}", go::quote(signer))))
    }
}

/// Whether an update changes nothing but what garbage collection and the migration of storage change.
fn differs_for_collection_only(new: &Map, old: &Map) -> bool {
    let mut new = new.clone();
    for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
        paths::copy(&mut new, old, &format!("metadata.{field}"));
    }
    same_meaning(&new, old)
}

/// CertificateSubjectRestriction: no client certificate makes its holder a superuser.
#[derive(Debug, Default)]
pub struct CertificateSubjectRestriction;

impl Plugin for CertificateSubjectRestriction {
    fn name(&self) -> &'static str {
        "CertificateSubjectRestriction"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        let csr = object(request);
        let applies = request.operation == Operation::Create && is_about(request, &CSRS);
        if !applies || paths::text(csr, SIGNER) != CLIENT_SIGNER {
            return Ok(());
        }
        let subject = subject(csr).map_err(|error| forbidden(request, format!("failed to parse CSR: {error}")))?;
        if subject.organizations.iter().any(|group| group == "system:masters") {
            let error = format!("use of {CLIENT_SIGNER} signer with system:masters group is not allowed");
            return Err(forbidden(request, error));
        }
        Ok(())
    }
}

/// Whom a certificate is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
}

/// The subject in the request of a CertificateSigningRequest.
pub(super) fn subject(csr: &Map) -> Result<Subject, String> {
    const TYPE: &str = "CERTIFICATE REQUEST";
    let text = paths::get(csr, "spec.request").and_then(Value::as_str).unwrap_or_default();
    let pem = base64::decode(text).unwrap_or_default();
    let block = parse_x509_pem(&pem).ok().map(|(_, block)| block).filter(|block| block.label == TYPE);
    let block = block.ok_or_else(|| format!("PEM block type must be {TYPE}"))?;
    let (_, parsed) = X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
    let name: &X509Name<'_> = &parsed.certification_request_info.subject;
    let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
    Ok(Subject {
        common_name: name.iter_common_name().filter_map(text).last().unwrap_or_default(),
        organizations: name.iter_organization().filter_map(text).collect(),
    })
}
