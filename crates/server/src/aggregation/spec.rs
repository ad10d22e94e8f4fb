//! What an APIService says: who answers for a group version, and whom to believe about it.

use std::sync::Arc;

use capstan_api::{GroupVersion, Map, Str, Value};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};

use crate::{
    backend::{Believing, Unchecked},
    base64,
    pki::Certified,
    registry::paths,
};

/// The port of a service that does not say which.
const DEFAULT_PORT: i64 = 443;

/// What is said of a bundle that has no authorities.
const NO_AUTHORITY: &str = "unable to load root certificates: unable to parse bytes as PEM block";

/// The type of the one condition that APIServices have.
pub(super) const AVAILABLE: &str = "Available";

/// An APIService, as far as it matters for who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) group_version: GroupVersion,
    /// Where the group and the version stand among others, the highest first.
    pub(super) priorities: (i64, i64),
    /// Who answers; nobody if this server does.
    pub(super) service: Option<ServiceReference>,
    insecure: bool,
    /// PEM in base64.
    ca_bundle: Str,
}

/// A service in this cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServiceReference {
    pub(super) namespace: Str,
    pub(super) name: Str,
    pub(super) port: i64,
}

impl ServiceReference {
    /// The name that the server behind the service is to have a certificate for.
    pub(super) fn server_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

impl Spec {
    pub(super) fn of(object: &Map) -> Self {
        let text = |path: &str| Str::from(paths::text(object, path));
        let service = paths::get(object, "spec.service").and_then(Value::as_object).map(|service| ServiceReference {
            namespace: paths::text(service, "namespace").into(),
            name: paths::text(service, "name").into(),
            port: service.get("port").and_then(Value::as_i64).unwrap_or(DEFAULT_PORT),
        });
        Spec {
            group_version: GroupVersion::new(paths::text(object, "spec.group"), paths::text(object, "spec.version")),
            priorities: (
                paths::number(object, "spec.groupPriorityMinimum"),
                paths::number(object, "spec.versionPriority"),
            ),
            service,
            insecure: paths::get(object, "spec.insecureSkipTLSVerify").and_then(Value::as_bool).unwrap_or_default(),
            ca_bundle: text("spec.caBundle"),
        }
    }
}

/// The condition of an APIService, if it has one.
pub(super) fn condition(object: &Map) -> Option<&Value> {
    let is_it = |condition: &&Value| condition.get("type").and_then(Value::as_str) == Some(AVAILABLE);
    paths::items(object, "status.conditions").iter().find(is_it)
}

/// Whether an APIService says that its server answers.
pub(super) fn is_available(object: &Map) -> bool {
    condition(object).and_then(|condition| condition.get("status")?.as_str()) == Some("True")
}

/// What this server shows to those it forwards requests to.
pub(crate) struct ProxyClient {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ProxyClient {
    pub(crate) fn new(own: &Certified) -> Self {
        ProxyClient { chain: own.chain(), key: own.key.der() }
    }
}

/// How a server is spoken to.
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl Tls {
    /// Without a bundle nobody is believed: a process that has no authorities of its own has none to fall back on.
    pub(super) fn new(spec: &Spec, service: &ServiceReference, own: Option<&ProxyClient>) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if spec.insecure {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider)))
        } else {
            match authorities(&spec.ca_bundle)? {
                none if none.is_empty() => builder.with_root_certificates(RootCertStore::empty()),
                some => {
                    let believing = Believing::new(some, provider).map_err(|_| NO_AUTHORITY)?;
                    builder.dangerous().with_custom_certificate_verifier(Arc::new(believing))
                }
            }
        };
        let config = match own {
            Some(own) => builder
                .with_client_auth_cert(own.chain.clone(), own.key.clone_key())
                .map_err(|error| error.to_string())?,
            None => builder.with_no_client_auth(),
        };
        let name = ServerName::try_from(service.server_name()).map_err(|error| error.to_string())?;
        Ok(Tls { config: Arc::new(config), name })
    }
}

/// The authorities in a bundle.
fn authorities(bundle: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    if bundle.is_empty() {
        return Ok(Vec::new());
    }
    let pem = base64::decode(bundle).ok_or(NO_AUTHORITY)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(|| NO_AUTHORITY.to_owned())
}

#[cfg(test)]
mod tests {
    use capstan_api::json;

    use super::*;

    fn object(text: &str) -> Map {
        json::parse(text.as_bytes()).expect("JSON").as_object().expect("an object").clone()
    }

    #[test]
    fn what_is_said() {
        let spec = Spec::of(&object(
            r#"{"spec":{"group":"g","version":"v1","groupPriorityMinimum":100,"versionPriority":10,
                "service":{"namespace":"n","name":"s"}}}"#,
        ));
        let service = spec.service.clone().expect("a service");
        assert_eq!((service.port, service.server_name().as_str()), (443, "s.n.svc"));
        assert_eq!(spec.priorities, (100, 10));
        assert!(Tls::new(&spec, &service, None).is_ok());
        let broken = Spec { ca_bundle: base64::encode(b"nothing").as_str().into(), ..spec };
        let Err(message) = Tls::new(&broken, &service, None) else { panic!("that is no authority") };
        assert_eq!(message, "unable to load root certificates: unable to parse bytes as PEM block");
    }

    #[test]
    fn who_is_available() {
        let with = |status: &str| {
            object(&format!(r#"{{"status":{{"conditions":[{{"type":"Available","status":"{status}"}}]}}}}"#))
        };
        assert!(is_available(&with("True")));
        assert!(!is_available(&with("False")) && !is_available(&object("{}")));
    }
}
