//! One informer for each kind, however many ask for it.

use std::{
    any::{Any, TypeId},
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_api::{
    GroupVersionResource, Resource, Scope, Unstructured, builtin, object::Object, partial::PartialObjectMetadata,
};
use capstan_clock::{SharedClock, SharedIds};

use crate::{
    Client, ListerWatcher, SharedIndexInformer,
    informer::{AnyInformer, Part, Territory},
    reflector::{ReflectorError, machine::Config},
};

/// Knows how to list and watch any resource.
pub trait ListerWatchers: fmt::Debug + Send + Sync + 'static {
    /// What lists and watches a resource in a namespace, or in all of them when that is empty, as it is for kinds that
    /// live in none.
    fn lister_watcher(&self, resource: &GroupVersionResource, namespace: &str) -> Arc<dyn ListerWatcher>;

    /// The same for their metadata alone. Who knows nothing better brings whole objects.
    fn metadata_lister_watcher(&self, resource: &GroupVersionResource, namespace: &str) -> Arc<dyn ListerWatcher> {
        self.lister_watcher(resource, namespace)
    }
}

/// Which objects an informer is about, where that differs from its factory's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct InformerOptions {
    /// Only those of this namespace.
    pub namespace: Option<String>,
    /// Only those of these namespaces, which are listed and watched one by one. Counts where `namespace` is not given.
    pub namespaces: Option<Namespaces>,
    /// Only those with such labels.
    pub label_selector: Option<String>,
    /// Only those with such fields.
    pub field_selector: Option<String>,
}

/// Namespaces, and which of their objects. The empty one stands for all that are not named.
pub type Namespaces = BTreeMap<String, NamespaceOptions>;

/// Which objects of a namespace, where that differs from those of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NamespaceOptions {
    /// Only those with such labels.
    pub label_selector: Option<String>,
    /// Only those with such fields.
    pub field_selector: Option<String>,
}

/// What one part of an informer lists and watches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    /// Empty for all.
    namespace: String,
    territory: Territory,
    label_selector: String,
    field_selector: String,
}

/// What tells informers apart: what they list and watch, and as what they keep it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InformerKey {
    resource: GroupVersionResource,
    scope: Scope,
    parts: Vec<Wanted>,
    of: TypeId,
}

struct Entry {
    informer: AnyInformer,
    /// The same, a `SharedIndexInformer` of its type.
    typed: Arc<dyn Any + Send + Sync>,
    started: bool,
}

impl Entry {
    fn new<K: Object>(parts: Vec<Part>, clock: SharedClock, ids: SharedIds, resync: Option<Duration>) -> Self {
        let typed = SharedIndexInformer::<K>::with_parts(parts, clock, ids, resync);
        Entry { informer: AnyInformer::clone(&typed), typed: Arc::new(typed), started: false }
    }
}

/// What is so of the informers of one resource as one type: which objects, and what else is to be done to each.
struct Own {
    options: InformerOptions,
    setup: Setup,
}

/// Does something to an informer of any type.
type Setup = Box<dyn Fn(&dyn Any) + Send + Sync>;

type OnError = Arc<dyn Fn(&GroupVersionResource, &ReflectorError) + Send + Sync>;

/// Makes informers, and makes each only once: who asks twice for a kind gets the same one.
///
/// Dropping it shuts down what it has started.
pub struct SharedInformerFactory {
    source: Arc<dyn ListerWatchers>,
    clock: SharedClock,
    ids: SharedIds,
    config: Config,
    namespaces: Namespaces,
    resync: Option<Duration>,
    on_error: Option<OnError>,
    own: HashMap<(GroupVersionResource, TypeId), Own>,
    informers: Mutex<HashMap<InformerKey, Entry>>,
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactory").field("source", &self.source).finish_non_exhaustive()
    }
}

impl SharedInformerFactory {
    /// A factory for all namespaces.
    pub fn new(source: Arc<dyn ListerWatchers>, clock: SharedClock, ids: SharedIds) -> Self {
        SharedInformerFactory {
            source,
            clock,
            ids,
            config: Config::default(),
            namespaces: everywhere(),
            resync: None,
            on_error: None,
            own: HashMap::new(),
            informers: Mutex::default(),
        }
    }

    /// A factory for all namespaces on what a client reaches, and on its clock.
    #[must_use]
    pub fn for_client(client: &Client) -> Self {
        let (clock, ids) = (Arc::clone(client.clock()), Arc::clone(client.ids()));
        SharedInformerFactory::new(Arc::new(client.clone()), clock, ids)
    }

