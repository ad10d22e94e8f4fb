//! Lives of pods as traces: what is asked for, in which order, when, and what the status says meanwhile.

mod order;

use std::{fmt::Write as _, sync::Arc, time::Duration};

use capstan_clock::{Clock, ManualClock};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use serde_json::{Value, json};

use super::{Action, Exit, Input, Lifecycle, Outcome, ProbeKind, StartFailure};

/// What comes of starting a container of a name.
type Starts = dyn Fn(&str) -> Option<StartFailure>;

/// A pod with a machine, a clock, and a driver that does at once what it is asked for.
struct Play {
    life: Lifecycle,
    clock: ManualClock,
    trace: String,
    /// What is answered when a container of that name is to be started.
    start: Box<Starts>,
    /// What a probe is answered.
    probe: Box<dyn Fn(ProbeKind, u64) -> Outcome>,
    /// Exit codes by container, for those that end as soon as they have started.
    ends: Vec<(&'static str, i32)>,
    ids: u32,
    refuses_resize: bool,
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1},
        "spec": spec,
    }))
    .unwrap()
}

impl Play {
    fn new(spec: Value) -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let life = Lifecycle::new(Arc::new(pod(spec)), vec!["192.0.2.1".into()], clock.now());
        Play {
            life,
            clock,
            trace: String::new(),
            start: Box::new(|_| None),
            probe: Box::new(|_, _| Outcome::Success),
            ends: Vec::new(),
            ids: 0,
            refuses_resize: false,
        }
    }

    fn name(&self, container: usize) -> String {
        self.life.container(container).unwrap().name.clone()
    }

    fn index(&self, name: &str) -> usize {
        (0..).find(|&index| self.name(index) == name).unwrap()
    }

    fn id(&self, container: usize) -> String {
        self.life.running().find(|(index, _)| *index == container).unwrap().1.to_owned()
    }

    fn tell(&mut self, input: Input) {
        let actions = self.life.handle(input, self.clock.now());
        actions.into_iter().for_each(|action| self.act(action));
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let actions = self.life.next(self.clock.now());
            if actions.is_empty() {
                return;
            }
            actions.into_iter().for_each(|action| self.act(action));
        }
    }

    fn note(&mut self, line: &str) {
        let at = self.clock.monotonic().0.as_secs();
        writeln!(self.trace, "{at} {line}").unwrap();
    }

    fn act(&mut self, action: Action) {
        let now = self.clock.now();
        let inputs = match action {
            Action::Prepare => vec![Input::Prepared],
            Action::CreateSandbox => vec![Input::SandboxReady { ips: vec!["10.1.2.3".into()] }],
            Action::StopSandbox => {
                self.note("stop sandbox");
                vec![Input::SandboxStopped]
            }
            Action::Start { container, attempt } => {
                let name = self.name(container);
                self.note(&format!("start {name} {attempt}"));
                if let Some(failure) = (self.start)(&name) {
                    vec![Input::StartFailed { container, failure }]
                } else {
                    self.ids += 1;
                    let id = format!("c://{}", self.ids);
                    let hook = self.life.container(container).unwrap().lifecycle.is_some();
                    let started = Input::Started { container, id: id.clone(), image_id: "i".into(), hook };
                    let end = self.ends.iter().find(|(ends, _)| *ends == name);
                    let exit = end.map(|(_, code)| Exit { code: *code, ..Exit::default() });
                    std::iter::once(started).chain(exit.map(|exit| Input::Exited { container, id, exit })).collect()
                }
            }
            Action::Resize { container, id } => {
                self.note(&format!("resize {}", self.name(container)));
                let failure = self.refuses_resize.then(|| "no".to_owned());
                vec![Input::Resized { container, id, failure }]
            }
            Action::Kill { container, grace, .. } => {
                self.note(&format!("kill {} {}s", self.name(container), grace.as_secs()));
                Vec::new()
            }
            Action::Probe { container, id, kind } => {
                let at = self.clock.monotonic().0.as_secs();
                vec![Input::Probed { container, id, kind, outcome: (self.probe)(kind, at) }]
            }
            Action::Event { reason, message, .. } => {
                self.note(&format!("{reason}: {message}"));
                Vec::new()
            }
        };
        for input in inputs {
            for action in self.life.handle(input, now) {
                self.act(action);
            }
        }
    }

    fn exit(&mut self, name: &str, code: i32) {
        let container = self.index(name);
        let id = self.id(container);
        self.tell(Input::Exited { container, id, exit: Exit { code, ..Exit::default() } });
    }

    /// Lets time go by, stopping at every deadline on the way.
    fn wait(&mut self, seconds: u64) {
        let end = self.clock.monotonic().0 + Duration::from_secs(seconds);
        loop {
            let now = self.clock.now();
            let left = end.saturating_sub(self.clock.monotonic().0);
            match self.life.deadline().map(|at| super::since(at, now)) {
                Some(step) if step <= left => {
                    self.clock.advance(step.max(Duration::from_millis(1)));
                    self.settle();
                }
                _ => {
                    self.clock.advance(left);
                    return;
                }
            }
        }
    }

    fn delete(&mut self, grace: i64) {
        let mut pod = (**self.life.pod()).clone();
        pod.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.clock.now()));
        pod.metadata.deletion_grace_period_seconds = Some(grace);
        self.life.update(Arc::new(pod));
        self.settle();
    }

    fn status(&mut self) -> PodStatus {
        self.life.status(self.clock.now())
    }

    /// The phase, the true conditions by their first letters, and each container in a few words.
    fn shows(&mut self) -> String {
        let status = self.status();
        let mut text = status.phase.clone().unwrap();
        if let Some(reason) = &status.reason {
            write!(text, " ({reason})").unwrap();
        }
        let holds = status.conditions.iter().flatten().filter(|c| c.status == "True").map(|c| c.type_.as_str());
        write!(text, " [{}]", holds.collect::<Vec<_>>().join(" ")).unwrap();
        let lists = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
        for c in lists.into_iter().flatten().flatten() {
            let state = c.state.unwrap();
            let word = match (&state.waiting, &state.running, &state.terminated) {
                (Some(waiting), ..) => waiting.reason.clone().unwrap_or_default(),
                (_, Some(_), _) => "run".into(),
                (.., Some(end)) => format!("{}:{}", end.reason.clone().unwrap(), end.exit_code),
                _ => "nothing".into(),
            };
            let ready = if c.ready { "+" } else { "-" };
            write!(text, " {}{ready}{word}/{}", c.name, c.restart_count).unwrap();
        }
        text
    }
}

