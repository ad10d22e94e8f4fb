//! The definition of the kind, put on the server or brought up to date.

use capstan_api::options::ListOptions;
use capstan_client::{Api, Client, Error};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;

use crate::At;

/// Installs or updates the definition of `At`, and waits until it is served.
///
/// # Errors
/// The server refuses, or cannot be reached.
pub async fn install(client: &Client) -> Result<(), Error> {
    let definitions = Api::<CustomResourceDefinition>::all(client);
    let mut crd = At::crd();
    crd.metadata.managed_fields = None;
    let name = At::crd_name();
    // The operator owns its definition: what others have changed about it is taken back.
    let applied = definitions.apply(name, "cnat", true, &crd).await?;
    if is_established(&applied) {
        return Ok(());
    }
    let options = ListOptions {
        field_selector: format!("metadata.name={name}"),
        resource_version: applied.metadata.resource_version.unwrap_or_default(),
        ..ListOptions::default()
    };
    let mut watch = definitions.watch(&options).await?;
    while let Some(event) = watch.try_next().await? {
        use capstan_client::Event::{Added, Modified};
        if let Added(crd) | Modified(crd) = event
            && is_established(&crd)
        {
            return Ok(());
        }
    }
    Err(Error::Transport(format!("the server ended the watch before {name} was served")))
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Established" && condition.status == "True")
}
