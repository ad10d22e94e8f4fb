//! A disk in memory that fails when told: errors, short writes, no room, flipped bits, and power that goes off.
//!
//! When the power goes off, what was synced stays; of what was written since, every sector stays or not by chance, and
//! so do the names that were not synced. From then on every call fails until [`SimDisk::power_on`].

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use capstan_clock::{Ids, SeededIds};

use super::files::{Files, Handle, Point};
use crate::{Fault, FaultKind};

/// What a disk writes wholly or not at all.
const SECTOR: usize = 512;

/// The calls that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Handle::read_at`].
    Read,
    /// [`Handle::write_at`].
    Write,
    /// [`Handle::sync`].
    Sync,
    /// [`Files::create`].
    Create,
    /// [`Files::rename`].
    Rename,
    /// [`Files::sync_names`].
    SyncNames,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct SimDisk {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    files: BTreeMap<u64, SimFile>,
    next: u64,
    /// Counts how often the power went off: what was opened before is dead.
    life: u64,
    off: bool,
    holder: Option<(u64, String)>,
    room: Option<u64>,
    failures: Vec<(Call, String, io::ErrorKind)>,
    short_writes: bool,
    power_off_at: Option<(Point, u64, u64)>,
    panic_at: Option<Point>,
}

#[derive(Debug, Default)]
struct SimFile {
    current: Vec<u8>,
    durable: Vec<u8>,
    dirty: BTreeSet<usize>,
}

