//! metrics.k8s.io in the server's own process: what `kubectl top` and the autoscaler ask.

use std::sync::Arc;

use capstan_api::GroupVersion;
use capstan_client::{Api, Client};
use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_kubelet::metrics_api::{GROUP, MetricsApi, VERSION};
use capstan_server::{
    authentication::SYSTEM_AUTHENTICATED,
    authorization::{SYSTEM_MASTERS, UserInfo},
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::json;

use crate::server::{Flags, Running, read};

/// Who asks the kubelets, and the role that lets them.
const USER: &str = "system:metrics-server";

/// Who may read pods may read what they use.
const READER: &str = "system:aggregated-metrics-reader";

/// Serves metrics.k8s.io by asking the kubelets of the cluster, from now on.
pub(crate) async fn serve(running: &Running, flags: &Flags) -> Result<(), String> {
    let clock = Arc::new(RealClock::new());
    install(running).await?;
    let own = running.pki.client(USER, &[], clock.now(), &OsIds).map_err(|error| error.to_string())?;
    let user = running.server.as_user(UserInfo::new(USER, [SYSTEM_AUTHENTICATED]));
    let client = Client::from_service(user).with_user_agent("metrics-server");
    let authorities = match &flags.kubelet_certificate_authority {
        _ if flags.kubelet_insecure_tls => None,
        Some(file) => {
            let found = CertificateDer::pem_slice_iter(&read(file)?).collect::<Result<Vec<_>, _>>();
            Some(found.map_err(|error| format!("{}: {error}", file.display()))?)
        }
        None => Some(running.pki.ca.own.chain()),
    };
    let api = MetricsApi::new(client, clock, (own.chain(), own.key.der()), authorities);
    let api = api.map_err(|error| error.to_string())?;
    let extended =
        running.server.extend(GroupVersion::new(GROUP, VERSION), Arc::new(move |request| api.answer(request)));
    extended.await.map_err(|status| status.to_string())
}

/// Creates the roles that this needs, unless they are there: what a user has changed about them stays.
async fn install(running: &Running) -> Result<(), String> {
    let client = Client::from_service(running.server.as_user(UserInfo::new("capstan", [SYSTEM_MASTERS])));
    let client = client.with_user_agent("capstan");
    let reader = json!({
        "metadata": {"name": READER, "labels": {
            "rbac.authorization.k8s.io/aggregate-to-admin": "true",
            "rbac.authorization.k8s.io/aggregate-to-edit": "true",
            "rbac.authorization.k8s.io/aggregate-to-view": "true",
        }},
        "rules": [{"apiGroups": [GROUP], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}],
    });
    let role = json!({
        "metadata": {"name": USER},
        "rules": [
            {"apiGroups": [""], "resources": ["nodes/metrics", "nodes/stats"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]},
        ],
    });
    let binding = json!({
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    });
    for role in [reader, role] {
        create::<ClusterRole>(&client, role).await?;
    }
    create::<ClusterRoleBinding>(&client, binding).await
}

/// Creates an object of the cluster unless it is there.
pub(crate) async fn create<K>(client: &Client, object: serde_json::Value) -> Result<(), String>
where
    K: capstan_api::Resource + capstan_api::object::Object + serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).map_err(|error| error.to_string())?;
    match Api::<K>::all(client).create(&object).await {
        Err(error) if !error.is_already_exists() => Err(error.to_string()),
        _ => Ok(()),
    }
}
