//! Where a request carries its token.

use http::{HeaderMap, HeaderValue, header};

use crate::base64;

pub(super) const INVALID_TOKEN: &str = "invalid bearer token";
const EXTRA_SPACE: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";
/// Browsers cannot set headers of websockets, but they can name protocols.
const PROTOCOL_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// What the `Authorization` header says.
pub(super) struct Bearer<'a> {
    pub(super) token: Option<&'a str>,
    pub(super) warning: Option<&'static str>,
}

/// Reads the first `Authorization` header.
pub(super) fn authorization_header(headers: &HeaderMap) -> Bearer<'_> {
    let none = Bearer { token: None, warning: None };
    let Some(value) = headers.get(header::AUTHORIZATION) else { return none };
    // A value that is not text holds no token that we know of.
    let Ok(text) = str::from_utf8(value.as_bytes()) else { return Bearer { token: Some("\u{fffd}"), ..none } };
    let mut parts = text.trim().splitn(3, ' ');
    if !parts.next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")) {
        return none;
    }
    match parts.next() {
        None => none,
        Some("") => Bearer { token: None, warning: parts.next().map(|_| EXTRA_SPACE) },
        token => Bearer { token, ..none },
    }
}

/// Reads a token from the protocols of a websocket.
pub(super) fn websocket_protocol(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    if !is_websocket(headers) {
        return Ok(None);
    }
    let (mut token, mut others) = (None, false);
    for protocol in protocols(headers) {
        let Some(encoded) = protocol.strip_prefix(PROTOCOL_PREFIX) else {
            others = true;
            continue;
        };
        if token.is_some() {
            return Err("multiple base64.bearer.authorization tokens specified");
        }
        let decoded = base64::decode_url(encoded.as_bytes());
        let decoded = decoded.map_err(|_| "invalid base64.bearer.authorization token encoding")?;
        token = Some(String::from_utf8(decoded).map_err(|_| "invalid base64.bearer.authorization token")?);
    }
    let token = token.filter(|token| !token.is_empty());
    if token.is_some() && !others {
        return Err("missing additional subprotocol");
    }
    Ok(token)
}

fn protocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim)
}

fn is_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case("websocket"))
        && headers
            .get_all(header::CONNECTION)
            .iter()
            .any(|value| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("upgrade")))
}

/// Removes the token from the headers.
pub fn strip_bearer_token(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    if !protocols(headers).any(|protocol| protocol.starts_with(PROTOCOL_PREFIX)) {
        return;
    }
    let others: Vec<&str> = protocols(headers).filter(|protocol| !protocol.starts_with(PROTOCOL_PREFIX)).collect();
    let others = HeaderValue::from_str(&others.join(","));
    headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
    if let Ok(others) = others {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
    }
}
