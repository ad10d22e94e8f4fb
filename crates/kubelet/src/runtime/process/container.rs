//! One container: its shim, its log, those who watch it, and how it ended.

use std::{
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener as StdListener},
    },
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_clock::{SharedClock, SharedIds, Timestamp};
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    process::{Child, Command},
    sync::{broadcast, mpsc, watch},
    task::JoinHandle,
};

use super::{
    cgroup::Group,
    pty::{self, Terminal},
    shim::PROCESS_INIT,
    spec::{ExecSpec, Spec},
};
use crate::{
    lifecycle::Exit,
    logs::{LogWriter, Stream},
    runtime::{
        ContainerConfig, ContainerRecord, ContainerStats, ExecConfig, Input, Limits, Output, RuntimeError,
        SandboxConfig, Session, TerminalSize,
    },
};

/// How many chunks of output may wait for somebody who is attached; who is slower misses some.
const ATTACHED_CHUNKS: usize = 256;
/// How much output is read at once.
const CHUNK: usize = 16 * 1024;
/// How much of the output of a probe or a hook is kept.
const MAX_SYNC_OUTPUT: usize = 16 * 1024;
/// How long a shim that has ended may still be heard.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How many sizes of a terminal may wait.
const RESIZES: usize = 16;
/// How much may wait between a container and who is attached.
const ATTACH_BUFFER: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) sandbox: String,
    pod_uid: String,
    name: String,
    config: ContainerConfig,
    spec: Spec,
    group: Group,
    log: PathBuf,
    pid: AtomicU32,
    exit: watch::Sender<Option<Exit>>,
    output: broadcast::Sender<(Stream, Bytes)>,
    stdin: Arc<Mutex<Option<mpsc::Sender<Bytes>>>>,
    terminal: Mutex<Option<Terminal>>,
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> RuntimeError {
    RuntimeError::Failed(format!("{what}: {error}"))
}

impl Container {
    pub(super) fn new(
        id: String,
        sandbox: &str,
        pod: &SandboxConfig,
        config: &ContainerConfig,
        spec: Spec,
        group: Group,
        log: PathBuf,
    ) -> Self {
        Container {
            id,
            sandbox: sandbox.to_owned(),
            pod_uid: pod.uid.clone(),
            name: config.name.clone(),
            config: config.clone(),
            spec,
            group,
            log,
            pid: AtomicU32::new(0),
            exit: watch::Sender::new(None),
            output: broadcast::Sender::new(ATTACHED_CHUNKS),
            stdin: Arc::default(),
            terminal: Mutex::default(),
        }
    }

    pub(super) fn record(&self) -> ContainerRecord {
        let running = self.pid.load(Ordering::Acquire) != 0 && self.exit.borrow().is_none();
        ContainerRecord {
            id: self.id.clone(),
            pod_uid: self.pod_uid.clone(),
            name: self.name.clone(),
            attempt: self.config.attempt,
            running,
            image: self.config.image_ref.clone(),
        }
    }

    /// Starts the shim and waits until it has become the command, or says why not.
    pub(super) async fn start(self: &Arc<Self>, shim: &Path, clock: &SharedClock) -> Result<(), RuntimeError> {
        let address = SocketAddr::from_abstract_name(&self.spec.control)?;
        let listener = StdListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        let path = self.spec.dir.join("spec.json");
        let text = serde_json::to_vec(&self.spec).map_err(|error| failed("spec", &error))?;
        std::fs::write(&path, text)?;

        let mut command = Command::new(shim);
        command.args([PROCESS_INIT.as_ref(), "outer".as_ref(), path.as_os_str()]).env_clear().current_dir("/");
        let log = LogWriter::open(&self.log, true, clock.clone())?;
        let log = Arc::new(Mutex::new(log));
        let (child, pumps) = if self.config.tty {
            let (terminal, process) = pty::open()?;
            give_terminal(&mut command, process)?;
            let child = command.spawn().map_err(|error| failed("shim", &error))?;
            drop(command);
            let pump = self.pump(terminal.output(), Stream::Stdout, &log);
            self.feed(terminal.input());
            *self.terminal.lock().unwrap_or_else(PoisonError::into_inner) = Some(terminal);
            (child, vec![pump])
        } else {
            let stdin = if self.config.stdin { Stdio::piped() } else { Stdio::null() };
            command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().map_err(|error| failed("shim", &error))?;
            if let Some(stdin) = child.stdin.take() {
                self.feed(Box::new(stdin));
            }
            let out = child.stdout.take().map(|out| self.pump(Box::new(out), Stream::Stdout, &log));
            let err = child.stderr.take().map(|err| self.pump(Box::new(err), Stream::Stderr, &log));
            (child, out.into_iter().chain(err).collect())
        };
        let mut child = child;
        let handshake = self.handshake(&listener);
        tokio::pin!(handshake);
        let begun = tokio::select! {
            biased;
            begun = &mut handshake => Some(begun),
            _ = child.wait() => None,
        };
        // A container may end before its beginning was heard of: what the shim said is still to be read.
        let begun = match begun {
            Some(begun) => Some(begun),
            None => tokio::select! {
                biased;
                begun = &mut handshake => Some(begun),
                () = clock.sleep(LAST_WORDS) => None,
            },
        };
        let Some(begun) = begun else {
            for pump in pumps {
                let _ = pump.await;
            }
            let said = crate::logs::tail(&self.log, 5, 1024);
            return Err(RuntimeError::Failed(format!("the shim ended before the container began: {said}")));
        };
        let outer = begun?;
        tokio::spawn(self.clone().supervise(child, outer, pumps, log, clock.clone()));
        Ok(())
    }

