//! What `capstan help` says: what a command is for, how it is typed, and what its flags mean.

use crate::{components, kubelet, server, up};

/// What `capstan help` prints.
pub(crate) const USAGE: &str = "\
Kubernetes as a programmable system.

usage: capstan <command>

a cluster on this machine:
  up [-d] [--nodes N] …        start it: store, API server, controllers, scheduler, a node
  status                       what runs
  logs [-f]                    what its parts did
  down                         stop it; `up` goes on where it was
  reset                        stop it and delete its data

its parts, each on its own:
  server --data-dir DIR …      serve the API
  controllers …                run the control loops against any Kubernetes server
  scheduler …                  run the scheduler against any Kubernetes server
  kubelet …                    run a node that joins any Kubernetes server

manifests, offline:
  validate -f FILE…            check manifests against the built-in kinds of v1.36; `-` reads standard input
  default -f FILE…             print manifests as the server would store them
  api-resources                list the built-in kinds

  completion bash|zsh|fish     a script that completes these words
  version                      print the version

`capstan help <command>` says more about each.
";

/// The flags that say which cluster is meant.
const PLACE: &str = "\
  --name NAME                             which cluster (capstan)
  --data-dir DIR                          where its data is, if `up` was told (~/.local/share/capstan)
";

/// The commands, what each is for, and how it is typed.
const COMMANDS: [(&str, &str, &str); 15] = [
    (
        "up",
        "Starts a cluster on this machine: store, API server, control loops, scheduler and node in one process. Its \
         context\nbecomes the current one of your kubeconfig. Ctrl-C ends it with its pods; started again, it goes on \
         where it was.",
        "\
  capstan up                              a cluster with this machine as its node
  capstan up -d                           the same in the background
  capstan up --nodes 0                    an API server and its loops, without a node
  capstan up --nodes 100 --runtime simulated
                                          nodes that only pretend to run pods, to try things at scale
  capstan up --name other                 a second cluster beside the first
  capstan up --write-kubeconfig FILE      leave your kubeconfig alone
",
    ),
    ("status", "Says whether a cluster of `capstan up` runs, and where.", "  capstan status\n"),
    (
        "logs",
        "Prints what the parts of a cluster did, as its journal has it: the Events they recorded, and what the server \
         refused them.",
        "  capstan logs\n  capstan logs -f                         go on until the cluster ends\n",
    ),
    (
        "down",
        "Ends a cluster: its pods first, in order. Its context leaves your kubeconfig; its data stays for the next \
         `capstan up`.",
        "  capstan down\n",
    ),
    ("reset", "Ends a cluster and deletes its data: objects, volumes, keys.", "  capstan reset\n"),
    (
        "server",
        "Serves the Kubernetes API. The flags are kube-apiserver's where the meaning is the same.",
        "  capstan server --data-dir DIR --write-kubeconfig FILE\n",
    ),
    (
        "controllers",
        "Runs the control loops against any Kubernetes server, as kube-controller-manager does.",
        "  capstan controllers --kubeconfig FILE --root-ca-file CA\n  \
         capstan controllers --kubeconfig FILE --controllers '*,-cronjob-controller'\n",
    ),
    (
        "scheduler",
        "Gives pods their nodes, on any Kubernetes server, as kube-scheduler does.",
        "  capstan scheduler --kubeconfig FILE\n",
    ),
    (
        "kubelet",
        "Makes this machine a node of any Kubernetes cluster. Without a container engine, containers are processes.",
        "  capstan kubelet --kubeconfig FILE --client-ca-file CA\n",
    ),
    (
        "validate",
        "Checks manifests against the built-in kinds, without a server: unknown fields, types, what is required.",
        "  capstan validate -f deployment.yaml -f service.yaml\n  kustomize build | capstan validate -f -\n",
    ),
    (
        "default",
        "Prints manifests with what the server would fill in, without a server.",
        "  capstan default -f deployment.yaml\n",
    ),
    ("api-resources", "Lists the built-in kinds.", "  capstan api-resources\n"),
    (
        "completion",
        "Prints a script with which a shell completes commands and flags.",
        "  source <(capstan completion bash)\n  source <(capstan completion zsh)\n  \
         capstan completion fish | source\n",
    ),
    ("version", "Prints the version, and which Kubernetes it is.", "  capstan version\n"),
    ("help", "Says what a command is for.", "  capstan help up\n"),
];

/// What there is to say about a command; none if there is no such command.
pub(crate) fn of(command: &str) -> Option<String> {
    let (name, about, typed) = COMMANDS.iter().find(|(name, ..)| *name == command)?;
    let flags = match *name {
        "up" => format!("{}\nand the flags of the server:\n\n{}", up::HELP, server::HELP),
        "status" | "logs" | "down" | "reset" => PLACE.to_owned(),
        "server" => server::HELP.to_owned(),
        "controllers" | "scheduler" => components::HELP.to_owned(),
        "kubelet" => kubelet::HELP.to_owned(),
        _ => String::new(),
    };
    let flags = if flags.is_empty() { flags } else { format!("\nflags:\n\n{flags}") };
    Some(format!("{about}\n\n{typed}{flags}"))
}

/// The names of all commands.
pub(crate) fn commands() -> String {
    COMMANDS.map(|(name, ..)| name).join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_the_usage_and_has_help() {
        for name in commands().split(' ').filter(|name| *name != "help") {
            assert!(USAGE.contains(&format!("\n  {name} ")), "{name}");
            assert!(of(name).unwrap().contains(&format!("capstan {name}")), "{name}");
        }
        assert_eq!(of("sideways"), None);
        assert!(of("up").unwrap().contains("--secure-port") && of("logs").unwrap().contains("--data-dir"));
    }
}
