//! A server in this process, and those who ask it: for tests.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{Value, json};
use capstan_storage::{Memory, Options};
use http_body_util::BodyExt as _;

use crate::{
    Config, InProcessUser, Server,
    authorization::{SYSTEM_MASTERS, UserInfo},
    http::{Body, Request, Response},
};

/// A server, and a user who may do everything.
pub(crate) struct World {
    pub(crate) server: Server,
}

/// What was answered.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
    pub(crate) warnings: Vec<String>,
}

impl Answer {
    /// A part of the body, by a dotted path.
    pub(crate) fn at(&self, path: &str) -> String {
        let found = path.split('.').try_fold(&self.body, |value, key| match key.parse::<usize>() {
            Ok(index) => value.as_array()?.get(index),
            Err(_) => value.get(key),
        });
        match found {
            Some(Value::String(text)) => text.to_string(),
            Some(other) => json::to_string(other),
            None => String::new(),
        }
    }
}

async fn read(response: Response) -> Answer {
    let warnings = response.headers().get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned());
    let (code, warnings) = (response.status().as_u16(), warnings.collect());
    let bytes: Bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = json::parse(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
    Answer { code, body, warnings }
}

impl World {
    pub(crate) async fn start() -> Self {
        World::on(Arc::new(Memory::new(Options::default()))).await
    }

    pub(crate) async fn on(store: capstan_storage::SharedStore) -> Self {
        World { server: Server::start(store, Config::default()).await.unwrap() }
    }

    /// Asks for something that has no end of its own, and reads it in a task once it has begun.
    pub(crate) async fn open(&self, path: &str) -> tokio::task::JoinHandle<Answer> {
        let response = self.respond("GET", path, "", "application/json", String::new()).await;
        tokio::spawn(read(response))
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        accept: &str,
        body: String,
    ) -> Answer {
        read(self.respond(method, path, content_type, accept, body).await).await
    }

    pub(crate) async fn respond(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        accept: &str,
        body: String,
    ) -> Response {
        self.respond_to(UserInfo::new("admin", [SYSTEM_MASTERS]), method, path, content_type, accept, body).await
    }

    /// What somebody sends as JSON.
    pub(crate) async fn send_as(&self, user: UserInfo, method: &str, path: &str, body: &str) -> Answer {
        read(self.respond_to(user, method, path, "application/json", "application/json", body.to_owned()).await).await
    }

    async fn respond_to(
        &self,
        user: UserInfo,
        method: &str,
        path: &str,
        content_type: &str,
        accept: &str,
        body: String,
    ) -> Response {
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.header("accept", accept).extension(InProcessUser(user)).body(Body::from(body));
        let request: Request = request.unwrap();
        self.server.answer(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "application/json", String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, "application/json", "application/json", body.to_owned()).await
    }

    pub(crate) async fn merge(&self, path: &str, body: &str) -> Answer {
        self.send("PATCH", path, "application/merge-patch+json", "application/json", body.to_owned()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", "application/json", String::new()).await
    }
}
