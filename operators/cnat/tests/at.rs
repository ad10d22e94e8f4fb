//! The operator on the real server in this process, on virtual time. The test plays the node: it says how pods end.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{sync::Arc, time::Duration};

use capstan_api::options::{DeleteOptions, ListOptions};
use capstan_client::{Api, Client, Event::Modified, Patch};
use capstan_clock::{ManualClock, SeededIds};
use capstan_runtime::{
    Stopper,
    operator::{Controller, Manager},
};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use cnat::{At, AtSpec, Cnat, Phase};
use k8s_openapi::{
    api::core::v1::{Container, Event, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

/// How often something is looked at before the test gives up.
const TURNS: usize = 20_000;

struct World {
    client: Client,
    clock: ManualClock,
    operator: Option<Stopper>,
}

impl World {
    async fn new() -> Self {
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let options = Options::with_clock(Arc::new(clock.clone()));
        let config = Config {
            clock: Arc::new(clock.clone()),
            disable_admission: vec!["ServiceAccount".to_owned()],
            ..Config::default()
        };
        let server = Server::start(Arc::new(Memory::new(options)), config).await.unwrap();
        let client = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
        cnat::install(&client).await.unwrap();
        let mut world = World { client, clock, operator: None };
        world.start_operator();
        world
    }

    fn start_operator(&mut self) {
        let (stopper, stop) = Stopper::new();
        let manager = Manager::on_clock(&self.client, Arc::new(self.clock.clone()), Arc::new(SeededIds::new(1)));
        let manager = manager.named("cnat").controller(Controller::new(Cnat).owns::<Pod>());
        tokio::spawn(manager.run_until(stop));
        self.operator = Some(stopper);
    }

    fn ats(&self) -> Api<At> {
        Api::namespaced(&self.client, "default")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(&self.client, "default")
    }

    async fn create(&self, name: &str, schedule: &str) {
        let spec = AtSpec { schedule: schedule.to_owned(), command: Some("echo".to_owned()), ..AtSpec::default() };
        self.ats().create(&At::new(name, spec)).await.unwrap();
    }

    /// Lets little time pass until the `At` is in this phase.
    async fn until(&self, name: &str, phase: Phase) -> At {
        for _ in 0..TURNS {
            let at = self.ats().get(name).await.unwrap();
            if at.status.is_some() && at.phase() == phase {
                return at;
            }
            tokio::task::yield_now().await;
            self.clock.advance(Duration::from_millis(1));
        }
        panic!("{name} is never {phase:?}: {:?}", self.ats().get(name).await.unwrap());
    }

    async fn until_pods(&self, count: usize) -> Vec<Pod> {
        for _ in 0..TURNS {
            let pods = self.pods().list(&ListOptions::default()).await.unwrap().items;
            if pods.len() == count {
                return pods;
            }
            tokio::task::yield_now().await;
            self.clock.advance(Duration::from_millis(1));
        }
        panic!("there are never {count} pods");
    }

    async fn end_pod(&self, name: &str, phase: &str) {
        let patch = serde_json::json!({"status": {"phase": phase}});
        self.pods().patch_status(name, &Patch::Merge(&patch)).await.unwrap();
    }

    async fn reasons(&self, name: &str) -> Vec<String> {
        let events = Api::<Event>::namespaced(&self.client, "default");
        let events = events.list(&ListOptions::default()).await.unwrap().items;
        let of = events.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        of.filter_map(|event| event.reason).collect()
    }
}

#[tokio::test]
async fn runs_once_at_its_time() {
    let world = World::new().await;
    world.create("new-year", "2027-01-01T00:00:00Z").await;
    world.until("new-year", Phase::Pending).await;
    assert!(world.pods().list(&ListOptions::default()).await.unwrap().items.is_empty());

    world.clock.advance(Duration::from_hours(366 * 24));
    world.until("new-year", Phase::Running).await;
    let pods = world.until_pods(1).await;
    let owner = &pods[0].metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.controller), ("At", "new-year", Some(true)));

    world.end_pod("new-year-pod", "Succeeded").await;
    let at = world.until("new-year", Phase::Done).await;
    assert_eq!(at.status.unwrap().pod.as_deref(), Some("new-year-pod"));
    for _ in 0..1000 {
        if world.reasons("new-year").await.len() == 3 {
            break;
        }
        tokio::task::yield_now().await;
        world.clock.advance(Duration::from_millis(10));
    }
    let mut reasons = world.reasons("new-year").await;
    reasons.sort();
    // Events live for an hour: that it was scheduled is long forgotten.
    assert_eq!(reasons, ["Done", "Due", "Started"]);
}

