//! Who the parts of a cluster are to its server: each asks in its own name, with the roles that every cluster has for
//! it, although all of them live in one process.

use std::sync::Arc;

use capstan_client::{Client, SharedInformerFactory};
use capstan_server::{
    authentication::SYSTEM_AUTHENTICATED,
    authorization::{SYSTEM_MASTERS, UserInfo},
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::json;

use super::{
    clock_and_ids,
    journal::{Journal, Told},
};
use crate::{metrics::create, server::Running};

/// Service accounts of control loops whose names differ from the loops'. The others have a loop's name.
const ACCOUNTS: [(&str, &str); 24] = [
    ("bootstrap-signer-controller", "bootstrap-signer"),
    ("certificatesigningrequest-approving-controller", "certificate-controller"),
    ("certificatesigningrequest-cleaner-controller", "certificate-controller"),
    ("certificatesigningrequest-signing-controller", "certificate-controller"),
    ("daemonset-controller", "daemon-set-controller"),
    ("endpoints-controller", "endpoint-controller"),
    ("endpointslice-mirroring-controller", "endpointslicemirroring-controller"),
    ("garbage-collector-controller", GARBAGE_COLLECTOR),
    ("horizontal-pod-autoscaler-controller", "horizontal-pod-autoscaler"),
    ("legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"),
    ("node-lifecycle-controller", "node-controller"),
    ("persistentvolume-attach-detach-controller", "attachdetach-controller"),
    ("persistentvolume-binder-controller", "persistent-volume-binder"),
    ("persistentvolume-expander-controller", "expand-controller"),
    ("persistentvolume-protection-controller", "pv-protection-controller"),
    ("persistentvolumeclaim-protection-controller", "pvc-protection-controller"),
    ("pod-garbage-collector-controller", "pod-garbage-collector"),
    ("replicationcontroller-controller", "replication-controller"),
    ("resourceclaim-controller", "resource-claim-controller"),
    ("root-ca-certificate-publisher-controller", "root-ca-cert-publisher"),
    ("service-cidr-controller", "service-cidrs-controller"),
    ("serviceaccount-controller", "service-account-controller"),
    ("taint-eviction-controller", "node-controller"),
    ("token-cleaner-controller", "token-cleaner"),
];

/// How the control loops call themselves.
pub(super) const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// The account of the garbage collector.
pub(super) const GARBAGE_COLLECTOR: &str = "generic-garbage-collector";

/// The loop that has no account: it makes the tokens of accounts.
const TOKEN_CONTROLLER: &str = "serviceaccount-token-controller";

/// Who simulated nodes are, all together.
const SIMULATED: &str = "capstan:simulated-nodes";

/// Who a control loop is, as with `--use-service-account-credentials`.
pub(super) fn controller(name: &str) -> UserInfo {
    match ACCOUNTS.iter().find(|(of, _)| *of == name) {
        _ if name == TOKEN_CONTROLLER => controller_manager(),
        Some((_, account)) => service_account(account),
        None => service_account(name),
    }
}

/// A service account of `kube-system`.
pub(super) fn service_account(name: &str) -> UserInfo {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", SYSTEM_AUTHENTICATED];
    UserInfo::new(&format!("system:serviceaccount:kube-system:{name}"), groups)
}

/// Whoever reads for all control loops.
pub(super) fn controller_manager() -> UserInfo {
    UserInfo::new("system:kube-controller-manager", [SYSTEM_AUTHENTICATED])
}

/// The scheduler.
pub(super) fn scheduler() -> UserInfo {
    UserInfo::new("system:kube-scheduler", [SYSTEM_AUTHENTICATED])
}

/// A node.
pub(super) fn node(name: &str) -> UserInfo {
    UserInfo::new(&format!("system:node:{name}"), ["system:nodes", SYSTEM_AUTHENTICATED])
}

/// `capstan up` itself, for what a new cluster has beyond an API server.
fn installer() -> UserInfo {
    UserInfo::new("capstan", [SYSTEM_MASTERS, SYSTEM_AUTHENTICATED])
}

/// The server of this process, and the journal of what is done by it.
pub(super) struct Inside<'a> {
    pub(super) running: &'a Running,
    pub(super) journal: Arc<Journal>,
    /// One informer of each kind for loops, scheduler and simulated nodes: an object is read once and kept once.
    /// Of pods the loops keep only a part, and have an informer of their own.
    pub(super) informers: Arc<SharedInformerFactory>,
}

