//! The crash loop: `cargo run --release -p capstan-storage --example crash -- --kills 200 [--seed N]`.
//!
//! A child process writes to a store as fast as it can and tells, line by line, what was acknowledged and what a watch
//! has delivered. It is killed, or aborts or panics at a named point; then the store is opened here and checked: every
//! acknowledged write is there, none is there in half, revisions only grow, and the watch history is what the log says.
//! Then the next child goes on with the same store. Exits with 1 if anything was lost.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test program: it may panic and read the clock")]

use std::{
    any::Any,
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use capstan_clock::{Ids, SeededIds};
use capstan_storage::{
    At, Batch, CommitError, Embedded, Fault, Key, KeyValue, Op, Options, Range, ReadError, Retention, Revision, Store,
    Value, WatchItem, WatchRequest,
    embedded::{Disk, Files, Handle, Point, Tuning},
};

const WRITERS: u64 = 8;
const SLOTS: u64 = 40;

/// So small that every part of the engine has its turn in every round.
const SMALL: Tuning = Tuning { segment_bytes: 256 * 1024, first_spare_bytes: 32 * 1024, checkpoint_bytes: 512 * 1024 };

fn options() -> Options {
    let options = Options::default();
    Options { retention: Retention { bytes: 1024 * 1024, ..options.retention }, ..options }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let number = |name: &str, usual: u64| value(name).map_or(usual, |text| text.parse().expect("a number"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    if let Some(directory) = value("--child") {
        let files = Crashing {
            disk: Disk::at(Path::new(&directory)).unwrap(),
            at: value("--at").and_then(|name| Point::ALL.into_iter().find(|point| point.to_string() == name)),
            left: AtomicU64::new(number("--nth", 0)),
            panics: args.iter().any(|arg| arg == "--panic"),
        };
        runtime.block_on(child(files, number("--round", 0)));
        return ExitCode::SUCCESS;
    }
    let (kills, seed) = (number("--kills", 200), number("--seed", u64::from(std::process::id())));
    let directory = std::env::temp_dir().join(format!("capstan-crash-{}", std::process::id()));
    println!("{kills} kills, seed {seed}, store in {}", directory.display());
    let losses = runtime.block_on(parent(&directory, kills, &SeededIds::new(seed)));
    if losses.is_empty() {
        let _ = std::fs::remove_dir_all(&directory);
        return ExitCode::SUCCESS;
    }
    losses.iter().for_each(|loss| println!("LOST: {loss}"));
    println!("the store is left in {}", directory.display());
    ExitCode::FAILURE
}

/// A disk on which the process ends at a point.
struct Crashing {
    disk: Disk,
    at: Option<Point>,
    left: AtomicU64,
    panics: bool,
}

impl Files for Crashing {
    fn lock(&self, holder: &str) -> Result<Box<dyn Any + Send + Sync>, Fault> {
        self.disk.lock(holder)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Handle>> {
        self.disk.open(name)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Handle>> {
        self.disk.create(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_names()
    }

    fn place(&self) -> String {
        self.disk.place()
    }

    fn pass(&self, point: Point) {
        if self.at == Some(point) && self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            assert!(!self.panics, "as ordered, at {point}");
            std::process::abort();
        }
    }
}

/// Writes until it dies. Every commit has a number; its keys and values tell which.
async fn child(files: Crashing, round: u64) {
    let panics = files.panics;
    let store = Arc::new(Embedded::open_on(Arc::new(files), options(), SMALL).unwrap());
    let after = store.revision().await.unwrap();
    let mut watch = store.watch(WatchRequest { prefix: Key::new(), after }).await.unwrap();
    tokio::spawn(async move {
        while let Ok(item) = watch.next().await {
            if let WatchItem::Batch(batch) = item {
                tell(&format!("saw {} {}", batch.revision, number_of(&batch).unwrap_or(0)));
            }
        }
    });
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 1.. {
                    // The round goes above, so that numbers never come again.
                    let number = (round << 32 | n) * WRITERS + writer;
                    match store.commit(ops(number)).await {
                        Ok(committed) => tell(&format!("ack {} {number}", committed.revision)),
                        Err(CommitError::Uncertain(_) | CommitError::Fault(_)) if panics => return,
                        Err(other) => panic!("{other}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
}

fn tell(line: &str) {
    let mut out = io::stdout().lock();
    // One write a line: what is not told was not told whole.
    let _ = out.write_all(format!("{line}\n").as_bytes());
}

fn ops(number: u64) -> Vec<Op> {
    let (writer, slot) = (number % WRITERS, number / WRITERS % SLOTS);
    let value = Value::from(format!("{number:>0700}"));
    let mut ops = vec![
        Op::put(format!("a/{writer}/{slot:02}"), value.clone()),
        Op::put(format!("b/{writer}/{slot:02}"), value.clone()),
    ];
    // Now and then a key comes and goes.
    ops.push(match number / WRITERS % 4 {
        0 => Op::delete(format!("c/{writer}")),
        _ => Op::put(format!("c/{writer}"), value),
    });
    ops
}

fn number_in(value: &Value) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The number of the commit that a batch is, if it is one of ours and whole.
fn number_of(batch: &Batch) -> Option<u64> {
    let numbers: Vec<_> = batch.events.iter().filter_map(|event| number_in(&event.current.as_ref()?.value)).collect();
    let whole = ["a/", "b/"].iter().all(|prefix| batch.events.iter().any(|e| e.key.starts_with(prefix.as_bytes())));
    numbers.first().copied().filter(|first| whole && numbers.iter().all(|number| number == first))
}

async fn parent(directory: &PathBuf, kills: u64, ids: &SeededIds) -> Vec<String> {
    let began = std::time::Instant::now();
    // What is known to be committed: the number of the commit at each revision.
    let mut known: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut acknowledged, mut highest, mut losses) = (0, 0, Vec::new());
    let mut ways: BTreeMap<String, u64> = BTreeMap::new();
    for round in 1..=kills {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.arg("--child").arg(directory).arg("--round").arg(round.to_string());
        let mut way = "SIGKILL".to_owned();
        let mut patience = 50 + ids.below(4_000);
        if ids.below(2) == 0 {
            let point = Point::ALL[ids.below(Point::ALL.len() as u64) as usize];
            let (nth, panics) = (ids.below(8), ids.below(3) == 0);
            child.arg("--at").arg(point.to_string()).arg("--nth").arg(nth.to_string());
            child.args(panics.then_some("--panic"));
            way = format!("{} {point}", if panics { "panic" } else { "abort" });
            // Points that are seldom passed get their time.
            patience = 20_000;
        }
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut heard = 0;
        while let Some(Ok(line)) = lines.next() {
            heard += 1;
            if heard == patience {
                child.kill().unwrap();
            }
            let words: Vec<_> = line.split(' ').collect();
            let [what, revision, number] = words[..] else { continue };
            let (revision, number): (u64, u64) = (revision.parse().unwrap(), number.parse().unwrap());
            acknowledged += u64::from(what == "ack");
            if known.insert(revision, number).is_some_and(|other| other != number) {
                losses.push(format!("round {round}: revision {revision} is two commits"));
            }
        }
        child.wait().unwrap();
        *ways.entry(way.clone()).or_default() += 1;
        match check(directory, &mut known, &mut highest).await {
            Ok(()) => {}
            Err(loss) => losses.push(format!("round {round}, {way}: {loss}")),
        }
        if !losses.is_empty() {
            break;
        }
    }
    let ended: Vec<_> = ways.iter().map(|(way, count)| format!("{way} {count}")).collect();
    println!("ended by: {}", ended.join(", "));
    println!(
        "kills {}, acknowledged writes {acknowledged}, revision {highest}, losses {}, in {:.0} s",
        ways.values().sum::<u64>(),
        losses.len(),
        began.elapsed().as_secs_f64()
    );
    losses
}

/// Opens the store and compares it with what is known.
async fn check(directory: &Path, known: &mut BTreeMap<u64, u64>, highest: &mut u64) -> Result<(), String> {
    let disk = Disk::at(directory).map_err(|fault| fault.to_string())?;
    let store = Embedded::open_on(Arc::new(disk), options(), SMALL).map_err(|fault| fault.to_string())?;
    let revision = store.revision().await.unwrap();
    let last_known = known.last_key_value().map_or(1, |(revision, _)| *revision);
    if revision.0 < last_known.max(*highest) {
        return Err(format!("the store is at {revision}, and {} was known", last_known.max(*highest)));
    }
    *highest = revision.0;
    let compacted = match store.get("x".into(), At::Exactly(Revision::INITIAL)).await {
        Err(ReadError::Compacted { compacted, .. }) => compacted,
        _ => Revision::INITIAL,
    };
    let mut replayed = all(&store, At::Exactly(compacted)).await?;
    let mut watch = store.watch(WatchRequest { prefix: Key::new(), after: compacted }).await.unwrap();
    let mut at = compacted;
    while at < revision {
        let WatchItem::Batch(batch) = watch.next().await.map_err(|error| error.to_string())? else { continue };
        if batch.revision != at.next() {
            return Err(format!("after {at} the history has {}", batch.revision));
        }
        at = batch.revision;
        let number = number_of(&batch).ok_or_else(|| format!("revision {at} is half a commit: {batch:?}"))?;
        // What nobody was told of is known from now on, too.
        if *known.entry(at.0).or_insert(number) != number {
            return Err(format!("revision {at} was commit {}, and is {number}", known[&at.0]));
        }
        for event in batch.events.iter() {
            let before = match &event.current {
                Some(item) => replayed.insert(event.key.clone(), item.clone()),
                None => replayed.remove(&event.key),
            };
            if before != event.previous {
                return Err(format!("revision {at}: what was before {:?} is not what history says", event.key));
            }
        }
    }
    let present = all(&store, At::Present).await?;
    if present != replayed {
        return Err("history does not lead to the present".to_owned());
    }
    // The last commit of every slot is there.
    let mut last: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    for (revision, number) in known.iter() {
        last.insert((number % WRITERS, number / WRITERS % SLOTS), (*revision, *number));
    }
    for ((writer, slot), (revision, number)) in last {
        for key in [format!("a/{writer}/{slot:02}"), format!("b/{writer}/{slot:02}")] {
            let found =
                present.get(key.as_bytes()).and_then(|item| Some((item.mod_revision.0, number_in(&item.value)?)));
            if found != Some((revision, number)) {
                return Err(format!("{key} is {found:?}, and was committed as {:?}", (revision, number)));
            }
        }
    }
    Ok(())
}

async fn all(store: &Embedded, at: At) -> Result<BTreeMap<Key, KeyValue>, String> {
    let (mut range, mut items) = (Some(Range::default().at(at)), BTreeMap::new());
    while let Some(asked) = range {
        let page = store.range(asked.clone()).await.map_err(|error| error.to_string())?;
        range = asked.following(&page);
        items.extend(page.items.into_iter().map(|item| (item.key.clone(), item)));
    }
    Ok(items)
}
