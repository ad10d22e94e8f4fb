//! The built-in table: it is whole, it says what the API says, and every kind can be decoded and encoded.

use capstan_api::{
    Map, Value, builtin, json,
    names::{GroupVersion, GroupVersionKind, GroupVersionResource},
    schema::{Absent, Format, ListType, MapType, NodeRef, Schema, Type},
};

fn ty(name: &str) -> Schema {
    builtin::type_schema(name).unwrap_or_else(|| panic!("no type {name}"))
}

fn schema(group: &'static str, kind: &'static str) -> Option<Schema> {
    builtin::schema(&GroupVersionKind::from_static(group, "v1", kind))
}

#[test]
fn all_group_versions_are_there_with_all_their_resources() {
    let counts = builtin::group_versions().map(|group_version| {
        let resources = builtin::kinds().filter(|kind| kind.group_version == group_version);
        (group_version.to_string(), resources.count())
    });
    let counts: Vec<(String, usize)> = counts.collect();
    let expected = [
        ("v1", 17),
        ("apiregistration.k8s.io/v1", 1),
        ("apps/v1", 5),
        ("events.k8s.io/v1", 1),
        ("authentication.k8s.io/v1", 2),
        ("authorization.k8s.io/v1", 4),
        ("autoscaling/v2", 1),
        ("autoscaling/v1", 1),
        ("batch/v1", 2),
        ("certificates.k8s.io/v1", 1),
        ("networking.k8s.io/v1", 5),
        ("policy/v1", 1),
        ("rbac.authorization.k8s.io/v1", 4),
        ("storage.k8s.io/v1", 6),
        ("admissionregistration.k8s.io/v1", 6),
        ("apiextensions.k8s.io/v1", 1),
        ("scheduling.k8s.io/v1", 1),
        ("coordination.k8s.io/v1", 1),
        ("node.k8s.io/v1", 1),
        ("discovery.k8s.io/v1", 1),
        ("resource.k8s.io/v1", 4),
        ("flowcontrol.apiserver.k8s.io/v1", 2),
    ];
    assert_eq!(counts, expected.map(|(group_version, count)| (group_version.to_owned(), count)));
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<usize>(), builtin::kinds().len());
}

#[test]
fn every_kind_has_a_schema_and_is_found_by_both_names() {
    for row in builtin::kinds() {
        let found = [builtin::kind(&row.gvk()), builtin::resource(&row.gvr())];
        assert!(found.iter().all(|found| std::ptr::eq(found.unwrap(), row)), "{}", row.gvk());
        let schema = builtin::schema(&row.gvk()).unwrap();
        assert_eq!(schema.root().type_name(), Some(row.kind.as_str()));
        assert_eq!(schema.root().field("metadata").unwrap().node.type_name(), Some("ObjectMeta"));
        for sub in &row.subresources {
            assert!(builtin::schema(&sub.kind).is_some(), "{} of {}", sub.kind, row.gvk());
        }
        if row.verbs.iter().any(|verb| verb == "list") {
            let list = row.group_version.with_kind(row.list_kind.clone().unwrap());
            let items = builtin::schema(&list).unwrap().root().field("items").unwrap().node.items().unwrap().id();
            assert_eq!(items, schema.root().id(), "{list}");
            assert!(!row.columns.is_empty(), "{list}");
        }
    }
    assert!(builtin::kind(&GroupVersionKind::from_static("apps", "v1", "Pod")).is_none());
    assert!(builtin::resource(&GroupVersionResource::from_static("", "v1", "deployments")).is_none());
}

#[test]
fn kinds_without_a_resource_have_schemas_too() {
    for (group, kind) in [
        ("", "Status"),
        ("", "DeleteOptions"),
        ("apps", "CreateOptions"),
        ("example.com", "ListOptions"),
        ("", "PodExecOptions"),
        ("", "Binding"),
        ("", "PartialObjectMetadataList"),
        ("policy", "Eviction"),
        ("autoscaling", "Scale"),
        ("authentication.k8s.io", "TokenRequest"),
        ("authorization.k8s.io", "SelfSubjectAccessReview"),
    ] {
        assert_eq!(schema(group, kind).expect(kind).root().type_name(), Some(kind));
    }
    assert!(schema("", "PodSpec").is_none(), "a type that is no kind");
    assert!(schema("apps", "Nothing").is_none());
}

