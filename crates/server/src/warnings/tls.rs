//! Secrets for TLS whose certificate or key cannot be used.

use capstan_api::{Map, Value, go};

use crate::{base64, validation::read};

/// Looks for the certificate and the key. Whether they fit together is not looked at.
pub(super) fn secret(object: &Map, _: Option<&Map>, out: &mut Vec<String>) {
    if read::text(object, "type") != "kubernetes.io/tls" {
        return;
    }
    let data = |key: &str| {
        let text = read::at(object, "data").get(key).and_then(Value::as_str).unwrap_or("");
        // The standard alphabet in terms of that for URLs, which has no padding.
        let text: Vec<u8> = text
            .bytes()
            .filter(|&c| c != b'=')
            .map(|c| match c {
                b'+' => b'-',
                b'/' => b'_',
                c => c,
            })
            .collect();
        String::from_utf8_lossy(&base64::decode_url(&text).unwrap_or_default()).into_owned()
    };
    out.extend(certificate(&data("tls.crt")).or_else(|| key(&data("tls.key"))));
}

fn certificate(text: &str) -> Option<String> {
    let types = blocks(text);
    if types.contains(&"CERTIFICATE") {
        return None;
    }
    Some(match &types[..] {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [one] if one.ends_with("PRIVATE KEY") => {
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
             have been switched"
                .to_owned()
        }
        types => format!(
            "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
             following types: [{}]",
            types.join(" ")
        ),
    })
}

fn key(text: &str) -> Option<String> {
    let types = blocks(text);
    if types.iter().any(|ty| *ty == "PRIVATE KEY" || ty.ends_with(" PRIVATE KEY")) {
        return None;
    }
    Some(match &types[..] {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        ["CERTIFICATE"] => "tls: found a certificate rather than a key in the PEM for the private key".to_owned(),
        types => format!(
            "tls: failed to find PEM block with type ending in {} in key input after skipping PEM blocks of the \
             following types: [{}]",
            go::quote("PRIVATE KEY"),
            types.join(" ")
        ),
    })
}

/// The types of the blocks of PEM in a text.
fn blocks(text: &str) -> Vec<&str> {
    let mut types = Vec::new();
    let mut rest = text;
    while let Some((_, begin)) = rest.split_once("-----BEGIN ") {
        let Some((ty, body)) = begin.split_once("-----") else { break };
        let Some((_, after)) = body.split_once("-----END ") else { break };
        types.push(ty);
        rest = after;
    }
    types
}
