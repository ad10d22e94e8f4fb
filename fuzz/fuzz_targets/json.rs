//! JSON: whatever parses prints to something that settles.

#![no_main]

use capstan_api::json;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(value) = json::parse(data) {
        // What is read is compared from the second time on: a float without fraction prints as an integer, as in Go.
        let again = |text: String| json::to_string(&json::parse(text.as_bytes()).expect("what is written can be read"));
        let text = again(json::to_string(&value));
        assert_eq!(again(text.clone()), text);
        assert_eq!(again(json::to_pretty_string(&value)), text);
    }
});
