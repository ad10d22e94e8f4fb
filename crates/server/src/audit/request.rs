//! What an event tells of the connection and the headers of a request.

use std::net::IpAddr;

use http::{HeaderMap, header};

/// How many bytes of a user agent are recorded.
const MAX_USER_AGENT: usize = 1024;

/// The addresses that a request came by: those that proxies have told, and at the end that of the peer.
#[must_use]
pub fn source_ips(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    let mut ips: Vec<IpAddr> = text("x-forwarded-for").split(',').filter_map(parse).collect();
    if let Some(real) = parse(text("x-real-ip")).filter(|real| !ips.contains(real)) {
        ips.push(real);
    }
    if let Some(peer) = peer.map(|peer| peer.to_canonical()).filter(|peer| ips.last() != Some(peer)) {
        ips.push(peer);
    }
    ips.iter().map(ToString::to_string).collect()
}

/// The user agent, cut off if it is too long.
#[must_use]
pub fn user_agent(headers: &HeaderMap) -> String {
    let bytes = headers.get(header::USER_AGENT).map_or(&b""[..], |value| value.as_bytes());
    match bytes.get(..MAX_USER_AGENT) {
        Some(cut) if bytes.len() > MAX_USER_AGENT => format!("{}...TRUNCATED", String::from_utf8_lossy(cut)),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}
