//! What a handler is told, and how what it has not heard yet becomes shorter.

use std::sync::Arc;

use crate::{Kept, kept::Erased};

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

/// An object that is gone, as caches keep it.
#[derive(Debug)]
pub struct Gone<K> {
    /// The last state that is known.
    pub last: Kept<K>,
    /// Nobody saw it go, so that state may be old.
    pub final_state_unknown: bool,
}

impl<K> Clone for Gone<K> {
    fn clone(&self) -> Self {
        Gone { last: self.last.clone(), final_state_unknown: self.final_state_unknown }
    }
}

/// What a handler is to be told of one object.
#[derive(Clone, Debug)]
pub(crate) enum Notification {
    Add {
        new: Kept<Erased>,
        is_in_initial_list: bool,
    },
    Update {
        old: Kept<Erased>,
        new: Kept<Erased>,
    },
    Delete(Gone<Erased>),
    /// It went and came back. Two calls.
    Recreate {
        old: Gone<Erased>,
        new: Kept<Erased>,
    },
}

impl Notification {
    /// Both in one, for somebody who has heard of neither. None when there is nothing left to tell.
    pub(crate) fn then(self, next: Notification) -> Option<Notification> {
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
