//! What only some kinds can do, as client-go's expansions have it: evictions, bindings, tokens, approvals; and what
//! kubectl does with a patch: restarts and cordons.

use capstan_api::options::{DeleteOptions, UpdateOptions};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    authentication::v1::TokenRequest,
    certificates::v1::CertificateSigningRequest,
    core::v1::{Node, Pod, ServiceAccount},
};
use serde_json::{Value, json};

use crate::{Api, Error, Patch};

/// The annotation whose change makes a controller replace all pods.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

impl Api<Pod> {
    /// Deletes a pod, if the budgets of those it belongs to allow that now: `is_too_many_requests` of the error if not.
    ///
    /// # Errors
    /// A budget does not allow it, the pod is not there, the server refuses or cannot be reached.
    pub async fn evict(&self, name: &str, options: &DeleteOptions) -> Result<(), Error> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options,
        });
        self.create_subresource(name, "eviction", &eviction).await.map(drop)
    }

    /// Puts a pod on a node, as a scheduler does.
    ///
    /// # Errors
    /// It is on one already, the server refuses or cannot be reached.
    pub async fn bind(&self, name: &str, node: &str) -> Result<(), Error> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        self.create_subresource(name, "binding", &binding).await.map(drop)
    }

    /// Writes the ephemeral containers of a pod. What is there can only become more.
    ///
    /// # Errors
    /// Somebody has changed the pod since it was read, the server refuses or cannot be reached.
    pub async fn update_ephemeral_containers(&self, pod: &Pod) -> Result<Pod, Error> {
        self.update_with(pod, "ephemeralcontainers", &UpdateOptions::default()).await
    }
}

impl Api<ServiceAccount> {
    /// Asks for a token of an account.
    ///
    /// # Errors
    /// The account is not there, the server refuses or cannot be reached.
    pub async fn create_token(&self, name: &str, request: &TokenRequest) -> Result<TokenRequest, Error> {
        let answer = self.create_subresource(name, "token", request).await?;
        serde_json::from_slice(&answer).map_err(|error| Error::Decode(error.to_string()))
    }
}

impl Api<CertificateSigningRequest> {
    /// Writes whether a request is approved: the conditions of its status.
    ///
    /// # Errors
    /// Somebody has changed it since it was read, the server refuses or cannot be reached.
    pub async fn update_approval(
        &self,
        request: &CertificateSigningRequest,
    ) -> Result<CertificateSigningRequest, Error> {
        self.update_with(request, "approval", &UpdateOptions::default()).await
    }
}

impl Api<Node> {
    /// Lets no more pods be scheduled to a node.
    ///
    /// # Errors
    /// It is not there, the server refuses or cannot be reached.
    pub async fn cordon(&self, name: &str) -> Result<Node, Error> {
        self.patch(name, &Patch::Merge(&json!({"spec": {"unschedulable": true}}))).await
    }

    /// Lets pods be scheduled to a node again.
    ///
    /// # Errors
    /// It is not there, the server refuses or cannot be reached.
    pub async fn uncordon(&self, name: &str) -> Result<Node, Error> {
        self.patch(name, &Patch::Merge(&json!({"spec": {"unschedulable": null}}))).await
    }
}

macro_rules! restart {
    ($($kind:ty),+) => {$(
        impl Api<$kind> {
            /// Has all pods replaced, in the way that its strategy says: what `kubectl rollout restart` does.
            ///
            /// # Errors
            /// It is not there, the server refuses or cannot be reached.
            pub async fn restart(&self, name: &str) -> Result<$kind, Error> {
                self.patch(name, &Patch::Merge(&restarted_at(self.client()))).await
            }
        }
    )+};
}

restart!(DaemonSet, Deployment, StatefulSet);

fn restarted_at(client: &crate::Client) -> Value {
    let now = capstan_api::Time::from(client.clock().now()).to_string();
    json!({"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: now}}}}})
}
