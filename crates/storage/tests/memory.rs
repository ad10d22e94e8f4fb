//! The memory engine keeps the contract.

use std::{path::Path, sync::Arc};

use capstan_storage::{
    Answer, Fault, Memory, Options, SharedStore,
    conformance::{Engine, model},
};

#[derive(Clone, Copy)]
struct InMemory;

impl Engine for InMemory {
    fn open(&self, _: &Path, options: Options) -> Answer<'_, SharedStore, Fault> {
        Box::pin(async { Ok(Arc::new(Memory::new(options)) as SharedStore) })
    }

    fn restore(&self, snapshot: &Path, _: &Path, options: Options) -> Answer<'_, SharedStore, Fault> {
        let restored = Memory::restore(snapshot, options);
        Box::pin(async { Ok(Arc::new(restored?) as SharedStore) })
    }

    fn reopen(&self, _: &Path, _: Options) -> Option<Answer<'_, SharedStore, Fault>> {
        None
    }
}

capstan_storage::conformance_tests!(InMemory);

#[test]
fn random_operations_agree_with_the_model() {
    model::check(InMemory, 256);
}