fn check(got: &str, expected: &str) {
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(got.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_container_that_fails_is_restarted_ever_more_slowly() {
    let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x"}]}));
    assert_eq!(play.shows(), "Pending [Initialized PodScheduled] a-ContainerCreating/0");
    play.ends = vec![("a", 1)];
    play.settle();
    assert_eq!(play.shows(), "Running [PodReadyToStartContainers Initialized PodScheduled] a-CrashLoopBackOff/1");
    let waiting = play.status().container_statuses.unwrap().remove(0).state.unwrap().waiting.unwrap();
    assert_eq!(waiting.message.unwrap(), "back-off 10s restarting failed container=a pod=p_ns(u)");
    play.wait(700);
    check(
        &play.trace,
        "0 start a 0
         0 start a 1
         0 BackOff: Back-off restarting failed container a in pod p_ns(u)
         10 start a 2
         10 BackOff: Back-off restarting failed container a in pod p_ns(u)
         30 start a 3
         30 BackOff: Back-off restarting failed container a in pod p_ns(u)
         70 start a 4
         70 BackOff: Back-off restarting failed container a in pod p_ns(u)
         150 start a 5
         150 BackOff: Back-off restarting failed container a in pod p_ns(u)
         310 start a 6
         310 BackOff: Back-off restarting failed container a in pod p_ns(u)
         610 start a 7
         610 BackOff: Back-off restarting failed container a in pod p_ns(u)",
    );
}

#[test]
fn health_for_ten_minutes_is_forgiveness() {
    let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x"}]}));
    play.settle();
    for (healthy, waits, line) in [(1, 0, "1 start a 1"), (2, 10, "13 start a 2"), (602, 0, "615 start a 3")] {
        play.wait(healthy);
        play.trace.clear();
        play.exit("a", 0);
        play.wait(waits);
        assert_eq!(play.trace.lines().find(|l| l.contains("start a")).unwrap_or_default(), line);
    }
}

#[test]
fn restart_policies() {
    // Pod's policy, container's policy, exit code, phase afterwards, restarted?
    let cases = [
        ("Never", None, 0, "Succeeded", false),
        ("Never", None, 3, "Failed", false),
        ("OnFailure", None, 0, "Succeeded", false),
        ("OnFailure", None, 3, "Running", true),
        ("Always", None, 0, "Running", true),
        ("Never", Some("Always"), 0, "Running", true),
        ("Always", Some("Never"), 1, "Failed", false),
        ("Always", Some("OnFailure"), 0, "Succeeded", false),
    ];
    for (policy, own, code, phase, again) in cases {
        let mut container = json!({"name": "a", "image": "x"});
        if let Some(own) = own {
            container["restartPolicy"] = json!(own);
        }
        let mut play = Play::new(json!({"restartPolicy": policy, "containers": [container]}));
        play.settle();
        play.exit("a", code);
        let case = format!("{policy} {own:?} {code}");
        assert_eq!(play.status().phase.as_deref(), Some(phase), "{case}");
        assert_eq!(play.trace.contains("start a 1"), again, "{case}");
        assert_eq!(play.life.finished(), !again, "{case}");
    }
    let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
    let container = json!({"name": "a", "image": "x", "restartPolicy": "Never", "restartPolicyRules": rules});
    for (code, again) in [(42, true), (1, false)] {
        let mut play = Play::new(json!({"restartPolicy": "Never", "containers": [container]}));
        play.settle();
        play.exit("a", code);
        assert_eq!(play.trace.contains("start a 1"), again, "{code}");
    }
}

#[test]
fn init_containers_run_in_order_and_sidecars_stay() {
    let mut play = Play::new(json!({
        "restartPolicy": "Never",
        "initContainers": [
            {"name": "i1", "image": "x"},
            {"name": "s", "image": "x", "restartPolicy": "Always",
             "startupProbe": {"periodSeconds": 1, "failureThreshold": 9}},
            {"name": "i2", "image": "x"}],
        "containers": [{"name": "a", "image": "x"}]}));
    play.probe = Box::new(|_, at| if at < 2 { Outcome::Failure("no".into()) } else { Outcome::Success });
    play.settle();
    assert_eq!(
        play.shows(),
        "Pending [PodReadyToStartContainers PodScheduled] i1-run/0 s-PodInitializing/0 i2-PodInitializing/0 \
         a-PodInitializing/0"
    );
    let message = play.status().conditions.unwrap().into_iter().find(|c| c.type_ == "Initialized").unwrap().message;
    assert_eq!(message.unwrap(), "containers with incomplete status: [i1 s i2]");
    play.exit("i1", 0);
    play.wait(3);
    play.exit("i2", 0);
    assert_eq!(
        play.shows(),
        "Running [PodReadyToStartContainers Initialized Ready ContainersReady PodScheduled] i1+Completed:0/0 s+run/0 \
         i2+Completed:0/0 a+run/0"
    );
    play.exit("a", 0);
    play.exit("s", 143);
    assert_eq!(
        play.shows(),
        "Succeeded [Initialized PodScheduled] i1+Completed:0/0 s-Error:143/0 i2+Completed:0/0 a-Completed:0/0"
    );
    check(
        &play.trace,
        "0 start i1 0
         0 start s 0
         0 Unhealthy: Startup probe failed: no
         1 Unhealthy: Startup probe failed: no
         2 start i2 0
         3 start a 0
         3 Killing: Stopping container s
         3 kill s 30s
         3 stop sandbox",
    );
}

#[test]
fn a_failed_init_container_fails_a_pod_that_never_restarts() {
    let mut play = Play::new(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "i", "image": "x"}], "containers": [{"name": "a", "image": "x"}]}));
    play.settle();
    play.exit("i", 7);
    assert_eq!(play.shows(), "Failed [PodScheduled] i-Error:7/0 a-ContainerStatusUnknown:137/0");
}