impl<'a> Inside<'a> {
    pub(super) fn new(running: &'a Running, journal: &Arc<Journal>) -> Self {
        let client = client(running, journal, CONTROLLER_MANAGER, controller_manager(), CONTROLLER_MANAGER);
        let (clock, ids) = clock_and_ids();
        // Nobody asks who manages which field, and it is often half of an object.
        let informers = SharedInformerFactory::new(Arc::new(client), clock, ids).without_managed_fields();
        Inside { running, journal: Arc::clone(journal), informers: Arc::new(informers) }
    }

    /// A client for a part; `who` is its name in the journal.
    pub(super) fn client(&self, who: &str, user: UserInfo, agent: &str) -> Client {
        client(self.running, &self.journal, who, user, agent)
    }

    /// A client that may do everything.
    pub(super) fn installer(&self) -> Client {
        self.client("up", installer(), "capstan")
    }

    /// A client for all simulated nodes: what a role of their own lets them do, for no role of every cluster is for
    /// one who speaks for many nodes.
    pub(super) async fn simulated_nodes(&self) -> Result<Client, String> {
        let role = json!({
            "metadata": {"name": SIMULATED},
            "rules": [
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["create", "get", "list", "patch", "watch"]},
                {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["patch", "update"]},
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "get", "list", "watch"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                 "verbs": ["create", "get", "patch", "update"]},
                {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
            ],
        });
        let binding = json!({
            "metadata": {"name": SIMULATED},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": SIMULATED},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": SIMULATED}],
        });
        let client = self.installer();
        create::<ClusterRole>(&client, role).await?;
        create::<ClusterRoleBinding>(&client, binding).await?;
        Ok(self.client("nodes", UserInfo::new(SIMULATED, [SYSTEM_AUTHENTICATED]), "kubelet"))
    }
}

fn client(running: &Running, journal: &Arc<Journal>, who: &str, user: UserInfo, agent: &str) -> Client {
    let service = running.server.as_user(user);
    Client::new(Told { service, who: who.into(), journal: Arc::clone(journal) }).with_user_agent(agent)
}

#[cfg(test)]
mod tests {
    use capstan_api::options::ListOptions;
    use capstan_client::Api;
    use capstan_controllers::CONTROLLERS;
    use capstan_server::{Config, Server};
    use capstan_storage::{Memory, Options};
    use k8s_openapi::api::rbac::v1::Role;

    use super::*;

    #[tokio::test]
    async fn every_loop_is_somebody_with_a_role() {
        let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
        let client = Client::from_service(server.as_user(installer()));
        let all = ListOptions::default();
        let cluster_roles = Api::<ClusterRole>::all(&client).list(&all).await.unwrap().items;
        let roles = Api::<Role>::namespaced(&client, "kube-system").list(&all).await.unwrap().items;
        let names: Vec<String> = (cluster_roles.into_iter().filter_map(|role| role.metadata.name))
            .chain(roles.into_iter().filter_map(|role| role.metadata.name))
            .collect();
        for descriptor in CONTROLLERS.iter().filter(|descriptor| descriptor.name != TOKEN_CONTROLLER) {
            let user = controller(descriptor.name);
            let account = user.name.rsplit(':').next().unwrap();
            let role = format!("system:controller:{account}");
            assert!(names.contains(&role), "{} is {account}, which has no role", descriptor.name);
        }
        for (name, _) in ACCOUNTS {
            assert!(CONTROLLERS.iter().any(|descriptor| descriptor.name == name), "there is no {name}");
        }
    }
}
