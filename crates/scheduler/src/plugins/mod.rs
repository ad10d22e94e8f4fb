//! The plugins that are on unless a configuration says otherwise, in upstream's order and with its weights.

mod args;
mod dynamic_resources;
mod image_locality;
mod inter_pod;
mod nodes;
mod preemption;
mod resources;
mod spread;
mod volume_binding;
mod volumes;

use std::sync::Arc;

pub(crate) use args::FACTORIES;
pub use dynamic_resources::{DEFAULT_BINDING_TIMEOUT, DynamicResources};
pub use image_locality::ImageLocality;
pub use inter_pod::InterPodAffinity;
pub use nodes::{
    NodeAffinity, NodeDeclaredFeatures, NodeName, NodePorts, NodeUnschedulable, SchedulingGates, TaintToleration,
};
pub use preemption::{DefaultBinder, DefaultPreemption, PrioritySort};
pub use resources::{NodeResourcesBalancedAllocation, NodeResourcesFit, ResourceSpec, Strategy, default_resources};
pub use spread::{Defaults, PodTopologySpread};
pub use volume_binding::{DEFAULT_BIND_TIMEOUT, VolumeBinding};
pub use volumes::{NodeVolumeLimits, VolumeRestrictions, VolumeZone};

use crate::plugin::Plugin;

/// The plugins that are on by default, with the weights of their scores.
#[must_use]
pub fn defaults() -> Vec<(Arc<dyn Plugin>, i64)> {
    vec![
        (Arc::new(SchedulingGates), 0),
        (Arc::new(PrioritySort), 0),
        (Arc::new(NodeUnschedulable), 0),
        (Arc::new(NodeName), 0),
        (Arc::new(TaintToleration), 3),
        (Arc::new(NodeAffinity::default()), 2),
        (Arc::new(NodePorts), 0),
        (Arc::new(NodeResourcesFit::default()), 1),
        (Arc::new(VolumeRestrictions), 0),
        (Arc::new(NodeVolumeLimits), 0),
        (Arc::new(VolumeBinding::default()), 0),
        (Arc::new(VolumeZone), 0),
        (Arc::new(PodTopologySpread::default()), 2),
        (Arc::new(InterPodAffinity::default()), 2),
        (Arc::new(DynamicResources::default()), 2),
        (Arc::new(DefaultPreemption::default()), 0),
        (Arc::new(NodeResourcesBalancedAllocation::default()), 1),
        (Arc::new(ImageLocality), 1),
        (Arc::new(DefaultBinder), 0),
        (Arc::new(NodeDeclaredFeatures), 0),
    ]
}
