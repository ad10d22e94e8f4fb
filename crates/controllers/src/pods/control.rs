//! Making and deleting pods, and telling of it.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{Resource, object::Object, options::DeleteOptions};
use capstan_client::{Api, Client, Error, Key};
use capstan_runtime::record::Referent;
use http::{HeaderValue, header};
use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};

use super::expectations::Expectations;
use crate::{
    controller_ref::{is_namespace_terminating, reference_to},
    metadata::{METADATA, ObjectMetadata},
    pod::{Pod, WholePod},
    recorder::Recorder,
};

/// The longest prefix from which a name can be generated and still be one.
const MAX_NAME: usize = 253;

/// Makes and deletes pods for owners of one kind, tells of it by Events and notes it.
#[derive(Clone, Debug)]
pub(crate) struct PodControl {
    pub(crate) client: Client,
    pub(crate) events: Recorder,
    pub(crate) expectations: Arc<Expectations>,
}

/// The pod that a template describes, for an owner.
pub(crate) fn pod_from_template<O: Resource + Object>(template: &PodTemplateSpec, owner: &O) -> WholePod {
    let meta = template.metadata.clone().unwrap_or_default();
    let name = owner.identity().name;
    let prefix = if name.len() < MAX_NAME { format!("{name}-") } else { name.to_owned() };
    WholePod {
        metadata: ObjectMeta {
            generate_name: Some(prefix),
            namespace: Some(owner.identity().namespace.to_owned()),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![reference_to(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The JSON of a pod.
pub(crate) fn encode(pod: &WholePod) -> Result<Bytes, Error> {
    serde_json::to_vec(pod).map(Bytes::from).map_err(|error| Error::Decode(error.to_string()))
}

impl PodControl {
    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(&self.client, namespace)
    }

    /// Creates a pod. In a namespace that goes away nothing is told: whatever is created there fails.
    pub(crate) async fn create<O: Resource + Object + Referent>(&self, owner: &O, pod: &WholePod) -> Result<(), Error> {
        self.create_encoded(owner, encode(pod)?).await
    }

    /// Creates a pod from its JSON. Of many pods that differ in nothing but the names that the server makes, that is
    /// written once; and of what was created only the name and the version are read.
    pub(crate) async fn create_encoded<O>(&self, owner: &O, pod: Bytes) -> Result<(), Error>
    where
        O: Resource + Object + Referent,
    {
        let request = self.client.rest().post().resource(&Pod::gvr()).namespace(owner.identity().namespace);
        let request = request.raw_body(HeaderValue::from_static("application/json"), pod);
        match request.header(header::ACCEPT, METADATA).into::<ObjectMetadata>().await {
            Ok(created) => {
                self.expectations.created_as::<Pod>(&Key::of(owner), &created);
                self.events.normal(owner, "SuccessfulCreate", format!("Created pod: {}", created.name));
                Ok(())
            }
            Err(error) => {
                if !is_namespace_terminating(&error) {
                    self.events.warning(owner, "FailedCreate", format!("Error creating: {error}"));
                }
                Err(error)
            }
        }
    }

    /// Deletes a pod; one that is gone already is no error.
    pub(crate) async fn delete<O: Resource + Object + Referent>(&self, owner: &O, pod: &Pod) -> Result<(), Error> {
        let name = pod.identity().name;
        match self.pods(owner.identity().namespace).delete(name, &DeleteOptions::default()).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => {
                self.events.warning(owner, "FailedDelete", format!("Error deleting: {error}"));
                Err(Error::Transport(format!("unable to delete pods: {error}")))
            }
            Ok(()) => {
                self.expectations.deleted(&Key::of(owner), pod);
                self.events.normal(owner, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
        }
    }
}
