//! How long a Job waits after its pods failed.

use std::time::Duration;

use capstan_clock::Timestamp;

use crate::{
    pod::{ContainerStatus, Pod},
    pods::condition,
};

/// The wait after the first failure.
const DEFAULT_BACKOFF: Duration = Duration::from_secs(10);
/// The longest wait.
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// The failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    failures: u32,
    last_failure: Option<Timestamp>,
}

impl Record {
    /// With the pods that have ended since.
    pub(super) fn with(self, succeeded: &[&Pod], failed: &[&Pod]) -> Record {
        let failures = || failed.iter().map(|pod| finished_at(pod));
        let Some(last_success) = succeeded.iter().map(|pod| finished_at(pod)).max() else {
            let failed = u32::try_from(failed.len()).unwrap_or(u32::MAX);
            return Record {
                failures: self.failures.saturating_add(failed),
                last_failure: failures().max().or(self.last_failure),
            };
        };
        let since: Vec<_> = failures().filter(|at| *at > last_success).collect();
        Record { failures: u32::try_from(since.len()).unwrap_or(u32::MAX), last_failure: since.into_iter().max() }
    }

    /// How long to wait from now on.
    pub(super) fn remaining(self, now: Timestamp) -> Option<Duration> {
        remaining(self.failures, self.last_failure?, now)
    }
}

/// How long to wait from now on, after so many failures of which the last was then: twice as long each time.
pub(super) fn remaining(failures: u32, last: Timestamp, now: Timestamp) -> Option<Duration> {
    let doublings = failures.checked_sub(1)?;
    let wait = 2u32.checked_pow(doublings).and_then(|factor| DEFAULT_BACKOFF.checked_mul(factor));
    let wait = wait.unwrap_or(MAX_BACKOFF).min(MAX_BACKOFF);
    let elapsed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    wait.checked_sub(elapsed).filter(|left| !left.is_zero())
}

/// When a pod ended: when the last of its containers did, or when it stopped to be ready, or when it was to be deleted.
pub(super) fn finished_at(pod: &Pod) -> Timestamp {
    let by_containers = || {
        let status = pod.status.as_ref()?;
        let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        let sidecars: Vec<_> =
            init.filter(|c| c.restart_policy.as_deref() == Some("Always")).map(|c| &c.name).collect();
        let sidecars = status.init_container_statuses.iter().flatten().filter(|c| sidecars.contains(&&c.name));
        let ended = |container: &ContainerStatus| container.state.as_ref()?.terminated.as_ref()?.finished_at.clone();
        let containers = status.container_statuses.iter().flatten().chain(sidecars);
        let ends: Option<Vec<_>> = containers.map(ended).collect();
        ends?.into_iter().map(|time| time.0).max()
    };
    let by_condition = || {
        let ready = condition(pod, "Ready").filter(|ready| ready.status == "False")?;
        ready.last_transition_time.as_ref().map(|time| time.0)
    };
    let by_deletion = || {
        let grace = Duration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default().unsigned_abs());
        pod.metadata.deletion_timestamp.as_ref().and_then(|time| time.0.checked_sub(grace).ok())
    };
    let created = || pod.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    by_containers().or_else(by_condition).or_else(by_deletion).unwrap_or_else(created)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::testing::{pod, start};

    /// A pod that was to be deleted so many seconds after the start.
    fn ended(seconds: u64) -> Pod {
        let mut pod = pod("a");
        let at = start() + Duration::from_secs(seconds);
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at));
        pod
    }

    #[test]
    fn waits_grow_and_end_with_a_success() {
        let (one, two, three) = (ended(10), ended(20), ended(30));
        let now = start() + Duration::from_secs(35);
        let seconds = |record: Record| record.remaining(now).map(|left| left.as_secs());
        assert_eq!(seconds(Record::default()), None);
        assert_eq!(seconds(Record::default().with(&[], &[&three])), Some(5));
        assert_eq!(seconds(Record::default().with(&[], &[&two, &one])), Some(5));
        let twice = Record::default().with(&[], &[&two]).with(&[], &[&three]);
        assert_eq!(seconds(twice), Some(15));
        assert_eq!(seconds(twice.with(&[], &[])), Some(15));
        assert_eq!(seconds(twice.with(&[&three], &[])), None);
        assert_eq!(seconds(Record::default().with(&[&one], &[&two, &three])), Some(15));
        assert_eq!(seconds(Record::default().with(&[&two], &[&one, &three])), Some(5));
        assert_eq!(remaining(60, start(), start()), Some(MAX_BACKOFF));
    }
}