impl SimDisk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next `call` on a file whose name begins with `name` fails.
    pub fn fail(&self, call: Call, name: &str, kind: io::ErrorKind) {
        self.lock().failures.push((call, name.to_owned(), kind));
    }

    /// Nothing that was asked to fail fails any more.
    pub fn heal(&self) {
        self.lock().failures.clear();
    }

    /// From now on a write takes at most half of what it is given, and at least one byte.
    pub fn short_writes(&self) {
        self.lock().short_writes = true;
    }

    /// How many bytes files may grow by in all; `None`: any number.
    pub fn set_room(&self, room: Option<u64>) {
        self.lock().room = room;
    }

    /// The power goes off when the engine passes `point` for the `nth` time from now, counted from 0.
    pub fn power_off_at(&self, point: Point, nth: u64, seed: u64) {
        self.lock().power_off_at = Some((point, nth, seed));
    }

    /// The thread that next passes `point` panics there.
    pub fn panic_at(&self, point: Point) {
        self.lock().panic_at = Some(point);
    }

    /// The power goes off.
    pub fn power_off(&self, seed: u64) {
        self.lock().power_off(seed);
    }

    /// The power comes back.
    pub fn power_on(&self) {
        self.lock().off = false;
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.lock().off
    }

    /// The files with their lengths.
    #[must_use]
    pub fn lengths(&self) -> Vec<(String, usize)> {
        let inner = self.lock();
        inner
            .names
            .iter()
            .map(|(name, id)| (name.clone(), inner.files.get(id).map_or(0, |file| file.current.len())))
            .collect()
    }

    /// Flips a bit.
    pub fn flip(&self, name: &str, bit: usize) {
        let mut inner = self.lock();
        let Some(id) = inner.names.get(name).copied() else { return };
        let Some(file) = inner.files.get_mut(&id) else { return };
        for bytes in [&mut file.current, &mut file.durable] {
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// Puts a file with this content there, synced.
    pub fn put(&self, name: &str, content: &[u8]) {
        let mut inner = self.lock();
        inner.next += 1;
        let id = inner.next;
        let file = SimFile { current: content.to_vec(), durable: content.to_vec(), dirty: BTreeSet::new() };
        inner.files.insert(id, file);
        inner.names.insert(name.to_owned(), id);
        inner.durable_names.insert(name.to_owned(), id);
    }
}

impl Inner {
    fn power_off(&mut self, seed: u64) {
        let ids = SeededIds::new(seed);
        self.off = true;
        self.life += 1;
        self.holder = None;
        self.power_off_at = None;
        for file in self.files.values_mut() {
            let dirty = std::mem::take(&mut file.dirty);
            for sector in dirty {
                if ids.below(2) == 0 {
                    continue;
                }
                let range = sector * SECTOR..((sector + 1) * SECTOR).min(file.current.len());
                if file.durable.len() < range.end {
                    file.durable.resize(range.end, 0);
                }
                file.durable[range.clone()].copy_from_slice(&file.current[range]);
            }
            file.current.clone_from(&file.durable);
        }
        if ids.below(2) == 0 {
            self.names = self.durable_names.clone();
        } else {
            self.durable_names = self.names.clone();
        }
    }

    fn call(&mut self, call: Call, name: &str, life: Option<u64>) -> io::Result<()> {
        if self.off || life.is_some_and(|life| life != self.life) {
            return Err(io::Error::other("the power is off"));
        }
        match self.failures.iter().position(|(other, prefix, _)| *other == call && name.starts_with(prefix.as_str())) {
            Some(at) => Err(self.failures.remove(at).2.into()),
            None => Ok(()),
        }
    }

    fn id(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Files for SimDisk {
    fn lock(&self, holder: &str) -> Result<Box<dyn Any + Send + Sync>, Fault> {
        let mut inner = self.lock();
        if let Some((_, other)) = &inner.holder {
            return Err(Fault::new(FaultKind::Held, format_args!("the simulated disk is held by {other}")));
        }
        inner.holder = Some((inner.life, holder.to_owned()));
        Ok(Box::new(Held { disk: self.clone(), life: inner.life }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Handle>> {
        let inner = self.lock();
        let id = inner.id(name)?;
        Ok(Box::new(SimHandle { disk: self.clone(), id, name: name.to_owned(), life: inner.life }))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Handle>> {
        let mut inner = self.lock();
        inner.call(Call::Create, name, None)?;
        inner.next += 1;
        let id = inner.next;
        inner.files.insert(id, SimFile::default());
        inner.names.insert(name.to_owned(), id);
        Ok(Box::new(SimHandle { disk: self.clone(), id, name: name.to_owned(), life: inner.life }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.lock();
        inner.call(Call::Rename, to, None)?;
        let id = inner.id(from)?;
        inner.names.remove(from);
        inner.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.lock();
        if inner.off {
            return Err(io::Error::other("the power is off"));
        }
        inner.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut inner = self.lock();
        inner.call(Call::SyncNames, "", None)?;
        inner.durable_names = inner.names.clone();
        Ok(())
    }

    fn place(&self) -> String {
        "the simulated disk".to_owned()
    }

    fn pass(&self, point: Point) {
        let mut inner = self.lock();
        let panics = inner.panic_at.take_if(|at| *at == point).is_some();
        if panics {
            drop(inner);
            panic!("as ordered, at {point}");
        }
        match &mut inner.power_off_at {
            Some((at, 0, seed)) if *at == point => {
                let seed = *seed;
                inner.power_off(seed);
            }
            Some((at, left, _)) if *at == point => *left -= 1,
            _ => {}
        }
    }
}

/// The directory is held as long as this lives.
struct Held {
    disk: SimDisk,
    life: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut inner = self.disk.lock();
        let life = self.life;
        inner.holder.take_if(|(other, _)| *other == life);
    }
}

struct SimHandle {
    disk: SimDisk,
    id: u64,
    name: String,
    life: u64,
}

impl SimHandle {
    fn with<T>(&self, call: Option<Call>, work: impl FnOnce(&mut Inner) -> io::Result<T>) -> io::Result<T> {
        let mut inner = self.disk.lock();
        match call {
            Some(call) => inner.call(call, &self.name, Some(self.life))?,
            None if inner.off || inner.life != self.life => return Err(io::Error::other("the power is off")),
            None => {}
        }
        work(&mut inner)
    }
}

impl Handle for SimHandle {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(Some(Call::Read), |inner| {
            let content = inner.files.get(&self.id).map_or(&[][..], |file| &file.current);
            let rest = content.get(offset as usize..).unwrap_or(&[]);
            let read = rest.len().min(bytes.len());
            bytes[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(Some(Call::Write), |inner| {
            let bytes = if inner.short_writes { &bytes[..bytes.len().div_ceil(2)] } else { bytes };
            let (start, end) = (offset as usize, offset as usize + bytes.len());
            let length = inner.files.get(&self.id).map_or(0, |file| file.current.len());
            let grown = end.saturating_sub(length) as u64;
            if let Some(room) = &mut inner.room {
                if grown > *room {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                *room -= grown;
            }
            let Some(file) = inner.files.get_mut(&self.id) else { return Ok(0) };
            if file.current.len() < end {
                file.current.resize(end, 0);
            }
            file.current[start..end].copy_from_slice(bytes);
            file.dirty.extend(start / SECTOR..end.div_ceil(SECTOR));
            Ok(bytes.len())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(Some(Call::Sync), |inner| {
            if let Some(file) = inner.files.get_mut(&self.id) {
                file.durable.clone_from(&file.current);
                file.dirty.clear();
            }
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(None, |inner| Ok(inner.files.get(&self.id).map_or(0, |file| file.current.len() as u64)))
    }
}
