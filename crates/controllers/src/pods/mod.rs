//! What loops over pods share: what a pod's state means, which pod goes first, how pods are made and deleted.

pub(crate) mod control;
pub(crate) mod expectations;
pub(crate) mod rank;

use std::{collections::BTreeMap, time::Duration};

use capstan_clock::Timestamp;
use k8s_openapi::{api::core::v1::PodTemplateSpec, apimachinery::pkg::apis::meta::v1::Time};

use crate::pod::{Pod, PodCondition};

/// The phase, empty if there is none yet.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether the pod has ended by itself.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it is being deleted.
pub(crate) fn is_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether it runs or will run.
pub(crate) fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_deleted(pod)
}

/// Whether it still has to end and is asked to.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    !is_terminal(pod) && is_deleted(pod)
}

/// The node it is on, empty if on none.
pub(crate) fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// A condition by its type.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// The condition that says it is ready, if it is.
fn ready_condition(pod: &Pod) -> Option<&PodCondition> {
    condition(pod, "Ready").filter(|condition| condition.status == "True")
}

/// Whether it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    ready_condition(pod).is_some()
}

/// Since when it is ready.
pub(crate) fn ready_since(pod: &Pod) -> Option<Timestamp> {
    ready_condition(pod)?.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether it has been ready for so many seconds.
pub(crate) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    if !is_ready(pod) {
        return false;
    }
    min_ready_seconds <= 0
        || ready_since(pod).is_some_and(|since| now.duration_since(since).as_secs() >= i64::from(min_ready_seconds))
}

/// When the next of the pods that are ready has been so for long enough.
pub(crate) fn next_availability(pods: &[&Pod], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let wait = Duration::from_secs(min_ready_seconds.unsigned_abs().into());
    let left = |pod: &&Pod| until(ready_since(pod)?.checked_add(wait).ok()?, now);
    pods.iter().filter_map(left).min()
}

/// The time until `then`, if it is ahead.
pub(crate) fn until(then: Timestamp, now: Timestamp) -> Option<Duration> {
    Duration::try_from(then.duration_since(now)).ok().filter(|left| !left.is_zero())
}

/// Now, as objects carry it: in whole seconds.
pub(crate) fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// A count as Go writes it: 0 is left out.
pub(crate) fn nonzero<T: Default + PartialEq>(count: T) -> Option<T> {
    (count != T::default()).then_some(count)
}

/// A count from a length.
pub(crate) fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

static NO_LABELS: BTreeMap<String, String> = BTreeMap::new();

/// The labels of a template.
pub(crate) fn template_labels(template: &PodTemplateSpec) -> &BTreeMap<String, String> {
    template.metadata.as_ref().and_then(|meta| meta.labels.as_ref()).unwrap_or(&NO_LABELS)
}

/// Whether all of `labels` are among those of the pod.
pub(crate) fn has_labels(pod: &Pod, labels: &BTreeMap<String, String>) -> bool {
    let of_pod = pod.metadata.labels();
    labels.iter().all(|(name, value)| of_pod.get(name) == Some(value))
}

#[cfg(test)]
pub(crate) mod testing {
    //! Pods for tests, told in a few words.

    use capstan_api::Resource as _;

    use super::*;
    use crate::pod::{About, ContainerStatus};

    /// The time at which tests begin.
    pub(crate) fn start() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    /// A pod from words: its name, a phase, `ready` or `ready@<seconds>` (after the start), `deleted`, `on:<node>`,
    /// `cost:<n>`, `restarts:<n>`, `age:<seconds>` (before the start), `label:<value>` for the label `l`.
    pub(crate) fn pod(text: &str) -> Pod {
        let mut words = text.split(' ');
        let mut pod = Pod::default();
        pod.metadata.name = words.next().map(Into::into);
        pod.metadata.uid = pod.metadata.name.as_ref().map(|name| format!("uid-{name}").into());
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.creation_timestamp = Some(Time(start()));
        let at = |seconds: &str| Time(start() + Duration::from_secs(seconds.parse().unwrap()));
        for word in words {
            let (name, value) = word.split_once([':', '@']).unwrap_or((word, ""));
            let status = pod.status.get_or_insert_default();
            match name {
                "ready" => {
                    status.phase = Some("Running".into());
                    let since = at(if value.is_empty() { "0" } else { value });
                    let about = About { type_: "Ready".into(), status: "True".into(), ..About::default() };
                    let mut ready = PodCondition::from(about);
                    ready.last_transition_time = Some(since);
                    status.conditions = Some(Box::from([ready]));
                }
                "deleted" => pod.metadata.deletion_timestamp = Some(Time(start())),
                "on" => pod.spec.get_or_insert_default().node_name = Some(value.into()),
                "cost" => {
                    pod.metadata.annotations.insert(rank::DELETION_COST.to_owned(), value.to_owned());
                }
                "restarts" => {
                    let container =
                        ContainerStatus { restart_count: value.parse().unwrap(), ..ContainerStatus::default() };
                    status.container_statuses = Some(Box::from([container]));
                }
                "age" => {
                    let age = Duration::from_secs(value.parse().unwrap());
                    pod.metadata.creation_timestamp = Some(Time(start() - age));
                }
                "label" => {
                    pod.labels_mut().insert("l".to_owned(), value.to_owned());
                }
                phase => status.phase = Some(phase.into()),
            }
        }
        pod
    }

    #[test]
    fn states() {
        let later = start() + Duration::from_secs(30);
        let check = |text: &str, expected: [bool; 4]| {
            let pod = pod(text);
            let found = [is_active(&pod), is_ready(&pod), is_available(&pod, 20, later), is_terminating(&pod)];
            assert_eq!(found, expected, "{text}");
        };
        check("a", [true, false, false, false]);
        check("a Running", [true, false, false, false]);
        check("a ready", [true, true, true, false]);
        check("a ready@20", [true, true, false, false]);
        check("a ready@10", [true, true, true, false]);
        check("a ready deleted", [false, true, true, true]);
        check("a Failed", [false, false, false, false]);
        check("a Succeeded deleted", [false, false, false, false]);
        let pods = [pod("a ready@20"), pod("b ready@5"), pod("c ready@15"), pod("d")];
        let pods: Vec<&Pod> = pods.iter().collect();
        assert_eq!(next_availability(&pods, 20, later), Some(Duration::from_secs(5)));
        assert_eq!(next_availability(&pods, 0, later), None);
        assert_eq!(next_availability(&pods[1..2], 20, later), None);
    }
}
