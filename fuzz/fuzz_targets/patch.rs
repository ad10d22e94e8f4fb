//! Patches: `[document, patch]` as JSON patch, merge patch and strategic merge patch of a Pod.

#![no_main]

use capstan_api::{
    GroupVersionKind, Value, builtin, json,
    patch::{json_patch::JsonPatch, merge, strategic},
};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Ok(Value::Array(parts)) = json::parse(data) else { return };
    let [document, patch] = parts.as_slice() else { return };
    if let Ok(patch) = JsonPatch::from_value(patch.clone()) {
        let _ = patch.apply(document.clone());
    }
    let _ = merge::apply(document.clone(), patch.clone());
    let pod = GroupVersionKind::from_static("", "v1", "Pod");
    let schema = builtin::schema(&pod).expect("it is built in");
    if let (Value::Object(document), Value::Object(patch)) = (document, patch) {
        let _ = strategic::apply(document.clone(), patch.clone(), schema.root());
    }
});
