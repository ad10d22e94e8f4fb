//! Reads: which state, which keys, and what comes back.

use std::num::NonZeroU32;

use bytes::{BufMut, BytesMut};

use crate::{Key, KeyValue, ReadError, Revision};

/// Which state a read wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The present: at least every commit that was acknowledged before the read began (linearizable).
    #[default]
    Present,
    /// Any state at this revision or later, not necessarily the present. Waits, bounded, while the store has not
    /// reached it.
    NotOlderThan(Revision),
    /// The state exactly as of this revision, the same whenever it is asked.
    Exactly(Revision),
}

impl At {
    /// The revision to read of a store that stands at `current`, when no wait is left to do.
    pub(crate) fn resolve(self, current: Revision, compacted: Revision) -> Result<Revision, ReadError> {
        let (asked, exactly) = match self {
            At::Present => return Ok(current),
            At::NotOlderThan(asked) => (asked, false),
            At::Exactly(asked) => (asked, true),
        };
        if asked > current {
            Err(ReadError::TooNew { asked, current })
        } else if !exactly {
            Ok(current)
        } else if asked < compacted {
            Err(ReadError::Compacted { asked, compacted })
        } else {
            Ok(asked)
        }
    }
}

/// The answer to a `get`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The revision of the state that was read.
    pub revision: Revision,
    /// What was under the key.
    pub item: Option<KeyValue>,
}

/// A question for the keys under a prefix, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Only keys that begin with this; empty: all.
    pub prefix: Key,
    /// Only keys that are not before this; empty: from the first.
    pub start: Key,
    /// At most so many items; [`MAX_PAGE_ITEMS`](crate::limits::MAX_PAGE_ITEMS) in any case.
    pub limit: Option<NonZeroU32>,
    /// Whether to count all keys that match, also those beyond the page.
    pub count: bool,
    /// Which state.
    pub at: At,
}

impl Range {
    /// All keys that begin with `prefix`, at present.
    #[must_use]
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        Range { prefix: prefix.into(), ..Range::default() }
    }

    /// The same from `start` on.
    #[must_use]
    pub fn starting(mut self, start: impl Into<Key>) -> Self {
        self.start = start.into();
        self
    }

    /// The same with at most `limit` items; zero: no limit of its own.
    #[must_use]
    pub fn limited(mut self, limit: u32) -> Self {
        self.limit = NonZeroU32::new(limit);
        self
    }

    /// The same with an exact count.
    #[must_use]
    pub fn counted(mut self) -> Self {
        self.count = true;
        self
    }

    /// The same of another state.
    #[must_use]
    pub fn at(mut self, at: At) -> Self {
        self.at = at;
        self
    }

    /// The question for what follows `page`, of the same state; `None` when nothing does.
    #[must_use]
    pub fn following(&self, page: &Page) -> Option<Self> {
        let last = page.items.last().filter(|_| page.more)?;
        // The least key after the last one is the last one with a zero byte behind it.
        let mut start = BytesMut::with_capacity(last.key.len() + 1);
        start.put_slice(&last.key);
        start.put_u8(0);
        Some(self.clone().starting(start.freeze()).at(At::Exactly(page.revision)))
    }
}

/// The answer to a `range`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The revision of the state that was read.
    pub revision: Revision,
    /// The items, by key.
    pub items: Vec<KeyValue>,
    /// Whether keys that match follow after the last item. Never set on a page without items.
    pub more: bool,
    /// How many keys match prefix and start in all, those of this page among them. Exact; there if it was asked for.
    pub count: Option<u64>,
}