    /// The shim's two halves report: the outer one the container's process, the inner one whether it became it.
    async fn handshake(&self, listener: &UnixListener) -> Result<BufReader<UnixStream>, RuntimeError> {
        let (mut outer, mut begun) = (None, false);
        while outer.is_none() || !begun {
            let (stream, _) = listener.accept().await?;
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            if line.trim() == "outer" {
                outer = Some(stream);
                continue;
            }
            // Its end closes by itself when it becomes the command.
            let mut said = String::new();
            stream.read_to_string(&mut said).await?;
            if !said.is_empty() {
                return Err(RuntimeError::Failed(format!(
                    "failed to create containerd task: failed to create shim task: OCI runtime create failed: unable \
                     to start container process: {said}: unknown"
                )));
            }
            begun = true;
        }
        let Some(mut outer) = outer else { return Err(RuntimeError::Failed("no shim".to_owned())) };
        let mut line = String::new();
        outer.read_line(&mut line).await?;
        let pid = line.strip_prefix("pid ").and_then(|pid| pid.trim().parse().ok());
        self.pid.store(pid.unwrap_or(0), Ordering::Release);
        Ok(outer)
    }

    /// Waits for the end, lets all output arrive, and tells.
    async fn supervise(
        self: Arc<Self>,
        mut child: Child,
        outer: BufReader<UnixStream>,
        pumps: Vec<JoinHandle<()>>,
        log: Arc<Mutex<LogWriter>>,
        clock: SharedClock,
    ) {
        let mut lines = outer.lines();
        let mut exit = Exit { code: 137, ..Exit::default() };
        while let Ok(Some(line)) = lines.next_line().await {
            let mut fields = line.strip_prefix("exit ").unwrap_or_default().split(' ').map(str::parse::<i32>);
            if let (Some(Ok(code)), Some(Ok(signal))) = (fields.next(), fields.next()) {
                exit.code = code;
                exit.signal = Some(signal).filter(|signal| *signal != 0);
            }
        }
        let _ = child.wait().await;
        *self.stdin.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.terminal.lock().unwrap_or_else(PoisonError::into_inner).take();
        for pump in pumps {
            let _ = pump.await;
        }
        let _ = log.lock().unwrap_or_else(PoisonError::into_inner).finish();
        exit.oom_killed = self.group.oom_killed();
        exit.at = Some(clock.now());
        self.group.remove();
        self.exit.send_replace(Some(exit));
    }

    /// Output goes to the log and to whoever is attached.
    fn pump(&self, mut from: Output, stream: Stream, log: &Arc<Mutex<LogWriter>>) -> JoinHandle<()> {
        let (log, output) = (log.clone(), self.output.clone());
        tokio::spawn(async move {
            let mut buffer = vec![0; CHUNK];
            while let Ok(read @ 1..) = from.read(&mut buffer).await {
                // A log that can't be written must not stop the container.
                let _ = log.lock().unwrap_or_else(PoisonError::into_inner).write(stream, &buffer[..read]);
                let _ = output.send((stream, Bytes::copy_from_slice(&buffer[..read])));
            }
        })
    }

    /// Input comes from whoever is attached.
    fn feed(&self, mut to: Input) {
        let (sender, mut chunks) = mpsc::channel::<Bytes>(RESIZES);
        *self.stdin.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        tokio::spawn(async move {
            while let Some(chunk) = chunks.recv().await {
                if to.write_all(&chunk).await.is_err() {
                    return;
                }
                let _ = to.flush().await;
            }
        });
    }

