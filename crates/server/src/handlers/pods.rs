//! What pods have beside their object: they are bound to nodes, and evicted from them.

use std::sync::Arc;

use capstan_api::{
    GroupResource, GroupVersionKind, Map, Status, Value, builtin,
    selector::LabelSelector,
    status::{FAILURE, SUCCESS, StatusCause},
};
use capstan_storage::Op;

use super::{
    call::{Admitted, Call, meta, metadata_mut},
    condition::wrong_object,
    decode, delete, managed,
    write::Current,
};
use crate::{
    http::Response,
    registry::{
        encode,
        live::{Refused, cache_status, parse},
        paths,
    },
    request::{DeleteOptions, WriteOptions, delete_options::Preconditions},
};

/// How often a pod or its budget is changed again when others do.
const MAX_ATTEMPTS: usize = 100;

/// The condition of a budget that says whether it allows disruptions.
const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// How many disrupted pods a budget remembers at most.
const MAX_DISRUPTED_PODS: usize = 2000;

const BUDGETS: GroupResource = GroupResource::from_static("policy", "poddisruptionbudgets");
/// What a refusal calls a budget.
const BUDGET: GroupResource = GroupResource::from_static("policy", "poddisruptionbudget");
const PODS: GroupResource = GroupResource::from_static("", "pods");

/// Reads and admits what is sent to a subresource that makes something.
pub(crate) fn sent(call: &mut Call<'_>, what: Option<&str>) -> Result<(Map, WriteOptions), Status> {
    let options = WriteOptions::for_create(call.query)?;
    let resource = Arc::clone(&call.resource);
    let gvk = resource.subresource(&call.info.subresource).unwrap_or(&resource.gvk);
    let schema = builtin::schema(gvk).ok_or_else(|| Status::internal_error(format!("{gvk:?} has no schema")))?;
    let content_type = call.header(http::header::CONTENT_TYPE);
    let decoded = |gvk: &GroupVersionKind, warnings: &mut Vec<String>| {
        decode::object(&call.body, content_type, gvk, &schema, options.field_validation, warnings)
    };
    let mut object = match decoded(gvk, &mut call.warnings) {
        // Evictions are the same in both versions that clients send.
        Err(error) if gvk.kind == *"Eviction" => {
            let older = GroupVersionKind { version: "v1beta1".into(), ..gvk.clone() };
            decoded(&older, &mut call.warnings).map_err(|_| error)?
        }
        other => other?,
    };
    super::call::ensure_namespace(&call.info.namespace, &mut object)?;
    let name = if call.info.name.is_empty() { meta(&object, "name").to_owned() } else { call.info.name.to_string() };
    call.admit(Admitted::create(&name, &mut object, options.dry_run))?;
    if let Some(what) = what.filter(|_| meta(&object, "name") != name) {
        return Err(Status::bad_request(format!("name in URL does not match name in {what} object")));
    }
    call.validate(Admitted::create(&name, &mut object, options.dry_run))?;
    Ok((object, options))
}

fn done() -> Status {
    Status { status: SUCCESS, code: 201, ..Status::default() }
}

