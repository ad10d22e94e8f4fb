//! Server processes: started, looked at through /proc, and ended whatever happens.

use std::{
    fs::{self, File},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use capstan_clock::{Clock, RealClock};

/// What the kernel counts CPU time in; the same on every Linux that runs Rust.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long a process that was asked to end may take.
const GRACE: Duration = Duration::from_secs(15);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// A process that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
    log: std::path::PathBuf,
}

/// What processes use, at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Resident memory, in MB.
    pub(crate) rss: f64,
    /// The most it was since [`Process::forget_peak`], in MB.
    pub(crate) peak: f64,
    /// User and system time so far, in seconds.
    pub(crate) cpu: f64,
}

impl std::ops::Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage { rss: self.rss + other.rss, peak: self.peak + other.peak, cpu: self.cpu + other.cpu }
    }
}

impl Process {
    /// Starts a binary; what it says goes to `NAME.log` in `directory`.
    pub(crate) fn start(binary: &Path, arguments: &[String], directory: &Path) -> Result<Self, String> {
        use std::os::unix::process::CommandExt as _;
        let name = binary.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let fail = |error: std::io::Error| format!("cannot start {}: {error}", binary.display());
        let log = directory.join(format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log).map_err(fail)?;
        let child = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(fail)?)
            .stderr(output)
            // Ctrl-C on the terminal is for the harness, which then ends its servers.
            .process_group(0)
            .spawn()
            .map_err(fail)?;
        Ok(Process { name, child, log })
    }

    /// An error with the last words of a process that has ended; none while it runs.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.last_words(status)),
            Err(error) => Err(format!("{}: {error}", self.name)),
        }
    }

    fn last_words(&self, status: ExitStatus) -> String {
        let log = self.words();
        let tail: Vec<&str> = log.lines().rev().take(3).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        format!("{} ended ({status}); its last words, from {}:\n{}", self.name, self.log.display(), tail.join("\n"))
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// All that it has said.
    pub(crate) fn words(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Asks it to end, waits for that, and says all that it has said.
    pub(crate) async fn ended(self) -> Result<String, String> {
        let log = self.log.clone();
        self.stop().await;
        let words = fs::read(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        Ok(String::from_utf8_lossy(&words).into_owned())
    }

    pub(crate) fn usage(&self) -> Usage {
        usage_of(&self.child.id().to_string())
    }

    /// From now on the peak is counted anew.
    pub(crate) fn forget_peak(&self) {
        // Without the right to do so the peak is that of the process's whole life.
        let _ = fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5");
    }

    /// Asks it to end and waits for that; after a while it is ended.
    pub(crate) async fn stop(mut self) {
        let _ = Command::new("kill").arg("-TERM").arg(self.child.id().to_string()).stderr(Stdio::null()).status();
        let clock = RealClock::new();
        while clock.monotonic().0 < GRACE && matches!(self.child.try_wait(), Ok(None)) {
            clock.sleep(LOOK).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process uses: a number, or `self`.
pub(crate) fn usage_of(process: &str) -> Usage {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    parse(&status, &stat)
}

fn parse(status: &str, stat: &str) -> Usage {
    let mb = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()).unwrap_or(0.0) / 1000.0 * 1.024
    };
    // The name in parentheses may hold anything; fields are counted behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    Usage { rss: mb("VmRSS"), peak: mb("VmHWM"), cpu: ticks / TICKS_PER_SECOND }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_from_proc() {
        let stat = "12 (a ) name) S 1 12 12 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 4 0 100 1 2";
        let usage = parse("VmHWM:\t  2000 kB\nVmRSS:\t    1000 kB\n", stat);
        assert_eq!((usage.rss, usage.peak, usage.cpu), (1.024, 2.048, 3.0));
        assert_eq!(parse("", "").rss, 0.0);
        assert!(usage_of("self").rss > 0.0);
    }

    #[test]
    fn what_cannot_start_says_so() {
        let error = Process::start(Path::new("/nowhere/etcd"), &[], &std::env::temp_dir()).unwrap_err();
        assert!(error.starts_with("cannot start /nowhere/etcd: "), "{error}");
    }
}
