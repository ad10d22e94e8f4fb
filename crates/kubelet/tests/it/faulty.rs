//! A runtime that fails at first to tell what is left over and to stop what it is told to, and never gets an image:
//! processes all the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use capstan_api::options::DeleteOptions;
use capstan_kubelet::{
    lifecycle::Exit,
    runtime::{
        Answer, ContainerConfig, ContainerRecord, ContainerStats, ExecConfig, ImageRequest, LeftOver, Limits, Runtime,
        RuntimeError, Sandbox, SandboxConfig, Streaming,
    },
};
use serde_json::json;
use tokio::net::TcpStream;

use crate::world::{World, directory, processes, ready};

#[derive(Debug)]
struct Faulty {
    inner: Arc<dyn Runtime>,
    /// How often containers and sandboxes were to be stopped.
    stops: [AtomicUsize; 2],
    /// How often it was asked what is left over.
    asked: AtomicUsize,
    /// Whether that was ended.
    ended: AtomicBool,
}

impl Faulty {
    /// What comes of stopping: the first time of a kind it fails.
    fn stop<'a>(&'a self, kind: usize, inner: Answer<'a, ()>) -> Answer<'a, ()> {
        if self.stops[kind].fetch_add(1, Ordering::SeqCst) == 0 {
            return Box::pin(async { Err(RuntimeError::Failed("the engine is being restarted".to_owned())) });
        }
        inner
    }
}

impl Runtime for Faulty {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn version(&self) -> String {
        self.inner.version()
    }
    fn shares_host_network(&self) -> bool {
        true
    }
    fn rotates_logs(&self) -> bool {
        true
    }
    fn ready(&self) -> Answer<'_, ()> {
        self.inner.ready()
    }
    fn image_status<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, Option<String>> {
        self.inner.image_status(image)
    }
    fn pull<'a>(&'a self, _: &'a ImageRequest) -> Answer<'a, String> {
        Box::pin(std::future::pending())
    }
    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Answer<'a, Sandbox> {
        self.inner.run_sandbox(config)
    }
    fn stop_sandbox<'a>(&'a self, sandbox: &'a str) -> Answer<'a, ()> {
        if sandbox == "left" {
            self.ended.store(true, Ordering::SeqCst);
            return Box::pin(async { Ok(()) });
        }
        self.stop(0, self.inner.stop_sandbox(sandbox))
    }
    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        pod: &'a SandboxConfig,
        config: &'a ContainerConfig,
    ) -> Answer<'a, String> {
        self.inner.create_container(sandbox, pod, config)
    }
    fn start_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        self.inner.start_container(id)
    }
    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Answer<'a, ()> {
        self.stop(1, self.inner.stop_container(id, grace))
    }
    fn remove_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        self.inner.remove_container(id)
    }
    fn wait<'a>(&'a self, id: &'a str) -> Answer<'a, Exit> {
        self.inner.wait(id)
    }
    fn update_limits<'a>(&'a self, id: &'a str, limits: &'a Limits) -> Answer<'a, ()> {
        self.inner.update_limits(id, limits)
    }
    fn left_over(&self) -> Answer<'_, Vec<LeftOver>> {
        let first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        let sandbox = Sandbox { id: "left".to_owned(), ips: Vec::new() };
        let left = LeftOver { pod_uid: "gone".to_owned(), sandbox, ..LeftOver::default() };
        let failed = RuntimeError::Failed("the engine is being restarted".to_owned());
        Box::pin(async move { if first { Err(failed) } else { Ok(vec![left]) } })
    }
    fn containers(&self) -> Answer<'_, Vec<ContainerRecord>> {
        self.inner.containers()
    }
    fn reopen_log<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        self.inner.reopen_log(id)
    }
    fn exec<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming> {
        self.inner.exec(id, config)
    }
    fn exec_sync<'a>(&'a self, id: &'a str, command: &'a [String], timeout: Duration) -> Answer<'a, (Exit, Vec<u8>)> {
        self.inner.exec_sync(id, command, timeout)
    }
    fn attach<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming> {
        self.inner.attach(id, config)
    }
    fn port_forward<'a>(&'a self, sandbox: &'a str, port: u16) -> Answer<'a, TcpStream> {
        self.inner.port_forward(sandbox, port)
    }
    fn stats(&self) -> Answer<'_, Vec<ContainerStats>> {
        self.inner.stats()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_stopped_is_stopped_later_and_nobody_waits_for_an_image_in_vain() {
    let dir = directory("faulty");
    let Some(inner) = processes(&dir).await else { return };
    let runtime = Arc::new(Faulty {
        inner,
        stops: Default::default(),
        asked: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
    });
    let world = World::with(dir, runtime.clone()).await;
    let spec = |policy: &str| {
        json!({"automountServiceAccountToken": false, "terminationGracePeriodSeconds": 600, "containers": [{"name": "c",
            "image": "busybox", "imagePullPolicy": policy, "command": ["sleep", "1000"]}]})
    };
    world.create("stubborn", spec("IfNotPresent")).await;
    world.until("stubborn", ready).await;
    assert!(runtime.ended.load(Ordering::SeqCst), "nothing is started before it is known what runs already");
    let now = DeleteOptions { grace_period_seconds: Some(1), ..DeleteOptions::default() };
    world.pods().delete("stubborn", &now).await.unwrap();
    // Its image never comes; still it ends at once, not after its grace period.
    world.create("pulling", spec("Always")).await;
    world.event("pulling", "Pulling").await;
    world.pods().delete("pulling", &DeleteOptions::default()).await.unwrap();
    world.until_gone("pulling").await;
    let said = world.event("stubborn", "FailedKillPod").await;
    assert_eq!(said, "error killing pod: the engine is being restarted");
    world.until_gone("stubborn").await;
    assert!(runtime.containers().await.unwrap().is_empty());
    world.end().await;
}
