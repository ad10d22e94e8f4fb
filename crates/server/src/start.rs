//! What happens before the first request: what every cluster has is there, and those who decide know their rules.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    thread,
};

use capstan_api::{GroupResource, GroupVersionKind, Map, Status, Str, Value, builtin, watch_event::EventType};
use capstan_storage::{Op, limits::MAX_COMMIT_OPS};
use tokio::task::JoinSet;

use crate::{
    aggregation,
    allocation::{self, Allocator},
    authorization::{
        NodeAuthorizer, NodeKind, RbacAuthorizer,
        rbac::{GROUP, RbacKind},
    },
    bootstrap::{self, Ensure, Reconciled},
    cache::{CacheError, Object, ReadAt, WatchItem, WatchQuery, WatchStart, WatchedEvent, Watcher},
    flowcontrol::{FlowControl, status as flow_schema_status},
    handlers::managed,
    objects::Objects as _,
    registry::{Registry, Stored, encode, live, live::Refused, prepare_for_create},
    server::{Config, StartError},
    upkeep::Own,
};

const SERVICES: GroupResource = GroupResource::from_static("", "services");
const IP_ADDRESSES: GroupResource = GroupResource::from_static("networking.k8s.io", "ipaddresses");
const SERVICE_CIDRS: GroupResource = GroupResource::from_static("networking.k8s.io", "servicecidrs");
const FLOW_SCHEMAS: GroupResource = GroupResource::from_static("flowcontrol.apiserver.k8s.io", "flowschemas");
const PRIORITY_LEVELS: GroupResource =
    GroupResource::from_static("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations");
const CLUSTER_ROLES: GroupResource = GroupResource::from_static(GROUP, "clusterroles");

/// A write of the server itself, and whose objects it is about.
pub(crate) type Write = (Arc<Stored>, Op);

/// Creates what is missing of what every cluster has, and brings up to date what belongs to the server.
pub(crate) async fn bootstrap(registry: &Registry, allocator: &Allocator, config: &Config) -> Result<(), StartError> {
    let own = Own::of(config);
    let mut writes = of_every_cluster(registry).map_err(StartError::Bootstrap)?;
    writes.extend(own.objects(registry).map_err(StartError::Bootstrap)?);
    commit_all(registry, writes).await?;
    let mut writes = services(registry, allocator, config).map_err(StartError::Bootstrap)?;
    writes.extend(own.service(registry, allocator).map_err(StartError::Bootstrap)?);
    commit_all(registry, writes).await
}

/// What every cluster has, as far as it is not there. A server that starts waits for nothing else so long, so two look
/// after it; which of them is faster changes nothing.
fn of_every_cluster(registry: &Registry) -> Result<Vec<Write>, Status> {
    let rbac = bootstrap::rbac_of(|kind, _| kind != "ClusterRole");
    let objects = bootstrap::objects().into_iter().chain(bootstrap::cluster_roles()).chain(rbac);
    let mut first: Vec<(Value, String)> = objects.map(|object| (object, registry.ids.uid())).collect();
    let second = first.split_off(first.len() / 2);
    let missing = |objects: Vec<(Value, String)>| -> Result<Vec<Write>, Status> {
        objects.into_iter().filter_map(|(object, uid)| ensure(registry, object, &uid).transpose()).collect()
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| missing(second));
        let mut writes = missing(first)?;
        writes.extend(second.join().map_err(|_| Status::internal_error("a thread has panicked"))??);
        Ok(writes)
    })
}

pub(crate) async fn commit_all(registry: &Registry, writes: Vec<Write>) -> Result<(), StartError> {
    let mut rest = writes.into_iter().peekable();
    while rest.peek().is_some() {
        let (touched, ops): (Vec<_>, Vec<_>) = rest.by_ref().take(MAX_COMMIT_OPS).unzip();
        let touched: HashMap<GroupResource, &Stored> =
            touched.iter().map(|stored| (stored.resource.clone(), &**stored)).collect();
        let touched: Vec<&Stored> = touched.into_values().collect();
        match registry.commit(ops, &touched).await {
            // Another server that starts on the same store has done it.
            Ok(_) | Err(Refused::Conflict(_)) => {}
            Err(Refused::Status(status)) => return Err(StartError::Bootstrap(status)),
        }
    }
    Ok(())
}

pub(crate) fn kind_of(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Where an object belongs: its resource, namespace and name.
pub(crate) struct Place {
    pub(crate) stored: Arc<Stored>,
    gvk: GroupVersionKind,
    pub(crate) namespace: Str,
    pub(crate) name: Str,
}

pub(crate) fn place(registry: &Registry, object: &Value) -> Result<Place, Status> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let gvk = GroupVersionKind::from_api_version_and_kind(text("apiVersion"), text("kind"));
    let stored = builtin::kind(&gvk).and_then(|row| registry.stored(&row.gvr().group_resource())).cloned();
    let stored = stored.ok_or_else(|| Status::internal_error(format!("{gvk:?} is not stored")))?;
    let meta = |field: &str| {
        let value = object.get("metadata").and_then(|metadata| metadata.get(field));
        Str::from(value.and_then(Value::as_str).unwrap_or_default())
    };
    Ok(Place { stored, gvk, namespace: meta("namespace"), name: meta("name") })
}