/// Binds a pod to a node.
pub(crate) async fn bind(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form_of_create()?;
    let (binding, options) = sent(call, Some("Binding"))?;
    let name = meta(&binding, "name").to_owned();
    let target = |field: &str| paths::text(&binding, &format!("target.{field}")).to_owned();
    let mut wrong = Vec::new();
    if !matches!(&*target("kind"), "" | "Node") {
        let kind = capstan_api::go::quote(&target("kind"));
        wrong.push(format!(r#"target.kind: Unsupported value: {kind}: supported values: "Node", "<empty>""#));
    }
    if target("name").is_empty() {
        wrong.push("target.name: Required value".to_owned());
    }
    if let Some(words) = crate::authorization::aggregate(&wrong) {
        return Err(Status { status: FAILURE, code: 500, message: words, ..Status::default() });
    }
    let stored = call.server.registry.stored(&PODS).cloned();
    let stored = stored.ok_or_else(|| Status::internal_error("pods are not stored"))?;
    let namespace = call.info.namespace.clone();
    let refuse = |words: String| Err(Status::conflict(&GroupResource::from_static("", "pods/binding"), &name, words));
    for _ in 0..MAX_ATTEMPTS {
        let found = stored.cache.peek(&namespace, &name).ok_or_else(|| Status::not_found(&PODS, &name))?;
        let mut pod = parse(&found.json)?;
        let (uid, version) = (meta(&binding, "uid"), meta(&binding, "resourceVersion"));
        if !uid.is_empty() && uid != meta(&pod, "uid") {
            let words =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", meta(&pod, "uid"));
            return Err(Status::conflict(&PODS, &name, wrong_object(&stored.key(&namespace, &name), &words)));
        }
        if !version.is_empty() && version != meta(&pod, "resourceVersion") {
            let now = meta(&pod, "resourceVersion");
            let words = format!(
                "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {now}"
            );
            return Err(Status::conflict(&PODS, &name, wrong_object(&stored.key(&namespace, &name), &words)));
        }
        if !meta(&pod, "deletionTimestamp").is_empty() {
            return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
        }
        let node = paths::text(&pod, "spec.nodeName");
        if !node.is_empty() {
            return refuse(format!("pod {name} is already assigned to node {}", capstan_api::go::quote(node)));
        }
        if !paths::items(&pod, "spec.schedulingGates").is_empty() {
            return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
        }
        paths::set(&mut pod, "spec.nodeName", target("name"));
        paths::remove(&mut pod, "status.nominatedNodeName");
        for field in ["annotations", "labels"] {
            let more = paths::get(&binding, &format!("metadata.{field}")).and_then(Value::as_object).cloned();
            for (key, value) in more.iter().flat_map(Map::iter) {
                let all = metadata_mut(&mut pod).get_or_insert_with(field, || Map::new().into());
                if let Some(all) = all.as_object_mut() {
                    all.insert(key, value.clone());
                }
            }
        }
        set_condition(&mut pod, &[("type", "PodScheduled"), ("status", "True")], &call.now().to_string());
        if options.dry_run {
            return Ok(form.status(&done()));
        }
        metadata_mut(&mut pod).remove("resourceVersion");
        let op = Op::update(stored.key(&namespace, &name), encode(&pod), found.revision);
        match call.server.registry.commit(vec![op], &[&stored]).await {
            Ok(_) => return Ok(form.status(&done())),
            Err(Refused::Conflict(conflict)) => stored.cache.catch_up(conflict.revision).await.map_err(cache_status)?,
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    refuse("too many others change the pod".to_owned())
}

/// Sets a condition of a pod; its time changes only with its status.
fn set_condition(pod: &mut Map, condition: &[(&str, &str)], now: &str) {
    let of = |key: &str| condition.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| *value);
    let mut conditions = paths::items(pod, "status.conditions").to_vec();
    let mut new: Map =
        condition.iter().map(|(key, value)| (capstan_api::Str::from(*key), Value::from(*value))).collect();
    new.insert("lastProbeTime", Value::Null);
    new.insert("lastTransitionTime", now);
    let same = |old: &Value| old.get("type").and_then(Value::as_str) == Some(of("type"));
    match conditions.iter_mut().find(|old| same(old)) {
        None => conditions.push(new.into()),
        Some(old) => {
            if old.get("status").and_then(Value::as_str) == Some(of("status"))
                && let Some(since) = old.get("lastTransitionTime").cloned()
            {
                new.insert("lastTransitionTime", since);
            }
            *old = new.into();
        }
    }
    paths::set(pod, "status.conditions", conditions);
}

/// Deletes a pod if its disruption budget allows it.
pub(crate) async fn evict(call: &mut Call<'_>) -> Result<Response, Status> {
    let form = call.form_of_create()?;
    let (eviction, options) = sent(call, Some("Eviction"))?;
    let name = meta(&eviction, "name").to_owned();
    let mut delete = match eviction.get("deleteOptions") {
        Some(Value::Object(options)) => DeleteOptions::from_body(&encode(options), capstan_api::codec::Format::Json)?,
        _ => DeleteOptions::default(),
    };
    delete.dry_run |= options.dry_run;
    let namespace = call.info.namespace.clone();
    let stored = call.stored()?;
    let found = stored.cache.peek(&namespace, &name).ok_or_else(|| Status::not_found(&PODS, &name))?;
    let pod = Current::of(call, &found)?.object;
    let deleting = !meta(&pod, "deletionTimestamp").is_empty();
    let phase = paths::text(&pod, "status.phase").to_owned();
    let mut enforce = phase == "Pending" && !deleting;
    if !(deleting || matches!(&*phase, "Succeeded" | "Failed" | "Pending")) {
        let mut budgets = budgets_of(call, &namespace, &pod)?;
        if budgets.len() > 1 {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            let status = FAILURE;
            return Ok(form.status(&Status { status, message: message.to_owned(), code: 500, ..Status::default() }));
        }
        if let Some(budget) = budgets.pop() {
            let number = |path: &str| paths::number(&budget, path);
            let healthy = number("status.currentHealthy") >= number("status.desiredHealthy");
            let always = paths::text(&budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
            if !is_ready(&pod) && (always || healthy && number("status.desiredHealthy") > 0) {
                enforce = true;
            } else {
                take_one(call, &namespace, &name, meta(&budget, "name"), delete.dry_run).await?;
            }
        }
    }
    if enforce && delete.preconditions.as_ref().is_none_or(|wanted| wanted.resource_version.is_none()) {
        let wanted = delete.preconditions.get_or_insert_with(Preconditions::default);
        wanted.resource_version = Some(meta(&pod, "resourceVersion").into());
    }
    if !delete.dry_run {
        let version = mark_disrupted(call, &namespace, &name, &delete).await?;
        if let Some(wanted) = delete.preconditions.as_mut().filter(|wanted| wanted.resource_version.is_some()) {
            wanted.resource_version = Some(version.into());
        }
    }
    delete::remove(call, &namespace, &name, delete).await?;
    Ok(form.status(&done()))
}

fn is_ready(pod: &Map) -> bool {
    paths::items(pod, "status.conditions").iter().any(|condition| {
        let is = |key: &str, value: &str| condition.get(key).and_then(Value::as_str) == Some(value);
        is("type", "Ready") && is("status", "True")
    })
}

fn budgets_of(call: &Call<'_>, namespace: &str, pod: &Map) -> Result<Vec<Map>, Status> {
    use crate::objects::Objects as _;
    let labels = paths::get(pod, "metadata.labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut found = Vec::new();
    for object in call.server.registry.list(&BUDGETS, namespace) {
        let budget = parse(&object.json)?;
        let selector = paths::get(&budget, "spec.selector").cloned().unwrap_or_default();
        let Ok(selector) = capstan_api::value::from_value::<Option<LabelSelector>>(selector) else { continue };
        let Some(Ok(selector)) = selector.map(|selector| selector.to_selector()) else { continue };
        if selector.matches(&labels) {
            found.push(budget);
        }
    }
    Ok(found)
}

fn busy(causes: String, retry_after_seconds: i32) -> Status {
    let words = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::too_many_requests(words, retry_after_seconds);
    let cause = StatusCause { reason: "DisruptionBudget".into(), message: causes, ..StatusCause::default() };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

/// Why a budget allows no disruption. When it could not be counted, its numbers say nothing.
fn why_none(budget: &Map, name: &str) -> String {
    let conditions = paths::items(budget, "status.conditions");
    let condition = conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(DISRUPTION_ALLOWED));
    let text = |key: &str| condition.and_then(|c| c.get(key)).and_then(Value::as_str).unwrap_or_default();
    let (reason, message) = (text("reason"), text("message"));
    let said = text("status") == "False" && !message.is_empty();
    let (wanted, now) =
        (paths::number(budget, "status.desiredHealthy"), paths::number(budget, "status.currentHealthy"));
    let none = format!("The disruption budget {name} does not allow evicting pods currently");
    if said && reason == "SyncFailed" {
        format!("{none} because it failed sync: {message}")
    } else if now <= wanted {
        format!("The disruption budget {name} needs {wanted} healthy pods and has {now} currently")
    } else if said {
        format!("{none} ({reason}): {message}")
    } else {
        none
    }
}

/// Takes one disruption out of a budget.
async fn take_one(call: &Call<'_>, namespace: &str, pod: &str, name: &str, dry_run: bool) -> Result<(), Status> {
    let stored = call.server.registry.stored(&BUDGETS).cloned();
    let stored = stored.ok_or_else(|| Status::internal_error("budgets are not stored"))?;
    for _ in 0..MAX_ATTEMPTS {
        let found = stored.cache.peek(namespace, name).ok_or_else(|| Status::not_found(&BUDGETS, name))?;
        let mut budget = parse(&found.json)?;
        let number = |path: &str| paths::number(&budget, path);
        let forbidden = |words: String| Err(Status::forbidden(&BUDGET, name, words));
        if number("status.observedGeneration") < number("metadata.generation") {
            return Err(busy(format!("The disruption budget {name} is still being processed by the server."), 10));
        }
        let allowed = number("status.disruptionsAllowed");
        if allowed < 0 {
            return forbidden("pdb disruptions allowed is negative".to_owned());
        }
        let disrupted = paths::get(&budget, "status.disruptedPods").and_then(Value::as_object);
        if disrupted.map_or(0, Map::len) > MAX_DISRUPTED_PODS {
            return forbidden(
                "DisruptedPods map too big - too many evictions not confirmed by PDB controller".to_owned(),
            );
        }
        if allowed == 0 {
            return Err(busy(why_none(&budget, name), 0));
        }
        let (old, mut disrupted) = (budget.clone(), disrupted.cloned().unwrap_or_default());
        disrupted.insert(pod, call.now().to_string());
        paths::set(&mut budget, "status.disruptionsAllowed", allowed - 1);
        paths::set(&mut budget, "status.disruptedPods", disrupted);
        let observed = paths::number(&budget, "status.observedGeneration");
        if allowed == 1 {
            disruption_allowed(&mut budget, "False", "InsufficientPods", observed, &call.now().to_string());
        }
        if dry_run {
            return Ok(());
        }
        managed::track_own(&stored, "status", Some(&old), &mut budget, call.now());
        metadata_mut(&mut budget).remove("resourceVersion");
        let op = Op::update(stored.key(namespace, name), encode(&budget), found.revision);
        match call.server.registry.commit(vec![op], &[&stored]).await {
            Ok(_) => return Ok(()),
            Err(Refused::Conflict(conflict)) => stored.cache.catch_up(conflict.revision).await.map_err(cache_status)?,
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    Err(Status::timeout(format!("couldn't update PodDisruptionBudget {name:?} due to conflicts"), 10))
}

/// Says whether a budget has disruptions left.
fn disruption_allowed(budget: &mut Map, status: &str, reason: &str, observed: i64, now: &str) {
    let mut conditions = paths::items(budget, "status.conditions").to_vec();
    let mut new = Map::new();
    for (key, value) in [("type", DISRUPTION_ALLOWED), ("status", status), ("reason", reason), ("message", "")] {
        new.insert(key, value);
    }
    new.insert("observedGeneration", observed);
    new.insert("lastTransitionTime", now);
    let same = |old: &Value| old.get("type").and_then(Value::as_str) == Some(DISRUPTION_ALLOWED);
    match conditions.iter_mut().find(|old| same(old)) {
        None => conditions.push(new.into()),
        Some(old) => {
            if old.get("status").and_then(Value::as_str) == Some(status)
                && let Some(since) = old.get("lastTransitionTime").cloned()
            {
                new.insert("lastTransitionTime", since);
            }
            *old = new.into();
        }
    }
    paths::set(budget, "status.conditions", conditions);
}

/// Tells why the pod will end; returns the version that it then has.
async fn mark_disrupted(
    call: &mut Call<'_>,
    namespace: &str,
    name: &str,
    options: &DeleteOptions,
) -> Result<String, Status> {
    let stored = call.stored()?;
    for _ in 0..MAX_ATTEMPTS {
        let found = stored.cache.peek(namespace, name).ok_or_else(|| Status::not_found(&PODS, name))?;
        let mut pod = parse(&found.json)?;
        delete::check_preconditions(call, options, &pod, name)?;
        let condition = [
            ("type", "DisruptionTarget"),
            ("status", "True"),
            ("reason", "EvictionByEvictionAPI"),
            ("message", "Eviction API: evicting"),
        ];
        set_condition(&mut pod, &condition, &call.now().to_string());
        metadata_mut(&mut pod).remove("resourceVersion");
        let op = Op::update(stored.key(namespace, name), encode(&pod), found.revision);
        match call.server.registry.commit(vec![op], &[&stored]).await {
            Ok(revision) => return Ok(revision.to_string()),
            Err(Refused::Conflict(conflict)) => stored.cache.catch_up(conflict.revision).await.map_err(cache_status)?,
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    Err(Status::timeout("too many others change the pod", 10))
}
