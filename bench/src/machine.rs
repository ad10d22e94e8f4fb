//! What the figures were measured on and with.

use std::{fs, path::Path, process::Command};

use capstan_clock::{Clock, RealClock, Timestamp};

use crate::side::Side;

/// The machine, the versions and the flags.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) started: Timestamp,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory: String,
    pub(crate) kernel: String,
    pub(crate) commit: String,
    /// Before and after the run.
    pub(crate) load: Vec<String>,
    /// Name of a side, versions, flags.
    pub(crate) sides: Vec<(&'static str, String, String)>,
}

impl Machine {
    pub(crate) fn look(sides: &[Side]) -> Self {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_once(':'));
            line.map_or("?".to_owned(), |(_, value)| value.trim().to_owned())
        };
        let sides = sides.iter().map(|side| {
            let versions: Vec<String> = side.binaries().iter().map(|binary| version(binary)).collect();
            (side.name(), versions.join(", "), side.flags())
        });
        Machine {
            started: RealClock::new().now(),
            processor: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            memory: field("/proc/meminfo", "MemTotal"),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            commit: said("git", &["describe", "--always", "--dirty"]).unwrap_or_else(|| "?".to_owned()),
            load: vec![load()],
            sides: sides.collect(),
        }
    }

    /// With the load of now.
    pub(crate) fn finished(mut self) -> Self {
        self.load.push(load());
        self
    }
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn version(binary: &Path) -> String {
    let binary = binary.to_string_lossy();
    said(&binary, &["--version"]).unwrap_or_else(|| format!("{binary} of an unknown version"))
}

/// The first line that a command says.
fn said(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(|line| line.trim().to_owned())
}
