//! What the node tells the shim that becomes a container's first process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A container to become.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spec {
    /// The abstract socket where the node listens.
    pub(super) control: String,
    /// What to run; the program is looked for in the environment's PATH.
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) working_dir: String,
    pub(super) hostname: String,
    /// The directory of the container: upper, work, root.
    pub(super) dir: PathBuf,
    pub(super) mounts: Vec<MountSpec>,
    /// Files that take a process in when its number is written to them.
    pub(super) cgroup_procs: Vec<PathBuf>,
    /// Limits the address space, where there is no cgroup to limit memory.
    pub(super) address_space: Option<u64>,
    pub(super) oom_score_adj: i64,
    pub(super) user: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) groups: Vec<u32>,
    pub(super) no_new_privileges: bool,
    /// Capabilities that stay; none to keep all.
    pub(super) capabilities: Option<Vec<String>>,
    pub(super) read_only_root: bool,
    pub(super) tty: bool,
    pub(super) namespaces: Namespaces,
    /// The pod's network namespace; none for the node's.
    pub(super) network: Option<PathBuf>,
}

/// One thing to be seen in the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MountSpec {
    pub(super) target: PathBuf,
    pub(super) source: PathBuf,
    pub(super) read_only: bool,
    /// What is mounted in it later on the node is seen in the container too.
    pub(super) follows: bool,
}

/// Which namespaces are its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own to the kernel")]
pub(super) struct Namespaces {
    pub(super) user: bool,
    pub(super) mount: bool,
    pub(super) pid: bool,
    pub(super) ipc: bool,
    pub(super) uts: bool,
}

/// Something to run beside a container's first process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ExecSpec {
    /// The container's first process, as the node numbers it.
    pub(super) pid: u32,
    pub(super) container: Spec,
    pub(super) argv: Vec<String>,
    pub(super) tty: bool,
}
