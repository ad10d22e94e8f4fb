//! The store's figures: `cargo bench -p capstan-storage [-- --seconds N --keys N --only creates|watchers|open]`.
//!
//! Creates run on the embedded engine and on a real etcd in turn, on the same machine and disk, both syncing; the ratio
//! is the result. Opening and memory are measured in a process of their own, so that nothing else is in the figures.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails may panic")]

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use capstan_clock::{Clock, RealClock};
use capstan_storage::{Embedded, Etcd, EtcdConfig, Op, Options, Revision, SharedStore, Store, WatchItem, WatchRequest};

/// The allocator that the server has too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VALUE: [u8; 1024] = [b'x'; 1024];
const WATCHERS: usize = 10_000;
const COMMITS_PER_SECOND: u64 = 100;

struct Settings {
    seconds: u64,
    keys: u64,
    only: Option<String>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let number = |name: &str, usual| value(name).map_or(usual, |text| text.parse().expect("a number"));
    if let Some(directory) = value("--measure-open") {
        return measure_open(Path::new(&directory));
    }
    let settings =
        Settings { seconds: number("--seconds", 3), keys: number("--keys", 1_000_000), only: value("--only") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let wanted = |section: &str| settings.only.as_ref().is_none_or(|only| only == section);
    if wanted("creates") {
        runtime.block_on(creates(&settings));
    }
    if wanted("watchers") {
        runtime.block_on(watchers(&settings));
    }
    if wanted("open") {
        open(&runtime, &settings);
    }
}

/// A place for a store on the disk that the build is on, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A real etcd that syncs as it does by default, ended when dropped.
struct EtcdProcess(Child);

impl EtcdProcess {
    /// Starts the etcd that `CAPSTAN_ETCD` names, or the one on the path, with its data in `directory`.
    fn start(directory: &Path) -> Option<(Self, String)> {
        let ports: Vec<TcpListener> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let [client, peer] = [0, 1].map(|at: usize| format!("http://{}", ports[at].local_addr().unwrap()));
        drop(ports);
        let binary = std::env::var_os("CAPSTAN_ETCD").unwrap_or_else(|| "etcd".into());
        let child = Command::new(binary)
            .args(["--log-level=error", "--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--data-dir"])
            .arg(directory)
            .stderr(Stdio::null())
            .spawn();
        Some((EtcdProcess(child.ok()?), client))
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A store that is measured, and what must live as long as it.
struct Peer {
    name: &'static str,
    store: SharedStore,
    _process: Option<EtcdProcess>,
    _directory: Directory,
}

fn embedded(name: &str) -> Peer {
    let directory = Directory::new(name);
    let store = Arc::new(Embedded::open(&directory.0, Options::default()).unwrap());
    Peer { name: "embedded", store, _process: None, _directory: directory }
}

/// etcd, through the crate's own engine: what a server on it would see. Says so when there is none.
async fn etcd(name: &str) -> Option<Peer> {
    let directory = Directory::new(&format!("{name}-etcd"));
    let Some((process, endpoint)) = EtcdProcess::start(&directory.0) else {
        println!("  etcd: skipped, there is none (set CAPSTAN_ETCD to its path, or put it on the PATH)");
        return None;
    };
    let store = Etcd::connect(EtcdConfig::new([endpoint]), Options::default()).await.unwrap();
    Some(Peer { name: "etcd", store: Arc::new(store), _process: Some(process), _directory: directory })
}

struct Latencies(Vec<Duration>);

impl Latencies {
    fn at(&self, fraction: f64) -> f64 {
        let at = ((self.0.len().max(1) - 1) as f64 * fraction) as usize;
        self.0.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
    }

    fn show(mut self, count: u64, elapsed: Duration) -> (String, f64) {
        self.0.sort_unstable();
        let rate = count as f64 / elapsed.as_secs_f64();
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|fraction| self.at(fraction));
        (format!("{rate:>9.0}/s   p50 {p50:>7.3} ms   p99 {p99:>7.3} ms   max {max:>7.2} ms"), rate)
    }
}

/// Two rounds, A B A B; of each the better one counts.
async fn creates(settings: &Settings) {
    println!("creates of 1 KiB, each durable");
    for writers in [1, 64, 256] {
        let mut best = [0.0_f64; 2];
        for _ in 0..2 {
            for (at, peer) in [Some(embedded("creates")), etcd("creates").await].into_iter().enumerate() {
                let Some(peer) = peer else { continue };
                let (shown, rate) = create_with(&peer.store, writers, settings.seconds).await;
                println!("  {writers:>3} writers  {:<9} {shown}", peer.name);
                best[at] = best[at].max(rate);
            }
        }
        if best[1] > 0.0 {
            println!("  {writers:>3} writers  embedded is {:.1} x etcd", best[0] / best[1]);
        }
    }
}

async fn create_with(store: &SharedStore, writers: u64, seconds: u64) -> (String, f64) {
    let clock = RealClock::new();
    let (next, value) = (Arc::new(AtomicU64::new(0)), bytes::Bytes::from_static(&VALUE));
    let end = Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..writers)
        .map(|_| {
            let (store, next, value) = (Arc::clone(store), Arc::clone(&next), value.clone());
            tokio::spawn(async move {
                let mut latencies = Vec::new();
                loop {
                    let began = clock.monotonic();
                    if began.0 >= end {
                        return latencies;
                    }
                    let key = key(next.fetch_add(1, Ordering::Relaxed));
                    store.commit(vec![Op::create(key, value.clone())]).await.unwrap();
                    latencies.push(clock.monotonic().since(began));
                }
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.unwrap());
    }
    let elapsed = clock.monotonic().0;
    let count = latencies.len() as u64;
    Latencies(latencies).show(count, elapsed)
}

fn key(number: u64) -> String {
    format!("/registry/configmaps/namespace-{:03}/item-{number:09}", number % 100)
}

async fn watchers(settings: &Settings) {
    println!("{WATCHERS} watchers of one prefix, {COMMITS_PER_SECOND} commits a second");
    {
        let peer = embedded("watchers");
        let (name, store) = (peer.name, Arc::clone(&peer.store));
        let clock = RealClock::new();
        let commits = settings.seconds * COMMITS_PER_SECOND;
        let after = store.revision().await.unwrap();
        // When each revision was about to be committed, in nanoseconds.
        let begun: Arc<Vec<AtomicU64>> = Arc::new((0..=commits).map(|_| AtomicU64::new(0)).collect());
        let mut tasks = Vec::new();
        for _ in 0..WATCHERS {
            let mut watch = store.watch(WatchRequest { prefix: "/registry/".into(), after }).await.unwrap();
            let begun = Arc::clone(&begun);
            tasks.push(tokio::spawn(async move {
                let (mut seen, mut slowest, mut sum) = (0, Duration::ZERO, Duration::ZERO);
                let mut latencies = Vec::new();
                while seen < commits {
                    let WatchItem::Batch(batch) = watch.next().await.unwrap() else { continue };
                    seen += 1;
                    assert_eq!(batch.revision, Revision(after.0 + seen), "nothing is missing");
                    let at = Duration::from_nanos(begun[(batch.revision.0 - after.0) as usize].load(Ordering::Relaxed));
                    let latency = clock.monotonic().0.saturating_sub(at);
                    slowest = slowest.max(latency);
                    sum += latency;
                    if seen % 16 == 0 {
                        latencies.push(latency);
                    }
                }
                latencies
            }));
        }
        let mut committing = Vec::new();
        let origin = clock.monotonic();
        for n in 1..=commits {
            clock.sleep_until(origin.plus(Duration::from_millis(n * 1000 / COMMITS_PER_SECOND))).await;
            let began = clock.monotonic();
            begun[n as usize].store(began.0.as_nanos() as u64, Ordering::Relaxed);
            store.commit(vec![Op::put(key(n % 100), bytes::Bytes::from_static(&VALUE))]).await.unwrap();
            committing.push(clock.monotonic().since(began));
        }
        let mut delivered = Vec::new();
        for task in tasks {
            delivered.extend(task.await.unwrap());
        }
        committing.sort_unstable();
        delivered.sort_unstable();
        let (committing, delivered) = (Latencies(committing), Latencies(delivered));
        println!(
            "  {name:<9} all {} delivered   commit p50 {:.2} p99 {:.2} ms   delivery p50 {:.2} p99 {:.2} ms ({:.1}x the commit)",
            commits * WATCHERS as u64,
            committing.at(0.5),
            committing.at(0.99),
            delivered.at(0.5),
            delivered.at(0.99),
            delivered.at(0.99) / committing.at(0.99),
        );
    }
}

fn open(runtime: &tokio::runtime::Runtime, settings: &Settings) {
    println!("opening a store of {} keys of 1 KiB", settings.keys);
    let directory = Directory::new("open");
    let clock = RealClock::new();
    runtime.block_on(async {
        let store = Arc::new(Embedded::open(&directory.0, Options::default()).unwrap());
        let next = Arc::new(AtomicU64::new(0));
        let tasks: Vec<_> = (0..256)
            .map(|_| {
                let (store, next, keys) = (Arc::clone(&store), Arc::clone(&next), settings.keys);
                tokio::spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= keys {
                            return;
                        }
                        let value = bytes::Bytes::from_static(&VALUE);
                        store.commit(vec![Op::create(key(number), value)]).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        println!("  filled in {:.1} s", clock.monotonic().0.as_secs_f64());
        print_memory("after filling", settings.keys, 0);
    });
    let program = std::env::current_exe().unwrap();
    let done = Command::new(program).arg("--measure-open").arg(&directory.0).status().unwrap();
    assert!(done.success(), "the measurement failed");
}

fn measure_open(directory: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _guard = runtime.enter();
    let before = resident();
    let clock = RealClock::new();
    let store = Embedded::open(directory, Options::default()).unwrap();
    println!("  opened in {:.3} s: {store:?}", clock.monotonic().0.as_secs_f64());
    let keys = runtime.block_on(store.range(capstan_storage::Range::default().limited(1).counted())).unwrap();
    print_memory("after opening", keys.count.unwrap(), before);
}

fn print_memory(when: &str, keys: u64, before: u64) {
    let bytes = resident().saturating_sub(before);
    let (mb, each) = (bytes as f64 / 1e6, bytes.saturating_sub(20_000_000) as f64 / keys as f64);
    println!("  {when}: {mb:.0} MB resident, {each:.0} bytes a key above 20 MB");
}

/// The memory that this process has in use.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
