//! What upstream's decoder and accessors answer, and that nothing of the wrong shape makes them fall over.

use proptest::prelude::*;

use super::*;
use crate::{
    GroupVersionResource,
    object::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Scope},
};

/// For each text: what it is read as, alone, into an object and into a list; what its items are called when it is an
/// object. The answers are those of upstream's UnstructuredJSONScheme.
#[test]
fn decode_as_upstream() {
    const MISSING: &str = "Object 'Kind' is missing in ";
    fn check(text: &str, any: &str, object: &str, list: &str, each: &str) {
        let show = |result: Result<String, DecodeError>| match result {
            Ok(shown) => shown,
            Err(error) => error.to_string().replace(MISSING, "missing ").replace("json: cannot unmarshal ", "cannot "),
        };
        let any_read = decode(text.as_bytes()).map(|decoded| match decoded {
            Decoded::Object(object) => object.to_string(),
            Decoded::List(list) => {
                let mut out = Vec::new();
                list.write(&mut out);
                String::from_utf8(out).unwrap()
            }
        });
        assert_eq!(show(any_read), any, "any: {text}");
        let object_read = Unstructured::decode(text.as_bytes());
        assert_eq!(show(object_read.clone().map(|_| "ok".into())), object, "object: {text}");
        assert_eq!(show(UnstructuredList::decode(text.as_bytes()).map(|_| "ok".into())), list, "list: {text}");
        if let Ok(object) = object_read {
            let answer = object.each_list_item(|_| Ok::<(), ListError>(())).map_err(|error| error.to_string());
            assert_eq!(answer.err().unwrap_or_default(), each, "each: {text}");
        }
    }
    for (text, found) in [("[]", "array"), ("3", "number"), ("\"s\"", "string"), ("true", "bool")] {
        check(
            text,
            &format!("cannot {found} into Go value of type unstructured.detector"),
            &format!("cannot {found} into Go value of type map[string]interface {{}}"),
            &format!("cannot {found} into Go value of type unstructured.decodeList"),
            "",
        );
    }
    for text in [
        "null",
        "{}",
        r#"{"kind":3}"#,
        r#"{"items":[]}"#,
        r#"{"kind":""}"#,
        r#"{"Kind":"x"}"#,
        r#"{"kind":null}"#,
        r#"{"kind":"A","apiVersion":"a/b/c"}"#,
    ] {
        let missing = format!("missing '{text}'");
        check(text, &missing, &missing, &missing, "");
    }
    for text in ["{", ""] {
        let end = "unexpected end of JSON input";
        check(text, end, end, end, "");
    }
    let rest = "invalid character 'x' after top-level value";
    check(r#"{"kind":"A"} x"#, rest, rest, rest, "");
    check(r#"{"kind":"A","items":null}"#, r#"{"items":[],"kind":"A"}"#, "ok", "ok", "content is not a list: <nil>");
    check(r#"{"kind":"A"}"#, r#"{"kind":"A"}"#, "ok", "ok", "content is not a list");
    let not_raw = "cannot object into Go struct field decodeList.items of type []json.RawMessage";
    check(r#"{"kind":"AList","items":{}}"#, not_raw, "ok", not_raw, "content is not a list: map[string]interface {}");
    let not_map = "cannot number into Go value of type map[string]interface {}";
    let member = "items member is not an object: map[string]interface {}";
    check(r#"{"kind":"AList","items":[3]}"#, not_map, "ok", not_map, member);
    check(
        r#"{"kind":"AList","apiVersion":"v1","items":[null,{"kind":"x"},{}],"metadata":{"resourceVersion":"7"}}"#,
        r#"{"apiVersion":"v1","items":[{"apiVersion":"v1","kind":"A"},{"kind":"x"},{"apiVersion":"v1","kind":"A"}],"kind":"AList","metadata":{"resourceVersion":"7"}}"#,
        "ok",
        "ok",
        member,
    );
}

#[test]
fn accessors_read_back_what_they_set() {
    let gvk = GroupVersionKind::from_static("shop.example.com", "v1", "Order");
    let mut order = Unstructured::new(&gvk);
    assert_eq!(order.gvk(), gvk);
    let labels = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let owner = OwnerReference { controller: Some(true), ..OwnerReference::new(&gvk, "parent", "u") };
    let entry = ManagedFieldsEntry { manager: "m".into(), ..ManagedFieldsEntry::default() };
    order.set_name("o-1");
    order.set_generate_name("o-");
    order.set_namespace("shop");
    order.set_uid("u-1");
    order.set_resource_version("12");
    order.set_generation(3);
    order.set_creation_timestamp("2026-12-24T18:00:00Z".parse().ok());
    order.set_deletion_timestamp("2026-12-25T18:00:00Z".parse().ok());
    order.set_deletion_grace_period_seconds(Some(30));
    order.set_labels(Some(&labels));
    order.set_annotations(Some(&labels));
    order.set_owner_references(Some(std::slice::from_ref(&owner)));
    order.set_finalizers(Some(&["f".to_owned()]));
    order.set_managed_fields(Some(std::slice::from_ref(&entry)));
    let expected = r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"annotations":{"a":"b"},"creationTimestamp":"2026-12-24T18:00:00Z","deletionGracePeriodSeconds":30,"deletionTimestamp":"2026-12-25T18:00:00Z","finalizers":["f"],"generateName":"o-","generation":3,"labels":{"a":"b"},"managedFields":[{"manager":"m"}],"name":"o-1","namespace":"shop","ownerReferences":[{"apiVersion":"shop.example.com/v1","controller":true,"kind":"Order","name":"parent","uid":"u"}],"resourceVersion":"12","uid":"u-1"}}"#;
    assert_eq!(order.to_string(), expected);
    let order = Unstructured::decode(expected.as_bytes()).unwrap();
    assert_eq!((order.name(), order.namespace(), order.uid()), ("o-1", "shop", "u-1"));
    assert_eq!((order.resource_version(), order.generation(), order.generate_name()), ("12", 3, "o-"));
    assert_eq!((order.labels(), order.annotations()), (labels.clone(), labels));
    assert_eq!((order.owner_references(), order.controller()), (vec![owner.clone()], Some(owner)));
    assert_eq!((order.finalizers(), order.managed_fields()), (vec!["f".to_owned()], vec![entry]));
    assert_eq!(order.deletion_grace_period_seconds(), Some(30));
    assert!(order.creation_timestamp().is_some() && order.deletion_timestamp().is_some());

    let mut order = order;
    clear(&mut order);
    assert_eq!(order.to_string(), r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{}}"#);
}

fn clear(object: &mut Unstructured) {
    object.set_name("");
    object.set_generate_name("");
    object.set_namespace("");
    object.set_uid("");
    object.set_resource_version("");
    object.set_self_link("");
    object.set_continue_token("");
    object.set_generation(0);
    object.set_creation_timestamp(None);
    object.set_deletion_timestamp(None);
    object.set_deletion_grace_period_seconds(None);
    object.set_remaining_item_count(None);
    object.set_labels(None);
    object.set_annotations(None);
    object.set_owner_references(None);
    object.set_finalizers(None);
    object.set_managed_fields(None);
}

#[test]
fn wrong_shapes_read_as_nothing_and_are_left_alone() {
    let text = r#"{"apiVersion":1,"kind":"A","metadata":"x"}"#;
    let mut object = Unstructured::decode(text.as_bytes()).unwrap();
    object.set_name("n");
    object.set_labels(Some(&BTreeMap::new()));
    clear(&mut object);
    assert_eq!(object.to_string(), text);
    assert_eq!((object.name(), object.api_version(), object.generation()), ("", "", 0));

    let text = r#"{"kind":"A","metadata":{"ownerReferences":[3],"finalizers":["a",3],"managedFields":["x"],"labels":{"a":{}},"generation":1.5,"creationTimestamp":"yesterday"}}"#;
    let object = Unstructured::decode(text.as_bytes()).unwrap();
    assert!(object.owner_references().is_empty() && object.finalizers().is_empty());
    assert!(object.managed_fields().is_empty() && object.labels().is_empty());
    assert_eq!((object.generation(), object.creation_timestamp()), (0, None));
}

/// As deep as JSON may be: nothing recurses, and what serde cannot take is an error.
#[test]
fn depth_is_survived() {
    let (open, close) = ("[".repeat(9_997), "]".repeat(9_997));
    let text =
        format!(r#"{{"kind":"A","metadata":{{"managedFields":{open}{close},"labels":{{"deep":{open}{close}}}}}}}"#);
    let object = Unstructured::decode(text.as_bytes()).unwrap();
    let error = object.nested_str(["metadata", "managedFields"]).unwrap_err();
    let printed = format!(
        ".metadata.managedFields accessor error: {open}{close} is of the type []interface {{}}, expected string"
    );
    assert_eq!(error.to_string(), printed);
    assert!(object.managed_fields().is_empty() && object.labels().is_empty());
    assert!(object.to_typed::<serde_json::Value>().is_err());
    assert_eq!(object.clone(), object);
}

#[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
struct Order {
    metadata: ObjectMeta,
    quantity: i64,
}

impl Resource for Order {
    const SCOPE: Scope = Scope::Namespaced;
    type Meta = ObjectMeta;

    fn gvk() -> GroupVersionKind {
        GroupVersionKind::from_static("shop.example.com", "v1", "Order")
    }

    fn gvr() -> GroupVersionResource {
        GroupVersionResource::from_static("shop.example.com", "v1", "orders")
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[test]
fn typed_and_back() {
    let order = Order { metadata: ObjectMeta::named("o"), quantity: i64::MAX };
    let mut tree = Unstructured::from_typed(&order).unwrap();
    let text =
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","metadata":{"name":"o"},"quantity":9223372036854775807}"#;
    assert_eq!(tree.to_string(), text);
    assert_eq!(tree.to_typed::<Order>().unwrap(), order);
    tree.set_nested(["quantity"], "many").unwrap();
    let error = tree.to_typed::<Order>().unwrap_err().to_string();
    let start = "unable to convert unstructured object to shop.example.com/v1, Kind=Order: invalid type: string";
    assert!(error.starts_with(start), "{error}");
}

/// Trees whose keys are those that the accessors look for, with anything at all below them.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e300..1e300).prop_map(Value::Float),
        "[ -~]{0,6}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "metadata",
        "items",
        "kind",
        "apiVersion",
        "name",
        "labels",
        "ownerReferences",
        "finalizers",
        "managedFields",
        "generation",
        "creationTimestamp",
        "uid",
        "controller",
        "fieldsV1",
        "time",
    ]);
    leaf.prop_recursive(5, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| entries
                .into_iter()
                .map(|(k, v)| (k.into(), v))
                .collect::<Map>()
                .into()),
        ]
    })
}

