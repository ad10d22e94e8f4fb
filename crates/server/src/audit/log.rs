//! Audit events in a file, which is put aside when it is full.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use capstan_api::Time;
use capstan_clock::SharedClock;

use super::Sink;

/// The size of a file where the configuration has none, in megabytes.
const DEFAULT_MAX_SIZE: u64 = 100;
const MEGABYTE: u64 = 1024 * 1024;

/// Where events go and how much of them is kept.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The file; `-` is the standard output.
    pub path: PathBuf,
    /// For how many days files that were put aside are kept; 0 is forever.
    pub max_age: u64,
    /// How many files that were put aside are kept; 0 is all.
    pub max_backup: usize,
    /// When a file is full, in megabytes; 0 is 100.
    pub max_size: u64,
}

/// A file of events. Writers wait for each other.
pub struct LogFile {
    config: LogConfig,
    clock: SharedClock,
    open: Mutex<Output>,
}

enum Output {
    Standard,
    File(File, u64),
}

impl LogFile {
    /// Opens the file, behind whose end events are written.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(config: LogConfig, clock: SharedClock) -> io::Result<Self> {
        let output = if config.path == Path::new("-") { Output::Standard } else { append(&config.path)? };
        Ok(LogFile { config, clock, open: Mutex::new(output) })
    }

    /// Puts a full file aside under its name with the time, and drops those that are too many or too old.
    fn rotate(&self) -> io::Result<Output> {
        let path = &self.config.path;
        let (stem, extension) = names(path);
        let now: Time = self.clock.now().into();
        let stamp = |time: Time| {
            let millis = time.subsec_nanos() / 1_000_000;
            format!("{}.{millis:03}", time.to_string().trim_end_matches('Z').replace(':', "-"))
        };
        fs::rename(path, path.with_file_name(format!("{stem}-{}{extension}", stamp(now))))?;
        let output = append(path)?;
        let mut backups = self.backups(&stem, &extension)?;
        backups.sort();
        let surplus = match self.config.max_backup {
            0 => 0,
            max => backups.len().saturating_sub(max),
        };
        let days = i64::try_from(Duration::from_secs(24 * 3600 * self.config.max_age).as_secs()).unwrap_or(i64::MAX);
        // Stamps sort as the times that they tell.
        let oldest = Time::from_unix(now.unix_seconds().saturating_sub(days), now.subsec_nanos());
        let oldest = format!("{stem}-{}", stamp(oldest));
        for (i, name) in backups.iter().enumerate() {
            if i < surplus || self.config.max_age > 0 && *name < oldest {
                fs::remove_file(path.with_file_name(name))?;
            }
        }
        Ok(output)
    }

    fn backups(&self, stem: &str, extension: &str) -> io::Result<Vec<String>> {
        let folder = match self.config.path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let stamp = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-')?.strip_suffix(extension));
            // `2006-01-02T15-04-05.000`: other files of a similar name are none of ours.
            let is_stamp = |stamp: &str| {
                stamp.len() == 23 && stamp.bytes().all(|c| c.is_ascii_digit() || matches!(c, b'-' | b'T' | b'.'))
            };
            if stamp.is_some_and(is_stamp) {
                names.push(name);
            }
        }
        Ok(names)
    }
}

fn append(path: &Path) -> io::Result<Output> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let size = file.metadata()?.len();
    Ok(Output::File(file, size))
}

/// The name before the extension, and the extension with its dot.
fn names(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
    let extension = text(path.extension()).map_or_else(String::new, |extension| format!(".{extension}"));
    (text(path.file_stem()).unwrap_or_default(), extension)
}

impl Sink for LogFile {
    fn write(&self, line: &[u8]) -> io::Result<()> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let max = if self.config.max_size == 0 { DEFAULT_MAX_SIZE } else { self.config.max_size };
        let length = line.len() as u64;
        if matches!(&*open, Output::File(_, size) if *size > 0 && size + length > max.saturating_mul(MEGABYTE)) {
            *open = self.rotate()?;
        }
        match &mut *open {
            Output::Standard => io::stdout().write_all(line),
            Output::File(file, size) => {
                *size += length;
                file.write_all(line)
            }
        }
    }
}
