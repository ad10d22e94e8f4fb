//! Selectors: what is printed reads back as the same.

#![no_main]

use capstan_api::selector::{FieldSelector, LabelSelector, Selector};

libfuzzer_sys::fuzz_target!(|data: &str| {
    if let Ok(selector) = data.parse::<Selector>() {
        let printed = selector.to_string();
        assert_eq!(printed.parse::<Selector>().expect("what is printed can be read").to_string(), printed);
    }
    if let Ok(selector) = data.parse::<FieldSelector>() {
        let printed = selector.to_string();
        // Terms are sorted as they are written, so `==` may change places with `=`, as upstream.
        assert!(printed.parse::<FieldSelector>().is_ok(), "{printed}");
    }
    let _ = LabelSelector::parse(data);
});
