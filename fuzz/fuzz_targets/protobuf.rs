//! Any bytes as messages of a few kinds; what is read can be written, and is read the same again.

#![no_main]

use capstan_api::{builtin, protobuf};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = protobuf::envelope(data);
    for name in [
        "core.v1.Pod",
        "core.v1.ConfigMap",
        "apiextensions.v1.CustomResourceDefinition",
        "apiextensions.v1.JSONSchemaProps",
        "authorization.v1.SubjectAccessReview",
        "coordination.v1.Lease",
    ] {
        let schema = builtin::type_schema(name).expect("the table has the type");
        let Ok(value) = protobuf::decode_message(&schema, data) else { continue };
        let mut message = Vec::new();
        protobuf::encode(&schema, &value, &mut message);
        let again = protobuf::decode_message(&schema, &message).expect("what is written can be read");
        let mut twice = Vec::new();
        protobuf::encode(&schema, &again, &mut twice);
        assert_eq!(message, twice);
    }
});
