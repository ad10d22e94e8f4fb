//! Which resource a kind is, as the server tells.

use std::sync::{Arc, Mutex, PoisonError};

use capstan_api::{GroupVersion, GroupVersionResource};
use capstan_client::Client;

use crate::discovery::Discovery;

/// What the server told last. It is asked again only about what is not known.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<Arc<Discovery>>);

impl Kinds {
    /// The resource of a kind.
    ///
    /// # Errors
    /// The server has none, or cannot be asked.
    pub(super) async fn resource(
        &self,
        client: &Client,
        group_version: &GroupVersion,
        kind: &str,
    ) -> Result<GroupVersionResource, String> {
        let gvk = group_version.with_kind(kind.to_owned());
        let known = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some((resource, _)) = known.mapping(&gvk) {
            return Ok(resource.clone());
        }
        let told = Arc::new(Discovery::of(client).await.map_err(|error| error.to_string())?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&told);
        let found = told.mapping(&gvk).map(|(resource, _)| resource.clone());
        found.ok_or_else(|| format!("no matches for kind {kind:?} in group {:?}", group_version.group.as_ref()))
    }
}
