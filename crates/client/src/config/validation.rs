//! What a kubeconfig must not say, in client-go's words.

use kube_client::config::{AuthInfo, Cluster, Kubeconfig};

use super::{ConfigError, Place};

/// Schemes of proxies that are known.
const PROXIES: [&str; 3] = ["http", "https", "socks5"];

/// Versions of plugins' answers that came before a plugin had to say whether it asks the user.
const BEFORE_INTERACTIVE_MODE: [&str; 2] =
    ["client.authentication.k8s.io/v1alpha1", "client.authentication.k8s.io/v1beta1"];

/// What is wrong with the context of this place, its cluster and its user, all at once.
pub(super) fn validate(all: &Kubeconfig, place: &Place) -> Result<(), ConfigError> {
    let context = all.contexts.iter().find(|named| named.name == place.context);
    let Some(context) = context.and_then(|named| named.context.as_ref()) else { return Ok(()) };
    let mut errors = Vec::new();
    let cluster = all.clusters.iter().find(|named| named.name == context.cluster);
    if let Some(cluster) = cluster.and_then(|named| named.cluster.as_ref()) {
        validate_cluster(&context.cluster, cluster, &mut errors);
    }
    let user = all.auth_infos.iter().find(|named| named.name == place.user);
    if let Some(user) = user.and_then(|named| named.auth_info.as_ref()) {
        validate_user(&place.user, user, &mut errors);
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(ConfigError::context(place, &format!("invalid configuration: {one}"))),
        all => Err(ConfigError::context(place, &format!("invalid configuration: [{}]", all.join(", ")))),
    }
}

