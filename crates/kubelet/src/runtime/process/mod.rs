//! Containers without a container engine: the command runs on this machine, in namespaces of its own, over the node's
//! files, which it can't change.
//!
//! There are no images: what an image's name says is taken for the name of a program, and needed only by containers
//! that don't say themselves what to run. A container lives as long as this process: when the node ends, however it
//! ends, its containers end. What can't be kept apart is told by [`Runtime::limitations`].

mod cgroup;
mod container;
mod net;
mod pty;
mod root;
mod shim;
mod spec;

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_clock::{SharedClock, SharedIds};
use cgroup::Cgroups;
use container::Container;
use net::PodNetwork;
pub use net::{Network, NetworkConfig, Range};
pub use shim::{PROCESS_INIT, process_init};
use spec::{MountSpec, Namespaces, Spec};
use tokio::process::Command;

use super::{
    Answer, ContainerConfig, ContainerRecord, ContainerStats, ExecConfig, ImageRequest, Limits, Propagation, Runtime,
    RuntimeError, Sandbox, SandboxConfig, Streaming,
};
use crate::lifecycle::Exit;

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Images whose name is not the name of a program, and what they run.
const KNOWN_IMAGES: [(&str, &str); 6] =
    [("busybox", "sh"), ("alpine", "sh"), ("debian", "bash"), ("ubuntu", "bash"), ("node", "node"), ("httpd", "httpd")];

/// What containers may do unless they ask for more or less: the usual set.
const CAPABILITIES: [&str; 14] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// What is told where pods have no networks of their own.
const SHARED_NETWORK: &str = "pods use the node's network: their ports are the node's";

/// Containers as processes of this machine.
#[derive(Debug)]
pub struct Process {
    settings: Arc<Settings>,
    containers: Mutex<HashMap<String, Arc<Container>>>,
    sandboxes: Mutex<HashMap<String, Pod>>,
    network: Mutex<Result<Arc<Network>, String>>,
}

/// What there is of a pod before its containers: its network, if it is its own.
type Pod = Option<Arc<PodNetwork>>;

#[derive(Debug)]
struct Settings {
    root: PathBuf,
    shim: PathBuf,
    host_ips: Vec<String>,
    cgroups: Cgroups,
    namespaces: Namespaces,
    clock: SharedClock,
    ids: SharedIds,
}

impl Process {
    /// A runtime that keeps its files under `root` and runs `shim`, a program that calls [`process_init`] first thing.
    /// Finds out what this machine allows.
    ///
    /// # Errors
    /// `root` can't be made or `shim` can't be run.
    pub async fn new(
        root: &Path,
        shim: &Path,
        host_ips: Vec<String>,
        clock: SharedClock,
        ids: SharedIds,
    ) -> std::io::Result<Self> {
        std::fs::create_dir_all(root)?;
        let mut namespaces = Namespaces::default();
        for which in ["mpit", "umpit"] {
            let done = Command::new(shim).args([PROCESS_INIT, "try", which]).output().await?;
            if done.status.success() {
                namespaces = shim::namespaces(which);
                break;
            }
        }
        let cgroups = Cgroups::find(Path::new("/sys/fs/cgroup"));
        let settings =
            Settings { root: root.canonicalize()?, shim: shim.to_owned(), host_ips, cgroups, namespaces, clock, ids };
        Ok(Process {
            settings: Arc::new(settings),
            containers: Mutex::default(),
            sandboxes: Mutex::default(),
            network: Mutex::new(Err(String::new())),
        })
    }

    /// Gives pods networks of their own if that could be had; otherwise what it says is told.
    #[must_use]
    pub fn with_network(mut self, network: Result<Network, String>) -> Self {
        self.network = Mutex::new(match network {
            Ok(_) if self.settings.namespaces.user => Err("that takes root".to_owned()),
            network => network.map(Arc::new),
        });
        self
    }

    /// The address of the node on the network of its pods, or why they have none of their own.
    ///
    /// # Errors
    /// They share the node's.
    pub fn gateway(&self) -> Result<Ipv4Addr, String> {
        self.network().map(|network| network.gateway())
    }

