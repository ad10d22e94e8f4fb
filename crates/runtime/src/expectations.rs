//! What a controller has asked for and its caches do not show yet.
//!
//! A controller that looks at a cache right after it created pods may not see them, and create them again. So it writes
//! down how many it expects to see come and go, and leaves the object alone until they have, or until
//! [`EXPECTATIONS_TIMEOUT`] is over.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use capstan_client::Key;
use capstan_clock::{Moment, SharedClock};

/// How long to wait for what is expected.
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// What one object waits for. Below zero, more came than was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlleeExpectations {
    /// How many are to come.
    pub add: i64,
    /// How many are to go.
    pub del: i64,
    at: Moment,
}

impl ControlleeExpectations {
    /// Whether nothing is waited for.
    #[must_use]
    pub fn fulfilled(&self) -> bool {
        self.add <= 0 && self.del <= 0
    }
}

/// What each object of a controller waits for. Every method may be called from any task, and none waits.
///
/// Entries are there as long as the objects are: who sees one go calls
/// [`delete_expectations`](Self::delete_expectations).
pub struct ControllerExpectations {
    clock: SharedClock,
    expected: Mutex<HashMap<Key, ControlleeExpectations>>,
}

impl fmt::Debug for ControllerExpectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerExpectations").finish_non_exhaustive()
    }
}

impl ControllerExpectations {
    /// Nothing is expected.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        ControllerExpectations { clock, expected: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, ControlleeExpectations>> {
        // Nothing panics under the lock.
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What an object waits for, if anything was ever expected.
    #[must_use]
    pub fn get_expectations(&self, key: &Key) -> Option<ControlleeExpectations> {
        self.lock().get(key).copied()
    }

    /// Whether the caches can be believed about this object: all that was expected came, it took too long, or nothing
    /// was expected.
    #[must_use]
    pub fn satisfied_expectations(&self, key: &Key) -> bool {
        let now = self.clock.monotonic();
        let expired = |expected: &ControlleeExpectations| now.since(expected.at) > EXPECTATIONS_TIMEOUT;
        self.lock().get(key).is_none_or(|expected| expected.fulfilled() || expired(expected))
    }

    /// Expects so many to come and so many to go, from now on; what was expected before is forgotten.
    pub fn set_expectations(&self, key: &Key, add: usize, del: usize) {
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let expected = ControlleeExpectations { add: count(add), del: count(del), at: self.clock.monotonic() };
        self.lock().insert(key.clone(), expected);
    }

    /// Expects so many to come.
    pub fn expect_creations(&self, key: &Key, count: usize) {
        self.set_expectations(key, count, 0);
    }

    /// Expects so many to go.
    pub fn expect_deletions(&self, key: &Key, count: usize) {
        self.set_expectations(key, 0, count);
    }

    /// Expects so many less, if anything is expected: some could not be asked for.
    pub fn lower_expectations(&self, key: &Key, add: i64, del: i64) {
        if let Some(expected) = self.lock().get_mut(key) {
            expected.add = expected.add.saturating_sub(add);
            expected.del = expected.del.saturating_sub(del);
        }
    }

    /// Expects so many more, if anything is expected.
    pub fn raise_expectations(&self, key: &Key, add: i64, del: i64) {
        self.lower_expectations(key, add.saturating_neg(), del.saturating_neg());
    }

    /// One came, or will never come.
    pub fn creation_observed(&self, key: &Key) {
        self.lower_expectations(key, 1, 0);
    }

    /// One went, or will never go.
    pub fn deletion_observed(&self, key: &Key) {
        self.lower_expectations(key, 0, 1);
    }

    /// Forgets an object.
    pub fn delete_expectations(&self, key: &Key) {
        self.lock().remove(key);
    }
}

/// The same, and which ones are to go: one that goes twice, as when its deletion is seen to begin and to end, counts
/// once.
pub struct UIDTrackingControllerExpectations {
    expectations: ControllerExpectations,
    going: Mutex<HashMap<Key, BTreeSet<String>>>,
}