    /// How it ended, once it has.
    pub(super) async fn ended(&self) -> Exit {
        let mut exit = self.exit.subscribe();
        let ended = exit.wait_for(Option::is_some).await;
        ended.ok().and_then(|exit| exit.clone()).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid.load(Ordering::Acquire)).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.exit.borrow().is_none()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    pub(super) async fn stop(&self, grace: Duration, clock: &SharedClock) {
        if self.pid.load(Ordering::Acquire) == 0 {
            return;
        }
        if !grace.is_zero() {
            self.signal(stop_signal(&self.config.stop_signal));
            tokio::select! {
                _ = self.ended() => return,
                () = clock.sleep(grace) => {}
            }
        }
        self.signal(Signal::KILL);
        self.ended().await;
    }

    pub(super) fn remove(&self) {
        self.group.remove();
        let _ = std::fs::remove_dir_all(&self.spec.dir);
    }

    pub(super) fn update_limits(&self, limits: &Limits) -> std::io::Result<()> {
        self.group.update(limits)
    }

    pub(super) fn stats(&self, now: Timestamp) -> Option<ContainerStats> {
        let pid = Some(self.pid.load(Ordering::Acquire)).filter(|pid| *pid != 0 && self.exit.borrow().is_none())?;
        let (cpu_nanos, memory_bytes) = self.group.usage().or_else(|| process_usage(pid))?;
        let (pod_uid, name) = (self.pod_uid.clone(), self.name.clone());
        let processes = self.group.processes().unwrap_or(1);
        let disk_bytes = crate::node::storage::bytes(&self.spec.dir.join("upper"));
        let at = Some(now);
        Some(ContainerStats { pod_uid, name, cpu_nanos, cpu_nano_cores: None, memory_bytes, processes, disk_bytes, at })
    }

    fn exec_command(&self, shim: &Path, argv: &[String], tty: bool, ids: &SharedIds) -> Result<Command, RuntimeError> {
        let pid = self.pid.load(Ordering::Acquire);
        if pid == 0 || self.exit.borrow().is_some() {
            return Err(RuntimeError::Failed(format!("container {} is not running", self.id)));
        }
        let spec = ExecSpec { pid, container: self.spec.clone(), argv: argv.to_vec(), tty };
        let path = self.spec.dir.join(format!("exec-{}.json", ids.suffix(8)));
        let text = serde_json::to_vec(&spec).map_err(|error| failed("spec", &error))?;
        std::fs::write(&path, text)?;
        let mut command = Command::new(shim);
        command.args([PROCESS_INIT.as_ref(), "exec".as_ref(), path.as_os_str()]).env_clear().current_dir("/");
        command.kill_on_drop(true);
        if !tty {
            // The command is of the shim's group and ends with it. With a terminal it has a session of its own.
            command.process_group(0);
        }
        Ok(command)
    }