pub(crate) fn existing(
    registry: &Registry,
    resource: &GroupResource,
    namespace: &str,
    name: &str,
) -> Option<(Value, Arc<Object>)> {
    let found = registry.get(resource, namespace, name)?;
    Some((Value::Object(live::parse(&found.json).ok()?), found))
}

/// What has to be written for an object to be there as it should.
pub(crate) fn ensure(registry: &Registry, expected: Value, uid: &str) -> Result<Option<Write>, Status> {
    let at = place(registry, &expected)?;
    let Some((existing, _)) = existing(registry, &at.stored.resource, &at.namespace, &at.name) else {
        return put(registry, expected, uid).map(Some);
    };
    let revised = match &*at.gvk.kind {
        "ClusterRole" | "Role" => reconciled(bootstrap::reconcile_role(&existing, &expected)),
        "ClusterRoleBinding" | "RoleBinding" => reconciled(bootstrap::reconcile_binding(&existing, &expected)),
        "APIService" => aggregation::revised(&existing, &expected),
        "FlowSchema" | "PriorityLevelConfiguration" => bootstrap::revise(&existing, &expected, Ensure::of(&at.name)),
        _ => None,
    };
    revised.map(|object| put(registry, object, uid)).transpose()
}

fn reconciled(answer: Reconciled) -> Option<Value> {
    match answer {
        Reconciled::Update(object) => Some(object),
        _ => None,
    }
}

/// Makes sure that an object is there as it should.
pub(crate) async fn ensure_object(registry: &Registry, expected: Value) -> Result<(), Status> {
    let writes = ensure(registry, expected, &registry.ids.uid())?.into_iter().collect();
    commit_all(registry, writes).await.map_err(Status::internal_error)
}

/// Writes an object over what is there, or a new one, which gets this uid.
pub(crate) fn put(registry: &Registry, object: Value, uid: &str) -> Result<Write, Status> {
    let at = place(registry, &object)?;
    let key = at.stored.key(&at.namespace, &at.name);
    let Some(found) = registry.get(&at.stored.resource, &at.namespace, &at.name) else {
        let object = fresh(registry, &at, uid, object);
        return Ok((at.stored, Op::create(key, encode(&object))));
    };
    let Value::Object(mut object) = object else { return Err(Status::internal_error("not an object")) };
    object.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("resourceVersion"));
    Ok((at.stored, Op::update(key, encode(&object), found.revision)))
}

/// A new object, as a client's would be.
pub(crate) fn fresh(registry: &Registry, at: &Place, uid: &str, mut object: Value) -> Map {
    if let Some(schema) = builtin::schema(&at.gvk) {
        builtin::default(&schema, &mut object);
    }
    let Value::Object(mut object) = object else { return Map::new() };
    let status = object.get("status").cloned();
    managed::track_own(&at.stored, "", None, &mut object, registry.now());
    prepare_for_create(at.stored.strategy, &mut object, uid, registry.now());
    // What the server creates may come with its status.
    if let Some(status) = status.filter(|status| status.as_object().is_some_and(|status| !status.is_empty())) {
        object.insert("status", status);
    }
    object
}

/// The range of services and the addresses that are taken.
fn services(registry: &Registry, allocator: &Allocator, config: &Config) -> Result<Vec<Write>, Status> {
    let mut writes = Vec::new();
    if registry.get(&SERVICE_CIDRS, "", allocation::DEFAULT_SERVICE_CIDR).is_none() {
        let ranges: Vec<_> = [Some(config.services.primary), config.services.secondary].into_iter().flatten().collect();
        let mut object = allocation::default_service_cidr(&ranges);
        let mut status = Map::new();
        status.insert("conditions", vec![Value::from(allocation::ready_condition(registry.now()))]);
        object.insert("status", status);
        writes.push(put(registry, object.into(), &registry.ids.uid())?);
    }
    let all = |resource: &GroupResource| -> Result<Vec<Map>, Status> {
        registry.list(resource, "").iter().map(|object| live::parse(&object.json)).collect()
    };
    let (stored, addresses) = (all(&SERVICES)?, all(&IP_ADDRESSES)?);
    let repair = allocator.repair(&stored, &addresses);
    for object in repair.create {
        writes.push(put(registry, object.into(), &registry.ids.uid())?);
    }
    for name in repair.delete {
        if let (Some(stored), Some(found)) = (registry.stored(&IP_ADDRESSES), registry.get(&IP_ADDRESSES, "", &name)) {
            let op = Op::delete(stored.key("", &name)).expecting(found.revision);
            writes.push((Arc::clone(stored), op));
        }
    }
    Ok(writes)
}

