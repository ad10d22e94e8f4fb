//! `capstan up`: a cluster in one command: store, API server, controllers, scheduler and nodes in one process.

mod flags;
mod inside;
mod journal;
mod kubeconfig;
mod loops;
mod nodes;
mod state;

use std::{
    env, fs,
    io::{BufRead as _, BufReader, IsTerminal as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use capstan_client::Api;
use capstan_clock::{Clock, Moment, OsIds, RealClock, SharedClock, SharedIds};
use capstan_runtime::Stopper;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use tokio::task::JoinSet;

pub(crate) use flags::HELP;
use flags::{Place, UpFlags};
use inside::Inside;
use journal::Journal;
use state::State;
pub(crate) use state::{down, logs, reset, status};

use crate::server::{self, Flags, Running, write_private};

/// What the last line of the greeting begins with: whoever waits for it goes on then.
const LAST_LINE: &str = "  capstan down ";

/// The file that says which port the cluster had.
const PORT_FILE: &str = "port";

/// How long a cluster has to become one that takes pods before it is called ready all the same.
const USABLE_WITHIN: Duration = Duration::from_secs(3);

/// How long the loops have to end.
const LOOPS_END_WITHIN: Duration = Duration::from_secs(10);

/// Starts a cluster on this machine, says what runs and what to type next, and runs until it is told to end.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let (flags, mut server_flags) = UpFlags::parse(arguments)?;
    let place = flags.place(server_flags.data_dir.clone())?;
    capstan_controllers::select(&flags.controllers).map_err(|error| error.to_string())?;
    if let Some(running) = State::read(&place.directory).filter(State::is_running) {
        return Err(format!(
            "the data directory {} is in use by process {} (`capstan up`, started {})\n  \
             stop it with `capstan down`, or start another cluster with --name other",
            place.directory.display(),
            running.pid,
            running.age()
        ));
    }
    if flags.background {
        return detach(arguments, &place);
    }
    server_flags.data_dir = Some(place.directory.clone());
    if server_flags.kubelet_address_types.is_empty() {
        // The names of our nodes mean nothing to the resolver of this machine.
        server_flags.kubelet_address_types = vec!["InternalIP".to_owned()];
    }
    if !arguments.iter().any(|argument| argument.starts_with("--secure-port")) {
        server_flags.secure_port = usual_port(&place, server_flags.bind_address);
    }
    server::block_on(foreground(&flags, &server_flags, &place))
}

/// The port that the cluster had the last time, or the usual one; any other if somebody has that.
fn usual_port(place: &Place, address: std::net::IpAddr) -> u16 {
    let last = fs::read_to_string(place.directory.join(PORT_FILE)).ok().and_then(|text| text.trim().parse().ok());
    let is_free = |port: &u16| std::net::TcpListener::bind((address, *port)).is_ok();
    [last, Some(Flags::default().secure_port)].into_iter().flatten().find(is_free).unwrap_or_default()
}

/// Starts the same in the background, shows how it starts, and leaves it alone.
fn detach(arguments: &[&str], place: &Place) -> Result<(), String> {
    fs::create_dir_all(&place.directory).map_err(|error| format!("{}: {error}", place.directory.display()))?;
    let log = place.log();
    // What is there stays: `capstan logs` tells how it came to this.
    let file = fs::File::options()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(|error| format!("cannot write {}: {error}", log.display()))?;
    let before = file.metadata().map_or(0, |metadata| metadata.len());
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program)
        .arg("up")
        .args(arguments.iter().filter(|argument| !matches!(**argument, "-d" | "--detach")))
        .arg("--background-child")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        // Ctrl-C in this terminal is not for it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot start: {error}"))?;
    let Some(out) = child.stdout.take() else { return Err("it says nothing".to_owned()) };
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        println!("{line}");
        if line.starts_with(LAST_LINE) {
            return Ok(());
        }
    }
    let _ = child.wait();
    // Beside the error there is what the journal has of this start.
    let said = state::since(&log, before);
    let error = said.rfind("error: ").map_or(said.as_str(), |at| &said[at + "error: ".len()..]);
    Err(error.trim().to_owned())
}

/// Says what has been started, and how long that took.
struct Progress {
    clock: RealClock,
    begun: Moment,
    last: Moment,
    colours: bool,
    journal: Arc<Journal>,
}

impl Progress {
    fn new(journal: &Arc<Journal>) -> Self {
        let clock = RealClock::new();
        let begun = clock.monotonic();
        let colours = std::io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none();
        Progress { clock, begun, last: begun, colours, journal: Arc::clone(journal) }
    }

    fn done(&mut self, what: &str, how: &str) {
        let now = self.clock.monotonic();
        self.done_in(now.since(self.last), what, how);
    }

