//! Real etcd processes on loopback ports, which end with the test process however that ends.

use std::{
    env, fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

/// Runs what follows the directory until its input ends, then kills it. Without a last word the test process is no
/// more, and the directory goes too.
const KEEPER: &str =
    r#"dir=$1; shift; "$@" & pid=$!; read word; kill -9 $pid; wait $pid 2> /dev/null; [ -n "$word" ] || rm -rf "$dir""#;

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
struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    fn start(etcd: &Path, directory: &Path, log: &Path, arguments: &[String]) -> Self {
        let log = fs::File::create(log).expect("a log for etcd");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", KEEPER, "keeper"]).arg(directory).arg(etcd).args(arguments);
        command.stdin(Stdio::piped()).stdout(log.try_clone().expect("a log for etcd")).stderr(log);
        let mut child = command.spawn().expect("a shell to start etcd");
        let input = child.stdin.take();
        Process { child, input }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The directory is still wanted, or removed by who made it.
        let _ = self.input.take().map(|mut input| input.write_all(b"stop\n"));
        let _ = self.child.wait();
    }
}

/// The members of a cluster, on ports of their own, each running or not.
pub(crate) struct Cluster {
    etcd: PathBuf,
    directory: PathBuf,
    arguments: Vec<Vec<String>>,
    members: Vec<Option<Process>>,
    pub(crate) endpoints: Vec<String>,
}

impl Cluster {
    /// Starts so many members, quick rather than durable. `scheme` is that of the client's side.
    pub(crate) fn start(etcd: &Path, count: usize, scheme: &str, more: &[&str]) -> Self {
        let (directory, ports) = (directory(), ports(2 * count));
        let clients: Vec<_> = ports[..count].iter().map(|port| format!("{scheme}://127.0.0.1:{port}")).collect();
        let peers: Vec<_> = ports[count..].iter().map(|port| format!("http://127.0.0.1:{port}")).collect();
        let all: Vec<_> = peers.iter().enumerate().map(|(n, peer)| format!("m{n}={peer}")).collect();
        let arguments = |n: usize| {
            let data = directory.join(format!("m{n}")).display().to_string();
            let named = [
                ("--name", format!("m{n}")),
                ("--data-dir", data),
                ("--listen-client-urls", clients[n].clone()),
                ("--advertise-client-urls", clients[n].clone()),
                ("--listen-peer-urls", peers[n].clone()),
                ("--initial-advertise-peer-urls", peers[n].clone()),
                ("--initial-cluster", all.join(",")),
            ];
            let named = named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            named
                .chain(["--unsafe-no-fsync", "--log-level=warn"].iter().chain(more).map(|&more| more.to_owned()))
                .collect()
        };
        let arguments = (0..count).map(arguments).collect();
        let members = (0..count).map(|_| None).collect();
        let mut cluster = Cluster { etcd: etcd.to_owned(), directory, arguments, members, endpoints: clients };
        (0..count).for_each(|member| cluster.revive(member));
        cluster
    }

    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member] = None;
    }

    /// Starts a member, with the data that it had.
    pub(crate) fn revive(&mut self, member: usize) {
        let arguments = &self.arguments[member];
        let log = self.directory.join(format!("log{member}"));
        // The first keeper that ends by itself, because this process is no more, removes everything.
        self.members[member] = Some(Process::start(&self.etcd, &self.directory, &log, arguments));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.members.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
