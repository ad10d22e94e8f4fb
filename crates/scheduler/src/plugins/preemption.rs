//! Makes room by evicting pods of lower priority.

use crate::{
    event::{ActionType, ClusterEvent, EventObject, EventResource},
    plugin::{Plugin, Point, PreemptionArgs, QueueingHint},
    pod_info::PodInfo,
};

/// Makes room by evicting pods of lower priority. How is in [`crate::preemption`].
#[derive(Debug, Default)]
pub struct DefaultPreemption {
    /// How many nodes are looked at.
    pub args: PreemptionArgs,
}

impl Plugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreEnqueue, Point::PostFilter]
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const { &[ClusterEvent::new(EventResource::Pod, ActionType::DELETE)] }
    }

    /// Whoever is waiting for evicted pods to go was refused by other plugins too, and they know what helps.
    fn hint(&self, _pod: &PodInfo, _event: ClusterEvent, _object: &EventObject) -> QueueingHint {
        QueueingHint::Skip
    }

    fn preemption(&self) -> Option<PreemptionArgs> {
        Some(self.args)
    }
}

/// Says in which order pods are looked at: by priority, then by age. The queue does it; the name is for configurations.
#[derive(Debug)]
pub struct PrioritySort;

impl Plugin for PrioritySort {
    fn name(&self) -> &'static str {
        "PrioritySort"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::QueueSort]
    }
}

/// Binds a pod by telling the server. The loop does it; the name is for configurations.
#[derive(Debug)]
pub struct DefaultBinder;

impl Plugin for DefaultBinder {
    fn name(&self) -> &'static str {
        "DefaultBinder"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::Bind]
    }
}
