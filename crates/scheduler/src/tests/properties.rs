//! What must hold whatever the cluster: nothing is overcommitted, no rule is broken, what is kept is what would be
//! worked out anew, nobody is evicted in vain.

use std::sync::Arc;

use capstan_clock::SeededIds;
use proptest::prelude::*;

use crate::{
    core::{Core, Outcome},
    pod_info::PodInfo,
    profile::Profile,
    testing::{info, node_line},
};

/// What a pod of the game asks for.
fn pod() -> impl Strategy<Value = String> {
    let rule = prop_oneof![
        4 => Just(""),
        1 => Just(" far:app=0@host"),
        1 => Just(" far:app=1@zone"),
        1 => Just(" near:app=0@zone"),
        1 => Just(" spread:app=0@zone:1"),
        1 => Just(" like-spread:app=1@host:1"),
        1 => Just(" like-near:app=1@zone"),
        1 => Just(" port=80"),
        1 => Just(" select:disk=ssd"),
    ];
    (0..8u32, 0..3u32, 0..3u32, rule)
        .prop_map(|(cpu, app, prio, rule)| format!("cpu={}m prio={prio} label:app={app}{rule}", cpu * 100))
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(String),
    /// The pod at a place goes.
    Leave(usize),
    /// A node goes, or comes back changed.
    Node(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => pod().prop_map(Step::Arrive),
        2 => any::<prop::sample::Index>().prop_map(|at| Step::Leave(at.index(64))),
        1 => (0..5usize, any::<bool>()).prop_map(|(at, there)| Step::Node(at, there)),
    ]
}

fn node_at(at: usize) -> String {
    let disk = if at.is_multiple_of(2) { " label:disk=ssd" } else { "" };
    format!("n{at} cpu={} pods={} zone={}{disk}", 1 + at % 3, 4 + at, at % 2)
}

/// A core that has never seen anything, with the same cluster.
fn afresh(core: &Core) -> Core {
    let mut fresh = Core::new(Arc::new(SeededIds::new(1)));
    for node in core.cache.nodes() {
        fresh.cache.put_node(Arc::clone(&node.node));
    }
    for node in core.cache.nodes() {
        let slot = fresh.cache.find(node.name()).unwrap().slot;
        node.pods.iter().for_each(|pod| fresh.cache.assume(pod, slot));
    }
    fresh
}

fn names(core: &mut Core, profile: &Profile, pod: &Arc<PodInfo>) -> (Vec<String>, String) {
    let Ok(search) = core.find(profile, pod) else { return Default::default() };
    let mut names: Vec<_> = search.feasible.iter().map(|slot| core.cache.node(*slot).name().to_owned()).collect();
    names.sort();
    let refusals = search.diagnosis.to_string();
    core.choose(profile, pod, search, |_| 0);
    (names, refusals)
}

fn no_overcommitment(core: &Core) {
    for node in core.cache.nodes() {
        assert!(node.requested.milli_cpu <= node.allocatable.milli_cpu, "{}", node.name());
        assert!(node.pods.len() as i64 <= node.allowed_pods, "{}", node.name());
        let cpu: i64 = node.pods.iter().map(|pod| pod.requests.milli_cpu).sum();
        assert_eq!(cpu, node.requested.milli_cpu);
        for (at, port) in node.used_ports.iter().enumerate() {
            assert!(!node.used_ports[..at].iter().any(|other| other.conflicts(port)), "{}", node.name());
        }
        for pod in &node.pods {
            assert!(pod.rules().matches_node(node.name(), node.labels()), "{}", pod.name());
            for term in &pod.rules().required_anti_affinity {
                for other in core.cache.nodes().filter(|n| n.pair(&term.topology_key) == node.pair(&term.topology_key))
                {
                    for near in other.pods.iter().filter(|near| near.uid != pod.uid) {
                        assert!(!term.matches(near, &core.cache.world), "{} and {}", pod.name(), near.name());
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_game(steps in prop::collection::vec(step(), 1..60)) {
        let profile = Profile::default();
        let mut core = Core::new(Arc::new(SeededIds::new(7)));
        for at in 0..4 {
            core.cache.put_node(Arc::new(node_line(&node_at(at))));
        }
        let mut placed: Vec<Arc<PodInfo>> = Vec::new();
        for (count, step) in steps.into_iter().enumerate() {
            match step {
                Step::Leave(at) if !placed.is_empty() => {
                    let pod = placed.swap_remove(at % placed.len());
                    core.cache.remove_pod(&pod.uid);
                }
                Step::Leave(_) => {}
                Step::Node(at, true) => core.cache.put_node(Arc::new(node_line(&node_at(at)))),
                Step::Node(at, false) => {
                    let gone = core.cache.find(&format!("n{at}")).map(|node| node.pods.clone()).unwrap_or_default();
                    core.cache.remove_node(&format!("n{at}"));
                    placed.retain(|pod| !gone.iter().any(|other| other.uid == pod.uid));
                    for pod in &gone {
                        core.cache.remove_pod(&pod.uid);
                    }
                }
                Step::Arrive(line) => {
                    let pod = info(&format!("p{count} {line}"));
                    let mut fresh = afresh(&core);
                    prop_assert_eq!(names(&mut core, &profile, &pod), names(&mut fresh, &profile, &pod), "{}", line);
                    match core.schedule(&profile, &pod) {
                        Outcome::Placed { slot, .. } => {
                            core.cache.assume(&pod, slot);
                            placed.push(pod);
                        }
                        Outcome::Unschedulable { victims: Some(victims), .. } => {
                            let all = victims.pods.clone();
                            prop_assert!(all.iter().all(|victim| victim.priority < pod.priority));
                            // Without them it fits; if any of them stays, it does not.
                            for spared in std::iter::once(None).chain((0..all.len()).map(Some)) {
                                let mut other = afresh(&core);
                                for (at, victim) in all.iter().enumerate() {
                                    if Some(at) != spared {
                                        other.cache.remove_pod(&victim.uid);
                                    }
                                }
                                let (fits, _) = names(&mut other, &profile, &pod);
                                prop_assert_eq!(fits.contains(&victims.node), spared.is_none(), "{:?} {}", spared, line);
                            }
                        }
                        _ => {}
                    }
                }
            }
            no_overcommitment(&core);
        }
    }
}
