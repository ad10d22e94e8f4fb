//! The kinds that want a number of pods.

use capstan_api::selector::Selector;
use k8s_openapi::api::{
    apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus},
    core::v1::{PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus},
};

use super::{
    Replicated,
    status::{Condition, Counts},
};
use crate::{controller_ref::selector_of, pods::nonzero};

/// One replica unless something else is asked for. The server fills that in, so it matters only to tests.
const DEFAULT_REPLICAS: i32 = 1;

macro_rules! counts {
    ($status:ident, $condition:ident, $terminating:expr, $counts:ident { $($field:ident: $value:expr)? }) => {
        fn counts(&self) -> Counts {
            let Some(status) = &self.status else { return Counts::default() };
            let conditions = status.conditions.iter().flatten().cloned();
            Counts {
                replicas: status.replicas,
                fully_labeled: status.fully_labeled_replicas.unwrap_or_default(),
                ready: status.ready_replicas.unwrap_or_default(),
                available: status.available_replicas.unwrap_or_default(),
                terminating: $terminating(status),
                observed_generation: status.observed_generation.unwrap_or_default(),
                conditions: conditions
                    .map(|condition| Condition {
                        kind: condition.type_,
                        status: condition.status,
                        reason: condition.reason,
                        message: condition.message,
                        last_transition_time: condition.last_transition_time,
                    })
                    .collect(),
            }
        }

        fn set_counts(&mut self, $counts: Counts) {
            let conditions = $counts.conditions.into_iter().map(|condition| $condition {
                type_: condition.kind,
                status: condition.status,
                reason: condition.reason,
                message: condition.message,
                last_transition_time: condition.last_transition_time,
            });
            self.status = Some($status {
                replicas: $counts.replicas,
                fully_labeled_replicas: nonzero($counts.fully_labeled),
                ready_replicas: nonzero($counts.ready),
                available_replicas: nonzero($counts.available),
                observed_generation: nonzero($counts.observed_generation),
                conditions: Some(conditions.collect::<Vec<_>>()).filter(|conditions| !conditions.is_empty()),
                $($field: $value,)?
            });
        }
    };
}

impl Replicated for ReplicaSet {
    const COMPONENT: &'static str = "replicaset-controller";
    const QUEUE: &'static str = "replicaset";
    const TELLS_TERMINATING: bool = true;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(DEFAULT_REPLICAS)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    fn selector(&self) -> Option<Selector> {
        selector_of(&self.spec.as_ref()?.selector)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    counts!(
        ReplicaSetStatus,
        ReplicaSetCondition,
        |status: &ReplicaSetStatus| status.terminating_replicas,
        counts { terminating_replicas: counts.terminating }
    );
}

impl Replicated for ReplicationController {
    const COMPONENT: &'static str = "replication-controller";
    const QUEUE: &'static str = "replicationmanager";
    const TELLS_TERMINATING: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(DEFAULT_REPLICAS)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref()?.selector.as_ref()?;
        Some(Selector::from_labels(labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))))
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    counts!(
        ReplicationControllerStatus,
        ReplicationControllerCondition,
        |_: &ReplicationControllerStatus| None,
        counts {}
    );
}
