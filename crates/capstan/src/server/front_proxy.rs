//! Trust between this server and those who extend it: proxies that may vouch for users here, and what this server shows
//! when it vouches for users there. Without flags both are of the cluster's own authority of front proxies.

use capstan_clock::{OsIds, SharedClock};
use capstan_server::{
    authentication::{HeaderNames, RequestHeaders},
    bootstrap::RequestHeader,
    pki::{Certified, Pki},
};

use super::{Flags, certified, pool, read};

/// Who this server is to those who extend it.
const FRONT_PROXY: &str = "front-proxy-client";

/// Who vouches for whom.
pub(super) struct FrontProxy {
    /// Who may vouch for users here.
    pub(super) believed: Option<RequestHeaders>,
    /// The same, as those are told who extend this server.
    pub(super) told: Option<RequestHeader>,
    /// What is shown to them.
    pub(super) shown: Option<Certified>,
}

impl FrontProxy {
    pub(super) fn new(flags: &Flags, pki: &Pki, clock: &SharedClock) -> Result<Self, String> {
        let files = (&flags.proxy_client_cert, &flags.proxy_client_key);
        let given = certified(files, "--proxy-client-cert-file and --proxy-client-key-file")?;
        let (ca, allowed_names, names, shown) = match &flags.request_header_ca {
            Some(file) => {
                let names = HeaderNames {
                    username: flags.username_headers.clone(),
                    uid: flags.uid_headers.clone(),
                    group: flags.group_headers.clone(),
                    extra_prefix: flags.extra_headers.clone(),
                };
                (read(file)?, flags.request_header_names.clone(), names, given)
            }
            // Whose certificate it is nobody is told, as upstream does it.
            None if given.is_some() => return Ok(FrontProxy { believed: None, told: None, shown: given }),
            None => {
                let own = pki.front_proxy(FRONT_PROXY, clock.now(), &OsIds).map_err(|error| error.to_string())?;
                let ca = pki.front_proxy_ca.own.certificate.clone().into_bytes();
                (ca, vec![FRONT_PROXY.to_owned()], RequestHeaders::standard_names(), Some(own))
            }
        };
        let told = RequestHeader {
            client_ca: String::from_utf8_lossy(&ca).into_owned(),
            allowed_names: allowed_names.clone(),
            username_headers: names.username.clone(),
            uid_headers: names.uid.clone(),
            group_headers: names.group.clone(),
            extra_headers_prefix: names.extra_prefix.clone(),
        };
        let believed = RequestHeaders { ca: pool("requestheader-client-ca-file", &ca)?, allowed_names, names };
        Ok(FrontProxy { believed: Some(believed), told: Some(told), shown })
    }
}
