//! Quantities: what is printed reads back as equal.

#![no_main]

use capstan_api::Quantity;

libfuzzer_sys::fuzz_target!(|data: &str| {
    if let Ok(quantity) = data.parse::<Quantity>() {
        let printed = quantity.to_string();
        assert_eq!(printed.parse::<Quantity>().expect("what is printed can be read"), quantity, "{printed}");
    }
});
