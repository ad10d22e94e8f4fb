//! The server's own objects, which it keeps up as long as it runs: whoever deletes or changes one has it back soon.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use capstan_api::{GroupResource, MicroTime, Status, Value, json};
use capstan_storage::Op;
use tokio::task::JoinSet;

use crate::{
    allocation::{Allocator, ServiceCidr},
    bootstrap::{self, ADVERTISED, IDENTITY, IDENTITY_RENEW_SECONDS, RequestHeader},
    cache::Object,
    objects::Objects as _,
    registry::{Registry, encode},
    server::Config,
    start::{Write, commit_all, ensure, existing, fresh, kind_of, place, put},
};

/// How often the server looks after how others find and trust it, and says that it is alive.
const OFTEN: Duration = Duration::from_secs(IDENTITY_RENEW_SECONDS);
/// Every so many times it also looks after what all servers share: each minute.
const SELDOM: u64 = 6;
/// How long after its last sign of life a server is among the endpoints.
const ALIVE: capstan_api::Duration = capstan_api::Duration(15_000_000_000);
/// What all servers share and keep up.
const SHARED: [&str; 3] = ["Namespace", "FlowSchema", "PriorityLevelConfiguration"];

const SERVICES: GroupResource = GroupResource::from_static("", "services");
const CONFIG_MAPS: GroupResource = GroupResource::from_static("", "configmaps");
const ENDPOINTS: GroupResource = GroupResource::from_static("", "endpoints");
const ENDPOINT_SLICES: GroupResource = GroupResource::from_static("discovery.k8s.io", "endpointslices");
const LEASES: GroupResource = GroupResource::from_static("coordination.k8s.io", "leases");

/// What the objects of one server say of it.
#[derive(Clone)]
pub(crate) struct Own {
    address: IpAddr,
    port: u16,
    hostname: String,
    services: ServiceCidr,
    client_ca: String,
    request_header: Option<RequestHeader>,
}

impl Own {
    pub(crate) fn of(config: &Config) -> Self {
        Own {
            address: config.advertise_address,
            port: config.secure_port,
            hostname: config.hostname.clone(),
            services: config.services.primary,
            client_ca: config.client_ca.clone(),
            request_header: config.request_header.clone(),
        }
    }

    /// How others find and trust this server, as far as it is not so.
    pub(crate) fn objects(&self, registry: &Registry) -> Result<Vec<Write>, Status> {
        let config_map = |name: &str| existing(registry, &CONFIG_MAPS, "kube-system", name).map(|(value, _)| value);
        let mut objects = Vec::new();
        let trust = config_map(bootstrap::AUTHENTICATION_CONFIG);
        let header = self.request_header.as_ref();
        objects.extend(bootstrap::authentication_config(trust.as_ref(), &self.client_ca, header));
        let tracking = config_map(bootstrap::TOKEN_TRACKING);
        objects.extend(bootstrap::token_tracking(tracking.as_ref(), registry.now()));
        let old = existing(registry, &ENDPOINTS, "default", bootstrap::KUBERNETES).map(|(value, _)| value);
        let new = bootstrap::kubernetes_endpoints(old.as_ref(), &self.alive(registry), self.port);
        if let Some(endpoints) = new.as_ref().or(old.as_ref()) {
            let slice = existing(registry, &ENDPOINT_SLICES, "default", bootstrap::KUBERNETES).map(|(value, _)| value);
            objects.extend(with_fields(
                slice,
                bootstrap::kubernetes_endpoint_slice(endpoints),
                &["endpoints", "ports"],
            ));
        }
        objects.extend(new);
        objects.into_iter().map(|object| put(registry, object, &registry.ids.uid())).collect()
    }

    /// Where the servers of this store are that are alive: this one, and those whose leases say so.
    fn alive(&self, registry: &Registry) -> Vec<IpAddr> {
        let now = registry.now();
        let is_server = |lease: &Object| lease.labels.iter().any(|(key, value)| (&**key, &**value) == IDENTITY);
        let address = |lease: &Object| -> Option<IpAddr> {
            let lease = json::parse(&lease.json).ok()?;
            let renewed: MicroTime = lease.get("spec")?.get("renewTime")?.as_str()?.parse().ok()?;
            let address = lease.get("metadata")?.get("annotations")?.get(ADVERTISED)?.as_str()?;
            let address: SocketAddr = address.parse().ok()?;
            (now.since(renewed.0) <= ALIVE).then_some(address.ip())
        };
        let leases = registry.list(&LEASES, "kube-system");
        let others = leases.iter().filter(|lease| is_server(lease)).filter_map(|lease| address(lease));
        std::iter::once(self.address).chain(others).collect()
    }

    /// The service of the server itself, if it is missing.
    pub(crate) fn service(&self, registry: &Registry, allocator: &Allocator) -> Result<Vec<Write>, Status> {
        let mut writes = Vec::new();
        if registry.get(&SERVICES, "default", bootstrap::KUBERNETES).is_none() {
            let service = bootstrap::kubernetes_service(&self.services, self.port);
            let at = place(registry, &service)?;
            let mut service = fresh(registry, &at, &registry.ids.uid(), service);
            let allocation = allocator.allocate(&mut service, None, false).map_err(|status| *status)?;
            let key = at.stored.key(&at.namespace, &at.name);
            writes.push((at.stored, Op::create(key, encode(&service))));
            for address in allocation.created() {
                writes.push(put(registry, address.into(), &registry.ids.uid())?);
            }
            allocation.commit();
        }
        Ok(writes)
    }

