//! metrics.k8s.io in the server's own process: what `kubectl top` and the autoscaler ask.

use std::sync::Arc;

use capstan_api::GroupVersion;
use capstan_client::{Api, Client};
use capstan_clock::{Clock as _, OsIds, RealClock};
use capstan_kubelet::metrics_api::{GROUP, MetricsApi, VERSION};
use capstan_server::authorization::{SYSTEM_MASTERS, UserInfo};
use k8s_openapi::api::rbac::v1::ClusterRole;

use crate::server::Running;

/// Who asks the kubelets.
const USER: &str = "system:metrics-server";

/// Who may read pods may read what they use.
const READER: &str = "system:aggregated-metrics-reader";

/// Serves metrics.k8s.io by asking the kubelets of the cluster, from now on.
pub(crate) async fn serve(running: &Running) -> Result<(), String> {
    let clock = Arc::new(RealClock::new());
    let own = running.pki.client(USER, &[SYSTEM_MASTERS], clock.now(), &OsIds).map_err(|error| error.to_string())?;
    let user = running.server.as_user(UserInfo::new(USER, [SYSTEM_MASTERS]));
    let client = Client::from_service(user).with_user_agent("metrics-server");
    let role = serde_json::json!({
        "metadata": {"name": READER, "labels": {
            "rbac.authorization.k8s.io/aggregate-to-admin": "true",
            "rbac.authorization.k8s.io/aggregate-to-edit": "true",
            "rbac.authorization.k8s.io/aggregate-to-view": "true",
        }},
        "rules": [{"apiGroups": [GROUP], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}],
    });
    let role: ClusterRole = serde_json::from_value(role).map_err(|error| error.to_string())?;
    match Api::<ClusterRole>::all(&client).create(&role).await {
        Err(error) if !error.is_already_exists() => return Err(error.to_string()),
        _ => {}
    }
    let api = MetricsApi::new(client, clock, own.chain(), own.key.der()).map_err(|error| error.to_string())?;
    let extended =
        running.server.extend(GroupVersion::new(GROUP, VERSION), Arc::new(move |request| api.answer(request)));
    extended.await.map_err(|status| status.to_string())
}
