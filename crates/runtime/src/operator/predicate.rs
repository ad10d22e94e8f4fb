//! Which changes are worth looking at.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use capstan_api::object::{Accessor, Object};
use capstan_client::{Deleted, ResourceEventHandler};

/// What happened to an object.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// It is there; whether it was listed at the start.
    Create(&'a K, bool),
    /// It changed, or nothing did and it is looked at again.
    Update {
        /// What it was.
        old: &'a K,
        /// What it is.
        new: &'a K,
    },
    /// It is gone.
    Delete(&'a K),
}

type Test<K> = Arc<dyn Fn(&Change<'_, K>) -> bool + Send + Sync>;

/// Which changes of objects of a kind are worth looking at.
///
/// ```
/// use capstan_api::Unstructured;
/// use capstan_runtime::operator::Predicate;
///
/// let predicate = Predicate::<Unstructured>::generation_changed().or(Predicate::labels_changed());
/// ```
pub struct Predicate<K>(Test<K>);

impl<K> Clone for Predicate<K> {
    fn clone(&self) -> Self {
        Predicate(Arc::clone(&self.0))
    }
}

impl<K> fmt::Debug for Predicate<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

impl<K: 'static> Predicate<K> {
    /// Those that a function is for.
    pub fn new(test: impl Fn(&Change<'_, K>) -> bool + Send + Sync + 'static) -> Self {
        Predicate(Arc::new(test))
    }

    /// All.
    #[must_use]
    pub fn all() -> Self {
        Predicate::new(|_| true)
    }

    /// Updates that a function is for, and all that is no update.
    pub fn updates(test: impl Fn(&K, &K) -> bool + Send + Sync + 'static) -> Self {
        Predicate::new(move |change| match change {
            Change::Update { old, new } => test(old, new),
            Change::Create(..) | Change::Delete(_) => true,
        })
    }

    /// Objects that a function is for, whatever happened to them.
    pub fn objects(test: impl Fn(&K) -> bool + Send + Sync + 'static) -> Self {
        Predicate::new(move |change| match change {
            Change::Update { new: object, .. } | Change::Create(object, _) | Change::Delete(object) => test(object),
        })
    }

    /// Those that both are for.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Predicate::new(move |change| self.test(change) && other.test(change))
    }

    /// Those that one of the two is for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Predicate::new(move |change| self.test(change) || other.test(change))
    }

    /// Those that this one is not for.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "it stands beside `and` and `or`, which are no traits")]
    pub fn not(self) -> Self {
        Predicate::new(move |change| !self.test(change))
    }

    /// Whether a change is worth looking at.
    #[must_use]
    pub fn test(&self, change: &Change<'_, K>) -> bool {
        (self.0)(change)
    }
}

impl<K: Accessor> Predicate<K> {
    /// Updates of what is wanted: not of the status, nor of metadata. Kinds without a generation have none.
    #[must_use]
    pub fn generation_changed() -> Self {
        Predicate::updates(|old: &K, new: &K| old.object_generation() != new.object_generation())
    }

    /// Updates of labels.
    #[must_use]
    pub fn labels_changed() -> Self {
        Predicate::updates(|old: &K, new: &K| old.object_labels() != new.object_labels())
    }

    /// Updates of annotations.
    #[must_use]
    pub fn annotations_changed() -> Self {
        Predicate::updates(|old: &K, new: &K| old.object_annotations() != new.object_annotations())
    }

    /// Updates of anything: not those where nothing changed.
    #[must_use]
    pub fn resource_version_changed() -> Self {
        Predicate::updates(|old: &K, new: &K| old.identity().resource_version != new.identity().resource_version)
    }
}

/// Tells a handler only of what is worth looking at.
pub(super) struct Filtered<K, H> {
    pub(super) predicate: Predicate<K>,
    pub(super) handler: H,
}

impl<K: 'static, H> Filtered<K, H> {
    /// One that panics, of which the panic hook has told, is no reason to miss a change.
    fn is_worth(&self, change: &Change<'_, K>) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.predicate.test(change))).unwrap_or(true)
    }
}

impl<K: Object, H: ResourceEventHandler<K>> ResourceEventHandler<K> for Filtered<K, H> {
    fn on_add(&mut self, object: &Arc<K>, is_in_initial_list: bool) {
        if self.is_worth(&Change::Create(object, is_in_initial_list)) {
            self.handler.on_add(object, is_in_initial_list);
        }
    }

    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>) {
        if self.is_worth(&Change::Update { old, new }) {
            self.handler.on_update(old, new);
        }
    }

    fn on_delete(&mut self, deleted: &Deleted<K>) {
        if self.is_worth(&Change::Delete(deleted.object())) {
            self.handler.on_delete(deleted);
        }
    }
}

#[cfg(test)]
mod tests {
    use capstan_api::Unstructured;

    use super::*;

    fn object(text: &str) -> Unstructured {
        Unstructured::decode(format!(r#"{{"kind":"Thing","metadata":{text}}}"#).as_bytes()).unwrap()
    }

    #[test]
    fn updates() {
        let old = object(r#"{"generation":1,"resourceVersion":"1"}"#);
        let all = [
            Predicate::<Unstructured>::generation_changed(),
            Predicate::labels_changed(),
            Predicate::annotations_changed(),
            Predicate::resource_version_changed(),
        ];
        let check = |new: &str, expected: [bool; 4]| {
            let change = Change::Update { old: &old, new: &object(new) };
            assert_eq!(all.each_ref().map(|predicate| predicate.test(&change)), expected, "{new}");
        };
        check(r#"{"generation":1,"resourceVersion":"1"}"#, [false; 4]);
        check(r#"{"generation":2,"resourceVersion":"2"}"#, [true, false, false, true]);
        check(r#"{"generation":1,"labels":{"a":"b"},"resourceVersion":"2"}"#, [false, true, false, true]);
        check(r#"{"generation":1,"annotations":{"a":"b"},"resourceVersion":"2"}"#, [false, false, true, true]);
        for predicate in all {
            assert!(predicate.test(&Change::Create(&old, true)) && predicate.test(&Change::Delete(&old)));
            assert!(!predicate.not().test(&Change::Create(&old, false)));
        }
    }

    #[test]
    fn together() {
        let thing = object("{}");
        let change = Change::Create(&thing, false);
        let is = |answer| Predicate::<Unstructured>::new(move |_| answer);
        for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!((is(a).and(is(b)).test(&change), is(a).or(is(b)).test(&change)), (a && b, a || b));
        }
        let filtered = Filtered { predicate: Predicate::new(|_| panic!("a panic that the test wants")), handler: () };
        assert!(filtered.is_worth(&change));
        let named = Predicate::<Unstructured>::objects(|object| object.name() == "x");
        assert!(!named.test(&change) && Predicate::<Unstructured>::all().test(&change));
    }
}
