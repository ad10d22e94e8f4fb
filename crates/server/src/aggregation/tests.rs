//! Where the servers behind a service are.

use capstan_storage::{Memory, Options};

use super::{
    resolve::{Place, places},
    spec::ServiceReference,
};
use crate::{
    Config, Server,
    authorization::UserInfo,
    http::{Body, Request},
};

async fn make(server: &Server, path: &str, body: &str) {
    let mut request = Request::new(Body::from(body.to_owned()));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = path.parse().expect("a path");
    let json = http::HeaderValue::from_static("application/json");
    request.headers_mut().insert(http::header::CONTENT_TYPE, json);
    let mut service = server.as_user(UserInfo::new("admin", ["system:masters"]));
    let response = tower_service::Service::call(&mut service, request).await.expect("an answer");
    assert_eq!(response.status(), 201);
}

#[tokio::test]
async fn services_lead_to_endpoints() {
    let store = std::sync::Arc::new(Memory::new(Options::default()));
    let server = Server::start(store, Config::default()).await.expect("a server");
    let services = "/api/v1/namespaces/default/services";
    let check = |name: &str, port: i64| {
        let reference = ServiceReference { namespace: "default".into(), name: name.into(), port };
        places(&*server.inner().registry, &reference)
    };
    let place = |host: &str, port| Place { host: host.to_owned(), port };
    assert_eq!(check("a", 443), Err("service \"a\" not found".to_owned()));
    make(&server, services, r#"{"metadata":{"name":"a"},"spec":{"ports":[{"port":443,"name":"https"}]}}"#).await;
    assert_eq!(check("a", 1), Err("no service port 1 found for service \"a\"".to_owned()));
    assert_eq!(check("a", 443), Err("no endpoints available for service \"a\"".to_owned()));
    let slice = r#"{"metadata":{"name":"a-1","labels":{"kubernetes.io/service-name":"a"}},"addressType":"IPv4",
        "ports":[{"name":"http","port":80},{"name":"https","port":8443}],
        "endpoints":[{"addresses":["192.0.2.1"]},{"addresses":["192.0.2.2"],"conditions":{"ready":false}},
                     {"addresses":["192.0.2.3"],"conditions":{"ready":true}}]}"#;
    make(&server, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    assert_eq!(check("a", 443), Ok(vec![place("192.0.2.1", 8443), place("192.0.2.3", 8443)]));
    let external = r#"{"metadata":{"name":"b"},"spec":{"type":"ExternalName","externalName":"b.example.com"}}"#;
    make(&server, services, external).await;
    assert_eq!(check("b", 6443), Ok(vec![place("b.example.com", 6443)]));
}
