//! Custom resources over a server in this process.

use std::sync::Arc;

use capstan_api::Value;
use capstan_storage::{Memory, Options};

use crate::{
    cache::WatchItem,
    testing::{Answer, World},
};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl World {
    /// Waits until something is so, with every change of the definitions.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn() -> F) {
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
    pub(crate) async fn define(&self, crd: &str) -> String {
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

/// A definition whose schema has numbers, a map of any keys, and a deprecated version beside the stored one.
const GAUGES: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
    "metadata":{"name":"gauges.stable.example.com"},"spec":{"group":"stable.example.com","scope":"Namespaced",
    "names":{"plural":"gauges","kind":"Gauge"},"versions":[
    {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{
    "type":"object","properties":{"level":{"type":"number","minimum":1,"maximum":10.0},
    "marks":{"type":"object","additionalProperties":{"type":"integer"}}}}}}}},
    {"name":"v0","served":true,"storage":false,"deprecated":true,
    "schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;

#[tokio::test]
async fn definitions_are_applied_and_only_their_spec_counts() {
    let world = World::start().await;
    let path = format!("{CRDS}/gauges.stable.example.com");
    let applied = format!("{path}?fieldManager=m");
    let apply = |body: &str| world.send("PATCH", &applied, "application/apply-patch+yaml", "", body.to_owned());
    assert_eq!(apply(GAUGES).await.code, 201);
    world.until(|| async { condition(&world.get(&path).await, "Established", "status") == "True" }).await;
    let labelled = world.merge(&path, r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    assert_eq!((labelled.code, &*labelled.at("metadata.generation")), (200, "1"));
    let version = labelled.at("metadata.resourceVersion");
    let again = world.merge(&path, r#"{"metadata":{"labels":{"a":"b"}}}"#).await;
    assert_eq!(again.at("metadata.resourceVersion"), version, "numbers are the same with and without a fraction");
    assert_eq!(apply(&GAUGES.replace("10.0", "9")).await.at("metadata.generation"), "2");

    let held = format!("{CRDS}/gauges.stable.example.com");
    let gauges = "/apis/stable.example.com/v1/namespaces/default/gauges";
    let gauge = r#"{"apiVersion":"stable.example.com/v1","kind":"Gauge","metadata":{"name":"a","finalizers":["a/b"]}}"#;
    assert_eq!(world.post(gauges, gauge).await.code, 201);
    world.delete(&held).await;
    let labelled = world.merge(&held, r#"{"metadata":{"labels":{"a":"c"}}}"#).await;
    assert_eq!(labelled.code, 200, "the finalizer of definitions has no domain: {}", labelled.body);
}

#[tokio::test]
async fn what_has_no_type_is_told_apart() {
    let world = World::start().await;
    world.define(GAUGES).await;
    let gauges = "/apis/stable.example.com/v1/namespaces/default/gauges";
    let gauge = |spec: &str| {
        format!(r#"{{"apiVersion":"stable.example.com/v1","kind":"Gauge","metadata":{{"name":"a"}},"spec":{spec}}}"#)
    };
    assert_eq!(world.post(gauges, &gauge(r#"{"level":null}"#)).await.at("spec"), "{}", "what is sent");
    let path = format!("{gauges}/a?fieldManager=m");
    let applied = world.send("PATCH", &path, "application/apply-patch+yaml", "", gauge(r#"{"level":null}"#)).await;
    let words = r#"spec.level: Invalid value: "null": spec.level in body must be of type number: "null""#;
    assert_eq!((applied.code, applied.at("message").contains(words)), (422, true), "{}", applied.body);

    let old = "/apis/stable.example.com/v0/namespaces/default/gauges/a";
    let bare = world.merge(old, r#"{"spec":null}"#).await;
    assert_eq!((&*bare.at("spec"), &*bare.at("metadata.generation")), ("", "2"));
    assert_eq!(world.merge(old, r#"{"spec":{}}"#).await.at("metadata.generation"), "3");
    let missing = world.get(&format!("{old}/status")).await;
    assert_eq!((missing.code, missing.warnings.len()), (404, 1), "a deprecated version, whatever is asked of it");
    let refused = world.send("GET", old, "", "text/html", String::new()).await;
    assert_eq!(
        (refused.code, &*refused.at("message")),
        (
            406,
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        )
    );
}

#[tokio::test]
async fn a_table_is_refused_last_and_bookmarks_are_blank_objects() {
    let world = World::start().await;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let ask = |path: &'static str| world.send("GET", path, "", table, String::new());
    assert_eq!(ask("/api/v1/namespaces/default/pods/a?includeObject=x").await.code, 404);
    assert_eq!(ask("/api/v1/namespaces/default?includeObject=x").await.code, 400);
    assert_eq!(ask("/api/v1/namespaces/default/pods/a/resize").await.code, 406);
    let path = "/apis/batch/v1/namespaces/default/jobs?watch=1&sendInitialEvents=true&allowWatchBookmarks=true\
                &resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
    let bookmark = world.get(path).await;
    assert_eq!(
        (&*bookmark.at("type"), &*bookmark.at("object.spec")),
        ("BOOKMARK", r#"{"template":{"metadata":{},"spec":{"containers":null}}}"#)
    );
    let path = "/apis/apps/v1/namespaces/default/daemonsets";
    let set = r#"{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{
        "labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let count = "metadata.annotations.deprecated.daemonset.template.generation";
    let made = world.post(path, set).await;
    assert!(made.body.get("metadata").and_then(|metadata| metadata.get("annotations")).is_some(), "{count}");
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let partial = world.send("GET", "/apis/apps/v1/namespaces/default/daemonsets/d", "", partial, String::new()).await;
    assert_eq!(partial.at("metadata.annotations"), "", "what is a field to upstream is not metadata");
}

#[tokio::test]
async fn empty_values_are_shown_as_they_were_sent() {
    let world = World::start().await;
    let set = r#"{"metadata":{"name":"r"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{
        "labels":{}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
    let refused = world.post("/apis/apps/v1/namespaces/default/replicasets", set).await;
    let words = "ReplicaSet.apps \"r\" is invalid: spec.template.metadata.labels: Invalid value: {}: `selector` does \
                 not match template `labels`";
    assert_eq!((refused.code, &*refused.at("message")), (422, words));
    let limits = "/api/v1/namespaces/default/limitranges/l";
    let body = r#"{"metadata":{"name":"l","resourceVersion":"7"},"spec":{"limits":[]}}"#;
    let put = |path: &'static str, body: &'static str| world.send("PUT", path, "application/json", "", body.to_owned());
    assert_eq!(put(limits, body).await.code, 201, "a version says nothing of what is not there");
    let bad = r#"{"metadata":{"name":"m","resourceVersion":"x"},"spec":{"limits":[]}}"#;
    let refused = put("/api/v1/namespaces/default/limitranges/m", bad).await;
    assert_eq!((refused.code, &*refused.at("message")), (500, "strconv.ParseUint: parsing \"x\": invalid syntax"));
}
