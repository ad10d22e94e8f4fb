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
