//! The process runtime for real: namespaces, files, exit codes, signals, terminals.

use std::{path::Path, sync::Arc, time::Duration};

use capstan_clock::{Ids as _, OsIds, RealClock};
use capstan_kubelet::runtime::{
    ContainerConfig, ExecConfig, ImageRequest, Limits, Mount, Propagation, Runtime, SandboxConfig, Streaming,
    TerminalSize, process::Process,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::world::{Temporary, directory, shim};

struct World {
    runtime: Process,
    dir: Temporary,
    pod: SandboxConfig,
    sandbox: String,
}

impl World {
    /// None where this machine allows no namespaces; the tests then say so and prove nothing.
    async fn new(name: &str) -> Option<Self> {
        let dir = directory(&format!("process-{name}"));
        let ips = vec!["127.0.0.1".to_owned()];
        let clock = Arc::new(RealClock::new());
        let runtime = Process::new(&dir.join("run"), &shim(), ips, clock, Arc::new(OsIds)).await.unwrap();
        if runtime.limitations().iter().any(|text| text.starts_with("no mount namespaces")) {
            eprintln!("skipped: this machine allows no mount namespaces");
            return None;
        }
        let pod = SandboxConfig {
            name: "p".into(),
            uid: OsIds.uid(),
            hostname: "pod-name".into(),
            log_directory: dir.join("logs"),
            ..SandboxConfig::default()
        };
        let sandbox = runtime.run_sandbox(&pod).await.unwrap().id;
        Some(World { runtime, dir, pod, sandbox })
    }

    async fn create(&self, config: ContainerConfig) -> String {
        let config = ContainerConfig { name: "c".into(), log_path: "c/0.log".into(), ..config };
        self.runtime.create_container(&self.sandbox, &self.pod, &config).await.unwrap()
    }

    async fn start(&self, config: ContainerConfig) -> String {
        let id = self.create(config).await;
        self.runtime.start_container(&id).await.unwrap();
        id
    }

    fn log(&self) -> String {
        let text = std::fs::read_to_string(self.dir.join("logs/c/0.log")).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect::<Vec<_>>().join("\n")
    }

    async fn exec(&self, id: &str, script: &str) -> (i32, String) {
        let (exit, output) = self.runtime.exec_sync(id, &sh(script), Duration::from_secs(20)).await.unwrap();
        (exit.code, String::from_utf8(output).unwrap())
    }
}

fn sh(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

fn script(script: &str) -> ContainerConfig {
    ContainerConfig { command: sh(script), ..ContainerConfig::default() }
}

#[tokio::test]
async fn a_container_has_its_own_processes_files_and_name() {
    let Some(world) = World::new("own").await else { return };
    let volume = world.dir.join("volume");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("greeting"), "hello from the volume\n").unwrap();
    let mount = |container_path: &str, read_only| Mount {
        container_path: container_path.into(),
        host_path: volume.clone(),
        read_only,
        ..Mount::default()
    };
    let mut config = script(
        "echo pid $$; hostname; cat /var/run/secrets/it/greeting; touch /var/run/secrets/it/x 2>&1 || echo read-only; \
         touch /data/written; echo $GREETING; touch /etc/capstan-was-here && echo wrote; ls /proc | grep -c '^[0-9]'; \
         test -e /root/.. && exit 7",
    );
    config.env = vec![("GREETING".into(), "from the environment".into())];
    config.mounts = vec![mount("/var/run/secrets/it", true), mount("/data", false)];
    let id = world.start(config).await;
    let exit = world.runtime.wait(&id).await.unwrap();
    let log = world.log();
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(exit.code, 7, "{log}");
    assert_eq!(&lines[..3], ["pid 1", "pod-name", "hello from the volume"], "{log}");
    assert!(lines[3].contains("Read-only") && lines[4] == "read-only", "{log}");
    assert_eq!(&lines[5..7], ["from the environment", "wrote"], "{log}");
    assert!(lines[7].parse::<u32>().unwrap() < 6, "{log}");
    assert!(volume.join("written").exists(), "a volume can be written");
    assert!(!Path::new("/etc/capstan-was-here").exists(), "the node's files cannot");
}

#[tokio::test]
async fn what_the_node_mounts_later_is_seen_where_it_is_asked_for() {
    use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount};
    let Some(world) = World::new("follows").await else { return };
    let volume = world.dir.join("volume");
    std::fs::create_dir_all(volume.join("later")).unwrap();
    let shared = mount_bind(&volume, &volume).and_then(|()| mount_change(&volume, MountPropagationFlags::SHARED));
    if shared.is_err() {
        eprintln!("skipped: this machine does not let us mount");
        return;
    }
    let at = |container_path: &str, propagation| Mount {
        container_path: container_path.into(),
        host_path: volume.clone(),
        propagation,
        ..Mount::default()
    };
    let mut config = script("touch /alone/up; while :; do sleep 0.05; done");
    config.mounts = vec![at("/follows", Propagation::HostToContainer), at("/alone", Propagation::Private)];
    let id = world.start(config).await;
    let later = volume.join("later");
    mount("tmpfs", &later, "tmpfs", MountFlags::empty(), None).unwrap();
    std::fs::write(later.join("file"), "").unwrap();
    let seen = world.exec(&id, "ls /follows/later; ls /alone/later").await;
    world.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    for path in [&later, &volume] {
        unmount(path, UnmountFlags::DETACH).unwrap();
    }
    assert_eq!(seen, (0, "file\n".to_owned()));
    let both = ContainerConfig { mounts: vec![at("/both", Propagation::Bidirectional)], ..script("true") };
    let refused = world.runtime.create_container(&world.sandbox, &world.pod, &both).await.unwrap_err();
    assert!(refused.to_string().contains("no Bidirectional mount propagation"), "{refused}");
}

