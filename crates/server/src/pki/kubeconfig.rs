//! Kubeconfig files.

use capstan_api::go;

use super::Certified;
use crate::base64;

/// A kubeconfig for one cluster and one user, who has a client certificate; all data is in the text itself.
#[must_use]
pub fn kubeconfig(cluster: &str, server: &str, ca: &str, user: &str, client: &Certified) -> String {
    // Go quotes as JSON does where it matters, and YAML reads JSON.
    let (cluster, user, server) = (go::quote(cluster), go::quote(user), go::quote(server));
    let [ca, certificate, key] =
        [ca, &client.certificate, &client.key.to_pem()].map(|text| base64::encode(text.as_bytes()));
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
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
current-context: {cluster}
"
    )
}
