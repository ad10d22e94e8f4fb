//! What a node needs of whatever runs containers, in one narrow trait.

pub mod cri;
pub mod process;

use std::{collections::BTreeMap, fmt, future::Future, path::PathBuf, pin::Pin, time::Duration};

use capstan_clock::Timestamp;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};

use crate::{lifecycle::Exit, node::dns::Resolver};

/// What a runtime answers, later.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, RuntimeError>> + Send + 'a>>;

/// Why a runtime could not do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeError {
    /// What was named is not there.
    NotFound(String),
    /// The runtime does not have this.
    Unsupported(String),
    /// Anything else, in its own words.
    Failed(String),
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RuntimeError::NotFound(text) | RuntimeError::Unsupported(text) | RuntimeError::Failed(text) => {
                f.write_str(text)
            }
        }
    }
}

impl std::error::Error for RuntimeError {}

impl From<std::io::Error> for RuntimeError {
    fn from(error: std::io::Error) -> Self {
        RuntimeError::Failed(error.to_string())
    }
}

/// What containers of a pod share.
#[derive(Clone, Debug, Default)]
pub struct SandboxConfig {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The pod's uid.
    pub uid: String,
    /// How often the pod has had a sandbox before.
    pub attempt: u32,
    /// Its name for itself.
    pub hostname: String,
    /// The domain that it is found in; empty for none.
    pub domain: String,
    /// Its name for itself has the domain in it.
    pub fqdn_as_hostname: bool,
    /// Labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the pod.
    pub annotations: BTreeMap<String, String>,
    /// Where the logs of its containers are.
    pub log_directory: PathBuf,
    /// It uses the node's network.
    pub host_network: bool,
    /// It sees the node's processes.
    pub host_pid: bool,
    /// It uses the node's inter-process communication.
    pub host_ipc: bool,
    /// Its containers see each other's processes.
    pub share_process_namespace: bool,
    /// Ports of the node that lead to ports of the pod: (protocol, container port, host port, host address).
    pub ports: Vec<(String, u16, u16, String)>,
    /// Who resolves its names.
    pub dns: Resolver,
    /// The RuntimeClass' handler; empty for the default.
    pub handler: String,
    /// Some container of it may do everything.
    pub privileged: bool,
    /// Who it is.
    pub user: Option<i64>,
    /// Its group.
    pub group: Option<i64>,
    /// Further groups.
    pub groups: Vec<i64>,
    /// The groups that the image has for its user don't count.
    pub strict_groups: bool,
    /// What it is for SELinux; the runtime decides when not said.
    pub selinux: Option<SeLinux>,
    /// The first of the node's users that are its own, [`USER_IDS`] of them; none for the node's.
    pub users: Option<u32>,
    /// Settings of the kernel that are its own.
    pub sysctls: BTreeMap<String, String>,
}

impl SandboxConfig {
    /// What the kernel is told that the machine is called.
    #[must_use]
    pub fn node_name(&self) -> String {
        if self.fqdn_as_hostname { format!("{}.{}", self.hostname, self.domain) } else { self.hostname.clone() }
    }
}

/// How many users and groups a pod has that has its own.
pub const USER_IDS: u32 = 65_536;

/// A context of SELinux.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeLinux {
    /// The user.
    pub user: String,
    /// The role.
    pub role: String,
    /// The type.
    pub kind: String,
    /// The level.
    pub level: String,
}

/// What a runtime can do besides, for pods of one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// What is mounted in a volume can be made read-only with it.
    pub recursive_read_only: bool,
    /// Pods can have users of their own.
    pub user_namespaces: bool,
}

/// A sandbox that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Its id.
    pub id: String,
    /// Its addresses, the primary one first.
    pub ips: Vec<String>,
}

/// Something of the node at a place in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Where in the container.
    pub container_path: PathBuf,
    /// What of the node.
    pub host_path: PathBuf,
    /// Whether it can't be written to.
    pub read_only: bool,
    /// An image whose files these are, instead of the node's.
    pub image: Option<MountImage>,
    /// Which later mounts are seen on the other side.
    pub propagation: Propagation,
    /// What is mounted in it is read-only too.
    pub recursive_read_only: bool,
    /// It is this pod's alone, and gets its label where SELinux is.
    pub relabel: bool,
}

