//! What the tests of this crate share.

use std::path::PathBuf;

use capstan_clock::{Ids as _, OsIds};

/// A new directory that nobody else uses.
pub(crate) fn temporary(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("capstan-kubelet-{name}-{}", OsIds.suffix(8)));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
