//! No pod is forgotten: whenever something happens after which a refused pod would fit, the queue has heard of it and
//! tries the pod again.

use std::{sync::Arc, time::Duration};

use capstan_clock::Moment;
use proptest::prelude::*;

use crate::{
    core::{Core, Outcome},
    event::{ActionType, ClusterEvent, EventObject, EventResource, node_changes, pod_changes},
    pod_info::PodInfo,
    profile::Profile,
    queue::SchedulingQueue,
    testing::{cluster, info, node_line},
};

/// What a pod asks for that is refused.
const PODS: &[&str] = &[
    "p cpu=1",
    "p cpu=1 prio=1",
    "p gpu=1",
    "p select:disk=ssd",
    "p tolerate:k=v cpu=1",
    "p near:app=a@zone",
    "p far:app=a@zone",
    "p label:app=b spread:app=b@zone:1",
    "p label:app=a far:app=a@host",
    "p port=80",
    "p near:app=a@host far:app=b@zone",
    "p label:app=a near:app=a@zone",
    "p far:app=a@zone far:app=b@host",
    "p label:app=a near:app=a@host cpu=1",
];

/// What is on a node. Ids differ from pod to pod.
const RESIDENTS: &[&str] =
    &["cpu=1", "label:app=a", "label:app=b", "port=80", "far:app=a@zone", "label:app=a cpu=500m"];

/// What a node is like.
const NODES: &[&str] = &[
    "cpu=1 zone=1",
    "cpu=2 zone=2",
    "cpu=1 zone=1 taint:k=v:NoSchedule",
    "cpu=2 zone=2 label:disk=ssd",
    "cpu=1 gpu=1 zone=3",
    "cpu=1 zone=1 unschedulable",
    "cpu=1",
    "cpu=1 pods=0 zone=2",
];

#[derive(Clone, Debug)]
enum Happening {
    /// A node comes, or becomes another.
    Node(usize, usize),
    /// A node goes.
    NodeGone(usize),
    /// A pod comes to a node.
    Arrives(usize, usize),
    /// The pod at a place goes.
    Leaves(usize),
    /// The pod at a place has other labels.
    Relabelled(usize, usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        (0..3usize, 0..NODES.len()).prop_map(|(at, like)| Happening::Node(at, like)),
        (0..3usize).prop_map(Happening::NodeGone),
        (0..3usize, 0..RESIDENTS.len()).prop_map(|(at, like)| Happening::Arrives(at, like)),
        (0..8usize).prop_map(Happening::Leaves),
        (0..8usize, 0..RESIDENTS.len()).prop_map(|(at, like)| Happening::Relabelled(at, like)),
    ]
}

struct Game {
    core: Core,
    queue: SchedulingQueue,
    /// The pods on nodes, and which of [`RESIDENTS`] they came as.
    residents: Vec<(Arc<PodInfo>, usize)>,
    count: usize,
    now: Moment,
}

impl Game {
    fn tell(&mut self, resource: EventResource, action: ActionType, object: &EventObject) {
        self.queue.notify(ClusterEvent::new(resource, action), object, self.now, |_| true);
    }

