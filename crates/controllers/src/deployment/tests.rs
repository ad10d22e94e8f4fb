//! Plans, told in sizes.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetStatus},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta, Time},
        util::intstr::IntOrString,
    },
};

use super::{plan::plan, revision, sizes, status};
use crate::pods::testing::start;

fn labels() -> Option<std::collections::BTreeMap<String, String>> {
    Some([("app".to_owned(), "web".to_owned())].into())
}

fn template(image: &str) -> PodTemplateSpec {
    let container = Container { name: "c".to_owned(), image: Some(image.to_owned()), ..Container::default() };
    PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: labels(), ..ObjectMeta::default() }),
        spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
    }
}

fn number_or_percent(text: &str) -> Option<IntOrString> {
    Some(text.parse().map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int))
}

/// So many replicas, so many more, so many fewer: `10 25% 2`.
fn deployment(text: &str) -> Deployment {
    let words: Vec<&str> = text.split(' ').collect();
    let mut spec = DeploymentSpec {
        replicas: words[0].parse().ok(),
        selector: LabelSelector { match_labels: labels(), ..LabelSelector::default() },
        template: template("new"),
        ..DeploymentSpec::default()
    };
    let strategy = spec.strategy.get_or_insert_default();
    strategy.type_ = Some(if words.len() > 1 { "RollingUpdate" } else { "Recreate" }.to_owned());
    if let [_, surge, unavailable] = words[..] {
        let rolling = strategy.rolling_update.get_or_insert_default();
        rolling.max_surge = number_or_percent(surge);
        rolling.max_unavailable = number_or_percent(unavailable);
    }
    let metadata = ObjectMeta { name: Some("web".to_owned()), ..ObjectMeta::default() };
    Deployment { metadata, spec: Some(spec), status: None }
}

/// A ReplicaSet: `image size available`, and then how many pods the Deployment wanted and could have had.
fn replica_set(text: &str, at: usize) -> ReplicaSet {
    let words: Vec<&str> = text.split(' ').collect();
    let mut set = ReplicaSet::default();
    set.metadata.name = Some(words[0].to_owned());
    set.metadata.uid = Some(format!("uid {at}"));
    let age = std::time::Duration::from_secs(at as u64);
    set.metadata.creation_timestamp = Some(Time(start().saturating_add(age).unwrap()));
    let spec = set.spec.get_or_insert_default();
    spec.replicas = words[1].parse().ok();
    spec.template = Some(template(words[0]));
    set.status = Some(ReplicaSetStatus {
        replicas: words[1].parse().unwrap(),
        available_replicas: words[2].parse().ok(),
        ..ReplicaSetStatus::default()
    });
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(revision::REVISION.to_owned(), (at + 1).to_string());
    if let [.., desired, max] = words[..]
        && words.len() == 5
    {
        annotations.insert(revision::DESIRED_REPLICAS.to_owned(), desired.to_owned());
        annotations.insert(revision::MAX_REPLICAS.to_owned(), max.to_owned());
    }
    set
}

/// What becomes of the sizes in one step, in the order in which they are written.
fn step(wanted: &str, sets: &[&str]) -> Vec<String> {
    let sets: Vec<ReplicaSet> = sets.iter().enumerate().map(|(at, text)| replica_set(text, at)).collect();
    let plan = plan(&deployment(wanted), &sets, |_| Vec::new(), start());
    let created = plan.create.iter().map(|(set, _)| format!("+{}", sizes::replicas(set)));
    let changed = plan.update.iter().filter(|(_, told)| told.is_some());
    let changed = changed.map(|(set, _)| format!("{} {}", set.metadata.name.as_ref().unwrap(), sizes::replicas(set)));
    created.chain(changed).collect()
}

fn check(wanted: &str, sets: &[&str], expected: &str) {
    assert_eq!(step(wanted, sets).join(", "), expected, "{wanted} of {sets:?}");
}

#[test]
fn rolling() {
    check("10 25% 25%", &[], "+10");
    check("10 25% 25%", &["old 10 10"], "+3, old 8");
    check("10 25% 25%", &["old 8 8", "new 3 0"], "new 5");
    check("10 25% 25%", &["old 8 8", "new 5 0"], "");
    check("10 25% 25%", &["old 8 8", "new 5 2"], "old 6");
    check("10 25% 25%", &["old 6 6", "new 5 2"], "new 7");
    // What does not work goes first, whatever else is there.
    check("10 25% 25%", &["old 8 3", "new 5 5"], "old 3");
    check("10 0 1", &["old 10 10", "new 0 0"], "old 9");
    check("10 1 0", &["old 10 10", "new 0 0"], "new 1");
    check("10 1 0", &["old 10 10", "new 1 0"], "");
    // Neither more nor fewer is impossible: one fewer it is.
    check("10 0 0", &["old 10 10", "new 0 0"], "old 9");
    check("1 25% 25%", &["old 1 1", "new 0 0"], "new 1");
    check("1 25% 25%", &["old 1 1", "new 1 1"], "old 0");
    check("5 1 1", &["new 9 9"], "new 5");
    check("3 1 1", &["old 2 2", "older 2 2", "new 0 0"], "old 0");
}