#[tokio::test]
async fn signals_grace_and_force() {
    let Some(world) = World::new("signals").await else { return };
    let polite = world.start(script("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done")).await;
    while !world.log().contains("up") {
        tokio::task::yield_now().await;
    }
    world.runtime.stop_container(&polite, Duration::from_secs(30)).await.unwrap();
    let exit = world.runtime.wait(&polite).await.unwrap();
    assert_eq!(exit.code, 3);
    assert!(world.log().ends_with("bye"));

    let deaf = world.start(script("trap '' TERM; while :; do sleep 0.05; done")).await;
    world.runtime.stop_container(&deaf, Duration::from_millis(50)).await.unwrap();
    let exit = world.runtime.wait(&deaf).await.unwrap();
    assert_eq!((exit.code, exit.signal), (137, Some(9)));
}

#[tokio::test]
async fn what_cannot_be_started_is_said() {
    let Some(world) = World::new("missing").await else { return };
    let config = ContainerConfig { command: vec!["no-such-program".into()], ..ContainerConfig::default() };
    let id = world.create(config).await;
    let error = world.runtime.start_container(&id).await.unwrap_err().to_string();
    assert!(error.contains("exec: \"no-such-program\": executable file not found in $PATH"), "{error}");

    let image = |image: &str, has_command| ImageRequest { image: image.into(), has_command, ..Default::default() };
    assert!(world.runtime.pull(&image("registry.example/no-such-thing:v1", false)).await.is_err());
    assert!(world.runtime.pull(&image("registry.example/no-such-thing:v1", true)).await.is_ok());
    assert!(world.runtime.pull(&image("busybox", false)).await.is_ok());
}

