//! The verbs of a client on the real server, in process.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::sync::Arc;

use capstan_api::{
    GroupVersionResource, Unstructured,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{Api, Client, Event, Patch};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};

async fn client() -> Client {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])))
}

fn config_map(name: &str) -> Unstructured {
    let text = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"a":"1"}}}}"#);
    Unstructured::decode(text.as_bytes()).unwrap()
}

#[tokio::test]
async fn verbs() {
    let client = client().await;
    let maps = Api::<Unstructured>::dynamic(&client, GroupVersionResource::new("", "v1", "configmaps"), "default");
    assert!(maps.get("nobody").await.unwrap_err().is_not_found());
    assert_eq!(maps.get_opt("nobody").await.unwrap(), None);

    let created = maps.create(&config_map("one")).await.unwrap();
    assert!(!created.uid().is_empty());
    assert!(maps.create(&config_map("one")).await.unwrap_err().is_already_exists());

    let mut watch = maps.watch(&ListOptions::default()).await.unwrap();
    let patch = serde_json::json!({"data": {"b": "2"}});
    let patched = maps.patch("one", &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(patched.nested_str(["data", "b"]).unwrap(), Some("2"));
    // A watch without a version begins with what is there.
    let Event::Added(_) = watch.try_next().await.unwrap().unwrap() else { panic!("what is there comes first") };
    let Event::Modified(seen) = watch.try_next().await.unwrap().unwrap() else { panic!("then what changes") };
    assert_eq!(seen, patched);

    assert!(maps.update(&created).await.unwrap_err().is_conflict());
    maps.update(&patched).await.unwrap();

    let applied = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "3"}});
    assert!(maps.apply("one", "me", false, &applied).await.unwrap_err().is_conflict());
    maps.apply("one", "me", true, &applied).await.unwrap();

    let list =
        maps.list(&ListOptions { field_selector: "metadata.name=one".into(), ..ListOptions::default() }).await.unwrap();
    assert_eq!(list.items.len(), 1);
    assert_eq!(list.items[0].kind(), "ConfigMap");

    maps.delete("one", &DeleteOptions::default()).await.unwrap();
    assert!(maps.delete("one", &DeleteOptions::default()).await.unwrap_err().is_not_found());
}
