//! The embedded engine keeps the contract.

use std::{path::Path, sync::Arc};

use capstan_storage::{
    Answer, Embedded, Fault, Options, SharedStore,
    conformance::{Engine, model},
    embedded::{Disk, Tuning},
};

/// The engine with sizes so small that rolling, checkpoints and compaction of segments happen all the time.
#[derive(Clone, Copy)]
struct OnDisk;

const SMALL: Tuning = Tuning { segment_bytes: 16 * 1024, first_spare_bytes: 4 * 1024, checkpoint_bytes: 32 * 1024 };

impl Engine for OnDisk {
    fn open(&self, directory: &Path, options: Options) -> Answer<'_, SharedStore, Fault> {
        let opened = Disk::at(directory).and_then(|disk| Embedded::open_on(Arc::new(disk), options, SMALL));
        Box::pin(async { Ok(Arc::new(opened?) as SharedStore) })
    }

    fn restore(&self, snapshot: &Path, directory: &Path, options: Options) -> Answer<'_, SharedStore, Fault> {
        let restored = Embedded::restore(snapshot, directory, options);
        Box::pin(async { Ok(Arc::new(restored?) as SharedStore) })
    }

    fn reopen(&self, directory: &Path, options: Options) -> Option<Answer<'_, SharedStore, Fault>> {
        Some(self.open(directory, options))
    }
}

capstan_storage::conformance_tests!(OnDisk);

#[test]
fn random_operations_agree_with_the_model() {
    model::check(OnDisk, 32);
}