    pub(super) fn exec(&self, shim: &Path, config: &ExecConfig, ids: &SharedIds) -> Result<Session, RuntimeError> {
        let mut command = self.exec_command(shim, &config.command, config.tty, ids)?;
        if config.tty {
            let (terminal, process) = pty::open()?;
            give_terminal(&mut command, process)?;
            let child = command.spawn().map_err(|error| failed("shim", &error))?;
            drop(command);
            let (sender, mut sizes) = mpsc::channel::<TerminalSize>(RESIZES);
            let (stdin, stdout) = (config.stdin.then(|| terminal.input()), terminal.output());
            tokio::spawn(async move {
                while let Some(size) = sizes.recv().await {
                    terminal.resize(size);
                }
            });
            return Ok(Session {
                stdin,
                stdout: Some(stdout),
                stderr: None,
                resize: Some(sender),
                exit: Box::pin(wait(child)),
            });
        }
        let piped = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
        command.stdin(piped(config.stdin)).stdout(piped(config.stdout)).stderr(piped(config.stderr));
        let mut child = command.spawn().map_err(|error| failed("shim", &error))?;
        Ok(Session {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as Input),
            stdout: child.stdout.take().map(|stdout| Box::new(stdout) as Output),
            stderr: child.stderr.take().map(|stderr| Box::new(stderr) as Output),
            resize: None,
            exit: Box::pin(wait(child)),
        })
    }

    pub(super) async fn exec_sync(
        &self,
        shim: &Path,
        argv: &[String],
        timeout: Duration,
        clock: &SharedClock,
        ids: &SharedIds,
    ) -> Result<(Exit, Vec<u8>), RuntimeError> {
        let mut command = self.exec_command(shim, argv, false, ids)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("shim", &error))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut output = Vec::new();
        let done = async {
            let (out, err) = tokio::join!(beginning(stdout), beginning(stderr));
            output = [out, err].concat();
            wait(child).await
        };
        let exit = tokio::select! {
            exit = done => Some(exit?),
            () = clock.sleep(timeout) => None,
        };
        match exit {
            Some(exit) => Ok((exit, output)),
            None => {
                if let Some(pid) = pid {
                    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                }
                let text = format!("command timed out: {argv:?} timed out after {}s", timeout.as_secs());
                Err(RuntimeError::Failed(text))
            }
        }
    }

    pub(super) fn attach(self: &Arc<Self>, config: &ExecConfig) -> Result<Session, RuntimeError> {
        if self.exit.borrow().is_some() {
            return Err(RuntimeError::Failed(format!("container {} is not running", self.id)));
        }
        let (mut out, stdout) = tokio::io::duplex(ATTACH_BUFFER);
        let (mut err, stderr) = tokio::io::duplex(ATTACH_BUFFER);
        let mut chunks = self.output.subscribe();
        let (container, mut exit) = (self.clone(), self.exit.subscribe());
        tokio::spawn(async move {
            loop {
                let chunk = tokio::select! {
                    biased;
                    chunk = chunks.recv() => chunk,
                    _ = exit.wait_for(Option::is_some) => return,
                };
                let sent = match chunk {
                    Ok((Stream::Stdout, bytes)) => out.write_all(&bytes).await,
                    Ok((Stream::Stderr, bytes)) => err.write_all(&bytes).await,
                    Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
                    Err(broadcast::error::RecvError::Closed) => return,
                };
                if sent.is_err() {
                    return;
                }
            }
        });
        let stdin = self.stdin.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|_| config.stdin);
        let stdin = stdin.map(|sender| self.attached_input(sender));
        let terminal = self.terminal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let resize = terminal.map(|terminal| {
            let (sender, mut sizes) = mpsc::channel::<TerminalSize>(RESIZES);
            tokio::spawn(async move {
                while let Some(size) = sizes.recv().await {
                    terminal.resize(size);
                }
            });
            sender
        });
        Ok(Session {
            stdin,
            stdout: config.stdout.then(|| Box::new(stdout) as Output),
            stderr: (config.stderr && !self.config.tty).then(|| Box::new(stderr) as Output),
            resize,
            exit: Box::pin(async move { Ok(container.ended().await) }),
        })
    }

    fn attached_input(&self, sender: mpsc::Sender<Bytes>) -> Input {
        let (mut ours, theirs) = tokio::io::duplex(ATTACH_BUFFER);
        let (once, stdin) = (self.config.stdin_once, self.stdin.clone());
        tokio::spawn(async move {
            let mut buffer = vec![0; CHUNK];
            while let Ok(read @ 1..) = ours.read(&mut buffer).await {
                if sender.send(Bytes::copy_from_slice(&buffer[..read])).await.is_err() {
                    return;
                }
            }
            if once {
                stdin.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
        });
        Box::new(theirs)
    }
}

fn give_terminal(command: &mut Command, process: OwnedFd) -> std::io::Result<()> {
    command.stdin(process.try_clone()?).stdout(process.try_clone()?).stderr(process);
    Ok(())
}

/// The beginning of what something prints; it is read to its end, so that whoever prints more isn't stopped.
async fn beginning(from: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let Some(mut from) = from else { return Vec::new() };
    let mut kept = Vec::new();
    let _ = (&mut from).take(MAX_SYNC_OUTPUT as u64).read_to_end(&mut kept).await;
    let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    kept
}

async fn wait(mut child: Child) -> Result<Exit, RuntimeError> {
    use std::os::unix::process::ExitStatusExt as _;
    let status = child.wait().await?;
    let signal = status.signal();
    Ok(Exit { code: status.code().unwrap_or(128 + signal.unwrap_or(0)), signal, ..Exit::default() })
}

/// The signal of a name such as `SIGQUIT`; `SIGTERM` for what isn't known.
fn stop_signal(name: &str) -> Signal {
    match name {
        "SIGHUP" => Signal::HUP,
        "SIGINT" => Signal::INT,
        "SIGQUIT" => Signal::QUIT,
        "SIGKILL" => Signal::KILL,
        "SIGUSR1" => Signal::USR1,
        "SIGUSR2" => Signal::USR2,
        "SIGWINCH" => Signal::WINCH,
        _ => Signal::TERM,
    }
}

/// What one process uses, where there is no group to ask.
fn process_usage(pid: u32) -> Option<(u64, u64)> {
    /// The kernel counts in hundredths of a second.
    const TICK_NANOS: u64 = 10_000_000;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; what follows are numbers.
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    let page = rustix::param::page_size() as u64;
    Some(((number(11) + number(12)) * TICK_NANOS, number(21) * page))
}
