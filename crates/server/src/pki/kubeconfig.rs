//! Kubeconfig files.

use capstan_api::go;

use super::Certified;
use crate::base64;

/// How a user shows who they are.
#[derive(Clone, Copy, Debug)]
pub enum Credential<'a> {
    /// By a client certificate.
    Certificate(&'a Certified),
    /// By a bearer token.
    Token(&'a str),
}

/// A kubeconfig for one cluster and one user; all data is in the text itself.
#[must_use]
pub fn kubeconfig(cluster: &str, server: &str, ca: &str, user: &str, credential: Credential<'_>) -> String {
    // Go quotes as JSON does where it matters, and YAML reads JSON.
    let (cluster, user, server) = (go::quote(cluster), go::quote(user), go::quote(server));
    let encoded = |text: &str| base64::encode(text.as_bytes());
    let ca = encoded(ca);
    let shown = match credential {
        Credential::Certificate(client) => {
            let (certificate, key) = (encoded(&client.certificate), encoded(&client.key.to_pem()));
            format!("client-certificate-data: {certificate}\n    client-key-data: {key}")
        }
        Credential::Token(token) => format!("token: {}", go::quote(token)),
    };
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    {shown}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
current-context: {cluster}
"
    )
}
