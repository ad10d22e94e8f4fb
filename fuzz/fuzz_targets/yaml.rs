//! YAML: whatever parses prints to something that parses to the same.

#![no_main]

use capstan_api::yaml;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    for value in yaml::parse_all(data).into_iter().flatten() {
        let text = yaml::to_string(&value);
        assert_eq!(yaml::parse(text.as_bytes()).expect("what is written can be read"), value, "{text}");
    }
});