    /// The lease by which others see that this server is alive. `run` tells this start of it from others.
    fn lease(&self, registry: &Registry, run: &str) -> Result<Write, Status> {
        let advertised = SocketAddr::new(self.address, self.port).to_string();
        let lease = bootstrap::identity_lease(&self.hostname, run, &advertised, MicroTime(registry.now()));
        let old = existing(registry, &LEASES, "kube-system", &bootstrap::server_id(&self.hostname));
        let lease = with_fields(old.map(|(value, _)| value), lease.clone(), &["spec"]).unwrap_or(lease);
        put(registry, lease, &registry.ids.uid())
    }
}

/// The object that is there with these fields of the one that should be; nothing if it has them already.
fn with_fields(existing: Option<Value>, expected: Value, fields: &[&str]) -> Option<Value> {
    let Some(existing) = existing else { return Some(expected) };
    let mut object = existing.clone();
    for field in fields {
        object.as_object_mut()?.insert(*field, expected.get(field)?.clone());
    }
    (object != existing).then_some(object)
}

/// Keeps up what the server has made at its start. What cannot be done is tried again the next time.
pub(crate) fn start(registry: &Arc<Registry>, allocator: &Allocator, config: &Config, tasks: &mut JoinSet<()>) {
    let (registry, allocator, own) = (Arc::clone(registry), allocator.clone(), Own::of(config));
    let run = config.identity_lease.then(|| registry.ids.uid());
    tasks.spawn(async move {
        for round in 0_u64.. {
            let mut writes = Vec::new();
            if round > 0 {
                writes.extend(own.objects(&registry).unwrap_or_default());
                writes.extend(own.service(&registry, &allocator).unwrap_or_default());
            }
            if round > 0 && round.is_multiple_of(SELDOM) {
                let shared = bootstrap::objects().into_iter().filter(|object| SHARED.contains(&kind_of(object)));
                writes
                    .extend(shared.filter_map(|object| ensure(&registry, object, &registry.ids.uid()).ok().flatten()));
            }
            writes.extend(run.as_deref().and_then(|run| own.lease(&registry, run).ok()));
            // One by one: what stands in the way of one write is none of the others' business.
            for write in writes {
                drop(commit_all(&registry, vec![write]).await);
            }
            registry.clock.sleep(OFTEN).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use capstan_clock::ManualClock;
    use capstan_storage::{Memory, Options};
    use http::Method;

    use super::*;
    use crate::{
        Server,
        authorization::UserInfo,
        http::{Body, Request},
    };

    async fn ask(server: &Server, method: Method, path: &str) -> http::StatusCode {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        let mut service = server.as_user(UserInfo::new("admin", ["system:masters"]));
        tower_service::Service::call(&mut service, request).await.unwrap().status()
    }

    /// Lets time pass until the server has remade the object.
    async fn remade(server: &Server, clock: &ManualClock, path: &str) {
        for _ in 0..1000 {
            if ask(server, Method::GET, path).await == 200 {
                return;
            }
            clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
        panic!("{path} is not remade");
    }

    fn clock() -> ManualClock {
        ManualClock::at("2026-11-16T01:00:00Z".parse::<capstan_clock::Timestamp>().unwrap())
    }

    /// Servers of one store do not take the endpoints from each other.
    #[tokio::test]
    async fn all_servers_that_are_alive_are_endpoints() {
        let (clock, store) = (clock(), Arc::new(Memory::new(Options::default())));
        let start = async |number: u8| {
            let config = Config {
                clock: Arc::new(clock.clone()),
                identity_lease: true,
                advertise_address: IpAddr::from([192, 0, 2, number]),
                hostname: format!("host-{number}"),
                ..Config::default()
            };
            Server::start(Arc::<Memory>::clone(&store), config).await.unwrap()
        };
        let (first, second) = (start(1).await, start(2).await);
        let endpoints = || {
            let found = existing(&first.inner().registry, &ENDPOINTS, "default", bootstrap::KUBERNETES);
            found.map_or_else(String::new, |(value, _)| json::to_string(value.get("subsets").unwrap()))
        };
        let both = async |expected: bool| {
            for _ in 0..1000 {
                if endpoints().contains("192.0.2.1") && endpoints().contains("192.0.2.2") == expected {
                    return;
                }
                clock.advance(Duration::from_secs(1));
                tokio::task::yield_now().await;
            }
            panic!("{}", endpoints());
        };
        both(true).await;
        for _ in 0..100 {
            clock.advance(Duration::from_secs(1));
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            assert!(endpoints().contains("192.0.2.1") && endpoints().contains("192.0.2.2"), "{}", endpoints());
        }
        drop(second);
        both(false).await;
    }

    #[tokio::test]
    async fn what_is_deleted_comes_back() {
        let clock = clock();
        let config = Config { clock: Arc::new(clock.clone()), identity_lease: true, ..Config::default() };
        let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
        for path in [
            "/api/v1/namespaces/default/services/kubernetes",
            "/api/v1/namespaces/default/endpoints/kubernetes",
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/global-default",
            "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
        ] {
            assert_eq!(ask(&server, Method::DELETE, path).await, 200, "{path}");
            assert_eq!(ask(&server, Method::GET, path).await, 404, "{path}");
            remade(&server, &clock, path).await;
        }
        let lease =
            format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{}", bootstrap::server_id("localhost"));
        remade(&server, &clock, &lease).await;
        let renewed = || {
            let name = bootstrap::server_id("localhost");
            let (lease, _) = existing(&server.inner().registry, &LEASES, "kube-system", &name).unwrap();
            lease.get("spec").unwrap().get("renewTime").cloned()
        };
        let before = renewed();
        for _ in 0..1000 {
            if renewed() != before {
                return;
            }
            clock.advance(Duration::from_secs(1));
            tokio::task::yield_now().await;
        }
        panic!("it is not renewed");
    }
}