/// Whether what is mounted later in a volume, on the node or in the container, is seen by the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// By neither.
    #[default]
    Private,
    /// By the container.
    HostToContainer,
    /// By both.
    Bidirectional,
}

/// The files of an image at a place in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountImage {
    /// The image as the pod names it.
    pub image: String,
    /// The image as [`Runtime::pull`] resolved it.
    pub image_ref: String,
    /// Which part of it; empty for all.
    pub sub_path: String,
}

/// What keeps a container from calling the kernel, or from the node's files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// What the runtime has for all.
    RuntimeDefault,
    /// Nothing.
    #[default]
    Unconfined,
    /// One of the node's own: a file for seccomp, a name for AppArmor.
    Localhost(String),
}

/// Who an image says that it runs as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageUser {
    /// A number.
    Id(i64),
    /// A name, which only the image itself can resolve.
    Name(String),
}

/// Who a container is and what it may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// The user; the image's when not said.
    pub user: Option<i64>,
    /// The user's name, where only that is known.
    pub user_name: String,
    /// The group.
    pub group: Option<i64>,
    /// Further groups.
    pub groups: Vec<i64>,
    /// The groups that the image has for its user don't count.
    pub strict_groups: bool,
    /// What it is for SELinux; the runtime decides when not said.
    pub selinux: Option<SeLinux>,
    /// May do everything.
    pub privileged: bool,
    /// Its own files are read-only too.
    pub read_only_root: bool,
    /// Nothing it starts may have more rights than itself.
    pub no_new_privileges: bool,
    /// Capabilities beyond the usual.
    pub add_capabilities: Vec<String>,
    /// Capabilities less than the usual; `ALL` for all.
    pub drop_capabilities: Vec<String>,
    /// Nothing of the kernel's files is hidden from it.
    pub unmasked_proc: bool,
    /// Which calls of the kernel it may make.
    pub seccomp: Profile,
    /// What AppArmor lets it do; the runtime decides when not said.
    pub apparmor: Option<Profile>,
}

/// What a container may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Its share of the processors against others, in thousandths of one.
    pub cpu_request_milli: i64,
    /// The most that it gets, in thousandths of a processor; 0 for no limit.
    pub cpu_limit_milli: i64,
    /// The most memory, in bytes; 0 for no limit.
    pub memory_bytes: i64,
    /// How early it is ended when memory runs out.
    pub oom_score_adj: i64,
}

/// The period of processor quotas, in microseconds.
pub(crate) const CPU_PERIOD: i64 = 100_000;
/// The least quota that the kernel takes.
const MIN_CPU_QUOTA: i64 = 1000;

impl Limits {
    /// The microseconds of processor time in a period; 0 for no limit.
    pub(crate) fn cpu_quota(&self) -> i64 {
        match self.cpu_limit_milli {
            ..=0 => 0,
            milli => (milli * CPU_PERIOD / 1000).max(MIN_CPU_QUOTA),
        }
    }

    /// Its share against others: a thousandth of a processor is about one, and no request the least that there is.
    pub(crate) fn cpu_shares(&self) -> i64 {
        (self.cpu_request_milli * 1024 / 1000).clamp(2, 262_144)
    }
}

/// A container to be made.
#[derive(Clone, Debug, Default)]
pub struct ContainerConfig {
    /// Its name in the pod.
    pub name: String,
    /// How often it has been started before.
    pub attempt: u32,
    /// The image as the pod names it.
    pub image: String,
    /// The image as [`Runtime::pull`] resolved it.
    pub image_ref: String,
    /// What to run instead of the image's entry point.
    pub command: Vec<String>,
    /// What to pass to it instead of the image's arguments.
    pub args: Vec<String>,
    /// Where to run it; empty for the image's.
    pub working_dir: String,
    /// Its environment.
    pub env: Vec<(String, String)>,
    /// What it sees of the node.
    pub mounts: Vec<Mount>,
    /// Its log, under the sandbox's directory.
    pub log_path: PathBuf,
    /// It reads.
    pub stdin: bool,
    /// It stops reading when the first who wrote goes.
    pub stdin_once: bool,
    /// It has a terminal.
    pub tty: bool,
    /// Who it is.
    pub security: Security,
    /// What it may use.
    pub limits: Limits,
    /// The signal that asks it to end; the image's, or `SIGTERM`, when empty.
    pub stop_signal: String,
    /// Labels and annotations for whoever looks at the runtime itself.
    pub labels: BTreeMap<String, String>,
}

