//! Schemas of users: `[schema, object]` compiled, pruned, defaulted, validated.

#![no_main]

use capstan_api::{
    Value, json,
    schema::{default, prune, structural, validate},
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(Value::Array(parts)) = json::parse(data) else { return };
    let [definition, object] = parts.as_slice() else { return };
    if let Ok(schema) = structural::compile(definition, "spec") {
        let mut object = object.clone();
        prune::prune(&mut object, &schema);
        default::default(&mut object, &schema);
        let _ = validate::validate(&object, &schema);
    }
});
