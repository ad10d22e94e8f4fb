//! Containers start one after the other, each when the one before is up or can't be.

use serde_json::json;

use super::{Input, Play, StartFailure, check};

#[test]
fn a_container_starts_when_the_hook_of_the_one_before_is_done() {
    let hook = json!({"postStart": {"exec": {"command": ["true"]}}});
    let probe = json!({"tcpSocket": {"port": 1}, "periodSeconds": 1});
    let mut play = Play::new(json!({"containers": [
        {"name": "one", "image": "i", "lifecycle": hook, "readinessProbe": probe},
        {"name": "missing", "image": "i"},
        {"name": "two", "image": "i"},
    ]}));
    play.start = Box::new(|name| (name == "missing").then(|| StartFailure::Pull("no such image".into())));
    play.settle();
    play.wait(5);
    check(&play.trace, "0 start one 0");
    let ready = |play: &mut Play| play.status().container_statuses.unwrap().iter().map(|c| c.ready).collect::<Vec<_>>();
    // By name: missing, one, two.
    assert_eq!(ready(&mut play), [false; 3], "nobody is ready or asked before its hook is done");
    let (container, id) = (play.index("one"), play.id(0));
    play.tell(Input::PostStart { container, id, failure: None });
    check(&play.trace, "0 start one 0\n5 start missing 0\n5 start two 0");
    play.wait(1);
    assert_eq!(ready(&mut play), [false, true, true]);
}

/// One container says by its code that all are to begin anew: with the init containers, at once and in place.
#[test]
fn one_may_restart_all() {
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]);
    let mut play = Play::new(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "init", "image": "i"}],
        "containers": [
            {"name": "watcher", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules},
            {"name": "worker", "image": "i"}]}));
    play.settle();
    play.exit("init", 0);
    let restarting = |play: &mut Play| {
        let conditions = play.status().conditions.unwrap();
        conditions.iter().find(|c| c.type_ == "AllContainersRestarting").unwrap().status.clone()
    };
    assert_eq!(restarting(&mut play), "False");
    play.trace.clear();
    play.exit("watcher", 88);
    check(&play.trace, "0 Killing: killing\n0 kill worker 0s");
    assert_eq!(restarting(&mut play), "True");
    play.trace.clear();
    play.exit("worker", 137);
    check(&play.trace, "0 start init 1");
    let status = play.status();
    assert_ne!(status.phase.as_deref(), Some("Failed"), "{status:?}");
    assert_eq!(restarting(&mut play), "False");
    let worker = &status.container_statuses.as_ref().unwrap()[1];
    let last = worker.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((worker.restart_count, last.reason.as_deref()), (1, Some("RestartingAllContainers")));
    play.exit("init", 0);
    check(&play.trace, "0 start init 1\n0 start watcher 1\n0 start worker 1");
    assert_eq!(play.status().phase.as_deref(), Some("Running"));
    // Any other code is the end.
    play.exit("watcher", 1);
    play.exit("worker", 0);
    assert_eq!(play.status().phase.as_deref(), Some("Failed"));
}
