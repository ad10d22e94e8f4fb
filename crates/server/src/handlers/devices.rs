//! Who may claim devices as an administrator, and who may write which part of a claim's status: what validation of the
//! object alone cannot tell.

use std::collections::{BTreeMap, BTreeSet};

use capstan_api::{
    GroupResource, Map, Value,
    field::{Error, ErrorList},
    validation::name_is_dns_subdomain,
};

use super::call::Call;
use crate::{
    authorization::{Attributes, forbidden},
    objects::Objects,
    registry::paths,
};

const GROUP: &str = "resource.k8s.io";
const NAMESPACES: GroupResource = GroupResource::from_static("", "namespaces");
/// The namespaces whose claims may be those of administrators have this label.
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";
/// Says on which node a service account's pod is.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// What is wrong with a write of a claim, or of a template for claims, beside the object itself.
pub(super) fn check(call: &Call<'_>, subresource: &str, new: &Map, old: Option<&Map>) -> ErrorList {
    let mut errors = ErrorList::default();
    let gvr = &call.resource.gvr;
    if gvr.group != *GROUP {
        return errors;
    }
    match (&*gvr.resource, subresource, old) {
        ("resourceclaims", "", None) => admin_requests(call, paths::items(new, "spec.devices.requests"), &mut errors),
        ("resourceclaimtemplates", "", None) => {
            admin_requests(call, paths::items(new, "spec.spec.devices.requests"), &mut errors);
        }
        ("resourceclaims", "status", Some(old)) => {
            admin_results(call, new, old, &mut errors);
            binding(call, new, old, &mut errors);
            if at(new, "status.allocation").is_some() {
                drivers(call, new, old, &mut errors);
            }
        }
        _ => {}
    }
    errors
}

fn at<'a>(map: &'a Map, path: &str) -> Option<&'a Value> {
    paths::get(map, path).filter(|value| !value.is_null())
}

fn is_true(map: &Value, path: &str) -> bool {
    map.as_object().and_then(|map| at(map, path)).and_then(Value::as_bool) == Some(true)
}

/// Upstream names the path of a claim also for templates.
fn admin_requests(call: &Call<'_>, requests: &[Value], errors: &mut ErrorList) {
    if let Some(i) = requests.iter().position(|request| is_true(request, "exactly.adminAccess")) {
        errors.extend(in_admin_namespace(call, format!("spec.devices.requests[{i}].adminAccess")));
    }
}

fn admin_results(call: &Call<'_>, new: &Map, old: &Map, errors: &mut ErrorList) {
    const RESULTS: &str = "status.allocation.devices.results";
    let of = |claim: &Map| paths::items(claim, RESULTS).iter().position(|result| is_true(result, "adminAccess"));
    // Once it was given it stays.
    if let (Some(i), None) = (of(new), of(old)) {
        errors.extend(in_admin_namespace(call, format!("{RESULTS}[{i}].adminAccess")));
    }
}

fn in_admin_namespace(call: &Call<'_>, field: String) -> Option<Error> {
    let namespace = call.namespace();
    let Some(stored) = call.server.registry.get(&NAMESPACES, "", namespace) else {
        let error =
            format!("could not retrieve namespace to verify admin access: namespaces \"{namespace}\" not found");
        return Some(Error::internal(field, error));
    };
    let labelled = stored.labels.iter().any(|(key, value)| key.as_str() == ADMIN_LABEL && value.as_str() == "true");
    let detail =
        format!("admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace");
    (!labelled).then(|| Error::forbidden(field, detail))
}

/// What the answer to somebody who may not do this says.
fn refusal(call: &Call<'_>, attributes: &Attributes<'_>) -> Option<String> {
    let decision = call.server.authorizer.authorize(attributes);
    (!decision.is_allowed()).then(|| forbidden(attributes, decision.reason()).message)
}

/// Who gives a claim its devices and its users needs more than the right to write its status.
fn binding(call: &Call<'_>, new: &Map, old: &Map, errors: &mut ErrorList) {
    let same = |path: &str| at(new, path) == at(old, path);
    if same("status.allocation") && same("status.reservedFor") {
        return;
    }
    let verb = &call.info.verb;
    let attributes = Attributes { subresource: "binding", namespace: "", ..call.attributes(verb, "") };
    if let Some(refusal) = refusal(call, &attributes) {
        let detail = format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
             verb=\"{verb}\" permission: {refusal}"
        );
        errors.push(Error::forbidden("status.allocation", detail));
    }
}

