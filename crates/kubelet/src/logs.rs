//! Logs of containers in the CRI's format: a line is `<time> <stream> <F or P> <text>`, P for a part of a longer line.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
    time::Duration,
};

use capstan_clock::{Clock, SharedClock, Timestamp};
use tokio::sync::mpsc;

/// The longest text of one entry: longer lines are cut into parts.
pub const MAX_ENTRY: usize = 16 * 1024;
/// The size at which a log is begun anew.
pub const MAX_LOG_SIZE: u64 = 10 << 20;
/// How many files of a log are kept, the one that is written included.
pub const MAX_LOG_FILES: usize = 5;
/// How often somebody who follows looks whether there is more.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);
/// How much is read of a log at once.
const CHUNK: usize = 64 * 1024;

/// Which of a process' outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its output.
    Stdout,
    /// Its errors.
    Stderr,
}

impl Stream {
    /// As the format spells it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// Writes the log of one container. Lines that are not complete wait for their end, each stream for itself.
#[derive(Debug)]
pub struct LogWriter {
    path: PathBuf,
    file: File,
    size: u64,
    rotate: bool,
    partial: [Vec<u8>; 2],
    clock: SharedClock,
}

impl LogWriter {
    /// Opens or continues the log at `path`; `rotate` when nobody else will.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn open(path: &Path, rotate: bool, clock: SharedClock) -> io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(LogWriter { path: path.to_owned(), file, size, rotate, partial: Default::default(), clock })
    }

    /// Takes what a process printed.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&mut self, stream: Stream, mut bytes: &[u8]) -> io::Result<()> {
        let mut out = Vec::with_capacity(bytes.len() + 64);
        let now = self.clock.now();
        let partial = &mut self.partial[stream as usize];
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            partial.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            entries(&mut out, now, stream, partial, true);
            partial.clear();
        }
        partial.extend_from_slice(bytes);
        while partial.len() > MAX_ENTRY {
            let rest = partial.split_off(MAX_ENTRY);
            entry(&mut out, now, stream, b'P', partial);
            *partial = rest;
        }
        self.put(&out)
    }

    /// The process has ended: what is not a whole line is written all the same.
    ///
    /// # Errors
    /// It can't be written.
    pub fn finish(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        let now = self.clock.now();
        for stream in [Stream::Stdout, Stream::Stderr] {
            let partial = std::mem::take(&mut self.partial[stream as usize]);
            if !partial.is_empty() {
                entries(&mut out, now, stream, &partial, true);
            }
        }
        self.put(&out)
    }

    /// Begins a new file at the same path.
    ///
    /// # Errors
    /// It can't be opened.
    pub fn reopen(&mut self) -> io::Result<()> {
        self.file = OpenOptions::new().create(true).append(true).open(&self.path)?;
        self.size = self.file.metadata()?.len();
        Ok(())
    }

    fn put(&mut self, out: &[u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        if self.rotate && self.size > 0 && self.size + out.len() as u64 > MAX_LOG_SIZE {
            rotate(&self.path, self.clock.now())?;
            self.reopen()?;
        }
        self.file.write_all(out)?;
        self.size += out.len() as u64;
        Ok(())
    }
}

/// Moves a log out of the way and deletes what is too old; where it is now.
///
/// # Errors
/// It can't be moved.
pub fn rotate(path: &Path, now: Timestamp) -> io::Result<PathBuf> {
    let stamp: String = now.to_string().chars().filter(char::is_ascii_digit).collect();
    let mut moved = path.as_os_str().to_owned();
    moved.push(format!(".{stamp}"));
    std::fs::rename(path, &moved)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(moved.into());
    };
    let prefix = format!("{name}.");
    let mut old: Vec<PathBuf> = std::fs::read_dir(parent)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&prefix)))
        .collect();
    old.sort();
    for path in old.iter().take(old.len().saturating_sub(MAX_LOG_FILES - 1)) {
        std::fs::remove_file(path)?;
    }
    Ok(moved.into())
}

/// What a container's directory holds, by the attempt that it is of: `3.log`, `3.log.20260101000000`, `3.termination`.
fn of_attempts(dir: &Path) -> impl Iterator<Item = (u32, PathBuf)> {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| Some((file.file_name().to_str()?.split('.').next()?.parse().ok()?, file.path())))
}

/// The last attempt of a container that has a log in its directory.
#[must_use]
pub fn last_attempt(dir: &Path) -> Option<u32> {
    of_attempts(dir).map(|(attempt, _)| attempt).max()
}

