//! What this machine has, and how much of it is left.

use std::{collections::BTreeMap, fs, path::Path};

use capstan_clock::Timestamp;

use super::{
    eviction::{Threshold, Thresholds},
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
    Signals {
        memory_available: memory("MemAvailable"),
        memory_capacity: memory("MemTotal"),
        disk_available: disk.as_ref().map_or(0, |disk| disk.f_bavail * disk.f_frsize),
        disk_capacity: disk.as_ref().map_or(0, |disk| disk.f_blocks * disk.f_frsize),
    }
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
    let left = |capacity: u64, threshold: Threshold| capacity.saturating_sub(threshold.of(capacity));
    let memory = left(signals.memory_capacity, thresholds.memory);
    allocatable.insert("memory".to_owned(), format!("{}Ki", memory / 1024));
    allocatable.insert("ephemeral-storage".to_owned(), left(signals.disk_capacity, thresholds.disk).to_string());
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
