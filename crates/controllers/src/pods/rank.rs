//! Which pods go first when there are too many.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use capstan_clock::Timestamp;

use super::{is_active, is_ready, node_name, phase, ready_since};

use crate::pod::Pod;

/// What says how dear a pod is.
pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Pending pods go before unknown ones, those before running ones.
fn phase_rank(pod: &Pod) -> u8 {
    match phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

/// How dear it is to lose the pod. What is not a number, or not written as Go writes one, says nothing.
fn deletion_cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotation(DELETION_COST).unwrap_or_default();
    let digits = text.strip_prefix('-').unwrap_or(text);
    if text.starts_with('+') || (digits.len() > 1 && digits.starts_with('0')) {
        return 0;
    }
    text.parse().unwrap_or_default()
}

/// The most restarts of any container, and of any sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let containers = status.container_statuses.iter().flatten();
    let regular = containers.map(|container| container.restart_count).max().unwrap_or_default();
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let sidecars: HashSet<_> = init
        .filter(|container| container.restart_policy.as_deref() == Some("Always"))
        .map(|container| container.name.as_str())
        .collect();
    let init = status.init_container_statuses.iter().flatten();
    let sidecar = init
        .filter(|container| sidecars.contains(container.name.as_str()))
        .map(|container| container.restart_count)
        .max();
    (regular, sidecar.unwrap_or_default())
}

/// An age on a scale of powers of two, so that pods of about the same age are the same.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as in Go")]
fn magnitude(then: Timestamp, now: Timestamp) -> i64 {
    let age = now.duration_since(then).as_nanos();
    if age > 0 { (age as f64).log2() as i64 } else { -1 }
}

/// Who is younger goes first, who has no time before all; those of about the same age are the same.
fn age(then: Option<Timestamp>, now: Timestamp) -> Option<i64> {
    then.map(|then| magnitude(then, now))
}

/// Sorts pods so that those to delete first come first. `related` are pods of the same kind, theirs and those of their
/// siblings: who shares a node with many of them goes before who does not.
pub(crate) fn sort_for_deletion(pods: &mut [&Pod], related: &[&Pod], now: Timestamp) {
    let mut on_node: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| is_active(pod)) {
        *on_node.entry(node_name(pod)).or_default() += 1;
    }
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let rules = |pod: &Pod| {
        let doubled = on_node.get(node_name(pod)).copied().unwrap_or_default();
        (!node_name(pod).is_empty(), phase_rank(pod), is_ready(pod), deletion_cost(pod), Reverse(doubled))
    };
    pods.sort_by(|a, b| {
        rules(a)
            .cmp(&rules(b))
            .then_with(|| age(ready_since(a), now).cmp(&age(ready_since(b), now)))
            .then_with(|| restarts(b).cmp(&restarts(a)))
            .then_with(|| age(created(a), now).cmp(&age(created(b), now)))
            // Upstream looks at this before the restarts when the times differ, and after them when they do not: that
            // is no order, and sorting by it may end in a panic.
            .then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
    });
}

/// Sorts pods that run so that those to give up first come first, without asking where others are.
pub(crate) fn sort_active(pods: &mut [&Pod]) {
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    // Who has no time goes before all, then who has the latest one.
    let latest = |a: Option<Timestamp>, b: Option<Timestamp>| (a.is_some(), Reverse(a)).cmp(&(b.is_some(), Reverse(b)));
    pods.sort_by(|a, b| {
        let rules = |pod: &Pod| (!node_name(pod).is_empty(), phase_rank(pod), is_ready(pod));
        rules(a)
            .cmp(&rules(b))
            .then_with(|| latest(ready_since(a), ready_since(b)))
            .then_with(|| restarts(b).cmp(&restarts(a)))
            .then_with(|| latest(created(a), created(b)))
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pods::testing::{pod, start};

    /// The pods, told in the order in which they must go.
    fn check(first_to_last: &[&str]) {
        let pods: Vec<Pod> = first_to_last.iter().map(|text| pod(text)).collect();
        let now = start() + Duration::from_secs(100_000);
        let expected: Vec<&Pod> = pods.iter().collect();
        let mut reversed: Vec<&Pod> = pods.iter().rev().collect();
        sort_for_deletion(&mut reversed, &expected, now);
        assert_eq!(reversed, expected, "{first_to_last:?}");
    }

    #[test]
    fn who_goes_first() {
        check(&["unassigned", "assigned on:n"]);
        check(&["pending on:n Pending", "unknown on:n Unknown", "running on:n Running"]);
        check(&["unready on:n Running", "ready on:n ready"]);
        check(&[
            "cheap on:n ready cost:-5",
            "free on:n ready",
            "bad on:n ready cost:007 restarts:-1",
            "dear on:n ready cost:5",
        ]);
        check(&["a on:n ready", "b on:n ready restarts:-1", "alone on:m ready"]);
        check(&["young on:n ready@90000", "old on:n ready@0"]);
        check(&["restarted on:n ready restarts:3", "calm on:n ready restarts:1"]);
        check(&["a on:n age:10", "b on:n age:1000000"]);
        // About the same age: the uid decides.
        check(&["a on:n age:1001", "b on:n age:1000"]);
    }

    #[test]
    fn it_is_an_order() {
        // Times that are equal, and times that are about equal, in all mixtures with restarts.
        let text = |number: u32| {
            let (name, ready, restarts) = (number * 71 % 200, number % 3, number % 5);
            format!("p{name:03} on:n ready@{ready} age:{} restarts:{restarts}", 1000 + number % 2)
        };
        let pods: Vec<Pod> = (0..200).map(|number| pod(&text(number))).collect();
        let now = start() + Duration::from_secs(100_000);
        let related: Vec<&Pod> = pods.iter().collect();
        let mut forwards = related.clone();
        let mut backwards: Vec<&Pod> = pods.iter().rev().collect();
        sort_for_deletion(&mut forwards, &related, now);
        sort_for_deletion(&mut backwards, &related, now);
        assert_eq!(forwards, backwards);
    }
}
