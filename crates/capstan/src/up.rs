//! `capstan up`: what there is of a cluster so far, which is its store.

use std::{env, path::PathBuf};

use capstan_storage::{At, Options, Store, embedded::Embedded};

/// Opens the store and says how it is.
pub(crate) fn run(arguments: &[&str]) -> Result<(), String> {
    let dir = match arguments {
        [] => data_dir()?,
        ["--data-dir", dir] => PathBuf::from(dir),
        ["--data-dir"] => return Err("--data-dir needs a directory".to_owned()),
        [unknown, ..] => return Err(format!("unknown flag {unknown:?}; `capstan help` lists them")),
    };
    let new = !dir.exists();
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    let hash = runtime.block_on(async {
        let store = Embedded::open(&dir, Options::default()).map_err(|fault| fault.to_string())?;
        store.hash(At::Present).await.map_err(|error| error.to_string())
    })?;
    let age = if new { " (new)" } else { "" };
    println!("  store        embedded, {}{age}: {} keys at revision {}", dir.display(), hash.keys, hash.revision);
    println!("  api server   not part of this version yet");
    println!();
    println!("  capstan validate -f FILE     check manifests against the built-in kinds of {}", crate::KUBERNETES);
    println!("  capstan api-resources        list them");
    Ok(())
}

fn data_dir() -> Result<PathBuf, String> {
    let base = env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share")));
    base.map(|base| base.join("capstan"))
        .ok_or_else(|| "neither XDG_DATA_HOME nor HOME is set: name a directory with --data-dir".to_owned())
}