fn given(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn validate_cluster(name: &str, cluster: &Cluster, errors: &mut Vec<String>) {
    if !given(cluster.server.as_ref()) {
        errors.push(format!("no server found for cluster {name:?}"));
    }
    if let Some(url) = cluster.proxy_url.as_ref().filter(|url| !url.is_empty()) {
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        if !PROXIES.contains(&scheme) {
            let why = format!("unsupported scheme {scheme:?}, must be http, https, or socks5");
            errors.push(format!("invalid 'proxy-url' {url:?} for cluster {name:?}: {why}"));
        } else if url.parse::<http::Uri>().is_err() {
            errors.push(format!("invalid 'proxy-url' {url:?} for cluster {name:?}: could not parse: {url}"));
        }
    }
    let (file, data) =
        (given(cluster.certificate_authority.as_ref()), given(cluster.certificate_authority_data.as_ref()));
    if file && data {
        errors.push(format!(
            "certificate-authority-data and certificate-authority are both specified for {name}. \
             certificate-authority-data will override."
        ));
    }
    if (file || data) && cluster.insecure_skip_tls_verify == Some(true) {
        errors.push("specifying a root certificates file with the insecure flag is not allowed".to_owned());
    }
}

fn validate_user(name: &str, user: &AuthInfo, errors: &mut Vec<String>) {
    let certificate = (given(user.client_certificate.as_ref()), given(user.client_certificate_data.as_ref()));
    let key = (given(user.client_key.as_ref()), user.client_key_data.is_some());
    if certificate == (true, true) {
        errors.push(format!(
            "client-cert-data and client-cert are both specified for {name}. client-cert-data will override."
        ));
    }
    if certificate != (false, false) {
        match key {
            (true, true) => errors.push(format!(
                "client-key-data and client-key are both specified for {name}; client-key-data will override"
            )),
            (false, false) => errors.push(format!(
                "client-key-data or client-key must be specified for {name} to use the clientCert authentication method."
            )),
            _ => {}
        }
    }
    if let Some(exec) = &user.exec {
        if user.auth_provider.is_some() {
            errors.push(format!("authProvider cannot be provided in combination with an exec plugin for {name}"));
        }
        let mut must = |what: &str| {
            errors.push(format!("{what} must be specified for {name} to use exec authentication plugin"));
        };
        if !given(exec.command.as_ref()) {
            must("command");
        }
        if !given(exec.api_version.as_ref()) {
            must("apiVersion");
        }
        for variable in exec.env.iter().flatten() {
            if !given(variable.get("name")) {
                must("env variable name");
            }
        }
        let older = exec.api_version.as_deref().is_some_and(|version| BEFORE_INTERACTIVE_MODE.contains(&version));
        if exec.interactive_mode.is_none() && !older {
            must("interactiveMode");
        }
    }
    let basic = given(user.username.as_ref()) || user.password.is_some();
    if user.token.is_some() && basic {
        errors.push(format!(
            "more than one authentication method found for {name}; found [token basicAuth], only one is allowed"
        ));
    }
    let more = given(user.impersonate_uid.as_ref())
        || user.impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
        || user.impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
    if more && !given(user.impersonate.as_ref()) {
        errors.push(format!("requesting uid, groups or user-extra for {name} without impersonating a user"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: &str, user: &str, expected: &str) {
        let text = format!(
            "clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
        );
        let all = Kubeconfig::from_yaml(&text).unwrap();
        let place = Place { file: "f".to_owned(), context: "x".to_owned(), user: "u".to_owned() };
        let found = validate(&all, &place).err().map(|error| error.to_string()).unwrap_or_default();
        let found = found.strip_prefix("kubeconfig f: context \"x\": invalid configuration: ").unwrap_or(&found);
        assert_eq!(found, expected, "{cluster} {user}");
    }

    #[test]
    fn clusters() {
        const SERVER: &str = "server: 'https://a'";
        let of = |rest: &str, expected: &str| check(&format!("{SERVER}, {rest}"), "", expected);
        check(SERVER, "", "");
        check("server: ''", "", "no server found for cluster \"c\"");
        of("certificate-authority: a, certificate-authority-data: ''", "");
        of(
            "certificate-authority: a, certificate-authority-data: YQ==",
            "certificate-authority-data and certificate-authority are both specified for c. \
             certificate-authority-data will override.",
        );
        let insecure = "specifying a root certificates file with the insecure flag is not allowed";
        of("insecure-skip-tls-verify: true, certificate-authority: a", insecure);
        of("insecure-skip-tls-verify: true, certificate-authority-data: YQ==", insecure);
        of("insecure-skip-tls-verify: false, certificate-authority: a", "");
        of("proxy-url: 'socks5://a:1'", "");
        let scheme = "unsupported scheme \"ftp\", must be http, https, or socks5";
        of("proxy-url: 'ftp://a'", &format!("invalid 'proxy-url' \"ftp://a\" for cluster \"c\": {scheme}"));
        of(
            "proxy-url: 'http://a b'",
            "invalid 'proxy-url' \"http://a b\" for cluster \"c\": could not parse: http://a b",
        );
    }

    #[test]
    fn users() {
        let of = |user: &str, expected: &str| check("server: 'https://a'", user, expected);
        of("", "");
        of("token: t", "");
        of(
            "token: t, username: a, password: b",
            "more than one authentication method found for u; found [token basicAuth], only one is allowed",
        );
        of("client-certificate: a, client-key: b", "");
        of(
            "client-certificate: a",
            "client-key-data or client-key must be specified for u to use the clientCert authentication method.",
        );
        of(
            "client-certificate: a, client-certificate-data: YQ==, client-key: a, client-key-data: YQ==",
            "[client-cert-data and client-cert are both specified for u. client-cert-data will override., \
             client-key-data and client-key are both specified for u; client-key-data will override]",
        );
        of("as: jane, as-uid: '1', as-groups: [g], as-user-extra: {k: [v]}", "");
        let nobody = "requesting uid, groups or user-extra for u without impersonating a user";
        for more in ["as-uid: '1'", "as-groups: [g]", "as-user-extra: {k: [v]}"] {
            of(more, nobody);
        }
        let exec = |rest: &str| format!("exec: {{{rest}}}");
        let must = |what: &str| format!("{what} must be specified for u to use exec authentication plugin");
        let v1 = "apiVersion: client.authentication.k8s.io/v1, command: c";
        of(&exec("apiVersion: client.authentication.k8s.io/v1beta1, command: c"), "");
        of(&exec(&format!("{v1}, interactiveMode: Never")), "");
        of(&exec(v1), &must("interactiveMode"));
        of(&exec("command: c, interactiveMode: Never"), &must("apiVersion"));
        of(&exec("apiVersion: client.authentication.k8s.io/v1beta1"), &must("command"));
        let nameless = exec(&format!("{v1}, interactiveMode: Never, env: [{{name: '', value: x}}]"));
        of(&nameless, &must("env variable name"));
        let both =
            format!("{}, auth-provider: {{name: oidc, config: {{}}}}", exec(&format!("{v1}, interactiveMode: Never")));
        of(&both, "authProvider cannot be provided in combination with an exec plugin for u");
    }
}
