//! What the repository does to itself: `cargo xtask <command>`.

mod codegen;
mod tidy;

use std::process::ExitCode;

/// A command: its name, what it does in a few words, and the function that does it with the arguments that follow the
/// name.
type Command = (&'static str, &'static str, fn(&[String]) -> Result<(), String>);

const COMMANDS: &[Command] = &[
    ("codegen", "make the table of built-in kinds from the published definition", codegen::run),
    ("tidy", "check the house rules that no compiler checks", tidy::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments
        .split_first()
        .and_then(|(name, rest)| COMMANDS.iter().find(|(command, ..)| command == name).map(|&(_, _, run)| (run, rest)));
    let Some((run, rest)) = named else {
        eprintln!("usage: cargo xtask <command>\n");
        for (command, about, _) in COMMANDS {
            eprintln!("  {command:10} {about}");
        }
        return ExitCode::FAILURE;
    };
    match run(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