/// Whether a change is of interest, by what was there before, if anything.
type Concerns = fn(Option<&Object>, &Object) -> bool;

/// Tells somebody of the objects that there are, and in a task of all that changes: the object, and whether it is gone.
pub(crate) async fn follow(
    registry: &Registry,
    resource: &GroupResource,
    tasks: &mut JoinSet<()>,
    concerns: Concerns,
    mut tell: impl FnMut(&Object, Value, bool) + Send + 'static,
) -> Result<(), CacheError> {
    let Some(stored) = registry.stored(resource).cloned() else { return Ok(()) };
    let mut tell = move |event: &WatchedEvent| {
        let (object, gone) = (event.object(), event.event_type() == EventType::Deleted);
        if (gone || concerns(event.previous().map(|object| &**object), object))
            && let Ok(value) = live::parse(&object.json)
        {
            tell(object, Value::Object(value), gone);
        }
    };
    let mut watcher = watch_all(&stored).await?;
    loop {
        match watcher.next().await? {
            WatchItem::Event(event) => tell(&event),
            WatchItem::Bookmark { initial_events_end: true, .. } => break,
            WatchItem::Bookmark { .. } => {}
        }
    }
    tasks.spawn(async move {
        loop {
            match watcher.next().await {
                Ok(WatchItem::Event(event)) => tell(&event),
                Ok(WatchItem::Bookmark { .. }) => {}
                Err(CacheError::Closed) => return,
                Err(_) => match watch_all(&stored).await {
                    Ok(again) => watcher = again,
                    Err(_) => return,
                },
            }
        }
    });
    Ok(())
}

/// Every change is of interest.
pub(crate) fn all(_: Option<&Object>, _: &Object) -> bool {
    true
}

/// What a pod refers to concerns its node, and most changes of a pod are of its status alone.
fn refers_anew(before: Option<&Object>, pod: &Object) -> bool {
    let node = |pod: &Object| pod.field("spec.nodeName").is_some_and(|node| !node.is_empty());
    let made_claims = |pod: &Object| {
        let status = pod.part("status").and_then(|status| str::from_utf8(status).ok()).unwrap_or_default();
        status.contains("esourceClaimStatus")
    };
    match before {
        None => node(pod),
        Some(before) => {
            (node(before) || node(pod))
                && (before.uid != pod.uid || before.part("spec") != pod.part("spec") || made_claims(pod))
        }
    }
}

pub(crate) fn watch_all(stored: &Stored) -> impl Future<Output = Result<Watcher, CacheError>> {
    stored.cache.watch(WatchQuery::all(WatchStart::State { at: ReadAt::Any, closing_bookmark: true }))
}

/// Keeps authorization up with the roles and bindings.
pub(crate) async fn follow_rbac(
    registry: &Registry,
    rbac: &Arc<RbacAuthorizer>,
    tasks: &mut JoinSet<()>,
) -> Result<(), CacheError> {
    for kind in [RbacKind::ClusterRole, RbacKind::Role, RbacKind::ClusterRoleBinding, RbacKind::RoleBinding] {
        let rbac = Arc::clone(rbac);
        let resource = GroupResource::from_static(GROUP, kind.resource());
        follow(registry, &resource, tasks, all, move |object, value, gone| match gone {
            true => rbac.remove(kind, object.namespace(), object.name()),
            false => rbac.upsert(kind, &value),
        })
        .await?;
    }
    Ok(())
}

/// Keeps the authorizer of nodes up with what runs on them.
pub(crate) async fn follow_nodes(
    registry: &Registry,
    node: &Arc<NodeAuthorizer>,
    tasks: &mut JoinSet<()>,
) -> Result<(), CacheError> {
    for (kind, group, resource) in [
        (NodeKind::Pod, "", "pods"),
        (NodeKind::PersistentVolume, "", "persistentvolumes"),
        (NodeKind::VolumeAttachment, "storage.k8s.io", "volumeattachments"),
        (NodeKind::ResourceSlice, "resource.k8s.io", "resourceslices"),
    ] {
        let node = Arc::clone(node);
        let resource = GroupResource::from_static(group, resource);
        let concerns = if kind == NodeKind::Pod { refers_anew } else { all };
        follow(registry, &resource, tasks, concerns, move |object, value, gone| match gone {
            true => node.remove(kind, object.namespace(), object.name()),
            false => node.upsert(kind, &value),
        })
        .await?;
    }
    Ok(())
}