#[test]
fn deletion_ends_sidecars_last_in_reverse_order() {
    let mut play = Play::new(json!({
        "initContainers": [{"name": "s1", "image": "x", "restartPolicy": "Always"},
                           {"name": "s2", "image": "x", "restartPolicy": "Always"}],
        "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}));
    play.settle();
    play.trace.clear();
    play.delete(10);
    play.wait(1);
    play.exit("a", 143);
    play.exit("b", 0);
    play.wait(3);
    play.exit("s2", 0);
    play.wait(60);
    play.exit("s1", 0);
    assert!(play.life.finished());
    assert_eq!(play.status().phase.as_deref(), Some("Failed"));
    check(
        &play.trace,
        "0 Killing: Stopping container a
         0 kill a 10s
         0 Killing: Stopping container b
         0 kill b 10s
         1 Killing: Stopping container s2
         1 kill s2 9s
         4 Killing: Stopping container s1
         4 kill s1 6s
         64 stop sandbox",
    );
}

#[test]
fn a_second_deletion_can_only_hurry() {
    let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x"}]}));
    play.settle();
    play.trace.clear();
    play.delete(30);
    play.wait(1);
    play.delete(40);
    play.delete(5);
    check(
        &play.trace,
        "0 Killing: Stopping container a
         0 kill a 30s
         1 kill a 5s",
    );
}

#[test]
fn probes_count_in_a_row() {
    let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x",
        "livenessProbe": {"initialDelaySeconds": 5, "periodSeconds": 10, "failureThreshold": 2,
                          "terminationGracePeriodSeconds": 3},
        "readinessProbe": {"periodSeconds": 4, "successThreshold": 2}}]}));
    play.probe = Box::new(|kind, at| match kind {
        ProbeKind::Liveness if at > 10 => Outcome::Failure("dead".into()),
        ProbeKind::Readiness if at == 0 => Outcome::Error("who?".into()),
        _ => Outcome::Success,
    });
    play.settle();
    assert!(play.shows().ends_with("a-run/0"));
    play.wait(4);
    assert!(play.shows().ends_with("a-run/0"), "one success of two");
    play.wait(4);
    assert!(play.shows().ends_with("a+run/0"));
    play.wait(20);
    check(
        &play.trace,
        "0 start a 0
         0 Unhealthy: Readiness probe errored and resulted in unknown state: who?
         15 Unhealthy: Liveness probe failed: dead
         25 Unhealthy: Liveness probe failed: dead
         25 Killing: Container a failed liveness probe, will be restarted
         25 kill a 3s",
    );
    play.exit("a", 137);
    assert!(play.trace.ends_with("start a 1\n"), "{}", play.trace);
}

