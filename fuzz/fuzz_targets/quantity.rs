//! Quantities: what is printed can be read.

#![no_main]

use capstan_api::Quantity;

libfuzzer_sys::fuzz_target!(|data: &str| {
    if let Ok(quantity) = data.parse::<Quantity>() {
        // Beyond the largest suffix upstream prints another amount than it read, and so do we; what is printed is one.
        let printed = quantity.to_string();
        assert!(printed.parse::<Quantity>().is_ok(), "{printed}");
    }
});
