//! The metadata of all objects of all kinds, however kinds come and go.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use capstan_api::{
    GroupVersionKind, GroupVersionResource, Str, Unstructured,
    object::{Encoded, Identity, Object, ObjectError, OwnerReference, Scope},
    selector::Selector,
};
use capstan_client::{
    Api, Body, BoxFuture, Client, Error, HandlerFuncs, SharedIndexInformer, Transport,
    beat::{Either, race},
    factory::ListerWatchers as _,
    reflector::machine::Config,
};
use capstan_clock::{SharedClock, SharedIds};
use capstan_runtime::Stop;
use http::{HeaderValue, Method, Request, Response, header};
use tokio::sync::watch;

use crate::{
    discovery::{ApiResource, Discovery},
    shared::Owners,
};

/// How often the server is asked which kinds it has.
pub(crate) const RESYNC: Duration = Duration::from_secs(30);

/// How soon it is asked again while it has not answered once.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// How long the first lists may take before those who wait go on without them.
const INITIAL_SYNC_TIMEOUT: Duration = Duration::from_secs(30);

/// What objects have too many of, and nobody owns.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// As much of an object as is needed to know whom it belongs to and whether it goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectMetadata {
    pub(crate) name: Str,
    pub(crate) namespace: Str,
    pub(crate) uid: Arc<str>,
    pub(crate) resource_version: Str,
    /// Whether its deletion has been asked for.
    pub(crate) is_being_deleted: bool,
    pub(crate) finalizers: Box<[String]>,
    pub(crate) owner_references: Owners,
}

impl ObjectMetadata {
    pub(crate) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|own| own == finalizer)
    }
}

impl Object for ObjectMetadata {
    fn identity(&self) -> Identity<'_> {
        Identity {
            namespace: &self.namespace,
            name: &self.name,
            uid: &self.uid,
            resource_version: &self.resource_version,
        }
    }

    fn is_selected(&self, selector: &Selector) -> bool {
        // Labels are not kept.
        selector.is_everything()
    }

    fn owners(&self) -> Cow<'_, [OwnerReference]> {
        Cow::Borrowed(&self.owner_references)
    }

    fn decode_as(bytes: &[u8], gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        <Self as Object>::decode(Encoded::new(bytes), gvk)
    }

    fn decode(encoded: Encoded<'_>, gvk: Option<&GroupVersionKind>) -> Result<Self, ObjectError> {
        let object = <Unstructured as Object>::decode(encoded.without_managed_fields(), gvk)?;
        let deleted = object.nested_str(["metadata", "deletionTimestamp"]).ok().flatten();
        Ok(ObjectMetadata {
            name: object.name().into(),
            namespace: object.namespace().into(),
            uid: object.uid().into(),
            resource_version: object.resource_version().into(),
            is_being_deleted: deleted.is_some(),
            finalizers: object.finalizers().into(),
            owner_references: object.owner_references().into(),
        })
    }
}

/// Asks for metadata only, whatever is asked for.
struct AsMetadata(Client);

/// What asks for the metadata of an object only.
pub(crate) const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json");
const MANY: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json");

/// Whether the path is that of all objects of a kind, in a namespace or not.
fn is_collection(path: &str) -> bool {
    let mut parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts.drain(..parts.len().min(if path.starts_with("/apis/") { 3 } else { 2 }));
    parts.len() == 1 || (parts.len() == 3 && parts[0] == "namespaces")
}

impl Transport for AsMetadata {
    fn send(&self, mut request: Request<Bytes>) -> BoxFuture<'static, Result<Response<Body>, Error>> {
        let client = self.0.clone();
        let watches = request.uri().query().is_some_and(|query| query.split('&').any(|part| part == "watch=true"));
        if request.method() == Method::GET || request.method() == Method::PATCH {
            let many = is_collection(request.uri().path()) && !watches;
            request.headers_mut().insert(header::ACCEPT, if many { MANY } else { METADATA });
        }
        Box::pin(async move { client.send(request).await })
    }
}

/// A client whose answers have only metadata.
pub(crate) fn metadata_client(client: &Client) -> Client {
    Client::new(AsMetadata(client.clone()))
}

/// What happened to an object of any kind.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// It came, or changed.
    Set { old: Option<Arc<ObjectMetadata>>, new: Arc<ObjectMetadata> },
    /// It is gone.
    Gone(Arc<ObjectMetadata>),
}

type Subscriber = Arc<dyn Fn(&ApiResource, Change) + Send + Sync>;

struct Monitor {
    resource: Arc<ApiResource>,
    informer: SharedIndexInformer<ObjectMetadata>,
}

#[derive(Default)]
struct State {
    monitors: HashMap<GroupVersionResource, Monitor>,
    subscribers: Vec<Subscriber>,
}

/// One metadata-only informer for each kind that can be listed, watched and deleted.
///
/// It asks again and again which kinds there are. Subscribers hear of all objects, each subscriber at its own pace;
/// for one object in order, for objects of several kinds in no order.
pub struct MetadataInformers {
    whole: Client,
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    state: Mutex<State>,
    discovery: watch::Sender<Option<Arc<Discovery>>>,
    started: AtomicBool,
}

impl fmt::Debug for MetadataInformers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetadataInformers").field("kinds", &self.lock().monitors.len()).finish_non_exhaustive()
    }
}

