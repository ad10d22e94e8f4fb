//! The command `capstan`: the composition root, and the only crate that reads flags, the environment or the user's
//! home.

mod manifests;
mod resources;
mod server;
mod up;

use std::process::ExitCode;

/// Many small objects come and go on two cores: this one is made for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
Kubernetes as a programmable system.

usage: capstan <command>

  up [--data-dir DIR]          start a cluster on this machine: for now its API server
  server --data-dir DIR …      serve the API; `capstan help server` lists the flags
  validate -f FILE…            check manifests against the built-in kinds of v1.36; `-` reads standard input
  default -f FILE…             print manifests as the server would store them
  api-resources                list the built-in kinds
  version                      print the version
";

/// The Kubernetes version whose API this is.
const KUBERNETES: &str = "v1.36";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["help", "server" | "up"] | ["server" | "up", "--help" | "-h"] => {
            print!("flags of capstan server and capstan up:\n\n{}", server::HELP);
            Ok(())
        }
        ["up", rest @ ..] => up::run(rest),
        ["server", rest @ ..] => server::run(rest),
        ["validate", rest @ ..] => manifests::validate(rest),
        ["default", rest @ ..] => manifests::default(rest),
        ["api-resources"] => resources::print(),
        ["version" | "--version" | "-V"] => {
            println!("capstan {}, Kubernetes {KUBERNETES}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        [] => Err(format!("no command given\n\n{USAGE}")),
        [unknown, ..] => Err(format!("unknown command {unknown:?}\n\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}
