//! What the operating system knows of this process, from `/proc`; where there is none, these metrics are left out.

use std::fs;

use capstan_clock::Timestamp;

use super::family::{Collect, Counter, Desc, Family, Gauge, Metric};

/// How many ticks the kernel counts in a second: what every Linux that Rust runs on tells its programs.
const TICKS: f64 = 100.0;
const PAGE: f64 = 4096.0;

const fn desc(name: &'static str, help: &'static str) -> Desc {
    Desc { name, help, labels: &[], bounds: &[] }
}

/// The seconds since 1970 at which the process began, as far as `/proc` tells; else `now`.
#[must_use]
pub fn start_time(now: Timestamp) -> f64 {
    // Boot is told in whole seconds and the start in ticks since then.
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<f64>().ok());
    match (boot, own_stat(19)) {
        (Some(boot), Some(ticks)) => boot + ticks / TICKS,
        _ => now.as_second() as f64,
    }
}

/// A field of `/proc/self/stat`, counted from behind the name, which may contain anything.
fn own_stat(field: usize) -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field)?.parse().ok()
}

/// A soft limit by the name that `/proc/self/limits` has for it.
fn limit(name: &str) -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let soft = limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next().map(str::to_owned))?;
    if soft == "unlimited" { Some(u64::MAX as f64) } else { soft.parse().ok() }
}

/// Appends the metrics of the process.
pub(super) fn families(start_time: f64) -> Vec<Box<dyn Collect>> {
    let mut out: Vec<Box<dyn Collect>> = Vec::new();
    let mut gauge = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            let family = Family::<Gauge>::new(desc(name, help));
            family.with(&[]).set(value);
            out.push(Box::new(family));
        }
    };
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count() as f64);
    gauge("process_open_fds", "How many files are open.", open);
    gauge("process_max_fds", "How many files may be open.", limit("Max open files"));
    gauge("process_virtual_memory_bytes", "How much address space is in use, in bytes.", own_stat(20));
    let max = limit("Max address space");
    gauge("process_virtual_memory_max_bytes", "How much address space may be in use, in bytes.", max);
    let resident = own_stat(21).map(|pages| pages * PAGE);
    gauge("process_resident_memory_bytes", "How much memory is resident, in bytes.", resident);
    let help = "When the process began, in seconds since 1970.";
    gauge("process_start_time_seconds", help, Some(start_time));
    if let (Some(user), Some(system)) = (own_stat(11), own_stat(12)) {
        let name = "process_cpu_seconds_total";
        out.push(Box::new(CpuSeconds { name, value: (user + system) / TICKS }));
    }
    out
}

/// The one counter that is not a whole number.
struct CpuSeconds {
    name: &'static str,
    value: f64,
}

impl Collect for CpuSeconds {
    fn name(&self) -> &'static str {
        self.name
    }

    fn write(&self, out: &mut String) {
        let help = "How much processor time was used, by the program and for it, in seconds.";
        super::text::head(self.name, help, Counter::TYPE, out);
        super::text::sample(self.name, "", "", self.value, out);
    }
}
