//! `/scale` of a custom resource: the numbers are where the definition says.

use capstan_api::{Map, Status, Value, go, unstructured::nested};

use super::definition::Scale;

/// The metadata that a Scale shows of its object.
const METADATA: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];

fn parts(path: &str) -> Vec<&str> {
    path.split('.').collect()
}

/// The Scale of an object, and whether the object says how many replicas it wants.
///
/// # Errors
/// What is not a number, or not a selector.
pub(crate) fn read(scale: &Scale, object: &Map) -> Result<(Map, bool), String> {
    let number = |path: &str| nested::i64(object, &parts(path)).map_err(|error| error.to_string());
    let (wanted, there) = (number(&scale.spec_replicas)?, number(&scale.status_replicas)?);
    let selector = match &*scale.label_selector {
        "" => "",
        path => nested::str(object, &parts(path)).map_err(|error| error.to_string())?.unwrap_or_default(),
    };
    let metadata = object.get("metadata").and_then(Value::as_object);
    let kept = METADATA.iter().filter_map(|key| Some(((*key).into(), metadata?.get(key)?.clone())));
    let mut spec = Map::new();
    if let Some(wanted) = wanted.filter(|wanted| *wanted != 0) {
        spec.insert("replicas", wanted);
    }
    let mut status = Map::new();
    status.insert("replicas", there.unwrap_or_default());
    if !selector.is_empty() {
        status.insert("selector", selector);
    }
    let mut out = Map::new();
    out.insert("kind", "Scale");
    out.insert("apiVersion", "autoscaling/v1");
    out.insert("metadata", kept.collect::<Map>());
    out.insert("spec", spec);
    out.insert("status", status);
    Ok((out, wanted.is_some()))
}

/// The Scale of an object that must say how many replicas it wants.
///
/// # Errors
/// 500 when it does not, or says nonsense.
pub(crate) fn get(scale: &Scale, object: &Map) -> Result<Map, Status> {
    match read(scale, object) {
        Ok((scale, true)) => Ok(scale),
        Ok((_, false)) => {
            let path = go::quote(&format!(".{}", scale.spec_replicas));
            Err(Status::internal_error(format!("the spec replicas field {path} does not exist")))
        }
        Err(words) => Err(Status::internal_error(words)),
    }
}

/// Gives an object the number of replicas that a Scale asks for.
///
/// # Errors
/// When there is no place for it.
pub(crate) fn write(scale: &Scale, object: &mut Map, replicas: i64) -> Result<(), Status> {
    nested::set(object, &parts(&scale.spec_replicas), replicas)
        .map_err(|error| Status::internal_error(error.to_string()))
}
