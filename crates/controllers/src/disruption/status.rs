//! What a budget allows. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use capstan_api::IntOrString;
use capstan_clock::Timestamp;
use capstan_runtime::conditions::{Condition, find_status_condition, set_status_condition};
use k8s_openapi::{
    api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    apimachinery::pkg::{
        apis::meta::v1::{Condition as OpenApiCondition, LabelSelector, Time},
        util::intstr::IntOrString as OpenApiIntOrString,
    },
    jiff::SignedDuration,
};

use crate::{pod::Pod, pod_status::is_ready};

/// How long a pod that was evicted may take to begin to go.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(2 * 60);

const DISRUPTION_ALLOWED: &str = "DisruptionAllowed";

/// Whether the number of pods that should be there has to be known.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(OpenApiIntOrString::String(_)))
}

fn scaled(value: &OpenApiIntOrString, total: i64) -> Result<i64, String> {
    let value = match value {
        OpenApiIntOrString::Int(number) => IntOrString::Int(*number),
        OpenApiIntOrString::String(text) => IntOrString::String(text.as_str().into()),
    };
    value.scaled(total, true).map_err(|error| error.to_string())
}

/// How many pods there should be, and how many of them must be well.
///
/// # Errors
/// A percentage is none.
pub(super) fn expected(spec: &PodDisruptionBudgetSpec, pods: usize, scale: i64) -> Result<(i32, i32), String> {
    let number = |n: i64| i32::try_from(n).unwrap_or(i32::MAX);
    if let Some(max_unavailable) = &spec.max_unavailable {
        let healthy = scale - scaled(max_unavailable, scale)?;
        return Ok((number(scale), number(healthy.max(0))));
    }
    match &spec.min_available {
        None => Ok((0, 0)),
        Some(OpenApiIntOrString::Int(healthy)) => Ok((i32::try_from(pods).unwrap_or(i32::MAX), *healthy)),
        Some(percent) => Ok((number(scale), number(scaled(percent, scale)?))),
    }
}

/// The pods that were evicted and have not begun to go.
#[derive(Debug, Default)]
pub(super) struct Disrupted {
    pub(super) pods: BTreeMap<String, Time>,
    /// In how long the first of them should have.
    pub(super) recheck: Option<Duration>,
    /// Those that should have long ago.
    pub(super) late: Vec<Arc<Pod>>,
}

pub(super) fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp) -> Disrupted {
    let mut found = Disrupted::default();
    let Some(known) = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref()) else { return found };
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let Some(at) = known.get(name) else { continue };
        let left = DELETION_TIMEOUT - now.duration_since(at.0);
        match Duration::try_from(left) {
            Err(_) => found.late.push(Arc::clone(pod)),
            Ok(left) => {
                found.recheck = Some(found.recheck.map_or(left, |first| first.min(left)));
                found.pods.insert(name.to_owned(), at.clone());
            }
        }
    }
    found
}

fn count_healthy(pods: &[Arc<Pod>], disrupted: &BTreeMap<String, Time>) -> i32 {
    let counts = |pod: &&Arc<Pod>| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none() && !disrupted.contains_key(name) && is_ready(pod)
    };
    i32::try_from(pods.iter().filter(counts).count()).unwrap_or(i32::MAX)
}

/// The status of a budget, if it is to be written.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    (expected, desired): (i32, i32),
    disrupted: BTreeMap<String, Time>,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let old = budget.status.clone().unwrap_or_default();
    let healthy = count_healthy(pods, &disrupted);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut new = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        expected_pods: Some(expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted).filter(|pods| !pods.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: old.conditions.clone(),
    };
    let same_pods = old.disrupted_pods.clone().unwrap_or_default() == new.disrupted_pods.clone().unwrap_or_default();
    let (reason, is_allowed) = if allowed > 0 { ("SufficientPods", true) } else { ("InsufficientPods", false) };
    let condition = Condition {
        observed_generation: new.observed_generation,
        ..Condition::new(DISRUPTION_ALLOWED, is_allowed, reason, "")
    };
    let known = old.conditions.as_deref().and_then(|all| find_status_condition(all, DISRUPTION_ALLOWED));
    let up_to_date = known.is_some_and(|known: &OpenApiCondition| {
        known.observed_generation == condition.observed_generation
            && known.status == condition.status
            && known.reason == condition.reason
    });
    set_status_condition(new.conditions.get_or_insert_default(), condition, now);
    let number = |n: Option<i32>| n.unwrap_or_default();
    let same = number(old.current_healthy) == healthy
        && number(old.desired_healthy) == desired
        && number(old.expected_pods) == expected
        && number(old.disruptions_allowed) == allowed
        && old.observed_generation == new.observed_generation;
    (!(same && same_pods && up_to_date)).then_some(new)
}