#[test]
fn rows_say_what_discovery_says() {
    let row = builtin::resource(&GroupVersionResource::from_static("apps", "v1", "deployments")).unwrap();
    assert_eq!(row.group_version, GroupVersion::from_static("apps", "v1"));
    assert_eq!((row.kind.as_str(), row.singular.as_str(), row.namespaced), ("Deployment", "deployment", true));
    assert_eq!(*row.short_names, ["deploy"]);
    assert_eq!(*row.categories, ["all"]);
    assert_eq!(row.verbs.len(), 8);
    let columns: Vec<_> = row.columns.iter().map(|c| (c.name, c.ty, c.format, c.priority)).collect();
    assert_eq!(columns[0], ("Name", "string", "name", 0));
    assert_eq!(columns[7], ("Selector", "string", "", 1));
    let scale = row.subresource("scale").unwrap();
    assert_eq!(scale.kind, GroupVersionKind::from_static("autoscaling", "v1", "Scale"));
    assert_eq!(*scale.verbs, ["get", "patch", "update"]);
    let events = builtin::resource(&GroupVersionResource::from_static("", "v1", "events")).unwrap();
    assert_eq!((events.columns[0].name, events.columns[4].priority), ("Last Seen", 1));
    assert!(!builtin::resource(&GroupVersionResource::from_static("", "v1", "nodes")).unwrap().namespaced);
}

#[test]
fn types_say_what_the_api_says() {
    let container = ty("core.v1.Container");
    let ports = container.root().field("ports").unwrap();
    assert_eq!((ports.number, ports.required), (6, false));
    assert_eq!(ports.node.list_type(), ListType::Map);
    assert_eq!(ports.node.list_map_keys(), ["containerPort", "protocol"]);
    assert_eq!(ports.node.merge_key().unwrap(), "containerPort");
    assert!(ports.node.patch_strategy().merge && !ports.node.patch_strategy().retain_keys);
    let port = ports.node.items().unwrap();
    assert_eq!(port.full_type_name(), Some("core.v1.ContainerPort"));
    assert_eq!(port.field("protocol").unwrap().node.default(), Some(&Value::from("TCP")));
    assert_eq!(port.field("containerPort").unwrap().node.format(), Format::Int32);
    let protocols = port.field("protocol").unwrap().node.published_values();
    assert_eq!(protocols, ["SCTP", "TCP", "UDP"].map(Value::from));

    let name = container.root().field("name").unwrap();
    assert!(name.required);
    assert_eq!((name.node.absent(), name.node.default()), (Absent::Zero, Some(&Value::from(""))));
    assert_eq!(container.root().field("resources").unwrap().node.default(), Some(&Map::new().into()));
    assert_eq!(container.root().field("lifecycle").unwrap().node.default(), None);

    let pod = ty("core.v1.PodSpec");
    let volumes = pod.root().field("volumes").unwrap().node;
    assert!(volumes.patch_strategy().merge && volumes.patch_strategy().retain_keys);
    assert_eq!(pod.root().field("containers").unwrap().node.absent(), Absent::Null);
    assert!(pod.root().field("hostNetwork").unwrap().node.drops_zero());
    assert!(!pod.root().field("automountServiceAccountToken").unwrap().node.drops_zero());
    assert!(pod.root().has_defaults_below() && !ty("core.v1.ExecAction").root().has_defaults_below());

    assert_eq!(ty("core.v1.SecretReference").root().map_type(), MapType::Atomic);
    assert_eq!(ty("core.v1.PodSpec").root().map_type(), MapType::Granular);
    let claim = ty("core.v1.PersistentVolumeClaimSpec");
    let modes = claim.root().field("accessModes").unwrap().node.items().unwrap().published_values();
    assert_eq!(modes.len(), 4);
    let limits = ty("core.v1.ResourceRequirements");
    let limits = limits.root().field("limits").unwrap().node;
    assert_eq!((limits.ty(), limits.additional().unwrap().format()), (Type::Object, Format::Quantity));
    let event = ty("core.v1.Event");
    assert_eq!(event.root().field("eventTime").unwrap().node.absent(), Absent::Null);
    assert_eq!(event.root().field("eventTime").unwrap().node.format(), Format::MicroTime);
}

