//! A run: the sides, the rounds, and what has been measured so far.

use std::{
    collections::BTreeMap,
    fs,
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    sync::PoisonError,
};

use capstan_clock::{Clock, RealClock};

use crate::{
    client::Call,
    profile::{Profile, Recording},
    result::{Case, Row, Sample},
    settings::Settings,
    side::{Running, Side},
};

/// How many points of memory over time are kept for each side of a benchmark.
const MEMORY_POINTS: usize = 300;

/// Memory over time: seconds and MB.
pub(crate) type Memory = Vec<(f64, f64)>;

/// A run.
pub(crate) struct Bench {
    pub(crate) settings: Settings,
    pub(crate) sides: Vec<Side>,
    pub(crate) rows: Vec<Row>,
    /// By benchmark and side.
    pub(crate) memory: BTreeMap<(&'static str, &'static str), Memory>,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
    /// Where our server's time went, when that was asked for.
    pub(crate) profiles: Vec<Profile>,
    clock: RealClock,
    current: &'static str,
    place: (usize, usize),
}

impl Bench {
    pub(crate) fn new(settings: Settings, sides: Vec<Side>) -> Self {
        let (clock, current, place) = (RealClock::new(), "", (0, 0));
        let (rows, memory, failures, profiles) = (Vec::new(), BTreeMap::new(), Vec::new(), Vec::new());
        Bench { settings, sides, rows, memory, failures, profiles, clock, current, place }
    }

    /// From now on the results are those of this benchmark, the `at`th of `of`.
    pub(crate) fn begin(&mut self, benchmark: &'static str, at: usize, of: usize) {
        (self.current, self.place) = (benchmark, (at, of));
    }

    /// A directory for the state of a server, empty.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.settings.out.join("data").join(format!("{}-{name}", self.current));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        fs::canonicalize(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// A server of each side, new and ready.
    pub(crate) async fn servers(&self) -> Result<Vec<Running>, String> {
        let mut servers = Vec::new();
        for side in &self.sides {
            self.say(&format!("starting {}", side.name()));
            servers.push(self.server(side).await?);
        }
        Ok(servers)
    }

    /// A server of one side, new and ready.
    pub(crate) async fn server(&self, side: &Side) -> Result<Running, String> {
        let ready = Call::get("/api/v1/namespaces/default");
        Ok(side.start(&self.directory(side.name())?, &ready).await?.0)
    }

    /// Measures a case: A B A B, as many rounds as wanted. One side's failure leaves the others' figures standing.
    pub(crate) async fn rounds(
        &mut self,
        case: Case,
        servers: &[Running],
        mut round: impl AsyncFnMut(&Running) -> Result<Sample, String>,
    ) {
        let mut failed = Vec::new();
        for at in 1..=self.settings.rounds {
            for server in servers {
                let side = server.side.name();
                if failed.contains(&side) {
                    continue;
                }
                self.say(&format!("{}, {side}, round {at} of {}", case.name, self.settings.rounds));
                match round(server).await {
                    Ok(sample) => self.add(&case, side, sample),
                    Err(error) => {
                        self.failures.push(format!("{} {}: {error}", self.current, case.name));
                        failed.push(side);
                    }
                }
            }
        }
        let ours = servers.iter().find(|server| matches!(server.side, Side::Capstan { .. }));
        if let Some(server) = ours.filter(|_| self.settings.profile) {
            self.say(&format!("{}, profile", case.name));
            let done = self.profile(&case, server, round).await;
            self.failures.extend(done.err().map(|error| format!("{} {}, profile: {error}", self.current, case.name)));
        }
    }

    /// One more round, of our server, while perf looks on. Its figure isn't kept.
    async fn profile(
        &mut self,
        case: &Case,
        server: &Running,
        mut round: impl AsyncFnMut(&Running) -> Result<Sample, String>,
    ) -> Result<(), String> {
        let process = server.process().ok_or("there is no process")?;
        let recording = Recording::start(process, &self.settings.out)?;
        round(server).await?;
        self.profiles.push(recording.finish(self.current, &case.name, &self.settings.out)?);
        Ok(())
    }

    /// Adds a sample.
    pub(crate) fn add(&mut self, case: &Case, side: &'static str, sample: Sample) {
        let found = self.rows.iter_mut().find(|row| row.benchmark == self.current && row.case.name == case.name);
        match found {
            Some(row) => row.add(side, sample),
            None => {
                let mut row = Row::new(self.current, case.clone());
                row.add(side, sample);
                self.rows.push(row);
            }
        }
    }

    /// Adds what the programs of each side take on the disk.
    pub(crate) fn add_sizes(&mut self) -> Result<(), String> {
        let size = Case::less("size of the binaries", "MB");
        for side in self.sides.clone() {
            self.add(&size, side.name(), Sample::of(side.binary_bytes()? as f64 / 1e6));
        }
        Ok(())
    }

    /// Ends servers that are no longer needed, keeps their memory over time, and removes their state.
    pub(crate) async fn end(&mut self, servers: Vec<Running>) {
        for server in servers {
            let side = server.side.name();
            let memory = server.memory.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let step = memory.len().div_ceil(MEMORY_POINTS).max(1);
            self.memory.insert((self.current, side), memory.into_iter().step_by(step).collect());
            self.say(&format!("ending {side}"));
            let directory = server.stop().await;
            let _ = fs::remove_dir_all(directory);
        }
    }

    /// Says what is being done, in one line that the next one replaces.
    pub(crate) fn say(&self, what: &str) {
        const WIDTH: usize = 20;
        let (at, of) = self.place;
        let done = (at.saturating_sub(1) * WIDTH).checked_div(of).unwrap_or(0);
        let bar = "━".repeat(done) + &"─".repeat(WIDTH - done);
        let seconds = self.clock.monotonic().0.as_secs();
        let mut out = std::io::stderr();
        let (start, end) = if out.is_terminal() { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(out, "{start}{bar} {at}/{of} {}:{:02} {} {what}{end}", seconds / 60, seconds % 60, self.current);
        let _ = out.flush();
    }
}
