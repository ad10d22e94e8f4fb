//! Tests of the engine's own promises: crashes, faults, damage, bounds.

use std::{collections::BTreeMap, io::ErrorKind, path::PathBuf, sync::Arc};

use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::{
    Embedded, Tuning,
    faults::{Call, SimDisk},
    files::Point,
    index::Index,
    leaf::Place,
};
use crate::{
    At, CommitError, FaultKind, Key, KeyValue, Op, Options, Range, ReadError, Retention, Revision, Store, WatchItem,
    WatchRequest,
};

const SMALL: Tuning = Tuning { segment_bytes: 8 * 1024, first_spare_bytes: 2 * 1024, checkpoint_bytes: 16 * 1024 };

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn open(disk: &SimDisk) -> Embedded {
    try_open(disk).unwrap()
}

fn try_open(disk: &SimDisk) -> Result<Embedded, crate::Fault> {
    Embedded::open_on(Arc::new(disk.clone()), Options::default(), SMALL)
}

async fn items(store: &Embedded, at: At) -> Result<Vec<KeyValue>, ReadError> {
    Ok(store.range(Range::default().at(at)).await?.items)
}

/// What became of commits; each puts two keys of its own and one that all share.
#[derive(Default)]
struct Written {
    acknowledged: BTreeMap<u64, Revision>,
    /// Told that they did not happen.
    refused: Vec<u64>,
}

fn ops(n: u64) -> Vec<Op> {
    let value = format!("{n:0500}");
    vec![
        Op::put(format!("a/{n:05}"), value.clone()),
        Op::put(format!("hot/{}", n % 3), value.clone()),
        Op::put(format!("b/{n:05}"), value),
    ]
}

