//! What a decision costs with 1,000 roles and 1,000 bindings beside the bootstrap policy.

use std::hint::black_box;

use capstan_api::{Value, json};
use capstan_server::{
    authorization::{Attributes, Authorizer, Rbac, RbacAuthorizer, UserInfo, rbac::RbacKind},
    bootstrap,
};
use criterion::{Criterion, criterion_group, criterion_main};

const ROLES: usize = 1000;
const NAMESPACES: usize = 20;

fn value(text: &str) -> Value {
    json::parse(text.as_bytes()).expect("the benchmark writes JSON")
}

/// One binding in two is of the cluster; each has a user of its own and one of ten groups.
fn binding(n: usize) -> (RbacKind, Value) {
    let (kind, place) = match n % 2 {
        0 => (RbacKind::ClusterRoleBinding, String::new()),
        _ => (RbacKind::RoleBinding, format!(r#","namespace":"ns{}""#, n % NAMESPACES)),
    };
    let object = format!(
        r#"{{"metadata":{{"name":"binding-{n}"{place}}},"roleRef":{{"kind":"ClusterRole","name":"role-{n}"}},
        "subjects":[{{"kind":"User","name":"user-{n}"}},{{"kind":"Group","name":"group-{}"}}]}}"#,
        n % 10
    );
    (kind, value(&object))
}

fn policy() -> Rbac {
    let mut rbac = Rbac::default();
    for object in bootstrap::rbac() {
        let kind = object.get("kind").and_then(Value::as_str).and_then(RbacKind::from_kind);
        rbac.upsert(kind.expect("the policy is of RBAC's kinds"), &object);
    }
    for n in 0..ROLES {
        let rules = format!(
            r#"{{"metadata":{{"name":"role-{n}"}},"rules":[
            {{"verbs":["get","list","watch"],"apiGroups":["group{n}.example.com"],"resources":["things","x/status"]}},
            {{"verbs":["create","update"],"apiGroups":[""],"resources":["configmaps"],"resourceNames":["c{n}"]}}]}}"#
        );
        rbac.upsert(RbacKind::ClusterRole, &value(&rules));
        let (kind, binding) = binding(n);
        rbac.upsert(kind, &binding);
    }
    rbac
}

fn decisions(c: &mut Criterion) {
    let authorizer = RbacAuthorizer::new(policy());
    let mut group = c.benchmark_group("rbac");
    for (name, user, groups, api_group) in [
        ("allowed by an own binding", "user-501", &["system:authenticated"][..], "group501.example.com"),
        ("denied, few bindings", "user-501", &["system:authenticated"], "nobody.example.com"),
        ("denied, a group with 100 bindings", "user-501", &["group-2", "system:authenticated"], "nobody.example.com"),
        ("denied, ten groups with all bindings", "user-501", &GROUPS, "nobody.example.com"),
    ] {
        let user = UserInfo::new(user, groups.iter().copied());
        let attributes =
            Attributes { namespace: "ns1", name: "x", ..Attributes::resource(&user, "get", api_group, "things") };
        let expected = name.starts_with("allowed");
        assert_eq!(authorizer.authorize(&attributes).is_allowed(), expected, "{name}");
        group.bench_function(name, |b| b.iter(|| authorizer.authorize(black_box(&attributes))));
    }
    let (kind, object) = binding(500);
    group.bench_function("one binding changes", |b| b.iter(|| authorizer.upsert(kind, black_box(&object))));
    group.bench_function("one binding changes under a reader", |b| {
        b.iter(|| {
            let reader = authorizer.snapshot();
            authorizer.upsert(kind, black_box(&object));
            reader
        });
    });
    group.bench_function("the bootstrap policy is read", |b| b.iter(bootstrap::rbac));
}

const GROUPS: [&str; 10] =
    ["group-0", "group-1", "group-2", "group-3", "group-4", "group-5", "group-6", "group-7", "group-8", "group-9"];

criterion_group!(benches, decisions);
criterion_main!(benches);
