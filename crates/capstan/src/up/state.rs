//! What `capstan up` leaves beside its data for those who come later: `status`, `down`, `logs` and `reset`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use capstan_api::{Map, Value, json};
use capstan_clock::{Clock as _, RealClock, Timestamp};

use super::{flags::Place, kubeconfig};
use crate::server::{block_on, write_private};

/// The file that says what runs.
const FILE: &str = "up.json";

/// How long a cluster has to end once it is told to: its pods end gracefully before it does.
const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// How often it is looked whether something has happened.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How much of the log is looked at for an error.
const MAX_SHOWN: u64 = 1 << 20;

/// A cluster that runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    /// The process.
    pub(super) pid: u32,
    /// Since when.
    pub(super) started: String,
    /// Where clients reach it.
    pub(super) url: String,
    /// The kubeconfig that has its context.
    pub(super) kubeconfig: PathBuf,
    /// What the context is called.
    pub(super) context: String,
    /// The context that was current before.
    pub(super) previous_context: String,
    /// Whether the file is the user's and only the context is ours.
    pub(super) merged: bool,
}

impl State {
    /// Writes it beside the data.
    pub(super) fn write(&self, directory: &Path) -> Result<(), String> {
        let mut map = Map::default();
        map.insert("pid", Value::from(i64::from(self.pid)));
        map.insert("started", Value::from(self.started.as_str()));
        map.insert("url", Value::from(self.url.as_str()));
        map.insert("kubeconfig", Value::from(self.kubeconfig.to_string_lossy().as_ref()));
        map.insert("context", Value::from(self.context.as_str()));
        map.insert("previousContext", Value::from(self.previous_context.as_str()));
        map.insert("merged", Value::from(self.merged));
        let mut text = Vec::new();
        json::write(&Value::Object(map), &mut text);
        write_private(&directory.join(FILE), &String::from_utf8_lossy(&text))
    }

    /// What is beside the data, whether or not it still runs.
    pub(super) fn read(directory: &Path) -> Option<State> {
        let value = json::parse(&fs::read(directory.join(FILE)).ok()?).ok()?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(State {
            pid: value.get("pid").and_then(Value::as_i64).and_then(|pid| u32::try_from(pid).ok())?,
            started: text("started"),
            url: text("url"),
            kubeconfig: text("kubeconfig").into(),
            context: text("context"),
            previous_context: text("previousContext"),
            merged: value.get("merged").and_then(Value::as_bool).unwrap_or_default(),
        })
    }

