//! What a plugin is.
//!
//! A plugin looks at a pod in phases. Before nodes are looked at, [`Plugin::pre_filter`] makes a [`Filter`] for the
//! pod, or says that it has none; the filter is then asked about nodes. In the same way [`Plugin::pre_score`] makes a
//! [`Score`]. Filters and scores hold whatever was worked out beforehand, and are told of pods that come and go
//! ([`Filter::update`]), so that they can be kept for other pods of the same class, and so that one can ask what would
//! be if some pods were not there.

use std::{fmt, sync::Arc, time::Duration};

use capstan_client::{BoxFuture, Client};
use capstan_clock::{SharedClock, SharedIds};

use crate::{
    cache::{Cache, Slot},
    event::{ClusterEvent, EventObject},
    node_info::NodeInfo,
    pod_info::PodInfo,
    status::Status,
};

/// The best score that a plugin gives.
pub const MAX_NODE_SCORE: i64 = 100;

/// A phase in which a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// Whether a pod may be looked at, at all.
    PreEnqueue,
    /// In which order pods are looked at.
    QueueSort,
    /// What is worked out before nodes are looked at.
    PreFilter,
    /// Which nodes a pod can go to.
    Filter,
    /// What can be done for a pod that fits nowhere.
    PostFilter,
    /// What is worked out before nodes are ranked.
    PreScore,
    /// Which nodes are better.
    Score,
    /// What is set aside for a pod once its node is chosen.
    Reserve,
    /// Whether the pod may go there now.
    Permit,
    /// What must be done before the pod is bound.
    PreBind,
    /// How the pod is bound.
    Bind,
    /// What is to be known once it is bound.
    PostBind,
}

/// What an answer about a node depends on, besides the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// On the node and the pods on it alone: the answer holds until the node changes.
    Node,
    /// On other nodes too: it is asked for each time.
    Cluster,
}

/// Whether an event is a reason to try a pod again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueingHint {
    /// It cannot help.
    Skip,
    /// It may help.
    Queue,
}

/// Whether a pod may go to its node now.
#[derive(Clone, Debug, PartialEq)]
pub enum Permit {
    /// It may.
    Allow,
    /// It waits, at most this long.
    Wait(Duration),
    /// It may not.
    Reject(Status),
}

/// The pod that is looked at, and everything else.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The pod.
    pub pod: &'a Arc<PodInfo>,
    /// Everything else.
    pub cache: &'a Cache,
}

/// Says which nodes a pod can go to.
pub trait Filter: fmt::Debug + Send + Sync {
    /// What the answers depend on: always the same.
    fn scope(&self) -> Scope {
        Scope::Node
    }

    /// Whether it has nothing against any node, as things are. Asked once before nodes are looked at, and only of
    /// filters that depend on the cluster.
    fn is_idle(&self) -> bool {
        false
    }

    /// The only nodes that can do, by name, when they are known.
    fn nodes(&self) -> Option<&[String]> {
        None
    }