#[test]
fn what_cannot_be_started_says_why() {
    let cases = [
        (StartFailure::InvalidImageName("m".into()), "a-InvalidImageName/0"),
        (StartFailure::NeverPull("m".into()), "a-ErrImageNeverPull/0"),
        (StartFailure::Pull("m".into()), "a-ErrImagePull/0"),
        (StartFailure::Config("m".into()), "a-CreateContainerConfigError/0"),
        (StartFailure::Create("m".into()), "a-CreateContainerError/0"),
        (StartFailure::Run("m".into()), "a-CrashLoopBackOff/1"),
    ];
    for (failure, shows) in cases {
        let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x"}]}));
        play.start = Box::new(move |_| Some(failure.clone()));
        play.settle();
        assert!(play.shows().ends_with(shows), "{} should end with {shows}", play.shows());
    }
}

#[test]
fn pulling_backs_off_and_then_succeeds() {
    let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x"}]}));
    play.start = Box::new(|_| Some(StartFailure::Pull("no such image".into())));
    play.settle();
    play.wait(3);
    let waiting = play.status().container_statuses.unwrap().remove(0).state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.unwrap(), "ImagePullBackOff");
    assert_eq!(waiting.message.unwrap(), "Back-off pulling image \"x\": ErrImagePull: no such image");
    play.wait(10);
    play.start = Box::new(|_| None);
    play.wait(30);
    assert!(play.shows().ends_with("a+run/0"));
    check(
        &play.trace,
        "0 start a 0
         2 BackOff: Back-off pulling image \"x\"
         10 start a 0
         12 BackOff: Back-off pulling image \"x\"
         30 start a 0",
    );
}

