//! What simulated pods do, and how long it takes them.

use std::time::Duration;

use capstan_clock::Ids;
use k8s_openapi::api::core::v1::Pod;

/// A time with some chance in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// At least so long.
    pub at_least: Duration,
    /// And at most so much longer.
    pub jitter: Duration,
}

impl Delay {
    /// Exactly so long.
    #[must_use]
    pub const fn exactly(duration: Duration) -> Self {
        Delay { at_least: duration, jitter: Duration::ZERO }
    }

    pub(super) fn draw(self, ids: &dyn Ids) -> Duration {
        if self.jitter.is_zero() { self.at_least } else { self.at_least + self.jitter.mul_f64(ids.fraction()) }
    }
}

/// What containers of the pods that match do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// Only pods with these labels.
    pub labels: Vec<(String, String)>,
    /// Only pods that are owned by an object of this kind; any when empty.
    pub owner_kind: String,
    /// Only pods whose containers are meant to end (`restartPolicy` other than `Always`).
    pub ending_only: bool,
    /// From the order to start until it runs.
    pub start: Delay,
    /// How long it runs and with what code it ends; forever when not said.
    pub end: Option<(Delay, i32)>,
    /// From the order to end until it has.
    pub stop: Delay,
}

/// The annotation that overrides how long containers run, in Go's form: `30s`.
pub const RUN_FOR: &str = "capstan.dev/simulated-run-for";
/// The annotation that overrides the code with which containers end.
pub const EXIT_CODE: &str = "capstan.dev/simulated-exit-code";
/// The annotation that overrides how long containers take to start.
pub const START_DELAY: &str = "capstan.dev/simulated-start-delay";

/// What happens when nobody says otherwise: what is meant to end ends well after a second, the rest runs.
#[must_use]
pub fn default_stages() -> Vec<Stage> {
    vec![
        Stage { ending_only: true, end: Some((Delay::exactly(Duration::from_secs(1)), 0)), ..Stage::default() },
        Stage::default(),
    ]
}

/// The first stage that matches a pod, with what its annotations say instead.
#[must_use]
pub fn stage(stages: &[Stage], pod: &Pod) -> Stage {
    let meta = &pod.metadata;
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    let matches = |stage: &&Stage| {
        stage.labels.iter().all(|(key, value)| label(key) == Some(value))
            && (!stage.ending_only || policy != "Always")
            && (stage.owner_kind.is_empty()
                || meta.owner_references.iter().flatten().any(|owner| owner.kind == stage.owner_kind))
    };
    let mut stage = stages.iter().find(matches).cloned().unwrap_or_default();
    let annotation = |key: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
    let duration = |key: &str| {
        let parsed = annotation(key)?.parse::<capstan_api::Duration>().ok()?;
        Some(Duration::from_nanos(u64::try_from(parsed.0).ok()?))
    };
    let code = annotation(EXIT_CODE).and_then(|code| code.parse().ok());
    if let Some(run) = duration(RUN_FOR) {
        stage.end = Some((Delay::exactly(run), stage.end.map_or(0, |(_, code)| code)));
    }
    if let Some(code) = code {
        stage.end = Some((stage.end.map_or(Delay::exactly(Duration::from_secs(1)), |(delay, _)| delay), code));
    }
    if let Some(start) = duration(START_DELAY) {
        stage.start = Delay::exactly(start);
    }
    stage
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_first_that_matches_and_then_the_pod_itself() {
        let of = |metadata: Value, policy: &str| {
            let pod = json!({"metadata": metadata, "spec": {"restartPolicy": policy, "containers": []}});
            stage(&default_stages(), &serde_json::from_value(pod).unwrap()).end
        };
        let second = Delay::exactly(Duration::from_secs(1));
        assert_eq!(of(json!({}), "Always"), None);
        assert_eq!(of(json!({}), "Never"), Some((second, 0)));
        assert_eq!(of(json!({"annotations": {EXIT_CODE: "3"}}), "Always"), Some((second, 3)));
        let minute = Delay::exactly(Duration::from_secs(60));
        assert_eq!(of(json!({"annotations": {RUN_FOR: "1m"}}), "Never"), Some((minute, 0)));
    }
}
