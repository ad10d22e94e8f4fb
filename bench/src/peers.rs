//! Programs of other projects that do what ours do, built from `bench/peers` when they are first needed.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The programs in Go: client-go's informer, and the queues of client-go and controller-runtime.
pub(crate) fn go(name: &str) -> Result<PathBuf, String> {
    let binary = place()?.join(name);
    let sources = sources("go");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&binary).arg(format!("./{name}")).env("CGO_ENABLED", "0").current_dir(sources);
    built("a Go toolchain", &mut build)?;
    Ok(binary)
}

/// kube-rs' reflector.
pub(crate) fn kube_rs() -> Result<PathBuf, String> {
    let target = place()?.join("kube-rs");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet"]).env("CARGO_TARGET_DIR", &target).current_dir(sources("kube-rs"));
    built("cargo", &mut build)?;
    Ok(target.join("release/kube-rs-peer"))
}

fn sources(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}

/// Where they are built: in a cache, so that a run need not wait for what an earlier one has built.
fn place() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let place = cache.ok_or("there is no home directory to build peers in")?.join("capstan-bench");
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(place)
}

fn built(needs: &str, build: &mut Command) -> Result<(), String> {
    let output = build.output().map_err(|error| format!("the peer needs {needs}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let tail: Vec<&str> = words.lines().rev().take(3).collect();
    Err(format!("the peer cannot be built: {}", tail.into_iter().rev().collect::<Vec<_>>().join("; ")))
}
