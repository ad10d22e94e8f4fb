//! The main flows of a client, against our server over the network and, where one is named, against upstream's.
//!
//! `CAPSTAN_UPSTREAM_KUBECONFIG` names the kubeconfig of a kube-apiserver; without it that half is skipped, and says so.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use capstan_api::{
    GroupVersionResource, Resource as _, Unstructured,
    options::{DeleteOptions, ListOptions},
};
use capstan_client::{
    Client, Config, DeferredRESTMapper, Event, HandlerFuncs, Patch, SharedInformerFactory, retry_on_conflict,
    wait::conditions,
};
use capstan_clock::RealClock;
use capstan_server::{Server, authentication, authorization::UserInfo, serve};
use capstan_storage::{Memory, Options};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};

const NAMESPACE: &str = "capstan-client-flows";

async fn flows(client: &Client) {
    let version = client.discovery().server_version().await.unwrap();
    println!("{} {}.{}", version.git_version, version.major, version.minor);

    let namespaces = client.core_v1().namespaces();
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.to_owned());
    if let Err(error) = namespaces.create(&namespace).await {
        assert!(error.is_already_exists(), "{error}");
    }

    // What an informer hears is what a client does.
    let factory = SharedInformerFactory::for_client(client).namespace(NAMESPACE).without_managed_fields();
    let informer = factory.informer::<ConfigMap>();
    let heard: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (added, deleted) = (Arc::clone(&heard), Arc::clone(&heard));
    let name = |map: &ConfigMap| map.name().to_owned();
    informer.add_event_handler(
        HandlerFuncs::new()
            .on_add(move |map: &Arc<ConfigMap>, _| added.lock().unwrap().extend([name(map)]))
            .on_delete(move |gone| deleted.lock().unwrap().retain(|known| *known != name(gone.object()))),
    );
    factory.start();
    assert!(factory.wait_for_cache_sync().await);

    let maps = client.core_v1().config_maps(NAMESPACE);
    maps.delete_collection(&DeleteOptions::default(), &ListOptions::default()).await.unwrap();
    let from = ListOptions {
        resource_version: maps.list_all(&ListOptions::default()).await.unwrap().resource_version,
        allow_watch_bookmarks: true,
        ..ListOptions::default()
    };
    let mut watch = maps.watch(&from).await.unwrap();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("one".to_owned());
    map.data = Some([("a".to_owned(), "1".to_owned())].into());
    let created = maps.create(&map).await.unwrap();
    assert!(maps.create(&map).await.unwrap_err().is_already_exists());
    loop {
        if let Event::Added(seen) = watch.try_next().await.unwrap().unwrap() {
            assert_eq!(seen, created);
            break;
        }
    }
    maps.patch("one", &Patch::Merge(serde_json::json!({"data": {"b": "2"}}))).await.unwrap();
    assert!(maps.update(&created).await.unwrap_err().is_conflict());
    let written = retry_on_conflict(|| async {
        let mut map = maps.get("one").await?;
        map.labels_mut().insert("patch".into(), "v1".into());
        maps.update(&map).await
    })
    .await
    .unwrap();
    assert_eq!((written.data.unwrap().len(), written.metadata.labels.unwrap().len()), (2, 1));
    let applied = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "3"}});
    assert!(maps.apply("one", "me", false, &applied).await.unwrap_err().is_conflict());
    maps.apply("one", "me", true, &applied).await.unwrap();
    let seen = informer.clone();
    eventually("the informer sees what was applied", || {
        let map = seen.lister().namespace(NAMESPACE).get("one");
        map.is_some_and(|map| map.data.as_ref().is_some_and(|data| data["a"] == "3"))
    })
    .await;
    let known = informer.lister().namespace(NAMESPACE).get("one").unwrap();
    assert!(known.metadata.managed_fields.is_none());
    // One that keeps its objects packed has the same, from protobuf and from JSON.
    for protobuf in [true, false] {
        let client = client.with_protobuf(protobuf);
        let factory = SharedInformerFactory::for_client(&client).namespace(NAMESPACE).without_managed_fields();
        let packed = factory.informer::<ConfigMap>();
        packed.compact();
        factory.start();
        assert!(factory.wait_for_cache_sync().await);
        assert_eq!(packed.lister().namespace(NAMESPACE).get("one").unwrap(), known);
        assert!(format!("{:?}", packed.indexer().kept(&format!("{NAMESPACE}/one"))).contains("Packed"));
    }
    maps.delete("one", &DeleteOptions::default()).await.unwrap();
    let uid = created.metadata.uid.clone().unwrap();
    maps.wait_for("one", conditions::is_deleted(&uid)).await.unwrap();
    eventually("the handler hears of the end", || !heard.lock().unwrap().contains("one")).await;
    factory.shut_down();

    // A kind that comes to be, by the dynamic client.
    let crds = client.resource(GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"));
    let text = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
        "metadata":{"name":"ats.flows.example.com"},"spec":{"group":"flows.example.com","scope":"Namespaced",
        "names":{"plural":"ats","kind":"At"},"versions":[{"name":"v1","served":true,"storage":true,
        "schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
    if let Err(error) = crds.create(&Unstructured::decode(text.as_bytes()).unwrap()).await {
        assert!(error.is_already_exists(), "{error}");
    }
    crds.wait_for("ats.flows.example.com", |crd: Option<&Unstructured>| {
        crd.is_some_and(|crd| crd.to_string().contains(r#""type":"Established""#))
    })
    .await
    .unwrap();
    let mapper = DeferredRESTMapper::new(client.discovery().cached());
    let mapping = loop {
        match mapper.mapping_for("ats.flows.example.com").await {
            Ok(mapping) => break mapping,
            Err(error) => assert!(error.is_no_match(), "{error}"),
        }
        mapper.reset();
        tokio::task::yield_now().await;
    };
    let ats = client.resource(mapping.resource).namespace(NAMESPACE);
    drop(ats.delete("x", &DeleteOptions::default()).await);
    let text = r#"{"apiVersion":"flows.example.com/v1","kind":"At","metadata":{"name":"x"},"spec":{"n":1}}"#;
    let at = ats.create(&Unstructured::decode(text.as_bytes()).unwrap()).await.unwrap();
    assert_eq!(at.nested_i64(["spec", "n"]).unwrap(), Some(1));
    crds.delete("ats.flows.example.com", &DeleteOptions::default()).await.unwrap();

    // Larger objects in protobuf, as they are in JSON.
    let (protobuf, json) = (client.with_protobuf(true), client.with_protobuf(false));
    let all = ListOptions::default();
    assert_eq!(
        protobuf.rbac_v1().cluster_roles().list(&all).await.unwrap().items,
        json.rbac_v1().cluster_roles().list(&all).await.unwrap().items
    );
    let mut pod = Pod::default();
    pod.metadata.name = Some("web".to_owned());
    let spec = r#"{"containers":[{"name":"c","image":"busybox","ports":[{"containerPort":80}],
        "resources":{"limits":{"cpu":"100m","memory":"64Mi"}},"livenessProbe":{"httpGet":{"port":"http"}}}],
        "automountServiceAccountToken":false,"enableServiceLinks":false}"#;
    pod.spec = serde_json::from_str(spec).unwrap();
    let options = capstan_api::options::CreateOptions { dry_run: vec!["All".into()], ..Default::default() };
    let pods = |client: &Client| client.core_v1().pods(NAMESPACE);
    match pods(&protobuf).create_with(&pod, &options).await {
        Ok(mut one) => {
            let mut other = pods(&json).create_with(&pod, &options).await.unwrap();
            for pod in [&mut one, &mut other] {
                (pod.metadata.uid, pod.metadata.creation_timestamp, pod.metadata.managed_fields) = (None, None, None);
            }
            assert_eq!(one, other);
        }
        // Without controllers nobody makes the account that pods run as.
        Err(error) => assert!(error.is_forbidden(), "{error}"),
    }
}

/// How often others get a turn before it counts as never.
const PATIENCE: usize = 2_000_000;

async fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..PATIENCE {
        if condition() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_our_server() {
    let mut tokens = authentication::StaticTokens::default();
    tokens.insert("a-token", UserInfo::new("admin", ["system:masters"]));
    let authentication = authentication::Config { static_tokens: Some(tokens), ..authentication::Config::default() };
    let config = capstan_server::Config { authentication, ..capstan_server::Config::default() };
    let server = Server::start(Arc::new(Memory::new(Options::default())), config).await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!("http://{}", listener.local_addr().unwrap());
    let clock = Arc::new(RealClock::new());
    let _handle = serve::serve(vec![listener], None, server, serve::Limits::default(), clock).unwrap();
    let explicit = capstan_client::ExplicitConfig { host, bearer_token: "a-token".into(), ..Default::default() };
    flows(&Client::from_config(&Config::explicit(&explicit).await.unwrap()).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_upstream() {
    let Some(kubeconfig) = std::env::var_os("CAPSTAN_UPSTREAM_KUBECONFIG") else {
        println!("skipped: CAPSTAN_UPSTREAM_KUBECONFIG names no kubeconfig of a kube-apiserver");
        return;
    };
    flows(&Client::from_kubeconfig(kubeconfig, None).await.unwrap()).await;
}