    /// Only this namespace. Kinds that live in none are there all the same.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.namespaces(Namespaces::from([(namespace.to_owned(), NamespaceOptions::default())]))
    }

    /// Only these namespaces, each listed and watched by itself, as an account needs it that may read some and not all.
    /// Who reads an informer sees all of them together. None at all are all of them.
    #[must_use]
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.namespaces = if namespaces.is_empty() { everywhere() } else { namespaces };
        self
    }

    /// How to ask: selectors for instance.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Without who manages which fields: often half of an object, and seldom looked at. It is not even decoded.
    #[must_use]
    pub fn without_managed_fields(mut self) -> Self {
        self.config.no_managed_fields = true;
        self
    }

    /// How often handlers hear of all objects again, if they do not say.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// What differs for one resource, as one type: which objects, for those who do not say, and what `setup` does to
    /// its informers before anybody has them, such as setting a transform, keeping them compact, or adding indices.
    #[must_use]
    pub fn with_own<K: Object>(
        mut self,
        resource: GroupVersionResource,
        options: InformerOptions,
        setup: impl Fn(&SharedIndexInformer<K>) + Send + Sync + 'static,
    ) -> Self {
        let setup = Box::new(move |informer: &dyn Any| informer.downcast_ref().map_or((), &setup));
        self.own.insert((resource, TypeId::of::<K>()), Own { options, setup });
        self
    }

    /// Tells of the failures of all informers, and of which resource they are, unless one has a handler of its own.
    #[must_use]
    pub fn on_watch_error(
        mut self,
        handler: impl Fn(&GroupVersionResource, &ReflectorError) + Send + Sync + 'static,
    ) -> Self {
        self.on_error = Some(Arc::new(handler));
        self
    }

    /// The informer of a type.
    pub fn informer<K: Object + Resource>(&self) -> SharedIndexInformer<K> {
        self.informer_scoped(K::gvr(), K::SCOPE)
    }

    /// The informer of any resource, without its type.
    pub fn for_resource(&self, resource: GroupVersionResource) -> SharedIndexInformer<Unstructured> {
        self.informer_of(resource)
    }

    /// The informer of the metadata alone of any resource.
    pub fn for_metadata(&self, resource: GroupVersionResource) -> SharedIndexInformer<PartialObjectMetadata> {
        self.informer_of(resource)
    }

    /// The informer of a resource, whose objects are read as `K`.
    pub fn informer_of<K: Object>(&self, resource: GroupVersionResource) -> SharedIndexInformer<K> {
        self.informer_with(resource, InformerOptions::default())
    }

    /// The same, for those who know where its objects live.
    pub fn informer_scoped<K: Object>(&self, resource: GroupVersionResource, scope: Scope) -> SharedIndexInformer<K> {
        self.typed(resource, Some(scope), InformerOptions::default())
    }

    /// The informer of a part of the objects of a resource. For each part there is one.
    ///
    /// Resources that are neither built in nor known to this factory already are taken to live in namespaces.
    pub fn informer_with<K: Object>(
        &self,
        resource: GroupVersionResource,
        options: InformerOptions,
    ) -> SharedIndexInformer<K> {
        self.typed(resource, None, options)
    }

    fn typed<K: Object>(
        &self,
        resource: GroupVersionResource,
        scope: Option<Scope>,
        options: InformerOptions,
    ) -> SharedIndexInformer<K> {
        let informer = self.made(TypeId::of::<K>(), Entry::new::<K>, resource, scope, options);
        informer.downcast_ref().cloned().expect("the type is part of the key")
    }

    /// The informer of objects of a type, made like this if there is none.
    fn made(
        &self,
        of: TypeId,
        make: fn(Vec<Part>, SharedClock, SharedIds, Option<Duration>) -> Entry,
        resource: GroupVersionResource,
        scope: Option<Scope>,
        mut options: InformerOptions,
    ) -> Arc<dyn Any + Send + Sync> {
        let mut informers = self.lock();
        let scope = scope.unwrap_or_else(|| {
            let in_cluster = builtin::resource(&resource).is_some_and(|row| !row.namespaced)
                || informers.keys().any(|key| key.resource == resource && key.scope == Scope::Cluster);
            if in_cluster { Scope::Cluster } else { Scope::Namespaced }
        });
        let own = self.own.get(&(resource.clone(), of));
        if let Some(Own { options: own, .. }) = own {
            let own = own.clone();
            if options.namespace.is_none() && options.namespaces.is_none() {
                (options.namespace, options.namespaces) = (own.namespace, own.namespaces);
            }
            options.label_selector = options.label_selector.or(own.label_selector);
            options.field_selector = options.field_selector.or(own.field_selector);
        }
        let new = |key: &InformerKey| {
            let parts = key.parts.iter().map(|wanted| self.part(&key.resource, of, wanted)).collect();
            let (clock, ids) = (Arc::clone(&self.clock), Arc::clone(&self.ids));
            let entry = make(parts, clock, ids, self.resync);
            if let Some(on_error) = self.on_error.clone() {
                let resource = key.resource.clone();
                entry.informer.set_watch_error_handler(Arc::new(move |error| on_error(&resource, error)));
            }
            if let Some(own) = own {
                (own.setup)(&*entry.typed);
            }
            entry
        };
        let key = InformerKey { resource, scope, parts: self.wanted(scope, options), of };
        Arc::clone(&informers.entry(key.clone()).or_insert_with(|| new(&key)).typed)
    }

    /// What an informer with these options lists and watches, one by one. What is said of a namespace comes first, then
    /// what is said of the kind, then what is said of all.
    fn wanted(&self, scope: Scope, options: InformerOptions) -> Vec<Wanted> {
        let InformerOptions { namespace, namespaces, label_selector, field_selector } = options;
        let namespaces = match (scope, namespace, namespaces.filter(|namespaces| !namespaces.is_empty())) {
            (Scope::Cluster, ..) => everywhere(),
            (_, Some(namespace), _) => Namespaces::from([(namespace, NamespaceOptions::default())]),
            (_, None, namespaces) => namespaces.unwrap_or_else(|| self.namespaces.clone()),
        };
        let named: BTreeSet<String> = namespaces.keys().filter(|namespace| !namespace.is_empty()).cloned().collect();
        let part = |(namespace, of): (String, NamespaceOptions)| {
            let labels = of.label_selector.or_else(|| label_selector.clone());
            let fields = of.field_selector.or_else(|| field_selector.clone());
            let mut fields = fields.unwrap_or_else(|| self.config.field_selector.clone());
            let territory = match namespace.is_empty() {
                true => Territory::AllBut(named.clone()),
                false => Territory::Only(namespace.clone()),
            };
            if let Territory::AllBut(others) = &territory {
                let others = others.iter().map(|other| format!("metadata.namespace!={other}"));
                let all = Some(fields).filter(|fields| !fields.is_empty()).into_iter().chain(others);
                fields = all.collect::<Vec<_>>().join(",");
            }
            let label_selector = labels.unwrap_or_else(|| self.config.label_selector.clone());
            Wanted { namespace, territory, label_selector, field_selector: fields }
        };
        namespaces.into_iter().map(part).collect()
    }

    fn part(&self, resource: &GroupVersionResource, of: TypeId, wanted: &Wanted) -> Part {
        let Wanted { namespace, territory, label_selector, field_selector } = wanted.clone();
        let source = match of == TypeId::of::<PartialObjectMetadata>() {
            true => self.source.metadata_lister_watcher(resource, &namespace),
            false => self.source.lister_watcher(resource, &namespace),
        };
        Part { source, config: Config { label_selector, field_selector, ..self.config.clone() }, territory }
    }

    /// Starts, in tasks on the caller's runtime, the informers that have not been started.
    pub fn start(&self) {
        for entry in self.lock().values_mut() {
            if !std::mem::replace(&mut entry.started, true) {
                let informer = entry.informer.clone();
                tokio::spawn(async move { informer.run().await });
            }
        }
    }

    /// Waits until the stores of all informers that were started have all of their first lists. False when one was shut
    /// down before.
    pub async fn wait_for_cache_sync(&self) -> bool {
        let started: Vec<_> =
            self.lock().values().filter(|entry| entry.started).map(|entry| entry.informer.clone()).collect();
        let mut all = true;
        for informer in started {
            all &= informer.wait_for_sync().await;
        }
        all
    }

    /// The resources whose informers were started and do not have all of their first lists yet.
    #[must_use]
    pub fn unsynced(&self) -> BTreeSet<GroupVersionResource> {
        let informers = self.lock();
        let waiting = informers.iter().filter(|(_, entry)| entry.started && !entry.informer.has_synced());
        waiting.map(|(key, _)| key.resource.clone()).collect()
    }

    /// Ends all informers.
    pub fn shut_down(&self) {
        self.lock().values().for_each(|entry| entry.informer.shut_down());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<InformerKey, Entry>> {
        // A source that panics leaves no entry behind.
        self.informers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedInformerFactory {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// All namespaces.
fn everywhere() -> Namespaces {
    Namespaces::from([(String::new(), NamespaceOptions::default())])
}