/// What a driver says of its devices only it may say, or who may for it.
fn drivers(call: &Call<'_>, new: &Map, old: &Map, errors: &mut ErrorList) {
    let verb = &call.info.verb;
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if is_on_node_of(call, new) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    for driver in changed_drivers(new, old) {
        let refused =
            |verb: &String| refusal(call, &Attributes { subresource: "driver", ..call.attributes(verb, driver) });
        // The first refusal is told, unless another verb is allowed.
        let refusals: Option<Vec<String>> = verbs.iter().map(refused).collect();
        if let Some(refusal) = refusals.and_then(|refusals| refusals.into_iter().next()) {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: \
                 {refusal}",
                verbs.join(" ")
            );
            errors.push(Error::forbidden("status.devices", detail));
        }
    }
}

/// The drivers of devices that something else is said of than before.
fn changed_drivers<'a>(new: &'a Map, old: &'a Map) -> BTreeSet<&'a str> {
    fn key(device: &Value) -> [&str; 4] {
        ["driver", "pool", "device", "shareID"].map(|key| device.get(key).and_then(Value::as_str).unwrap_or_default())
    }
    let mut before: BTreeMap<[&str; 4], &Value> =
        paths::items(old, "status.devices").iter().map(|device| (key(device), device)).collect();
    let now = paths::items(new, "status.devices").iter();
    let mut changed: BTreeSet<&str> =
        now.filter(|device| before.remove(&key(device)) != Some(*device)).map(|device| key(device)[0]).collect();
    changed.extend(before.keys().map(|key| key[0]));
    changed
}

