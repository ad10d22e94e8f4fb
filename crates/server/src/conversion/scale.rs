//! `autoscaling/v1` Scale: how many replicas a workload shall have, has, and how they are found.

use capstan_api::{
    Map, Str, Value,
    selector::{LabelSelector, Selector},
    unstructured::nested,
};

/// The metadata that a Scale shows of its object.
const METADATA: &[&str] = &["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];

fn map<V: Into<Value>, const N: usize>(entries: [(&str, V); N]) -> Map {
    entries.into_iter().map(|(key, value)| (Str::from(key), value.into())).collect()
}

/// The Scale of a Deployment, ReplicaSet, StatefulSet or ReplicationController.
///
/// # Errors
/// Says what is wrong with the object's selector.
pub fn read(object: &Map) -> Result<Map, String> {
    let number = |path: &[&str]| nested::i64(object, path).ok().flatten().unwrap_or(0);
    let selector = nested::map(object, &["spec", "selector"]).ok().flatten();
    let selector = match selector {
        None => String::new(),
        Some(labels) if object.get("kind").and_then(Value::as_str) == Some("ReplicationController") => {
            let labels = labels.iter().map(|(key, value)| (key, value.as_str().unwrap_or_default()));
            Selector::from_labels(labels).to_string()
        }
        Some(selector) => LabelSelector::from_map(selector).to_selector()?.to_string(),
    };
    let metadata = object.get("metadata").and_then(Value::as_object);
    let kept = |key: &&str| Some((Str::from(*key), metadata?.get(key)?.clone()));

    let mut scale = map([("apiVersion", "autoscaling/v1"), ("kind", "Scale")]);
    scale.insert("metadata", METADATA.iter().filter_map(kept).collect::<Map>());
    // Go leaves out what is nothing, here but not there.
    let replicas = Some(number(&["spec", "replicas"])).filter(|replicas| *replicas != 0);
    scale.insert("spec", replicas.map_or_else(Map::new, |replicas| map([("replicas", replicas)])));
    let mut status = map([("replicas", number(&["status", "replicas"]))]);
    if !selector.is_empty() {
        status.insert("selector", selector);
    }
    scale.insert("status", status);
    Ok(scale)
}

/// Gives an object the number of replicas that a Scale asks for. What the Scale says of versions is for the caller to
/// check.
pub fn write(object: &mut Map, scale: &Map) {
    let replicas = nested::i64(scale, &["spec", "replicas"]).ok().flatten().unwrap_or(0);
    let spec = object.get_or_insert_with("spec", || Map::new().into());
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("replicas", replicas);
    }
}
