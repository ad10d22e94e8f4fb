//! Whether a node is heard of. Pure.

use std::time::Duration;

use capstan_clock::{Moment, Timestamp};
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};

/// How long a node that has told its status may be silent.
const MONITOR_GRACE_PERIOD: Duration = Duration::from_secs(50);

/// How long a new node may take to tell its status.
const STARTUP_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// What is unknown of a node that is not heard of.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// What was last heard of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Health {
    /// When this loop last heard of it, whatever the date was: dates jump.
    heard: Moment,
    /// How long it had been silent then.
    silent: Duration,
    ready: Option<NodeCondition>,
    renewed: Option<Timestamp>,
}

impl Health {
    /// It is heard of.
    pub(super) fn hear(&mut self, moment: Moment) {
        (self.heard, self.silent) = (moment, Duration::ZERO);
    }
}

/// What a look at a node shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// The status of `Ready` as the node had it.
    pub(super) before: String,
    /// The status of `Ready` as it is now, if there is one.
    pub(super) ready: Option<String>,
    /// The conditions to write, if the node is to say something else.
    pub(super) conditions: Option<Vec<NodeCondition>>,
}

fn conditions(node: &Node) -> &[NodeCondition] {
    node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

pub(super) fn ready(node: &Node) -> Option<&NodeCondition> {
    conditions(node).iter().find(|condition| condition.type_ == "Ready")
}

/// Looks at a node and the time at which it last renewed its lease.
pub(super) fn look(
    health: &mut Option<Health>,
    node: &Node,
    renewed: Option<Timestamp>,
    now: Timestamp,
    moment: Moment,
) -> Seen {
    let current = ready(node);
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let grace = if current.is_some() { MONITOR_GRACE_PERIOD } else { STARTUP_GRACE_PERIOD };
    let age = || Duration::try_from(now.duration_since(created)).unwrap_or_default();
    let silent = || if current.is_some() { Duration::ZERO } else { age() };
    let new = || Health { heard: moment, silent: silent(), ready: current.cloned(), renewed: None };
    let health = health.get_or_insert_with(new);
    let beat = |condition: Option<&NodeCondition>| condition.map(|condition| condition.last_heartbeat_time.clone());
    if beat(health.ready.as_ref()) != beat(current) {
        health.hear(moment);
    }
    health.ready = current.cloned();
    // Any change is a sign of life, also one to an earlier date.
    if renewed.is_some() && health.renewed != renewed {
        health.renewed = renewed;
        health.hear(moment);
    }
    let before = current.map_or("Unknown", |condition| &condition.status).to_owned();
    if moment.since(health.heard).saturating_add(health.silent) <= grace {
        return Seen { before, ready: current.map(|condition| condition.status.clone()), conditions: None };
    }
    let unknown = unknown(conditions(node), created, now);
    let said = unknown.iter().find(|condition| condition.type_ == "Ready");
    // What other conditions say is not worth a write by itself.
    let conditions = (said != current).then(|| unknown.clone());
    if conditions.is_some() {
        health.ready = said.cloned();
    }
    Seen { before, ready: Some("Unknown".to_owned()), conditions }
}

fn unknown(conditions: &[NodeCondition], created: Timestamp, now: Timestamp) -> Vec<NodeCondition> {
    let mut conditions = conditions.to_vec();
    for type_ in CONDITIONS {
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            None => conditions.push(NodeCondition {
                type_: type_.to_owned(),
                status: "Unknown".to_owned(),
                reason: Some("NodeStatusNeverUpdated".to_owned()),
                message: Some("Kubelet never posted node status.".to_owned()),
                last_heartbeat_time: Some(Time(created)),
                last_transition_time: Some(Time(now)),
            }),
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".to_owned();
                condition.reason = Some("NodeStatusUnknown".to_owned());
                condition.message = Some("Kubelet stopped posting node status.".to_owned());
                condition.last_transition_time = Some(Time(now));
            }
            Some(_) => {}
        }
    }
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: u32) -> Timestamp {
        format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60).parse().unwrap()
    }

    /// Looks, each as `now [b<heartbeat> [status]] [r<renewed>]`, and what is expected of it.
    fn check(looks: &[(&str, &str)]) {
        let mut health = None;
        for (look_, expected) in looks {
            let mut words = look_.split(' ');
            let now: u32 = words.next().unwrap().parse().unwrap();
            let moment = Moment(Duration::from_secs(now.into()));
            let (mut node, mut renewed) = (json!({"metadata": {"creationTimestamp": at(0).to_string()}}), None);
            for word in words {
                match (word.as_bytes()[0], &word[1..]) {
                    (b'b', beat) => {
                        let beat = at(beat.parse().unwrap()).to_string();
                        node["status"] = json!({"conditions": [
                            {"type": "Ready", "status": "True", "lastHeartbeatTime": beat}
                        ]});
                    }
                    (b's', status) => node["status"]["conditions"][0]["status"] = json!(status),
                    (_, second) => renewed = Some(at(second.parse().unwrap())),
                }
            }
            let seen = look(&mut health, &serde_json::from_value(node).unwrap(), renewed, at(now), moment);
            let writes = seen.conditions.iter().flatten();
            let writes: Vec<_> = writes.map(|condition| condition.reason.clone().unwrap_or_default()).collect();
            let found = format!("{} {} {}", seen.before, seen.ready.unwrap_or_default(), writes.join(","));
            assert_eq!(found.trim_end(), *expected, "{look_} of {looks:?}");
        }
    }

    #[test]
    fn silence() {
        let never = "NodeStatusNeverUpdated";
        let gone = format!("True Unknown NodeStatusUnknown,{never},{never},{never}");
        // By the status alone.
        check(&[
            ("10 b10", "True True"),
            ("60 b10", "True True"),
            ("61 b10", &gone),
            ("65 b10 sUnknown", "Unknown Unknown"),
        ]);
        check(&[("10 b10", "True True"), ("60 b20", "True True"), ("110 b20", "True True"), ("111 b20", &gone)]);
        // The lease speaks for the node.
        check(&[
            ("10 b10 r10", "True True"),
            ("50 b10 r49", "True True"),
            ("100 b10 r49", "True True"),
            ("101 b10 r49", &gone),
        ]);
        // It comes back.
        check(&[("10 b10", "True True"), ("61 b10", &gone), ("70 b69", "True True")]);
        // It never said a word.
        let all = [never; 4].join(",");
        check(&[("10", "Unknown"), ("60", "Unknown"), ("61", &format!("Unknown Unknown {all}"))]);
        // Who begins to watch late gives it time.
        check(&[("300 b10", "True True"), ("350 b10", "True True"), ("351 b10", &gone)]);
    }
}