impl fmt::Debug for UIDTrackingControllerExpectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UIDTrackingControllerExpectations").finish_non_exhaustive()
    }
}

impl std::ops::Deref for UIDTrackingControllerExpectations {
    type Target = ControllerExpectations;

    fn deref(&self) -> &ControllerExpectations {
        &self.expectations
    }
}

impl UIDTrackingControllerExpectations {
    /// Nothing is expected.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        UIDTrackingControllerExpectations { expectations: ControllerExpectations::new(clock), going: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, BTreeSet<String>>> {
        // Nothing panics under the lock.
        self.going.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which ones are still to go.
    #[must_use]
    pub fn get_uids(&self, key: &Key) -> BTreeSet<String> {
        self.lock().get(key).cloned().unwrap_or_default()
    }

    /// Expects these to go; any text that tells them apart will do.
    pub fn expect_deletions(&self, key: &Key, deleted: impl IntoIterator<Item = impl Into<String>>) {
        let deleted: BTreeSet<String> = deleted.into_iter().map(Into::into).collect();
        let mut going = self.lock();
        let count = deleted.len();
        going.insert(key.clone(), deleted);
        self.expectations.expect_deletions(key, count);
    }

    /// This one went, or will never go.
    pub fn deletion_observed(&self, key: &Key, deleted: &str) {
        let mut going = self.lock();
        if going.get_mut(key).is_some_and(|going| going.remove(deleted)) {
            self.expectations.deletion_observed(key);
        }
    }

    /// Forgets an object.
    pub fn delete_expectations(&self, key: &Key) {
        let mut going = self.lock();
        self.expectations.delete_expectations(key);
        going.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use capstan_clock::ManualClock;

    use super::*;

    fn clock() -> ManualClock {
        ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn what_is_expected() {
        let clock = clock();
        let expectations = ControllerExpectations::new(Arc::new(clock.clone()));
        let key = &Key::new("ns", "rs");
        assert!(expectations.satisfied_expectations(key), "nothing was ever expected");
        expectations.creation_observed(key);
        assert_eq!(expectations.get_expectations(key), None, "what was not expected is not counted");
        expectations.expect_creations(key, 2);
        expectations.creation_observed(key);
        assert!(!expectations.satisfied_expectations(key));
        expectations.creation_observed(key);
        expectations.creation_observed(key);
        assert!(expectations.satisfied_expectations(key));
        expectations.raise_expectations(key, 2, 1);
        assert!(!expectations.satisfied_expectations(key));
        let expected = expectations.get_expectations(key).unwrap();
        assert_eq!((expected.add, expected.del), (1, 1));
        clock.advance(EXPECTATIONS_TIMEOUT);
        assert!(!expectations.satisfied_expectations(key));
        clock.advance(Duration::from_nanos(1));
        assert!(expectations.satisfied_expectations(key), "it took too long");
        expectations.expect_deletions(key, 1);
        assert!(!expectations.satisfied_expectations(key));
        expectations.delete_expectations(key);
        assert!(expectations.satisfied_expectations(key));
    }

    #[test]
    fn who_goes_twice_counts_once() {
        let expectations = UIDTrackingControllerExpectations::new(Arc::new(clock()));
        let key = &Key::new("ns", "rs");
        expectations.expect_deletions(key, ["a", "b"]);
        for seen in ["a", "a", "other"] {
            expectations.deletion_observed(key, seen);
        }
        assert!(!expectations.satisfied_expectations(key));
        assert_eq!(expectations.get_uids(key).into_iter().collect::<Vec<_>>(), ["b"]);
        expectations.deletion_observed(key, "b");
        assert!(expectations.satisfied_expectations(key));
        expectations.delete_expectations(key);
        assert!(expectations.get_uids(key).is_empty());
    }
}
