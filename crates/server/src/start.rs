//! What happens before the first request: what every cluster has is there, and authorization knows its rules.

use std::{collections::HashMap, sync::Arc};

use capstan_api::{GroupResource, GroupVersionKind, Map, Status, Str, Value, builtin, json};
use capstan_storage::{Op, limits::MAX_COMMIT_OPS};
use tokio::task::JoinSet;

use crate::{
    authorization::{
        RbacAuthorizer,
        rbac::{GROUP, RbacKind},
    },
    bootstrap::{self, Ensure, Reconciled},
    cache::{CacheError, ReadAt, WatchItem, WatchQuery, WatchStart, Watcher},
    objects::Objects as _,
    registry::{Registry, Stored, encode, live, live::Refused, prepare_for_create},
    server::StartError,
};
use capstan_api::watch_event::EventType;

/// Creates what is missing of what every cluster has, and brings up to date what belongs to the server.
pub(crate) async fn bootstrap(registry: &Registry) -> Result<(), StartError> {
    let mut ops: Vec<(Arc<Stored>, Op)> = Vec::new();
    for object in bootstrap::objects().into_iter().chain(bootstrap::rbac()) {
        ops.extend(ensure(registry, object).map_err(StartError::Bootstrap)?);
    }
    let mut rest = ops.into_iter().peekable();
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

/// What has to be written for an object to be there as it should.
fn ensure(registry: &Registry, expected: Value) -> Result<Option<(Arc<Stored>, Op)>, Status> {
    let text = |field: &str| expected.get(field).and_then(Value::as_str).unwrap_or_default();
    let gvk = GroupVersionKind::from_api_version_and_kind(text("apiVersion"), text("kind"));
    let row = builtin::kind(&gvk).ok_or_else(|| Status::internal_error(format!("{gvk:?} is not a built-in kind")))?;
    let meta = |field: &str| {
        let value = expected.get("metadata").and_then(|metadata| metadata.get(field));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    let Some(stored) = registry.stored(&row.gvr().group_resource()) else { return Ok(None) };
    let (namespace, name) = (Str::from(meta("namespace")), Str::from(meta("name")));
    let key = stored.key(&namespace, &name);
    let Some(found) = registry.get(&stored.resource, &namespace, &name) else {
        let object = fresh(registry, stored, &gvk, expected);
        return Ok(Some((Arc::clone(stored), Op::create(key, encode(&object)))));
    };
    let existing = Value::Object(live::parse(&found.json)?);
    let revised = match &*gvk.kind {
        "ClusterRole" | "Role" => reconciled(bootstrap::reconcile_role(&existing, &expected)),
        "ClusterRoleBinding" | "RoleBinding" => reconciled(bootstrap::reconcile_binding(&existing, &expected)),
        "FlowSchema" | "PriorityLevelConfiguration" => bootstrap::revise(&existing, &expected, Ensure::of(&name)),
        _ => None,
    };
    let Some(Value::Object(mut object)) = revised else { return Ok(None) };
    object.get_mut("metadata").and_then(Value::as_object_mut).map(|metadata| metadata.remove("resourceVersion"));
    Ok(Some((Arc::clone(stored), Op::update(key, encode(&object), found.revision))))
}

fn reconciled(answer: Reconciled) -> Option<Value> {
    match answer {
        Reconciled::Update(object) => Some(object),
        _ => None,
    }
}

/// A new object, as a client's would be.
fn fresh(registry: &Registry, stored: &Stored, gvk: &GroupVersionKind, mut object: Value) -> Map {
    if let Some(schema) = builtin::schema(gvk) {
        builtin::default(&schema, &mut object);
    }
    let Value::Object(mut object) = object else { return Map::new() };
    prepare_for_create(stored.strategy, &mut object, &registry.ids.uid(), registry.now());
    object
}

/// Keeps authorization up with the roles and bindings.
pub(crate) async fn follow_rbac(
    registry: &Registry,
    rbac: &Arc<RbacAuthorizer>,
    tasks: &mut JoinSet<()>,
) -> Result<(), CacheError> {
    for kind in [RbacKind::ClusterRole, RbacKind::Role, RbacKind::ClusterRoleBinding, RbacKind::RoleBinding] {
        let resource = GroupResource::from_static(GROUP, kind.resource());
        let Some(stored) = registry.stored(&resource).cloned() else { continue };
        for object in registry.list(&resource, "") {
            if let Ok(value) = json::parse(&object.json) {
                rbac.upsert(kind, &value);
            }
        }
        let rbac = Arc::clone(rbac);
        let mut watcher = watch_all(&stored).await?;
        tasks.spawn(async move {
            loop {
                match watcher.next().await {
                    Ok(WatchItem::Event(event)) => {
                        let object = event.object();
                        match (event.event_type(), json::parse(&object.json)) {
                            (EventType::Deleted, _) => rbac.remove(kind, object.namespace(), object.name()),
                            (_, Ok(value)) => rbac.upsert(kind, &value),
                            _ => {}
                        }
                    }
                    Ok(WatchItem::Bookmark { .. }) => {}
                    Err(CacheError::Closed) => return,
                    Err(_) => match watch_all(&stored).await {
                        Ok(again) => watcher = again,
                        Err(_) => return,
                    },
                }
            }
        });
    }
    Ok(())
}

async fn watch_all(stored: &Stored) -> Result<Watcher, CacheError> {
    stored.cache.watch(WatchQuery::all(WatchStart::State { at: ReadAt::Any, closing_bookmark: false })).await
}
