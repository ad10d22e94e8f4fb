//! The task of one APIService: asks its server whether it answers and what it has, whenever something changes that
//! matters for that, and now and then anyway.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use capstan_api::{
    Str,
    selector::{FieldSelector, Selector},
};
use capstan_clock::Moment;
use http::{StatusCode, header};
use tokio::task::JoinSet;

use super::{
    Aggregator, Remote,
    availability::{Condition, obstacle},
    documents,
    resolve::{self, ENDPOINT_SLICES, Place, SERVICE_NAME, SERVICES},
    spec::ServiceReference,
};
use crate::{
    authorization::{SYSTEM_MASTERS, UserInfo},
    backend::host_port,
    cache::{ReadAt, WatchQuery, WatchStart, Watcher},
    discovery::GroupVersionService,
    openapi::RemoteSpec,
};

/// How often a server is asked whether it still answers.
const RESYNC: Duration = Duration::from_secs(30);
/// How often it is asked what it has.
const REFRESH: Duration = Duration::from_secs(60);
/// How long until a server that does not answer is asked again; twice as long each time.
const FIRST_RETRY: Duration = Duration::from_millis(50);
/// How many servers behind one service are asked at once; one that answers is enough.
const ATTEMPTS: usize = 5;

/// Who asks whether a server answers, and what it has.
const CHECKER: &str = "system:kube-aggregator";

/// Follows an APIService until it is ended from outside.
pub(super) async fn run(aggregator: Arc<Aggregator>, name: Str, remote: Arc<Remote>) {
    let Some(service) = remote.spec.service.clone() else { return };
    let mut retry = FIRST_RETRY;
    // When what it has is to be asked for again.
    let mut due: Option<Moment> = None;
    loop {
        // Before anything is looked at: what changes from here on wakes this up again.
        let (Some(mut services), Some(mut slices)) = watchers(&aggregator, &service).await else {
            aggregator.registry.clock.sleep(RESYNC).await;
            continue;
        };
        loop {
            drain(&mut services).await;
            drain(&mut slices).await;
            let (condition, answers) = match obstacle(&*aggregator.registry, &service) {
                Some(obstacle) => (obstacle, None),
                None => match check(&aggregator, &remote, &service).await {
                    Ok(place) => (Condition::passed(), Some(place)),
                    Err(why) => (Condition::failed(why), None),
                },
            };
            // What can't be written now is written next time.
            let _ = aggregator.say(&name, &condition).await;
            let clock = &aggregator.registry.clock;
            match answers {
                Some(place) if due.is_none_or(|due| clock.monotonic() >= due) => {
                    let said = learn(&aggregator, &remote, &place).await;
                    due = said.then(|| clock.monotonic().plus(REFRESH));
                }
                Some(_) => {}
                None => {
                    due = None;
                    tell(&aggregator, &remote, documents::stale(&remote.spec.group_version));
                }
            }
            let wait = if condition.reason == "FailedDiscoveryCheck" || (condition.status && due.is_none()) {
                retry = (retry * 2).min(RESYNC);
                retry
            } else {
                retry = FIRST_RETRY;
                RESYNC
            };
            let changed = tokio::select! {
                item = services.next() => item.is_ok(),
                item = slices.next() => item.is_ok(),
                () = clock.sleep(wait) => true,
            };
            if !changed {
                break;
            }
        }
    }
}

/// Watches of the service, and of the slices with its endpoints.
async fn watchers(aggregator: &Aggregator, service: &ServiceReference) -> (Option<Watcher>, Option<Watcher>) {
    let start = || WatchStart::State { at: ReadAt::Any, closing_bookmark: false };
    let namespace = Some(service.namespace.clone());
    let fields: FieldSelector = format!("metadata.name={}", service.name).parse().unwrap_or_default();
    let labels: Selector = format!("{SERVICE_NAME}={}", service.name).parse().unwrap_or_default();
    let of_service = WatchQuery { namespace: namespace.clone(), fields, ..WatchQuery::all(start()) };
    let of_slices = WatchQuery { namespace, labels, ..WatchQuery::all(start()) };
    let registry = &aggregator.registry;
    let (Some(services), Some(slices)) = (registry.stored(&SERVICES), registry.stored(&ENDPOINT_SLICES)) else {
        return (None, None);
    };
    (services.cache.watch(of_service).await.ok(), slices.cache.watch(of_slices).await.ok())
}

