//! The flags of `capstan server`: kube-apiserver's names where the meaning is the same.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

use capstan_api::Duration;
use capstan_server::{AuthorizationMode, allocation::ServiceCidr};

/// Where objects are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Memory,
    Embedded,
    Etcd,
}

/// What the flags say.
#[derive(Clone, Debug)]
pub(crate) struct Flags {
    /// What was said, word for word.
    pub(crate) given: BTreeMap<String, String>,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) storage: Option<Storage>,
    pub(crate) write_kubeconfig: Option<PathBuf>,
    pub(crate) secure_port: u16,
    pub(crate) bind_address: IpAddr,
    pub(crate) advertise_address: Option<IpAddr>,
    pub(crate) external_hostname: Option<String>,
    pub(crate) cert_dir: Option<PathBuf>,
    pub(crate) tls_cert_file: Option<PathBuf>,
    pub(crate) tls_private_key_file: Option<PathBuf>,
    pub(crate) kubelet_client_certificate: Option<PathBuf>,
    pub(crate) kubelet_client_key: Option<PathBuf>,
    pub(crate) kubelet_certificate_authority: Option<PathBuf>,
    pub(crate) kubelet_insecure_tls: bool,
    pub(crate) kubelet_address_types: Vec<String>,
    pub(crate) client_ca_file: Option<PathBuf>,
    pub(crate) token_auth_file: Option<PathBuf>,
    pub(crate) anonymous_auth: bool,
    pub(crate) serve_metrics: bool,
    pub(crate) bootstrap_tokens: bool,
    pub(crate) authorization: Vec<AuthorizationMode>,
    pub(crate) issuers: Vec<String>,
    pub(crate) account_keys: Vec<PathBuf>,
    pub(crate) signing_key: Option<PathBuf>,
    pub(crate) max_token_expiration: Option<Duration>,
    pub(crate) extend_tokens: bool,
    pub(crate) api_audiences: Vec<String>,
    pub(crate) proxy_client_cert: Option<PathBuf>,
    pub(crate) proxy_client_key: Option<PathBuf>,
    pub(crate) request_header_ca: Option<PathBuf>,
    pub(crate) request_header_names: Vec<String>,
    pub(crate) username_headers: Vec<String>,
    pub(crate) uid_headers: Vec<String>,
    pub(crate) group_headers: Vec<String>,
    pub(crate) extra_headers: Vec<String>,
    pub(crate) service_ranges: Vec<ServiceCidr>,
    pub(crate) node_ports: std::ops::RangeInclusive<u16>,
    pub(crate) enable_admission: Vec<String>,
    pub(crate) disable_admission: Vec<String>,
    pub(crate) etcd_servers: Vec<String>,
    pub(crate) etcd_ca: Option<PathBuf>,
    pub(crate) etcd_cert: Option<PathBuf>,
    pub(crate) etcd_key: Option<PathBuf>,
    pub(crate) event_ttl: Duration,
    pub(crate) audit_policy: Option<PathBuf>,
    pub(crate) audit_log: Option<PathBuf>,
    pub(crate) audit_max_age: u64,
    pub(crate) audit_max_backup: usize,
    pub(crate) audit_max_size: u64,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            given: BTreeMap::new(),
            data_dir: None,
            storage: None,
            write_kubeconfig: None,
            secure_port: 6443,
            bind_address: IpAddr::from([0, 0, 0, 0]),
            advertise_address: None,
            external_hostname: None,
            cert_dir: None,
            tls_cert_file: None,
            tls_private_key_file: None,
            kubelet_client_certificate: None,
            kubelet_client_key: None,
            kubelet_certificate_authority: None,
            kubelet_insecure_tls: false,
            kubelet_address_types: Vec::new(),
            client_ca_file: None,
            token_auth_file: None,
            serve_metrics: false,
            anonymous_auth: true,
            bootstrap_tokens: false,
            authorization: vec![AuthorizationMode::Node, AuthorizationMode::Rbac],
            issuers: Vec::new(),
            account_keys: Vec::new(),
            signing_key: None,
            max_token_expiration: None,
            extend_tokens: true,
            api_audiences: Vec::new(),
            proxy_client_cert: None,
            proxy_client_key: None,
            request_header_ca: None,
            request_header_names: Vec::new(),
            username_headers: Vec::new(),
            uid_headers: Vec::new(),
            group_headers: Vec::new(),
            extra_headers: Vec::new(),
            service_ranges: vec!["10.0.0.0/24".parse().expect("it is a range")],
            node_ports: 30000..=32767,
            enable_admission: Vec::new(),
            disable_admission: Vec::new(),
            etcd_servers: Vec::new(),
            etcd_ca: None,
            etcd_cert: None,
            etcd_key: None,
            event_ttl: "1h".parse().expect("it is a duration"),
            audit_policy: None,
            audit_log: None,
            audit_max_age: 0,
            audit_max_backup: 0,
            audit_max_size: 0,
        }
    }
}

