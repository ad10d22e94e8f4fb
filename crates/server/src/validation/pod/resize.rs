//! Giving a running pod more or less.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
};

use super::{MIRROR, body};
use crate::validation::read::{at, is_set, list, object, objects, quantity, text};

const IMMUTABLE: &str = "only cpu and memory resources are mutable";

/// The pod as it is now, of which only the resources of containers may have changed.
pub(in crate::validation) fn resize(new: &Map, old: &Map, errors: &mut ErrorList) {
    body(new, errors);
    let whole = |detail: &str| vec![Error::forbidden(Path::ROOT, detail)];
    if at(at(old, "metadata"), "annotations").contains_key(MIRROR) {
        *errors = whole("static pods cannot be resized");
        return;
    }
    let old_pod = old;
    let (new, old) = (at(new, "spec"), at(old, "spec"));
    if text(at(old, "os"), "name") == "windows" {
        *errors = whole("windows pods cannot be resized");
        return;
    }
    let path = Path::new("spec");
    let before = match text(at(old_pod, "status"), "qosClass") {
        "" => qos_class(old),
        class => class,
    };
    if before != qos_class(new) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(Error::invalid_shown(path, crate::validation::show::json(&before.into()), detail));
    }
    let running =
        objects(at(old_pod, "status"), "containerStatuses").find(|(_, status)| is_set(at(status, "state"), "running"));
    if running.is_some_and(|(_, status)| !is_set(status, "resources")) {
        errors.push(Error::forbidden(path, "Pod running on node without support for resize"));
    }
    let kept = errors.len();
    for key in ["containers", "initContainers"] {
        order(new, old, key, &path, errors);
    }
    if errors.len() > kept {
        return;
    }
    removed(new, old, &path, errors);
    let (new_fixed, old_fixed) = (fixed(new, old), fixed(old, old));
    let differs = |key: &str| {
        list(&new_fixed, key).iter().zip(list(&old_fixed, key)).map(|(new, old)| new != old).collect::<Vec<_>>()
    };
    for _ in differs("containers").iter().filter(|differs| **differs) {
        errors.push(Error::forbidden(path, IMMUTABLE));
    }
    let init = path.child("initContainers");
    for (i, _) in differs("initContainers").iter().enumerate().filter(|(_, differs)| **differs) {
        let detail = "only cpu and memory resources for init or sidecar containers are mutable";
        errors.push(Error::forbidden(init.index(i), detail));
    }
    if errors.is_empty() && new_fixed != old_fixed {
        errors.push(Error::forbidden(path, IMMUTABLE));
    }
}

fn order(new: &Map, old: &Map, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child(key);
    if list(new, key).len() != list(old, key).len() {
        errors.push(Error::forbidden(path, format!("{key} may not be added or removed on resize")));
        return;
    }
    for ((i, new), (_, old)) in objects(new, key).zip(objects(old, key)) {
        if text(new, "name") != text(old, "name") {
            let detail = format!("{key} may not be renamed or reordered on resize");
            errors.push(Error::forbidden(path.index(i).child("name"), detail));
        }
    }
}

/// What was asked for stays asked for.
fn removed(new: &Map, old: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for key in ["initContainers", "containers"] {
        let path = path.child(key);
        for ((i, new), (_, old)) in objects(new, key).zip(objects(old, key)) {
            let path = path.index(i);
            let path = path.child("resources");
            for what in ["requests", "limits"] {
                let [new, old] = [new, old].map(|container| at(at(container, "resources"), what));
                if !old.keys().all(|name| new.contains_key(name)) {
                    errors.push(Error::forbidden(path.child(what), format!("resource {what} cannot be removed")));
                }
            }
        }
    }
}

/// The spec with the cpu and memory of `as_in`, for the pod and for its containers.
fn fixed(spec: &Map, as_in: &Map) -> Map {
    let mut spec = spec.clone();
    keep_amounts(&mut spec, as_in);
    for key in ["containers", "initContainers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut);
        let containers = containers.into_iter().flat_map(|containers| containers.iter_mut());
        for (container, (_, old)) in containers.zip(objects(as_in, key)) {
            if let Some(container) = container.as_object_mut() {
                keep_amounts(container, old);
            }
        }
    }
    spec
}

fn keep_amounts(holder: &mut Map, old: &Map) {
    let mut resources = at(holder, "resources").clone();
    for what in ["requests", "limits"] {
        let mut amounts = at(&resources, what).clone();
        let before = at(at(old, "resources"), what);
        amounts.retain(|name, _| !["cpu", "memory"].contains(&name));
        for name in ["cpu", "memory"] {
            if let Some(amount) = before.get(name) {
                amounts.insert(name, amount.clone());
            }
        }
        resources.remove(what);
        if !amounts.is_empty() {
            resources.insert(what, Value::from(amounts));
        }
    }
    holder.remove("resources");
    if !resources.is_empty() {
        holder.insert("resources", Value::from(resources));
    }
}

/// How well a pod is treated when memory gets short.
fn qos_class(spec: &Map) -> &'static str {
    let of_pod = object(spec, "resources")
        .filter(|resources| ["requests", "limits"].iter().any(|what| !at(resources, what).is_empty()));
    let all: Vec<&Map> = match of_pod {
        Some(resources) => vec![resources],
        None => ["containers", "initContainers"]
            .into_iter()
            .flat_map(|key| objects(spec, key))
            .map(|(_, container)| at(container, "resources"))
            .collect(),
    };
    let amount = |resources: &Map, what: &str, name: &str| {
        at(resources, what).get(name).and_then(quantity).filter(|amount| amount.signum() > 0)
    };
    let names = ["cpu", "memory"];
    let any = |resources: &&Map| {
        names.iter().any(|name| ["requests", "limits"].iter().any(|what| amount(resources, what, name).is_some()))
    };
    let guaranteed = |resources: &&Map| {
        names.iter().all(|name| {
            let limit = amount(resources, "limits", name);
            limit.is_some() && amount(resources, "requests", name) == limit
        })
    };
    if !all.iter().any(any) {
        "BestEffort"
    } else if all.iter().all(guaranteed) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