/// Deletes what attempts before that one left in a container's directory.
pub fn forget(dir: &Path, before: u32) {
    for (_, path) in of_attempts(dir).filter(|(attempt, _)| *attempt < before) {
        // What stays is tried again at the next start.
        let _ = std::fs::remove_file(path);
    }
}

fn entries(out: &mut Vec<u8>, now: Timestamp, stream: Stream, line: &[u8], full: bool) {
    let mut rest = line;
    while rest.len() > MAX_ENTRY {
        entry(out, now, stream, b'P', &rest[..MAX_ENTRY]);
        rest = &rest[MAX_ENTRY..];
    }
    entry(out, now, stream, if full { b'F' } else { b'P' }, rest);
}

fn entry(out: &mut Vec<u8>, now: Timestamp, stream: Stream, tag: u8, text: &[u8]) {
    out.extend_from_slice(format!("{now:.9}").as_bytes());
    out.push(b' ');
    out.extend_from_slice(stream.word().as_bytes());
    out.extend_from_slice(&[b' ', tag, b' ']);
    out.extend_from_slice(text);
    out.push(b'\n');
}

/// What of a log is wanted: the options of `kubectl logs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Go on as long as the container runs.
    pub follow: bool,
    /// Only so many lines from the end.
    pub tail: Option<usize>,
    /// Nothing older.
    pub since: Option<Timestamp>,
    /// With the time before each line.
    pub timestamps: bool,
    /// Not more bytes.
    pub limit: Option<u64>,
    /// Only one of the streams.
    pub stream: Option<Stream>,
}

/// Reads a log into a channel until its end or, when it is followed, until `ended` says that nothing more will come.
///
/// # Errors
/// It can't be read.
pub async fn read(
    path: &Path,
    options: &LogOptions,
    clock: &dyn Clock,
    ended: impl Fn() -> bool,
    out: mpsc::Sender<Vec<u8>>,
) -> io::Result<()> {
    let mut file = File::open(path)?;
    if let Some(lines) = options.tail {
        let at = tail_offset(&mut file, lines)?;
        file.seek(SeekFrom::Start(at))?;
    }
    let mut left = options.limit.unwrap_or(u64::MAX);
    let mut pending = Vec::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        // Asked before reading: what is written before the end is read after it.
        let over = ended();
        let read = file.read(&mut buffer)?;
        if read == 0 {
            let moved = std::fs::metadata(path).is_ok_and(|now| !same(&now, &file));
            if moved {
                file = File::open(path)?;
                continue;
            }
            if !options.follow || over {
                return Ok(());
            }
            tokio::select! {
                () = clock.sleep(FOLLOW_INTERVAL) => {}
                () = out.closed() => return Ok(()),
            }
            continue;
        }
        pending.extend_from_slice(&buffer[..read]);
        let mut text = Vec::new();
        while let Some(end) = pending.iter().position(|&b| b == b'\n') {
            render(&pending[..end], options, &mut text);
            pending.drain(..=end);
        }
        if text.len() as u64 > left {
            text.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        }
        left -= text.len() as u64;
        if (!text.is_empty() && out.send(text).await.is_err()) || left == 0 {
            return Ok(());
        }
    }
}

fn same(a: &std::fs::Metadata, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.metadata().is_ok_and(|b| a.ino() == b.ino() && a.dev() == b.dev())
}

/// Turns an entry back into what was printed.
fn render(entry: &[u8], options: &LogOptions, out: &mut Vec<u8>) {
    let mut fields = entry.splitn(4, |&b| b == b' ');
    let (Some(time), Some(stream), Some(tag)) = (fields.next(), fields.next(), fields.next()) else { return };
    let text = fields.next().unwrap_or_default();
    if options.stream.is_some_and(|wanted| wanted.word().as_bytes() != stream) {
        return;
    }
    if let Some(since) = options.since {
        let at = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
        if at.is_none_or(|at| at < since) {
            return;
        }
    }
    if options.timestamps {
        out.extend_from_slice(time);
        out.push(b' ');
    }
    out.extend_from_slice(text);
    if tag == b"F" {
        out.push(b'\n');
    }
}

