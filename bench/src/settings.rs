//! What the command line says.

use std::{path::PathBuf, time::Duration};

/// How the command is used.
pub(crate) const USAGE: &str = "\
Capstan and its peers, measured side by side on this machine.

usage: capstan-bench list
       capstan-bench run [B1 B3 …] [flags]

  --quick              small counts and short rounds: minutes instead of an hour
  --peer upstream|none what to compare with (upstream: kube-apiserver and etcd)
  --peer-bin DIR       where kube-apiserver and etcd are (~/.cache/capstan-peers/bin, else the PATH)
  --capstan PATH       the server to measure (capstan beside this binary)
  --out DIR            where report.json, report.html and, meanwhile, the servers' data go (bench-report)
  --rounds N           rounds of each side (3; 2 when quick)
  --seconds N          length of a round (5; 2 when quick)
  --profile            one more round of each case under perf, with a flame graph of our server in DIR
";

/// What is to be measured, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) benchmarks: Vec<String>,
    pub(crate) quick: bool,
    pub(crate) peer: bool,
    pub(crate) peer_bin: Option<PathBuf>,
    pub(crate) capstan: Option<PathBuf>,
    pub(crate) out: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
    pub(crate) profile: bool,
}

impl Settings {
    /// Reads what follows `run`.
    pub(crate) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let quick = arguments.contains(&"--quick");
        let mut settings = Settings {
            benchmarks: Vec::new(),
            quick,
            peer: true,
            peer_bin: None,
            capstan: None,
            out: "bench-report".into(),
            rounds: if quick { 2 } else { 3 },
            time: Duration::from_secs(if quick { 2 } else { 5 }),
            profile: arguments.contains(&"--profile"),
        };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let (flag, given) = match argument.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (*argument, None),
            };
            let mut value = || given.or_else(|| rest.next().copied()).ok_or(format!("{flag} needs a value"));
            match flag {
                "--quick" | "--profile" => {}
                "--peer" => {
                    settings.peer = match value()? {
                        "upstream" => true,
                        "none" => false,
                        other => return Err(format!("--peer is upstream or none, not {other:?}")),
                    }
                }
                "--peer-bin" => settings.peer_bin = Some(value()?.into()),
                "--capstan" => settings.capstan = Some(value()?.into()),
                "--out" => settings.out = value()?.into(),
                "--rounds" => settings.rounds = number(flag, value()?)?,
                "--seconds" => settings.time = Duration::from_secs(number(flag, value()?)? as u64),
                _ if flag.starts_with('-') => return Err(format!("there is no flag {flag}")),
                name => settings.benchmarks.push(name.to_uppercase()),
            }
        }
        Ok(settings)
    }

    /// One of two, by whether it is to be quick.
    pub(crate) fn scale<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

fn number(flag: &str, text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or(format!("{flag} needs a number above 0, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let read = Settings::parse(&["b1", "--quick", "B3", "--peer=none", "--rounds", "4"]).unwrap();
        assert_eq!((read.benchmarks.as_slice(), read.peer, read.rounds), (&["B1".into(), "B3".into()][..], false, 4));
        assert_eq!((read.scale(1, 2), read.time), (1, Duration::from_secs(2)));
    }

    #[test]
    fn wrong_arguments_say_what_is_wrong() {
        let check = |arguments: &[&str], problem: &str| {
            assert_eq!(Settings::parse(arguments).unwrap_err(), problem);
        };
        check(&["--rounds", "0"], "--rounds needs a number above 0, not \"0\"");
        check(&["--seconds=x"], "--seconds needs a number above 0, not \"x\"");
        check(&["--out"], "--out needs a value");
        check(&["--peer", "k3s"], "--peer is upstream or none, not \"k3s\"");
        check(&["--fast"], "there is no flag --fast");
    }
}
