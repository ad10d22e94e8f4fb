//! Rules of names and addresses.

#![no_main]

use capstan_api::validation;

libfuzzer_sys::fuzz_target!(|data: &str| {
    let _ = validation::is_dns1123_label(data);
    let _ = validation::is_dns1123_subdomain(data);
    let _ = validation::is_qualified_name(data);
    let _ = validation::is_valid_label_value(data);
});
