//! The way to another server and back: one request on a connection of its own, answered by what comes back. Redirects
//! are the client's to follow. A connection that both ends agree to use otherwise is handed through as it is.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use capstan_api::{GroupResource, Status, status::GenericResponse};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, Error, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::location::{Location, Scheme, check_address};
use crate::{
    backend::{Connection, DIAL_TIMEOUT, Relay, Unchecked, host_port, is_upgrade, pass_on, strip_hops, tunnel, words},
    handlers::{call::Call, write::as_it_is},
    http::{Body, Response},
    pki::Certified,
};

/// How long it may take until its answer begins. What it then says may take as long as it takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Who the server is to kubelets, and what it thinks of them.
#[derive(Clone, Debug)]
pub struct KubeletClient {
    kubelet: Arc<ClientConfig>,
    anybody: Arc<ClientConfig>,
    /// Which address of a node is taken, in this order.
    pub(super) address_types: Vec<String>,
}

/// Which address of a node is taken if nobody says.
const ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];

impl KubeletClient {
    /// Shows `certificate` to kubelets, and believes those that `authorities` (PEM) have signed for. Without these all
    /// are taken as they are, as upstream does.
    ///
    /// # Errors
    /// When a certificate or the key cannot be used.
    pub fn new(certificate: Option<&Certified>, authorities: Option<&[u8]>) -> Result<Self, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder =
            || ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let unchecked = || Arc::new(Unchecked(Arc::clone(&provider)));
        let kubelet = match authorities {
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    roots.add(certificate.map_err(|error| Error::General(error.to_string()))?)?;
                }
                builder()?.with_root_certificates(roots)
            }
            None => builder()?.dangerous().with_custom_certificate_verifier(unchecked()),
        };
        let kubelet = match certificate {
            Some(own) => kubelet.with_client_auth_cert(own.chain(), own.key.der())?,
            None => kubelet.with_no_client_auth(),
        };
        let anybody = builder()?.dangerous().with_custom_certificate_verifier(unchecked()).with_no_client_auth();
        let address_types = ADDRESS_TYPES.map(str::to_owned).to_vec();
        Ok(KubeletClient { kubelet: Arc::new(kubelet), anybody: Arc::new(anybody), address_types })
    }

    /// Reaches nodes by the first of these kinds of addresses that they have.
    #[must_use]
    pub fn prefer_addresses(mut self, types: Vec<String>) -> Self {
        self.address_types = types;
        self
    }

    fn tls(&self, scheme: Scheme) -> Option<&Arc<ClientConfig>> {
        match scheme {
            Scheme::Http => None,
            Scheme::Https => Some(&self.anybody),
            Scheme::Kubelet => Some(&self.kubelet),
        }
    }
}

/// The same request there, and what comes back.
pub(super) async fn exchange(call: &mut Call<'_>, location: &Location) -> Result<Response, Status> {
    let upgrade = call.on_upgrade.take().filter(|_| is_upgrade(call.headers));
    let headers = pass_on(call.headers, upgrade.is_some());
    let (method, body) = (call.method.clone(), call.body.clone());
    let mut response = send(call, location, method, headers, body).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        strip_hops(response.headers_mut());
        return Ok(response.map(|body| Body::stream(Relay(body))));
    }
    let Some(client) = upgrade else {
        return Err(as_it_is("the backend switched protocols without being asked to"));
    };
    let backend = hyper::upgrade::on(&mut response);
    tokio::spawn(tunnel(client, backend, call.closing.clone()));
    Ok(response.map(|_| Body::empty()))
}

/// What is read there.
pub(super) async fn get(call: &Call<'_>, location: &Location) -> Result<Response, Status> {
    let response = send(call, location, Method::GET, HeaderMap::new(), Bytes::new()).await?;
    Ok(response.map(|body| Body::stream(Relay(body))))
}

/// The beginning of a text.
pub(super) async fn text(body: Body, most: usize) -> String {
    let bytes = Limited::new(body, most).collect().await.map(Collected::to_bytes).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a code means for the object that was asked for.
pub(super) fn refused(call: &Call<'_>, status: StatusCode, text: &str) -> Status {
    let resource: GroupResource = call.resource.gvr.group_resource();
    Status::from(GenericResponse {
        code: status.as_u16().into(),
        resource: Some(&resource),
        name: &call.info.name,
        server_message: text,
        ..GenericResponse::default()
    })
}

async fn send(
    call: &Call<'_>,
    location: &Location,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Result<http::Response<Incoming>, Status> {
    let clock = Arc::clone(&call.server.registry.clock);
    let place = host_port(&location.host, location.port);
    // Upgraded connections are dialed by hand, all else goes the way of Go's client.
    let failed = |what: String| match call.info.subresource.as_str() {
        "log" => as_it_is(format!("Get \"https://{place}{}\": {what}", location.target)),
        _ => as_it_is(format!("error dialing backend: {what}")),
    };
    let dialed = tokio::select! {
        dialed = dial(call.server.kubelet_client(), location) => dialed,
        () = clock.sleep(DIAL_TIMEOUT) => Err(io::Error::new(io::ErrorKind::TimedOut, "i/o timeout")),
    };
    let stream = dialed.map_err(|error| failed(format!("dial tcp {place}: {}", words(&error))))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.to_string()))?;
    tokio::spawn(connection.with_upgrades());
    let mut request = http::Request::new(Full::new(body));
    *request.method_mut() = method;
    let target = location.target.parse().map_err(|_| Status::bad_request("the path cannot be asked for"))?;
    *request.uri_mut() = target;
    *request.headers_mut() = headers;
    let host = HeaderValue::from_str(&place).map_err(|_| Status::bad_request("the host has no name"))?;
    request.headers_mut().insert(header::HOST, host);
    tokio::select! {
        response = sender.send_request(request) => response.map_err(|error| as_it_is(error.to_string())),
        () = clock.sleep(ANSWER_TIMEOUT) => Err(as_it_is(format!("no answer from {place}"))),
    }
}

async fn dial(client: &KubeletClient, location: &Location) -> io::Result<Box<dyn Connection>> {
    let addresses = tokio::net::lookup_host((location.host.as_str(), location.port)).await?;
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in addresses {
        // A name could lead anywhere; kubelets are where their nodes say.
        if location.scheme != Scheme::Kubelet && !may_reach(address.ip()) {
            refused = io::Error::new(io::ErrorKind::PermissionDenied, "address not allowed");
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(stream) => return secure(client, location, stream).await,
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn may_reach(ip: IpAddr) -> bool {
    check_address(ip).is_ok()
}

async fn secure(client: &KubeletClient, location: &Location, stream: TcpStream) -> io::Result<Box<dyn Connection>> {
    stream.set_nodelay(true)?;
    let Some(tls) = client.tls(location.scheme) else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(location.host.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
    Ok(Box::new(stream))
}
