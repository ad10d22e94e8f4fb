//! What waits where, and when it is tried again.

use proptest::prelude::*;

use super::*;
use crate::{
    event::ActionType,
    testing::{info, node_line},
};

fn at(seconds: u64) -> Moment {
    Moment(Duration::from_secs(seconds))
}

fn queue() -> SchedulingQueue {
    let profiles: Arc<[Profile]> = [Profile::default()].into();
    SchedulingQueue::new(profiles, DEFAULT_POD_INITIAL_BACKOFF, DEFAULT_POD_MAX_BACKOFF)
}

fn refuse(queue: &mut SchedulingQueue, plugin: &'static str, now: Moment) {
    let mut queued = queue.pop().unwrap();
    queued.unschedulable_plugins = vec![plugin];
    queue.add_unschedulable(queued, now);
}

fn new_node(line: &str) -> (ClusterEvent, EventObject) {
    let node = Arc::new(node_line(line));
    (ClusterEvent::new(EventResource::Node, ActionType::ADD), EventObject::Node(None, Some(node)))
}

fn names(queue: &mut SchedulingQueue) -> Vec<String> {
    std::iter::from_fn(|| queue.pop()).map(|queued| queued.pod.name().to_owned()).collect()
}

#[test]
fn by_priority_then_by_age() {
    let mut queue = queue();
    for (line, seconds) in [("b", 2), ("a", 1), ("c prio=5", 3), ("d prio=-1", 0), ("e", 2)] {
        queue.add(info(line), at(seconds));
    }
    assert_eq!(names(&mut queue), ["c", "a", "b", "e", "d"]);
}

#[test]
fn what_may_help_and_what_may_not() {
    let mut queue = queue();
    queue.add(info("p cpu=2"), at(0));
    refuse(&mut queue, "NodeResourcesFit", at(0));
    assert_eq!(queue.sizes().unschedulable, 1);

    let (event, small) = new_node("a cpu=1");
    queue.notify(event, &small, at(1), |_| true);
    assert_eq!(queue.sizes().unschedulable, 1, "it would not fit there");

    let (event, large) = new_node("b cpu=4");
    queue.notify(event, &large, at(5), |_| false);
    assert_eq!(queue.sizes().unschedulable, 1, "left out beforehand");
    queue.notify(event, &large, at(5), |_| true);
    assert_eq!(queue.sizes().active, 1, "its time has passed already");
}

#[test]
fn refused_again_and_again() {
    let mut queue = queue();
    queue.add(info("p"), at(0));
    let mut now = 0;
    for wait in [1, 2, 4, 8, 10, 10] {
        refuse(&mut queue, "NodeName", at(now));
        let (event, node) = new_node("a");
        queue.notify(event, &node, at(now), |_| true);
        assert_eq!(queue.sizes().backoff, 1);
        assert_eq!(queue.flush(at(now)), Some(at(now + wait)));
        now += wait;
        queue.flush(at(now));
        assert_eq!(queue.sizes().active, 1);
    }
}

#[test]
fn what_happens_meanwhile_is_not_missed() {
    let mut queue = queue();
    queue.add(info("p"), at(0));
    let mut queued = queue.pop().unwrap();
    let (event, node) = new_node("a");
    queue.notify(event, &node, at(0), |_| true);
    queued.unschedulable_plugins = vec!["NodeName"];
    queue.add_unschedulable(queued, at(0));
    assert_eq!((queue.sizes().backoff, queue.sizes().unschedulable), (1, 0));
    assert!(queue.events.is_empty(), "nobody needs them any more");
}

#[test]
fn nobody_waits_forever() {
    let mut queue = queue();
    queue.add(info("p"), at(0));
    refuse(&mut queue, "NodeName", at(0));
    let due = queue.flush(at(1)).unwrap();
    assert!(due > at(300) && due < at(301));
    queue.flush(due);
    assert_eq!(queue.sizes().active, 1);
}

#[test]
fn gates() {
    let mut queue = queue();
    let gated = info("p yaml:schedulingGates: [{name: a}, {name: b}]");
    queue.add(Arc::clone(&gated), at(0));
    assert_eq!(queue.sizes().gated, 1);
    assert_eq!(queue.get(&gated.uid).unwrap().gate, "waiting for scheduling gates: [a b]");
    assert!(queue.pop().is_none());
    queue.update(Some(&gated), info("p yaml:schedulingGates: [{name: a}]"), at(1));
    assert_eq!(queue.sizes().gated, 1);
    queue.update(Some(&gated), info("p"), at(2));
    assert_eq!(queue.sizes().active, 1);
}

