//! client-go for Rust: clients of a Kubernetes server, and what keeps a copy of its objects up to date.
//!
//! A [`Client`] sends requests over a [`Transport`]: to the server of a kubeconfig or of the pod's cluster (feature
//! `kube`), to a server in this process ([`Client::from_service`]), or through a `kube::Client`. On top of it:
//!
//! | for | is |
//! |---|---|
//! | the verbs on one kind | [`Api`]; with the feature `k8s-openapi` also `client.core_v1().pods("default")` |
//! | kinds without a Rust type, or their metadata alone | [`Client::resource`], [`Client::metadata`] |
//! | requests put together by hand | [`RESTClient`] |
//! | what a server serves, and what a user means by `deploy` | [`DiscoveryClient`], [`DeferredRESTMapper`] |
//! | scales, logs, commands, ports | [`Api::scales`], [`stream`] |
//! | a copy that follows the server, and handlers | [`SharedInformerFactory`], [`Lister`] |
//!
//! An event travels from a [`ListerWatcher`] through the [`Reflector`](reflector::Reflector) into the
//! [`DeltaFIFO`](delta_fifo::DeltaFIFO), which keeps one entry a key; from there into the
//! [`Indexer`](store::Indexer), which is up to date before anybody is told, and on to the handlers of a
//! [`SharedIndexInformer`], each at its own pace. [`Lister`]s read the indexer. All waiting is on the injected clock.
//!
//! Not for: deciding what to do about an event (`capstan-runtime` does). Reflectors and informers know nothing of
//! clients: whoever can list and watch can be a source.
//!
//! # Reading and writing
//!
//! `Client::from_default_config()` looks into `KUBECONFIG`, `~/.kube/config` and the pod, in that order. Here it is a
//! server in this process instead, and nothing else changes:
//!
//! ```
//! # async fn server() -> capstan_client::Client {
//! #     use capstan_server::{Config, Server, authorization::UserInfo};
//! #     let store = capstan_storage::Memory::new(capstan_storage::Options::default());
//! #     let server = Server::start(std::sync::Arc::new(store), Config::default()).await.unwrap();
//! #     capstan_client::Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])))
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), capstan_client::Error> {
//! use capstan_api::{Resource, options::DeleteOptions};
//! use capstan_client::retry_on_conflict;
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! let client = server().await;
//! let maps = client.core_v1().config_maps("default");
//!
//! let mut map = ConfigMap::default();
//! map.metadata.name = Some("settings".into());
//! maps.create(&map).await?;
//!
//! retry_on_conflict(|| async {
//!     let mut map = maps.get("settings").await?;              // read anew each time
//!     map.labels_mut().insert("team".into(), "blue".into());
//!     maps.update(&map).await
//! })
//! .await?;
//!
//! assert!(maps.get("nobody").await.is_err_and(|error| error.is_not_found()));
//! maps.delete("settings", &DeleteOptions::default()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Watching
//!
//! ```
//! # async fn server() -> capstan_client::Client {
//! #     use capstan_server::{Config, Server, authorization::UserInfo};
//! #     let store = capstan_storage::Memory::new(capstan_storage::Options::default());
//! #     let server = Server::start(std::sync::Arc::new(store), Config::default()).await.unwrap();
//! #     capstan_client::Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])))
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), capstan_client::Error> {
//! use capstan_api::{Resource, options::ListOptions};
//! use capstan_client::Event;
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! let maps = server().await.core_v1().config_maps("default");
//! let now = maps.list(&ListOptions::default()).await?.resource_version;
//! let from_now = ListOptions { resource_version: now, allow_watch_bookmarks: true, ..ListOptions::default() };
//! let mut events = maps.watch(&from_now).await?;
//! # let mut map = ConfigMap::default();
//! # map.metadata.name = Some("settings".into());
//! # maps.create(&map).await?;
//! # maps.delete("settings", &Default::default()).await?;
//! while let Some(event) = events.try_next().await? {
//!     match event {
//!         Event::Added(map) | Event::Modified(map) => println!("{}", map.name()),
//!         Event::Deleted(map) => {
//!             println!("{} is gone", map.name());
//!             break;
//!         }
//!         Event::Bookmark(version) => println!("up to {version}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Informers
//!
//! ```
//! # async fn server() -> capstan_client::Client {
//! #     use capstan_server::{Config, Server, authorization::UserInfo};
//! #     let store = capstan_storage::Memory::new(capstan_storage::Options::default());
//! #     let server = Server::start(std::sync::Arc::new(store), Config::default()).await.unwrap();
//! #     capstan_client::Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])))
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use capstan_api::Resource;
//! use capstan_client::{HandlerFuncs, SharedInformerFactory};
//! use k8s_openapi::api::core::v1::Namespace;
//!
//! let client = server().await;
//! let factory = SharedInformerFactory::for_client(&client).without_managed_fields();
//! let namespaces = factory.informer::<Namespace>();           // asked twice, still one watch
//! let handler = namespaces.add_event_handler(
//!     HandlerFuncs::<Namespace>::new()
//!         .on_add(|namespace, _initial| println!("add {}", namespace.name()))
//!         .on_update(|_old, new| println!("update {}", new.name()))
//!         .on_delete(|gone| println!("delete {}", gone.object().name())),
//! );
//! factory.start();
//! assert!(factory.wait_for_cache_sync().await);
//! handler.wait_for_sync().await;
//! for namespace in namespaces.lister().list(&"!team".parse()?) {
//!     println!("{}", namespace.name());                       // an Arc: shared, so not yours to change
//! }
//! # assert!(namespaces.lister().get(&capstan_client::Key::new("", "default")).is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Any kind, without its type
//!
//! ```
//! # async fn server() -> capstan_client::Client {
//! #     use capstan_server::{Config, Server, authorization::UserInfo};
//! #     let store = capstan_storage::Memory::new(capstan_storage::Options::default());
//! #     let server = Server::start(std::sync::Arc::new(store), Config::default()).await.unwrap();
//! #     capstan_client::Client::from_service(server.as_user(UserInfo::new("admin", ["system:masters"])))
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use capstan_api::{GroupVersionResource, Unstructured};
//! use capstan_client::wait::conditions;
//!
//! let client = server().await;
//! let crds = client.resource(GroupVersionResource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions"));
//! crds.create(&Unstructured::decode(
//!     br#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ats.example.com"},
//!          "spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"ats","kind":"At"},"versions":[
//!            {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{
//!              "spec":{"type":"object","properties":{"schedule":{"type":"string"}}}}}}}]}}"#,
//! )?)
//! .await?;
//! crds.wait_for("ats.example.com", |crd: Option<&Unstructured>| {
//!     crd.is_some_and(|crd| crd.to_string().contains("\"type\":\"Established\""))
//! })
//! .await?;
//!
//! let ats = client.resource(GroupVersionResource::new("example.com", "v1", "ats")).namespace("default");
//! let at = br#"{"apiVersion":"example.com/v1","kind":"At","metadata":{"name":"x"},"spec":{"schedule":"soon"}}"#;
//! ats.create(&Unstructured::decode(at)?).await?;
//! let at = ats.wait_for("x", conditions::exists()).await?.unwrap();
//! assert_eq!(at.nested_str(["spec", "schedule"])?, Some("soon")); // an error would name the path and what is there
//! # Ok(())
//! # }
//! ```

mod api;
pub mod beat;
mod client;
#[cfg(feature = "k8s-openapi")]
pub mod clientset;
#[cfg(feature = "kube")]
pub mod config;
pub mod delta_fifo;
pub mod discovery;
mod error;
#[cfg(feature = "k8s-openapi")]
pub mod expansion;
pub mod factory;
mod failure;
#[cfg(feature = "kube")]
mod gzip;
pub mod informer;
mod kept;
mod key;
pub mod list_watch;
mod lister;
#[cfg(feature = "kube")]
pub mod network;
mod query;
pub mod rate;
pub mod reflector;
pub mod rest;
pub mod retry;
#[cfg(feature = "kube")]
mod rotated;
pub mod scale;
pub mod store;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod wait;
mod warning;
pub mod watch;

pub use api::{Api, ObjectList, PAGE_SIZE, Patch};
pub use client::{Client, MAX_RETRIES};
#[cfg(feature = "kube")]
pub use config::{Config, ConfigError, ExplicitConfig};
pub use discovery::{CachedDiscovery, DeferredRESTMapper, DiscoveryClient};
pub use error::Error;
pub use factory::{InformerOptions, NamespaceOptions, Namespaces, SharedInformerFactory};
pub use informer::{Change, Deleted, HandlerFuncs, Registration, ResourceEventHandler, SharedIndexInformer};
pub use kept::Kept;
pub use key::Key;
pub use list_watch::{BoxFuture, ListPage, ListerWatcher, Watch, WatchStream};
pub use lister::{Lister, NamespaceLister};
pub use rest::RESTClient;
pub use retry::retry_on_conflict;
pub use transport::{Body, Transport};
pub use warning::{Warning, WarningHandler};
pub use watch::{Event, TypedWatch};
