//! The command `capstan`: the composition root, and the only crate that reads flags, the environment or the user's
//! home.

mod completion;
mod components;
mod keys;
mod kubelet;
mod manifests;
mod metrics;
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

a cluster on this machine:
  up [-d] [--nodes N] …        start it: store, API server, controllers, scheduler, a node; `capstan help up`
  status                       what runs
  logs [-f]                    what a cluster in the background has said
  down                         stop it; `up` goes on where it was
  reset                        stop it and delete its data

its parts, each on its own:
  server --data-dir DIR …      serve the API; `capstan help server` lists the flags
  controllers …                run the control loops against any Kubernetes server; `capstan help controllers`
  scheduler …                  run the scheduler against any Kubernetes server; `capstan help scheduler`
  kubelet …                    run a node that joins any Kubernetes server; `capstan help kubelet`

manifests, offline:
  validate -f FILE…            check manifests against the built-in kinds of v1.36; `-` reads standard input
  default -f FILE…             print manifests as the server would store them
  api-resources                list the built-in kinds

  completion bash|zsh|fish     a script that completes these words
  version                      print the version
";

/// The Kubernetes version whose API this is.
const KUBERNETES: &str = "v1.36";

fn main() -> ExitCode {
    // Containers of the process runtime begin as this program.
    if let Some(code) = capstan_kubelet::runtime::process::process_init(std::env::args()) {
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["help", "server"] | ["server", "--help" | "-h"] => {
            print!("Serves the Kubernetes API.\n\n{}", server::HELP);
            Ok(())
        }
        ["help", "up"] | ["up", "--help" | "-h"] => {
            print!(
                "Starts a cluster on this machine.\n\n{}\nand the flags of the server:\n\n{}",
                up::HELP,
                server::HELP
            );
            Ok(())
        }
        ["help", "controllers" | "scheduler"] | ["controllers" | "scheduler", "--help" | "-h"] => {
            print!("Runs against any Kubernetes server.\n\n{}", components::HELP);
            Ok(())
        }
        ["help", "kubelet"] | ["kubelet", "--help" | "-h"] => {
            print!("Makes this machine a node of any Kubernetes cluster.\n\n{}", kubelet::HELP);
            Ok(())
        }
        ["up", rest @ ..] => up::run(rest),
        ["status", rest @ ..] => up::status(rest),
        ["logs", rest @ ..] => up::logs(rest),
        ["down", rest @ ..] => up::down(rest),
        ["reset", rest @ ..] => up::reset(rest),
        ["controllers", rest @ ..] => components::controllers(rest),
        ["scheduler", rest @ ..] => components::scheduler(rest),
        ["kubelet", rest @ ..] => kubelet::run(rest),
        ["completion", shell] => completion::print(shell),
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