/// The status of a budget that cannot be computed: nothing is allowed.
pub(super) fn fail_safe(budget: &PodDisruptionBudget, error: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    let condition = Condition {
        observed_generation: status.observed_generation,
        ..Condition::new(DISRUPTION_ALLOWED, false, "SyncFailed", error)
    };
    set_status_condition(status.conditions.get_or_insert_default(), condition, now);
    status
}

/// A selector as Go prints it.
pub(super) fn printed(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.as_deref().unwrap_or_default().join(" ");
        let (key, operator) = (&expression.key, &expression.operator);
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let (labels, expressions): (String, String) = (labels.collect(), expressions.collect());
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        let budget = json!({"metadata": {"name": "b", "generation": 3}, "spec": spec, "status": status});
        serde_json::from_value(budget).unwrap()
    }

    #[test]
    fn how_many() {
        fn check(spec: Value, pods: usize, scale: i64, expected_: Result<(i32, i32), &str>) {
            let found = expected(&budget(spec.clone(), json!({})).spec.unwrap(), pods, scale);
            assert_eq!(found, expected_.map_err(str::to_owned), "{spec}");
        }
        check(json!({"minAvailable": 2}), 5, 0, Ok((5, 2)));
        check(json!({"minAvailable": "50%"}), 5, 7, Ok((7, 4)));
        check(json!({"maxUnavailable": 1}), 5, 7, Ok((7, 6)));
        check(json!({"maxUnavailable": "30%"}), 5, 10, Ok((10, 7)));
        check(json!({"maxUnavailable": 9}), 5, 3, Ok((3, 0)));
        check(json!({}), 5, 3, Ok((0, 0)));
    }

    /// Pods as `name[!]`, with `!` for those that are not ready.
    fn pods(text: &str) -> Vec<Arc<Pod>> {
        let each = |word: &str| {
            let ready = if word.ends_with('!') { "False" } else { "True" };
            let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
            let pod = json!({"metadata": {"name": word.trim_end_matches('!')}, "status": status});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        text.split_whitespace().map(each).collect()
    }

    #[test]
    fn statuses() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let check = |pods_: &str, counts, disrupted_: Value, expected: &str| {
            let budget = budget(json!({}), json!({"disruptedPods": disrupted_}));
            let pods = pods(pods_);
            let disrupted = disrupted(&budget, &pods, now);
            let recheck = disrupted.recheck.map_or(0, |wait| wait.as_secs());
            let late = disrupted.late.len();
            let status = status(&budget, &pods, counts, disrupted.pods, now).unwrap();
            let reason = status.conditions.unwrap().remove(0).reason;
            let (healthy, allowed) = (status.current_healthy.unwrap(), status.disruptions_allowed.unwrap());
            assert_eq!(format!("{healthy} {allowed} {reason} {recheck} {late}"), expected, "{pods_}");
        };
        check("a b c", (3, 2), json!({}), "3 1 SufficientPods 0 0");
        check("a b c!", (3, 2), json!({}), "2 0 InsufficientPods 0 0");
        check("a b c", (3, 5), json!({}), "3 0 InsufficientPods 0 0");
        check("", (0, 0), json!({}), "0 0 InsufficientPods 0 0");
        check(
            "a b c",
            (3, 1),
            json!({"a": "2026-01-01T00:09:30Z", "x": "2026-01-01T00:09:30Z"}),
            "2 1 SufficientPods 90 0",
        );
        check("a b c", (3, 1), json!({"a": "2026-01-01T00:07:30Z"}), "3 2 SufficientPods 0 1");
    }

    #[test]
    fn no_change_no_write() {
        let now: Timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        let mut budget = budget(json!({}), json!({}));
        budget.status = status(&budget, &pods("a b"), (2, 1), BTreeMap::new(), now);
        assert!(budget.status.is_some());
        assert_eq!(status(&budget, &pods("a b"), (2, 1), BTreeMap::new(), now), None);
        assert!(status(&budget, &pods("a b!"), (2, 1), BTreeMap::new(), now).is_some());
        budget.status = Some(fail_safe(&budget, "why", now));
        let condition = &budget.status.as_ref().unwrap().conditions.as_ref().unwrap()[0];
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", "why"));
        assert_eq!(budget.status.as_ref().unwrap().disruptions_allowed, Some(0));
        assert!(status(&budget, &pods("a b"), (2, 1), BTreeMap::new(), now).is_some());
    }

    #[test]
    fn as_go_prints() {
        let selector: LabelSelector = serde_json::from_value(json!({
            "matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}],
        }))
        .unwrap();
        assert_eq!(
            printed(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
        );
    }
}
