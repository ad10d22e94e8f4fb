//! The name of an object in caches and queues.

use std::{borrow::Borrow, fmt, sync::Arc};

use capstan_api::object::Object;

/// Which object: its namespace, a slash and its name, or the name alone for objects of the cluster.
///
/// Clones share the text, so that store, indices and queues have one copy of it.
///
/// ```
/// use capstan_client::Key;
///
/// let key = Key::new("default", "web");
/// assert_eq!((key.as_str(), key.namespace(), key.name()), ("default/web", "default", "web"));
/// assert_eq!(Key::new("", "node-1").to_string(), "node-1");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of an object by its namespace and name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        if namespace.is_empty() { Key(name.into()) } else { Key(format!("{namespace}/{name}").into()) }
    }

    /// The key of an object.
    #[must_use]
    pub fn of<K: Object>(object: &K) -> Self {
        let identity = object.identity();
        Key::new(identity.namespace, identity.name)
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace; empty for objects of the cluster.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.0.split_once('/').map_or("", |(namespace, _)| namespace)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
