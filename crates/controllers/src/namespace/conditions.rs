//! What a namespace says of its end.

use capstan_clock::Timestamp;
use k8s_openapi::{
    api::core::v1::{NamespaceCondition, NamespaceStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::content::Removal;

/// The conditions, and reason and message of each when all is well.
const CONDITIONS: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// Reason and message of a condition when all is not well.
fn trouble(condition: &str, removal: &Removal) -> Option<(&'static str, String)> {
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines.join(", ")
    };
    match condition {
        "NamespaceDeletionDiscoveryFailure" => Some(("DiscoveryFailed", removal.discovery_failure.clone()?)),
        "NamespaceDeletionContentFailure" if !removal.content_failures.is_empty() => {
            let (count, said) = (removal.content_failures.len(), sorted(removal.content_failures.clone()));
            Some(("ContentDeletionFailed", format!("Failed to delete all resource types, {count} remaining: {said}")))
        }
        "NamespaceContentRemaining" if !removal.remaining.is_empty() && !removal.waits_for_pods => {
            let each = removal.remaining.iter();
            let each =
                each.map(|(gvr, count)| format!("{}.{} has {count} resource instances", gvr.resource, gvr.group));
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", sorted(each.collect()))))
        }
        "NamespaceFinalizersRemaining" if !removal.finalizers.is_empty() && !removal.waits_for_pods => {
            let each = removal.finalizers.iter();
            let each = each.map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"));
            let said = sorted(each.collect());
            Some(("SomeFinalizersRemain", format!("Some content in the namespace has finalizers remaining: {said}")))
        }
        _ => None,
    }
}

/// Makes the conditions say what came of the removal; whether that changed anything.
pub(super) fn update(status: &mut NamespaceStatus, removal: &Removal, now: Timestamp) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let mut changed = false;
    for (type_, reason, message) in CONDITIONS {
        let (status, reason, message) = match trouble(type_, removal) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let new = NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        let Some(old) = conditions.iter_mut().find(|condition| condition.type_ == type_) else {
            conditions.push(new);
            changed = true;
            continue;
        };
        let since = if old.status == new.status { old.last_transition_time.clone() } else { new.last_transition_time };
        let new = NamespaceCondition { last_transition_time: since, ..new };
        changed |= *old != new;
        *old = new;
    }
    changed
}

#[cfg(test)]
mod tests {
    use capstan_api::GroupVersionResource;

    use super::*;

    fn words(status: &NamespaceStatus) -> Vec<String> {
        let each = |condition: &NamespaceCondition| {
            format!(
                "{} {} {}: {}",
                condition.type_.trim_start_matches("Namespace"),
                condition.status,
                condition.reason.as_deref().unwrap(),
                condition.message.as_deref().unwrap()
            )
        };
        status.conditions.iter().flatten().filter(|condition| condition.status == "True").map(each).collect()
    }

    #[test]
    fn conditions_tell_and_keep_their_times() {
        let (first, later) = ("2026-01-01T00:00:00Z".parse().unwrap(), "2026-01-01T00:01:00Z".parse().unwrap());
        let mut status = NamespaceStatus::default();
        assert!(update(&mut status, &Removal::default(), first));
        assert_eq!(status.conditions.as_ref().unwrap().len(), 5);
        assert_eq!(words(&status), Vec::<String>::new());
        assert!(!update(&mut status, &Removal::default(), later), "the same again is no change");

        let mut removal = Removal {
            content_failures: vec!["b".to_owned(), "a".to_owned()],
            discovery_failure: Some("no".to_owned()),
            ..Removal::default()
        };
        removal.remaining.insert(GroupVersionResource::new("x.io", "v1", "as"), 2);
        removal.remaining.insert(GroupVersionResource::new("", "v1", "configmaps"), 1);
        removal.finalizers.insert("keep".to_owned(), 3);
        assert!(update(&mut status, &removal, later));
        assert_eq!(
            words(&status),
            [
                "DeletionDiscoveryFailure True DiscoveryFailed: no",
                "DeletionContentFailure True ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b",
                "ContentRemaining True SomeResourcesRemain: Some resources are remaining: as.x.io has 2 resource \
                 instances, configmaps. has 1 resource instances",
                "FinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers \
                 remaining: keep in 3 resource instances",
            ]
        );
        let times: Vec<_> = status.conditions.unwrap().into_iter().map(|c| c.last_transition_time.unwrap().0).collect();
        assert_eq!(times, [later, first, later, later, later]);
    }
}