/// Where the last `lines` whole lines begin.
fn tail_offset(file: &mut File, lines: usize) -> io::Result<u64> {
    let end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    let (mut at, mut found) = (end, 0);
    let mut buffer = vec![0; CHUNK];
    while at > 0 {
        let from = at.saturating_sub(CHUNK as u64);
        let length = usize::try_from(at - from).unwrap_or(CHUNK);
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut buffer[..length])?;
        for (index, &byte) in buffer[..length].iter().enumerate().rev() {
            let position = from + index as u64;
            if byte == b'\n' && position + 1 != end {
                found += 1;
                if found == lines {
                    return Ok(position + 1);
                }
            }
        }
        at = from;
    }
    Ok(0)
}

/// The end of a log as text, for termination messages.
#[must_use]
pub fn tail(path: &Path, max_lines: usize, max_bytes: usize) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let at = tail_offset(&mut file, max_lines)?;
        file.seek(SeekFrom::Start(at))?;
        let (mut raw, mut text) = (Vec::new(), Vec::new());
        file.take(1 << 20).read_to_end(&mut raw)?;
        for entry in raw.split(|&b| b == b'\n') {
            render(entry, &LogOptions::default(), &mut text);
        }
        Ok(text)
    };
    let text = read().unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(max_bytes)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_clock::ManualClock;

    use super::*;

    async fn text(path: &Path, options: LogOptions) -> String {
        let (out, mut parts) = mpsc::channel(64);
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        read(path, &options, &clock, || true, out).await.unwrap();
        let mut all = Vec::new();
        while let Some(part) = parts.recv().await {
            all.extend(part);
        }
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn what_was_printed_comes_back() {
        let dir = crate::testing::temporary("logs");
        let path = dir.join("c/0.log");
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let mut log = LogWriter::open(&path, true, Arc::new(clock.clone())).unwrap();
        log.write(Stream::Stdout, b"one\ntw").unwrap();
        log.write(Stream::Stderr, b"oops\n").unwrap();
        clock.advance(Duration::from_secs(5));
        log.write(Stream::Stdout, b"o\nthree").unwrap();
        log.finish().unwrap();
        let raw = std::fs::read_to_string(&path).unwrap();
        assert_eq!(raw.lines().next().unwrap(), "2026-01-01T00:00:00.000000000Z stdout F one");
        assert_eq!(text(&path, LogOptions::default()).await, "one\noops\ntwo\nthree\n");
        let tail = LogOptions { tail: Some(1), ..LogOptions::default() };
        assert_eq!(text(&path, tail).await, "three\n");
        let since = "2026-01-01T00:00:03Z".parse().ok();
        assert_eq!(text(&path, LogOptions { since, ..LogOptions::default() }).await, "two\nthree\n");
        let stream = Some(Stream::Stderr);
        let timestamps = LogOptions { stream, timestamps: true, ..LogOptions::default() };
        assert_eq!(text(&path, timestamps).await, "2026-01-01T00:00:00.000000000Z oops\n");
        assert_eq!(text(&path, LogOptions { limit: Some(5), ..LogOptions::default() }).await, "one\no");
        assert_eq!(super::tail(&path, 2, 7), "\nthree\n");
    }

    #[tokio::test]
    async fn long_lines_are_cut_and_long_logs_begun_anew() {
        let dir = crate::testing::temporary("rotation");
        let path = dir.join("0.log");
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let mut log = LogWriter::open(&path, true, Arc::new(clock.clone())).unwrap();
        let line = [vec![b'x'; MAX_ENTRY * 2 + 3], vec![b'\n']].concat();
        log.write(Stream::Stdout, &line).unwrap();
        assert_eq!(text(&path, LogOptions::default()).await.as_bytes(), line);
        for _ in 0..MAX_LOG_SIZE * 7 / line.len() as u64 {
            clock.advance(Duration::from_secs(1));
            log.write(Stream::Stdout, &line).unwrap();
        }
        let files = std::fs::read_dir(&*dir).unwrap().count();
        assert_eq!(files, MAX_LOG_FILES);
        assert!(std::fs::metadata(&path).unwrap().len() <= MAX_LOG_SIZE);
    }

    #[test]
    fn old_attempts_are_forgotten() {
        let dir = crate::testing::temporary("attempts");
        assert_eq!(last_attempt(&dir.join("none")), None);
        for name in ["0.log", "9.log", "9.log.20260101000000", "10.log", "10.log.20260101000000", "11.log", "other"] {
            std::fs::write(dir.join(name), "").unwrap();
        }
        assert_eq!(last_attempt(&dir), Some(11));
        forget(&dir, 10);
        let mut left: Vec<_> = std::fs::read_dir(&*dir).unwrap().map(|file| file.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["10.log", "10.log.20260101000000", "11.log", "other"]);
    }
}