#[tokio::test]
async fn commands_run_inside() {
    let Some(world) = World::new("exec").await else { return };
    let mut config = script("echo ready; exec sleep 1000");
    config.env = vec![("NAME".into(), "value".into())];
    config.working_dir = "/tmp".into();
    let id = world.start(config).await;
    let (code, out) = world.exec(&id, "pwd; echo $NAME; hostname; tr '\\0' ' ' </proc/1/cmdline; exit 4").await;
    assert_eq!(code, 4, "{out}");
    assert_eq!(out.lines().collect::<Vec<_>>(), ["/tmp", "value", "pod-name", "sleep 1000 "]);
    let slow = world.runtime.exec_sync(&id, &sh("sleep 1000"), Duration::from_millis(100)).await.unwrap_err();
    assert!(slow.to_string().contains("timed out"), "{slow}");
    // What was late is gone, with all that it had begun; so is what the shim was told.
    let slow = sh("sleep 1001 & sleep 1002; true");
    world.runtime.exec_sync(&id, &slow, Duration::from_millis(300)).await.unwrap_err();
    let (_, left) = world.exec(&id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
    assert!(left.contains("sleep 1000") && !left.contains("sleep 1001") && !left.contains("sleep 1002"), "{left}");
    let files = std::fs::read_dir(world.dir.join("run").join(&id)).unwrap();
    let told = files.flatten().filter(|file| file.file_name().to_string_lossy().starts_with("exec-"));
    assert_eq!(told.count(), 0);
    // Who prints more than is kept isn't stopped by that.
    let (code, out) = world.exec(&id, "yes | head -c 100000; exit 6").await;
    assert_eq!((code, out.len()), (6, 16 * 1024));
    let missing = world.runtime.exec_sync(&id, &["nope".to_owned()], Duration::from_secs(5)).await.unwrap();
    assert_eq!(missing.0.code, 127);

    let config =
        ExecConfig { command: sh("cat; echo oops >&2; exit 5"), stdin: true, stdout: true, stderr: true, tty: false };
    let Streaming::Session(mut session) = world.runtime.exec(&id, &config).await.unwrap() else { panic!() };
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"typed").await.unwrap();
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    session.stdout.as_mut().unwrap().read_to_string(&mut out).await.unwrap();
    session.stderr.as_mut().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!((out.as_str(), err.as_str(), session.exit.await.unwrap().code), ("typed", "oops\n", 5));

    let config =
        ExecConfig { command: sh("read size; stty size; tty"), stdin: true, stdout: true, tty: true, stderr: false };
    let Streaming::Session(mut session) = world.runtime.exec(&id, &config).await.unwrap() else { panic!() };
    let resize = session.resize.take().unwrap();
    resize.send(TerminalSize { width: 123, height: 45 }).await.unwrap();
    while resize.capacity() < resize.max_capacity() {
        tokio::task::yield_now().await;
    }
    session.stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
    let mut out = String::new();
    session.stdout.as_mut().unwrap().read_to_string(&mut out).await.unwrap();
    assert!(out.contains("45 123"), "{out:?}");
    world.runtime.stop_sandbox(&world.sandbox).await.unwrap();
    assert!(world.runtime.containers().await.unwrap().is_empty());
}

#[tokio::test]
async fn who_is_attached_sees_and_types() {
    let Some(world) = World::new("attach").await else { return };
    let config = ContainerConfig {
        stdin: true,
        stdin_once: true,
        ..script("while read line; do echo got $line; done; echo over")
    };
    let id = world.start(config).await;
    let config = ExecConfig { stdin: true, stdout: true, stderr: true, ..ExecConfig::default() };
    let Streaming::Session(mut session) = world.runtime.attach(&id, &config).await.unwrap() else { panic!() };
    let mut stdin = session.stdin.take().unwrap();
    stdin.write_all(b"one\ntwo\n").await.unwrap();
    drop(stdin);
    let mut out = String::new();
    session.stdout.as_mut().unwrap().read_to_string(&mut out).await.unwrap();
    assert_eq!(out, "got one\ngot two\nover\n");
    assert_eq!(session.exit.await.unwrap().code, 0);
}

#[tokio::test]
async fn memory_is_limited_where_there_are_cgroups() {
    let Some(world) = World::new("memory").await else { return };
    if world.runtime.limitations().iter().any(|text| text.starts_with("no cgroups")) {
        eprintln!("skipped: this machine allows no cgroups");
        return;
    }
    let mut config = script("head -c 200000000 /dev/zero | tail -c 199999999 >/dev/null; exit 9");
    config.command = ["tail", "/dev/zero"].map(str::to_owned).to_vec();
    config.limits = Limits { memory_bytes: 32 << 20, cpu_limit_milli: 900, cpu_request_milli: 100, oom_score_adj: 0 };
    let id = world.start(config).await;
    let exit = world.runtime.wait(&id).await.unwrap();
    assert!(exit.oom_killed, "{exit:?}");
    assert_eq!(exit.code, 137);
}
