//! Informers of several namespaces, for an account that may read those and no others.

#![expect(clippy::unwrap_used, clippy::panic, reason = "all of it is a test")]

use std::sync::{Arc, Mutex};

use capstan_api::{
    Resource as _,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{
    Client, HandlerFuncs, InformerOptions, Key, NamespaceOptions, Namespaces, SharedIndexInformer,
    SharedInformerFactory,
};
use capstan_server::{Config, Server, authorization::UserInfo};
use capstan_storage::{Memory, Options};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};

const NAMESPACES: [&str; 3] = ["a", "b", "c"];

async fn server() -> (Client, Client) {
    let server = Server::start(Arc::new(Memory::new(Options::default())), Config::default()).await.unwrap();
    let admin = Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])));
    for name in NAMESPACES {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        admin.core_v1().namespaces().create(&namespace).await.unwrap();
    }
    for namespace in ["a", "b"] {
        let role = serde_json::json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}],
        });
        let role = serde_json::from_value(role).unwrap();
        admin.rbac_v1().role_bindings(namespace).create(&role).await.unwrap();
    }
    (admin, Client::from_service(server.as_user(UserInfo::new("reader", ["system:authenticated"]))))
}

async fn put(client: &Client, namespace: &str, name: &str, team: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.labels = Some([("team".to_owned(), team.to_owned())].into());
    client.core_v1().config_maps(namespace).create(&map).await.unwrap();
}

fn team(team: &str) -> NamespaceOptions {
    NamespaceOptions { label_selector: Some(format!("team={team}")), ..NamespaceOptions::default() }
}

fn names(informer: &SharedIndexInformer<ConfigMap>) -> String {
    let selector = "team".parse().unwrap();
    let keys = informer.lister().list(&selector);
    keys.iter().map(|map| Key::of(&**map).to_string()).collect::<Vec<_>>().join(" ")
}

async fn until(what: &str, is: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if is() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{what}");
}

#[tokio::test]
async fn some_namespaces_and_not_all() {
    let (admin, reader) = server().await;
    for namespace in NAMESPACES {
        put(&admin, namespace, "blue", "blue").await;
        put(&admin, namespace, "red", "red").await;
    }
    let all = reader.core_v1().config_maps("").list(&ListOptions::default()).await;
    assert!(all.unwrap_err().is_forbidden(), "the account may not read all");

    let whole = NamespaceOptions::default();
    let namespaces = Namespaces::from([("a".to_owned(), whole), ("b".to_owned(), team("red"))]);
    let factory = SharedInformerFactory::for_client(&reader).namespaces(namespaces);
    let maps = factory.informer::<ConfigMap>();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let (added, deleted) = (Arc::clone(&heard), Arc::clone(&heard));
    let handler = maps.add_event_handler(
        HandlerFuncs::<ConfigMap>::new()
            .on_add(move |map, initial| added.lock().unwrap().push(format!("{} {initial}", Key::of(&**map))))
            .on_delete(move |gone| deleted.lock().unwrap().push(format!("-{}", Key::of(&**gone.object())))),
    );
    factory.start();
    assert!(factory.wait_for_cache_sync().await && handler.wait_for_sync().await);
    assert_eq!(names(&maps), "a/blue a/red b/red");
    let mut first = std::mem::take(&mut *heard.lock().unwrap());
    first.retain(|said| said.contains("red") || said.contains("blue"));
    first.sort();
    assert_eq!(first, ["a/blue true", "a/red true", "b/red true"]);
    assert_eq!(NAMESPACES.map(|namespace| maps.has_namespace(namespace)), [true, true, false]);

    put(&admin, "c", "more", "red").await;
    put(&admin, "a", "more", "red").await;
    admin.core_v1().config_maps("b").delete("red", &DeleteOptions::default()).await.unwrap();
    until("changes of both are heard of", || heard.lock().unwrap().len() == 2).await;
    heard.lock().unwrap().sort();
    assert_eq!(*heard.lock().unwrap(), ["-b/red", "a/more false"]);
    assert_eq!(names(&maps), "a/blue a/more a/red");
}

#[tokio::test]
async fn what_differs_for_a_namespace_or_a_kind() {
    let (admin, _) = server().await;
    for namespace in NAMESPACES {
        put(&admin, namespace, "blue", "blue").await;
        put(&admin, namespace, "red", "red").await;
    }
    // All others are all that are not named.
    let namespaces = Namespaces::from([(String::new(), team("blue")), ("a".to_owned(), team("red"))]);
    let only_b = Namespaces::from([("b".to_owned(), NamespaceOptions::default())]);
    let red = Some("metadata.name=red".to_owned());
    let own = InformerOptions { namespaces: Some(only_b), field_selector: red, ..InformerOptions::default() };
    let factory = SharedInformerFactory::for_client(&admin).namespaces(namespaces);
    let maps = factory.informer::<ConfigMap>();
    let of_kind = factory.informer_with::<ConfigMap>(ConfigMap::gvr(), own.clone());
    let again = factory.informer_with::<ConfigMap>(ConfigMap::gvr(), own);
    let one = InformerOptions { namespace: Some("c".to_owned()), ..InformerOptions::default() };
    let one = factory.informer_with::<ConfigMap>(ConfigMap::gvr(), one);
    // Namespaces mean nothing to kinds that live in none.
    let cluster = factory.informer::<Namespace>();
    factory.start();
    assert!(factory.wait_for_cache_sync().await);
    assert_eq!(names(&maps), "a/red b/blue c/blue");
    assert_eq!((names(&of_kind), names(&one)), ("b/red".to_owned(), "c/blue c/red".to_owned()));
    assert!(Arc::ptr_eq(of_kind.indexer(), again.indexer()));
    assert!(cluster.lister().get(&Key::new("", "a")).is_some() && cluster.has_namespace(""));
    assert!(maps.has_namespace("zzz") && !of_kind.has_namespace("a"));
}