    /// The same, when something else has been done since.
    fn done_in(&mut self, took: Duration, what: &str, how: &str) {
        self.last = self.last.plus(took);
        let took = format!("{} ms", took.as_millis());
        let (on, off) = if self.colours { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        tell(&format!("  {what:<12} {how:<58} {on}{took:>8}{off}"));
        self.journal.say("up", format_args!("{what}: {how}"));
    }

    fn total(&self) -> Duration {
        self.last.since(self.begun)
    }
}

async fn foreground(flags: &UpFlags, server_flags: &Flags, place: &Place) -> Result<(), String> {
    let journal = Journal::open(&place.log())?;
    journal.say("up", format_args!("capstan {} starts", env!("CARGO_PKG_VERSION")));
    let mut progress = Progress::new(&journal);
    let running = server::start(server_flags).await?;
    let inside = Inside::new(&running, &journal);
    progress.done_in(running.store_took, "store", &running.store);
    progress.done("api server", &format!("{}, {}", running.url, crate::KUBERNETES));
    crate::metrics::serve(&running, server_flags).await?;
    let (stopper, stop) = Stopper::new();
    let mut tasks = JoinSet::new();
    let controllers = loops::controllers(&inside, flags, place, &stop, &mut tasks).await?;
    progress.done("controllers", &format!("{controllers} loops"));
    loops::scheduler(&inside, &stop, &mut tasks);
    progress.done("scheduler", "default profile");
    let nodes = nodes::start(&inside, flags, place).await?;
    progress.done("nodes", &nodes.what);

    usable(&inside, flags, place).await;
    progress.last = progress.clock.monotonic();
    let (state, where_to) = write_kubeconfig(&running, server_flags, place)?;
    state.write(&place.directory)?;
    keep_port(place, running.port)?;
    journal.say("up", format_args!("ready in {} ms", progress.total().as_millis()));
    tell(&format!("Ready in {} ms. {where_to}", progress.total().as_millis()));
    tell("");
    tell("  kubectl run hello --image=busybox -- echo hi     run something");
    tell("  kubectl get pods,events                          see what became of it");
    tell(&format!("{LAST_LINE}                                    stop; `capstan up` goes on where it was"));

    server::until_told().await?;
    journal.say("up", "ends: pods first, then the loops, then the server");
    if std::io::stdout().is_terminal() {
        tell("\nEnding the pods, each within its grace period; Ctrl-C once more ends them at once.");
    }
    // Pods end while there is still somebody to tell; then those who would replace them, then the server.
    tokio::select! {
        () = nodes.shut_down() => {}
        told = server::until_told() => told?,
    }
    stopper.stop();
    let clock = RealClock::new();
    tokio::select! {
        () = async { while tasks.join_next().await.is_some() {} } => {}
        () = clock.sleep(LOOPS_END_WITHIN) => tasks.shutdown().await,
    }
    inside.informers.shut_down();
    running.shut_down().await;
    journal.say("up", "has ended");
    state.remove(&place.directory)
}

/// Waits until a first pod would be taken: until the account that pods have is there, and a node to run on. What keeps
/// that from being so is in the journal, and no reason not to look at the cluster.
async fn usable(inside: &Inside<'_>, flags: &UpFlags, place: &Place) {
    let client = inside.installer();
    let (accounts, nodes) = (Api::<ServiceAccount>::namespaced(&client, "default"), Api::<Node>::all(&client));
    let is_ready = |node: Option<&Node>| {
        let status = node.and_then(|node| node.status.as_ref());
        status
            .is_some_and(|status| status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True"))
    };
    let usable = async {
        let _ = accounts.wait_for("default", |account: Option<&ServiceAccount>| account.is_some()).await;
        if flags.nodes > 0 {
            let _ = nodes.wait_for(&format!("{}-0", place.name), is_ready).await;
        }
    };
    tokio::select! {
        () = usable => {}
        () = RealClock::new().sleep(USABLE_WITHIN) => {}
    }
}

/// Prints a line. Whoever reads may have had enough: that is no reason for a cluster to end.
fn tell(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Keeps the port for the next start: kubeconfigs that others have made go on to work.
fn keep_port(place: &Place, port: u16) -> Result<(), String> {
    let file = place.directory.join(PORT_FILE);
    fs::write(&file, port.to_string()).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn clock_and_ids() -> (SharedClock, SharedIds) {
    (Arc::new(RealClock::new()), Arc::new(OsIds))
}

/// Where the user's kubeconfig is.
fn users_kubeconfig() -> Option<PathBuf> {
    let named = env::var_os("KUBECONFIG").filter(|files| !files.is_empty());
    match named {
        // As kubectl does: what is new goes into the first file.
        Some(files) => env::split_paths(&files).next(),
        None => env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config")),
    }
}

/// Writes the kubeconfig where the flags say, or puts a context into the user's; tells which.
fn write_kubeconfig(running: &Running, flags: &Flags, place: &Place) -> Result<(State, String), String> {
    let own = running.kubeconfig(&place.name, &place.name);
    write_private(&place.directory.join("kubeconfig"), &own)?;
    let (file, merged) = match &flags.write_kubeconfig {
        Some(file) => (file.clone(), false),
        None => match users_kubeconfig() {
            Some(file) => (file, true),
            None => (place.directory.join("kubeconfig"), false),
        },
    };
    let previous_context = if merged {
        let left = State::read(&place.directory).filter(|left| left.merged && left.kubeconfig == file);
        kubeconfig::merge(&file, &own, &left.map(|left| left.previous_context).unwrap_or_default())?
    } else {
        write_private(&file, &own)?;
        String::new()
    };
    let told = if merged {
        format!("Context {:?} is now current in {}.", place.name, short(&file))
    } else {
        format!("export KUBECONFIG={}", file.display())
    };
    let state = State {
        pid: std::process::id(),
        started: RealClock::new().now().to_string(),
        url: running.url.clone(),
        kubeconfig: file,
        context: place.name.clone(),
        previous_context,
        merged,
    };
    Ok((state, told))
}

/// A path as people write it.
fn short(path: &Path) -> String {
    let home = env::var_os("HOME").map(PathBuf::from);
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_path_buf)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
