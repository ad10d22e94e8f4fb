//! PodTopologyLabels: a pod carries the zone and region of its node.

use capstan_api::{Map, Status};

use super::{
    Operation, Plugin, Request,
    common::{NODES, PODS, is_of, object, strings},
};
use crate::registry::paths;

const LABELS: &str = "metadata.labels";
const COPIED: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The plugin.
#[derive(Debug, Default)]
pub struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if request.operation != Operation::Create || !is_of(request, &PODS) {
            return Ok(());
        }
        let object = object(request);
        let node = match request.subresource {
            "" => paths::text(object, "spec.nodeName"),
            "binding" if paths::text(object, "target.kind") == "Node" => paths::text(object, "target.name"),
            _ => return Ok(()),
        };
        let Some(node) = request.objects.get(&NODES, "", node) else {
            return Ok(());
        };
        let Some(object) = request.object.as_deref_mut() else {
            return Ok(());
        };
        // The labels of a binding become those of its pod.
        let labels = node.labels.iter().filter(|(key, _)| COPIED.contains(&key.as_str()));
        let own = strings(object, LABELS).map(|(key, value)| (key.into(), value.into()));
        let mut all: Map = own.collect();
        labels.for_each(|(key, value)| drop(all.insert(key.clone(), value.clone())));
        if !all.is_empty() {
            paths::set(object, LABELS, all);
        }
        Ok(())
    }
}
