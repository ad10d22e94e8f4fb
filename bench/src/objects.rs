//! The objects that are written and read.

use crate::client::Call;

/// The namespace that everything is in unless said otherwise.
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Pods are spread over so many namespaces.
pub(crate) const NAMESPACES: u64 = 10;

/// The annotation in which a change says when it was sent, in nanoseconds since 1970.
pub(crate) const SENT_AT: &str = "bench/at";

/// A ConfigMap of about so many bytes.
pub(crate) fn config_map(name: &str, bytes: usize) -> String {
    let text = "x".repeat(bytes.saturating_sub(120));
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"seq":"0","text":"{text}"}}}}"#
    )
}

/// Creates the ConfigMap of a number.
pub(crate) fn create_config_map(number: u64, bytes: usize) -> Call {
    Call::post(CONFIG_MAPS, config_map(&format!("c{number}"), bytes))
}

/// Creates the namespace of a number.
pub(crate) fn create_namespace(number: u64) -> Call {
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"n{number}"}}}}"#);
    Call::post("/api/v1/namespaces", body)
}

/// The path of the pod of a number.
pub(crate) fn pod(number: u64) -> String {
    format!("/api/v1/namespaces/n{}/pods/p{number}", number % NAMESPACES)
}

/// Creates the pod of a number: two containers with what a Deployment's pods usually have, about 3 KB when stored.
pub(crate) fn create_pod(number: u64) -> Call {
    let container = |name: &str, port: u16| {
        format!(
            r#"{{"name":"{name}","image":"registry.example/team/{name}:v1.2.3","ports":[{{"containerPort":{port}}}],"#,
        ) + r#""env":[{"name":"LOG_LEVEL","value":"info"},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],"#
            + r#""resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"memory":"256Mi"}},"#
            + &format!(r#""readinessProbe":{{"httpGet":{{"path":"/ready","port":{port}}},"periodSeconds":5}}}}"#)
    };
    let app = number % 50;
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p{number}","labels":{{"app":"app-{app}","tier":"web"}}}},"spec":{{"terminationGracePeriodSeconds":0,"containers":[{},{}]}}}}"#,
        container("web", 8080),
        container("sidecar", 9090),
    );
    Call::post(format!("/api/v1/namespaces/n{}/pods", number % NAMESPACES), body)
}

/// The name of the kind of a number, as in its path.
pub(crate) fn custom_path(number: u64) -> String {
    format!("/apis/bench.example.com/v1/namespaces/default/things{number}s")
}

/// Creates the CustomResourceDefinition of a number, with a schema of some fields.
pub(crate) fn create_custom_kind(number: u64) -> Call {
    let fields: Vec<String> = (0..20)
        .map(|field| format!(r#""field{field}":{{"type":"object","properties":{{"name":{{"type":"string","maxLength":63}},"count":{{"type":"integer","minimum":0}}}}}}"#))
        .collect();
    let body = format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"things{number}s.bench.example.com"}},"spec":{{"group":"bench.example.com","scope":"Namespaced","names":{{"plural":"things{number}s","singular":"thing{number}","kind":"Thing{number}"}},"versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{}}}}}}}}}}}}}]}}}}"#,
        fields.join(","),
    );
    Call::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_the_wanted_size() {
        for call in [create_config_map(1, 1024), create_namespace(1), create_pod(1), create_custom_kind(1)] {
            assert!(capstan_api::json::parse(&call.body).is_ok(), "{}", String::from_utf8_lossy(&call.body));
        }
        for size in [1024, 10 * 1024] {
            let made = config_map("c1", size).len();
            assert!(made.abs_diff(size) < 100, "{made} for {size}");
        }
    }
}
