//! Built-in kinds: decoded, defaulted, validated; doing it again changes nothing.

#![no_main]

use capstan_api::{GroupVersionKind, builtin, json};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let pod = GroupVersionKind::from_static("", "v1", "Pod");
    let definition = GroupVersionKind::from_static("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    for gvk in [pod, definition] {
        let schema = builtin::schema(&gvk).expect("it is built in");
        let Ok(mut decoded) = schema.decode(data) else { continue };
        let _ = builtin::check(&schema, &decoded.value);
        builtin::default(&schema, &mut decoded.value);
        let text = json::to_string(&decoded.value);
        let again = schema.decode(text.as_bytes()).expect("what was decoded can be decoded");
        assert!(again.strict.is_empty(), "{}", again.strict);
    }
});