/// A container that the runtime has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRecord {
    /// Its id, without the runtime's prefix.
    pub id: String,
    /// The uid of its pod.
    pub pod_uid: String,
    /// Its name in the pod.
    pub name: String,
    /// How often it had been started before.
    pub attempt: u32,
    /// Whether it runs.
    pub running: bool,
    /// The image that it was made of, as [`Runtime::images`] names it.
    pub image: String,
}

/// A sandbox that an earlier life of this node has left, with its containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOver {
    /// The uid of its pod.
    pub pod_uid: String,
    /// The sandbox.
    pub sandbox: Sandbox,
    /// How often the pod had had a sandbox before.
    pub attempt: u32,
    /// All containers in it.
    pub containers: Vec<ContainerRecord>,
}

/// An image that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageRecord {
    /// Its id.
    pub id: String,
    /// Its names, if it has any.
    pub names: Vec<String>,
    /// Its names by digest.
    pub digests: Vec<String>,
    /// How many bytes it takes.
    pub size: u64,
    /// The engine needs it itself.
    pub pinned: bool,
}

/// All images, and where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// A directory of the file system that they are on.
    pub place: PathBuf,
    /// The images.
    pub images: Vec<ImageRecord>,
}

/// What a container uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStats {
    /// The uid of its pod.
    pub pod_uid: String,
    /// Its name in the pod.
    pub name: String,
    /// Processor time since it began, in nanoseconds.
    pub cpu_nanos: u64,
    /// Thousand-millionths of a processor that it uses now; where the runtime doesn't say, it is computed from two
    /// measurements.
    pub cpu_nano_cores: Option<u64>,
    /// Memory that can't be had back, in bytes.
    pub memory_bytes: u64,
    /// Its processes and threads, where the runtime knows.
    pub processes: u64,
    /// What its own files take of the disk, in bytes; its logs and volumes are not among them.
    pub disk_bytes: u64,
    /// When this was measured.
    pub at: Option<Timestamp>,
}

/// Something to be run in a container that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecConfig {
    /// What.
    pub command: Vec<String>,
    /// With input.
    pub stdin: bool,
    /// With output.
    pub stdout: bool,
    /// With errors; never with a terminal.
    pub stderr: bool,
    /// With a terminal.
    pub tty: bool,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// Bytes in.
pub type Input = Box<dyn AsyncWrite + Send + Unpin>;
/// Bytes out.
pub type Output = Box<dyn AsyncRead + Send + Unpin>;

/// The ends of something that runs.
pub struct Session {
    /// To it.
    pub stdin: Option<Input>,
    /// From it.
    pub stdout: Option<Output>,
    /// From it, apart.
    pub stderr: Option<Output>,
    /// The size of its terminal.
    pub resize: Option<mpsc::Sender<TerminalSize>>,
    /// How it ended.
    pub exit: Answer<'static, Exit>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("stdin", &self.stdin.is_some()).finish_non_exhaustive()
    }
}

/// How a stream to a container is had.
#[derive(Debug)]
pub enum Streaming {
    /// Here it is.
    Session(Session),
    /// The runtime serves it itself, at this URL.
    Redirect(String),
}

/// An image that is to be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageRequest {
    /// Its name.
    pub image: String,
    /// Whether the container says itself what to run, so that the image's entry point isn't needed.
    pub has_command: bool,
    /// Names and passwords for registries, `.dockerconfigjson` documents.
    pub pull_secrets: Vec<Vec<u8>>,
}