    fn network(&self) -> Result<Arc<Network>, String> {
        self.network.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn containers_by_id(&self) -> MutexGuard<'_, HashMap<String, Arc<Container>>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn container(&self, id: &str) -> Result<Arc<Container>, RuntimeError> {
        let found = self.containers_by_id().get(id).cloned();
        found.ok_or_else(|| RuntimeError::NotFound(format!("container \"{id}\" not found")))
    }

    fn sandboxes_by_id(&self) -> MutexGuard<'_, HashMap<String, Pod>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sandbox(&self, id: &str) -> Result<Pod, RuntimeError> {
        let found = self.sandboxes_by_id().get(id).cloned();
        found.ok_or_else(|| RuntimeError::NotFound(format!("sandbox \"{id}\" not found")))
    }

    /// What the shim is told of a container.
    fn spec(&self, id: &str, pod: &SandboxConfig, config: &ContainerConfig) -> Result<Spec, RuntimeError> {
        let settings = &self.settings;
        let number = |n: i64| u32::try_from(n).ok();
        let mut argv = [config.command.clone(), config.args.clone()].concat();
        if argv.is_empty() {
            argv = entry_point(&config.image, &settings.shim).unwrap_or_default();
        }
        if argv.is_empty() {
            return Err(RuntimeError::Failed("no command specified".to_owned()));
        }
        if !settings.namespaces.mount && !config.mounts.is_empty() {
            let text = "this machine allows no mount namespaces, so that no volume can be at its place";
            return Err(RuntimeError::Failed(text.to_owned()));
        }
        if let Some(image) = config.mounts.iter().find_map(|mount| mount.image.as_ref()) {
            let text = format!("the process runtime has no images: there are no files of \"{}\"", image.image);
            return Err(RuntimeError::Failed(text));
        }
        if let Some(mount) = config.mounts.iter().find(|mount| mount.propagation == Propagation::Bidirectional) {
            let path = mount.container_path.display();
            let text = format!("the process runtime has no Bidirectional mount propagation, which {path} asks for");
            return Err(RuntimeError::Unsupported(text));
        }
        let mut env = vec![("PATH".to_owned(), PATH.to_owned()), ("HOSTNAME".to_owned(), pod.node_name())];
        env.extend((config.tty).then(|| ("TERM".to_owned(), "xterm".to_owned())));
        if !config.env.iter().any(|(name, _)| name == "HOME") {
            env.push(("HOME".to_owned(), home(config.security.user).to_owned()));
        }
        env.extend(config.env.iter().cloned());
        let limits = &config.limits;
        let unlimited = settings.cgroups == Cgroups::None && limits.memory_bytes > 0;
        let mounts = config.mounts.iter().map(|mount| MountSpec {
            target: mount.container_path.clone(),
            source: mount.host_path.clone(),
            read_only: mount.read_only,
            follows: mount.propagation == Propagation::HostToContainer,
        });
        Ok(Spec {
            control: format!("capstan-{id}-{}", settings.ids.suffix(8)),
            argv,
            env,
            working_dir: config.working_dir.clone(),
            hostname: pod.node_name(),
            dir: settings.root.join(id),
            mounts: mounts.collect(),
            cgroup_procs: Vec::new(),
            address_space: unlimited.then(|| u64::try_from(limits.memory_bytes).unwrap_or(u64::MAX)),
            oom_score_adj: limits.oom_score_adj,
            user: config.security.user.and_then(number),
            group: config.security.group.and_then(number),
            groups: config.security.groups.iter().copied().filter_map(number).collect(),
            no_new_privileges: config.security.no_new_privileges,
            capabilities: (!settings.namespaces.user).then(|| capabilities(config)).flatten(),
            read_only_root: config.security.read_only_root,
            tty: config.tty,
            namespaces: Namespaces { pid: settings.namespaces.pid && !pod.host_pid, ..settings.namespaces },
            network: None,
        })
    }
}

fn home(user: Option<i64>) -> &'static str {
    if user.unwrap_or(0) == 0 { "/root" } else { "/" }
}

