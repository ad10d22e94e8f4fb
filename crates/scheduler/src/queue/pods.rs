//! A pod that waits, and in which order pods are looked at.

use std::{cmp::Reverse, sync::Arc};

use capstan_clock::Moment;

use crate::pod_info::PodInfo;

/// Where a pod waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Active,
    Backoff(Moment),
    Unschedulable,
    Gated,
}

/// The order in which pods are looked at: the most important first, then the oldest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    priority: Reverse<i32>,
    timestamp: Moment,
    sequence: u64,
    pub(super) uid: Arc<str>,
    /// Whether something broke the last time: then the pod waits its time, whatever else there is to do.
    pub(super) errors: bool,
}

/// A pod that waits for a node.
#[derive(Clone, Debug)]
pub struct QueuedPod {
    /// The pod.
    pub pod: Arc<PodInfo>,
    /// When it came into the queue the last time.
    pub timestamp: Moment,
    /// When it came first.
    pub initial: Moment,
    /// How often it was looked at.
    pub attempts: u32,
    /// How often it was refused.
    pub unschedulable_count: u32,
    /// How often something broke since it last was refused.
    pub consecutive_errors: u32,
    /// Who refused it the last time.
    pub unschedulable_plugins: Vec<&'static str>,
    /// Who is waiting for something on its behalf.
    pub pending_plugins: Vec<&'static str>,
    /// Whether a plugin keeps it from being looked at.
    pub gated: bool,
    /// Why it is kept back.
    pub gate: String,
    pub(super) sequence: u64,
    pub(super) place: Place,
}

impl QueuedPod {
    pub(super) fn new(pod: Arc<PodInfo>, now: Moment, sequence: u64) -> Self {
        QueuedPod {
            pod,
            timestamp: now,
            initial: now,
            attempts: 0,
            unschedulable_count: 0,
            consecutive_errors: 0,
            unschedulable_plugins: Vec::new(),
            pending_plugins: Vec::new(),
            gated: false,
            gate: String::new(),
            sequence,
            place: Place::Active,
        }
    }

    pub(super) fn order(&self) -> Order {
        Order {
            priority: Reverse(self.pod.priority),
            timestamp: self.timestamp,
            sequence: self.sequence,
            uid: Arc::clone(&self.pod.uid),
            errors: self.consecutive_errors > 0,
        }
    }

    /// All who have something against it.
    pub(super) fn rejectors(&self) -> impl Iterator<Item = &'static str> {
        self.unschedulable_plugins.iter().chain(&self.pending_plugins).copied()
    }
}

/// How many pods wait, and how: `scheduler_pending_pods`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Are looked at next.
    pub active: usize,
    /// Were refused a moment ago.
    pub backoff: usize,
    /// Wait for something to happen.
    pub unschedulable: usize,
    /// Are kept back.
    pub gated: usize,
    /// Are being looked at.
    pub in_flight: usize,
}