#[test]
fn what_is_missing_is_not_an_attempt() {
    let mut queue = queue();
    queue.add(info("p"), at(0));
    let queued = queue.pop().unwrap();
    queue.add_gated(queued, &Status::gated("no claim yet").by("DynamicResources"));
    assert_eq!((queue.sizes().gated, queue.get(&info("p").uid).unwrap().attempts), (1, 0));
    let (event, node) = new_node("a");
    queue.notify(event, &node, at(0), |_| true);
    assert_eq!(queue.sizes().active, 1, "nobody makes it wait once it is there");
}

#[test]
fn errors_wait_their_time() {
    let mut queue = queue();
    queue.add(info("p"), at(0));
    let queued = queue.pop().unwrap();
    queue.add_unschedulable(queued, at(0));
    assert_eq!(queue.sizes().backoff, 1);
    assert!(queue.pop().is_none(), "the next try would break as well");
    queue.flush(at(1));
    assert!(queue.pop().is_some());
}

#[test]
fn held_until_all_are_told_to_go() {
    let mut queue = queue();
    let pod = info("p cpu=2");
    queue.add(Arc::clone(&pod), at(0));
    let mut queued = queue.pop().unwrap();
    queue.hold(&pod.uid);
    queued.unschedulable_plugins = vec!["NodeResourcesFit"];
    queue.add_unschedulable(queued, at(0));
    let gone = EventObject::Pod(Some(info("victim cpu=1 on=a")), None);
    let event = ClusterEvent::new(EventResource::Pod, ActionType::DELETE);
    queue.notify(event, &gone, at(0), |_| true);
    assert_eq!((queue.sizes().gated, queue.sizes().backoff), (1, 0), "the first of several is gone");
    assert!(queue.pop().is_none());
    queue.release(&pod.uid);
    assert_eq!(queue.pop().unwrap().pod.name(), "p", "and it need not wait any longer");
}

#[test]
fn a_failed_eviction_is_not_missed() {
    let mut queue = queue();
    let pod = info("p cpu=2");
    queue.add(Arc::clone(&pod), at(0));
    let mut queued = queue.pop().unwrap();
    queue.hold(&pod.uid);
    queue.release(&pod.uid);
    queue.activate(&pod.uid);
    queued.unschedulable_plugins = vec!["NodeResourcesFit"];
    queue.add_unschedulable(queued, at(0));
    assert_eq!(queue.sizes().backoff, 1, "nothing else will happen that could help");
}

#[test]
fn only_what_concerns_somebody_is_looked_at() {
    let mut queue = queue();
    queue.add(info("p cpu=2"), at(0));
    assert!(!queue.concerns(new_node("a").0));
    refuse(&mut queue, "NodeResourcesFit", at(0));
    assert!(queue.concerns(new_node("a").0));
    assert!(!queue.concerns(ClusterEvent::new(EventResource::PersistentVolume, ActionType::ADD)));
    queue.remove(&info("p").uid);
    assert!(!queue.concerns(new_node("a").0));
}

proptest! {
    /// No pod is forgotten: whatever happens in whatever order, each is somewhere exactly once, and all come out when
    /// everything is tried again.
    #[test]
    fn none_is_forgotten(steps in prop::collection::vec((0..6u8, 0..5usize), 1..80)) {
        let mut queue = queue();
        let mut known = BTreeSet::new();
        let mut flying: Vec<QueuedPod> = Vec::new();
        for (now, (step, which)) in steps.into_iter().enumerate() {
            let now = at(now as u64);
            match step {
                0 | 1 => {
                    queue.add(info(&format!("p{which} prio={which}")), now);
                    known.insert(format!("p{which}"));
                }
                2 => flying.extend(queue.pop()),
                3 if !flying.is_empty() => {
                    let mut queued = flying.swap_remove(which % flying.len());
                    queued.unschedulable_plugins = vec!["NodeName"];
                    queue.add_unschedulable(queued, now);
                }
                4 => {
                    let (event, node) = new_node("a");
                    queue.notify(event, &node, now, |_| true);
                }
                _ => drop(queue.flush(now)),
            }
            let sizes = queue.sizes();
            prop_assert_eq!(sizes.active + sizes.backoff + sizes.unschedulable + sizes.in_flight, known.len());
            prop_assert_eq!(sizes.in_flight, flying.len());
        }
        for queued in flying {
            queue.add_unschedulable(queued, at(100));
        }
        queue.flush(at(1000));
        queue.flush(at(2000));
        prop_assert_eq!(names(&mut queue).into_iter().collect::<BTreeSet<_>>(), known);
    }
}
