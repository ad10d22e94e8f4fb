//! What a server serves, remembered until something is missing.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_api::{
    GroupKind, GroupVersionKind, GroupVersionResource,
    mapper::{MatchError, RESTMapper, RESTMapping, ResourceMapper},
};
use capstan_clock::Moment;

use super::{DiscoveryClient, ServerResources};
use crate::Error;

/// What is missing is asked for again at most this often.
pub const MIN_REFRESH: Duration = Duration::from_secs(1);

/// Asks a server what it serves once, and again when it is told to.
#[derive(Debug)]
pub struct CachedDiscovery {
    client: DiscoveryClient,
    state: Mutex<State>,
    /// Only one asks; the others wait for the answer.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    known: Option<Known>,
    /// How often what was known became invalid.
    invalidations: u64,
}

#[derive(Clone, Debug)]
struct Known {
    resources: Arc<ServerResources>,
    mapper: Arc<ResourceMapper>,
    at: Moment,
    /// How often something had become invalid when this was asked for.
    invalidations: u64,
}

impl CachedDiscovery {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(client: DiscoveryClient) -> Self {
        CachedDiscovery { client, state: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything: the next who asks waits for the server.
    pub fn invalidate(&self) {
        self.lock().invalidations += 1;
    }

    fn valid(&self) -> Option<Known> {
        let state = self.lock();
        state.known.clone().filter(|known| known.invalidations == state.invalidations)
    }

    async fn known(&self) -> Result<Known, Error> {
        if let Some(known) = self.valid() {
            return Ok(known);
        }
        let _asking = self.asking.lock().await;
        // Somebody may have asked while this one waited to.
        if let Some(known) = self.valid() {
            return Ok(known);
        }
        let at = self.client.client().clock().monotonic();
        // What becomes invalid while the server answers is asked for again by the next one.
        let invalidations = self.lock().invalidations;
        let resources = self.client.server_groups_and_resources().await?;
        let known = Known { mapper: Arc::new(resources.mapper()), resources: Arc::new(resources), at, invalidations };
        self.lock().known = Some(known.clone());
        Ok(known)
    }

    /// Everything that is served, as it was known last.
    ///
    /// # Errors
    /// Nothing is known yet, and the server refuses or cannot be reached.
    pub async fn resources(&self) -> Result<Arc<ServerResources>, Error> {
        Ok(self.known().await?.resources)
    }

    /// Asks the mapper, and once more with what the server serves now if it knows nothing of what is asked.
    async fn map<T>(&self, ask: impl Fn(&ResourceMapper) -> Result<T, MatchError>) -> Result<T, MappingError> {
        let known = self.known().await.map_err(MappingError::Discovery)?;
        let error = match ask(&known.mapper) {
            Err(error) if error.is_no_match() => error,
            other => return other.map_err(MappingError::Match),
        };
        let now = self.client.client().clock().monotonic();
        if now.since(known.at) < MIN_REFRESH {
            return Err(MappingError::Match(error));
        }
        self.invalidate();
        let known = self.known().await.map_err(MappingError::Discovery)?;
        ask(&known.mapper).map_err(MappingError::Match)
    }
}

/// Why it is not known how something is served.
#[derive(Clone, Debug, PartialEq)]
pub enum MappingError {
    /// The server did not say what it serves.
    Discovery(Error),
    /// Nothing that it serves is called so, or several things are.
    Match(MatchError),
}

impl MappingError {
    /// Whether nothing is called so.
    #[must_use]
    pub fn is_no_match(&self) -> bool {
        matches!(self, MappingError::Match(error) if error.is_no_match())
    }
}

impl fmt::Display for MappingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MappingError::Discovery(error) => error.fmt(f),
            MappingError::Match(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MappingError {}

/// Maps kinds to resources and back, asking the server when it has to: first of all, and when something is missing.
#[derive(Clone, Debug)]
pub struct DeferredRESTMapper {
    discovery: Arc<CachedDiscovery>,
}

impl DeferredRESTMapper {
    /// A mapper of what the server serves.
    #[must_use]
    pub fn new(discovery: Arc<CachedDiscovery>) -> Self {
        DeferredRESTMapper { discovery }
    }

    /// What a user means who types `deploy`, `deployments.apps`, `deployments.v1.apps` or `Deployment.v1.apps`.
    ///
    /// # Errors
    /// Nothing is called so, several things may be, or the server does not say.
    pub async fn mapping_for(&self, arg: &str) -> Result<RESTMapping, MappingError> {
        self.discovery.map(|mapper| mapper.mapping_for(arg)).await
    }

    /// How a kind is served: in the first of `versions` that has it, or in the preferred one if none is named.
    ///
    /// # Errors
    /// It is not served, or the server does not say.
    pub async fn rest_mapping(&self, kind: &GroupKind, versions: &[&str]) -> Result<RESTMapping, MappingError> {
        self.discovery.map(|mapper| mapper.rest_mapping(kind, versions)).await
    }

    /// The kind that a resource means.
    ///
    /// # Errors
    /// None does, several may, or the server does not say.
    pub async fn kind_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionKind, MappingError> {
        self.discovery.map(|mapper| mapper.kind_for(resource)).await
    }

    /// The resource that a resource named in part means.
    ///
    /// # Errors
    /// None does, several may, or the server does not say.
    pub async fn resource_for(&self, resource: &GroupVersionResource) -> Result<GroupVersionResource, MappingError> {
        self.discovery.map(|mapper| mapper.resource_for(resource)).await
    }

    /// Forgets what the server serves.
    pub fn reset(&self) {
        self.discovery.invalidate();
    }
}
