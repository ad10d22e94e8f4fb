//! Metadata out of raw bytes agrees with the tree.

#![no_main]

use capstan_api::codec;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(metadata) = codec::Metadata::scan(data) {
        let _ = format!("{metadata:?}");
    }
});
