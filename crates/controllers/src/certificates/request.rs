//! What a certificate request says, and whom it may be for.

use x509_parser::{
    certification_request::X509CertificationRequest, extensions::GeneralName, extensions::ParsedExtension,
    pem::parse_x509_pem, prelude::FromDer,
};

/// The parts of a request that rules look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) common_name: String,
    pub(super) organizations: Vec<String>,
    pub(super) dns_names: usize,
    pub(super) ip_addresses: usize,
    pub(super) email_addresses: usize,
    pub(super) uris: usize,
}

impl Request {
    /// Reads a request in PEM form.
    pub(super) fn parse(pem: &[u8]) -> Result<Self, String> {
        let not_pem = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
        let (_, block) = parse_x509_pem(pem).map_err(|_| not_pem())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err(not_pem());
        }
        let (_, parsed) = X509CertificationRequest::from_der(&block.contents).map_err(|error| error.to_string())?;
        let subject = &parsed.certification_request_info.subject;
        let text = |part: &x509_parser::x509::AttributeTypeAndValue<'_>| part.as_str().unwrap_or_default().to_owned();
        let mut request = Request {
            // The last one counts, as in Go.
            common_name: subject.iter_common_name().last().map(text).unwrap_or_default(),
            organizations: subject.iter_organization().map(text).collect(),
            ..Request::default()
        };
        for extension in parsed.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(_) => request.dns_names += 1,
                    GeneralName::IPAddress(_) => request.ip_addresses += 1,
                    GeneralName::RFC822Name(_) => request.email_addresses += 1,
                    GeneralName::URI(_) => request.uris += 1,
                    _ => {}
                }
            }
        }
        Ok(request)
    }
}

/// Whether a request may be signed by this signer.
///
/// # Errors
/// Why not.
pub(super) fn validate(signer_name: &str, request: &Request, usages: &[&str]) -> Result<(), String> {
    match signer_name {
        "kubernetes.io/kubelet-serving" => kubelet_serving(request, usages),
        "kubernetes.io/kube-apiserver-client-kubelet" => kubelet_client(request, usages),
        "kubernetes.io/kube-apiserver-client" => client(usages),
        _ => Ok(()),
    }
}

/// The signers that there are.
pub(super) const SIGNERS: [&str; 4] = [
    "kubernetes.io/kube-apiserver-client",
    "kubernetes.io/kube-apiserver-client-kubelet",
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/legacy-unknown",
];

fn has_exactly(usages: &[&str], auth: &str) -> Result<(), String> {
    let wanted = ["digital signature", auth];
    let known = |usage: &&str| wanted.contains(usage) || *usage == "key encipherment";
    if wanted.iter().all(|usage| usages.contains(usage)) && usages.iter().all(known) {
        return Ok(());
    }
    let mut all = [auth, "digital signature", "key encipherment"];
    all.sort_unstable();
    Err(format!("usages did not match [{}]", all.join(" ")))
}

fn of_a_node(request: &Request) -> Result<(), String> {
    if request.organizations == ["system:nodes"] {
        return Ok(());
    }
    Err("subject organization is not system:nodes".to_owned())
}

fn named_like_a_node(request: &Request) -> Result<(), String> {
    if request.common_name.starts_with("system:node:") {
        return Ok(());
    }
    Err("subject common name does not begin with system:node:".to_owned())
}

fn none(count: usize, what: &str) -> Result<(), String> {
    if count == 0 { Ok(()) } else { Err(format!("{what} subjectAltNames are not allowed")) }
}

fn kubelet_serving(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_a_node(request)?;
    if request.dns_names + request.ip_addresses == 0 {
        return Err("DNS or IP subjectAltName is required".to_owned());
    }
    none(request.email_addresses, "Email")?;
    none(request.uris, "URI")?;
    has_exactly(usages, "server auth")?;
    named_like_a_node(request)
}

/// Whether a request is one of a node for itself as a client.
pub(super) fn kubelet_client(request: &Request, usages: &[&str]) -> Result<(), String> {
    of_a_node(request)?;
    none(request.dns_names, "DNS")?;
    none(request.email_addresses, "Email")?;
    none(request.ip_addresses, "IP")?;
    none(request.uris, "URI")?;
    named_like_a_node(request)?;
    has_exactly(usages, "client auth")
}

fn client(usages: &[&str]) -> Result<(), String> {
    const ALLOWED: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !ALLOWED.contains(*usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    if usages.contains(&"client auth") {
        return Ok(());
    }
    Err("missing required usage for client certificate: client auth".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_what() {
        let node = Request {
            common_name: "system:node:n1".into(),
            organizations: vec!["system:nodes".into()],
            ..Request::default()
        };
        let serving = Request { dns_names: 1, ..node.clone() };
        let check = |signer: &str, request: &Request, usages: &[&str], expected: Result<(), &str>| {
            let found = validate(&format!("kubernetes.io/{signer}"), request, usages);
            assert_eq!(found, expected.map_err(str::to_owned), "{signer} {request:?} {usages:?}");
        };
        let (sign, encipher, client, server) = ("digital signature", "key encipherment", "client auth", "server auth");
        let kubelet = "kube-apiserver-client-kubelet";
        check(kubelet, &node, &[sign, client], Ok(()));
        check(kubelet, &node, &[client, sign, encipher], Ok(()));
        check(
            kubelet,
            &node,
            &[sign, encipher],
            Err("usages did not match [client auth digital signature key encipherment]"),
        );
        check(
            kubelet,
            &node,
            &[sign, client, server],
            Err("usages did not match [client auth digital signature key encipherment]"),
        );
        check(kubelet, &serving, &[sign, client], Err("DNS subjectAltNames are not allowed"));
        let other = Request { organizations: vec!["system:nodes".into(), "x".into()], ..node.clone() };
        check(kubelet, &other, &[sign, client], Err("subject organization is not system:nodes"));
        let other = Request { common_name: "n1".into(), ..node.clone() };
        check(kubelet, &other, &[sign, client], Err("subject common name does not begin with system:node:"));

        check("kubelet-serving", &serving, &[sign, server], Ok(()));
        check("kubelet-serving", &node, &[sign, server], Err("DNS or IP subjectAltName is required"));
        let other = Request { uris: 1, ..serving.clone() };
        check("kubelet-serving", &other, &[sign, server], Err("URI subjectAltNames are not allowed"));
        check(
            "kubelet-serving",
            &serving,
            &[sign, client],
            Err("usages did not match [digital signature key encipherment server auth]"),
        );

        check("kube-apiserver-client", &other, &[client], Ok(()));
        check(
            "kube-apiserver-client",
            &other,
            &[sign],
            Err("missing required usage for client certificate: client auth"),
        );
        check(
            "kube-apiserver-client",
            &other,
            &[client, server],
            Err("invalid usage for client certificate: server auth"),
        );
        check("legacy-unknown", &other, &["any"], Ok(()));
    }

    #[test]
    fn what_is_no_request() {
        assert_eq!(Request::parse(b"x"), Err("PEM block type must be CERTIFICATE REQUEST".to_owned()));
        let other = b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        assert_eq!(Request::parse(other), Err("PEM block type must be CERTIFICATE REQUEST".to_owned()));
        let broken = b"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n";
        assert!(Request::parse(broken).is_err());
    }
}