/// What runs containers.
///
/// Ids are the runtime's own, without a prefix. All methods may be called at any time and concurrently; dropping an
/// answer before it is ready abandons the waiting, not the work. [`wait`](Runtime::wait) answers for every container
/// that was started, also long after it has ended, until it is removed.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The prefix of ids in the API: `containerd`.
    fn name(&self) -> &'static str;

    /// The version, for the node's info.
    fn version(&self) -> String;

    /// What this runtime can't keep apart, in plain words; told on the node.
    fn limitations(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether all pods use the node's network whatever they ask for.
    fn shares_host_network(&self) -> bool {
        false
    }

    /// Whether it makes the `resolv.conf` of containers itself.
    fn writes_resolv_conf(&self) -> bool {
        true
    }

    /// Whether it begins logs anew by itself when they have grown too large.
    fn rotates_logs(&self) -> bool {
        false
    }

    /// What it can do besides for pods of a RuntimeClass' handler, or of none.
    fn features<'a>(&'a self, _handler: &'a str) -> Answer<'a, Features> {
        Box::pin(async { Ok(Features::default()) })
    }

    /// Nothing if it can run containers, or why not.
    fn ready(&self) -> Answer<'_, ()>;

    /// The image's resolved name if it is there.
    fn image_status<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, Option<String>>;

    /// Who the image runs as, by its resolved name; nothing if it knows no images.
    fn image_user<'a>(&'a self, _image_ref: &'a str) -> Answer<'a, Option<ImageUser>> {
        Box::pin(async { Ok(None) })
    }

    /// Gets the image; its resolved name.
    fn pull<'a>(&'a self, image: &'a ImageRequest) -> Answer<'a, String>;

    /// Makes what the containers of a pod share.
    fn run_sandbox<'a>(&'a self, config: &'a SandboxConfig) -> Answer<'a, Sandbox>;

    /// Ends all that runs in a sandbox and takes it away.
    fn stop_sandbox<'a>(&'a self, sandbox: &'a str) -> Answer<'a, ()>;

    /// The node ends: what it has for all pods together, and not for later, goes.
    fn close(&self) -> Answer<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    /// Makes a container that does not run yet; its id.
    fn create_container<'a>(
        &'a self,
        sandbox: &'a str,
        pod: &'a SandboxConfig,
        config: &'a ContainerConfig,
    ) -> Answer<'a, String>;

    /// Starts it; answers once its process runs.
    fn start_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()>;

    /// Asks it to end and, after the grace period, ends it. A second call may shorten the time.
    fn stop_container<'a>(&'a self, id: &'a str, grace: Duration) -> Answer<'a, ()>;

    /// Forgets a container that has ended.
    fn remove_container<'a>(&'a self, id: &'a str) -> Answer<'a, ()>;

    /// Answers when it has ended; fails only if there is no such container.
    fn wait<'a>(&'a self, id: &'a str) -> Answer<'a, Exit>;

    /// Gives a container that runs other limits.
    fn update_limits<'a>(&'a self, id: &'a str, limits: &'a Limits) -> Answer<'a, ()>;

    /// What an earlier life of this node has left; whoever asks takes it over or ends it.
    fn left_over(&self) -> Answer<'_, Vec<LeftOver>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The images that it has; nothing if it knows no images.
    fn images(&self) -> Answer<'_, Option<Images>> {
        Box::pin(async { Ok(None) })
    }

    /// Deletes an image.
    fn remove_image<'a>(&'a self, id: &'a str) -> Answer<'a, ()> {
        Box::pin(async move { Err(RuntimeError::Unsupported(format!("there is no image {id}"))) })
    }

    /// All containers that it has.
    fn containers(&self) -> Answer<'_, Vec<ContainerRecord>>;

    /// Begins a new log: the old file has been moved.
    fn reopen_log<'a>(&'a self, id: &'a str) -> Answer<'a, ()>;

    /// Runs something in a container.
    fn exec<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming>;

    /// Runs something in a container to its end, at most so long, and gives what it printed.
    fn exec_sync<'a>(&'a self, id: &'a str, command: &'a [String], timeout: Duration) -> Answer<'a, (Exit, Vec<u8>)>;

    /// Joins what runs in a container.
    fn attach<'a>(&'a self, id: &'a str, config: &'a ExecConfig) -> Answer<'a, Streaming>;

    /// A connection to a port in a sandbox.
    fn port_forward<'a>(&'a self, sandbox: &'a str, port: u16) -> Answer<'a, tokio::net::TcpStream>;

    /// Where the runtime serves port forwarding itself, when it does.
    fn port_forward_url<'a>(&'a self, _sandbox: &'a str, _ports: &'a [u16]) -> Answer<'a, Option<String>> {
        Box::pin(async { Ok(None) })
    }

    /// What all containers use.
    fn stats(&self) -> Answer<'_, Vec<ContainerStats>>;
}
