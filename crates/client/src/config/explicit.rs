//! A config that is said outright: client-go's `rest.Config`.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube_client::config::Kubeconfig;
use serde_json::{Map, Value, json};

use super::ConfigError;

/// Where a server is, how to trust it, and how to prove who asks. What is empty is not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplicitConfig {
    /// The server: `https://10.0.0.1:6443`.
    pub host: String,
    /// The certificates of those who may vouch for the server, as PEM. Else those of the system.
    pub ca_data: Vec<u8>,
    /// A file with them, which is read again when it changes. Counts if they are not said.
    pub ca_file: String,
    /// Trust whoever answers. For tests.
    pub insecure: bool,
    /// The name that the server's certificate has to have, if not the host's.
    pub server_name: String,
    /// A token.
    pub bearer_token: String,
    /// A file with a token, which is read again and again.
    pub bearer_token_file: String,
    /// A client certificate, as PEM.
    pub cert_data: Vec<u8>,
    /// Its key, as PEM.
    pub key_data: Vec<u8>,
    /// Files with them, which are read again when they change. They count if the data is not said.
    pub cert_file: String,
    /// The file with the key.
    pub key_file: String,
    /// A name for basic authentication.
    pub username: String,
    /// The word that goes with it.
    pub password: String,
    /// A proxy: `http://`, `https://` or `socks5://`.
    pub proxy_url: String,
    /// Act as this user.
    pub impersonate: String,
    /// Act as the user with this UID.
    pub impersonate_uid: String,
    /// Act as a member of these groups.
    pub impersonate_groups: Vec<String>,
    /// Act as one of whom this is known besides.
    pub impersonate_extra: BTreeMap<String, Vec<String>>,
    /// The namespace for those who name none; else `default`.
    pub default_namespace: String,
}

impl ExplicitConfig {
    /// As a kubeconfig with one context, so that one road leads from there on.
    pub(super) fn kubeconfig(&self) -> Result<Kubeconfig, ConfigError> {
        let text = |text: &str| (!text.is_empty()).then(|| Value::from(text));
        let data = |data: &[u8]| (!data.is_empty()).then(|| Value::from(STANDARD.encode(data)));
        let cluster = object([
            ("server", text(&self.host)),
            ("certificate-authority-data", data(&self.ca_data)),
            ("certificate-authority", text(&self.ca_file)),
            ("insecure-skip-tls-verify", self.insecure.then_some(Value::Bool(true))),
            ("tls-server-name", text(&self.server_name)),
            ("proxy-url", text(&self.proxy_url)),
        ]);
        let user = object([
            ("token", text(&self.bearer_token)),
            ("tokenFile", text(&self.bearer_token_file)),
            ("client-certificate-data", data(&self.cert_data)),
            ("client-key-data", data(&self.key_data)),
            ("client-certificate", text(&self.cert_file).filter(|_| self.cert_data.is_empty())),
            ("client-key", text(&self.key_file).filter(|_| self.key_data.is_empty())),
            ("username", text(&self.username)),
            ("password", text(&self.password)),
            ("as", text(&self.impersonate)),
            ("as-uid", text(&self.impersonate_uid)),
            ("as-user-extra", (!self.impersonate_extra.is_empty()).then(|| json!(self.impersonate_extra))),
            ("as-groups", (!self.impersonate_groups.is_empty()).then(|| json!(self.impersonate_groups))),
        ]);
        let context = object([
            ("cluster", text("explicit")),
            ("user", text("explicit")),
            ("namespace", text(&self.default_namespace)),
        ]);
        let kubeconfig = json!({
            "clusters": [{"name": "explicit", "cluster": cluster}],
            "users": [{"name": "explicit", "user": user}],
            "contexts": [{"name": "explicit", "context": context}],
            "current-context": "explicit",
        });
        serde_json::from_value(kubeconfig)
            .map_err(|error| ConfigError::File { file: "the given config".to_owned(), reason: error.to_string() })
    }
}

fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
