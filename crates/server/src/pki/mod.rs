//! The cluster's own keys and certificates: made on the first start, kept in a directory, read again on every start.
//!
//! The cluster's authority signs the serving certificate and the clients' ones; the front proxy has an authority of its
//! own, because who holds one of its certificates may claim to be anybody; a third key signs service account tokens.
//! Only the certificates that the authorities signed are ever replaced.

mod der;
mod files;
mod issue;
mod key;
mod kubeconfig;
#[cfg(test)]
mod tests;
mod tls;

use std::{fs, net::IpAddr, path::Path, time::Duration};

use capstan_clock::{Ids, Timestamp};
use files::Pair;
pub use files::PkiError;
pub use issue::{Authority, Certified, IssueError, Request};
pub(crate) use key::Numbers;
pub use key::{Algorithm, KeyError, PrivateKey, PublicKey};
pub use kubeconfig::{Credential, kubeconfig};
pub use tls::server_config;
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

use crate::authorization::SYSTEM_MASTERS;

const DAY: u64 = 24 * 60 * 60;
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(3650 * DAY);
const CERTIFICATE_VALIDITY: Duration = Duration::from_secs(365 * DAY);
/// A certificate that ends sooner than this is made again.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * DAY);

/// The names that clients inside a cluster use for the server, and the ones of this machine.
const SERVING_NAMES: [&str; 7] = [
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "localhost",
    "127.0.0.1",
    "::1",
];

/// What the certificates are to say.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the machine.
    pub host: String,
    /// The first address of the range of services: that of the `kubernetes` Service.
    pub service_ip: IpAddr,
    /// Further names and addresses of the server.
    pub extra: Vec<String>,
}

/// All keys and certificates of a cluster.
#[derive(Debug)]
pub struct Pki {
    /// The cluster's authority (`ca.crt`, `ca.key`).
    pub ca: Authority,
    /// What the server shows (`apiserver.crt`, `apiserver.key`).
    pub serving: Certified,
    /// What signs service account tokens (`sa.pub`, `sa.key`).
    pub service_account: PrivateKey,
    /// The authority of front proxies (`front-proxy-ca.crt`, `front-proxy-ca.key`).
    pub front_proxy_ca: Authority,
    /// The certificate of the administrator (`admin.crt`, `admin.key`).
    pub admin: Certified,
}

impl Pki {
    /// Reads what `directory` holds and makes what is missing.
    ///
    /// # Errors
    /// When a file cannot be read or written, is broken or expired, or does not belong to the others.
    pub fn open(directory: &Path, options: &Options, now: Timestamp, ids: &dyn Ids) -> Result<Self, PkiError> {
        fs::create_dir_all(directory).map_err(|error| PkiError {
            file: directory.to_owned(),
            problem: format!("cannot be made ({error})"),
            remedy: "name a directory that can be written".into(),
        })?;
        let store = Store { directory, now, ids };
        let mut names: Vec<&str> = SERVING_NAMES.to_vec();
        let service_ip = options.service_ip.to_string();
        let wanted = [options.host.as_str(), &service_ip].into_iter().chain(options.extra.iter().map(String::as_str));
        for name in wanted {
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        let ca = store.authority("ca", "kubernetes")?;
        let front_proxy_ca = store.authority("front-proxy-ca", "kubernetes-front-proxy-ca")?;
        let serving = Request {
            common_name: "kube-apiserver",
            alt_names: &names,
            usages: &["digital signature", "key encipherment", "server auth"],
            validity: CERTIFICATE_VALIDITY,
            ..Request::default()
        };
        let serving = store.certificate("apiserver", &ca, &serving)?;
        let admin = store.certificate("admin", &ca, &client_request("kubernetes-admin", &[SYSTEM_MASTERS]))?;
        Ok(Pki { serving, admin, service_account: store.service_account()?, ca, front_proxy_ca })
    }

    /// A client certificate of the cluster's authority: `user` in `groups`.
    ///
    /// # Errors
    /// When the authority has expired.
    pub fn client(&self, user: &str, groups: &[&str], now: Timestamp, ids: &dyn Ids) -> Result<Certified, IssueError> {
        self.ca.issue(&client_request(user, groups), now, ids)
    }

    /// A client certificate of the front proxies' authority.
    ///
    /// # Errors
    /// When the authority has expired.
    pub fn front_proxy(&self, name: &str, now: Timestamp, ids: &dyn Ids) -> Result<Certified, IssueError> {
        self.front_proxy_ca.issue(&client_request(name, &[]), now, ids)
    }
}

fn client_request<'a>(user: &'a str, groups: &'a [&'a str]) -> Request<'a> {
    Request {
        common_name: user,
        organizations: groups,
        usages: &["digital signature", "key encipherment", "client auth"],
        validity: CERTIFICATE_VALIDITY,
        ..Request::default()
    }
}

