//! Registration, decoding, conversion and their errors, compared with upstream's words.

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

macro_rules! shape {
    ($($name:ident { $($field:ident: $ty:ty),* })+) => {
        $(
            #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
            struct $name {
                $(#[serde(default)] $field: $ty),*
            }
        )+
    };
}

shape! {
    OrderV1 { amount: i64, currency: String, tags: Vec<String> }
    OrderV1beta1 { price: String, tags: Vec<String> }
    OrderV2 { cents: i64 }
    Status { code: i64 }
    Stranger { x: i64 }
}

/// No serde here: nobody reads or writes a hub.
#[derive(Clone)]
struct OrderHub {
    amount: i64,
    currency: String,
    tags: Vec<String>,
}

const GROUP: &str = "shop.example.com";
const V1: GroupVersion = GroupVersion::from_static(GROUP, "v1");
const V1BETA1: GroupVersion = GroupVersion::from_static(GROUP, "v1beta1");
const V2: GroupVersion = GroupVersion::from_static(GROUP, "v2");
const CORE: GroupVersion = GroupVersion::from_static("", "v1");

fn orders(scheme: &mut Scheme) -> Result<(), RegisterError> {
    scheme.add_known_type_with_name::<OrderV1beta1>(V1BETA1.with_kind("Order"))?;
    scheme.add_known_type_with_name::<OrderV1>(V1.with_kind("Order"))?;
    scheme.add_known_type_with_name::<OrderV2>(V2.with_kind("Order"))?;
    scheme.add_hub::<OrderHub>(&GroupKind::from_static(GROUP, "Order"))?;
    scheme.add_conversion(|from: &OrderV1| {
        let OrderV1 { amount, currency, tags } = from.clone();
        Ok(OrderHub { amount, currency, tags })
    });
    scheme.add_conversion(|from: &OrderHub| {
        let OrderHub { amount, currency, tags } = from.clone();
        Ok(OrderV1 { amount, currency, tags })
    });
    scheme.add_conversion(|from: &OrderV1beta1| {
        let (amount, currency) = from.price.split_once(' ').ok_or("no currency")?;
        let amount = amount.parse().map_err(|_| format!("{amount} is not a number"))?;
        Ok(OrderHub { amount, currency: currency.to_owned(), tags: from.tags.clone() })
    });
    scheme.add_conversion(|from: &OrderHub| {
        Ok(OrderV1beta1 { price: format!("{} {}", from.amount, from.currency), tags: from.tags.clone() })
    });
    scheme.add_default(|order: &mut OrderV1| {
        if order.currency.is_empty() {
            order.currency = "EUR".to_owned();
        }
    });
    Ok(())
}

fn status(scheme: &mut Scheme) -> Result<(), RegisterError> {
    scheme.add_unversioned_type::<Status>(CORE.with_kind("Status"))
}

fn scheme() -> Scheme {
    let mut scheme = Scheme::new("shop");
    SchemeBuilder::new().register(orders).register(status).add_to_scheme(&mut scheme).unwrap();
    scheme
}

const HERE: &str = "capstan_api::scheme::tests::";

#[test]
fn types_and_kinds_both_ways() {
    let mut scheme = scheme();
    assert_eq!(scheme.object_kinds::<OrderV1>().unwrap(), [V1.with_kind("Order")]);
    scheme.add_known_type_with_name::<OrderV1>(V1.with_kind("Cart")).unwrap();
    scheme.add_known_type_with_name::<OrderV1>(V1.with_kind("Cart")).unwrap();
    assert_eq!(scheme.object_kinds::<OrderV1>().unwrap(), [V1.with_kind("Order"), V1.with_kind("Cart")]);
    let known: Vec<(Name, String)> =
        scheme.known_types(&V1).into_iter().map(|(kind, name)| (kind, name.replace(HERE, ""))).collect();
    assert_eq!(known, [("Cart".into(), "OrderV1".into()), ("Order".into(), "OrderV1".into())]);
    assert_eq!(scheme.all_known_types().len(), 6);
    assert!(scheme.recognizes(&V1.with_kind("Order")) && !scheme.recognizes(&CORE.with_kind("Order")));
    assert_eq!(scheme.is_unversioned::<Status>(), Some(true));
    assert_eq!(scheme.is_unversioned::<OrderV1>(), Some(false));
    assert_eq!(scheme.is_unversioned::<Stranger>(), None);
}

#[test]
fn registrations_that_are_refused() {
    let mut scheme = scheme();
    let before = scheme.all_known_types();
    for (refused, expected) in [
        (
            scheme.add_known_type_with_name::<Stranger>(V1.with_kind("Order")),
            "Double registration of different types for shop.example.com/v1, Kind=Order: old=@OrderV1, new=@Stranger in scheme \"shop\"",
        ),
        (
            scheme.add_hub::<Stranger>(&GroupKind::from_static(GROUP, "Order")),
            "Double registration of different types for shop.example.com/__internal, Kind=Order: old=@OrderHub, new=@Stranger in scheme \"shop\"",
        ),
        (
            scheme.add_unversioned_type::<Stranger>(V1.with_kind("Status")),
            "@Status has already been registered as unversioned kind \"shop.example.com/v1, Kind=Status\" - kind name must be unique in scheme \"shop\"",
        ),
        (
            scheme.add_known_type_with_name::<Stranger>(GroupVersionKind::from_static("g", "", "K")),
            "version is required on all types: g/, Kind=K @Stranger",
        ),
        (
            scheme.set_version_priority(&[V1, GroupVersion::from_static(GROUP, "__internal")]),
            "internal versions cannot be prioritized: shop.example.com/__internal",
        ),
        (scheme.set_version_priority(&[V1, CORE]), "must register versions for exactly one group: , shop.example.com"),
        (scheme.set_version_priority(&[]), "must register versions for exactly one group: "),
    ] {
        assert_eq!(refused.unwrap_err().to_string(), expected.replace('@', HERE));
    }
    assert_eq!(scheme.all_known_types(), before);
    assert!(!scheme.is_group_registered("g"));
}

#[test]
fn decode() {
    fn check(text: &str, expected: &str) {
        let answer = match scheme().decode(text.as_bytes()) {
            Ok(decoded) => match (decoded.downcast_ref::<OrderV1>(), decoded.downcast_ref::<Status>()) {
                (Some(order), _) => format!("{}: {order:?}", decoded.gvk),
                (_, Some(status)) => format!("{}: {status:?}", decoded.gvk),
                _ => decoded.gvk.to_string(),
            },
            Err(error) => error.to_string(),
        };
        assert_eq!(answer, expected, "{text}");
    }
    let meta = "couldn't get version/kind; json parse error: ";
    check(
        r#"{"apiVersion":"shop.example.com/v1","kind":"Order","amount":3}"#,
        r#"shop.example.com/v1, Kind=Order: OrderV1 { amount: 3, currency: "EUR", tags: [] }"#,
    );
    check(r#"{"apiVersion":"v1","kind":"Status","code":404}"#, "/v1, Kind=Status: Status { code: 404 }");
    check(r#"{"apiVersion":"any/v7","kind":"Status","code":1}"#, "any/v7, Kind=Status: Status { code: 1 }");
    check("{}", "Object 'Kind' is missing in '{}'");
    check("null", "Object 'Kind' is missing in 'null'");
    check(r#"{"kind":"Order"}"#, r#"Object 'apiVersion' is missing in '{"kind":"Order"}'"#);
    check(r#"{"kind":"X","apiVersion":"v1"}"#, r#"no kind "X" is registered for version "v1" in scheme "shop""#);
    check(
        r#"{"kind":"Order","apiVersion":"shop.example.com/v3"}"#,
        r#"no kind "Order" is registered for version "shop.example.com/v3" in scheme "shop""#,
    );
    check(
        r#"{"kind":"Order","apiVersion":"shop.example.com/__internal"}"#,
        r#"no kind "Order" is registered for the internal version of group "shop.example.com" in scheme "shop""#,
    );
    check(r#"{"kind":"Order","apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c");
    check("{", &format!("{meta}unexpected end of JSON input"));
    check(r#"{"kind":3}"#, &format!("{meta}json: cannot unmarshal number into Go struct field .kind of type string"));
    check(
        r#"{"apiVersion":[]}"#,
        &format!("{meta}json: cannot unmarshal array into Go struct field .apiVersion of type string"),
    );
    check(
        "true",
        &format!(
            r#"{meta}json: cannot unmarshal bool into Go value of type struct {{ APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }}"#
        ),
    );
}

#[test]
fn convert() {
    let scheme = scheme();
    let old = OrderV1beta1 { price: "12 EUR".into(), tags: vec!["gift".into()] };
    let new: OrderV1 = scheme.convert(&old).unwrap();
    assert_eq!((new.amount, new.currency.as_str(), new.tags.len()), (12, "EUR", 1));
    assert_eq!(scheme.convert::<_, OrderV1beta1>(&new).unwrap(), old);
    assert_eq!(scheme.convert::<_, OrderV1>(&new).unwrap(), new);

    let text = br#"{"apiVersion":"shop.example.com/v1beta1","kind":"Order","price":"12 EUR","tags":["gift"]}"#;
    assert_eq!(scheme.decode_as::<OrderV1>(text).unwrap(), new);
    assert_eq!(scheme.encode(&new, &V1BETA1).unwrap(), text);
    let own = String::from_utf8(scheme.encode(&Status { code: 1 }, &V1).unwrap()).unwrap();
    assert_eq!(own, r#"{"apiVersion":"v1","code":1,"kind":"Status"}"#);

    let broken = OrderV1beta1 { price: "x EUR".into(), tags: vec![] };
    for (error, expected) in [
        (scheme.convert::<_, OrderV1>(&broken).unwrap_err(), "x is not a number"),
        (scheme.convert::<_, OrderV2>(&new).unwrap_err(), "converting (@OrderV1) to (@OrderV2): unknown conversion"),
        (
            scheme.convert::<_, OrderV2>(&Stranger::default()).unwrap_err(),
            "converting (@Stranger) to (@OrderV2): unknown conversion",
        ),
        (scheme.encode(&new, &V2).unwrap_err(), "converting (@OrderV1) to (@OrderV2): unknown conversion"),
        (
            scheme.encode(&new, &GroupVersion::new(GROUP, "v9")).unwrap_err(),
            r#"no kind "Order" is registered for version "shop.example.com/v9" in scheme "shop""#,
        ),
        (
            scheme.encode(&new, &CORE).unwrap_err(),
            r#"@OrderV1 is not suitable for converting to "v1" in scheme "shop""#,
        ),
        (
            scheme.encode(&Stranger::default(), &V1).unwrap_err(),
            r#"no kind is registered for the type @Stranger in scheme "shop""#,
        ),
    ] {
        assert_eq!(error.to_string(), expected.replace('@', HERE));
    }
}

#[test]
fn round_trips_find_what_is_forgotten() {
    let mut scheme = scheme();
    let order = OrderV1 { amount: 12, currency: "EUR".into(), tags: vec!["a".into(), "b".into()] };
    // Nothing converts to the second version.
    let error = scheme.round_trip(&order).unwrap_err().to_string();
    let expected = "shop.example.com/v1, Kind=Order cannot visit shop.example.com/v2: converting (@OrderV1) to (@OrderV2): unknown conversion";
    assert_eq!(error, expected.replace('@', HERE));

    scheme.add_conversion(|from: &OrderHub| Ok(OrderV2 { cents: from.amount * 100 }));
    scheme.add_conversion(|from: &OrderV2| {
        Ok(OrderHub { amount: from.cents / 100, currency: "EUR".into(), tags: vec!["a".into()] })
    });
    assert_eq!(
        scheme.round_trip(&order).unwrap_err().to_string(),
        r#"shop.example.com/v1, Kind=Order does not survive shop.example.com/v2: .tags[1] was "b" and became missing"#
    );
    scheme.round_trip(&OrderV1 { tags: vec!["a".into()], ..order }).unwrap();
    assert!(scheme.round_trip(&Stranger::default()).is_err());
}

#[test]
fn versions() {
    let mut scheme = scheme();
    let show = |versions: Vec<GroupVersion>| versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let kind = GroupKind::from_static(GROUP, "Order");
    // As registered, until somebody says otherwise.
    assert_eq!(scheme.preferred_version(GROUP), Some(V1BETA1));
    scheme.set_version_priority(&[V1, V2]).unwrap();
    for (answer, expected) in [
        (
            show(scheme.prioritized_versions_for_group(GROUP)),
            "shop.example.com/v1 shop.example.com/v2 shop.example.com/v1beta1",
        ),
        (
            show(scheme.versions_for_group_kind(&kind)),
            "shop.example.com/v1 shop.example.com/v2 shop.example.com/v1beta1",
        ),
        (
            show(scheme.prioritized_versions_all_groups()),
            "shop.example.com/v1 shop.example.com/v2 shop.example.com/v1beta1 v1",
        ),
        (show(scheme.preferred_version_all_groups()), "shop.example.com/v1 v1"),
        (show(scheme.prioritized_versions_for_group("none")), ""),
    ] {
        assert_eq!(answer, expected);
    }
    assert!(scheme.is_group_registered(GROUP) && scheme.is_group_registered("") && !scheme.is_group_registered("apps"));
    assert!(scheme.is_version_registered(&V2) && !scheme.is_version_registered(&GroupVersion::new(GROUP, "v3")));
    assert!(!scheme.is_version_registered(&GroupVersion::new(GROUP, INTERNAL_VERSION)));
}

#[test]
fn field_labels() {
    let mut scheme = scheme();
    let gvk = V1.with_kind("Order");
    let convert = |scheme: &Scheme, label: &str| match scheme.convert_field_label(&gvk, label, "x") {
        Ok((label, value)) => format!("{label}={value}"),
        Err(error) => error.to_string(),
    };
    assert_eq!(convert(&scheme, "metadata.name"), "metadata.name=x");
    assert_eq!(convert(&scheme, "metadata.namespace"), "metadata.namespace=x");
    assert_eq!(
        convert(&scheme, "spec.x"),
        r#""spec.x" is not a known field selector: only "metadata.name", "metadata.namespace""#
    );
    scheme.add_field_label_conversion(gvk.clone(), |label, value| match label {
        "state" => Ok(("status.state".to_owned(), value.to_owned())),
        _ => Err(FieldLabelError::new(format!("field label not supported: {label}"))),
    });
    assert_eq!(convert(&scheme, "state"), "status.state=x");
    assert_eq!(convert(&scheme, "metadata.name"), "field label not supported: metadata.name");
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(scheme().decode(&bytes).is_err());
    }

    #[test]
    fn any_field_is_survived(version in "(v1|v1beta1|v2|x)", value in "(null|1|1.5|\"x\"|\\[\\]|\\{\\}|true)") {
        for field in ["amount", "price", "tags", "cents", "kind", "apiVersion"] {
            let text = format!(r#"{{"apiVersion":"shop.example.com/{version}","kind":"Order","{field}":{value}}}"#);
            if let Ok(decoded) = scheme().decode(text.as_bytes()) {
                prop_assert!(scheme().recognizes(&decoded.gvk));
            }
        }
    }
}
