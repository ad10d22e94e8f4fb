//! Server-side apply: who owns which field, and what becomes of an object when one of its owners applies.
//!
//! An owner, a *manager*, owns the fields that it set last. A [`FieldSet`] is a set of fields as `FieldsV1` writes it;
//! an entry of `metadata.managedFields` says which set is whose. A [`FieldManager`] keeps the entries through every
//! write: [`update`](FieldManager::update) for creates, updates and patches, [`apply`](FieldManager::apply) for
//! applies, which merge a configuration as the schema says, take out what the manager applies no longer, and refuse to
//! take a field from another manager unless told to.
//!
//! What belongs together is said by the schema: lists are one value, sets or maps; maps and objects are granular or one
//! value. What the schema leaves open is granular if it is a map, and else one value. Nothing goes deeper than
//! [`MAX_DEPTH`]: what lies below is one value.
//!
//! Times are handed in by the caller. Defaulting, admission and validation are the caller's, too.

mod cap;
mod compare;
mod conflict;
mod element;
mod entry;
mod fields;
mod filter;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod hostile;
mod last_applied;
mod manager;
mod merge;
mod prune;
mod scale;
mod set;
mod timestamps;
mod types;
mod updater;
mod user_agent;
mod validate;
mod wire;
mod zero;

pub use cap::MAX_UPDATE_MANAGERS;
pub use element::{ElementError, PathElement};
pub use entry::{EntriesError, ManagedFieldsEntry, Operation, read_entries, sorted_entries, write_entries};
pub use filter::Filter;
pub use manager::{ApplyError, FieldManager, OneVersion, OtherVersions, asks_to_clear, check_after_admission};
pub use scale::ScaleHandler;
pub use set::{FieldSet, MAX_DEPTH};
pub use timestamps::keep_timestamps;
pub use user_agent::manager_name;
pub use wire::FieldsError;
