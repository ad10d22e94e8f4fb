//! Wrong objects with what upstream's server says about them.

use capstan_api::{GroupResource, GroupVersionKind, Map, Value, builtin, field::ErrorList, json};

use super::{
    read, validate_create, validate_custom_create, validate_custom_update, validate_subresource_update, validate_update,
};
use crate::registry::Strategy;

/// A line is `[object, [[field, message], …]]`, `[object, causes, old object]` for an update, or
/// `[object, causes, old object, subresource]` for an update of a part.
const CASES: &[&str] = &[
    include_str!("cases.jsonl"),
    include_str!("cases_workloads.jsonl"),
    include_str!("cases_others.jsonl"),
    include_str!("cases_expressions.jsonl"),
    include_str!("cases_devices.jsonl"),
];

/// What stands for what is often in a line, in this order.
const SHORT: &[(&str, &str)] = &[
    ("@r", r#""strategy":{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"}"#),
    ("@t", r#""template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"image":"i",@c}],@p}}"#),
    (
        "@s",
        concat!(
            r#""progressDeadlineSeconds":600,"replicas":1,"revisionHistoryLimit":10,"selector":{"matchLabels":"#,
            r#"{"a":"b"}}"#,
        ),
    ),
    (
        "@d",
        concat!(
            r#"alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g"#,
            r#". 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0"#,
            r#"-9]*[a-z0-9])?)*')"#,
        ),
    ),
    (
        "@q",
        concat!(
            r#"alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"#,
            r#" (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za"#,
            r#"-z0-9_.]*)?[A-Za-z0-9]')"#,
        ),
    ),
    ("@p", r#""dnsPolicy":"ClusterFirst","restartPolicy":"Always","terminationGracePeriodSeconds":30"#),
    ("@c", r#""imagePullPolicy":"IfNotPresent","name":"c","terminationMessagePolicy":"File""#),
    ("@m", r#""metadata":{"name":"x","namespace":"default"}"#),
    ("@n", r#""metadata":{"name":"x"}"#),
    ("@g", r#""apiVersion":"admissionregistration.k8s.io/v1""#),
    ("@f", r#""failurePolicy":"Fail""#),
    ("@v", r#""reinvocationPolicy":"Never""#),
    (
        "@k",
        concat!(
            r#""matchConstraints":{"matchPolicy":"Equivalent","namespaceSelector":{},"objectSelector":{},"resour"#,
            r#"ceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["deploy"#,
            r#"ments"],"scope":"*"}]}"#,
        ),
    ),
];

fn check(line: &str) -> Result<(), String> {
    let line = SHORT.iter().fold(line.to_owned(), |line, (short, long)| line.replace(short, long));
    let case = json::parse(line.as_bytes()).unwrap();
    let case = case.as_array().unwrap();
    let object = |i: usize| case.get(i).and_then(Value::as_object);
    let new: &Map = object(0).unwrap();
    let gvk = GroupVersionKind::from_api_version_and_kind(read::text(new, "apiVersion"), read::text(new, "kind"));
    let errors = match (object(2), case.get(3).and_then(Value::as_str)) {
        (Some(old), Some(subresource)) => validate_subresource_update(&gvk, subresource, new, old),
        (Some(old), None) => validate_update(&gvk, new, old),
        (None, _) => validate_create(&gvk, new),
    };
    let actual: Vec<_> = errors.iter().map(|error| (error.field.clone(), error.body())).collect();
    let causes = case[1].as_array().unwrap().iter().map(|cause| cause.as_array().unwrap());
    let expected: Vec<_> =
        causes.map(|cause| (cause[0].as_str().unwrap().to_owned(), cause[1].as_str().unwrap().to_owned())).collect();
    let shown = json::to_string(&case[0]);
    let same =
        actual.len() == expected.len() && actual.iter().zip(&expected).all(|(a, e)| a.0 == e.0 && fits(&a.1, &e.1));
    if same { Ok(()) } else { Err(format!("{shown}\n  expected {expected:?}\n  got      {actual:?}")) }
}

/// Whether a message is the one recorded, in which large values are left out.
fn fits(actual: &str, expected: &str) -> bool {
    match expected.split_once("<struct>") {
        Some((head, tail)) => actual.starts_with(head) && actual.ends_with(tail),
        None => actual == expected,
    }
}

#[test]
fn as_upstream() {
    let lines = || CASES.iter().flat_map(|cases| cases.lines());
    let wrong: Vec<_> = lines().filter_map(|line| check(line).err()).collect();
    assert!(wrong.is_empty() && lines().count() > 700, "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

fn parsed(text: &str) -> Map {
    json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
}

/// Whatever is stored has its labels looked at, and its name does not change.
#[test]
fn metadata_of_all_stored_kinds() {
    let mut looked_at = 0;
    for kind in builtin::kinds() {
        let resource = GroupResource { group: kind.group_version.group.clone(), resource: kind.resource.clone() };
        if Strategy::of(&resource).is_none() {
            continue;
        }
        let namespace = if kind.namespaced { r#","namespace":"default""# } else { "" };
        let text = |name: &str, labels: &str| {
            let metadata = format!(r#"{{"name":"{name}","resourceVersion":"1","labels":{{{labels}}}{namespace}}}"#);
            parsed(&format!(r#"{{"metadata":{metadata},"spec":{{"minAvailable":1}}}}"#))
        };
        let (right, wrong, renamed) = (text("x", ""), text("x", r#""a b":"""#), text("y", ""));
        let has = |errors: ErrorList, field: &str| errors.iter().any(|error| error.field == field);
        assert!(has(validate_create(&kind.gvk(), &wrong), "metadata.labels"), "{}", kind.kind);
        assert!(has(validate_update(&kind.gvk(), &wrong, &right), "metadata.labels"), "{}", kind.kind);
        assert!(has(validate_update(&kind.gvk(), &renamed, &right), "metadata.name"), "{}", kind.kind);
        let status = validate_subresource_update(&kind.gvk(), "status", &renamed, &right);
        assert!(has(status, "metadata.name"), "{}", kind.kind);
        looked_at += 1;
    }
    assert!(looked_at > 50);
}

#[test]
fn custom_resources() {
    let right = parsed(r#"{"metadata":{"name":"x","resourceVersion":"1"}}"#);
    let wrong = parsed(r#"{"metadata":{"name":"A_b","namespace":"n"}}"#);
    let fields = |errors: ErrorList| errors.into_iter().map(|error| error.field).collect::<Vec<_>>();
    assert!(validate_custom_create(false, &right).is_empty());
    assert!(validate_custom_update(false, &right, &right).is_empty());
    assert_eq!(fields(validate_custom_create(false, &wrong)), ["metadata.name", "metadata.namespace"]);
    assert_eq!(fields(validate_custom_create(true, &right)), ["metadata.namespace"]);
}

/// What a job gets from the server when it says no selector: right, and with another's labels.
#[test]
fn generated_selectors() {
    let job = |labels: &str, selected: &str| {
        let pod = concat!(
            r#"{"containers":[{"name":"c","image":"i","imagePullPolicy":"Always","terminationMessagePolicy":"File"}],"#,
            r#""dnsPolicy":"ClusterFirst","restartPolicy":"Never","terminationGracePeriodSeconds":30}"#,
        );
        let template = format!(r#"{{"metadata":{{"labels":{{{labels}}}}},"spec":{pod}}}"#);
        let spec = format!(r#"{{"selector":{{"matchLabels":{{{selected}}}}},"template":{template}}}"#);
        parsed(&format!(r#"{{"metadata":{{"name":"x","namespace":"d","uid":"u"}},"spec":{spec}}}"#))
    };
    let gvk = GroupVersionKind::from_api_version_and_kind("batch/v1", "Job");
    let fields = |job: &Map| validate_create(&gvk, job).into_iter().map(|error| error.field).collect::<Vec<_>>();
    let labels = concat!(
        r#""controller-uid":"u","job-name":"x","#,
        r#""batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"x""#,
    );
    let selected = r#""batch.kubernetes.io/controller-uid":"u""#;
    assert!(fields(&job(labels, selected)).is_empty());
    let other = labels.replace(r#""job-name":"x","#, r#""job-name":"y","#);
    let path = "spec.template.metadata.labels";
    assert_eq!(fields(&job(&other, selected)), [format!("{path}[job-name]")]);
    assert_eq!(fields(&job(labels, r#""a":"b""#)), ["spec.selector", path]);
    assert_eq!(fields(&job("", selected)).len(), 5);
}

#[test]
fn bindings() {
    let gvk = GroupVersionKind::from_api_version_and_kind("v1", "Binding");
    let errors = validate_create(&gvk, &parsed(r#"{"target":{"kind":"X"}}"#));
    let shown: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let kind = r#"target.kind: Unsupported value: "X": supported values: "Node", "<empty>""#;
    assert_eq!(shown, [kind, "target.name: Required value"]);
    assert!(validate_create(&gvk, &parsed(r#"{"target":{"kind":"Node","name":"n"}}"#)).is_empty());
}

/// Objects with fields of every wrong type come with errors, never with a panic.
#[test]
fn nothing_is_taken_for_granted() {
    let fields = ["metadata", "spec", "status", "webhooks", "endpoints", "subsets", "rules", "ports"];
    for kind in super::KINDS {
        let gvk = GroupVersionKind::from_api_version_and_kind(&format!("{}/v1", kind.group), kind.kind);
        let gvk = GroupVersionKind { group: kind.group.into(), ..gvk };
        for wrong in ["{}", "[]", "[{}]", "[[]]", "1", "\"\"", "null", r#"{"versions":[1],"limits":[1],"drivers":[1]}"#]
        {
            let mut object = Map::new();
            for field in fields {
                object.insert(field, json::parse(wrong.as_bytes()).unwrap());
            }
            // An eviction has nothing to look at.
            let looked_at = !kind.create.is_empty();
            assert_eq!(!validate_create(&gvk, &object).is_empty(), looked_at, "{} with {wrong}", kind.kind);
            let _ = validate_update(&gvk, &object, &Map::new());
            for subresource in ["status", "finalize", "approval"] {
                let _ = validate_subresource_update(&gvk, subresource, &object, &Map::new());
            }
        }
    }
}

#[test]
fn variables_of_policies_have_types() {
    let policy = |variables: &str, expression: &str| {
        let spec = format!(
            r#"{{"matchConstraints":{{"namespaceSelector":{{}},"objectSelector":{{}},"matchPolicy":"Equivalent",
            "resourceRules":[{{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["x"],
            "scope":"*"}}]}},"failurePolicy":"Fail","variables":[{variables}],
            "validations":[{{"expression":{}}}]}}"#,
            json::to_string(&expression.into())
        );
        let kind = "admissionregistration.k8s.io/v1";
        let policy = parsed(&format!(
            r#"{{"apiVersion":"{kind}","kind":"ValidatingAdmissionPolicy","metadata":{{"name":"x"}},"spec":{spec}}}"#
        ));
        let gvk = GroupVersionKind::from_api_version_and_kind(kind, "ValidatingAdmissionPolicy");
        validate_create(&gvk, &policy).iter().map(capstan_api::field::Error::body).collect::<Vec<_>>().join(" ")
    };
    let two = r#"{"name":"x","expression":"object.spec.n"},{"name":"y","expression":"variables.x == 1"}"#;
    assert_eq!(policy(two, "variables.y"), "");
    assert!(policy(two, "variables.y == 1").contains("'_==_' applied to '(bool, int)'"));
    assert!(policy(two, "variables.z").contains("undefined field 'z'"));
    let backwards = r#"{"name":"y","expression":"variables.x == 1"},{"name":"x","expression":"1"}"#;
    assert!(policy(backwards, "true").contains("undefined field 'x'"));
    for fine in ["request.userInfo.username == 'a'", "authorizer.requestResource.check('get').allowed()"] {
        assert_eq!(policy("", fine), "");
    }
    assert!(policy("", "request.nope == 1").contains("undefined field 'nope'"));
    assert!(policy("", "namespaceObject.metadata.name == 1").contains("'(string, int)'"));
}
