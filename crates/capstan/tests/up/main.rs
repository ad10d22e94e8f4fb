//! `capstan up` as a user starts it, with simulated nodes, killed while it works.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

mod cnat;
mod rolling;

use std::{
    fs,
    future::Future,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use capstan_client::Client;
use capstan_clock::{Clock as _, RealClock};

/// How long anything may take on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often it is looked.
const LOOK: Duration = Duration::from_millis(20);

/// Where it says what it should not have to say.
const WORDS: &str = "stderr.test";

/// A cluster of its own; it is killed when this is dropped.
struct Up {
    child: Child,
    directory: PathBuf,
    client: Client,
}

impl Up {
    /// Starts one, or goes on with the one whose data is there.
    async fn start(directory: &Path) -> Self {
        let kubeconfig = directory.join("kubeconfig.test");
        let mut command = Command::new(env!("CARGO_BIN_EXE_capstan"));
        command.args(["up", "--nodes", "10", "--runtime", "simulated", "--data-dir"]).arg(directory);
        command.arg("--write-kubeconfig").arg(&kubeconfig);
        if !directory.join("port").exists() {
            // The one that is found stays for as long as the data does.
            command.args(["--secure-port", "0"]);
        }
        fs::create_dir_all(directory).unwrap();
        let words = fs::File::options().create(true).append(true).open(directory.join(WORDS)).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(words);
        let mut child = command.spawn().unwrap();
        // Nobody reads on after that, and that is no harm.
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.starts_with("Ready in"));
        assert!(ready, "it did not start");
        let client = Client::from_kubeconfig(&kubeconfig, None).await.unwrap();
        Up { child, directory: directory.to_owned(), client }
    }

    /// kill -9, and another start on what is left.
    async fn killed_and_started(mut self) -> Self {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let directory = self.directory.clone();
        drop(self);
        Up::start(&directory).await
    }

    /// Ends it for good, takes its data away, and sees that nothing went wrong that nobody noticed.
    fn end(self) {
        let directory = self.directory.clone();
        drop(self);
        let words = fs::read_to_string(directory.join(WORDS)).unwrap();
        assert!(!words.contains("panicked"), "{words}");
        fs::remove_dir_all(&directory).unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An empty directory for one test.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("up-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    directory
}

/// Waits until something is so.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut check: impl FnMut() -> F) -> T {
    let clock = RealClock::new();
    let end = clock.monotonic().plus(PATIENCE);
    while clock.monotonic() < end {
        if let Some(found) = check().await {
            return found;
        }
        clock.sleep(LOOK).await;
    }
    panic!("never: {what}");
}
