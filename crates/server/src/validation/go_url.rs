//! Addresses as Go reads them, with what it says of those that it cannot read.

use std::borrow::Cow;

/// What of an address is looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Url<'a> {
    pub(super) scheme: Cow<'a, str>,
    pub(super) user: Option<&'a str>,
    pub(super) host: &'a str,
    pub(super) query: &'a str,
    pub(super) fragment: &'a str,
}

pub(super) fn parse(text: &str) -> Result<Url<'_>, String> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    let quoted = |text: &str, error: String| format!("parse {}: {error}", super::show::json(&text.into()));
    let read = parts(url).map_err(|error| quoted(url, error))?;
    escapes(fragment).map_err(|error| quoted(text, error))?;
    Ok(Url { fragment, ..read })
}

fn parts(url: &str) -> Result<Url<'_>, String> {
    if url.bytes().any(|c| c.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".to_owned());
    }
    let (scheme, rest) = scheme(url)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut url = Url { scheme: scheme.to_ascii_lowercase().into(), query, ..Url::default() };
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(url);
        }
        if rest.split('/').next().unwrap_or("").contains(':') {
            return Err("first path segment in URL cannot contain colon".to_owned());
        }
    }
    let mut path = rest;
    if let Some(after) = rest.strip_prefix("//").filter(|after| !scheme.is_empty() || !after.starts_with('/')) {
        let (authority, rest) = after.split_at(after.find('/').unwrap_or(after.len()));
        path = rest;
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        check_host(host)?;
        let is_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if user.is_some_and(|user| !user.chars().all(is_user)) {
            return Err("net/url: invalid userinfo".to_owned());
        }
        (url.user, url.host) = (user, host);
    }
    escapes(path)?;
    Ok(url)
}

/// The scheme, if there is one, and what follows.
fn scheme(url: &str) -> Result<(&str, &str), String> {
    for (i, c) in url.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((&url[..i], &url[i + 1..])),
            _ => break,
        }
    }
    Ok(("", url))
}

fn check_host(host: &str) -> Result<(), String> {
    let port = if host.starts_with('[') {
        let Some(end) = host.rfind(']') else { return Err("missing ']' in host".to_owned()) };
        &host[end + 1..]
    } else {
        host.rfind(':').map_or("", |at| &host[at..])
    };
    let is_port = |port: &str| port.strip_prefix(':').is_some_and(|port| port.bytes().all(|c| c.is_ascii_digit()));
    if !port.is_empty() && !is_port(port) {
        return Err(format!("invalid port {} after host", super::show::json(&port.into())));
    }
    let fits = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~%".contains(c);
    match host.chars().find(|c| !fits(*c)) {
        Some(c) => Err(format!("invalid character {} in host name", super::show::json(&c.to_string().into()))),
        None => escapes(host),
    }
}

/// Every `%` begins a byte in two digits.
fn escapes(text: &str) -> Result<(), String> {
    for (i, _) in text.match_indices('%') {
        let digits = text.as_bytes().get(i + 1..i + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            let shown: String = text[i..].chars().take(3).collect();
            return Err(format!("invalid URL escape {}", super::show::json(&shown.into())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_go_reads_them() {
        let read = |text| parse(text).map(|url| format!("{}|{}", url.scheme, url.host));
        for (text, expected) in [
            ("https://a.b:443/c", Ok("https|a.b:443")),
            ("HTTPS://a", Ok("https|a")),
            ("fe80::1", Ok("fe80|")),
            ("a/b:c", Ok("|")),
            ("", Ok("|")),
            ("https:///x", Ok("https|")),
            ("2026:01", Err("parse \"2026:01\": first path segment in URL cannot contain colon")),
            (":x", Err("parse \":x\": missing protocol scheme")),
            ("https://a b/", Err("parse \"https://a b/\": invalid character \" \" in host name")),
            ("https://a:b/", Err("parse \"https://a:b/\": invalid port \":b\" after host")),
            ("https://a/%zz", Err("parse \"https://a/%zz\": invalid URL escape \"%zz\"")),
        ] {
            assert_eq!(read(text), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }
}
