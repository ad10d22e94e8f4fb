//! Plans, told in sizes.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetStatus},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};

use super::{plan::plan, revision, sizes};
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
fn check(wanted: &str, sets: &[&str], expected: &str) {
    let sets: Vec<ReplicaSet> = sets.iter().enumerate().map(|(at, text)| replica_set(text, at)).collect();
    let plan = plan(&deployment(wanted), &sets, |_| Vec::new(), start());
    let created = plan.create.iter().map(|(set, _)| format!("+{}", sizes::replicas(set)));
    let changed = plan.update.iter().filter(|(_, told)| told.is_some());
    let changed = changed.map(|(set, _)| format!("{} {}", set.metadata.name.as_ref().unwrap(), sizes::replicas(set)));
    let found: Vec<String> = created.chain(changed).collect();
    assert_eq!(found.join(", "), expected, "{wanted} of {sets:?}");
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
