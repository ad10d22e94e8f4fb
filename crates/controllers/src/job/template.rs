//! The pods of a Job.

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector},
};

use super::{policy, sync::TRACKING_FINALIZER};
use crate::{
    pod::{Pod, WholePod},
    pods::control::pod_from_template,
};

/// The index that a pod is for; also a label.
pub(crate) const INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";
/// How often pods of the index have failed before.
pub(crate) const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// How often that did not count.
pub(crate) const IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// What containers find their index in.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest prefix that names are generated from.
const MAX_GENERATED_NAME_LENGTH: usize = 58;

/// How often pods of the index of a pod had failed when it was made, and how often that did not count.
pub(super) fn failure_counts(pod: &Pod) -> (i32, i32) {
    let count = |name: &str| {
        let text = pod.metadata.annotation(name);
        text.and_then(|text| text.parse::<i32>().ok()).filter(|count| *count >= 0).unwrap_or_default()
    };
    (count(FAILURE_COUNT), count(IGNORED_FAILURE_COUNT))
}

/// A new pod; for an index, it may be in place of one that failed.
pub(super) fn pod(job: &Job, index: Option<(i32, Option<&Pod>)>) -> WholePod {
    let spec = job.spec.clone().unwrap_or_default();
    let mut pod = pod_from_template(&spec.template, job);
    let finalizers = pod.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER) {
        finalizers.push(TRACKING_FINALIZER.to_owned());
    }
    let Some((index, replaced)) = index else { return pod };
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX_ANNOTATION.to_owned(), index.to_string());
    if spec.backoff_limit_per_index.is_some() {
        let (mut counted, mut ignored) = replaced.map(failure_counts).unwrap_or_default();
        if let Some(replaced) = replaced {
            let counts = policy::failure(spec.pod_failure_policy.as_ref(), replaced).counts();
            if counts { counted += 1 } else { ignored += 1 }
        }
        annotations.insert(FAILURE_COUNT.to_owned(), counted.to_string());
        if ignored > 0 {
            annotations.insert(IGNORED_FAILURE_COUNT.to_owned(), ignored.to_string());
        }
    }
    pod.metadata.labels.get_or_insert_default().insert(INDEX_ANNOTATION.to_owned(), index.to_string());
    let suffix = format!("-{index}-");
    let prefix = &name[..name.len().min(MAX_GENERATED_NAME_LENGTH - suffix.len())];
    pod.metadata.generate_name = Some(format!("{prefix}{suffix}"));
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
        spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(tell_index);
    }
    pod
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field = ObjectFieldSelector {
        field_path: format!("metadata.labels['{INDEX_ANNOTATION}']"),
        ..ObjectFieldSelector::default()
    };
    variables.push(EnvVar {
        name: INDEX_VARIABLE.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    });
}