/// Keeps the classification of requests up with its schemas.
pub(crate) async fn follow_flow_control(
    registry: &Registry,
    flow_control: &Arc<FlowControl>,
    tasks: &mut JoinSet<()>,
) -> Result<(), CacheError> {
    for resource in ["prioritylevelconfigurations", "flowschemas"] {
        let flow_control = Arc::clone(flow_control);
        let resource = GroupResource::from_static("flowcontrol.apiserver.k8s.io", resource);
        follow(registry, &resource, tasks, all, move |object, value, gone| match (gone, value) {
            (true, value) => flow_control.remove(kind_of(&value), object.name()),
            (false, Value::Object(value)) => flow_control.upsert(&value),
            _ => {}
        })
        .await?;
    }
    Ok(())
}

/// Keeps the ranges of services up with those that are added and removed.
pub(crate) async fn follow_service_cidrs(
    registry: &Registry,
    allocator: &Allocator,
    tasks: &mut JoinSet<()>,
) -> Result<(), CacheError> {
    let allocator = allocator.clone();
    follow(registry, &SERVICE_CIDRS, tasks, all, move |object, value, gone| {
        allocator.service_cidr(object.name(), if gone { None } else { value.as_object() });
    })
    .await
}

/// Keeps ClusterRoles that are made of others up with them.
pub(crate) async fn aggregate_cluster_roles(
    registry: &Arc<Registry>,
    tasks: &mut JoinSet<()>,
) -> Result<(), CacheError> {
    let act = |registry: Arc<Registry>| boxed(async move { drop(aggregate_once(&registry).await) });
    keep_up(registry, &CLUSTER_ROLES, tasks, act).await
}

/// Says of every FlowSchema whether the priority level that it names is there.
pub(crate) async fn follow_flow_schemas(registry: &Arc<Registry>, tasks: &mut JoinSet<()>) -> Result<(), CacheError> {
    for resource in [&FLOW_SCHEMAS, &PRIORITY_LEVELS] {
        let act = |registry: Arc<Registry>| boxed(async move { drop(look_for_levels(&registry).await) });
        keep_up(registry, resource, tasks, act).await?;
    }
    Ok(())
}

/// Something that is done.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

fn boxed(future: impl Future<Output = ()> + Send + 'static) -> Work {
    Box::pin(future)
}

/// Does something whenever objects of a kind have changed, once for all changes that have come.
///
/// What could not be done is tried again with the next change, which is what stood in the way.
async fn keep_up(
    registry: &Arc<Registry>,
    resource: &GroupResource,
    tasks: &mut JoinSet<()>,
    act: fn(Arc<Registry>) -> Work,
) -> Result<(), CacheError> {
    let Some(stored) = registry.stored(resource).cloned() else { return Ok(()) };
    let registry = Arc::clone(registry);
    let mut watcher = watch_all(&stored).await?;
    tasks.spawn(async move {
        loop {
            match watcher.next().await {
                Ok(WatchItem::Bookmark { .. }) => {}
                Ok(WatchItem::Event(_)) => {
                    // All that has come is looked at once: at the start these are all that there are.
                    poll_fn(|cx| {
                        while let Poll::Ready(Ok(_)) = watcher.poll_next(cx) {}
                        Poll::Ready(())
                    })
                    .await;
                    act(Arc::clone(&registry)).await;
                }
                Err(CacheError::Closed) => return,
                Err(_) => match watch_all(&stored).await {
                    Ok(again) => watcher = again,
                    Err(_) => return,
                },
            }
        }
    });
    Ok(())
}

async fn look_for_levels(registry: &Registry) -> Result<(), Status> {
    let mut writes = Vec::new();
    for object in registry.list(&FLOW_SCHEMAS, "") {
        let Ok(mut schema) = live::parse(&object.json) else { continue };
        if flow_schema_status::bring_up(&mut schema, registry.now(), |level| {
            registry.get(&PRIORITY_LEVELS, "", level).is_some()
        }) {
            writes.push(put(registry, Value::Object(schema), &registry.ids.uid())?);
        }
    }
    commit_all(registry, writes).await.map_err(Status::internal_error)
}

async fn aggregate_once(registry: &Registry) -> Result<(), Status> {
    let before: Vec<Value> = registry
        .list(&CLUSTER_ROLES, "")
        .iter()
        .filter_map(|object| live::parse(&object.json).ok().map(Value::Object))
        .collect();
    let mut after = before.clone();
    bootstrap::aggregate_cluster_roles(&mut after).map_err(Status::internal_error)?;
    let changed = after.into_iter().zip(before).filter(|(after, before)| after != before);
    let writes = changed.map(|(after, _)| put(registry, after, &registry.ids.uid())).collect::<Result<Vec<_>, _>>()?;
    commit_all(registry, writes).await.map_err(Status::internal_error)
}
