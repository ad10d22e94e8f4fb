//! The portable snapshot: a file with all keys of one state, the same on every engine.
//!
//! Eight bytes of magic and the revision; then the items by key, each as the length of its key and its value, its
//! modification revision, its deadline, its key and its value; then a key length of zero, the number of items, the
//! consistency hash and a checksum over everything before. Lengths are `u32`, the rest 64 bits, all little-endian. So a
//! store can move between engines, and damage or a missing end is found before anything is restored.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;

use crate::{
    ConsistencyHasher, Fault, FaultKind, KeyValue, Revision, SnapshotInfo,
    expiry::Deadline,
    hash::Mix,
    limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES},
};

const MAGIC: &[u8; 8] = b"CAPSNAP\x01";

/// The deadline of a key that does not expire.
const NEVER: i64 = i64::MAX;

/// Writes a snapshot to `path`, item by item, in the order of keys: whole and durable, or not at all.
pub(crate) struct SnapshotWriter {
    file: BufWriter<File>,
    path: PathBuf,
    /// Where it is written to until it is whole.
    partial: PathBuf,
    revision: Revision,
    hasher: ConsistencyHasher,
    checksum: Mix,
    bytes: u64,
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        // After `finish` it has its name and this finds nothing; before, nobody wants it.
        let _ = fs::remove_file(&self.partial);
    }
}

impl SnapshotWriter {
    /// Begins a snapshot of the state at `revision`. An existing file stays until the new one is whole.
    pub(crate) fn create(path: &Path, revision: Revision) -> Result<Self, Fault> {
        // Two snapshots to one path at a time must not write to one file.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".partial-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let partial = PathBuf::from(partial);
        let file = File::create(&partial).map_err(|error| fault(path, &error))?;
        let mut writer = SnapshotWriter {
            file: BufWriter::new(file),
            path: path.to_owned(),
            partial,
            revision,
            hasher: ConsistencyHasher::default(),
            checksum: Mix::new(),
            bytes: 0,
        };
        writer.write(MAGIC)?;
        writer.write(&revision.0.to_le_bytes())?;
        Ok(writer)
    }

    /// Adds an item.
    pub(crate) fn item(&mut self, item: &KeyValue, deadline: Option<Deadline>) -> Result<(), Fault> {
        self.hasher.add(item);
        let length =
            |bytes: &Bytes| u32::try_from(bytes.len()).expect("keys and values are far below 4 GiB").to_le_bytes();
        self.write(&length(&item.key))?;
        self.write(&length(&item.value))?;
        self.write(&item.mod_revision.0.to_le_bytes())?;
        self.write(&deadline.map_or(NEVER, |deadline| deadline.0).to_le_bytes())?;
        self.write(&item.key)?;
        self.write(&item.value)
    }

    /// Ends the snapshot and makes it durable under its name.
    pub(crate) fn finish(mut self) -> Result<SnapshotInfo, Fault> {
        let hash = self.hasher.at(self.revision);
        self.write(&0u32.to_le_bytes())?;
        self.write(&hash.keys.to_le_bytes())?;
        self.write(&hash.hash.to_le_bytes())?;
        let checksum = self.checksum.finish();
        self.write(&checksum.to_le_bytes())?;
        self.publish().map_err(|error| fault(&self.path, &error))?;
        Ok(SnapshotInfo { hash, bytes: self.bytes })
    }

    fn publish(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        fs::rename(&self.partial, &self.path)?;
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.checksum.number(bytes.len() as u64);
        self.checksum.bytes(bytes);
        self.bytes += bytes.len() as u64;
        self.file.write_all(bytes).map_err(|error| fault(&self.path, &error))
    }
}

/// Reads a snapshot: the items, then [`finish`](SnapshotReader::finish), before which nothing read is to be trusted.
pub(crate) struct SnapshotReader {
    file: BufReader<File>,
    path: PathBuf,
    revision: Revision,
    hasher: ConsistencyHasher,
    checksum: Mix,
    last: Bytes,
}

impl SnapshotReader {
    /// Opens a snapshot.
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let file = File::open(path).map_err(|error| fault(path, &error))?;
        let mut reader = SnapshotReader {
            file: BufReader::new(file),
            path: path.to_owned(),
            revision: Revision::INITIAL,
            hasher: ConsistencyHasher::default(),
            checksum: Mix::new(),
            last: Bytes::new(),
        };
        if &reader.array::<8>()? != MAGIC {
            return Err(reader.damaged("it does not begin like a snapshot"));
        }
        reader.revision = Revision(u64::from_le_bytes(reader.array()?));
        Ok(reader)
    }

    /// The revision of the state.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// The next item; `None` after the last, when the file has proved whole.
    pub(crate) fn next(&mut self) -> Result<Option<(KeyValue, Option<Deadline>)>, Fault> {
        let key_length = u32::from_le_bytes(self.array()?) as usize;
        if key_length == 0 {
            return self.finish().map(|()| None);
        }
        let value_length = u32::from_le_bytes(self.array()?) as usize;
        if key_length > MAX_KEY_BYTES || value_length > MAX_VALUE_BYTES {
            return Err(self.damaged("an item is longer than any can be"));
        }
        let mod_revision = Revision(u64::from_le_bytes(self.array()?));
        let deadline = i64::from_le_bytes(self.array()?);
        let key = self.bytes(key_length)?;
        let value = self.bytes(value_length)?;
        if key <= self.last {
            return Err(self.damaged("its keys are not in order"));
        }
        self.last = key.clone();
        let item = KeyValue { key, value, mod_revision };
        self.hasher.add(&item);
        Ok(Some((item, (deadline != NEVER).then_some(Deadline(deadline)))))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        let (keys, hash) = (u64::from_le_bytes(self.array()?), u64::from_le_bytes(self.array()?));
        let expected = self.checksum.finish();
        let found = self.hasher.at(self.revision);
        if u64::from_le_bytes(self.array()?) != expected || (found.keys, found.hash) != (keys, hash) {
            return Err(self.damaged("its checksum does not match"));
        }
        match self.file.read(&mut [0]) {
            Ok(0) => Ok(()),
            Ok(_) => Err(self.damaged("something follows its end")),
            Err(error) => Err(fault(&self.path, &error)),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut array = [0; N];
        self.fill(&mut array)?;
        Ok(array)
    }

    fn bytes(&mut self, length: usize) -> Result<Bytes, Fault> {
        let mut bytes = vec![0; length];
        self.fill(&mut bytes)?;
        Ok(bytes.into())
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), Fault> {
        match self.file.read_exact(bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(self.damaged("its end is missing"));
            }
            Err(error) => return Err(fault(&self.path, &error)),
        }
        self.checksum.number(bytes.len() as u64);
        self.checksum.bytes(bytes);
        Ok(())
    }

    fn damaged(&self, how: &str) -> Fault {
        Fault::new(FaultKind::Corrupt, format_args!("snapshot {}: {how}", self.path.display()))
    }
}

fn fault(path: &Path, error: &io::Error) -> Fault {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FaultKind::Full,
        io::ErrorKind::PermissionDenied => FaultKind::Denied,
        _ => FaultKind::Io,
    };
    Fault::new(kind, format_args!("snapshot {}: {error}", path.display()))
}
