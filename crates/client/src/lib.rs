//! client-go for Rust: what keeps a copy of the cluster's objects up to date, and those who look at it informed.
//!
//! An event travels from a [`ListerWatcher`] through the [`Reflector`](reflector::Reflector) into the
//! [`DeltaFIFO`](delta_fifo::DeltaFIFO), which keeps one entry a key; from there into the
//! [`Indexer`](store::Indexer), which is up to date before anybody is told, and on to the handlers of a
//! [`SharedIndexInformer`], each at its own pace. [`Lister`]s read the indexer. All waiting is on the injected clock.
//!
//! A [`Client`] sends requests over a [`Transport`] (a server in this process is one), an [`Api`] has the verbs on the
//! objects of one kind.
//!
//! Not for: deciding what to do about an event (`capstan-runtime` does). Reflectors and informers know nothing of
//! clients: whoever can list and watch can be a source.

mod api;
pub mod beat;
mod client;
#[cfg(feature = "kube")]
pub mod config;
pub mod delta_fifo;
mod error;
pub mod factory;
pub mod informer;
mod key;
pub mod list_watch;
mod lister;
#[cfg(feature = "kube")]
pub mod network;
mod query;
pub mod reflector;
pub mod store;
#[cfg(test)]
mod testing;
pub mod transport;
pub mod watch;

pub use api::{Api, ObjectList, Patch};
pub use client::Client;
#[cfg(feature = "kube")]
pub use config::{Config, ConfigError, ExplicitConfig};
pub use error::Error;
pub use factory::SharedInformerFactory;
pub use informer::{Deleted, HandlerFuncs, Registration, ResourceEventHandler, SharedIndexInformer};
pub use key::Key;
pub use list_watch::{BoxFuture, ListPage, ListerWatcher, Watch, WatchStream};
pub use lister::{Lister, NamespaceLister};
pub use transport::{Body, Transport};
pub use watch::{Event, TypedWatch};