#[tokio::test]
async fn a_time_that_has_passed_means_at_once_and_only_once() {
    let mut world = World::new().await;
    world.create("late", "2020-01-01T00:00:00Z").await;
    world.until("late", Phase::Running).await;
    world.until_pods(1).await;
    // The operator goes and comes again: there is still one pod.
    world.operator = None;
    world.start_operator();
    world.end_pod("late-pod", "Failed").await;
    let at = world.until("late", Phase::Done).await;
    assert_eq!(at.status.unwrap().message.as_deref(), Some("its pod has failed"));
    assert_eq!(world.until_pods(1).await.len(), 1);
}

#[tokio::test]
async fn a_pod_that_is_taken_away_does_not_run_again() {
    let world = World::new().await;
    world.create("lost", "2020-01-01T00:00:00Z").await;
    world.until_pods(1).await;
    let status_has_pod = async {
        while world.ats().get("lost").await.unwrap().status.and_then(|status| status.pod).is_none() {
            tokio::task::yield_now().await;
            world.clock.advance(Duration::from_millis(1));
        }
    };
    status_has_pod.await;
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    world.pods().delete("lost-pod", &now).await.unwrap();
    world.until("lost", Phase::Done).await;
    assert!(world.pods().list(&ListOptions::default()).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let world = World::new().await;
    for (spec, expected) in [
        (AtSpec { schedule: "soon".into(), command: Some("echo".into()), ..AtSpec::default() }, "spec.schedule"),
        (
            AtSpec { schedule: "2027-01-01T00:00:00Z".into(), ..AtSpec::default() },
            "exactly one of command and containers",
        ),
    ] {
        let error = world.ats().create(&At::new("wrong", spec)).await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn whoever_watches_sees_every_phase() {
    let world = World::new().await;
    let mut watch = world.ats().watch(&ListOptions::default()).await.unwrap();
    world.create("seen", "2020-01-01T00:00:00Z").await;
    world.until_pods(1).await;
    world.end_pod("seen-pod", "Succeeded").await;
    world.until("seen", Phase::Done).await;
    let mut phases = Vec::new();
    while phases.last() != Some(&Phase::Done) {
        if let Some(Modified(at)) = watch.try_next().await.unwrap() {
            phases.push(at.phase());
        }
    }
    phases.dedup();
    assert_eq!(phases, [Phase::Pending, Phase::Running, Phase::Done]);
}

#[tokio::test]
async fn containers_run_as_they_are() {
    let world = World::new().await;
    let container = |name: &str| Container {
        name: name.to_owned(),
        image: Some("busybox".to_owned()),
        args: Some(vec!["true".to_owned()]),
        working_dir: Some("/tmp".to_owned()),
        ..Container::default()
    };
    let containers = Some(vec![container("one"), container("two")]);
    let spec = AtSpec { schedule: "2020-01-01T00:00:00Z".to_owned(), containers, ..AtSpec::default() };
    world.ats().create(&At::new("both", spec)).await.unwrap();
    let pod = world.until_pods(1).await.remove(0).spec.unwrap();
    let found: Vec<_> = pod.containers.iter().map(|c| (c.name.as_str(), c.working_dir.as_deref())).collect();
    assert_eq!(found, [("one", Some("/tmp")), ("two", Some("/tmp"))]);
}

#[tokio::test]
async fn a_schedule_that_slipped_in_is_reported() {
    let world = World::new().await;
    // Somebody else's definition of the kind does not say that it is a time.
    let format = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/schedule/format";
    let patch = serde_json::json!([{"op": "remove", "path": format}]);
    let definitions = Api::<CustomResourceDefinition>::all(&world.client);
    definitions.patch("ats.cnat.programming-kubernetes.info", &Patch::Json(&patch)).await.unwrap();
    let at = async || {
        let spec = AtSpec { schedule: "soon".to_owned(), command: Some("echo".to_owned()), ..AtSpec::default() };
        world.ats().create(&At::new("wrong", spec)).await
    };
    for _ in 0..TURNS {
        match at().await {
            Ok(_) => break,
            // The server has not noticed yet.
            Err(error) => assert!(error.is_invalid(), "{error}"),
        }
        tokio::task::yield_now().await;
        world.clock.advance(Duration::from_millis(1));
    }
    let at = world.until("wrong", Phase::Pending).await;
    let message = at.status.unwrap().message.unwrap();
    assert!(message.starts_with(r#"schedule "soon" is not a time: "#), "{message}");
    assert!(world.pods().list(&ListOptions::default()).await.unwrap().items.is_empty());
}
