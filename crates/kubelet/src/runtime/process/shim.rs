//! The program's other life: it makes namespaces, becomes a container's first process, or enters a container.
//!
//! `process-init outer SPEC` stays on the node's side: it makes the namespaces, starts `process-init inner SPEC` in
//! them, waits for it and tells the node how it ended; when the node goes away it takes the container along.
//! `inner` makes the container's view of the files and becomes the command. `process-init exec SPEC` enters the
//! namespaces of a container and runs a command there, by way of `process-init session`.
//!
//! No `unsafe`: a new process comes from `std::process`, which does its own part; what the kernel offers besides is
//! asked for by `rustix`.

use std::{
    io::{Read as _, Write as _},
    os::{
        fd::AsFd as _,
        linux::net::SocketAddrExt as _,
        unix::{
            net::{SocketAddr, UnixStream},
            process::{CommandExt as _, ExitStatusExt as _},
        },
    },
    process::{Command, ExitStatus, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags},
    process::{Pid, PidfdFlags, Resource, Rlimit, Signal},
    thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags},
};

use super::{
    root,
    spec::{ExecSpec, Namespaces, Spec},
};

/// The word that begins the program's other life.
pub const PROCESS_INIT: &str = "process-init";

/// The exit code of a shim that could not do its part.
const SHIM_FAILED: i32 = 125;

/// To be called first thing in `main` with the program's arguments: whether they are for the shim, and then with which
/// code the program is to end.
#[must_use]
pub fn process_init(mut args: impl Iterator<Item = String>) -> Option<i32> {
    let (_, word) = (args.next(), args.next()?);
    if word != PROCESS_INIT {
        return None;
    }
    let (role, path) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let done = match role.as_str() {
        "outer" => read::<Spec>(&path).and_then(|spec| outer(&spec, &path)),
        "inner" => read::<Spec>(&path).and_then(|spec| inner(&spec)),
        "exec" => read::<ExecSpec>(&path).and_then(|spec| {
            // It is for this one time.
            let _ = std::fs::remove_file(&path);
            exec(&spec)
        }),
        "session" => Ok(session(&path, &args.collect::<Vec<_>>())),
        "try" => try_namespaces(&path),
        "pause" => Ok(pause()),
        other => Err(format!("{PROCESS_INIT} knows nothing of {other:?}")),
    };
    Some(done.unwrap_or_else(|error| {
        let _ = writeln!(std::io::stderr(), "{PROCESS_INIT}: {error}");
        SHIM_FAILED
    }))
}

fn read<T: serde::de::DeserializeOwned>(path: &str) -> Result<T, String> {
    let text = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("{path}: {error}"))
}

fn connect(name: &str, role: &str) -> Result<UnixStream, String> {
    let of = |error: std::io::Error| format!("control socket: {error}");
    let mut stream = SocketAddr::from_abstract_name(name).and_then(|a| UnixStream::connect_addr(&a)).map_err(of)?;
    writeln!(stream, "{role}").map_err(of)?;
    Ok(stream)
}

/// Nothing to do, for as long as it is let: what `pause` images are for.
fn pause() -> i32 {
    let mut rest = Vec::new();
    // Without input this ends at once, and the thread waits for a signal instead.
    let _ = std::io::stdin().read_to_end(&mut rest);
    loop {
        std::thread::park();
    }
}

#[expect(deprecated, reason = "unshare is unsafe only with CLONE_FILES, and the other form needs an unsafe block")]
fn unshare(namespaces: Namespaces) -> Result<(), String> {
    let flag = |wanted, flag| if wanted { flag } else { UnshareFlags::empty() };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if namespaces.user {
        rustix::thread::unshare(UnshareFlags::NEWUSER).map_err(|error| format!("user namespace: {error}"))?;
        let write = |file: &str, text: &str| {
            std::fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("{file}: {error}"))
        };
        write("setgroups", "deny")?;
        write("uid_map", &format!("0 {uid} 1"))?;
        write("gid_map", &format!("0 {gid} 1"))?;
    }
    let flags = flag(namespaces.mount, UnshareFlags::NEWNS)
        | flag(namespaces.pid, UnshareFlags::NEWPID)
        | flag(namespaces.ipc, UnshareFlags::NEWIPC)
        | flag(namespaces.uts, UnshareFlags::NEWUTS);
    rustix::thread::unshare(flags).map_err(|error| format!("namespaces: {error}"))
}