/// Takes all that has come: it is looked at once.
async fn drain(watcher: &mut Watcher) {
    poll_fn(|cx| {
        while let Poll::Ready(Ok(_)) = watcher.poll_next(cx) {}
        Poll::Ready(())
    })
    .await;
}

/// Who asks whether a server answers: one who may everywhere.
fn checker() -> UserInfo {
    UserInfo::new(CHECKER, [SYSTEM_MASTERS])
}

/// Asks the servers behind the service for what every one has to have; the first that answers counts.
async fn check(
    aggregator: &Arc<Aggregator>,
    remote: &Arc<Remote>,
    service: &ServiceReference,
) -> Result<Place, String> {
    let places = resolve::places(&*aggregator.registry, service)?;
    let mut attempts = JoinSet::new();
    for place in places.into_iter().take(ATTEMPTS) {
        let (aggregator, remote) = (Arc::clone(aggregator), Arc::clone(remote));
        attempts.spawn(async move {
            let path = remote.spec.group_version.path();
            let url = format!("https://{}{path}", host_port(&place.host, place.port));
            let answer = aggregator.read(&remote, &place, &path, ("*/*", &checker())).await;
            match answer {
                Ok((status, ..)) if status.is_success() => Ok(place),
                Ok((status, ..)) => Err(format!("bad status from {url}: {}", status.as_u16())),
                Err(why) => Err(format!("Get {url:?}: {why}")),
            }
            .map_err(|why| format!("failing or missing response from {url}: {why}"))
        });
    }
    let mut last = String::new();
    while let Some(done) = attempts.join_next().await {
        match done {
            Ok(Ok(place)) => return Ok(place),
            Ok(Err(why)) => last = why,
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

/// Asks a server what it has, and tells it to discovery and OpenAPI; returns whether it said so.
async fn learn(aggregator: &Aggregator, remote: &Remote, place: &Place) -> bool {
    let discovery = discover(aggregator, remote, place).await;
    let group_version = &remote.spec.group_version;
    let known = discovery.is_ok();
    tell(aggregator, remote, discovery.unwrap_or_else(|_| documents::stale(group_version)));
    let reader = UserInfo::new("system:aggregator", []);
    let json = ("application/json", &reader);
    let mut spec = RemoteSpec::default();
    if let Ok((StatusCode::OK, _, index)) = aggregator.read(remote, place, "/openapi/v3", json).await {
        spec.index(&index);
    }
    if let Ok((StatusCode::OK, _, document)) = aggregator.read(remote, place, "/openapi/v2", json).await {
        spec.v2(group_version, &document);
    }
    aggregator.openapi.set_remote(group_version, Some(spec));
    known
}

async fn discover(aggregator: &Aggregator, remote: &Remote, place: &Place) -> Result<Vec<u8>, String> {
    let group_version = &remote.spec.group_version;
    let asked = (documents::ACCEPT, &checker());
    let (status, headers, body) = aggregator.read(remote, place, "/apis", asked).await?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match status {
        StatusCode::OK if documents::is_aggregated(content_type) => {
            return documents::from_aggregated(group_version, &body);
        }
        StatusCode::SERVICE_UNAVAILABLE => return Err("service unavailable".to_owned()),
        _ => {}
    }
    let asked = ("application/json", &UserInfo::new(CHECKER, []));
    let (status, _, body) = aggregator.read(remote, place, &group_version.path(), asked).await?;
    match status {
        StatusCode::OK => documents::from_resource_list(group_version, &body),
        status => Err(format!("no discovery: {status}")),
    }
}

fn tell(aggregator: &Aggregator, remote: &Remote, document: Vec<u8>) {
    let (group_priority, version_priority) = remote.spec.priorities;
    let service = GroupVersionService { group_priority, version_priority, remote: Some(document.into()) };
    aggregator.discovery.set_service(&remote.spec.group_version, Some(service));
}