#[test]
fn a_pod_may_run_only_so_long() {
    let mut play = Play::new(json!({"activeDeadlineSeconds": 5, "containers": [{"name": "a", "image": "x"}]}));
    play.settle();
    play.wait(6);
    play.exit("a", 143);
    assert!(play.shows().starts_with("Failed (DeadlineExceeded)"), "{}", play.shows());
    let message = play.status().message.unwrap();
    assert_eq!(message, "Pod was active on the node longer than the specified deadline");
}

#[test]
fn gates_of_others_keep_a_pod_from_being_ready() {
    let mut play = Play::new(json!({"readinessGates": [{"conditionType": "ex.com/lb"}],
        "containers": [{"name": "a", "image": "x"}]}));
    play.settle();
    let of = |play: &mut Play| play.status().conditions.unwrap().into_iter().find(|c| c.type_ == "Ready").unwrap();
    let ready = of(&mut play);
    assert_eq!(ready.reason.as_deref(), Some("ReadinessGatesNotReady"));
    assert_eq!(
        ready.message.as_deref(),
        Some("corresponding condition of pod readiness gate \"ex.com/lb\" does not exist.")
    );
    let mut pod = (**play.life.pod()).clone();
    let condition = json!({"conditions": [{"type": "ex.com/lb", "status": "True"}]});
    pod.status = Some(serde_json::from_value(condition).unwrap());
    play.life.update(Arc::new(pod));
    assert_eq!(of(&mut play).status, "True");
    assert!(play.shows().contains("ex.com/lb"), "what others wrote is kept");
}

#[test]
fn a_new_image_restarts_the_container_and_a_debugger_may_come_later() {
    let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x"}]}));
    play.settle();
    let mut pod = (**play.life.pod()).clone();
    pod.spec.as_mut().unwrap().containers[0].image = Some("y".into());
    let debugger = json!([{"name": "d", "image": "sh"}]);
    pod.spec.as_mut().unwrap().ephemeral_containers = Some(serde_json::from_value(debugger).unwrap());
    play.life.update(Arc::new(pod));
    play.settle();
    play.exit("a", 0);
    play.exit("d", 1);
    assert!(play.shows().ends_with("a+run/1 d-Error:1/0"), "{}", play.shows());
    check(
        &play.trace,
        "0 start a 0
         0 Killing: Container a definition changed, will be restarted
         0 kill a 30s
         0 start d 0
         0 start a 1",
    );
}