#[test]
fn numbers_tell_of_messages_that_json_does_not_show() {
    for (name, field, within, number) in [
        ("core.v1.Container", "image", [0, 0], 2),
        ("core.v1.Pod", "kind", [0, 0], 0),
        ("core.v1.Probe", "httpGet", [0, 1], 2),
        ("core.v1.EphemeralContainer", "image", [0, 1], 2),
        ("admissionregistration.v1.NamedRuleWithOperations", "operations", [0, 2], 1),
        ("admissionregistration.v1.NamedRuleWithOperations", "scope", [2, 2], 4),
    ] {
        let schema = ty(name);
        let found = schema.root().field(field).unwrap();
        assert_eq!((found.within, found.number), (within, number), "{name}.{field}");
    }
    let extra = ty("authentication.v1.UserInfo");
    assert!(extra.root().field("extra").unwrap().node.additional().unwrap().is_wrapped());
}

/// A value that fills every field, and no type twice on the way to it.
fn sample(node: NodeRef<'_>, above: &mut Vec<&'static str>) -> Option<Value> {
    Some(match (node.ty(), node.format()) {
        (Type::String, Format::Byte) => "YWJj".into(),
        (Type::String, Format::DateTime) => "2026-01-02T03:04:05Z".into(),
        (Type::String, Format::MicroTime) => "2026-01-02T03:04:05.000006Z".into(),
        (Type::String, Format::Quantity) => "1500m".into(),
        (Type::String, _) => "text".into(),
        (Type::Integer, Format::Int32) => Value::Int(i32::MAX.into()),
        (Type::Integer, _) => Value::Int(i64::MAX),
        (Type::Number, _) => Value::Float(1.5),
        (Type::Boolean, _) => true.into(),
        (Type::Any, Format::IntOrString) => "50%".into(),
        (Type::Any, _) => json::parse(br#"{"a":[1,2.5,null,{}],"b":"c"}"#).expect("it is JSON"),
        (Type::Array, _) => vec![sample(node.items()?, above)?].into(),
        (Type::Object, _) => {
            if let Some(values) = node.additional() {
                return Some(Map::from_iter([("key".into(), sample(values, above)?)]).into());
            }
            let name = node.full_type_name()?;
            if above.contains(&name) {
                return None;
            }
            above.push(name);
            let fields = node.fields().filter_map(|f| Some((f.name.as_str().into(), sample(f.node, above)?)));
            let map = fields.collect::<Map>();
            above.pop();
            map.into()
        }
    })
}

#[test]
fn every_type_decodes_what_fills_it_and_encodes_it_again() {
    let mut fields = 0;
    for (name, _) in builtin::types() {
        let schema = ty(name);
        let mut sample = sample(schema.root(), &mut Vec::new()).unwrap();
        // What may be a schema is one, in the type that contains itself.
        if let Some(items) =
            sample.as_object_mut().and_then(|map| map.get_mut("items")).filter(|_| name.ends_with("JSONSchemaProps"))
        {
            *items = json::parse(br#"{"type":"string"}"#).unwrap();
        }
        let text = json::to_string(&sample);
        let decoded = schema.decode(text.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        assert!(decoded.strict.is_empty(), "{name}: {}", decoded.strict);
        if !text.contains("openAPIV3Schema") {
            assert_eq!(json::to_string(&decoded.value), text, "{name}");
        }
        let again = schema.decode(json::to_string(&decoded.value).as_bytes()).unwrap();
        assert_eq!(again.value, decoded.value, "{name}");
        fields += schema.root().fields().len();
    }
    assert!(fields > 2_400, "{fields}");
}

#[test]
fn every_field_refuses_another_type_and_an_unknown_field_beside_it() {
    for (name, _) in builtin::types() {
        let schema = ty(name);
        for field in schema.root().fields() {
            let strict = schema.decode(format!(r#"{{"{}":null,"no such":1}}"#, field.name).as_bytes()).unwrap().strict;
            assert_eq!(strict.to_string(), r#"strict decoding error: unknown field "no such""#, "{name}");
            let any = field.node.ty() == Type::Any && field.node.format() == Format::None;
            let wrong = if field.node.ty() == Type::Array { "{}" } else { "[{}]" };
            let found = schema.decode(format!(r#"{{"{}":{wrong}}}"#, field.name).as_bytes());
            assert_eq!(found.is_err(), !any, "{name}.{}: {found:?}", field.name);
        }
    }
}
