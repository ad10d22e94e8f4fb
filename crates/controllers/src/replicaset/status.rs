//! What the status of a ReplicaSet says, computed from its pods.

use capstan_api::object::Metadata as _;
use capstan_clock::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Replicated;
use crate::{pod::Pod, pods};

/// The condition that says that pods could not be made or deleted.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A condition, of whichever kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) last_transition_time: Option<Time>,
}

/// The status of whatever wants a number of pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) replicas: i32,
    pub(crate) fully_labeled: i32,
    pub(crate) ready: i32,
    pub(crate) available: i32,
    /// How many are being deleted; none for kinds that do not say.
    pub(crate) terminating: Option<i32>,
    pub(crate) observed_generation: i64,
    pub(crate) conditions: Vec<Condition>,
}

/// Why not all pods could be made or deleted.
pub(crate) struct Failure<'a> {
    pub(crate) message: &'a str,
    /// How many pods there were.
    pub(crate) active: i32,
}

impl Counts {
    /// What the status must say now.
    pub(super) fn count<K: Replicated>(
        &self,
        owner: &K,
        active: &[&Pod],
        terminating: i32,
        failure: Option<Failure<'_>>,
        now: Timestamp,
    ) -> Counts {
        let labels = owner.template().map(pods::template_labels);
        let how_many = |counts: &dyn Fn(&Pod) -> bool| pods::count(active.iter().filter(|pod| counts(pod)).count());
        let mut conditions = self.conditions.clone();
        match failure {
            None => conditions.retain(|condition| condition.kind != REPLICA_FAILURE),
            // The first failure stays until it is over: its words may change with each attempt.
            Some(_) if conditions.iter().any(|condition| condition.kind == REPLICA_FAILURE) => {}
            Some(failure) => {
                let reason = if failure.active < owner.replicas() { "FailedCreate" } else { "FailedDelete" };
                conditions.push(Condition {
                    kind: REPLICA_FAILURE.to_owned(),
                    status: "True".to_owned(),
                    reason: Some(reason.to_owned()),
                    message: Some(failure.message.to_owned()),
                    last_transition_time: Some(pods::time(now)),
                });
            }
        }
        Counts {
            replicas: pods::count(active.len()),
            fully_labeled: how_many(&|pod| labels.is_none_or(|labels| pods::has_labels(pod, labels))),
            ready: how_many(&pods::is_ready),
            available: how_many(&|pod| pods::is_available(pod, owner.min_ready_seconds(), now)),
            terminating: K::TELLS_TERMINATING.then_some(terminating),
            observed_generation: owner.meta().generation(),
            conditions,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::{
        apps::v1::{ReplicaSet, ReplicaSetSpec},
        core::v1::{PodTemplateSpec, ReplicationController},
    };

    use super::*;
    use crate::pods::testing::{pod, start};

    fn replica_set() -> ReplicaSet {
        let mut template = PodTemplateSpec::default();
        template.metadata.get_or_insert_default().labels = Some([("l".to_owned(), "x".to_owned())].into());
        let spec = ReplicaSetSpec {
            replicas: Some(3),
            min_ready_seconds: Some(10),
            template: Some(template),
            ..ReplicaSetSpec::default()
        };
        ReplicaSet { spec: Some(spec), ..ReplicaSet::default() }
    }

    #[test]
    fn counts() {
        let pods: Vec<Pod> =
            ["a ready label:x", "b ready@55 label:y", "c label:x"].iter().map(|text| pod(text)).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let now = start() + Duration::from_secs(60);
        let counts = Counts::default().count(&replica_set(), &pods, 2, None, now);
        let expected =
            Counts { replicas: 3, fully_labeled: 2, ready: 2, available: 1, terminating: Some(2), ..Counts::default() };
        assert_eq!(counts, expected);
        let counts = Counts::default().count(&ReplicationController::default(), &pods, 2, None, now);
        assert_eq!((counts.terminating, counts.available), (None, 2));
    }

    #[test]
    fn failures() {
        let now = start();
        let failed = |before: &Counts, message: Option<&str>, active| {
            before.count(&replica_set(), &[], 0, message.map(|message| Failure { message, active }), now)
        };
        let first = failed(&Counts::default(), Some("quota"), 2);
        assert_eq!(first.conditions[0].reason.as_deref(), Some("FailedCreate"));
        assert_eq!(first.conditions[0].message.as_deref(), Some("quota"));
        assert_eq!(failed(&first, Some("other words"), 2), first, "one failure is one condition");
        assert_eq!(failed(&first, None, 2).conditions, []);
        let delete = failed(&Counts::default(), Some("no"), 4);
        assert_eq!(delete.conditions[0].reason.as_deref(), Some("FailedDelete"));
    }
}