impl MetadataInformers {
    /// Nothing is asked before somebody needs it.
    #[must_use]
    pub fn new(client: &Client, clock: SharedClock, ids: SharedIds) -> Arc<Self> {
        Arc::new(MetadataInformers {
            whole: client.clone(),
            client: metadata_client(client),
            clock,
            ids,
            state: Mutex::default(),
            discovery: watch::Sender::new(None),
            started: AtomicBool::new(false),
        })
    }

    /// What the server said last of its kinds.
    pub(crate) fn discovery(&self) -> Arc<Discovery> {
        self.discovery.borrow().clone().unwrap_or_default()
    }

    /// The objects of a resource live, of all namespaces when that is empty.
    pub(crate) fn api(&self, resource: &(GroupVersionResource, Scope), namespace: &str) -> Api<ObjectMetadata> {
        Api::of(&self.client, resource.0.clone(), resource.1, namespace)
    }

    /// The informer of a resource, if there is one.
    pub(crate) fn informer(&self, group: &str, resource: &str) -> Option<SharedIndexInformer<ObjectMetadata>> {
        let state = self.lock();
        let mut monitors = state.monitors.iter();
        let found = monitors.find(|(gvr, _)| &*gvr.group == group && &*gvr.resource == resource);
        found.map(|(_, monitor)| monitor.informer.clone())
    }

    /// Tells of all objects that there are and will be.
    pub(crate) fn subscribe(&self, subscriber: impl Fn(&ApiResource, Change) + Send + Sync + 'static) {
        let subscriber: Subscriber = Arc::new(subscriber);
        let mut state = self.lock();
        state.monitors.values().for_each(|monitor| monitor.tell(&subscriber));
        state.subscribers.push(subscriber);
    }

    /// Follows the server's kinds, in a task of its own, until it is time to stop. The second time nothing happens.
    pub(crate) fn start(self: &Arc<Self>, stop: &Stop) {
        if self.started.swap(true, Ordering::SeqCst) {
            return;
        }
        let (this, stop) = (Arc::clone(self), stop.clone());
        tokio::spawn(async move {
            while !stop.is_stopped() {
                let known = race(stop.stopped(), this.resync()).await;
                let known = matches!(known, Either::Second(true));
                let wait = if known || this.discovery.borrow().is_some() { RESYNC } else { FIRST_RETRY };
                race(stop.stopped(), this.clock.sleep(wait)).await;
            }
            this.lock().monitors.drain().for_each(|(_, monitor)| monitor.informer.shut_down());
        });
    }

    /// Asks which kinds there are and makes the informers fit. False when the server did not tell.
    async fn resync(&self) -> bool {
        let Ok(discovery) = Discovery::of(&self.whole).await else { return false };
        if discovery.preferred.is_empty() {
            return false;
        }
        let mut state = self.lock();
        let wanted: HashMap<_, _> = discovery
            .preferred
            .iter()
            .filter(|resource| resource.supports(&["delete", "list", "watch"]))
            .filter(|resource| !IGNORED.contains(&(&*resource.gvr.group, &*resource.gvr.resource)))
            .map(|resource| (&resource.gvr, resource))
            .collect();
        state.monitors.retain(|gvr, monitor| {
            // Whoever serves a group may only be away for a while.
            let stays = wanted.contains_key(gvr) || discovery.stale.contains(&gvr.group_version());
            if !stays {
                monitor.informer.shut_down();
            }
            stays
        });
        for (gvr, resource) in wanted {
            if !state.monitors.contains_key(gvr) {
                let monitor = self.monitor(resource);
                state.subscribers.iter().for_each(|subscriber| monitor.tell(subscriber));
                let informer = monitor.informer.clone();
                tokio::spawn(async move { informer.run().await });
                state.monitors.insert(gvr.clone(), monitor);
            }
        }
        drop(state);
        self.discovery.send_replace(Some(Arc::new(discovery)));
        true
    }

    fn monitor(&self, resource: &ApiResource) -> Monitor {
        let source = self.client.lister_watcher(&resource.gvr, "");
        let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
        let informer = SharedIndexInformer::new(source, Config::default(), clock, ids);
        Monitor { resource: Arc::new(resource.clone()), informer }
    }

    /// Waits until the objects of all kinds that were found first are known, but not for ever.
    pub(crate) async fn wait_for_sync(&self) -> bool {
        let all = async {
            let _ = self.discovery.subscribe().wait_for(Option::is_some).await;
            let informers: Vec<_> = self.lock().monitors.values().map(|monitor| monitor.informer.clone()).collect();
            for informer in informers {
                informer.wait_for_sync().await;
            }
        };
        race(all, self.clock.sleep(INITIAL_SYNC_TIMEOUT)).await;
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing foreign runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Monitor {
    fn tell(&self, subscriber: &Subscriber) {
        let with = |change: fn(&Subscriber, &ApiResource, Change)| {
            let (subscriber, resource) = (Arc::clone(subscriber), Arc::clone(&self.resource));
            move |what| change(&subscriber, &resource, what)
        };
        let (add, update, delete) = (with(call), with(call), with(call));
        self.informer.add_event_handler(
            HandlerFuncs::new()
                .on_add(move |new, _| add(Change::Set { old: None, new: Arc::clone(new) }))
                .on_update(move |old, new| update(Change::Set { old: Some(Arc::clone(old)), new: Arc::clone(new) }))
                .on_delete(move |gone| delete(Change::Gone(Arc::clone(gone.object())))),
        );
    }
}

fn call(subscriber: &Subscriber, resource: &ApiResource, change: Change) {
    subscriber(resource, change);
}
