//! What a handler is told, and how what it has not heard yet becomes shorter.

use std::sync::Arc;

/// An object that is gone.
#[derive(Debug)]
pub enum Deleted<K> {
    /// Its last state.
    Object(Arc<K>),
    /// Nobody saw it go: the last state that was seen, which may be old.
    DeletedFinalStateUnknown(Arc<K>),
}

impl<K> Clone for Deleted<K> {
    fn clone(&self) -> Self {
        match self {
            Deleted::Object(object) => Deleted::Object(Arc::clone(object)),
            Deleted::DeletedFinalStateUnknown(object) => Deleted::DeletedFinalStateUnknown(Arc::clone(object)),
        }
    }
}

impl<K> Deleted<K> {
    /// The last state that is known.
    #[must_use]
    pub fn object(&self) -> &Arc<K> {
        match self {
            Deleted::Object(object) | Deleted::DeletedFinalStateUnknown(object) => object,
        }
    }

    /// Whether the last state is unknown.
    #[must_use]
    pub fn is_final_state_unknown(&self) -> bool {
        matches!(self, Deleted::DeletedFinalStateUnknown(_))
    }
}

/// What a handler is to be told of one object.
#[derive(Debug)]
pub(crate) enum Notification<K> {
    Add {
        new: Arc<K>,
        is_in_initial_list: bool,
    },
    Update {
        old: Arc<K>,
        new: Arc<K>,
    },
    Delete(Deleted<K>),
    /// It went and came back. Two calls.
    Recreate {
        old: Deleted<K>,
        new: Arc<K>,
    },
}

impl<K> Clone for Notification<K> {
    fn clone(&self) -> Self {
        match self {
            Notification::Add { new, is_in_initial_list } => {
                Notification::Add { new: Arc::clone(new), is_in_initial_list: *is_in_initial_list }
            }
            Notification::Update { old, new } => Notification::Update { old: Arc::clone(old), new: Arc::clone(new) },
            Notification::Delete(deleted) => Notification::Delete(deleted.clone()),
            Notification::Recreate { old, new } => Notification::Recreate { old: old.clone(), new: Arc::clone(new) },
        }
    }
}

impl<K> Notification<K> {
    /// Both in one, for somebody who has heard of neither. None when there is nothing left to tell.
    pub(crate) fn then(self, next: Notification<K>) -> Option<Notification<K>> {
        use Notification::{Add, Delete, Recreate, Update};
        match (self, next) {
            // It came and went: nobody needs to know.
            (Add { .. }, Delete(_)) => None,
            (Add { is_in_initial_list, .. }, Add { new, .. } | Update { new, .. } | Recreate { new, .. }) => {
                Some(Add { new, is_in_initial_list })
            }
            (Update { old, .. }, Add { new, .. } | Update { new, .. }) => Some(Update { old, new }),
            (Delete(old) | Recreate { old, .. }, Add { new, .. } | Update { new, .. } | Recreate { new, .. }) => {
                Some(Recreate { old, new })
            }
            (Update { .. }, next @ (Delete(_) | Recreate { .. })) => Some(next),
            (Delete(old) | Recreate { old, .. }, Delete(_)) => Some(Delete(old)),
        }
    }
}