/// Commits `count` times, `at_once` at a time, until the store fails for good.
async fn write(store: &Arc<Embedded>, written: &mut Written, from: u64, count: u64, at_once: u64) {
    let mut n = from;
    while n < from + count {
        let tasks: Vec<_> = (n..(n + at_once).min(from + count))
            .map(|n| {
                let store = Arc::clone(store);
                (n, tokio::spawn(async move { store.commit(ops(n)).await }))
            })
            .collect();
        n += at_once;
        for (n, task) in tasks {
            match task.await.unwrap() {
                Ok(committed) => drop(written.acknowledged.insert(n, committed.revision)),
                Err(CommitError::Fault(_)) => written.refused.push(n),
                Err(CommitError::Uncertain(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
}

/// Checks that what was acknowledged is there, nothing is there in half, and history leads to the present.
async fn check(store: &Embedded, written: &Written) {
    let present = items(store, At::Present).await.unwrap();
    let keys: BTreeMap<Key, KeyValue> = present.iter().map(|item| (item.key.clone(), item.clone())).collect();
    for (n, revision) in &written.acknowledged {
        for key in [format!("a/{n:05}"), format!("b/{n:05}")] {
            let item = keys.get(key.as_bytes()).unwrap_or_else(|| panic!("{key} was acknowledged and is lost"));
            assert_eq!(item.mod_revision, *revision, "{key}");
        }
    }
    for n in &written.refused {
        assert!(!keys.contains_key(format!("a/{n:05}").as_bytes()), "commit {n} was refused and is there");
    }
    for key in keys.keys().filter_map(|key| key.strip_prefix(b"a/")) {
        assert!(keys.contains_key(&[b"b/", key].concat()[..]), "half a commit is there");
    }
    let compacted = match store.get("x".into(), At::Exactly(Revision::INITIAL)).await {
        Err(ReadError::Compacted { compacted, .. }) => compacted,
        _ => Revision::INITIAL,
    };
    let base = items(store, At::Exactly(compacted)).await.unwrap();
    let mut replayed: BTreeMap<Key, KeyValue> = base.into_iter().map(|item| (item.key.clone(), item)).collect();
    let end = store.revision().await.unwrap();
    let mut watch = store.watch(WatchRequest { prefix: Key::new(), after: compacted }).await.unwrap();
    let mut at = compacted;
    while at < end {
        let WatchItem::Batch(batch) = watch.next().await.unwrap() else { continue };
        assert_eq!(batch.revision, at.next(), "a revision is missing");
        at = batch.revision;
        for event in batch.events.iter() {
            let before = match &event.current {
                Some(item) => replayed.insert(event.key.clone(), item.clone()),
                None => replayed.remove(&event.key),
            };
            assert_eq!(before, event.previous, "the previous value is not the one before");
        }
    }
    assert_eq!(replayed, keys, "history does not lead to the present");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn power_may_go_off_anywhere(
        point in prop::sample::select(Point::ALL.to_vec()),
        nth in 0u64..12,
        seed: u64,
        at_once in 1u64..6,
        lives in 1usize..4,
    ) {
        runtime().block_on(async {
            let (disk, mut written, mut from) = (SimDisk::default(), Written::default(), 0);
            for life in 0..lives {
                let store = Arc::new(open(&disk));
                check(&store, &written).await;
                disk.power_off_at(point, nth, seed.wrapping_add(life as u64));
                write(&store, &mut written, from, 60, at_once).await;
                from += 60;
                disk.power_off(seed);
                drop(store);
                disk.power_on();
                // After the power went off, commits are refused without a word on the disk; what was refused while the
                // disk still worked is told apart by the segment that rules it out. Both must stay away.
            }
            let store = open(&disk);
            check(&store, &written).await;
            store.commit(ops(from)).await.unwrap();
        });
    }

    #[test]
    fn a_flipped_bit_is_never_served(seed: u64, file: prop::sample::Index, bit: prop::sample::Index) {
        runtime().block_on(async {
            let (disk, mut written) = (SimDisk::default(), Written::default());
            let store = Arc::new(open(&disk));
            write(&store, &mut written, seed % 7, 70, 3).await;
            let truth = items(&store, At::Present).await.unwrap();
            drop(store);
            let lengths: Vec<_> = disk.lengths().into_iter().filter(|(_, length)| *length > 0).collect();
            let (name, length) = file.get(&lengths);
            disk.flip(name, bit.index(length * 8));
            let store = match try_open(&disk) {
                Err(fault) => {
                    prop_assert!(matches!(fault.kind, FaultKind::Corrupt | FaultKind::NotAStore), "{fault}");
                    prop_assert!(fault.detail.contains(name.as_str()), "{fault} does not name {name}");
                    return Ok(());
                }
                Ok(store) => store,
            };
            for item in truth {
                match store.get(item.key.clone(), At::Present).await {
                    Ok(found) => prop_assert_eq!(found.item, Some(item)),
                    Err(ReadError::Fault(fault)) => {
                        prop_assert!(fault.kind == FaultKind::Corrupt && fault.detail.contains(name.as_str()), "{}", fault);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_index_is_an_ordered_map(
        edits in prop::collection::vec((prop::collection::vec(0u8..4, 1..6), any::<bool>(), 0u64..300), 1..600),
    ) {
        let (mut index, mut model) = (Index::default(), BTreeMap::new());
        for (n, (key, put, number)) in edits.into_iter().enumerate() {
            let place = put.then(|| place(n as u64 * 31, number));
            let before = match &place {
                Some(place) => model.insert(key.clone(), *place),
                None => model.remove(&key),
            };
            prop_assert_eq!(index.set(&key, place.as_ref()), before);
            prop_assert_eq!(index.get(&key), place);
        }
        prop_assert_eq!(index.len(), model.len());
        for from in [&[][..], &[1, 2], &[3]] {
            let mut scan = index.scan(from);
            for (key, place) in model.range(from.to_vec()..) {
                prop_assert_eq!(scan.item(), Some((&key[..], *place)));
                scan.next();
            }
            prop_assert_eq!(scan.item(), None);
        }
        let earliest = index.leaves().map(|(_, leaf)| leaf.earliest()).min().filter(|earliest| *earliest != i64::MAX);
        prop_assert_eq!(earliest, model.values().filter_map(|place| Some(place.deadline?.0)).min());
    }
}

fn place(revision: u64, number: u64) -> Place {
    let deadline = number.is_multiple_of(3).then_some(crate::expiry::Deadline(number as i64));
    Place { revision: Revision(revision), segment: 7, offset: number as u32, value_len: 1024, deadline }
}

#[test]
fn a_call_that_fails_is_told_and_got_over() {
    let cases = [
        (Call::Write, "log-", ErrorKind::Other, FaultKind::Io),
        (Call::Write, "log-", ErrorKind::StorageFull, FaultKind::Full),
        (Call::Sync, "log-", ErrorKind::Other, FaultKind::Io),
        (Call::Sync, "log-", ErrorKind::StorageFull, FaultKind::Full),
        (Call::Sync, "log-", ErrorKind::PermissionDenied, FaultKind::Denied),
    ];
    for (call, name, error, kind) in cases {
        runtime().block_on(async {
            let (disk, mut written) = (SimDisk::default(), Written::default());
            let store = Arc::new(open(&disk));
            write(&store, &mut written, 0, 5, 1).await;
            disk.fail(call, name, error);
            match store.commit(ops(5)).await {
                Err(CommitError::Fault(fault)) => assert_eq!(fault.kind, kind, "{call:?} {error}"),
                other => panic!("{call:?} {error}: {other:?}"),
            }
            written.refused.push(5);
            check(&store, &written).await;
            write(&store, &mut written, 6, 5, 1).await;
            assert_eq!(written.acknowledged.len(), 10, "{call:?} {error}");
            check(&store, &written).await;
            disk.power_off(1);
            drop(store);
            disk.power_on();
            check(&open(&disk), &written).await;
        });
    }
}

#[test]
fn without_upkeep_nothing_more_is_committed() {
    runtime().block_on(async {
        let (disk, mut written) = (SimDisk::default(), Written::default());
        let store = Arc::new(open(&disk));
        disk.panic_at(Point::BeforeCheckpoint);
        let mut n = 0;
        let fault = loop {
            match store.commit(ops(n)).await {
                Ok(committed) => written.acknowledged.insert(n, committed.revision),
                Err(CommitError::Fault(fault)) => break fault,
                Err(other) => panic!("{other}"),
            };
            n += 1;
        };
        assert_eq!(fault.kind, FaultKind::Closed);
        check(&store, &written).await;
        drop(store);
        check(&open(&disk), &written).await;
    });
}

#[test]
fn a_sync_that_fails_twice_leaves_it_uncertain() {
    runtime().block_on(async {
        let (disk, mut written) = (SimDisk::default(), Written::default());
        // Segments of the usual size, so that most commits do not begin one.
        let store = Embedded::open_on(Arc::new(disk.clone()), Options::default(), Tuning::default());
        let store = Arc::new(store.unwrap());
        write(&store, &mut written, 0, 5, 1).await;
        let mut n = 5;
        loop {
            // The batch, and then the segment that would rule it out.
            disk.fail(Call::Sync, "log-", ErrorKind::Other);
            disk.fail(Call::Sync, "log-", ErrorKind::Other);
            let outcome = store.commit(ops(n)).await;
            disk.heal();
            match outcome {
                Err(CommitError::Uncertain(_)) => break,
                // A spare came just then, and its head was the first to be synced: once more.
                Err(CommitError::Fault(_)) => written.refused.push(n),
                other => panic!("{other:?}"),
            }
            write(&store, &mut written, n + 1, 1, 1).await;
            n += 2;
            assert!(n < 50, "segments are larger than that");
        }
        check(&store, &written).await;
        let before = written.acknowledged.len();
        write(&store, &mut written, n + 1, 5, 1).await;
        assert_eq!(written.acknowledged.len(), before + 5);
        check(&store, &written).await;
        drop(store);
        check(&open(&disk), &written).await;
    });
}

#[test]
fn short_writes_are_completed() {
    runtime().block_on(async {
        let (disk, mut written) = (SimDisk::default(), Written::default());
        disk.short_writes();
        let store = Arc::new(open(&disk));
        write(&store, &mut written, 0, 40, 4).await;
        assert_eq!(written.acknowledged.len(), 40);
        drop(store);
        check(&open(&disk), &written).await;
    });
}

#[test]
fn a_full_disk_serves_reads_and_recovers() {
    runtime().block_on(async {
        let (disk, mut written) = (SimDisk::default(), Written::default());
        let store = Arc::new(open(&disk));
        write(&store, &mut written, 0, 10, 1).await;
        disk.set_room(Some(0));
        let mut n = 10;
        // What was prepared is used up first.
        let fault = loop {
            match store.commit(ops(n)).await {
                Ok(committed) => drop(written.acknowledged.insert(n, committed.revision)),
                Err(CommitError::Fault(fault)) => break fault,
                Err(other) => panic!("{other}"),
            }
            n += 1;
        };
        written.refused.push(n);
        assert_eq!(fault.kind, FaultKind::Full, "{fault}");
        check(&store, &written).await;
        disk.set_room(None);
        write(&store, &mut written, n + 1, 30, 1).await;
        check(&store, &written).await;
        assert_eq!(written.refused, [n]);
        drop(store);
        check(&open(&disk), &written).await;
    });
}

#[test]
fn damage_before_the_tail_is_named() {
    runtime().block_on(async {
        let (disk, mut written) = (SimDisk::default(), Written::default());
        let store = Arc::new(Embedded::open_on(Arc::new(disk.clone()), Options::default(), Tuning::default()).unwrap());
        write(&store, &mut written, 0, 3, 1).await;
        drop(store);
        // The head of the first batch, which others follow. Which segment has it depends on when upkeep got to run: the one
        // that the store was opened with, or the first spare.
        for (name, _) in disk.lengths().into_iter().filter(|(name, _)| name.starts_with("log-")) {
            disk.flip(&name, 70 * 8);
        }
        let fault = try_open(&disk).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Corrupt);
        assert!(fault.detail.contains("log-") && fault.detail.contains(" is damaged at offset 64"), "{fault}");
    });
}

#[test]
fn disk_use_is_bounded_under_overwrites() {
    runtime().block_on(async {
        let disk = SimDisk::default();
        let mut options = Options::default();
        options.retention = Retention { bytes: 16 * 1024, ..options.retention };
        let store = Embedded::open_on(Arc::new(disk.clone()), options, SMALL).unwrap();
        let (mut written, mut highest) = (0, 0);
        // Upkeep has a thread of its own; it gets its turns while commits wait for theirs.
        while written < 4 * 1024 * 1024 {
            let value = vec![b'v'; 1024];
            written += value.len();
            store.commit(vec![Op::put(format!("k{}", written / 1024 % 10), value)]).await.unwrap();
            highest = highest.max(disk.lengths().iter().map(|(_, length)| length).sum::<usize>());
        }
        assert!(highest < written / 2, "{highest} bytes on disk after {written} were written");
        let mut tries = 0;
        while disk.lengths().iter().map(|(_, length)| length).sum::<usize>() > 256 * 1024 {
            store.commit(vec![Op::put("k0", vec![b'v'; 1024])]).await.unwrap();
            tries += 1;
            assert!(tries < 10_000, "{:?}", disk.lengths());
        }
    });
}

/// A directory of its own, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("capstan-embedded-{}-{name}", std::process::id()));
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

#[test]
fn a_directory_is_held_by_one() {
    let directory = Directory::new("held");
    let store = Embedded::open(&directory.0, Options::default()).unwrap();
    let fault = Embedded::open(&directory.0, Options::default()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Held);
    assert!(fault.detail.contains(&format!("held by process {} (", std::process::id())), "{fault}");
    drop(store);
    Embedded::open(&directory.0, Options::default()).unwrap();
}

#[test]
fn what_is_not_a_store_is_refused() {
    type Prepare = fn(&SimDisk);
    let cases: [(&str, Prepare, FaultKind, &str); 6] = [
        ("a foreign file", |disk| disk.put("notes.txt", b"hello"), FaultKind::NotAStore, "notes.txt"),
        ("a foreign identity", |disk| disk.put("STORE", b"hello"), FaultKind::NotAStore, "STORE"),
        (
            "no log",
            |disk| {
                drop(open(disk));
                let names: Vec<_> = disk.lengths().into_iter().map(|(name, _)| name).collect();
                for name in names.iter().filter(|name| name.starts_with("log-")) {
                    super::Files::remove(disk, name).unwrap();
                }
            },
            FaultKind::Corrupt,
            "log-00000001 is missing",
        ),
        (
            "a log of something else",
            |disk| {
                drop(open(disk));
                disk.put("log-00000001", &[b'x'; 100]);
            },
            FaultKind::Corrupt,
            "log-00000001 is not a segment",
        ),
        (
            "a log of another store",
            |disk| {
                drop(open(disk));
                let other = SimDisk::default();
                drop(open(&other));
                let mut head = [0; 64];
                let file = super::Files::open(&other, "log-00000001").unwrap();
                file.read_at(&mut head, 0).unwrap();
                disk.put("log-00000001", &head);
            },
            FaultKind::Corrupt,
            "log-00000001 belongs to another store",
        ),
        (
            "no identity",
            |disk| {
                let store = open(disk);
                runtime().block_on(store.commit(ops(1))).unwrap();
                drop(store);
                super::Files::remove(disk, "STORE").unwrap();
            },
            FaultKind::NotAStore,
            "has no STORE",
        ),
    ];
    for (name, prepare, kind, says) in cases {
        let disk = SimDisk::default();
        prepare(&disk);
        let fault = try_open(&disk).unwrap_err();
        assert_eq!(fault.kind, kind, "{name}: {fault}");
        assert!(fault.detail.contains(says), "{name}: {fault}");
    }
}
