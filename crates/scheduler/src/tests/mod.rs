//! The core as a whole: small clusters, one pod, and what comes of it.

mod cases;
mod devices;
mod forgotten;
mod properties;

use std::sync::Arc;

use crate::{
    core::{Core, Outcome},
    pod_info::PodInfo,
    profile::Profile,
    testing::{cluster, info},
};

/// What came of it, in one line: the nodes that would do with `*` at the chosen one, or the message.
fn outcome(core: &mut Core, profile: &Profile, pod: &Arc<PodInfo>) -> String {
    let search = match core.find(profile, pod) {
        Ok(search) => search,
        Err(Outcome::NoNodes) => return "no nodes".to_owned(),
        Err(Outcome::Gated(status)) => return format!("gated: {status}"),
        Err(Outcome::Failed(status)) => return format!("error: {status}"),
        Err(other) => panic!("{other:?}"),
    };
    let mut names: Vec<_> = search.feasible.iter().map(|slot| core.cache.node(*slot).name().to_owned()).collect();
    names.sort();
    match core.choose(profile, pod, search, |_| 0) {
        Outcome::Placed { slot, .. } => {
            let chosen = core.cache.node(slot).name();
            let mark = |name: &String| if name == chosen { format!("{name}*") } else { name.clone() };
            names.iter().map(mark).collect::<Vec<_>>().join(" ")
        }
        Outcome::Unschedulable { diagnosis, victims: Some(victims), .. } => {
            let pods: Vec<_> = victims.pods.iter().map(|pod| pod.name()).collect();
            let message = diagnosis.to_string();
            format!("{message} => {} without {} ({})", victims.node, pods.join(","), victims.violations)
        }
        Outcome::Unschedulable { diagnosis, .. } => diagnosis.to_string(),
        Outcome::NoNodes | Outcome::Gated(_) => "no nodes".to_owned(),
        Outcome::Failed(status) => format!("error: {status}"),
    }
}

/// One pod in one cluster. Asked twice: the second answer comes from what was kept, and must be the same.
#[track_caller]
fn check(lines: &str, pod: &str, expected: &str) {
    let mut core = cluster(lines);
    let (profile, pod_info) = (Profile::default(), info(pod));
    assert_eq!(outcome(&mut core, &profile, &pod_info), expected, "{lines}\n{pod}");
    if !expected.contains('*') || !expected.contains(' ') {
        assert_eq!(outcome(&mut core, &profile, &pod_info), expected, "again: {lines}\n{pod}");
    }
}