    /// Takes it away: nothing runs any more. The context goes too when the user's file has it.
    pub(super) fn remove(&self, directory: &Path) -> Result<(), String> {
        if self.merged {
            kubeconfig::remove(&self.kubeconfig, &self.context, &self.previous_context)?;
        }
        match fs::remove_file(directory.join(FILE)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// Whether the process is there and is one of ours: numbers of processes are used again.
    pub(super) fn is_running(&self) -> bool {
        let command = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let mut words = command.split(|byte| *byte == 0);
        let program = words.next().unwrap_or_default();
        program.ends_with(b"capstan") && words.any(|word| word == b"up")
    }

    /// How long ago it was started, in words.
    pub(super) fn age(&self) -> String {
        let Ok(started) = self.started.parse::<Timestamp>() else { return String::new() };
        let seconds = RealClock::new().now().duration_since(started).as_secs();
        match seconds {
            ..60 => format!("{} seconds ago", seconds.max(0)),
            60..3600 => format!("{} minutes ago", seconds / 60),
            3600..172_800 => format!("{} hours ago", seconds / 3600),
            _ => format!("{} days ago", seconds / 86_400),
        }
    }
}

/// `capstan status`: what runs, and whether it is well.
pub(crate) fn status(arguments: &[&str]) -> Result<(), String> {
    let place = Place::parse(arguments)?;
    match State::read(&place.directory) {
        Some(state) if state.is_running() => {
            println!("capstan {:?} runs as process {}, started {}", place.name, state.pid, state.age());
            println!("  api server   {}", state.url);
            println!("  kubeconfig   {}, context {:?}", state.kubeconfig.display(), state.context);
            println!("  data         {}", place.directory.display());
            Ok(())
        }
        Some(state) => Err(format!(
            "capstan {:?} does not run (process {} is gone without a word); `capstan up` goes on where it was",
            place.name, state.pid
        )),
        None if place.directory.exists() => {
            Err(format!("capstan {:?} does not run; `capstan up` goes on where it was", place.name))
        }
        None => Err(format!("there is no cluster {:?}; `capstan up` makes one", place.name)),
    }
}

/// `capstan down`: ends what runs, and takes its context out of the kubeconfig. The data stays.
pub(crate) fn down(arguments: &[&str]) -> Result<(), String> {
    let place = Place::parse(arguments)?;
    match end(&place)? {
        true => println!("capstan {:?} is down; `capstan up` goes on where it was", place.name),
        false => println!("capstan {:?} does not run", place.name),
    }
    Ok(())
}

/// `capstan reset`: ends what runs and deletes its data.
pub(crate) fn reset(arguments: &[&str]) -> Result<(), String> {
    let place = Place::parse(arguments)?;
    end(&place)?;
    // Only what a cluster has made is taken away: a directory that holds something else was named by mistake.
    if place.directory.exists() && !place.directory.join("pki").exists() && !place.directory.join("store").exists() {
        return Err(format!("{} holds no cluster: nothing is deleted", place.directory.display()));
    }
    match fs::remove_dir_all(&place.directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => println!("there is no cluster {:?}", place.name),
        Err(error) => return Err(format!("cannot delete {}: {error}", place.directory.display())),
        Ok(()) => println!("capstan {:?} is gone with its data", place.name),
    }
    Ok(())
}

/// Ends the cluster of a place; whether there was one.
fn end(place: &Place) -> Result<bool, String> {
    let Some(state) = State::read(&place.directory) else { return Ok(false) };
    if !state.is_running() {
        state.remove(&place.directory)?;
        return Ok(false);
    }
    // There is no safe function for this in the standard library.
    let told = std::process::Command::new("kill").arg(state.pid.to_string()).status();
    if !told.map_err(|error| format!("cannot run kill: {error}"))?.success() {
        return Err(format!("process {} cannot be told to end", state.pid));
    }
    let clock = RealClock::new();
    let until = clock.monotonic().plus(ENDS_WITHIN);
    block_on(async {
        while state.is_running() {
            if clock.monotonic() > until {
                return Err(format!("process {} does not end; it may be waiting for its pods", state.pid));
            }
            clock.sleep(LOOK_EVERY).await;
        }
        Ok(())
    })?;
    state.remove(&place.directory)?;
    Ok(true)
}

/// `capstan logs [-f]`: what its parts did, and what they were refused.
pub(crate) fn logs(arguments: &[&str]) -> Result<(), String> {
    let follow = arguments.iter().any(|argument| matches!(*argument, "-f" | "--follow"));
    let rest: Vec<&str> =
        arguments.iter().copied().filter(|argument| !matches!(*argument, "-f" | "--follow")).collect();
    let place = Place::parse(&rest)?;
    let file = place.log();
    let open = || {
        let open = fs::File::open(&file).and_then(|open| Ok((open.metadata()?.ino(), BufReader::new(open))));
        open.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no {}: `capstan up` writes it", file.display()),
            _ => format!("cannot read {}: {error}", file.display()),
        })
    };
    let (mut number, mut reader) = open()?;
    let clock = RealClock::new();
    let mut out = std::io::stdout().lock();
    block_on(async {
        let mut line = Vec::new();
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line).map_err(|error| error.to_string())? > 0 {
                // Whoever reads may have had enough.
                if out.write_all(&line).is_err() {
                    return Ok(());
                }
            } else if fs::metadata(&file).is_ok_and(|now| now.ino() != number) {
                // The file was put aside, and there is a new one.
                (number, reader) = open()?;
            } else if follow && State::read(&place.directory).is_some_and(|state| state.is_running()) {
                clock.sleep(LOOK_EVERY).await;
            } else {
                return Ok(());
            }
        }
    })
}

/// What a file has from a place on.
pub(super) fn since(file: &Path, start: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(file)?;
        file.seek(SeekFrom::Start(start))?;
        let mut text = Vec::new();
        file.take(MAX_SHOWN).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    read().unwrap_or_default()
}
