//! client-go for Rust: what keeps a copy of the cluster's objects up to date, and those who look at it informed.
//!
//! An event travels from a [`ListerWatcher`] through the [`Reflector`](reflector::Reflector) into the
//! [`DeltaFIFO`](delta_fifo::DeltaFIFO), which keeps one entry a key; from there into the
//! [`Indexer`](store::Indexer), which is up to date before anybody is told, and on to the handlers of a
//! [`SharedIndexInformer`], each at its own pace. [`Lister`]s read the indexer. All waiting is on the injected clock.
//!
//! Not for: deciding what to do about an event (`capstan-runtime` does), and nothing here knows of sockets: whoever can
//! list and watch can be a source.

pub mod beat;
pub mod delta_fifo;
mod error;
pub mod factory;
pub mod informer;
mod key;
pub mod list_watch;
mod lister;
pub mod reflector;
pub mod store;
#[cfg(test)]
mod testing;

pub use error::Error;
pub use factory::SharedInformerFactory;
pub use informer::{Deleted, HandlerFuncs, Registration, ResourceEventHandler, SharedIndexInformer};
pub use key::Key;
pub use list_watch::{BoxFuture, ListPage, ListerWatcher, Watch, WatchStream};
pub use lister::{Lister, NamespaceLister};