proptest! {
    #[test]
    fn any_tree_is_survived(value in value(), path in prop::collection::vec("(metadata|items|name|x)", 0..4)) {
        let text = value.to_string();
        if let Ok(Decoded::List(list)) = decode(text.as_bytes()) {
            let mut out = Vec::new();
            list.write(&mut out);
            prop_assert_eq!(UnstructuredList::decode(&out).unwrap(), list);
        }
        let Value::Object(map) = value else { return Ok(()) };
        let mut object = Unstructured::from(map);
        prop_assert_eq!(object.to_string(), text);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let found = object.nested_field(&path).ok().flatten().cloned();
        // What one accessor takes the others refuse.
        let taken = [
            object.nested_str(&path).is_ok_and(|v| v.is_some()),
            object.nested_bool(&path).is_ok_and(|v| v.is_some()),
            object.nested_i64(&path).is_ok_and(|v| v.is_some()),
            object.nested_f64(&path).is_ok_and(|v| v.is_some()),
            object.nested_slice(&path).is_ok_and(|v| v.is_some()),
            object.nested_map(&path).is_ok_and(|v| v.is_some()),
        ];
        let expected = usize::from(found.as_ref().is_some_and(|value| !value.is_null()));
        prop_assert_eq!(taken.iter().filter(|taken| **taken).count(), expected);
        drop((object.nested_string_slice(&path), object.nested_string_map(&path), object.nested_number_as_f64(&path)));
        drop((object.labels(), object.annotations(), object.owner_references(), object.finalizers()));
        drop((object.managed_fields(), object.creation_timestamp(), object.gvk(), object.clone().into_list()));
        if object.set_nested(&path, "set").is_ok() {
            prop_assert_eq!(object.nested_str(&path), Ok(Some("set")));
            prop_assert_eq!(object.remove_nested(&path), Some("set".into()));
            prop_assert_eq!(object.nested_field(&path), Ok(None));
        }
        clear(&mut object);
        prop_assert_eq!(object.name(), "");
    }
}