/// Flags of kube-apiserver that say what is so here anyway, or what makes no difference here: taken and not looked at.
const TAKEN: &[&str] = &[
    "allow-privileged",
    "enable-aggregator-routing",
    "endpoint-reconciler-type",
    "etcd-compaction-interval",
    "etcd-count-metric-poll-period",
    "feature-gates",
    "logging-format",
    "profiling",
    "serve-metrics",
    "runtime-config",
    "storage-backend",
    "storage-media-type",
    "v",
    "watch-cache",
];

/// Flags that stand alone: with no value they are true.
const BOOLEAN: &[&str] = &[
    "allow-privileged",
    "anonymous-auth",
    "enable-aggregator-routing",
    "enable-bootstrap-token-auth",
    "kubelet-insecure-tls",
    "profiling",
    "service-account-extend-token-expiration",
    "watch-cache",
];

/// The flags with what they are for, as `--help` shows them.
pub(crate) const HELP: &str = "\
  --data-dir DIR                          where the store and the certificates are kept
  --storage memory|embedded|etcd          where objects are kept; embedded unless --etcd-servers is given
  --write-kubeconfig FILE                 write a kubeconfig of the administrator
  --secure-port PORT                      the port; 0 takes a free one (6443)
  --bind-address ADDRESS                  the address to listen on (0.0.0.0)
  --advertise-address ADDRESS             where others reach the server
  --external-hostname NAME                a further name in the certificate
  --cert-dir DIR                          where certificates are kept and made (DATA-DIR/pki)
  --tls-cert-file FILE                    a serving certificate instead of the own one
  --tls-private-key-file FILE             and its key
  --kubelet-client-certificate FILE, --kubelet-client-key FILE
                                          what is shown to kubelets instead of an own certificate
  --kubelet-preferred-address-types TYPES the addresses by which nodes are reached, in this order
  --serve-metrics BOOL                    serve metrics.k8s.io, for `kubectl top`, by asking the kubelets (false)
  --kubelet-certificate-authority FILE    who signs for kubelets; without it they are taken as they are, and asked for
                                          metrics if the own authority signed for them
  --kubelet-insecure-tls BOOL             ask all kubelets for metrics, whoever signed for them (false)
  --client-ca-file FILE                   authorities of client certificates, beside the own one
  --token-auth-file FILE                  static tokens: token,user,uid,\"group1,group2\"
  --anonymous-auth BOOL                   let in who shows nothing as system:anonymous (true)
  --enable-bootstrap-token-auth           take the tokens of joining nodes
  --authorization-mode MODES              Node, RBAC, AlwaysAllow, AlwaysDeny (Node,RBAC)
  --service-account-issuer URL            who signs tokens; the first signs, all are believed
  --service-account-key-file FILE         keys that tokens may be signed with
  --service-account-signing-key-file FILE the key that signs tokens
  --service-account-max-token-expiration DURATION
  --service-account-extend-token-expiration BOOL
  --api-audiences NAMES                   what the server calls itself in tokens
  --proxy-client-cert-file FILE, --proxy-client-key-file FILE
                                          what is shown to servers of APIServices instead of an own certificate
  --requestheader-client-ca-file FILE     who signs for proxies that vouch for users
  --requestheader-allowed-names NAMES     the names of those proxies
  --requestheader-username-headers NAMES, --requestheader-uid-headers NAMES,
  --requestheader-group-headers NAMES, --requestheader-extra-headers-prefix NAMES
  --service-cluster-ip-range CIDRS        addresses of services (10.0.0.0/24)
  --service-node-port-range A-B           ports of services (30000-32767)
  --enable-admission-plugins NAMES, --disable-admission-plugins NAMES
  --etcd-servers URLS, --etcd-cafile FILE, --etcd-certfile FILE, --etcd-keyfile FILE
  --event-ttl DURATION                    how long Events are kept (1h)
  --audit-policy-file FILE                what is recorded of requests
  --audit-log-path FILE                   where that goes; - is the standard output
  --audit-log-maxage DAYS, --audit-log-maxbackup COUNT, --audit-log-maxsize MEGABYTES
