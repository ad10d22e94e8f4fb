//! Custom resources over a server in this process.

use std::sync::Arc;

use bytes::Bytes;
use capstan_api::{Value, json};
use capstan_storage::{Memory, Options};
use http_body_util::BodyExt as _;

use crate::{
    Config, InProcessUser, Server,
    authorization::{SYSTEM_MASTERS, UserInfo},
    cache::WatchItem,
    http::{Body, Request, Response},
};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A server, and a user who may do everything.
struct World {
    server: Server,
}

/// What was answered.
struct Answer {
    code: u16,
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    /// A part of the body, by a dotted path.
    fn at(&self, path: &str) -> String {
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
    async fn start() -> Self {
        World::on(Arc::new(Memory::new(Options::default()))).await
    }

    async fn on(store: capstan_storage::SharedStore) -> Self {
        World { server: Server::start(store, Config::default()).await.unwrap() }
    }

    /// Asks for something that has no end of its own, and reads it in a task once it has begun.
    async fn open(&self, path: &str) -> tokio::task::JoinHandle<Answer> {
        let response = self.respond("GET", path, "", "application/json", String::new()).await;
        tokio::spawn(read(response))
    }

    async fn send(&self, method: &str, path: &str, content_type: &str, accept: &str, body: String) -> Answer {
        read(self.respond(method, path, content_type, accept, body).await).await
    }

    async fn respond(&self, method: &str, path: &str, content_type: &str, accept: &str, body: String) -> Response {
        let user = UserInfo { name: "admin".into(), groups: vec![SYSTEM_MASTERS.into()], ..UserInfo::default() };
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.header("accept", accept).extension(InProcessUser(user)).body(Body::from(body));
        let request: Request = request.unwrap();
        self.server.answer(request).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", "application/json", String::new()).await
    }

    async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, "application/json", "application/json", body.to_owned()).await
    }

    async fn merge(&self, path: &str, body: &str) -> Answer {
        self.send("PATCH", path, "application/merge-patch+json", "application/json", body.to_owned()).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "", "application/json", String::new()).await
    }

    /// Waits until something is so, with every change of the definitions.
    async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn() -> F) {
        let stored = self.server.inner().registry.stored(&super::DEFINITIONS).unwrap().clone();
        let mut watcher = super::controller::watch(&stored).await.unwrap();
        while !is_so().await {
            // Deletions end with a change too; others follow by tasks that are given their turn.
            tokio::select! {
                item = watcher.next() => drop::<WatchItem>(item.unwrap()),
                () = tokio::task::yield_now() => {}
            }
        }
    }

    /// Creates a definition and waits until it is established.
    async fn define(&self, crd: &str) -> String {
        let answer = self.post(CRDS, crd).await;
        assert_eq!(answer.code, 201, "{}", answer.body);
        let path = format!("{CRDS}/{}", answer.at("metadata.name"));
        self.until(|| async { condition(&self.get(&path).await, "Established", "status") == "True" }).await;
        path
    }
}

fn condition(crd: &Answer, ty: &str, field: &str) -> String {
    let all = crd.body.get("status").and_then(|status| status.get("conditions")?.as_array());
    let one = all.and_then(|all| all.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(ty)));
    one.and_then(|one| one.get(field)?.as_str()).unwrap_or_default().to_owned()
}

