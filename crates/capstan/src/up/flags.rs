//! The flags of `capstan up` and of the commands that speak of its cluster.

use std::path::PathBuf;

use crate::server::{self, Flags};

/// What the cluster is called when nobody says.
const NAME: &str = "capstan";

/// Which cluster: what it is called and where it keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) directory: PathBuf,
}

impl Place {
    /// Reads `--name` and `--data-dir`; nothing else may be there.
    pub(super) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let (flags, rest) = UpFlags::split(arguments)?;
        match rest.as_slice() {
            [] => flags.place(None),
            ["--data-dir", directory] => flags.place(Some(directory.into())),
            [one] if one.starts_with("--data-dir=") => flags.place(Some(one["--data-dir=".len()..].into())),
            [other, ..] => Err(format!("unexpected argument {other:?}: only --name and --data-dir are known here")),
        }
    }

    /// Where a cluster in the background says what it does.
    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("capstan.log")
    }
}

/// What runs the containers of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Runtime {
    /// containerd if its socket is there, processes otherwise.
    #[default]
    Auto,
    Containerd,
    Process,
    Simulated,
}

/// Which network pods have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PodNetwork {
    /// Each its own, if this machine allows it.
    #[default]
    Auto,
    /// This machine's.
    Host,
}

/// What the flags of `up` say that are not the server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UpFlags {
    pub(super) name: String,
    pub(super) nodes: usize,
    pub(super) runtime: Runtime,
    pub(super) pod_network: PodNetwork,
    /// Events tell what happens to simulated pods.
    pub(super) simulated_events: bool,
    pub(super) background: bool,
    /// This is the one in the background.
    pub(super) child: bool,
    pub(super) controllers: String,
}

impl Default for UpFlags {
    fn default() -> Self {
        UpFlags {
            name: NAME.to_owned(),
            nodes: 1,
            runtime: Runtime::Auto,
            pod_network: PodNetwork::Auto,
            simulated_events: false,
            background: false,
            child: false,
            controllers: "*".to_owned(),
        }
    }
}

/// The flags with what they are for.
pub(crate) const HELP: &str = "\
  --name NAME                             which cluster; its context in the kubeconfig has this name (capstan)
  --nodes COUNT                           how many nodes (1); more than one are simulated
  --runtime auto|containerd|process|simulated
                                          what runs containers: containerd if it is there, otherwise processes
  --pod-network auto|host                 pods that are processes: each a network of its own if this machine allows it
                                          (as root), or this machine's (auto)
  --simulated-events                      Events tell what happens to simulated pods too
  --controllers NAMES                     which control loops: *, names, or -name for all but these (*)
  -d, --detach                            run in the background; `capstan logs`, `status` and `down` go with it
";

impl UpFlags {
    /// The own flags, and what is left for the server.
    pub(super) fn split<'a>(arguments: &[&'a str]) -> Result<(Self, Vec<&'a str>), String> {
        let mut flags = UpFlags::default();
        let mut left = Vec::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (*argument, None),
            };
            let mut value =
                || value.or_else(|| rest.next().copied()).ok_or_else(|| format!("flag needs an argument: {name}"));
            match name {
                "-d" | "--detach" => flags.background = true,
                "--simulated-events" => flags.simulated_events = true,
                "--background-child" => flags.child = true,
                "--name" => flags.name = value()?.to_owned(),
                "--nodes" => {
                    let value = value()?;
                    flags.nodes =
                        value.parse().map_err(|error| format!("invalid argument {value:?} for --nodes: {error}"))?;
                }
                "--controllers" => flags.controllers = value()?.to_owned(),
                "--runtime" => {
                    flags.runtime = match value()? {
                        "auto" => Runtime::Auto,
                        "containerd" => Runtime::Containerd,
                        "process" => Runtime::Process,
                        "simulated" => Runtime::Simulated,
                        other => {
                            return Err(format!("--runtime is auto, containerd, process or simulated, not {other:?}"));
                        }
                    };
                }
                "--pod-network" => {
                    flags.pod_network = match value()? {
                        "auto" => PodNetwork::Auto,
                        "host" => PodNetwork::Host,
                        other => return Err(format!("--pod-network is auto or host, not {other:?}")),
                    };
                }
                _ => left.push(*argument),
            }
        }
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if flags.name.is_empty() || flags.name.starts_with('.') || !flags.name.bytes().all(valid) {
            return Err(format!("--name {:?}: letters, digits, '-', '_' and '.' make a name", flags.name));
        }
        Ok((flags, left))
    }

    /// Where the cluster is.
    pub(super) fn place(&self, data_dir: Option<PathBuf>) -> Result<Place, String> {
        let directory = match data_dir {
            Some(directory) => directory,
            None if self.name == NAME => server::data_dir()?,
            None => server::data_dir()?.with_file_name(format!("{NAME}-{}", self.name)),
        };
        Ok(Place { name: self.name.clone(), directory })
    }

    /// All flags: the own ones and the server's, on this machine alone unless they say otherwise.
    pub(super) fn parse(arguments: &[&str]) -> Result<(Self, Flags), String> {
        let (flags, rest) = UpFlags::split(arguments)?;
        let server = Flags { bind_address: [127, 0, 0, 1].into(), ..Flags::default() };
        Ok((flags, server.parse(&rest)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_split() {
        let (flags, rest) =
            UpFlags::split(&["--name", "other", "--secure-port", "0", "--nodes=3", "-d", "--runtime=simulated"])
                .unwrap();
        assert_eq!((flags.name.as_str(), flags.nodes, flags.background), ("other", 3, true));
        assert_eq!((flags.runtime, rest), (Runtime::Simulated, vec!["--secure-port", "0"]));
    }

    #[test]
    fn wrong_flags_are_one_line() {
        for (arguments, expected) in [
            (&["--nodes", "many"][..], r#"invalid argument "many" for --nodes: invalid digit found in string"#),
            (&["--runtime=docker"], r#"--runtime is auto, containerd, process or simulated, not "docker""#),
            (&["--pod-network=cni"], r#"--pod-network is auto or host, not "cni""#),
            (&["--name"], "flag needs an argument: --name"),
            (&["--name=../x"], r#"--name "../x": letters, digits, '-', '_' and '.' make a name"#),
        ] {
            assert_eq!(UpFlags::split(arguments).unwrap_err(), expected);
        }
        let unknown = Place::parse(&["--secure-port", "0"]).unwrap_err();
        assert_eq!(unknown, r#"unexpected argument "--secure-port": only --name and --data-dir are known here"#);
    }
}
