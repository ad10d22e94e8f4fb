//! Real etcd processes on loopback ports, which end with the test process however that ends.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

/// Runs what follows it until its input ends, which is when the test process is no more, then kills it and removes the
/// directory that is named first, unless that is empty.
const KEEPER: &str = r#"dir=$1; shift; "$@" & pid=$!; cat > /dev/null; kill -9 $pid; wait $pid 2> /dev/null; [ -z "$dir" ] || rm -rf "$dir""#;

/// The etcd to test with: `CAPSTAN_ETCD`, or the one on the path. Says so when there is none.
pub(crate) fn binary() -> Option<PathBuf> {
    let named = env::var_os("CAPSTAN_ETCD").map(PathBuf::from);
    assert!(named.as_ref().is_none_or(|path| path.is_file()), "CAPSTAN_ETCD is not a file: {named:?}");
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = named.or_else(|| env::split_paths(&paths).map(|path| path.join("etcd")).find(|path| path.is_file()));
    if found.is_none() {
        println!("skipped: there is no etcd (set CAPSTAN_ETCD to its path, or put it on the PATH)");
    }
    found
}

/// A directory of its own.
pub(crate) fn directory() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("capstan-etcd-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = env::temp_dir().join(name);
    fs::create_dir_all(&path).expect("a directory for etcd");
    path
}

/// So many ports that nobody listens on.
pub(crate) fn ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    listeners.iter().map(|listener| listener.local_addr().expect("it is bound").port()).collect()
}

/// A process that is killed when this is dropped.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// Starts etcd; its words go to `log` in `directory`, which goes with it if `remove` is set.
    pub(crate) fn start(etcd: &Path, directory: &Path, remove: bool, arguments: &[String]) -> Self {
        let log = fs::File::create(directory.join("log")).expect("a log for etcd");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", KEEPER, "keeper"]).arg(if remove { directory.as_os_str() } else { "".as_ref() });
        command.arg(etcd).args(arguments);
        command.stdin(Stdio::piped()).stdout(log.try_clone().expect("a log for etcd")).stderr(log);
        let mut child = command.spawn().expect("a shell to start etcd");
        let input = child.stdin.take();
        Process { child, input }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.child.wait();
    }
}

/// Starts a single member for one test binary: quick rather than durable, with room for the largest commits.
pub(crate) fn single(etcd: &Path, more: &[&str]) -> (Process, String) {
    let (directory, ports) = (directory(), ports(2));
    let (client, peer) = (format!("http://127.0.0.1:{}", ports[0]), format!("http://127.0.0.1:{}", ports[1]));
    let data = directory.join("data").display().to_string();
    let arguments = [
        ("--data-dir", &data),
        ("--listen-client-urls", &client),
        ("--advertise-client-urls", &client),
        ("--listen-peer-urls", &peer),
        ("--initial-advertise-peer-urls", &peer),
        ("--initial-cluster", &format!("default={peer}")),
    ];
    let mut arguments: Vec<_> =
        arguments.iter().flat_map(|(name, value)| [(*name).to_owned(), (*value).clone()]).collect();
    arguments.extend(["--unsafe-no-fsync", "--log-level=warn"].map(str::to_owned));
    arguments.extend(more.iter().map(|more| (*more).to_owned()));
    (Process::start(etcd, &directory, true, &arguments), client)
}
