//! What is stored, as the parts beside the road read it: from the caches, without waiting and without writing.

use std::sync::Arc;

use capstan_api::GroupResource;

use crate::cache::Object;

/// Reads of stored objects. What was acknowledged to anybody is seen.
pub trait Objects: Send + Sync {
    /// The object with this name; `namespace` is empty for what has none.
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Object>>;

    /// The objects of a namespace, or all of them if `namespace` is empty, in the order of keys.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Object>>;
}