/// Whether the namespaces named in `which` (a letter each) can be made: exit code 0 if so.
fn try_namespaces(which: &str) -> Result<i32, String> {
    unshare(namespaces(which))?;
    Ok(0)
}

/// `u` user, `m` mount, `p` pid, `i` ipc, `t` uts.
pub(super) fn namespaces(which: &str) -> Namespaces {
    let has = |letter| which.contains(letter);
    Namespaces { user: has('u'), mount: has('m'), pid: has('p'), ipc: has('i'), uts: has('t') }
}

fn outer(spec: &Spec, path: &str) -> Result<i32, String> {
    let mut control = connect(&spec.control, "outer")?;
    for procs in &spec.cgroup_procs {
        std::fs::write(procs, "0").map_err(|error| format!("{}: {error}", procs.display()))?;
    }
    if spec.oom_score_adj != 0 {
        // Lowering it takes a right that not everybody has; then it stays as it was.
        let _ = std::fs::write("/proc/self/oom_score_adj", spec.oom_score_adj.to_string());
    }
    unshare(spec.namespaces)?;
    let child = Command::new("/proc/self/exe").args([PROCESS_INIT, "inner", path]).spawn();
    let mut child = child.map_err(|error| format!("inner: {error}"))?;
    let _ = writeln!(control, "pid {}", child.id());
    // Whoever started this is the only one who knows of it: without the node the container must not go on. One thread
    // watches both, because none can be started after the process namespace has been left.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
        && node_left_first(&control, pid).unwrap_or(false)
    {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    // The container's ends are its own: output ends when the container does.
    let status = child.wait().map_err(|error| format!("wait: {error}"))?;
    let (code, signal) = code(status);
    let _ = writeln!(control, "exit {code} {signal}");
    Ok(code)
}

/// Waits for the end of the container or of the node; whether it was the node's.
fn node_left_first(control: &UnixStream, pid: Pid) -> rustix::io::Result<bool> {
    let child = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    let mut ends = [PollFd::new(&child, PollFlags::IN), PollFd::new(control, PollFlags::IN)];
    loop {
        match rustix::event::poll(&mut ends, None) {
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
            // The node says nothing on this connection, so all there can be to read is its end.
            Ok(_) => return Ok(ends[0].revents().is_empty()),
        }
    }
}

/// The exit code as a shell has it, and the signal if there was one.
fn code(status: ExitStatus) -> (i32, i32) {
    let signal = status.signal().unwrap_or(0);
    (status.code().unwrap_or(128 + signal), signal)
}

fn inner(spec: &Spec) -> Result<i32, String> {
    let mut control = connect(&spec.control, "inner")?;
    let result = become_container(spec);
    let _ = write!(control, "{}", result.as_ref().err().cloned().unwrap_or_default());
    let _ = control.shutdown(std::net::Shutdown::Both);
    Ok(SHIM_FAILED)
}

/// Returns only when something failed.
fn become_container(spec: &Spec) -> Result<(), String> {
    // Only now: the node listens in its own network.
    if let Some(path) = &spec.network {
        let of = |error: &dyn std::fmt::Display| format!("network namespace: {error}");
        let namespace = std::fs::File::open(path).map_err(|error| of(&error))?;
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| of(&error))?;
    }
    if spec.namespaces.uts {
        rustix::system::sethostname(spec.hostname.as_bytes()).map_err(|error| format!("hostname: {error}"))?;
    }
    if spec.namespaces.mount {
        root::enter(spec)?;
    }
    terminal(spec.tty)?;
    restrict(spec)?;
    let directory = if spec.working_dir.is_empty() { "/" } else { &spec.working_dir };
    std::fs::create_dir_all(directory).ok();
    let program = spec.argv.first().map_or("", String::as_str);
    let failed = |error| describe(program, &error);
    std::env::set_current_dir(directory).map_err(|error| format!("chdir to cwd (\"{directory}\"): {error}"))?;
    Err(failed(command(spec, &spec.argv).exec()))
}

/// The words that runc has for it.
fn describe(program: &str, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound if program.contains('/') => format!("stat {program}: no such file or directory"),
        std::io::ErrorKind::NotFound => "executable file not found in $PATH".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    };
    format!("exec: \"{program}\": {why}")
}

fn command(spec: &Spec, argv: &[String]) -> Command {
    let mut command = Command::new(argv.first().map_or("", String::as_str));
    command.args(argv.iter().skip(1)).env_clear().envs(spec.env.iter().map(|(name, value)| (name, value)));
    command
}

