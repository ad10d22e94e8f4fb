//! Revisions of a Deployment: their numbers, and the annotations that they are kept in.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::PodTemplateSpec,
};

use super::sizes::{max_surge, wanted};

/// The label that tells the pods of one revision from those of others.
pub(super) const TEMPLATE_HASH: &str = "pod-template-hash";
/// The number of the revision.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The numbers that a ReplicaSet had before it was rolled back to.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// How many pods the Deployment wanted when it last looked at a ReplicaSet.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// How many pods the Deployment could have had then.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// What clients of old put on a Deployment to have it rolled back.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// What belongs to one object and is not handed from the Deployment to its ReplicaSets.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
];
/// How long the history of numbers may become.
const MAX_REVISION_HISTORY_CHARS: usize = 2000;

/// The number of the revision of a ReplicaSet; none if it is not a number, 0 if there is none.
pub(super) fn revision(set: &ReplicaSet) -> Option<i64> {
    match set.metadata.annotations.as_ref().and_then(|all| all.get(REVISION)) {
        None => Some(0),
        Some(text) => text.parse().ok(),
    }
}

/// The highest number.
pub(super) fn max_revision<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    sets.into_iter().filter_map(revision).max().unwrap_or_default().max(0)
}

/// The highest number but one: what was before.
pub(super) fn last_revision<'a>(sets: impl IntoIterator<Item = &'a ReplicaSet>) -> i64 {
    let (mut highest, mut second) = (0, 0);
    for number in sets.into_iter().filter_map(revision) {
        if number >= highest {
            (second, highest) = (highest, number);
        } else if number > second {
            second = number;
        }
    }
    second
}

/// A count that is kept in an annotation.
pub(super) fn count_annotation(set: &ReplicaSet, name: &str) -> Option<i32> {
    let text = set.metadata.annotations.as_ref()?.get(name)?;
    text.parse::<u32>().ok().and_then(|count| i32::try_from(count).ok())
}

/// Notes on a ReplicaSet what the Deployment wants now.
pub(super) fn set_replicas_annotations(set: &mut ReplicaSet, deployment: &Deployment) {
    let total = wanted(deployment);
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(DESIRED_REPLICAS.to_owned(), total.to_string());
    annotations.insert(MAX_REPLICAS.to_owned(), (total + max_surge(deployment)).to_string());
}

/// Hands the annotations of the Deployment to its newest ReplicaSet and gives that a number, if it has a lower one.
pub(super) fn set_new_annotations(set: &mut ReplicaSet, deployment: &Deployment, number: i64, exists: bool) {
    let annotations = set.metadata.annotations.get_or_insert_default();
    for (name, value) in deployment.metadata.annotations.iter().flatten() {
        if !NOT_COPIED.contains(&name.as_str()) {
            annotations.insert(name.clone(), value.clone());
        }
    }
    let old = annotations.get(REVISION).cloned();
    let old_number = match old.as_deref() {
        None | Some("") => 0,
        // A number that is none is somebody's own affair.
        Some(text) => match text.parse() {
            Ok(number) => number,
            Err(_) => return,
        },
    };
    if old_number < number {
        annotations.insert(REVISION.to_owned(), number.to_string());
        if let Some(old) = old {
            let history = annotations.entry(REVISION_HISTORY.to_owned()).or_default();
            *history = lengthened(history, &old);
        }
    }
    if !exists {
        set_replicas_annotations(set, deployment);
    }
}

/// The history with one more number; the oldest are dropped when it would be too long.
fn lengthened(history: &str, number: &str) -> String {
    if history.is_empty() {
        return number.to_owned();
    }
    let mut rest = history;
    while rest.len() + number.len() + 1 > MAX_REVISION_HISTORY_CHARS {
        match rest.split_once(',') {
            Some((_, newer)) => rest = newer,
            None => return number.to_owned(),
        }
    }
    format!("{rest},{number}")
}

/// The number that somebody wants to go back to; 0 for the one before.
pub(super) fn rollback_to(deployment: &Deployment) -> Option<i64> {
    deployment.metadata.annotations.as_ref()?.get(ROLLBACK_TO)?.parse().ok()
}

/// Nobody wants to go back any more.
pub(super) fn clear_rollback(deployment: &mut Deployment) {
    if let Some(annotations) = &mut deployment.metadata.annotations {
        annotations.remove(ROLLBACK_TO);
    }
}

/// Gives a Deployment the template and the annotations of a ReplicaSet.
pub(super) fn roll_back(deployment: &mut Deployment, set: &ReplicaSet) {
    if let (Some(spec), Some(template)) = (&mut deployment.spec, template(set)) {
        spec.template = without_hash(template);
    }
    let own = deployment.metadata.annotations.take().unwrap_or_default();
    let kept = own.into_iter().filter(|(name, _)| NOT_COPIED.contains(&name.as_str()));
    let brought = set.metadata.annotations.clone().unwrap_or_default();
    let brought = brought.into_iter().filter(|(name, _)| !NOT_COPIED.contains(&name.as_str()));
    deployment.metadata.annotations = Some(kept.chain(brought).collect());
}

/// The template of a ReplicaSet.
pub(super) fn template(set: &ReplicaSet) -> Option<&PodTemplateSpec> {
    set.spec.as_ref()?.template.as_ref()
}

/// The template without the label that only its ReplicaSet gives it.
fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        if let Some(labels) = &mut meta.labels {
            labels.remove(TEMPLATE_HASH);
        }
        meta.labels = meta.labels.take().filter(|labels: &BTreeMap<_, _>| !labels.is_empty());
    }
    template
}

/// Whether two templates make the same pods, whatever their hashes.
pub(super) fn equal_ignoring_hash(one: &PodTemplateSpec, other: &PodTemplateSpec) -> bool {
    one.spec == other.spec && without_hash(one) == without_hash(other)
}
