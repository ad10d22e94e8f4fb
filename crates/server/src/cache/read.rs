//! GET and LIST: a state not older than asked for, and what is wanted of it.

use std::{
    num::NonZeroUsize,
    ops::Bound,
    sync::{Arc, PoisonError},
};

use capstan_api::{
    Str,
    selector::{FieldSelector, Selector},
};
use capstan_storage::{At, Revision};

use super::{
    ResourceCache, Shared, Snapshot,
    error::CacheError,
    fill::{Either, race},
    object::Object,
};
use crate::request::ContinueToken;

/// Which state a read wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAt {
    /// Not older than the store's at the question.
    #[default]
    Consistent,
    /// Whatever is there: `resourceVersion=0`.
    Any,
    /// Not older than this.
    NotOlderThan(Revision),
    /// Exactly this.
    Exactly(Revision),
}

impl From<&ContinueToken> for ReadAt {
    /// The state that a list goes on with: that of its first page, or the newest one.
    fn from(token: &ContinueToken) -> Self {
        u64::try_from(token.resource_version).map_or(ReadAt::Consistent, |revision| ReadAt::Exactly(Revision(revision)))
    }
}

/// A revision as tokens have it.
fn token_version(revision: Revision) -> i64 {
    i64::try_from(revision.0).unwrap_or(i64::MAX)
}

/// The answer to a GET.
#[derive(Clone, Debug)]
pub struct Found {
    /// The revision of the state.
    pub revision: Revision,
    /// The object, if there is one.
    pub object: Option<Arc<Object>>,
}

/// A question for many objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only objects of this namespace.
    pub namespace: Option<Str>,
    /// Only objects with such labels.
    pub labels: Selector,
    /// Only objects with such fields.
    pub fields: FieldSelector,
    /// Which state.
    pub at: ReadAt,
    /// At most so many.
    pub limit: Option<NonZeroUsize>,
    /// Only keys that are not before this; where a [`ContinueToken`] says to go on.
    pub start: String,
}

/// A list, or a page of it.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// The revision of the state.
    pub revision: Revision,
    /// The objects, by key.
    pub items: Vec<Arc<Object>>,
    /// How to go on, if there is more.
    pub next: Option<ContinueToken>,
    /// How many objects follow, if there is more and no selector makes that unknown.
    pub remaining: Option<usize>,
}

