//! JSON: whatever parses prints to something that prints the same again.

#![no_main]

use capstan_api::json;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(value) = json::parse(data) {
        // The text is compared and not the value: a float without fraction is printed as an integer, as Go does.
        let text = json::to_string(&value);
        let again = json::parse(text.as_bytes()).expect("what is written can be read");
        assert_eq!(json::to_string(&again), text);
        let pretty = json::parse(json::to_pretty_string(&value).as_bytes()).expect("pretty too");
        assert_eq!(json::to_string(&pretty), text);
    }
});