/// The definition of the documentation of Kubernetes, with all subresources.
const CRON_TAB: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
    "metadata":{"name":"crontabs.stable.example.com"},"spec":{"group":"stable.example.com","scope":"Namespaced",
    "names":{"plural":"crontabs","singular":"crontab","kind":"CronTab","shortNames":["ct"]},
    "versions":[{"name":"v1","served":true,"storage":true,
        "subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
        "selectableFields":[{"jsonPath":".spec.image"}],
        "additionalPrinterColumns":[{"name":"Spec","type":"string","jsonPath":".spec.cronSpec"},
            {"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}],
        "schema":{"openAPIV3Schema":{"type":"object","properties":{
            "spec":{"type":"object","properties":{"cronSpec":{"type":"string"},"image":{"type":"string"},
                "replicas":{"type":"integer","minimum":0,"maximum":10,"default":1}}},
            "status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}]}}"#;

const TABS: &str = "/apis/stable.example.com/v1/namespaces/default/crontabs";

fn tab(name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{{"name":"{name}"}},"spec":{spec},
            "status":{{"replicas":9}}}}"#
    )
}

#[tokio::test]
async fn instances_are_written_and_read() {
    let world = World::start().await;
    assert_eq!(world.get(TABS).await.body.as_str(), Some("404 page not found\n"));
    world.define(CRON_TAB).await;
    let made = world.post(TABS, &tab("a", r#"{"cronSpec":"* * * * */5","image":"i","more":1}"#)).await;
    assert_eq!((made.code, &*made.at("spec")), (201, r#"{"cronSpec":"* * * * */5","image":"i","replicas":1}"#));
    assert_eq!((&*made.at("status"), &*made.at("metadata.generation")), ("", "1"));
    assert_eq!(made.warnings, [r#"299 - "unknown field \"spec.more\"""#]);
    let wrong = world.post(TABS, &tab("b", r#"{"replicas":11}"#)).await;
    let words = "CronTab.stable.example.com \"b\" is invalid: spec.replicas: Invalid value: 11: spec.replicas in body \
                 should be less than or equal to 10";
    assert_eq!((wrong.code, &*wrong.at("message")), (422, words));
    let strict = world.post(&format!("{TABS}?fieldValidation=Strict"), &tab("b", r#"{"x":1}"#)).await;
    let words =
        "CronTab in version \"v1\" cannot be handled as a CronTab: strict decoding error: unknown field \"spec.x\"";
    assert_eq!((strict.code, &*strict.at("message")), (400, words));

    let a = format!("{TABS}/a");
    let status = world.merge(&format!("{a}/status"), r#"{"spec":{"image":"no"},"status":{"replicas":2}}"#).await;
    assert_eq!((status.code, &*status.at("status.replicas"), &*status.at("spec.image")), (200, "2", "i"));
    let spec = world.merge(&a, r#"{"spec":{"image":"j"},"status":null}"#).await;
    assert_eq!((&*spec.at("status.replicas"), &*spec.at("metadata.generation")), ("2", "2"));
    let scaled = world.merge(&format!("{a}/scale"), r#"{"spec":{"replicas":4}}"#).await;
    assert_eq!(
        (&*scaled.at("kind"), &*scaled.at("spec.replicas"), &*scaled.at("status.replicas")),
        ("Scale", "4", "2")
    );
    assert_eq!(world.send("PATCH", &a, "application/strategic-merge-patch+json", "", "{}".into()).await.code, 415);

    assert_eq!(world.get(&format!("{TABS}?fieldSelector=spec.image%3Dj")).await.at("items.0.kind"), "CronTab");
    assert_eq!(world.get(&format!("{TABS}?fieldSelector=spec.image%3Di")).await.at("items"), "[]");
    assert_eq!(world.get(&format!("{TABS}?fieldSelector=spec.x%3Di")).await.code, 400);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = world.send("GET", TABS, "", table, String::new()).await;
    assert_eq!(table.at("rows.0.cells"), r#"["a","* * * * */5",4]"#);
    let discovery = world.get("/apis/stable.example.com/v1").await;
    assert_eq!(discovery.at("resources.2.name"), "crontabs/scale");
    assert_eq!(world.delete(&a).await.at("status"), "Success");
    assert_eq!(world.get(&a).await.code, 404);
}

#[tokio::test]
async fn the_status_of_an_at_has_a_life_of_its_own() {
    let world = World::start().await;
    let crd = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{"name":"ats.cnat.programming-kubernetes.info"},"spec":{"group":"cnat.programming-kubernetes.info",
        "scope":"Namespaced","names":{"plural":"ats","singular":"at","kind":"At","listKind":"AtList"},
        "versions":[{"name":"v1alpha1","served":true,"storage":true,"subresources":{"status":{}},
            "schema":{"openAPIV3Schema":{"type":"object","properties":{
                "spec":{"type":"object","properties":{"schedule":{"type":"string"},"command":{"type":"string"}}},
                "status":{"type":"object","properties":{"phase":{"type":"string"}}}}}}}]}}"#;
    world.define(crd).await;
    let ats = "/apis/cnat.programming-kubernetes.info/v1alpha1/namespaces/default/ats";
    let at = r#"{"apiVersion":"cnat.programming-kubernetes.info/v1alpha1","kind":"At","metadata":{"name":"example-at"},
        "spec":{"schedule":"2030-07-12T10:12:00Z","command":"echo YAY"}}"#;
    assert_eq!(world.post(ats, at).await.code, 201);
    let path = format!("{ats}/example-at");
    for phase in ["PENDING", "RUNNING", "DONE"] {
        let body = format!(r#"{{"spec":{{"command":"rm"}},"status":{{"phase":"{phase}"}}}}"#);
        let answer = world.merge(&format!("{path}/status"), &body).await;
        assert_eq!((&*answer.at("status.phase"), &*answer.at("metadata.generation")), (phase, "1"));
        assert_eq!(answer.at("spec.command"), "echo YAY");
    }
}

#[tokio::test]
async fn definitions_go_with_their_instances() {
    let store: capstan_storage::SharedStore = Arc::new(Memory::new(Options::default()));
    let world = World::on(Arc::clone(&store)).await;
    let crd = world.define(CRON_TAB).await;
    world.post(TABS, &tab("a", "{}")).await;
    let held = tab("b", "{}").replace(r#""name""#, r#""finalizers":["example.com/x"],"name""#);
    assert_eq!(world.post(TABS, &held).await.code, 201);

    // Another server on the same store finds all that, before its first request.
    let other = World::on(store).await;
    assert_eq!(other.get(&format!("{TABS}/a")).await.code, 200);

    let deleted = world.delete(&crd).await;
    assert_eq!(deleted.at("metadata.finalizers.0"), "customresourcecleanup.apiextensions.k8s.io");
    assert_eq!(condition(&deleted, "Terminating", "reason"), "InstanceDeletionPending");
    world.until(|| async { !world.get(&format!("{TABS}/b")).await.at("metadata.deletionTimestamp").is_empty() }).await;
    assert_eq!(world.get(&format!("{TABS}/a")).await.code, 404);
    let refused = world.post(TABS, &tab("c", "{}")).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    world.merge(&format!("{TABS}/b"), r#"{"metadata":{"finalizers":null}}"#).await;
    world.until(|| async { world.get(&crd).await.code == 404 }).await;
    world.until(|| async { world.get(TABS).await.code == 404 }).await;
    assert_eq!(world.get("/apis/stable.example.com").await.code, 404);
}

#[tokio::test]
async fn a_changed_schema_holds_for_what_is_stored() {
    let world = World::start().await;
    let crd = world.define(CRON_TAB).await;
    world.post(TABS, &tab("a", r#"{"image":"i"}"#)).await;
    let tightened = CRON_TAB
        .replace(r#""image":{"type":"string"}"#, r#""mood":{"type":"string","default":"good"}"#)
        .replace(r#""selectableFields":[{"jsonPath":".spec.image"}],"#, "");
    let version = world.get(&crd).await.at("metadata.resourceVersion");
    let tightened =
        tightened.replace(r#""name":"crontabs."#, &format!(r#""resourceVersion":"{version}","name":"crontabs."#));
    let watched = world.open(&format!("{TABS}?watch=1")).await;
    let changed = world.send("PUT", &crd, "application/json", "", tightened).await;
    assert_eq!(changed.code, 200, "{}", changed.body);
    // Who watches begins again, under the new schema: the watch has ended with the one event that it began with.
    let watched = watched.await.unwrap();
    assert_eq!((watched.code, &*watched.at("type")), (200, "ADDED"));
    let spec = || async { world.get(&format!("{TABS}/a")).await.at("spec") };
    world.until(|| async { spec().await.contains("mood") }).await;
    assert_eq!(spec().await, r#"{"mood":"good","replicas":1}"#);
}

#[tokio::test]
async fn names_are_given_once() {
    let world = World::start().await;
    let first = world.define(CRON_TAB).await;
    let second = CRON_TAB.replace("crontabs", "others").replace("\"crontab\"", "\"other\"");
    assert_eq!(world.post(CRDS, &second).await.code, 201);
    let path = format!("{CRDS}/others.stable.example.com");
    world.until(|| async { condition(&world.get(&path).await, "NamesAccepted", "status") == "False" }).await;
    let crd = world.get(&path).await;
    assert_eq!(condition(&crd, "NamesAccepted", "reason"), "ListKindConflict");
    assert_eq!(condition(&crd, "Established", "reason"), "NotAccepted");
    world.delete(&first).await;
    world.until(|| async { condition(&world.get(&path).await, "Established", "status") == "True" }).await;
    assert_eq!(world.get("/apis/stable.example.com/v1/others").await.code, 200);
}