impl ResourceCache {
    /// The object with this name; `namespace` is empty for what has none.
    ///
    /// # Errors
    /// When the state cannot be had, see [`CacheError`].
    pub async fn get(&self, namespace: &str, name: &str, at: ReadAt) -> Result<Found, CacheError> {
        let find = |snapshot: &Snapshot| {
            let object = if namespace.is_empty() {
                snapshot.objects.get(name)
            } else {
                snapshot.objects.get(format!("{namespace}/{name}").as_str())
            };
            // A slash in a name must not lead into a namespace.
            let object = object.filter(|object| object.namespace() == namespace && object.name() == name);
            Found { revision: snapshot.revision, object: object.cloned() }
        };
        if let ReadAt::Exactly(_) = at {
            return Ok(find(&self.snapshot(at).await?));
        }
        self.reach(at).await?;
        // In place: a snapshot that somebody holds has to be copied, in part, with the next change.
        Ok(find(&self.shared.current.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The object with this name as far as the cache has come, without waiting.
    #[must_use]
    pub fn peek(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        let current = self.shared.current.read().unwrap_or_else(PoisonError::into_inner);
        let object = if namespace.is_empty() {
            current.objects.get(name)
        } else {
            current.objects.get(format!("{namespace}/{name}").as_str())
        };
        object.filter(|object| object.namespace() == namespace && object.name() == name).cloned()
    }

    /// The objects of a namespace, or all if it is empty, as far as the cache has come, without waiting.
    #[must_use]
    pub fn peek_all(&self, namespace: &str) -> Vec<Arc<Object>> {
        let snapshot = self.shared.current();
        let namespace = (!namespace.is_empty()).then(|| namespace.into());
        let query = ListQuery { namespace, ..ListQuery::default() };
        list(&snapshot, snapshot.revision, &query, self.shared.resource.namespaced).items
    }

    /// Waits until the cache has seen what was committed as `revision`.
    ///
    /// # Errors
    /// When it does not within the wait, or is shut down.
    pub async fn follow(&self, revision: Revision) -> Result<(), CacheError> {
        let mut reached = self.shared.reached.subscribe();
        if *reached.borrow_and_update() >= revision {
            return Ok(());
        }
        let options = &self.shared.options;
        let arrival = reached.wait_for(|reached| *reached >= revision);
        match race(arrival, options.clock.sleep(options.freshness_wait)).await {
            Either::Left(Ok(_)) => Ok(()),
            Either::Left(Err(_)) => Err(CacheError::Closed),
            Either::Right(()) => Err(CacheError::Behind { wanted: revision, current: self.revision() }),
        }
    }

    /// Waits until the cache has come to a revision that may be of other resources: the store is asked how far it is,
    /// for nothing of this one need follow.
    ///
    /// # Errors
    /// As of [`follow`](Self::follow).
    pub async fn catch_up(&self, revision: Revision) -> Result<(), CacheError> {
        self.shared.ask_progress();
        self.follow(revision).await
    }

    /// The objects that are wanted, in the order of keys.
    ///
    /// # Errors
    /// When the state cannot be had, see [`CacheError`].
    pub async fn list(&self, query: &ListQuery) -> Result<ListPage, CacheError> {
        let snapshot = self.snapshot(query.at).await?;
        let revision = if let ReadAt::Exactly(revision) = query.at { revision } else { snapshot.revision };
        let page = list(&snapshot, revision, query, self.shared.resource.namespaced);
        if page.next.is_some() {
            self.shared.keep(snapshot);
        }
        Ok(page)
    }

    /// A state; see [`Snapshot`] for how to read it.
    ///
    /// # Errors
    /// When the state cannot be had, see [`CacheError`].
    pub async fn snapshot(&self, at: ReadAt) -> Result<Snapshot, CacheError> {
        self.reach(at).await?;
        let current = self.shared.current();
        match at {
            ReadAt::Exactly(revision) if !current.covers(revision) => self.past(revision).await,
            _ => Ok(current),
        }
    }

    /// A past state: one that is kept, else out of the store.
    async fn past(&self, revision: Revision) -> Result<Snapshot, CacheError> {
        let kept = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner).find(revision);
        if let Some(snapshot) = kept {
            return Ok(snapshot);
        }
        Ok(self.shared.load(At::Exactly(revision)).await?)
    }

    /// Waits until the cache has been filled.
    pub(super) async fn filled(&self) -> Result<(), CacheError> {
        self.wait_for(Revision::INITIAL).await
    }

    /// Waits until the cache is as new as asked for.
    async fn reach(&self, at: ReadAt) -> Result<(), CacheError> {
        let store = &self.shared.store;
        let wanted = match at {
            ReadAt::Consistent => store.revision().await?,
            ReadAt::Any => Revision::INITIAL,
            ReadAt::NotOlderThan(revision) | ReadAt::Exactly(revision) => {
                if self.revision() < revision {
                    // The store has the wait for what has not happened yet; here only what has is waited for.
                    store.get(self.shared.resource.prefix.clone().into(), At::NotOlderThan(revision)).await?;
                }
                revision.max(Revision::INITIAL)
            }
        };
        self.wait_for(wanted).await
    }

    async fn wait_for(&self, wanted: Revision) -> Result<(), CacheError> {
        if self.revision() >= wanted {
            return Ok(());
        }
        self.shared.ask_progress();
        let mut reached = self.shared.reached.subscribe();
        let options = &self.shared.options;
        let arrival = reached.wait_for(|reached| *reached >= wanted);
        match race(arrival, options.clock.sleep(options.freshness_wait)).await {
            Either::Left(Ok(_)) => Ok(()),
            Either::Left(Err(_)) => Err(CacheError::Closed),
            Either::Right(()) => Err(CacheError::Behind { wanted, current: self.revision() }),
        }
    }
}

impl Shared {
    fn keep(&self, snapshot: Snapshot) {
        let now = self.options.clock.monotonic();
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(snapshot, now);
    }

    pub(super) fn forget_old_snapshots(&self) {
        let now = self.options.clock.monotonic();
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).forget_old(now);
    }
}

fn list(snapshot: &Snapshot, revision: Revision, query: &ListQuery, namespaced: bool) -> ListPage {
    let ListQuery { namespace, labels, fields, limit, start, .. } = query;
    let prefix = namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    // One name is looked up, not looked for.
    let name = fields.requires_exact_match("metadata.name").filter(|_| namespace.is_some() || !namespaced);
    if let Some(name) = name {
        let object = snapshot.objects.get(format!("{prefix}{name}").as_str());
        let object = object.filter(|object| *object.key >= **start && object.matches(labels, fields));
        return ListPage { revision, items: object.cloned().into_iter().collect(), next: None, remaining: None };
    }
    let limit = limit.map_or(usize::MAX, NonZeroUsize::get);
    let from = (Bound::Included(start.as_str().max(&prefix)), Bound::Unbounded);
    let all = snapshot.objects.range::<_, str>(from).map(|(_, object)| object);
    let mut all = all.take_while(|object| object.key.starts_with(&prefix));
    let mut items = Vec::new();
    let everything = labels.is_everything() && fields.is_everything();
    while items.len() < limit {
        let Some(object) = all.next() else { break };
        if everything || object.matches(labels, fields) {
            items.push(Arc::clone(object));
        }
    }
    let (next, remaining) = match (all.next(), items.last()) {
        // The least key after the last one is the last one with a zero byte behind it.
        (Some(_), Some(last)) => {
            let next = ContinueToken { resource_version: token_version(revision), start: format!("{}\0", last.key) };
            let first_of_all = prefix.is_empty() && start.is_empty();
            let remaining = || if first_of_all { snapshot.objects.len() - items.len() } else { 1 + all.count() };
            (Some(next), everything.then(remaining))
        }
        _ => (None, None),
    };
    ListPage { revision, items, next, remaining }
}