";

fn list(value: &str) -> Vec<String> {
    value.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|error| format!("invalid argument {value:?} for --{name}: {error}"))
}

impl Flags {
    /// Reads the flags, on top of what these say.
    pub(crate) fn parse(mut self, arguments: &[&str]) -> Result<Self, String> {
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(flag) = argument.strip_prefix("--") else {
                return Err(format!("unexpected argument {argument:?}; `capstan help server` lists the flags"));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, value),
                None if BOOLEAN.contains(&flag) => {
                    let next = rest.as_slice().first().copied().unwrap_or_default();
                    if matches!(next, "true" | "false") {
                        rest.next();
                        (flag, next)
                    } else {
                        (flag, "true")
                    }
                }
                None => (flag, *rest.next().ok_or_else(|| format!("flag needs an argument: --{flag}"))?),
            };
            self.set(name, value)?;
            self.given.insert(name.to_owned(), value.to_owned());
        }
        Ok(self)
    }

    /// All flags and what they are: as they were given, else as the help says.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        let mut shown = BTreeMap::new();
        for line in HELP.lines() {
            let usual = line.rsplit_once(" (").and_then(|(_, usual)| usual.strip_suffix(')')).unwrap_or_default();
            let names = line.split([' ', ',']).filter_map(|word| word.strip_prefix("--"));
            shown.extend(names.map(|name| (name.to_owned(), usual.to_owned())));
        }
        shown.extend(self.given.clone());
        shown
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let path = || Some(PathBuf::from(value));
        match name {
            "data-dir" => self.data_dir = path(),
            "storage" => {
                self.storage = Some(match value {
                    "memory" => Storage::Memory,
                    "embedded" => Storage::Embedded,
                    "etcd" => Storage::Etcd,
                    _ => return Err(format!("--storage is memory, embedded or etcd, not {value:?}")),
                });
            }
            "write-kubeconfig" => self.write_kubeconfig = path(),
            "secure-port" => self.secure_port = parsed(name, value)?,
            "bind-address" => self.bind_address = parsed(name, value)?,
            "advertise-address" => self.advertise_address = Some(parsed(name, value)?),
            "external-hostname" => self.external_hostname = Some(value.to_owned()),
            "cert-dir" => self.cert_dir = path(),
            "tls-cert-file" => self.tls_cert_file = path(),
            "tls-private-key-file" => self.tls_private_key_file = path(),
            "kubelet-client-certificate" => self.kubelet_client_certificate = path(),
            "kubelet-preferred-address-types" => self.kubelet_address_types = list(value),
            "kubelet-client-key" => self.kubelet_client_key = path(),
            "kubelet-certificate-authority" => self.kubelet_certificate_authority = path(),
            "kubelet-insecure-tls" => self.kubelet_insecure_tls = parsed(name, value)?,
            "client-ca-file" => self.client_ca_file = path(),
            "token-auth-file" => self.token_auth_file = path(),
            "anonymous-auth" => self.anonymous_auth = parsed(name, value)?,
            "serve-metrics" => self.serve_metrics = parsed(name, value)?,
            "enable-bootstrap-token-auth" => self.bootstrap_tokens = parsed(name, value)?,
            "authorization-mode" => self.authorization = modes(value)?,
            "service-account-issuer" => self.issuers.push(value.to_owned()),
            "service-account-key-file" => self.account_keys.push(value.into()),
            "service-account-signing-key-file" => self.signing_key = path(),
            "service-account-max-token-expiration" => self.max_token_expiration = Some(parsed(name, value)?),
            "service-account-extend-token-expiration" => self.extend_tokens = parsed(name, value)?,
            "api-audiences" => self.api_audiences = list(value),
            "proxy-client-cert-file" => self.proxy_client_cert = path(),
            "proxy-client-key-file" => self.proxy_client_key = path(),
            "requestheader-client-ca-file" => self.request_header_ca = path(),
            "requestheader-allowed-names" => self.request_header_names = list(value),
            "requestheader-username-headers" => self.username_headers = list(value),
            "requestheader-uid-headers" => self.uid_headers = list(value),
            "requestheader-group-headers" => self.group_headers = list(value),
            "requestheader-extra-headers-prefix" => self.extra_headers = list(value),
            "service-cluster-ip-range" => {
                let ranges: Vec<ServiceCidr> =
                    list(value).iter().map(|range| parsed(name, range)).collect::<Result<_, _>>()?;
                let families = ranges.iter().map(ServiceCidr::family).collect::<Vec<_>>();
                if ranges.is_empty() || ranges.len() > 2 || families.len() == 2 && families[0] == families[1] {
                    return Err("--service-cluster-ip-range must be one range, or two of different families".to_owned());
                }
                self.service_ranges = ranges;
            }
            "service-node-port-range" => {
                let (from, to) = value.split_once('-').ok_or_else(|| format!("--{name} is FROM-TO, not {value:?}"))?;
                self.node_ports = parsed(name, from)?..=parsed(name, to)?;
            }
            "enable-admission-plugins" => self.enable_admission.extend(list(value)),
            "disable-admission-plugins" => self.disable_admission.extend(list(value)),
            "etcd-servers" => self.etcd_servers = list(value),
            "etcd-cafile" => self.etcd_ca = path(),
            "etcd-certfile" => self.etcd_cert = path(),
            "etcd-keyfile" => self.etcd_key = path(),
            "etcd-prefix" if value.trim_matches('/') == "registry" => {}
            "etcd-prefix" => return Err("--etcd-prefix can only be /registry".to_owned()),
            "audit-policy-file" => self.audit_policy = path(),
            "audit-log-path" => self.audit_log = path(),
            "audit-log-maxage" => self.audit_max_age = parsed(name, value)?,
            "audit-log-maxbackup" => self.audit_max_backup = parsed(name, value)?,
            "audit-log-maxsize" => self.audit_max_size = parsed(name, value)?,
            "event-ttl" => self.event_ttl = parsed(name, value)?,
            _ if TAKEN.contains(&name) => {}
            _ => return Err(format!("unknown flag: --{name}")),
        }
        Ok(())
    }
}

