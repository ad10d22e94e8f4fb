//! A whole API server inside a program, without a socket: create a ConfigMap, read it back.
//!
//! `cargo run -p capstan-server --example in_process`

use std::sync::Arc;

use capstan_server::{
    Config, InProcessUser, Server,
    authorization::UserInfo,
    http::{Body, Request, Response},
};
use capstan_storage::{Memory, Options};
use http_body_util::BodyExt as _;

/// Asks as an administrator.
async fn ask(server: &Server, method: &str, path: &str, body: &'static str) -> Response {
    let user = InProcessUser(UserInfo::new("admin", ["system:masters"]));
    let request = http::Request::builder().method(method).uri(path).extension(user).body(Body::from(body));
    let request: Request = request.expect("the request is well-formed");
    server.answer(request).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await?;
    let config_map = r#"{"metadata":{"name":"greeting"},"data":{"hello":"world"}}"#;
    let created = ask(&server, "POST", "/api/v1/namespaces/default/configmaps", config_map).await;
    println!("{}", created.status());
    let found = ask(&server, "GET", "/api/v1/namespaces/default/configmaps/greeting?pretty=true", "").await;
    println!("{}", String::from_utf8(found.into_body().collect().await?.to_bytes().to_vec())?);
    Ok(())
}
