//! What happened to objects and has not been looked at yet: one entry a key, first come, first served.

use std::collections::{BTreeMap, HashMap, VecDeque, hash_map::Entry};

use crate::{Kept, Key, informer::Gone, store::Indexer};

/// What happened to an object.
#[derive(Debug)]
pub enum Delta<K> {
    /// A watch saw it come.
    Added(Kept<K>),
    /// A watch saw it change.
    Updated(Kept<K>),
    /// A list had it.
    Replaced(Kept<K>),
    /// Nothing; it is time to look at it again.
    Sync(Kept<K>),
    /// It is gone.
    Deleted(Gone<K>),
}

impl<K> Clone for Delta<K> {
    fn clone(&self) -> Self {
        match self {
            Delta::Added(object) => Delta::Added(object.clone()),
            Delta::Updated(object) => Delta::Updated(object.clone()),
            Delta::Replaced(object) => Delta::Replaced(object.clone()),
            Delta::Sync(object) => Delta::Sync(object.clone()),
            Delta::Deleted(deleted) => Delta::Deleted(deleted.clone()),
        }
    }
}

impl<K> Delta<K> {
    /// The newest state that is known.
    #[must_use]
    pub fn object(&self) -> &Kept<K> {
        match self {
            Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) | Delta::Sync(object) => object,
            Delta::Deleted(gone) => &gone.last,
        }
    }
}

/// What happened to one object since it was last looked at: at most a deletion and, after it, a new state.
///
/// More is not kept. Several states in a row become the newest one, and an object that came and went in between is not
/// told of, so a key takes the same little memory however long nobody looks.
#[derive(Debug)]
pub struct Deltas<K> {
    deleted: Option<Gone<K>>,
    present: Option<Delta<K>>,
}

impl<K> Default for Deltas<K> {
    fn default() -> Self {
        Deltas { deleted: None, present: None }
    }
}

impl<K> Deltas<K> {
    fn push(&mut self, delta: Delta<K>) {
        match delta {
            Delta::Deleted(deleted) => match (&self.deleted, self.present.take()) {
                // The object that this deletes came after the one that others know of: they hear of that one's end.
                (Some(_), Some(_)) => {}
                // Of two deletions the one that saw the last state is kept.
                (Some(known), None) if !known.final_state_unknown => {}
                _ => self.deleted = Some(deleted),
            },
            Delta::Updated(object) if matches!(self.present, Some(Delta::Added(_))) => {
                self.present = Some(Delta::Added(object));
            }
            delta => self.present = Some(delta),
        }
    }

    /// The newest of them.
    fn newest(&self) -> Option<&Kept<K>> {
        self.present.as_ref().map(Delta::object).or(self.deleted.as_ref().map(|gone| &gone.last))
    }

    /// In the order in which they happened.
    pub fn in_order(self) -> impl Iterator<Item = Delta<K>> {
        self.deleted.map(Delta::Deleted).into_iter().chain(self.present)
    }
}

/// One key and what happened to it.
#[derive(Debug)]
pub struct Popped<K> {
    /// The key.
    pub key: Key,
    /// What happened.
    pub deltas: Deltas<K>,
    /// Whether this is part of the first list.
    pub is_in_initial_list: bool,
}

/// A queue of what happened to objects, by key.
///
/// A key is in the queue at most once and keeps its place when more happens to it. There are never more entries than
/// there are keys. What is known already is in the indexer that the methods are given: whoever pops puts it there.
#[derive(Debug)]
pub struct DeltaFIFO<K> {
    items: HashMap<Key, Deltas<K>>,
    queue: VecDeque<Key>,
    populated: bool,
    initial_population_count: usize,
}

impl<K> Default for DeltaFIFO<K> {
    fn default() -> Self {
        DeltaFIFO { items: HashMap::new(), queue: VecDeque::new(), populated: false, initial_population_count: 0 }
    }
}

impl<K> DeltaFIFO<K> {
    /// How many keys wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no key waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether all of the first list has been popped.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.populated && self.initial_population_count == 0
    }

    fn push(&mut self, key: &Key, delta: Delta<K>) {
        match self.items.entry(key.clone()) {
            Entry::Occupied(entry) => entry.into_mut().push(delta),
            Entry::Vacant(entry) => {
                self.queue.push_back(key.clone());
                entry.insert(Deltas::default()).push(delta);
            }
        }
    }

    /// A watch saw an object come.
    pub fn add(&mut self, key: &Key, object: Kept<K>) {
        self.populated = true;
        self.push(key, Delta::Added(object));
    }

    /// A watch saw an object change.
    pub fn update(&mut self, key: &Key, object: Kept<K>) {
        self.populated = true;
        self.push(key, Delta::Updated(object));
    }

    /// A watch saw an object go; without its last state if that could not be read.
    pub fn delete(&mut self, key: &Key, object: Option<Kept<K>>, known: &Indexer<K>) {
        self.populated = true;
        match (self.items.get(key).and_then(Deltas::newest).cloned().or_else(|| known.kept(key.as_str())), object) {
            (None, _) => {}
            (Some(_), Some(object)) => {
                self.push(key, Delta::Deleted(Gone { last: object, final_state_unknown: false }));
            }
            (Some(last), None) => self.push(key, Delta::Deleted(Gone { last, final_state_unknown: true })),
        }
    }

    /// A list saw these objects and no others: what is known or waits, and is not among them, has been deleted.
    pub fn replace(&mut self, objects: &BTreeMap<Key, Kept<K>>, known: &Indexer<K>) {
        self.replace_part(objects, known, |_| true);
    }

    /// The same where the list was of a part, such as a namespace: what is not of it stays.
    pub fn replace_part(
        &mut self,
        objects: &BTreeMap<Key, Kept<K>>,
        known: &Indexer<K>,
        is_of_it: impl Fn(&Key) -> bool,
    ) {
        let mut gone: Vec<(Key, Kept<K>)> = Vec::new();
        let is_missing = |key: &Key| !objects.contains_key(key) && is_of_it(key);
        let pending = self.items.iter().filter(|(key, _)| is_missing(key));
        gone.extend(pending.filter_map(|(key, deltas)| Some((key.clone(), deltas.newest()?.clone()))));
        gone.sort_by(|a, b| a.0.cmp(&b.0));
        let known = known.snapshot();
        let unseen = known.iter_kept().filter(|(key, _)| is_missing(key) && !self.items.contains_key(*key));
        gone.extend(unseen.map(|(key, object)| (key.clone(), object)));
        for (key, object) in objects {
            self.push(key, Delta::Replaced(object.clone()));
        }
        for (key, object) in &gone {
            self.push(key, Delta::Deleted(Gone { last: object.clone(), final_state_unknown: true }));
        }
        if !self.populated {
            self.populated = true;
            self.initial_population_count = self.queue.len();
        }
    }

    /// Lets every known object be looked at again, unless something waits for it anyway.
    pub fn resync(&mut self, known: &Indexer<K>) {
        for (key, object) in known.snapshot().iter_kept() {
            if !self.items.contains_key(key) {
                self.push(key, Delta::Sync(object));
            }
        }
    }

    /// Takes the next key and all that happened to it.
    pub fn pop(&mut self) -> Option<Popped<K>> {
        let is_in_initial_list = !self.has_synced();
        let key = self.queue.pop_front()?;
        self.initial_population_count = self.initial_population_count.saturating_sub(1);
        let deltas = self.items.remove(&key).unwrap_or_default();
        Some(Popped { key, deltas, is_in_initial_list })
    }
}
