//! What is refused, what is passed over, and that what is written is read again.

use proptest::prelude::*;

use super::{MAX_DEPTH, decode_message, encode, envelope, from_message, watch_frame};
use crate::{Str, Value, builtin, json, schema::NodeRef, watch_event::EventType};

fn read(ty: &str, message: &[u8]) -> String {
    let schema = builtin::type_schema(ty).unwrap();
    match decode_message(&schema, message) {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn envelopes() {
    for (bytes, expected) in [
        (&b""[..], "empty data"),
        (b"hello", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
        (b"k8s\0", "empty body"),
        (b"k8s\0\x0a\x03\x0a\x01", "unexpected EOF"),
        (b"k8s\0\x08\x00", "proto: wrong wireType = 0 for field TypeMeta"),
        (b"k8s\0\x0a\x02\x08\x00", "proto: wrong wireType = 0 for field APIVersion"),
        (b"k8s\0\x00", "proto: Unknown: illegal tag 0 (wire type 0)"),
        (b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x01x\x1a\x00\x22\x00\x28\x01", "v1 Pod x"),
        (b"k8s\0\x12\x00", "  "),
    ] {
        let shown = match envelope(bytes) {
            Ok(envelope) => {
                format!("{} {} {}", envelope.api_version, envelope.kind, envelope.raw.escape_ascii())
            }
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{}", bytes.escape_ascii());
    }
}

/// Go writes fields in the order of their numbers; nobody has to.
#[test]
fn fields_in_any_order() {
    let schema = builtin::type_schema("core.v1.ConfigMap").unwrap();
    let (name, immutable) = (&b"\x0a\x03\x0a\x01n"[..], &b"\x20\x01"[..]);
    let (a, b) = (&b"\x12\x06\x0a\x01a\x12\x011"[..], &b"\x12\x06\x0a\x01b\x12\x012"[..]);
    for fields in [[name, a, b, immutable], [immutable, b, a, name], [b, immutable, a, name], [a, name, b, immutable]] {
        let message = fields.concat();
        let whole: serde_json::Value = from_message(&schema, &message, true).unwrap();
        assert_eq!(whole.to_string(), r#"{"data":{"a":"1","b":"2"},"immutable":true,"metadata":{"name":"n"}}"#);
        assert_eq!(decode_message(&schema, &message).unwrap().to_string(), whole.to_string());
    }
    // Nothing is shown of JSON that is nothing.
    let schema = builtin::type_schema("apps.v1.ControllerRevision").unwrap();
    for (raw, expected) in [(&b"null"[..], "{}"), (b" null\n", "{}"), (b"", "{}"), (b"7", r#"{"data":7}"#)] {
        let length = u8::try_from(raw.len()).unwrap();
        let message = [&[0x12, length + 2, 0x0a, length], raw].concat();
        let whole: serde_json::Value = from_message(&schema, &message, true).unwrap();
        let shown = whole.get("data").map_or("{}".to_owned(), |data| format!(r#"{{"data":{data}}}"#));
        assert_eq!(shown, expected, "{}", raw.escape_ascii());
    }
}

#[test]
fn messages() {
    for (ty, message, expected) in [
        ("core.v1.ConfigMap", &b""[..], "{}"),
        ("core.v1.ConfigMap", b"\x0f\x00", "proto: wrong wireType = 7 for field ObjectMeta"),
        ("core.v1.ConfigMap", b"\x0a\x05", "unexpected EOF"),
        ("core.v1.ConfigMap", b"\x0c", "proto: ConfigMap: wiretype end group for non-group"),
        (
            "core.v1.ConfigMap",
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "proto: negative length found during unmarshaling",
        ),
        ("core.v1.ConfigMap", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow"),
        // Unknown fields of every form, a group in a group among them.
        (
            "core.v1.ConfigMap",
            b"\xa0\x06\x01\xa1\x0612345678\xa2\x06\x01x\xa5\x061234\xa3\x06\x0b\x0c\xa4\x06\x20\x01",
            r#"{"immutable":true}"#,
        ),
        ("core.v1.ConfigMap", b"\xa7\x06", "proto: illegal wireType 7"),
        ("core.v1.ConfigMap", b"\xa3\x06", "unexpected EOF"),
        ("core.v1.ConfigMap", b"\xa1\x06123", "unexpected EOF"),
        // A pointer that is set to zero stays.
        ("core.v1.ConfigMap", b"\x20\x00", r#"{"immutable":false}"#),
        // Of a key that comes twice the last one counts; what is missing in an entry is zero.
        (
            "core.v1.ConfigMap",
            b"\x12\x06\x0a\x01b\x12\x01x\x12\x03\x0a\x01a\x12\x06\x0a\x01b\x12\x01y\x12\x00",
            r#"{"data":{"":"","a":"","b":"y"}}"#,
        ),
        ("core.v1.ConfigMap", b"\x1a\x07\x0a\x01a\x12\x02\x00\xff", r#"{"binaryData":{"a":"AP8="}}"#),
        // A scalar that JSON leaves out when it is zero; strings that are no UTF-8.
        ("meta.v1.ObjectMeta", b"\x0a\x00\x12\x01\xff\x38\x00\x42\x00", "{\"generateName\":\"\u{fffd}\"}"),
        ("meta.v1.ObjectMeta", b"\x42\x04\x08\x01\x10\x07\x4a\x00", r#"{"creationTimestamp":"1970-01-01T00:00:01Z"}"#),
        (
            "coordination.v1.LeaseSpec",
            b"\x1a\x0d\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            r#"{"acquireTime":"1970-01-01T00:00:00.000000Z"}"#,
        ),
        (
            "coordination.v1.LeaseSpec",
            b"\x1a\x0d\x08\x00\x10\x98\xf8\xff\xff\xff\xff\xff\xff\xff\x01",
            r#"{"acquireTime":"1969-12-31T23:59:59.999999Z"}"#,
        ),
        // Numbers of a list come one by one or packed.
        ("core.v1.PodSecurityContext", b"\x20\x01\x22\x02\x02\x03\x20\x04", r#"{"supplementalGroups":[1,2,3,4]}"#),
        ("core.v1.PodSecurityContext", b"\x22\x01\x80", "unexpected EOF"),
        // Messages that JSON does not show, also when they come in parts.
        (
            "core.v1.Volume",
            b"\x12\x04\x12\x02\x0a\x00\x0a\x01v\x12\x02\x3a\x00",
            r#"{"emptyDir":{},"name":"v","nfs":{}}"#,
        ),
        ("core.v1.Volume", b"\x10\x00", "proto: wrong wireType = 0 for field HostPath"),
        ("core.v1.ServicePort", b"\x22\x07\x08\x01\x10\x00\x1a\x01a", r#"{"targetPort":"a"}"#),
        ("core.v1.ServicePort", b"\x22\x02\x10\x50", r#"{"targetPort":80}"#),
        ("core.v1.ServicePort", b"\x22\x02\x08\x05", "impossible IntOrString.Type"),
        ("core.v1.ResourceQuotaSpec", b"\x0a\x0b\x0a\x01a\x12\x06\x0a\x041000", r#"{"hard":{"a":"1k"}}"#),
        (
            "core.v1.ResourceQuotaSpec",
            b"\x0a\x08\x0a\x01a\x12\x03\x0a\x01x",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("apps.v1.ControllerRevision", b"\x12\x05\x0a\x03[1]", r#"{"data":[1]}"#),
        ("apps.v1.ControllerRevision", b"\x12\x03\x0a\x01x", "invalid character 'x' looking for beginning of value"),
        (
            "apiextensions.v1.JSONSchemaProps",
            b"\xf2\x01\x04\x08\x01\x12\x00\x8a\x02\x02\x08\x01\xc2\x01\x04\x12\x00\x12\x00",
            r#"{"additionalItems":true,"additionalProperties":{},"items":[{},{}]}"#,
        ),
        (
            "apiextensions.v1.JSONSchemaProps",
            b"\x82\x02\x08\x0a\x01a\x12\x03\x12\x01b\x82\x02\x07\x0a\x01c\x12\x02\x0a\x00",
            r#"{"dependencies":{"a":["b"],"c":{}}}"#,
        ),
        (
            "authentication.v1.UserInfo",
            b"\x22\x0b\x0a\x01k\x12\x06\x0a\x01a\x0a\x01b\x22\x03\x0a\x01n",
            r#"{"extra":{"k":["a","b"],"n":null}}"#,
        ),
    ] {
        assert_eq!(read(ty, message), expected, "{ty} {}", message.escape_ascii());
    }
}

/// A schema in a schema in a schema, by the field `not`.
fn nested(depth: usize) -> Vec<u8> {
    let mut writer = super::wire::Writer::default();
    for _ in 0..depth {
        writer.header(28, 0);
    }
    writer.finish().to_vec()
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    let ty = "apiextensions.v1.JSONSchemaProps";
    let schema = builtin::type_schema(ty).unwrap();
    assert_eq!(schema.root().field("not").unwrap().number, 28);
    let message = nested(MAX_DEPTH - 1);
    let value = decode_message(&schema, &message).unwrap();
    let mut written = Vec::new();
    encode(&schema, &value, &mut written);
    assert!(decode_message(&schema, &written).unwrap() == value);
    assert_eq!(read(ty, &nested(MAX_DEPTH)), "proto: exceeded max depth");
}

#[test]
fn frames_of_a_watch() {
    let frame = watch_frame(EventType::Added, b"k8s");
    assert_eq!(frame, b"\x00\x00\x00\x0e\x0a\x05ADDED\x12\x05\x0a\x03k8s");
}

/// A value of the node's type, made of `seed`.
fn sample(node: NodeRef<'_>, seed: &mut impl FnMut() -> u32, depth: usize) -> Value {
    use crate::schema::{Format, Type};
    let some = [
        "",
        "a",
        "é",
        "long enough for a length of its own, more than one hundred and twenty seven bytes, which is where lengths get their second byte",
    ];
    let n = seed();
    let text = Str::from(some[n as usize % some.len()]);
    match (node.ty(), node.format()) {
        (Type::String, Format::Byte) => Value::String(["", "AP8=", "YQ=="][n as usize % 3].into()),
        (Type::String, Format::DateTime) => Value::String("2024-02-29T23:59:59Z".into()),
        (Type::String, Format::MicroTime) => Value::String("1969-12-31T23:59:59.000001Z".into()),
        (Type::String, Format::Quantity) => Value::String(["0", "1500m", "-1Gi"][n as usize % 3].into()),
        (Type::String, _) => Value::String(text),
        (Type::Integer, Format::Int32) => Value::Int((n as i32).into()),
        (Type::Integer, _) => Value::Int(i64::from(n as i32) << (n % 32)),
        (Type::Number, _) => Value::Float(f64::from(n) / 8.0),
        (Type::Any, Format::IntOrString) if n.is_multiple_of(2) => Value::Int(i64::from(n as i32)),
        (Type::Any, Format::IntOrString) => Value::String(text),
        (Type::Boolean | Type::Any, _) if node.alternative().is_some() && depth > 0 => {
            node.alternative().map(|schema| sample(schema, seed, depth - 1)).unwrap()
        }
        (Type::Boolean, _) => Value::Bool(n.is_multiple_of(2)),
        (Type::Any, _) => json::parse(br#"{"a":[1,2.5,null,"<x>"]}"#).unwrap(),
        (Type::Array, _) => {
            let items = node.items().unwrap();
            let count = if depth == 0 { 0 } else { n % 3 };
            Value::Array((0..count).map(|_| sample(items, seed, depth - 1)).collect::<Vec<_>>().into())
        }
        (Type::Object, _) => {
            let mut map = crate::Map::new();
            if depth > 0 {
                if let Some(values) = node.additional() {
                    for key in &some[..n as usize % some.len()] {
                        map.insert(*key, sample(values, seed, depth - 1));
                    }
                }
                for field in node.fields() {
                    if field.number != 0 && seed().is_multiple_of(3) {
                        map.insert(field.name.as_str(), sample(field.node, seed, depth - 1));
                    }
                }
            }
            Value::Object(map)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// What JSON says of any value of any type is what its message says.
    #[test]
    fn what_is_written_is_read(at in any::<prop::sample::Index>(), mut state in any::<u32>()) {
        // Schemas of users hold values of several types, which nothing here can make up; the golden objects have them.
        let types: Vec<_> = builtin::types().filter(|(name, _)| !name.starts_with("apiextensions.")).collect();
        let (name, _) = types[at.index(types.len())];
        let schema = builtin::type_schema(name).unwrap();
        let mut seed = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 7
        };
        let value = sample(schema.root(), &mut seed, 5);
        let value = schema.decode(value.to_string().as_bytes()).unwrap().value;
        // Go's zero values are in the message, and filled in by defaulting when they come as JSON.
        let settle = |mut value: Value| {
            crate::schema::default::default(&mut value, &schema);
            value
        };
        let mut message = Vec::new();
        encode(&schema, &value, &mut message);
        let again = decode_message(&schema, &message).unwrap();
        let mut twice = Vec::new();
        encode(&schema, &again, &mut twice);
        prop_assert_eq!(&twice, &message, "{} {}", name, value);
        prop_assert_eq!(without_empty(settle(again)), without_empty(settle(value)), "{}", name);
    }
}

/// Lists and maps that are empty are not there in a message.
fn without_empty(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.into_entries().into_iter().map(|(key, value)| (key, without_empty(value)));
            let shown = entries.filter(|(_, value)| match value {
                Value::Array(values) => !values.is_empty(),
                Value::Object(map) => !map.is_empty(),
                value => !value.is_null(),
            });
            Value::Object(crate::Map::from_entries(shown.collect(), |_| {}))
        }
        Value::Array(values) => {
            Value::Array(values.into_vec().into_iter().map(without_empty).collect::<Vec<_>>().into())
        }
        value => value,
    }
}
