//! Rather nodes that have the pod's images already.

use crate::{
    cache::Slot,
    node_info::NodeInfo,
    plugin::{Cycle, MAX_NODE_SCORE, Plugin, Point, Scope, Score},
};

const MB: i64 = 1024 * 1024;
/// Images that are smaller than this are pulled quickly enough.
const MIN_THRESHOLD: i64 = 23 * MB;
/// The size of an image of a container that counts in full.
const MAX_CONTAINER_THRESHOLD: i64 = 1000 * MB;

/// Rather nodes that have the pod's images already.
#[derive(Debug)]
pub struct ImageLocality;

#[derive(Debug, Default)]
struct ImageScore {
    images: Vec<String>,
    containers: i64,
    /// Scores by place, and of which images and nodes they are.
    scores: Vec<i64>,
    version: Option<(u64, u64)>,
}

/// The name of an image with its tag.
fn normalized(name: &str) -> String {
    match (name.rfind(':'), name.rfind('/')) {
        (Some(colon), slash) if slash.is_none_or(|slash| colon > slash) => name.to_owned(),
        _ => format!("{name}:latest"),
    }
}

impl Score for ImageScore {
    fn scope(&self) -> Scope {
        Scope::Cluster
    }

    fn prepare(&mut self, cycle: Cycle<'_>, _feasible: &[Slot]) -> bool {
        let version = (cycle.cache.images_version(), cycle.cache.topology_version());
        if self.version != Some(version) {
            self.version = Some(version);
            self.scores.clear();
            let total = cycle.cache.len() as f64;
            let known: Vec<_> = self.images.iter().filter_map(|name| Some((name, cycle.cache.image(name)?))).collect();
            if known.is_empty() {
                return false;
            }
            self.scores.resize(cycle.cache.places(), 0);
            let max = MAX_CONTAINER_THRESHOLD * self.containers;
            for node in cycle.cache.nodes() {
                let images = node.node.status.as_ref().and_then(|status| status.images.as_deref()).unwrap_or_default();
                let has = |name: &str| images.iter().flat_map(|i| i.names.iter().flatten()).any(|other| other == name);
                let here = known.iter().filter(|(name, _)| has(name));
                let sum: i64 = here.map(|(_, (size, nodes))| (*size as f64 * (f64::from(*nodes) / total)) as i64).sum();
                let sum = if sum < MIN_THRESHOLD { MIN_THRESHOLD } else { sum.min(max) };
                self.scores[node.slot.index()] = MAX_NODE_SCORE * (sum - MIN_THRESHOLD) / (max - MIN_THRESHOLD);
            }
        }
        !self.scores.is_empty()
    }

    fn score(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> i64 {
        self.scores.get(node.slot.index()).copied().unwrap_or_default()
    }
}

impl Plugin for ImageLocality {
    fn name(&self) -> &'static str {
        "ImageLocality"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Score]
    }

    fn by_class(&self) -> bool {
        true
    }

    fn pre_score(&self, cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        let spec = cycle.pod.pod.spec.as_ref()?;
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let images: Vec<_> = containers.filter_map(|container| container.image.as_deref()).map(normalized).collect();
        let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
        let containers = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
        let images = images.into_iter().chain(volumes.map(normalized)).collect();
        Some(Box::new(ImageScore { images, containers: containers as i64, ..ImageScore::default() }))
    }
}
