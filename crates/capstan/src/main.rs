//! The command `capstan`: the composition root, and the only crate that reads flags, the environment or the user's
//! home.

mod completion;
mod components;
mod help;
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

/// The Kubernetes version whose API this is.
const KUBERNETES: &str = "v1.36";

/// Whether help is asked for among the arguments of a command.
fn asks_for_help(arguments: &[&str]) -> bool {
    arguments.iter().any(|argument| matches!(*argument, "--help" | "-h"))
}

fn main() -> ExitCode {
    // Containers of the process runtime begin as this program.
    if let Some(code) = capstan_kubelet::runtime::process::process_init(std::env::args()) {
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["help", command] => match help::of(command) {
            Some(text) => {
                print!("{text}");
                Ok(())
            }
            None => Err(format!("there is no command {command:?}\n\n{}", help::USAGE)),
        },
        [command, rest @ ..] if asks_for_help(rest) && help::of(command).is_some() => {
            print!("{}", help::of(command).unwrap_or_default());
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
            print!("{}", help::USAGE);
            Ok(())
        }
        ["completion", ..] => Err("name a shell: bash, zsh or fish".to_owned()),
        [] => Err(format!("no command given\n\n{}", help::USAGE)),
        [known, ..] if help::of(known).is_some() => {
            Err(format!("`capstan {known}` takes no such arguments; `capstan help {known}`"))
        }
        [unknown, ..] => Err(format!("unknown command {unknown:?}\n\n{}", help::USAGE)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {}", message.trim_end());
            ExitCode::FAILURE
        }
    }
}
