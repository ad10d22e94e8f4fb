//! Groups of the API that other servers answer: APIServices with a service behind them.
//!
//! [`Aggregator`] knows which those are, and forwards requests to them ([`proxy`]). For each a task asks its server
//! again and again whether it answers and what it has ([`worker`]), says so in the APIService's condition
//! ([`availability`]) and in discovery and OpenAPI ([`documents`]). [`register`] makes the APIServices of what this
//! server has itself.

mod availability;
mod documents;
mod proxy;
mod register;
mod resolve;
mod spec;
#[cfg(test)]
mod tests;
mod worker;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use capstan_api::{GroupResource, GroupVersion, Map, Status, Str};
use capstan_storage::Op;
use tokio::task::{AbortHandle, JoinSet};

use self::{
    availability::Condition,
    resolve::Place,
    spec::{Spec, Tls},
};
pub(crate) use self::{proxy::Forwarded, register::revised, spec::ProxyClient};
use crate::{
    cache::CacheError,
    discovery::{Discovery, GroupVersionService},
    handlers::managed,
    metrics::Metrics,
    objects::Objects as _,
    openapi::OpenApi,
    registry::{
        Registry, encode,
        live::{Refused, parse},
        paths,
    },
    request::RequestInfo,
    start,
};

pub(crate) const API_SERVICES: GroupResource = GroupResource::from_static("apiregistration.k8s.io", "apiservices");

/// How often a status that was changed meanwhile is written again.
const WRITE_ATTEMPTS: usize = 5;

/// A group version that another server answers.
pub(crate) struct Remote {
    spec: Spec,
    tls: Result<Tls, String>,
    /// Whether it is known to answer.
    available: bool,
}

/// The group versions that other servers answer.
pub(crate) struct Aggregator {
    registry: Arc<Registry>,
    discovery: Arc<Discovery>,
    openapi: Arc<OpenApi>,
    metrics: Arc<Metrics>,
    proxy_client: Option<ProxyClient>,
    /// What parts of this process answer.
    extended: Mutex<HashSet<GroupVersion>>,
    /// There are few: they are looked through.
    remotes: RwLock<Vec<Arc<Remote>>>,
    /// Which of the servers behind a service is next.
    turn: AtomicUsize,
}

