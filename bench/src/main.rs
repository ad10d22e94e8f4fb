//! Capstan and its peers, measured side by side on the same machine in the same run.
//!
//! The ratio is the result: absolute figures are noise on a shared machine. Nothing about speed is claimed elsewhere
//! that this does not print.

mod bench;
mod benchmarks;
mod client;
mod histogram;
mod informer;
mod load;
mod machine;
mod objects;
mod peers;
mod process;
mod profile;
mod report;
mod result;
mod settings;
mod side;
mod watch;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use bench::Bench;
use benchmarks::Benchmark;
use machine::Machine;
use settings::{Settings, USAGE};
use side::Side;
use tokio::signal::unix::{SignalKind, signal};

/// The allocator that the server has too; the load must not be the slower part.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["list"] => {
            for benchmark in Benchmark::ALL {
                println!("{:<4} {}", benchmark.id(), benchmark.title());
            }
            Ok(())
        }
        ["informer", kubeconfig] => runtime().and_then(|runtime| runtime.block_on(informer::run(kubeconfig))),
        ["run", rest @ ..] => Settings::parse(rest).and_then(run),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => Err(USAGE.to_owned()),
        [other, ..] => Err(format!("there is no command {other:?}\n\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: Settings) -> Result<(), String> {
    let chosen = Benchmark::choose(&settings.benchmarks)?;
    let sides = sides(&settings)?;
    let fail = |error: std::io::Error| format!("{}: {error}", settings.out.display());
    fs::create_dir_all(&settings.out).map_err(fail)?;
    let machine = Machine::look(&sides);
    let out = settings.out.clone();
    let mut bench = Bench::new(settings, sides);
    let interrupted = runtime()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
        // Whichever comes first: servers end when what uses them is dropped, and what was measured stays in `bench`.
        tokio::select! {
            () = benchmarks::run(&mut bench, &chosen) => Ok::<bool, String>(false),
            _ = interrupt.recv() => Ok(true),
            _ = terminate.recv() => Ok(true),
        }
    })?;
    let _ = fs::remove_dir_all(out.join("data"));
    eprintln!();
    report::write(&bench, &machine.finished(), &out)?;
    if interrupted {
        return Err("interrupted: the report has what was measured until then".to_owned());
    }
    if bench.failures.is_empty() { Ok(()) } else { Err(format!("{} could not be measured", bench.failures.len())) }
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| format!("cannot start: {error}"))
}

/// The servers to measure, each with binaries that are there.
fn sides(settings: &Settings) -> Result<Vec<Side>, String> {
    let binary = match &settings.capstan {
        Some(binary) => binary.clone(),
        None => beside("capstan")?,
    };
    let mut sides = vec![Side::Capstan { binary }];
    if settings.peer {
        sides.push(Side::Upstream { binaries: peers(settings)? });
    }
    for binary in sides.iter().flat_map(Side::binaries) {
        if !binary.is_file() {
            let hint = "build it (cargo build --release -p capstan), or name another with --capstan or --peer-bin; \
                        --peer none measures ours alone";
            return Err(format!("there is no {}: {hint}", binary.display()));
        }
    }
    Ok(sides)
}

fn beside(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(own.with_file_name(name))
}

/// Where the peer's binaries are: as said, or where they are usually built, or on the path.
fn peers(settings: &Settings) -> Result<PathBuf, String> {
    if let Some(given) = &settings.peer_bin {
        return Ok(given.clone());
    }
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/capstan-peers/bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = home.into_iter().chain(std::env::split_paths(&path));
    let found =
        places.into_iter().find(|place| ["etcd", "kube-apiserver"].iter().all(|name| place.join(name).is_file()));
    found
        .ok_or_else(|| "there are no etcd and kube-apiserver: say where with --peer-bin DIR, or --peer none".to_owned())
}
