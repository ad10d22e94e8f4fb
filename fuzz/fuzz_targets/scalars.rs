//! Times, durations, names and numbers with a percent sign.

#![no_main]

use capstan_api::{Duration, GroupVersion, IntOrString, MicroTime, Time, names};

libfuzzer_sys::fuzz_target!(|data: &str| {
    let _ = data.parse::<Time>();
    let _ = data.parse::<MicroTime>();
    let _ = data.parse::<Duration>();
    let _ = data.parse::<GroupVersion>();
    let _ = names::parse_resource_arg(data);
    let _ = IntOrString::String(data.into()).scaled(100, true);
});
