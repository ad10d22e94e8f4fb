//! What the tests of this crate share.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
};

use capstan_clock::{Ids as _, OsIds};

/// A directory that is gone with this, however the test ends.
pub(crate) struct Temporary(PathBuf);

impl Deref for Temporary {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A new directory that nobody else uses.
pub(crate) fn temporary(name: &str) -> Temporary {
    let dir = std::env::temp_dir().join(format!("capstan-kubelet-{name}-{}", OsIds.suffix(8)));
    std::fs::create_dir_all(&dir).unwrap();
    Temporary(dir)
}