    /// Whether the pod can go to a node.
    ///
    /// # Errors
    /// Says why it cannot.
    fn filter(&self, cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status>;

    /// Another pod came to a node (`delta` is 1) or left it (-1). Two calls that cancel out leave everything as it was.
    fn update(&mut self, _cycle: Cycle<'_>, _other: &PodInfo, _node: &NodeInfo, _delta: i64) {}
}

/// Says which nodes are better.
pub trait Score: fmt::Debug + Send + Sync {
    /// What the scores depend on: always the same.
    fn scope(&self) -> Scope {
        Scope::Node
    }

    /// Called before nodes are ranked, with those that the pod can go to. When it says no, the plugin has no opinion.
    fn prepare(&mut self, _cycle: Cycle<'_>, _feasible: &[Slot]) -> bool {
        true
    }

    /// How good a node is, on any scale.
    fn score(&self, cycle: Cycle<'_>, node: &NodeInfo) -> i64;

    /// Brings the scores to a scale from 0 to [`MAX_NODE_SCORE`]. The slots say whose they are.
    fn normalize(&self, _slots: &[Slot], _scores: &mut [i64]) {}

    /// Another pod came to a node or left it, as in [`Filter::update`].
    fn update(&mut self, _cycle: Cycle<'_>, _other: &PodInfo, _node: &NodeInfo, _delta: i64) {}
}

/// Scores brought to a scale by the largest of them; the other way round when less is better.
pub fn normalize_by_max(scores: &mut [i64], reverse: bool) {
    let max = scores.iter().copied().max().unwrap_or(0).max(0);
    for score in scores {
        *score = if max == 0 { 0 } else { MAX_NODE_SCORE * *score / max };
        if reverse {
            *score = MAX_NODE_SCORE - *score;
        }
    }
}

/// What there is to work with before a pod is bound.
#[derive(Clone, Debug)]
pub struct BindContext {
    /// The server.
    pub client: Client,
    /// The time.
    pub clock: SharedClock,
    /// Names for what is new.
    pub ids: SharedIds,
}

/// How many nodes are looked at when room is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionArgs {
    /// At least this part of the nodes that may do, in percent.
    pub min_candidate_nodes_percentage: i32,
    /// And at least this many.
    pub min_candidate_nodes_absolute: i32,
}

impl Default for PreemptionArgs {
    fn default() -> Self {
        PreemptionArgs { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

/// Has a say in where pods go. All methods but the first two have a default that has no opinion.
pub trait Plugin: fmt::Debug + Send + Sync + 'static {
    /// What it is called in configurations, messages and metrics.
    fn name(&self) -> &'static str;

    /// The phases in which it is asked.
    fn points(&self) -> &'static [Point];

    /// Whether it looks at nothing of a pod that the pod's [class](PodInfo::class) does not cover, so that what it has
    /// worked out for one pod can be kept for the others of the class.
    fn by_class(&self) -> bool {
        false
    }

    /// Whether a pod may be looked at, at all.
    ///
    /// # Errors
    /// Says what it waits for.
    fn pre_enqueue(&self, _pod: &PodInfo) -> Result<(), Status> {
        Ok(())
    }

    /// The events that can help a pod that this plugin has refused.
    fn events(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent::WILD_CARD]
    }

    /// Whether an event, one of [`events`](Self::events), can help a pod that this plugin has refused.
    fn hint(&self, _pod: &PodInfo, _event: ClusterEvent, _object: &EventObject) -> QueueingHint {
        QueueingHint::Queue
    }

    /// Makes a filter for a pod, or none when every node will do.
    ///
    /// # Errors
    /// No node can do, and why.
    fn pre_filter(&self, _cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        Ok(None)
    }

    /// What to say of a pod that fits nowhere and that this plugin cannot help.
    fn post_filter(&self, _cycle: Cycle<'_>) -> Option<String> {
        None
    }

    /// How room is made by evicting others, if this is the plugin that does it.
    fn preemption(&self) -> Option<PreemptionArgs> {
        None
    }

    /// Makes a score for a pod, or none without an opinion.
    fn pre_score(&self, _cycle: Cycle<'_>) -> Option<Box<dyn Score>> {
        None
    }

    /// Sets something aside for a pod whose node is chosen.
    ///
    /// # Errors
    /// It is not to be had, and why.
    fn reserve(&self, _cycle: Cycle<'_>, _node: &NodeInfo) -> Result<(), Status> {
        Ok(())
    }

    /// Gives back what was set aside. Called whether [`reserve`](Self::reserve) was or not.
    fn unreserve(&self, _pod: &PodInfo, _node: &str) {}

    /// Does what must be done before a pod is bound. The only phase that may take its time and ask others.
    fn pre_bind<'a>(
        &'a self,
        _context: &'a BindContext,
        _pod: &'a Arc<PodInfo>,
        _node: &'a str,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The pod is bound or gone: what was kept for it is not needed any more.
    fn forget(&self, _pod: &PodInfo) {}

    /// The pod was refused, wherever that was. The place for what has to be told to others then.
    fn refused<'a>(&'a self, _context: &'a BindContext, _pod: &'a Arc<PodInfo>) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether a pod may go to its node now.
    fn permit(&self, _cycle: Cycle<'_>, _node: &NodeInfo) -> Permit {
        Permit::Allow
    }
}
