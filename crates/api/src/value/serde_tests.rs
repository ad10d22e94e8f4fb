//! Values to Rust types and back.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{MAX_SERDE_DEPTH, SerdeError, Value, from_value, to_value};
use crate::json;

const POD: &[u8] = include_bytes!("../../benches/pod.json");

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Circle(f64),
    Line(i32, i32),
    Box {
        width: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        height: Option<u8>,
    },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Nested(Option<Box<Nested>>, Vec<Nested>);

fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(thing: &T, expected: &str) {
    let value = to_value(thing).unwrap();
    assert_eq!(json::to_string(&value), expected);
    assert_eq!(&from_value::<T>(value).unwrap(), thing);
}

#[test]
fn types_and_values() {
    check(&(true, -1i8, 2u64, 1.5f32, 'x', "s".to_owned(), ()), r#"[true,-1,2,1.5,"x","s",null]"#);
    check(&vec![Some(1), None], "[1,null]");
    check(&BTreeMap::from([(1, "a".to_owned()), (-2, "b".to_owned())]), r#"{"-2":"b","1":"a"}"#);
    check(
        &vec![Shape::Point, Shape::Circle(0.5), Shape::Line(1, -2), Shape::Box { width: 1, height: None }],
        r#"["Point",{"Circle":0.5},{"Line":[1,-2]},{"Box":{"width":1}}]"#,
    );
    let pod = json::parse(POD).unwrap();
    let typed: Pod = from_value(pod.clone()).unwrap();
    assert_eq!(typed, serde_json::from_slice(POD).unwrap());
    assert_eq!(to_value(&typed).unwrap().get("spec"), pod.get("spec"));
    assert_eq!(to_value(&pod).unwrap(), pod);
}

#[test]
fn other_formats() {
    let value = json::parse(POD).unwrap();
    let other: serde_json::Value = serde_json::to_value(&value).unwrap();
    assert_eq!(other, serde_json::from_slice::<serde_json::Value>(POD).unwrap());
    assert_eq!(serde_json::from_value::<Value>(other).unwrap(), value);
    assert_eq!(serde_json::from_slice::<Value>(POD).unwrap(), value);
    assert_eq!(
        serde_json::from_str::<Value>("[18446744073709551615,1.0,1]").unwrap().to_string(),
        "[18446744073709552000,1,1]"
    );
}

#[test]
fn what_does_not_fit() {
    assert_eq!(to_value(&f64::NAN), Err(SerdeError::Number));
    assert_eq!(to_value(&BTreeMap::from([(vec![1], 1)])), Err(SerdeError::Key));
    assert!(matches!(from_value::<bool>(Value::Int(1)), Err(SerdeError::Type(_))));
    assert!(matches!(from_value::<u8>(Value::Int(256)), Err(SerdeError::Type(_))));
    assert!(matches!(from_value::<Shape>(Value::Int(1)), Err(SerdeError::Type(_))));
    assert!(from_value::<(i32, i32)>(json::parse(b"[1,2,3]").unwrap()).is_err());
}

#[test]
fn depth_is_bounded() {
    let deep = |depth: usize| json::parse(("[".repeat(depth) + &"]".repeat(depth)).as_bytes()).unwrap();
    for depth in [MAX_SERDE_DEPTH + 1, 10_000] {
        assert_eq!(from_value::<serde_json::Value>(deep(depth)), Err(SerdeError::Depth));
        assert_eq!(to_value(&deep(depth)).unwrap_err().to_string(), "more than 128 levels deep");
        assert!(serde_json::to_string(&deep(depth)).is_err());
    }
    let value = deep(MAX_SERDE_DEPTH);
    assert_eq!(to_value(&value).as_ref(), Ok(&value));
    assert_eq!(from_value::<Value>(value.clone()).as_ref(), Ok(&value));
    let nested = (0..100_000).fold(Nested(None, Vec::new()), |inner, _| Nested(None, vec![inner]));
    assert_eq!(to_value(&nested), Err(SerdeError::Depth));
    // Its own drop would recurse.
    std::mem::forget(nested);
}