#[test]
fn recreating() {
    check("3", &["old 3 3"], "old 0");
    check("3", &["old 0 0"], "+3");
    check("3", &["old 0 0", "new 1 1"], "new 3");
}

#[test]
fn scaling() {
    // One ReplicaSet is scaled as a whole.
    check("5 1 1", &["new 3 3 3 4"], "new 5");
    check("0 1 1", &["new 3 3 3 4"], "new 0");
    // In the middle of a rollout each gets its share, the largest what is left.
    check("15 3 2", &["old 8 8 10 13", "new 5 5 10 13"], "old 11, new 7");
    check("5 3 2", &["old 8 8 10 13", "new 5 5 10 13"], "old 5, new 3");
    check("0 3 2", &["old 8 8 10 13", "new 5 5 10 13"], "old 0, new 0");
    check("100 0 1", &["old 5 5 10 10", "new 5 5 10 10"], "old 50, new 50");
}

/// Upstream's cases, the oldest set first.
#[test]
fn scaling_in_the_middle_of_a_rollout() {
    let check = |wanted: &str, sets: &[&str], expected: &str| {
        let mut found = step(wanted, sets);
        found.sort_unstable();
        let mut expected: Vec<&str> = expected.split(", ").filter(|one| !one.is_empty()).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{wanted} of {sets:?}");
    };
    check("10 0 0", &["old 3 3 5 5", "new 2 2 5 5"], "old 6, new 4");
    check("3 0 0", &["old 3 3 5 5", "new 2 2 5 5"], "old 2, new 1");
    check("4 0 0", &["old 1 1 9 9", "new 8 8 9 9"], "new 4, old 0");
    check("10 0 0", &["older 2 2 7 7", "old 3 3 7 7", "new 2 2 7 7"], "old 4, new 3, older 3");
    check("8 0 0", &["older 3 3 13 13", "old 8 8 13 13", "new 2 2 13 13"], "old 5, older 2, new 1");
    // What is left over goes to the newest, and is taken from the oldest.
    check("4 0 0", &["older 1 1 3 3", "old 1 1 3 3", "new 1 1 3 3"], "new 2");
    check("2 0 0", &["older 1 1 3 3", "old 1 1 3 3", "new 1 1 3 3"], "older 0");
    // Also when there is no set of the newest template yet.
    check("5 0 0", &["older 2 2 4 4", "old 2 2 4 4"], "old 3");
    check("14 0 0", &["older 3 3 10 10", "old 7 7 10 10"], "old 10, older 4");
    check("0 0 0", &["older 1 1 6 6", "old 2 2 6 6", "new 3 3 6 6"], "new 0, old 0, older 0");
    check("6 0 0", &["older 0 0 6 6", "old 0 0 6 6", "new 0 0 6 6"], "new 6");
    // One of them was not written the last time.
    check("5 0 0", &["older 1 1 5 5", "old 1 1 3 3", "new 2 2 5 5"], "old 2");
    // With room for more than are wanted, and with more room than before.
    check("20 2 0", &["old 6 6 10 12", "new 6 6 10 12"], "new 11, old 11");
    check("50 6 0", &["old 8 8 10 13", "new 5 5 10 13"], "old 34, new 22");
    // All are there, but do not work: those that do are left alone.
    check("2 1 1", &["old 1 1 2 3", "new 2 0 2 3"], "");
}

#[test]
fn revisions() {
    let sets: Vec<ReplicaSet> =
        ["a 0 0", "b 0 0", "c 0 0"].iter().enumerate().map(|(n, t)| replica_set(t, n)).collect();
    assert_eq!((revision::max_revision(&sets), revision::last_revision(&sets)), (3, 2));
    let deployment = deployment("3 1 1");
    let mut set = sets[0].clone();
    for number in [4, 6] {
        revision::set_new_annotations(&mut set, &deployment, number, true);
    }
    let annotations = set.metadata.annotations.unwrap();
    assert_eq!(annotations[revision::REVISION], "6");
    assert_eq!(annotations["deployment.kubernetes.io/revision-history"], "1,4");
}

#[test]
fn only_who_may_be_late_is_looked_at_again() {
    let mut deployment = deployment("2 1 0");
    deployment.spec.as_mut().unwrap().progress_deadline_seconds = Some(60);
    let check = |reason: &str, since: u64, expected: Option<u64>| {
        let mut status = DeploymentStatus::default();
        let condition = status::condition(status::PROGRESSING, "True", reason, "", start());
        status::set(&mut status, condition);
        let now = start().saturating_add(std::time::Duration::from_secs(since)).unwrap();
        let found = status::next_check(&deployment, &status, now).map(|after| after.as_secs());
        assert_eq!(found, expected, "{reason} {since}");
    };
    check("ReplicaSetUpdated", 10, Some(51));
    check("ReplicaSetUpdated", 100, Some(1));
    check("ProgressDeadlineExceeded", 100, None);
    // It was there once: that pods broke since is no reason to look each second.
    check("NewReplicaSetAvailable", 10, None);
    check("NewReplicaSetAvailable", 100, None);
}
