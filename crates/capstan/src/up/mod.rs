//! `capstan up`: a cluster in one command: store, API server, controllers, scheduler and nodes in one process.

mod flags;
mod kubeconfig;
mod loops;
mod nodes;
mod state;

use std::{
    env, fs,
    io::{BufRead as _, BufReader, IsTerminal as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use capstan_client::Client;
use capstan_clock::{Clock, Moment, OsIds, RealClock, SharedClock, SharedIds};
use capstan_runtime::Stopper;
use capstan_server::authorization::UserInfo;
use tokio::task::JoinSet;

pub(crate) use flags::HELP;
use flags::{Place, UpFlags};
use state::State;
pub(crate) use state::{down, logs, reset, status};

use crate::server::{self, Flags, Running, write_private};

/// How much of the log an error shows.
const SHOWN_LOG: u64 = 4096;

/// What the last line of the greeting begins with: whoever waits for it goes on then.
const LAST_LINE: &str = "  capstan down ";

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
    let last = fs::read_to_string(place.directory.join("port")).ok().and_then(|text| text.trim().parse().ok());
    let is_free = |port: &u16| std::net::TcpListener::bind((address, *port)).is_ok();
    [last, Some(Flags::default().secure_port)].into_iter().flatten().find(is_free).unwrap_or_default()
}

/// Starts the same in the background, shows how it starts, and leaves it alone.
fn detach(arguments: &[&str], place: &Place) -> Result<(), String> {
    fs::create_dir_all(&place.directory).map_err(|error| format!("{}: {error}", place.directory.display()))?;
    let log = place.log();
    let file = fs::File::create(&log).map_err(|error| format!("cannot write {}: {error}", log.display()))?;
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
    let said = state::tail(&log, SHOWN_LOG);
    Err(said.trim().trim_start_matches("error: ").to_owned())
}

/// Says what has been started, and how long that took.
struct Progress {
    clock: RealClock,
    begun: Moment,
    last: Moment,
    colours: bool,
}

impl Progress {
    fn new() -> Self {
        let clock = RealClock::new();
        let begun = clock.monotonic();
        Progress { clock, begun, last: begun, colours: std::io::stdout().is_terminal() }
    }

    fn done(&mut self, what: &str, how: &str) {
        let now = self.clock.monotonic();
        let took = format!("{} ms", now.since(self.last).as_millis());
        self.last = now;
        let (on, off) = if self.colours { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
        println!("  {what:<12} {how:<58} {on}{took:>8}{off}");
    }

    fn total(&self) -> Duration {
        self.last.since(self.begun)
    }
}

async fn foreground(flags: &UpFlags, server_flags: &Flags, place: &Place) -> Result<(), String> {
    let mut progress = Progress::new();
    let running = server::start(server_flags).await?;
    progress.done("store", &running.store);
    progress.done("api server", &format!("{}, {}", running.url, crate::KUBERNETES));
    let (stopper, stop) = Stopper::new();
    let mut tasks = JoinSet::new();
    let controllers = loops::controllers(&running, flags, place, &stop, &mut tasks).await?;
    progress.done("controllers", &format!("{controllers} loops"));
    loops::scheduler(&running, &stop, &mut tasks);
    progress.done("scheduler", "default profile");
    let nodes = nodes::start(&running, flags, place).await?;
    progress.done("nodes", &nodes.what);

    let (state, where_to) = write_kubeconfig(&running, server_flags, place)?;
    state.write(&place.directory)?;
    let _ = fs::write(place.directory.join("port"), running.port.to_string());
    println!("Ready in {} ms. {where_to}", progress.total().as_millis());
    println!();
    println!("  kubectl run hello --image=busybox -- echo hi     run something");
    println!("  kubectl get pods,events                          see what became of it");
    println!("{LAST_LINE}                                    stop; `capstan up` goes on where it was");

    server::until_told().await?;
    // Pods end while there is still somebody to tell; then those who would replace them, then the server.
    nodes.shut_down().await;
    stopper.stop();
    let clock = RealClock::new();
    tokio::select! {
        () = async { while tasks.join_next().await.is_some() {} } => {}
        () = clock.sleep(LOOPS_END_WITHIN) => tasks.shutdown().await,
    }
    running.shut_down().await;
    state.remove(&place.directory)
}

/// A client of the server in this process, for one of its parts.
fn in_process(running: &Running, user: UserInfo, agent: &str) -> Client {
    Client::from_service(running.server.as_user(user)).with_user_agent(agent)
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
        kubeconfig::merge(&file, &own)?
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
