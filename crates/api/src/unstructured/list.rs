//! Lists of objects of any kind.

use std::fmt;

use super::{
    DecodeError, Unstructured, decode,
    meta::{REMAINING, gvk_of, set_or_remove, string_at},
    nested,
    print::type_of,
};
use crate::{GroupVersionKind, Map, Value, json};

/// A list of objects of any kind: its own fields, and its items apart from them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnstructuredList {
    pub(super) object: Map,
    /// The objects.
    pub items: Vec<Unstructured>,
}

/// An object that is not a list of objects, in upstream's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListError {
    /// There are no items.
    NoItems,
    /// The items are not a list; what they are.
    NotAList(&'static str),
    /// One of the items is not an object.
    NotAnObject,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListError::NoItems => f.write_str("content is not a list"),
            ListError::NotAList(found) => write!(f, "content is not a list: {found}"),
            // Upstream names the type that it wanted, not the one that it found.
            ListError::NotAnObject => f.write_str("items member is not an object: map[string]interface {}"),
        }
    }
}

impl std::error::Error for ListError {}

impl Unstructured {
    /// Whether this is a list: whether its `items` are one.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.object.get("items").is_some_and(|items| items.as_array().is_some())
    }

    /// Calls `each` with every item of a list, until it fails.
    ///
    /// # Errors
    /// This is not a list, an item is not an object, or what `each` returned.
    pub fn each_list_item<E: From<ListError>>(&self, mut each: impl FnMut(&Map) -> Result<(), E>) -> Result<(), E> {
        let items = match self.object.get("items") {
            None => return Err(ListError::NoItems.into()),
            Some(Value::Array(items)) => items,
            Some(other) => return Err(ListError::NotAList(type_of(other)).into()),
        };
        items.iter().try_for_each(|item| each(item.as_object().ok_or(ListError::NotAnObject)?))
    }

    /// The same as a list. What is not a list becomes an empty one.
    ///
    /// # Errors
    /// An item is not an object.
    pub fn into_list(mut self) -> Result<UnstructuredList, ListError> {
        if !self.is_list() {
            return Ok(UnstructuredList { object: self.object, items: Vec::new() });
        }
        let Some(Value::Array(items)) = self.object.remove("items") else { return Err(ListError::NoItems) };
        let items = items.into_iter().map(|item| match item {
            Value::Object(map) => Ok(map.into()),
            _ => Err(ListError::NotAnObject),
        });
        let items = items.collect::<Result<_, ListError>>()?;
        Ok(UnstructuredList { object: self.object, items })
    }
}

impl UnstructuredList {
    /// An empty list of a kind, such as `PodList`.
    #[must_use]
    pub fn new(gvk: &GroupVersionKind) -> Self {
        let mut list = UnstructuredList::default();
        list.set_gvk(gvk);
        list
    }

    /// Reads a list from JSON. Its kind is required; items without one get it from the list.
    ///
    /// # Errors
    /// The bytes are not JSON, not a map, or have no kind; or the items are not a list of maps.
    pub fn decode(data: &[u8]) -> Result<Self, DecodeError> {
        decode::list(data)
    }

    /// Appends compact JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        // The items stand among the list's own fields, in the order of the names.
        let (before, after): (Vec<_>, Vec<_>) =
            self.object.iter().filter(|(key, _)| *key != "items").partition(|(key, _)| *key < "items");
        out.push(b'{');
        for (key, value) in before {
            json::write_str(key, out);
            out.push(b':');
            json::write(value, out);
            out.push(b',');
        }
        out.extend_from_slice(b"\"items\":[");
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            json::write_map(item.content(), out);
        }
        out.push(b']');
        for (key, value) in after {
            out.push(b',');
            json::write_str(key, out);
            out.push(b':');
            json::write(value, out);
        }
        out.push(b'}');
    }

    /// The fields of the list itself, without the items.
    #[must_use]
    pub fn content(&self) -> &Map {
        &self.object
    }

    /// The full name of the list's kind.
    #[must_use]
    pub fn gvk(&self) -> GroupVersionKind {
        gvk_of(&self.object)
    }

    /// Sets the full name of the list's kind.
    pub fn set_gvk(&mut self, gvk: &GroupVersionKind) {
        self.object.insert("apiVersion", gvk.api_version());
        self.object.insert("kind", gvk.kind.as_str());
    }

    /// The group and version.
    #[must_use]
    pub fn api_version(&self) -> &str {
        string_at(&self.object, &["apiVersion"])
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        string_at(&self.object, &["kind"])
    }

    /// The version of the whole that the list shows.
    #[must_use]
    pub fn resource_version(&self) -> &str {
        string_at(&self.object, &["metadata", "resourceVersion"])
    }

    /// Sets the version of the whole that the list shows.
    pub fn set_resource_version(&mut self, version: &str) {
        set_or_remove(&mut self.object, &["metadata", "resourceVersion"], Some(version));
    }

    /// What to send to get the next part of the list; empty at its end.
    #[must_use]
    pub fn continue_token(&self) -> &str {
        string_at(&self.object, &["metadata", "continue"])
    }

    /// Sets what to send to get the next part of the list.
    pub fn set_continue_token(&mut self, token: &str) {
        set_or_remove(&mut self.object, &["metadata", "continue"], Some(token));
    }

    /// How many objects come after this part, if that is known.
    #[must_use]
    pub fn remaining_item_count(&self) -> Option<i64> {
        nested::i64(&self.object, REMAINING).ok().flatten()
    }

    /// Sets how many objects come after this part.
    pub fn set_remaining_item_count(&mut self, count: Option<i64>) {
        set_or_remove(&mut self.object, REMAINING, count);
    }
}