fn modes(value: &str) -> Result<Vec<AuthorizationMode>, String> {
    let mode = |name: &String| match name.as_str() {
        "Node" => Ok(AuthorizationMode::Node),
        "RBAC" => Ok(AuthorizationMode::Rbac),
        "AlwaysAllow" => Ok(AuthorizationMode::AlwaysAllow),
        "AlwaysDeny" => Ok(AuthorizationMode::AlwaysDeny),
        _ => Err(format!("authorization-mode {name:?} is not a valid mode")),
    };
    list(value).iter().map(mode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read() {
        let flags = Flags::default().parse(&[
            "--secure-port=0",
            "--bind-address",
            "127.0.0.1",
            "--allow-privileged",
            "--anonymous-auth",
            "false",
            "--service-cluster-ip-range=10.1.0.0/16,fd00::/112",
            "--authorization-mode=RBAC",
            "--service-node-port-range=1-5",
            "--event-ttl=90m",
        ]);
        let flags = flags.unwrap();
        assert_eq!((flags.secure_port, flags.anonymous_auth, flags.service_ranges.len()), (0, false, 2));
        let shown = flags.shown();
        for (name, value) in
            [("secure-port", "0"), ("anonymous-auth", "false"), ("audit-log-path", ""), ("serve-metrics", "false")]
        {
            assert_eq!(shown.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!((flags.authorization, flags.node_ports), (vec![AuthorizationMode::Rbac], 1..=5));
    }

    #[test]
    fn wrong_flags_are_one_line() {
        for (arguments, expected) in [
            (&["--nope=1"][..], "unknown flag: --nope"),
            (&["--secure-port"], "flag needs an argument: --secure-port"),
            (&["--secure-port=x"], r#"invalid argument "x" for --secure-port: invalid digit found in string"#),
            (&["server"], r#"unexpected argument "server"; `capstan help server` lists the flags"#),
            (&["--authorization-mode=ABAC"], r#"authorization-mode "ABAC" is not a valid mode"#),
            (
                &["--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24"],
                "--service-cluster-ip-range must be one range, or two of different families",
            ),
        ] {
            assert_eq!(Flags::default().parse(arguments).unwrap_err(), expected);
        }
    }
}
