//! What all control loops share.

use std::{fmt, sync::Arc};

use capstan_client::{BoxFuture, Client, SharedInformerFactory};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::Stop;

/// What all control loops share: one client, one informer for each kind, one clock.
#[derive(Clone)]
pub struct ControllerContext {
    /// Writes, and reads what no informer has.
    pub client: Client,
    /// One informer for each kind. Loops ask for theirs before the factory is started.
    pub informers: Arc<SharedInformerFactory>,
    /// The time.
    pub clock: SharedClock,
    /// Names and identities.
    pub ids: SharedIds,
    /// When to end.
    pub stop: Stop,
}

impl fmt::Debug for ControllerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerContext").field("client", &self.client).finish_non_exhaustive()
    }
}

/// A control loop as the table has it.
#[derive(Clone, Copy)]
pub struct Descriptor {
    /// Upstream's name: `replicaset-controller`.
    pub name: &'static str,
    /// Whether it runs unless it is asked not to.
    pub on_by_default: bool,
    /// Asks for its informers at once, and gives what works until the context says stop.
    pub run: fn(&ControllerContext) -> BoxFuture<'static, ()>,
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
