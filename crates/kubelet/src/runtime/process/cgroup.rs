//! Limits by cgroup, where this program may make any: version 2, or version 1 with one tree a controller.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, access};

use crate::runtime::{CPU_PERIOD, Limits};

/// The directory under which all of this node's groups are.
const PARENT: &str = "capstan";
/// The controllers of version 1 that are used.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "cpuacct", "pids"];

/// Which cgroups can be made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cgroups {
    /// One tree for all.
    V2(PathBuf),
    /// A tree for each controller.
    V1(Vec<(&'static str, PathBuf)>),
    /// None.
    None,
}

/// One container's groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    dirs: Vec<(&'static str, PathBuf)>,
}

impl Cgroups {
    /// Looks where a group can be made under `mount` (`/sys/fs/cgroup`).
    pub(super) fn find(mount: &Path) -> Self {
        if mount.join("cgroup.controllers").exists() {
            let parent = mount.join(PARENT);
            let enable = |dir: &Path| fs::write(dir.join("cgroup.subtree_control"), "+memory +cpu +pids");
            let made = fs::create_dir_all(&parent).and_then(|()| enable(mount)).and_then(|()| enable(&parent));
            return if made.is_ok() { Cgroups::V2(parent) } else { Cgroups::None };
        }
        // It may be there already, made by somebody with other rights.
        let can_make = |dir: &Path| fs::create_dir_all(dir).is_ok() && access(dir, Access::WRITE_OK).is_ok();
        let trees: Vec<_> = CONTROLLERS
            .into_iter()
            .map(|controller| (controller, mount.join(controller).join(PARENT)))
            .filter(|(controller, dir)| mount.join(controller).is_dir() && can_make(dir))
            .collect();
        if trees.iter().any(|(controller, _)| *controller == "memory") { Cgroups::V1(trees) } else { Cgroups::None }
    }

    /// Makes a group with limits.
    pub(super) fn make(&self, id: &str, limits: &Limits) -> std::io::Result<Group> {
        let trees = match self {
            Cgroups::None => Vec::new(),
            Cgroups::V2(parent) => vec![("", parent.clone())],
            Cgroups::V1(trees) => trees.clone(),
        };
        let mut group = Group::default();
        for (controller, parent) in trees {
            let dir = parent.join(id);
            fs::create_dir_all(&dir)?;
            for (file, text) in settings(controller, limits) {
                fs::write(dir.join(file), text)?;
            }
            group.dirs.push((controller, dir));
        }
        Ok(group)
    }
}

/// What to write into which file.
fn settings(controller: &str, limits: &Limits) -> Vec<(&'static str, String)> {
    let (quota, shares) = (limits.cpu_quota(), limits.cpu_shares());
    let weight = 1 + ((shares - 2) * 9999) / 262_142;
    let mut all = Vec::new();
    if matches!(controller, "" | "memory") && limits.memory_bytes > 0 {
        let file = if controller.is_empty() { "memory.max" } else { "memory.limit_in_bytes" };
        all.push((file, limits.memory_bytes.to_string()));
    }
    match controller {
        "" => {
            all.push(("cpu.weight", weight.to_string()));
            all.extend((quota > 0).then(|| ("cpu.max", format!("{quota} {CPU_PERIOD}"))));
            // All of a container's processes or none.
            all.push(("memory.oom.group", "1".to_owned()));
        }
        "cpu" => {
            all.push(("cpu.shares", shares.to_string()));
            all.extend((quota > 0).then(|| ("cpu.cfs_quota_us", quota.to_string())));
        }
        _ => {}
    }
    all
}

/// What takes a limit away again.
fn unlimited(controller: &str, limits: &Limits) -> Vec<(&'static str, &'static str)> {
    let (memory, cpu) = (limits.memory_bytes <= 0, limits.cpu_limit_milli <= 0);
    let all = [
        ("", "memory.max", "max", memory),
        ("memory", "memory.limit_in_bytes", "-1", memory),
        ("", "cpu.max", "max", cpu),
        ("cpu", "cpu.cfs_quota_us", "-1", cpu),
    ];
    let here = all.into_iter().filter(|(of, .., applies)| *of == controller && *applies);
    here.map(|(_, file, text, _)| (file, text)).collect()
}

impl Group {
    /// Other limits for those that are in it.
    pub(super) fn update(&self, limits: &Limits) -> std::io::Result<()> {
        for (controller, dir) in &self.dirs {
            for (file, text) in settings(controller, limits) {
                fs::write(dir.join(file), text)?;
            }
            for (file, text) in unlimited(controller, limits) {
                fs::write(dir.join(file), text)?;
            }
        }
        Ok(())
    }

    /// The files that take processes in.
    pub(super) fn procs(&self) -> Vec<PathBuf> {
        self.dirs.iter().map(|(_, dir)| dir.join("cgroup.procs")).collect()
    }

    fn read(&self, controller: &str, file: &str) -> Option<String> {
        let (_, dir) = self.dirs.iter().find(|(name, _)| name.is_empty() || *name == controller)?;
        fs::read_to_string(dir.join(file)).ok()
    }

    fn is_v2(&self) -> bool {
        self.dirs.iter().any(|(name, _)| name.is_empty())
    }

    /// Whether a process of it was ended for using too much memory.
    pub(super) fn oom_killed(&self) -> bool {
        let file = if self.is_v2() { "memory.events" } else { "memory.oom_control" };
        field(&self.read("memory", file).unwrap_or_default(), "oom_kill") > 0
    }

    /// Processor time in nanoseconds and memory in bytes that can't be had back; nothing when there is no group.
    pub(super) fn usage(&self) -> Option<(u64, u64)> {
        let number = |text: Option<String>| text?.trim().parse::<u64>().ok();
        let (cpu, memory, stat) = if self.is_v2() {
            let cpu = field(&self.read("cpu", "cpu.stat")?, "usage_usec") * 1000;
            (cpu, number(self.read("memory", "memory.current"))?, self.read("memory", "memory.stat"))
        } else {
            let cpu = number(self.read("cpuacct", "cpuacct.usage")).unwrap_or(0);
            (cpu, number(self.read("memory", "memory.usage_in_bytes"))?, self.read("memory", "memory.stat"))
        };
        let idle = field(&stat.unwrap_or_default(), if self.is_v2() { "inactive_file" } else { "total_inactive_file" });
        Some((cpu, memory.saturating_sub(idle)))
    }

    /// How many processes there are in it; nothing when there is no group.
    pub(super) fn processes(&self) -> Option<u64> {
        let (_, dir) = self.dirs.first()?;
        let there = fs::read_to_string(dir.join("cgroup.procs")).ok()?;
        u64::try_from(there.lines().count()).ok()
    }

    /// Takes it away; it has no processes any more.
    pub(super) fn remove(&self) {
        for (_, dir) in &self.dirs {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// The number after a word at the beginning of a line.
fn field(text: &str, name: &str) -> u64 {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok();
    text.lines().find_map(of).unwrap_or(0)
}