/// Which capabilities a container keeps; none for all.
fn capabilities(config: &ContainerConfig) -> Option<Vec<String>> {
    let security = &config.security;
    if security.privileged || security.add_capabilities.iter().any(|name| name == "ALL") {
        return None;
    }
    let all_dropped = security.drop_capabilities.iter().any(|name| name == "ALL");
    let usual = CAPABILITIES.into_iter().filter(|name| {
        !all_dropped && !security.drop_capabilities.iter().any(|dropped| dropped.trim_start_matches("CAP_") == *name)
    });
    let added = security.add_capabilities.iter().map(|name| name.trim_start_matches("CAP_").to_owned());
    Some(usual.map(str::to_owned).chain(added).collect())
}

/// The last part of an image's name, without tag and digest.
fn base_name(image: &str) -> &str {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split(['@', ':']).next().unwrap_or(last)
}

/// What an image would run: a program of its name, if this machine has one.
fn entry_point(image: &str, shim: &Path) -> Option<Vec<String>> {
    let name = base_name(image);
    if name == "pause" {
        return Some(vec![shim.display().to_string(), PROCESS_INIT.to_owned(), "pause".to_owned()]);
    }
    let program = KNOWN_IMAGES.iter().find(|(image, _)| *image == name).map_or(name, |(_, program)| program);
    PATH.split(':').map(|dir| Path::new(dir).join(program)).find(|path| path.is_file())?;
    Some(vec![program.to_owned()])
}

