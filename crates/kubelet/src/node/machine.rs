//! What this machine has, and how much of it is left.

use std::{collections::BTreeMap, fs, path::Path};

use capstan_clock::Timestamp;

use super::{
    eviction::{Signal, Thresholds},
    register::NodeInfo,
};
use crate::runtime::ContainerStats;

/// Stands for the whole machine where the uid of a pod would be.
pub const MACHINE: &str = "";

/// What is left of what pods use up, and what there is in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Memory that can be had, in bytes.
    pub memory_available: u64,
    /// Memory in all.
    pub memory_capacity: u64,
    /// Disk that can be had, in bytes.
    pub disk_available: u64,
    /// Disk in all.
    pub disk_capacity: u64,
    /// Inodes of that disk that can be had.
    pub inodes_free: u64,
    /// Inodes in all.
    pub inodes_capacity: u64,
    /// The same of the disk that images are on, if it is another.
    pub image_available: u64,
    /// Its bytes in all.
    pub image_capacity: u64,
    /// Its inodes that can be had.
    pub image_inodes_free: u64,
    /// Its inodes in all.
    pub image_inodes_capacity: u64,
    /// Processes and threads that can still be started.
    pub pids_available: u64,
    /// Processes and threads in all.
    pub pids_capacity: u64,
}

impl Signals {
    /// What is left of what is watched, and what there is; nothing of both where that is not known.
    #[must_use]
    pub fn of(&self, signal: Signal) -> (u64, u64) {
        match signal {
            Signal::MemoryAvailable => (self.memory_available, self.memory_capacity),
            Signal::NodeFsAvailable => (self.disk_available, self.disk_capacity),
            Signal::NodeFsInodesFree => (self.inodes_free, self.inodes_capacity),
            Signal::ImageFsAvailable => (self.image_available, self.image_capacity),
            Signal::ImageFsInodesFree => (self.image_inodes_free, self.image_inodes_capacity),
            Signal::PidAvailable => (self.pids_available, self.pids_capacity),
        }
    }

    /// The same, with what is left of the disk that images are on.
    #[must_use]
    pub fn with_images(self, place: &Path) -> Self {
        let images = signals(place);
        Signals {
            image_available: images.disk_available,
            image_capacity: images.disk_capacity,
            image_inodes_free: images.inodes_free,
            image_inodes_capacity: images.inodes_capacity,
            ..self
        }
    }
}

/// Asks the machine; `root` is where the node keeps its files.
#[must_use]
pub fn signals(root: &Path) -> Signals {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let disk = rustix::fs::statvfs(root).ok();
    let (pids_available, pids_capacity) = pids().unwrap_or_default();
    Signals {
        memory_available: memory("MemAvailable"),
        memory_capacity: memory("MemTotal"),
        disk_available: disk.as_ref().map_or(0, |disk| disk.f_bavail * disk.f_frsize),
        disk_capacity: disk.as_ref().map_or(0, |disk| disk.f_blocks * disk.f_frsize),
        inodes_free: disk.as_ref().map_or(0, |disk| disk.f_ffree),
        inodes_capacity: disk.as_ref().map_or(0, |disk| disk.f_files),
        pids_available,
        pids_capacity,
        ..Signals::default()
    }
}

/// Processes and threads that can still be started, and how many there may be.
fn pids() -> Option<(u64, u64)> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let most = number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max").unwrap_or(u64::MAX));
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    // Those that run now, and all that there are: `2/1234`.
    let there: u64 = load.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()?;
    Some((most.saturating_sub(there), most))
}

/// What the whole machine has used of its processors since it was started, and what it uses of its memory.
#[must_use]
pub fn usage(now: Timestamp) -> Option<ContainerStats> {
    /// The kernel counts in hundredths of a second.
    const TICK_NANOS: u64 = 10_000_000;
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal: all but waiting is use.
    let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).take(8).collect();
    let busy: u64 = ticks.iter().enumerate().filter(|(at, _)| !matches!(at, 3 | 4)).map(|(_, ticks)| ticks).sum();
    let signals = signals(Path::new("/"));
    Some(ContainerStats {
        pod_uid: MACHINE.to_owned(),
        cpu_nanos: busy * TICK_NANOS,
        memory_bytes: signals.memory_capacity.saturating_sub(signals.memory_available),
        at: Some(now),
        ..ContainerStats::default()
    })
}

/// What this machine is and has.
#[must_use]
pub fn info(name: &str, root: &Path, thresholds: &Thresholds) -> NodeInfo {
    let signals = signals(root);
    let uname = rustix::system::uname();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let release = read("/etc/os-release");
    let pretty = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let capacity = BTreeMap::from([
        ("cpu".to_owned(), cpus.to_string()),
        ("memory".to_owned(), format!("{}Ki", signals.memory_capacity / 1024)),
        ("ephemeral-storage".to_owned(), format!("{}Ki", signals.disk_capacity / 1024)),
    ]);
    let mut allocatable = capacity.clone();
    // What eviction keeps free is not for pods.
    let left = |signal: Signal| {
        let (_, capacity) = signals.of(signal);
        capacity.saturating_sub(thresholds.of(signal, capacity))
    };
    allocatable.insert("memory".to_owned(), format!("{}Ki", left(Signal::MemoryAvailable) / 1024));
    allocatable.insert("ephemeral-storage".to_owned(), left(Signal::NodeFsAvailable).to_string());
    NodeInfo {
        name: name.to_owned(),
        capacity,
        allocatable,
        architecture: architecture.to_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        os_image: pretty.unwrap_or("Linux").trim_matches('"').to_owned(),
        machine_id: read("/etc/machine-id"),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        ..NodeInfo::default()
    }
}
