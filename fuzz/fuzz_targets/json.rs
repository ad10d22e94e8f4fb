//! JSON: whatever parses prints to something that parses to the same.

#![no_main]

use capstan_api::json;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(value) = json::parse(data) {
        let text = json::to_string(&value);
        assert_eq!(json::parse(text.as_bytes()).expect("what is written can be read"), value);
        assert_eq!(json::parse(json::to_pretty_string(&value).as_bytes()).expect("pretty too"), value);
    }
});
