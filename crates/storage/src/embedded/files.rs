//! The narrow way to the file system: everything that the engine asks of a directory, so that tests can make it fail.

use std::{
    any::Any,
    fmt,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{Fault, FaultKind};

/// The file that the holder of a store locks and signs.
const LOCK: &str = "LOCK";

/// The moments at which a crash is worth trying; an engine names them as it passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A batch is about to be written to the log.
    BeforeAppend,
    /// A batch was written, not synced.
    AfterAppend,
    /// A batch was synced.
    AfterSync,
    /// A batch is about to be seen by reads and watches.
    BeforePublish,
    /// A batch is seen, and not answered.
    AfterPublish,
    /// A new segment was made and nothing written to it.
    AfterRoll,
    /// A checkpoint is about to be written.
    BeforeCheckpoint,
    /// A checkpoint is written and synced, and does not have its name yet.
    DuringCheckpoint,
    /// A checkpoint is in place, and what it makes superfluous is still there.
    AfterCheckpoint,
    /// Live values are about to be moved out of old segments.
    BeforeCompaction,
    /// Live values were moved, and nothing removed.
    AfterCompaction,
}

impl Point {
    /// All of them.
    pub const ALL: [Point; 11] = [
        Point::BeforeAppend,
        Point::AfterAppend,
        Point::AfterSync,
        Point::BeforePublish,
        Point::AfterPublish,
        Point::AfterRoll,
        Point::BeforeCheckpoint,
        Point::DuringCheckpoint,
        Point::AfterCheckpoint,
        Point::BeforeCompaction,
        Point::AfterCompaction,
    ];
}

/// One directory of files. Names are plain, without separators. Never called by two stores at a time.
pub trait Files: Send + Sync + 'static {
    /// Takes the directory for as long as the returned guard lives, and signs with `holder`.
    ///
    /// # Errors
    /// [`FaultKind::Held`] with the signature of whoever has it.
    fn lock(&self, holder: &str) -> Result<Box<dyn Any + Send + Sync>, Fault>;

    /// The names that are there.
    ///
    /// # Errors
    /// Those of the file system, as for all that follow.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that is there, to read and write.
    ///
    /// # Errors
    /// Those of the file system.
    fn open(&self, name: &str) -> io::Result<Box<dyn Handle>>;

    /// Makes a new file, or empties one.
    ///
    /// # Errors
    /// Those of the file system.
    fn create(&self, name: &str) -> io::Result<Box<dyn Handle>>;

    /// Gives a file another name, replacing what had it.
    ///
    /// # Errors
    /// Those of the file system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the file system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// Those of the file system.
    fn sync_names(&self) -> io::Result<()>;

    /// Where this is, for messages.
    fn place(&self) -> String;

    /// The engine passes a point. For tests; does nothing on a disk.
    fn pass(&self, _point: Point) {}
}

/// An open file. Reads and writes name their offset, so one handle serves all threads.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait Handle: Send + Sync + 'static {
    /// Reads some bytes; none at the end.
    ///
    /// # Errors
    /// Those of the file system, as for all that follow.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes some bytes, perhaps not all.
    ///
    /// # Errors
    /// Those of the file system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// Those of the file system. What was written since the last success may be lost then, also when a later sync
    /// succeeds.
    fn sync(&self) -> io::Result<()>;

    /// The length.
    ///
    /// # Errors
    /// Those of the file system.
    fn len(&self) -> io::Result<u64>;
}

/// Fills `bytes` from `offset` on as far as the file reaches; returns how much that is.
pub(super) fn read_up_to(file: &dyn Handle, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Writes all of `bytes`; a write that makes no progress is an error.
pub(super) fn write_all(file: &dyn Handle, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The fault that an error of the file system is.
pub(super) fn fault(what: &str, name: &str, error: &io::Error) -> Fault {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::WriteZero => FaultKind::Full,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FaultKind::Denied,
        _ => FaultKind::Io,
    };
    Fault::new(kind, format_args!("{what} {name}: {error}"))
}

/// A directory on a disk.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// The directory at `path`, made if it is not there.
    ///
    /// # Errors
    /// [`FaultKind::NotAStore`] when something else has that path, otherwise what the file system says.
    pub fn at(path: &Path) -> Result<Self, Fault> {
        let name = path.display().to_string();
        if path.exists() && !path.is_dir() {
            return Err(Fault::new(FaultKind::NotAStore, format_args!("{name} is a file, not a directory")));
        }
        std::fs::create_dir_all(path).map_err(|error| fault("make the directory", &name, &error))?;
        Ok(Disk { path: path.to_owned() })
    }
}

impl Files for Disk {
    fn lock(&self, holder: &str) -> Result<Box<dyn Any + Send + Sync>, Fault> {
        let path = self.path.join(LOCK);
        let failed = |error: &io::Error| fault("lock", &path.display().to_string(), error);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.as_mut().map_err(|error| failed(error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut signature = String::new();
                // Who cannot be read is still there.
                let _ = file.read_to_string(&mut signature);
                let holder = if signature.is_empty() { "somebody who has not signed" } else { signature.trim_end() };
                return Err(Fault::new(FaultKind::Held, format_args!("{} is held by {holder}", self.path.display())));
            }
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        // The signature is for people and not needed to be safe: a full disk does not keep the store from opening.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{holder}"));
        Ok(Box::new(file.try_clone().map_err(|error| failed(&error))?))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.filter(|name| name.as_ref().map_or(true, |name| name != LOCK)).collect()
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Handle>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(self.path.join(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Handle>> {
        let path = self.path.join(name);
        Ok(Box::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

impl Handle for File {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