    /// Lets something happen, as the loop would be told of it.
    fn happens(&mut self, happening: &Happening) {
        match *happening {
            Happening::Node(at, like) => {
                let node = Arc::new(node_line(&format!("n{at} {}", NODES[like])));
                let old = self.core.cache.find(&format!("n{at}")).map(|node| Arc::clone(&node.node));
                self.core.cache.put_node(Arc::clone(&node));
                let object = EventObject::Node(old.clone(), Some(Arc::clone(&node)));
                match old {
                    None => self.tell(EventResource::Node, ActionType::ADD, &object),
                    Some(old) => {
                        for event in node_changes(&old, &node) {
                            self.tell(event.resource, event.action, &object);
                        }
                    }
                }
            }
            Happening::NodeGone(at) => {
                let name = format!("n{at}");
                let Some(node) = self.core.cache.find(&name).map(|node| Arc::clone(&node.node)) else { return };
                self.core.cache.remove_node(&name);
                self.tell(EventResource::Node, ActionType::DELETE, &EventObject::Node(Some(node), None));
            }
            Happening::Arrives(at, like) => {
                self.count += 1;
                let pod = info(&format!("x{} on=n{at} {}", self.count, RESIDENTS[like]));
                self.core.cache.put_pod(&pod);
                self.residents.push((Arc::clone(&pod), like));
                self.tell(EventResource::Pod, ActionType::ADD, &EventObject::Pod(None, Some(pod)));
            }
            Happening::Leaves(at) if at < self.residents.len() => {
                let (pod, _) = self.residents.swap_remove(at);
                self.core.cache.remove_pod(&pod.uid);
                self.tell(EventResource::Pod, ActionType::DELETE, &EventObject::Pod(Some(pod), None));
            }
            Happening::Relabelled(at, like) if at < self.residents.len() => {
                let (old, came) = self.residents[at].clone();
                let labels = RESIDENTS[like].split(' ').filter(|word| word.starts_with("label:"));
                let rest = RESIDENTS[came].split(' ').filter(|word| !word.starts_with("label:"));
                let words: Vec<&str> = labels.chain(rest).collect();
                let new = info(&format!("{} on={} {}", old.name(), old.node_name(), words.join(" ")));
                self.core.cache.put_pod(&new);
                self.residents[at].0 = Arc::clone(&new);
                let object = EventObject::Pod(Some(Arc::clone(&old)), Some(Arc::clone(&new)));
                for event in pod_changes(&old, &new) {
                    self.tell(event.resource, event.action, &object);
                }
            }
            Happening::Leaves(_) | Happening::Relabelled(..) => {}
        }
    }
}

proptest! {
    #[test]
    fn no_pod_is_forgotten(
        pod in 0..PODS.len(),
        before in prop::collection::vec(happening(), 0..12),
        after in prop::collection::vec(happening(), 1..8),
    ) {
        play(pod, &before, &after)?;
    }
}

/// Plays a game in which a pod is refused, and looks whether it is tried again once it would fit.
fn play(pod: usize, before: &[Happening], after: &[Happening]) -> Result<(), TestCaseError> {
    let profile = Profile::default();
    let profiles: Arc<[Profile]> = vec![profile.clone()].into();
    let second = Duration::from_secs(1);
    let mut game = Game {
        core: cluster("node n9 cpu=100m pods=0"),
        queue: SchedulingQueue::new(profiles, second, second),
        residents: Vec::new(),
        count: 0,
        now: Moment(second),
    };
    for happening in before {
        game.happens(happening);
    }
    let pod = info(PODS[pod]);
    game.queue.add(Arc::clone(&pod), game.now);
    let mut queued = game.queue.pop().unwrap();
    let Outcome::Unschedulable { diagnosis, .. } = game.core.schedule(&profile, &pod) else { return Ok(()) };
    queued.unschedulable_plugins = diagnosis.unschedulable_plugins;
    game.queue.add_unschedulable(queued, game.now);
    for happening in after {
        game.happens(happening);
        let fits = matches!(game.core.schedule(&profile, &pod), Outcome::Placed { .. });
        if game.queue.sizes().unschedulable == 0 {
            return Ok(());
        }
        prop_assert!(!fits, "forgotten after {:?}: {}", happening, diagnosis_of(&mut game, &profile, &pod));
    }
    Ok(())
}

#[test]
fn a_node_that_goes_takes_its_pods_out_of_the_zone() {
    let before = [Happening::Node(1, 0), Happening::Node(0, 2), Happening::Arrives(0, 5)];
    play(6, &before, &[Happening::NodeGone(0)]).unwrap();
}

fn diagnosis_of(game: &mut Game, profile: &Profile, pod: &Arc<PodInfo>) -> String {
    format!("{:?}", game.core.schedule(profile, pod))
}

#[test]
fn a_node_that_leaves_the_zone_takes_its_pods_out_of_it() {
    let before = [Happening::Arrives(0, 1), Happening::Node(0, 0), Happening::Node(0, 0)];
    play(6, &before, &[Happening::Node(0, 6)]).unwrap();
}
