//! Strict decoding of any text, in either format.

#![no_main]

use capstan_api::codec;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = codec::decode_strict(data, codec::Format::Json);
    let _ = codec::decode_strict(data, codec::Format::Yaml);
});