/// A session of its own, with the terminal on its input as the controlling one.
fn terminal(tty: bool) -> Result<(), String> {
    let _ = rustix::process::setsid();
    if tty {
        rustix::process::ioctl_tiocsctty(std::io::stdin().as_fd()).map_err(|error| format!("terminal: {error}"))?;
    }
    Ok(())
}

/// Gives up what the container must not have.
fn restrict(spec: &Spec) -> Result<(), String> {
    let of = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    if let Some(bytes) = spec.address_space {
        let limit = Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::setrlimit(Resource::As, limit).map_err(of("address space"))?;
    }
    if let Some(keep) = &spec.capabilities {
        for (name, capability) in CapabilitySet::all().iter_names() {
            if !keep.iter().any(|kept| kept == name) {
                rustix::thread::remove_capability_from_bounding_set(capability).map_err(of("capabilities"))?;
            }
        }
    }
    if spec.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(of("no new privileges"))?;
    }
    let groups: Vec<_> = spec.groups.iter().map(|&group| rustix::process::Gid::from_raw(group)).collect();
    if !groups.is_empty() || spec.user.is_some_and(|user| user != 0) {
        rustix::thread::set_thread_groups(&groups).map_err(of("groups"))?;
    }
    if let Some(group) = spec.group {
        rustix::thread::set_thread_gid(rustix::process::Gid::from_raw(group)).map_err(of("group"))?;
    }
    if let Some(user) = spec.user {
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(user)).map_err(of("user"))?;
    }
    Ok(())
}

fn exec(spec: &ExecSpec) -> Result<i32, String> {
    let container = &spec.container;
    for procs in &container.cgroup_procs {
        std::fs::write(procs, "0").map_err(|error| format!("{}: {error}", procs.display()))?;
    }
    let open = |name: &str| {
        let path = format!("/proc/{}/{name}", spec.pid);
        std::fs::File::open(&path).map_err(|error| format!("{path}: {error}"))
    };
    // All are opened before any is entered: afterwards the numbers of processes mean something else.
    let own = container.namespaces;
    let wanted = [
        (own.user, "ns/user", LinkNameSpaceType::User),
        (own.ipc, "ns/ipc", LinkNameSpaceType::InterProcessCommunication),
        (own.uts, "ns/uts", LinkNameSpaceType::HostNameAndNISDomainName),
        (container.network.is_some(), "ns/net", LinkNameSpaceType::Network),
        (own.pid, "ns/pid", LinkNameSpaceType::ProcessID),
        (own.mount, "ns/mnt", LinkNameSpaceType::Mount),
    ];
    let mut links = Vec::new();
    for (_, name, kind) in wanted.into_iter().filter(|(own, ..)| *own) {
        links.push((open(name)?, name, kind));
    }
    let root = open("root")?;
    for (link, name, kind) in &links {
        rustix::thread::move_into_link_name_space(link.as_fd(), Some(*kind)).map_err(|e| format!("{name}: {e}"))?;
    }
    if own.mount {
        rustix::process::fchdir(&root).and_then(|()| rustix::process::chroot(".")).map_err(|e| format!("root: {e}"))?;
    }
    restrict(container)?;
    let directory = if container.working_dir.is_empty() { "/" } else { &container.working_dir };
    std::env::set_current_dir(directory).map_err(|error| format!("{directory}: {error}"))?;
    // The command is a child, because only children are in the other process namespace; and with a terminal it is the
    // leader of its own session, so that a shell finds itself in charge of it.
    let terminal = if spec.tty { "tty" } else { "" };
    let argv = ["/proc/self/exe", PROCESS_INIT, "session", terminal].map(str::to_owned);
    let argv: Vec<String> = argv.into_iter().chain(spec.argv.iter().cloned()).collect();
    let mut child = command(container, &argv).stdin(Stdio::inherit()).spawn().map_err(|e| format!("session: {e}"))?;
    Ok(code(child.wait().map_err(|error| format!("wait: {error}"))?).0)
}

/// Becomes a command, in a session of its own if it has a terminal; returns only when that failed.
fn session(tty: &str, argv: &[String]) -> i32 {
    let program = argv.first().map_or("", String::as_str);
    let failed = match if tty == "tty" { terminal(true) } else { Ok(()) } {
        Ok(()) => Command::new(program).args(argv.iter().skip(1)).exec(),
        Err(error) => std::io::Error::other(error),
    };
    let text = describe(program, &failed);
    let _ = writeln!(
        std::io::stderr(),
        "OCI runtime exec failed: exec failed: unable to start container process: {text}: unknown"
    );
    if failed.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
}
