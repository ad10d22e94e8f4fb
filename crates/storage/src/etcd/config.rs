//! How an etcd is reached.

use std::{fmt, time::Duration};

use bytes::Bytes;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::{Fault, FaultKind};

/// How long to wait for a connection to one endpoint unless the configuration says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for an answer unless the configuration says otherwise: etcd itself gives up after seven seconds,
/// and then it can say what is wrong.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to go on trying other endpoints, and the same again, while nothing can have happened: long enough for an
/// election.
const RETRY_FOR: Duration = Duration::from_secs(3);

/// How an etcd is reached. What is read from files is read by the caller.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// The members' client URLs, such as `https://10.0.0.1:2379`; at least one. The first that answers is used until it
    /// fails.
    pub endpoints: Vec<String>,
    /// How `https` endpoints are trusted.
    pub tls: Option<EtcdTls>,
    /// Who to be, if etcd has authentication enabled and the client certificate does not tell.
    pub user: Option<EtcdUser>,
    /// How long to wait for a connection to one endpoint; two seconds.
    pub connect_timeout: Duration,
    /// How long to wait for an answer; ten seconds, a little longer than etcd itself waits for a quorum.
    pub request_timeout: Duration,
    /// How long to go on trying while nothing can have happened, such as during an election; three seconds, and not
    /// more than the request timeout.
    pub retry_for: Duration,
}

/// How `https` endpoints are trusted, all in PEM.
#[derive(Clone)]
pub struct EtcdTls {
    /// The authorities that sign the members' certificates.
    pub ca: Bytes,
    /// Our certificate and its key, if the members ask for one.
    pub identity: Option<(Bytes, Bytes)>,
    /// The name in the members' certificates, if it is not the host of the endpoint.
    pub server_name: Option<String>,
}

impl fmt::Debug for EtcdTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is not for logs.
        f.debug_struct("EtcdTls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// A user of etcd.
#[derive(Clone)]
pub struct EtcdUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How often a connection with calls under way is tried, and how long it may take to answer: etcd refuses more than one
/// in five seconds, and any when nothing is under way.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// The windows of a connection and of each of its streams, in bytes.
pub(super) struct Windows {
    pub(super) connection: u32,
    pub(super) stream: u32,
}

impl EtcdConfig {
    /// The usual configuration for these endpoints.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        EtcdConfig {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            user: None,
            connect_timeout: CONNECT_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            retry_for: RETRY_FOR,
        }
    }

    /// The connection to one of the endpoints.
    pub(super) fn endpoint(&self, endpoint: &str, windows: &Windows) -> Result<Endpoint, Fault> {
        let wrong = |why: &dyn fmt::Display| Fault::new(FaultKind::Unreachable, format_args!("{endpoint}: {why}"));
        let secure = match endpoint.split_once("://") {
            Some(("https", _)) => true,
            Some(("http", _)) => false,
            _ => return Err(wrong(&"an endpoint begins with http:// or https://")),
        };
        let connection = Endpoint::from_shared(endpoint.to_owned())
            .map_err(|error| wrong(&error))?
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE.0)
            .keep_alive_timeout(KEEP_ALIVE.1)
            .keep_alive_while_idle(false)
            .initial_connection_window_size(windows.connection)
            .initial_stream_window_size(windows.stream);
        if !secure {
            return Ok(connection);
        }
        let Some(tls) = &self.tls else {
            return Err(Fault::new(FaultKind::Denied, format_args!("{endpoint}: no authorities are given to trust")));
        };
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &tls.server_name {
            config = config.domain_name(name);
        }
        connection.tls_config(config).map_err(|error| {
            Fault::new(FaultKind::Denied, format_args!("{endpoint}: {}", super::status::whole(&error)))
        })
    }
}
