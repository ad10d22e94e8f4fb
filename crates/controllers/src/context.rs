//! What all control loops share.

use std::{fmt, sync::Arc};

use capstan_client::{BoxFuture, Client, SharedInformerFactory};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::{EventRecorder, Stop};

use crate::{
    certificates::CertificateSigner,
    metadata::MetadataInformers,
    persistentvolume::LocalPath,
    queues::{Log, Queues},
};

/// What single loops need to know beside the cluster's objects.
#[derive(Clone, Default)]
pub struct ControllerOptions {
    /// The certificates of the authority that signs for the server, as PEM: what pods are to trust.
    pub root_ca: String,
    /// Signs the tokens of service accounts that live in Secrets.
    pub token_signer: Option<Arc<dyn TokenSigner>>,
    /// Signs certificates that were approved; without it none are.
    pub certificate_signer: Option<Arc<dyn CertificateSigner>>,
    /// Where volumes of the default storage class are.
    pub local_path: LocalPath,
    /// Hears of work that failed, and will be tried again.
    pub log: Option<Log>,
}

impl fmt::Debug for ControllerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ControllerOptions")
    }
}

/// Signs tokens.
pub trait TokenSigner: Send + Sync + 'static {
    /// The token with these claims, a JSON object.
    ///
    /// # Errors
    /// There is no key, or it does not fit.
    fn sign(&self, claims: &serde_json::Value) -> Result<String, String>;
}

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
    /// The metadata of all objects of all kinds.
    pub metadata: Arc<MetadataInformers>,
    /// What single loops need to know beside the cluster's objects.
    pub options: Arc<ControllerOptions>,
    /// The queues of the loops, for people to look at.
    pub queues: Queues,
}

impl ControllerContext {
    /// The usual: informers of all namespaces over the client.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock, ids: SharedIds, stop: Stop, options: ControllerOptions) -> Self {
        let source = Arc::new(client.clone());
        // No loop asks who manages which field, and it is often half of an object.
        let informers = SharedInformerFactory::new(source, Arc::clone(&clock), Arc::clone(&ids));
        ControllerContext {
            informers: Arc::new(informers.without_managed_fields()),
            metadata: MetadataInformers::new(&client, Arc::clone(&clock), Arc::clone(&ids)),
            client,
            clock,
            ids,
            stop,
            options: Arc::new(options),
            queues: Queues::default(),
        }
    }

    /// Who tells of what happens, in the name of a component.
    pub(crate) fn recorder(&self, component: &str) -> EventRecorder {
        EventRecorder::new(&self.client, component, Arc::clone(&self.clock), Arc::clone(&self.ids))
    }
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
