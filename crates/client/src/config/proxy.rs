//! Which proxy leads to a server: the one that the kubeconfig names, else the one that the surroundings do.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;

/// The proxy for a server. What a kubeconfig names counts always; `HTTPS_PROXY` and `HTTP_PROXY` do not for the servers
/// of `NO_PROXY` and for this machine, as in Go.
pub(super) fn of(named: Option<Uri>, server: &Uri, env: impl Fn(&str) -> Option<String>) -> Option<Uri> {
    if named.is_some() {
        return named;
    }
    let host = server.host()?.trim_matches(['[', ']']);
    if host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback()) {
        return None;
    }
    let said = |upper: &str| env(upper).or_else(|| env(&upper.to_lowercase())).filter(|text| !text.is_empty());
    let proxy = said(if server.scheme_str() == Some("http") { "HTTP_PROXY" } else { "HTTPS_PROXY" })?;
    let no = said("NO_PROXY").unwrap_or_default();
    Matcher::builder().all(proxy.clone()).no(no).build().intercept(server)?;
    // As it was said: the matcher takes who asks out of it.
    if proxy.contains("://") { proxy.parse().ok() } else { format!("http://{proxy}").parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_or_from_the_surroundings() {
        let check = |named: &str, server: &str, env: &[(&str, &str)], expected: &str| {
            let named = (!named.is_empty()).then(|| named.parse().unwrap());
            let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            let found = of(named, &server.parse().unwrap(), env).map(|uri| uri.to_string()).unwrap_or_default();
            assert_eq!(found, expected, "{server}");
        };
        let here = ("HTTPS_PROXY", "http://user:word@proxy:3128");
        check("", "https://api.example.com", &[], "");
        check("", "https://api.example.com", &[here], "http://user:word@proxy:3128/");
        check("", "https://api.example.com", &[("https_proxy", "proxy:3128")], "http://proxy:3128/");
        check("", "http://api.example.com", &[here], "");
        check("", "http://api.example.com", &[("HTTP_PROXY", "http://other:1")], "http://other:1/");
        // It is the server that is asked directly, wherever the proxy is.
        for no in ["api.example.com", "example.com", ".example.com", "*"] {
            check("", "https://api.example.com", &[here, ("NO_PROXY", no)], "");
        }
        check("", "https://api.example.com", &[here, ("NO_PROXY", "proxy")], "http://user:word@proxy:3128/");
        check("", "https://10.96.0.1", &[here, ("no_proxy", "192.168.0.0/16,10.96.0.0/12")], "");
        check("", "https://10.1.0.1", &[here, ("no_proxy", "10.96.0.0/12")], "http://user:word@proxy:3128/");
        for local in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            check("", local, &[here], "");
            check("http://named:1", local, &[here], "http://named:1/");
        }
        check("http://named:1", "https://api.example.com", &[here, ("NO_PROXY", "*")], "http://named:1/");
    }
}
