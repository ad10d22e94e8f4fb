//! `capstan completion`: scripts that complete commands and flags. The flags are read out of the help texts, so that
//! there is one list of them.

use crate::{components, help, kubelet, server, up};

/// The flags that a help text speaks of.
fn flags(texts: &[&str]) -> String {
    let words = texts.iter().flat_map(|text| text.split([' ', ',', '\n']));
    let mut flags: Vec<&str> = words.filter(|word| word.starts_with("--") && word.len() > 2).collect();
    flags.sort_unstable();
    flags.dedup();
    flags.join(" ")
}

/// Prints the script of a shell.
pub(crate) fn print(shell: &str) -> Result<(), String> {
    print!("{}", script(shell)?);
    Ok(())
}

fn script(shell: &str) -> Result<String, String> {
    let commands = help::commands();
    let (up, server) = (flags(&[up::HELP, server::HELP]), flags(&[server::HELP]));
    let (parts, node) = (flags(&[components::HELP]), flags(&[kubelet::HELP]));
    let bash = format!(
        "_capstan() {{
  local current=${{COMP_WORDS[COMP_CWORD]}}
  if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '{commands}' -- \"$current\")); return; fi
  case ${{COMP_WORDS[1]}} in
    up) COMPREPLY=($(compgen -W '{up}' -- \"$current\")) ;;
    server) COMPREPLY=($(compgen -W '{server}' -- \"$current\")) ;;
    controllers | scheduler) COMPREPLY=($(compgen -W '{parts}' -- \"$current\")) ;;
    kubelet) COMPREPLY=($(compgen -W '{node}' -- \"$current\")) ;;
    logs) COMPREPLY=($(compgen -W '--follow --name --data-dir' -- \"$current\")) ;;
    status | down | reset) COMPREPLY=($(compgen -W '--name --data-dir' -- \"$current\")) ;;
    help) COMPREPLY=($(compgen -W '{commands}' -- \"$current\")) ;;
    completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$current\")) ;;
    *) COMPREPLY=($(compgen -f -- \"$current\")) ;;
  esac
}}
complete -o default -F _capstan capstan
"
    );
    match shell {
        "bash" => Ok(bash),
        "zsh" => {
            Ok(format!("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{bash}"))
        }
        "fish" => {
            let mut script = format!("complete -c capstan -n __fish_use_subcommand -f -a '{commands}'\n");
            for (commands, flags) in [
                ("up", up),
                ("server", server),
                ("controllers scheduler", parts),
                ("kubelet", node),
                ("status logs down reset", "--data-dir --name".to_owned()),
                ("logs", "--follow".to_owned()),
            ] {
                for flag in flags.split(' ').map(|flag| flag.trim_start_matches("--")) {
                    let condition = format!("__fish_seen_subcommand_from {commands}");
                    script.push_str(&format!("complete -c capstan -n '{condition}' -l {flag}\n"));
                }
            }
            script.push_str("complete -c capstan -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n");
            let help = "__fish_seen_subcommand_from help";
            script.push_str(&format!("complete -c capstan -n '{help}' -f -a '{commands}'\n"));
            Ok(script)
        }
        other => Err(format!("there is no completion for {other:?}, only for bash, zsh and fish")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_knows_the_flags() {
        for shell in ["bash", "zsh", "fish"] {
            let script = script(shell).unwrap();
            for word in ["secure-port", "nodes", "leader-elect", "reset"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
        assert!(script("tcsh").is_err());
    }
}