impl Aggregator {
    /// Knows what the APIServices say, and follows them in tasks.
    pub(crate) async fn start(
        (registry, discovery, openapi, metrics): (&Arc<Registry>, &Arc<Discovery>, &Arc<OpenApi>, &Arc<Metrics>),
        proxy_client: Option<ProxyClient>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Arc<Self>, CacheError> {
        let aggregator = Arc::new(Aggregator {
            registry: Arc::clone(registry),
            discovery: Arc::clone(discovery),
            openapi: Arc::clone(openapi),
            metrics: Arc::clone(metrics),
            proxy_client,
            extended: Mutex::default(),
            remotes: RwLock::default(),
            turn: AtomicUsize::new(0),
        });
        let mut known = Known { aggregator: Arc::clone(&aggregator), all: HashMap::new(), workers: JoinSet::new() };
        start::follow(registry, &API_SERVICES, tasks, start::all, move |object, value, gone| {
            let name = Str::from(object.name());
            match value.as_object().filter(|_| !gone) {
                Some(object) => known.upsert(name, object),
                None => known.remove(&name),
            }
        })
        .await?;
        register::follow(&aggregator, tasks).await?;
        Ok(aggregator)
    }

    /// Who answers a request, if it is another server.
    pub(crate) fn remote_for(&self, info: &RequestInfo) -> Option<Arc<Remote>> {
        let remotes = self.remotes.read().unwrap_or_else(PoisonError::into_inner);
        if remotes.is_empty() {
            return None;
        }
        let mut parts = info.path.trim_start_matches('/').split('/');
        let (group, version) = match parts.next() {
            Some("api") => ("", parts.next()?),
            Some("apis") => (parts.next()?, parts.next()?),
            _ => return None,
        };
        let is_it = |remote: &&Arc<Remote>| {
            let known = &remote.spec.group_version;
            *known.group == *group && *known.version == *version
        };
        remotes.iter().find(is_it).cloned()
    }

    /// Who has the OpenAPI document at a path, if it is another server.
    pub(crate) fn openapi_for(&self, path: &str) -> Option<Arc<Remote>> {
        let group_version = self.openapi.remote_of(path.strip_prefix("/openapi/v3/")?)?;
        let remotes = self.remotes.read().unwrap_or_else(PoisonError::into_inner);
        remotes.iter().find(|remote| remote.spec.group_version == group_version).cloned()
    }

    /// One of the servers behind the service of an APIService, another each time.
    fn place(&self, remote: &Remote) -> Result<Place, String> {
        let service = remote.spec.service.as_ref().ok_or("it is answered here")?;
        let mut places = resolve::places(&*self.registry, service)?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % places.len();
        Ok(places.swap_remove(turn))
    }

    /// Writes the condition of an APIService, unless it says so already.
    async fn say(&self, name: &str, condition: &Condition) -> Result<(), Status> {
        for _ in 0..WRITE_ATTEMPTS {
            let stored = self.registry.stored(&API_SERVICES);
            let (Some(stored), Some(found)) = (stored, self.registry.get(&API_SERVICES, "", name)) else {
                return Ok(());
            };
            let old = parse(&found.json)?;
            let mut new = old.clone();
            if !condition.write(&mut new, self.registry.now()) {
                return Ok(());
            }
            managed::track_own(stored, "status", Some(&old), &mut new, self.registry.now());
            paths::remove(&mut new, "metadata.resourceVersion");
            let op = Op::update(stored.key("", name), encode(&new), found.revision);
            match self.registry.commit(vec![op], &[stored]).await {
                Ok(_) => return Ok(()),
                Err(Refused::Conflict(_)) => {}
                Err(Refused::Status(status)) => return Err(status),
            }
        }
        Err(Status::internal_error("it is changed all the time"))
    }
}

/// What the task that follows the APIServices knows of them.
struct Known {
    aggregator: Arc<Aggregator>,
    all: HashMap<Str, (Arc<Remote>, Option<AbortHandle>)>,
    /// Those who ask the servers; they end with the task.
    workers: JoinSet<()>,
}

impl Known {
    fn upsert(&mut self, name: Str, object: &Map) {
        while self.workers.try_join_next().is_some() {}
        let (spec, available) = (Spec::of(object), spec::is_available(object));
        let aggregator = Arc::clone(&self.aggregator);
        let old = self.all.remove(&name);
        self.count(&name, object, old.as_ref().is_some_and(|(old, _)| old.available), available);
        if let Some((old, worker)) = old {
            if old.spec == spec {
                let remote = if old.available == available { old } else { self.remote(spec, available) };
                self.all.insert(name, (remote, worker));
                self.publish();
                return;
            }
            self.end(&old, worker);
        }
        let remote = self.remote(spec, available);
        let group_version = &remote.spec.group_version;
        let (group_priority, version_priority) = remote.spec.priorities;
        let remotely = remote.spec.service.is_some();
        // What it has is not known until it has been asked.
        let document = remotely.then(|| documents::stale(group_version).into());
        let service = GroupVersionService { group_priority, version_priority, remote: document };
        self.aggregator.discovery.set_service(group_version, Some(service));
        let worker = if remotely {
            Some(self.workers.spawn(worker::run(aggregator, name.clone(), Arc::clone(&remote))))
        } else if spec::condition(object).and_then(|said| said.get("reason")?.as_str()) != Some("Local") {
            let name = name.clone();
            Some(self.workers.spawn(async move { drop(aggregator.say(&name, &Condition::local()).await) }))
        } else {
            None
        };
        self.all.insert(name, (remote, worker));
        self.publish();
    }

    /// Counts who does not answer.
    fn count(&self, name: &str, object: &Map, was_available: bool, available: bool) {
        let metrics = &self.aggregator.metrics;
        metrics.unavailable_api_services.with(&[name]).set(if available { 0.0 } else { 1.0 });
        if was_available && !available {
            let reason = spec::condition(object).and_then(|said| said.get("reason")?.as_str());
            metrics.api_service_outages.with(&[name, reason.unwrap_or("UnknownReason")]).inc();
        }
    }

    fn remove(&mut self, name: &Str) {
        let Some((old, worker)) = self.all.remove(name) else { return };
        self.aggregator.metrics.unavailable_api_services.remove(&[name]);
        self.end(&old, worker);
        self.publish();
    }

    fn end(&self, old: &Remote, worker: Option<AbortHandle>) {
        if let Some(worker) = worker {
            worker.abort();
        }
        self.aggregator.discovery.set_service(&old.spec.group_version, None);
        self.aggregator.openapi.set_remote(&old.spec.group_version, None);
    }

    fn remote(&self, spec: Spec, available: bool) -> Arc<Remote> {
        let tls = match &spec.service {
            Some(service) => Tls::new(&spec, service, self.aggregator.proxy_client.as_ref()),
            None => Err("it is answered here".to_owned()),
        };
        Arc::new(Remote { spec, tls, available })
    }

    /// From now on requests go where the APIServices say.
    fn publish(&self) {
        let remotes = self.all.values().map(|(remote, _)| remote).filter(|remote| remote.spec.service.is_some());
        let remotes = remotes.cloned().collect();
        *self.aggregator.remotes.write().unwrap_or_else(PoisonError::into_inner) = remotes;
    }
}