impl Runtime for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn shares_host_network(&self) -> bool {
        self.network().is_err()
    }

    fn writes_resolv_conf(&self) -> bool {
        false
    }

    fn rotates_logs(&self) -> bool {
        true
    }

    fn limitations(&self) -> Vec<String> {
        let own = self.settings.namespaces;
        let network = match self.network() {
            Ok(network) => network.limitations(),
            Err(why) if why.is_empty() => vec![SHARED_NETWORK.to_owned()],
            Err(why) => vec![format!("{SHARED_NETWORK} ({why})")],
        };
        let facts = [
            (true, "there are no images: a container runs programs of this machine"),
            (true, "no seccomp, AppArmor or SELinux: only capabilities restrict what a container asks of the kernel"),
            (!own.mount, "no mount namespaces: containers can change the node's files, and volumes can't be mounted"),
            (!own.pid, "no process namespaces: containers see the node's processes"),
            (!own.user, "no user namespaces: root in a container is root on the node, with fewer capabilities"),
            (self.settings.cgroups == Cgroups::None, "no cgroups: memory is limited by address space, cpu is not"),
        ];
        let facts = facts.into_iter().filter(|(holds, _)| *holds).map(|(_, text)| text.to_owned());
        network.into_iter().chain(facts).collect()
    }

    fn ready(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn image_status<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, Option<String>> {
        Box::pin(async move {
            let there = image.has_command || entry_point(&image.image, &self.settings.shim).is_some();
            Ok(there.then(|| format!("process://{}", image.image)))
        })
    }

    fn pull<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, String> {
        Box::pin(async move {
            self.image_status(image).await?.ok_or_else(|| {
                let name = base_name(&image.image);
                let text = format!(
                    "failed to pull and unpack image \"{}\": the process runtime has no images: the container needs a \
                     command, or this machine a program \"{name}\"",
                    image.image
                );
                RuntimeError::NotFound(text)
            })
        })
    }

    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Answer<'a, Sandbox> {
        Box::pin(async move {
            if !config.handler.is_empty() {
                let text = format!("no runtime for \"{}\" is configured", config.handler);
                return Err(RuntimeError::Failed(text));
            }
            let id = self.settings.ids.uid().replace('-', "");
            let network = match self.network() {
                Ok(network) if !config.host_network => {
                    let attached = network.attach(config).await;
                    let text = |error| format!("failed to set up the network of sandbox \"{id}\": {error}");
                    Some(attached.map_err(|error| RuntimeError::Failed(text(error)))?)
                }
                _ => None,
            };
            let own = network.as_ref().map(|network| vec![network.address.to_string()]);
            self.sandboxes_by_id().insert(id.clone(), network.map(Arc::new));
            Ok(Sandbox { id, ips: own.unwrap_or_else(|| self.settings.host_ips.clone()) })
        })
    }

    fn stop_sandbox<'a>(&'a self, sandbox: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let pod = self.sandboxes_by_id().remove(sandbox);
            let all: Vec<_> = self.containers_by_id().values().filter(|c| c.sandbox == sandbox).cloned().collect();
            for container in all {
                container.stop(Duration::ZERO, &self.settings.clock).await;
                container.remove();
                self.containers_by_id().remove(&container.id);
            }
            // The last to go: containers may speak to others until they have ended.
            drop(pod);
            Ok(())
        })
    }

    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            self.sandboxes_by_id().clear();
            *self.network.lock().unwrap_or_else(PoisonError::into_inner) = Err("the node has ended".to_owned());
            Ok(())
        })
    }

    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        pod: &'a SandboxConfig,
        config: &'a ContainerConfig,
    ) -> Answer<'a, String> {
        Box::pin(async move {
            let id = self.settings.ids.uid().replace('-', "");
            let mut spec = self.spec(&id, pod, config)?;
            spec.network = self.sandbox(sandbox)?.map(|network| network.path());
            std::fs::create_dir_all(&spec.dir)?;
            let group = self.settings.cgroups.make(&id, &config.limits);
            let group = group.map_err(|error| RuntimeError::Failed(format!("cgroup: {error}")))?;
            spec.cgroup_procs = group.procs();
            let log = pod.log_directory.join(&config.log_path);
            let container = Container::new(id.clone(), sandbox, pod, config, spec, group, log);
            self.containers_by_id().insert(id.clone(), Arc::new(container));
            Ok(id)
        })
    }

    fn start_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { self.container(id)?.start(&self.settings.shim, &self.settings.clock).await })
    }

    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Answer<'a, ()> {
        Box::pin(async move {
            self.container(id)?.stop(grace, &self.settings.clock).await;
            Ok(())
        })
    }

    fn remove_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move {
            let container = self.container(id)?;
            container.stop(Duration::ZERO, &self.settings.clock).await;
            container.remove();
            self.containers_by_id().remove(id);
            Ok(())
        })
    }

    fn wait<'a>(&'a self, id: &'a str) -> Answer<'a, Exit> {
        Box::pin(async move { Ok(self.container(id)?.ended().await) })
    }

    fn update_limits<'a>(&'a self, id: &'a str, limits: &'a Limits) -> Answer<'a, ()> {
        Box::pin(async move {
            if self.settings.cgroups == Cgroups::None {
                let text = "this machine allows no cgroups, so that limits can't be changed";
                return Err(RuntimeError::Unsupported(text.to_owned()));
            }
            Ok(self.container(id)?.update_limits(limits)?)
        })
    }

    fn containers(&self) -> Answer<'_, Vec<ContainerRecord>> {
        Box::pin(async move { Ok(self.containers_by_id().values().map(|container| container.record()).collect()) })
    }

    fn reopen_log<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        // The log is written by this process, which begins it anew itself.
        Box::pin(async move { self.container(id).map(drop) })
    }

    fn exec<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming> {
        Box::pin(async move {
            let session = self.container(id)?.exec(&self.settings.shim, config, &self.settings.ids)?;
            Ok(Streaming::Session(session))
        })
    }

    fn exec_sync<'a>(&'a self, id: &'a str, command: &'a [String], timeout: Duration) -> Answer<'a, (Exit, Vec<u8>)> {
        Box::pin(async move {
            let container = self.container(id)?;
            container.exec_sync(&self.settings.shim, command, timeout, &self.settings.clock, &self.settings.ids).await
        })
    }

    fn attach<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming> {
        Box::pin(async move { Ok(Streaming::Session(self.container(id)?.attach(config)?)) })
    }

    fn port_forward<'a>(&'a self, sandbox: &'a str, port: u16) -> Answer<'a, tokio::net::TcpStream> {
        Box::pin(async move {
            if let Some(network) = self.sandbox(sandbox)? {
                return Ok(network.connect_inside(port).await?);
            }
            Ok(tokio::net::TcpStream::connect(("localhost", port)).await?)
        })
    }

    fn stats(&self) -> Answer<'_, Vec<ContainerStats>> {
        Box::pin(async move {
            let now = self.settings.clock.now();
            let all: Vec<_> = self.containers_by_id().values().cloned().collect();
            Ok(all.iter().filter_map(|container| container.stats(now)).collect())
        })
    }
}