/// Whether who asks is a service account of a pod on the one node that the devices are for.
fn is_on_node_of(call: &Call<'_>, claim: &Map) -> bool {
    let terms = paths::items(claim, "status.allocation.nodeSelector.nodeSelectorTerms");
    let [Value::Object(term)] = terms else { return false };
    let ([], [Value::Object(field)]) = (paths::items(term, "matchExpressions"), paths::items(term, "matchFields"))
    else {
        return false;
    };
    let values = paths::items(field, "values");
    let is_name = paths::text(field, "key") == "metadata.name" && paths::text(field, "operator") == "In";
    let (true, [Value::String(node)]) = (is_name, values) else { return false };
    let extra = call.user.extra.iter().find(|(key, _)| key.as_str() == NODE_NAME);
    let Some([of_user]) = extra.map(|(_, values)| values.as_slice()) else { return false };
    call.user.name.starts_with("system:serviceaccount:")
        && of_user.as_str() == node.as_str()
        && name_is_dns_subdomain(of_user.as_str(), false).is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_api::json;
    use capstan_storage::{Memory, Options};
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::{
        Config, InProcessUser, Server,
        authorization::{SYSTEM_MASTERS, UserInfo},
        http::Body,
    };

    async fn send(server: &Server, user: &UserInfo, method: &str, path: &str, body: &str) -> String {
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.extension(InProcessUser(user.clone())).body(Body::from(body.to_owned())).unwrap();
        let response = server.answer(request).await;
        let code = response.status().as_u16();
        let body = json::parse(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let causes = body.get("details").and_then(|details| details.get("causes")).and_then(Value::as_array);
        let causes = causes.into_iter().flat_map(|causes| causes.iter());
        let causes: Vec<_> =
            causes.map(|cause| format!("{} {}", text(cause, "field"), text(cause, "message"))).collect();
        format!("{code} {}", causes.join(" | ")).trim().to_owned()
    }

    fn admin() -> UserInfo {
        UserInfo { name: "admin".into(), groups: vec![SYSTEM_MASTERS.into()], ..UserInfo::default() }
    }

    const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces";
    const LABEL: &str = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the \
                         containing namespace";

    #[tokio::test]
    async fn administrators_have_their_namespaces() {
        let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
        for (name, value) in [("yes", "true"), ("no", "false")] {
            let namespace =
                format!(r#"{{"metadata": {{"name": "{name}", "labels": {{"{ADMIN_LABEL}": "{value}"}}}}}}"#);
            assert_eq!(send(&server, &admin(), "POST", "/api/v1/namespaces", &namespace).await, "201");
        }
        let refused = format!("422 spec.devices.requests[0].adminAccess Forbidden: {LABEL}");
        for (namespace, access, expected) in
            [("yes", true, "201"), ("no", true, &*refused), ("default", true, &refused), ("no", false, "201")]
        {
            let spec = format!(
                r#"{{"devices": {{"requests": [{{"name": "r", "exactly": {{"deviceClassName": "d", "adminAccess": {access}}}}}]}}}}"#
            );
            let claim = format!(r#"{{"metadata": {{"name": "c-{access}"}}, "spec": {spec}}}"#);
            let path = format!("{CLAIMS}/{namespace}/resourceclaims");
            assert_eq!(send(&server, &admin(), "POST", &path, &claim).await, expected, "{namespace}");
            let template = format!(r#"{{"metadata": {{"name": "t-{access}"}}, "spec": {{"spec": {spec}}}}}"#);
            let path = format!("{CLAIMS}/{namespace}/resourceclaimtemplates");
            assert_eq!(send(&server, &admin(), "POST", &path, &template).await, expected, "{namespace}");
        }
        // What is there stays when the namespace is one no more, but gets no such devices.
        let unlabel = format!(r#"{{"metadata": {{"labels": {{"{ADMIN_LABEL}": null}}}}}}"#);
        assert_eq!(send(&server, &admin(), "PATCH", "/api/v1/namespaces/yes", &unlabel).await, "200");
        let claim = format!("{CLAIMS}/yes/resourceclaims/c-true");
        let label = r#"{"metadata": {"labels": {"a": "b"}}}"#;
        assert_eq!(send(&server, &admin(), "PATCH", &claim, label).await, "200");
        let allocation = r#"{"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p",
            "device": "d", "adminAccess": true}]}}}}"#;
        let expected = format!("422 status.allocation.devices.results[0].adminAccess Forbidden: {LABEL}");
        assert_eq!(send(&server, &admin(), "PATCH", &format!("{claim}/status"), allocation).await, expected);
    }

    #[tokio::test]
    async fn parts_of_a_status_have_their_writers() {
        let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = r#"{"metadata": {"name": "st"}, "rules": [{"apiGroups": ["resource.k8s.io"],
            "resources": ["resourceclaims/status"], "verbs": ["update", "patch"]}]}"#;
        assert_eq!(send(&server, &admin(), "POST", &format!("{rbac}/clusterroles"), role).await, "201");
        let binding = r#"{"metadata": {"name": "st"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole", "name": "st"}, "subjects": [{"kind": "User", "name": "bob"},
            {"kind": "ServiceAccount", "name": "drv", "namespace": "default"}]}"#;
        assert_eq!(send(&server, &admin(), "POST", &format!("{rbac}/clusterrolebindings"), binding).await, "201");
        let claim = r#"{"metadata": {"name": "g"}, "spec": {"devices": {"requests": [{"name": "r", "exactly":
            {"deviceClassName": "d"}}]}}}"#;
        let claims = format!("{CLAIMS}/default/resourceclaims");
        assert_eq!(send(&server, &admin(), "POST", &claims, claim).await, "201");
        let status = format!("{claims}/g/status");
        let allocation = r#"{"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p",
            "device": "d"}]}, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name",
            "operator": "In", "values": ["n1"]}]}]}}}}"#;
        let bob = UserInfo { name: "bob".into(), ..UserInfo::default() };
        let expected = "422 status.allocation Forbidden: changing status.allocation or status.reservedFor requires \
                        resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io \
                        is forbidden: User \"bob\" cannot patch resource \"resourceclaims/binding\" in API group \
                        \"resource.k8s.io\" at the cluster scope";
        assert_eq!(send(&server, &bob, "PATCH", &status, allocation).await, expected);
        assert_eq!(send(&server, &admin(), "PATCH", &status, allocation).await, "200");

        let devices = r#"{"status": {"devices": [{"driver": "d.io", "pool": "p", "device": "d"}]}}"#;
        let driver = |node: &str| UserInfo {
            name: "system:serviceaccount:default:drv".into(),
            extra: [(NODE_NAME.into(), vec![node.into()])].into(),
            ..UserInfo::default()
        };
        let refused = |name: &str, verbs: &str, verb: &str| {
            format!(
                "422 status.devices Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", \
                 verb=\"[{verbs}]\" permission: resourceclaims.resource.k8s.io \"d.io\" is forbidden: User \"{name}\" \
                 cannot {verb} resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \
                 \"default\""
            )
        };
        let (here, anywhere) = ("associated-node:patch", "arbitrary-node:patch");
        let expected = refused("bob", anywhere, anywhere);
        assert_eq!(send(&server, &bob, "PATCH", &status, devices).await, expected);
        let name = "system:serviceaccount:default:drv";
        let expected = refused(name, &format!("{here} {anywhere}"), here);
        assert_eq!(send(&server, &driver("n1"), "PATCH", &status, devices).await, expected);
        assert_eq!(send(&server, &driver("n2"), "PATCH", &status, devices).await, refused(name, anywhere, anywhere));
        let role = r#"{"rules": [{"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"],
            "verbs": ["patch"]}, {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/driver"],
            "verbs": ["associated-node:patch"], "resourceNames": ["d.io"]}]}"#;
        assert_eq!(send(&server, &admin(), "PATCH", &format!("{rbac}/clusterroles/st"), role).await, "200");
        assert_eq!(send(&server, &driver("n1"), "PATCH", &status, devices).await, "200");
    }
}
