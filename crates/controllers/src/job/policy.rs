//! What the failure of a pod, or the success of some indexes, means for a Job.

use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, SuccessPolicy};

use super::indexes::Indexes;

use crate::pod::{ContainerStatus, Pod};

/// What is to be done about a pod that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It counts, as by default.
    Count,
    /// It does not count.
    Ignore,
    /// Its index has failed.
    FailIndex,
    /// The Job has failed, for this reason.
    FailJob(String),
}

impl Failure {
    /// Whether the pod counts as failed.
    pub(super) fn counts(&self) -> bool {
        *self != Failure::Ignore
    }
}

/// What the first rule that fits says.
pub(super) fn failure(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Failure {
    let rules = policy.map(|policy| policy.rules.as_slice()).unwrap_or_default();
    let status = pod.status.clone().unwrap_or_default();
    let (namespace, name) =
        (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default());
    for (at, rule) in rules.iter().enumerate() {
        let action = rule.action.as_str();
        let reason = if let Some(codes) = &rule.on_exit_codes {
            let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
            containers.into_iter().find_map(|container| exit_code(container, codes)).map(|(container, code)| {
                format!(
                    "Container {container} for pod {namespace}/{name} failed with exit code {code} \
                     matching {action} rule at index {at}"
                )
            })
        } else {
            let patterns = rule.on_pod_conditions.iter().flatten();
            let fits = |kind: &str, verdict: &str| {
                patterns
                    .clone()
                    .any(|pattern| pattern.type_ == kind && pattern.status.as_deref().unwrap_or("True") == verdict)
            };
            let condition = status.conditions.iter().flatten().find(|c| fits(&c.type_, &c.status));
            condition.map(|condition| {
                format!("Pod {namespace}/{name} has condition {} matching {action} rule at index {at}", condition.type_)
            })
        };
        let Some(reason) = reason else { continue };
        return match action {
            "Ignore" => Failure::Ignore,
            "FailIndex" => Failure::FailIndex,
            "FailJob" => Failure::FailJob(reason),
            _ => Failure::Count,
        };
    }
    Failure::Count
}

/// The container and its exit code, if a rule is about it.
fn exit_code<'a>(
    container: &'a ContainerStatus,
    rule: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a str, i32)> {
    let code = container.state.as_ref()?.terminated.as_ref()?.exit_code;
    let about = rule.container_name.as_ref().is_none_or(|name| *name == container.name);
    let fits = match rule.operator.as_str() {
        "In" => rule.values.contains(&code),
        "NotIn" => !rule.values.contains(&code),
        _ => false,
    };
    (about && fits && code != 0).then_some((container.name.as_str(), code))
}

/// Which rule says that enough indexes have succeeded, if one does.
pub(super) fn success(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.total() == 0 {
        return None;
    }
    let met = policy?.rules.iter().position(|rule| match (&rule.succeeded_indexes, rule.succeeded_count) {
        (Some(text), count) => {
            let required = Indexes::parse(text, completions);
            let there = required.overlap(succeeded);
            required.total() > 0 && (there == required.total() || count.is_some_and(|count| there >= count))
        }
        (None, Some(count)) => succeeded.total() >= count,
        (None, None) => false,
    })?;
    Some(format!("Matched rules at index {met}"))
}
