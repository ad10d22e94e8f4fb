//! URLs.

use capstan_api::{go, schema::Format};

use super::{Call, Impl, fail, made, yes};
use crate::value::{Outcome, Val};

/// A URL in its parts.
#[derive(Debug)]
pub struct Url {
    /// As it was written.
    pub text: String,
    scheme: String,
    host: String,
    path: String,
    query: String,
}

pub(super) fn find(name: &str) -> Option<Impl> {
    Some(match name {
        "url" => |call| match call.args {
            [Val::String(text)] => parse(text),
            _ => None,
        },
        "isURL" => |call| call.args[0].as_str().and_then(|text| yes(Format::Uri.accepts(text))),
        "getScheme" => |call| url(call).and_then(|url| made(url.scheme.as_str())),
        "getHost" => |call| url(call).and_then(|url| made(url.host.as_str())),
        "getHostname" => |call| url(call).and_then(|url| made(split_port(&url.host).0)),
        "getPort" => |call| url(call).and_then(|url| made(split_port(&url.host).1)),
        "getEscapedPath" => |call| url(call).and_then(|url| made(escape_path(&url.path))),
        "getQuery" => query,
        _ => return None,
    })
}

fn url<'c>(call: &'c Call<'_, '_>) -> Option<&'c Url> {
    match call.args {
        [Val::Url(url)] => Some(url),
        _ => None,
    }
}

fn parse<'a>(text: &str) -> Option<Outcome<'a>> {
    const WRONG: &str = "URL parse error during conversion from string";
    if text.is_empty() {
        return fail(format!("{WRONG}: parse \"\": empty url"));
    }
    if !Format::Uri.accepts(text) {
        return fail(format!("{WRONG}: parse {}: invalid URI for request", go::quote(text)));
    }
    let without_fragment = text.split_once('#').map_or(text, |(before, _)| before);
    let (scheme, rest) = match without_fragment.split_once(':') {
        Some((scheme, rest))
            if scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b)) && !scheme.is_empty() =>
        {
            (scheme.to_ascii_lowercase(), rest)
        }
        _ => (String::new(), without_fragment),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
        Some(behind) => {
            let end = behind.find('/').unwrap_or(behind.len());
            let authority = &behind[..end];
            (authority.rsplit_once('@').map_or(authority, |(_, host)| host), &behind[end..])
        }
        None if rest.starts_with('/') => ("", rest),
        None => ("", ""),
    };
    let (host, path, query) = (host.to_owned(), path.to_owned(), query.to_owned());
    Some(Ok(Val::Url(Url { text: text.to_owned(), scheme, host, path, query }.into())))
}

/// The name and the port of a host; brackets around addresses are taken away.
fn split_port(host: &str) -> (&str, &str) {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (name, port),
        _ => (host, ""),
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    (bare.unwrap_or(name), port)
}

fn escape_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"!$&'()*+,;=:@-._~/%[]".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescape(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
                let value = digit()? * 16 + digit()?;
                out.push(u8::try_from(value).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

fn query<'a>(call: &Call<'_, 'a>) -> Option<Outcome<'a>> {
    let url = url(call)?;
    let mut all: Vec<(String, Vec<Val<'a>>)> = Vec::new();
    for part in url.query.split('&').filter(|part| !part.is_empty() && !part.contains(';')) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (Some(key), Some(value)) = (unescape(key), unescape(value)) else { continue };
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(Val::text(value)),
            None => all.push((key, vec![Val::text(value)])),
        }
    }
    Some(Ok(Val::map(all.into_iter().map(|(key, values)| (Val::text(key), Val::list(values))))))
}