#[test]
fn a_restarted_node_knows_what_ran_before() {
    let mut before = pod(json!({"containers": [{"name": "a", "image": "x"}]}));
    before.status = Some(
        serde_json::from_value(json!({"phase": "Running", "startTime": "2025-12-31T00:00:00Z", "containerStatuses": [
            {"name": "a", "image": "x", "imageID": "i", "ready": true, "restartCount": 4, "containerID": "c://9",
             "state": {"running": {"startedAt": "2025-12-31T00:00:00Z"}}}]}))
        .unwrap(),
    );
    let mut play = Play::new(json!({"containers": []}));
    play.life = Lifecycle::new(Arc::new(before), vec![], play.clock.now());
    play.settle();
    let status = play.status();
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.restart_count, 5);
    let last = container.last_state.clone().unwrap().terminated.unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(status.start_time.unwrap().0.to_string(), "2025-12-31T00:00:00Z");
}

#[test]
fn times_of_conditions_change_only_with_their_status() {
    let mut play = Play::new(json!({"containers": [{"name": "a", "image": "x"}]}));
    let at = |play: &mut Play, kind: &str| {
        let status = play.status();
        status.conditions.unwrap().into_iter().find(|c| c.type_ == kind).unwrap().last_transition_time.unwrap().0
    };
    let scheduled = at(&mut play, "PodScheduled");
    play.clock.advance(Duration::from_secs(5));
    play.settle();
    assert_eq!(at(&mut play, "PodScheduled"), scheduled);
    assert_eq!(at(&mut play, "Ready"), play.clock.now());
}

#[test]
fn resources_change_in_place_or_by_a_new_start() {
    let spec = |cpu: &str, memory: &str| {
        let policy = json!([{"resourceName": "cpu", "restartPolicy": "NotRequired"},
                            {"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        json!({"containers": [{"name": "c", "image": "i", "resizePolicy": policy,
                               "resources": {"requests": {"cpu": cpu, "memory": memory}}}]})
    };
    let mut play = Play::new(spec("1", "1Gi"));
    play.settle();
    let conditions = |play: &mut Play| -> Vec<(String, String)> {
        let status = play.life.status(play.clock.now());
        let all = status.conditions.unwrap().into_iter().filter(|c| c.type_.starts_with("PodResize"));
        all.map(|c| (c.type_, c.reason.unwrap_or_default())).collect()
    };
    let resources = |play: &mut Play| -> Value {
        let status = play.life.status(play.clock.now()).container_statuses.unwrap().remove(0);
        json!([status.resources.unwrap().requests, status.allocated_resources])
    };
    // It is refused at first: what it has stays, and it is tried again.
    play.refuses_resize = true;
    play.life.update(Arc::new(pod(spec("2", "1Gi"))));
    play.settle();
    assert_eq!(conditions(&mut play), [("PodResizeInProgress".into(), "Error".into())]);
    assert_eq!(resources(&mut play), json!([{"cpu": "1", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}]));
    play.refuses_resize = false;
    play.clock.advance(super::SYNC_RETRY);
    play.settle();
    assert!(conditions(&mut play).is_empty());
    assert_eq!(resources(&mut play), json!([{"cpu": "2", "memory": "1Gi"}, {"cpu": "2", "memory": "1Gi"}]));
    // Memory takes a new start.
    play.life.update(Arc::new(pod(spec("2", "2Gi"))));
    play.settle();
    assert_eq!(conditions(&mut play), [("PodResizeInProgress".into(), String::new())]);
    let (container, id) = (0, play.id(0));
    play.tell(Input::Exited { container, id, exit: Exit { code: 143, ..Exit::default() } });
    assert!(conditions(&mut play).is_empty());
    assert_eq!(resources(&mut play)[0], json!({"cpu": "2", "memory": "2Gi"}));
    for line in ["0 resize c", "10 resize c", "Killing: Container c resize requires restart", "kill c 30s", "start c 1"]
    {
        assert!(play.trace.contains(line), "{line:?} is missing in\n{}", play.trace);
    }
}