struct Store<'a> {
    directory: &'a Path,
    now: Timestamp,
    ids: &'a dyn Ids,
}

impl Store<'_> {
    fn authority(&self, name: &str, common_name: &str) -> Result<Authority, PkiError> {
        let pair = Pair::new(self.directory, name, "crt", " (all certificates that it signed become invalid)");
        if let Some((certificate, key)) = pair.read()? {
            return Authority::load(certificate, key, self.now).map_err(|problem| pair.broken(problem));
        }
        let authority = Authority::generate(common_name, AUTHORITY_VALIDITY, self.now, self.ids);
        pair.write(&authority.own.certificate, &authority.own.key)?;
        Ok(authority)
    }

    fn certificate(&self, name: &str, ca: &Authority, request: &Request<'_>) -> Result<Certified, PkiError> {
        let pair = Pair::new(self.directory, name, "crt", "");
        if let Some((certificate, key)) = pair.read()? {
            let kept = Certified { certificate, key };
            if self.still_good(&kept, ca, request).map_err(|problem| pair.broken(problem))? {
                return Ok(kept);
            }
        }
        let made = ca.issue(request, self.now, self.ids).map_err(|error| pair.broken(error))?;
        pair.write(&made.certificate, &made.key)?;
        Ok(made)
    }

    /// Whether a certificate can go on being used, or what is wrong with it.
    fn still_good(&self, kept: &Certified, ca: &Authority, request: &Request<'_>) -> Result<bool, &'static str> {
        let chain = kept.chain();
        let der = chain.first().ok_or("holds no certificate in PEM form")?;
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| "holds a broken certificate")?;
        if certificate.public_key().raw != kept.key.public().spki {
            return Err("does not belong to the key beside it");
        }
        if !ca.signed(&certificate) {
            return Err("was signed by another authority than the one in ca.crt");
        }
        let renew = self.now.as_second().saturating_add(RENEW_BEFORE.as_secs() as i64);
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let has = |wanted: &&str| match wanted.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => names.contains(&GeneralName::IPAddress(&ip.octets())),
            Ok(IpAddr::V6(ip)) => names.contains(&GeneralName::IPAddress(&ip.octets())),
            Err(_) => names.contains(&GeneralName::DNSName(wanted)),
        };
        Ok(certificate.validity().not_after.timestamp() > renew && request.alt_names.iter().all(has))
    }

    fn service_account(&self) -> Result<PrivateKey, PkiError> {
        let pair = Pair::new(self.directory, "sa", "pub", " (all service account tokens become invalid)");
        if let Some((public, key)) = pair.read()? {
            let public = PublicKey::all_from_pem(public.as_bytes()).map_err(|error| pair.broken(error))?;
            return if public.contains(key.public()) {
                Ok(key)
            } else {
                Err(pair.broken("does not belong to the key beside it"))
            };
        }
        let key = PrivateKey::generate();
        pair.write(&key.public().to_pem(), &key)?;
        Ok(key)
    }
}
