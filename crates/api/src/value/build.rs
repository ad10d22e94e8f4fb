//! Building a tree from the parts in their order.

use super::{Event, Map, Value};
use crate::Str;

/// Builds a [`Value`] from [`Event`]s, without recursion.
///
/// Its users make sure that the events are balanced; what does not fit together makes [`finish`](Builder::finish)
/// return nothing.
///
/// The parts of all open containers wait on two stacks, so that each container gets memory once, when it ends and its
/// size is known.
#[derive(Debug, Default)]
pub struct Builder {
    open: Vec<Level>,
    items: Vec<Value>,
    entries: Vec<(Str, Value)>,
    key: Str,
    done: Option<Value>,
}

/// An open container, and where its parts begin on their stack.
#[derive(Debug)]
enum Level {
    Array(usize),
    Object(usize),
}

/// How much room is made at most for a container before its parts have been seen.
const MAX_RESERVE: usize = 1024;

impl Builder {
    /// Adds one event.
    pub fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Null => self.value(Value::Null),
            Event::Bool(b) => self.value(Value::Bool(b)),
            Event::Int(n) => self.value(Value::Int(n)),
            Event::Float(n) => self.value(Value::Float(n)),
            Event::String(s) => self.value(Value::String(s.into())),
            Event::Key(key) => self.key(key.into()),
            Event::BeginArray(size) => self.begin_array(size),
            Event::BeginObject(size) => self.begin_object(size),
            Event::EndArray | Event::EndObject => self.end(|_| {}),
        }
    }

    /// A list begins, of `size` elements if that is known.
    pub fn begin_array(&mut self, size: usize) {
        self.stash_key();
        self.items.reserve(size.min(MAX_RESERVE));
        self.open.push(Level::Array(self.items.len()));
    }

    /// An object begins, of `size` fields if that is known.
    pub fn begin_object(&mut self, size: usize) {
        self.stash_key();
        self.entries.reserve(size.min(MAX_RESERVE));
        self.open.push(Level::Object(self.entries.len()));
    }

    /// The value that comes next belongs to this key.
    #[inline]
    pub fn key(&mut self, key: Str) {
        self.key = key;
    }

    /// The key of a container waits for the container's end as an entry without value.
    fn stash_key(&mut self) {
        if let Some(Level::Object(_)) = self.open.last() {
            self.entries.push((std::mem::take(&mut self.key), Value::Null));
        }
    }

    /// The innermost container ends; `duplicate` is told the keys that it had more than once.
    pub fn end(&mut self, duplicate: impl FnMut(&str)) {
        let value = match self.open.pop() {
            Some(Level::Array(start)) => Value::Array(self.items.split_off(start).into()),
            Some(Level::Object(start)) => Value::Object(Map::from_entries(self.entries.split_off(start), duplicate)),
            None => return,
        };
        match self.open.last() {
            Some(Level::Array(_)) => self.items.push(value),
            Some(Level::Object(_)) => {
                if let Some((_, slot)) = self.entries.last_mut() {
                    *slot = value;
                }
            }
            None => self.done = Some(value),
        }
    }

    /// The innermost container ends and is forgotten, together with its key if it has one.
    pub fn discard(&mut self) {
        match self.open.pop() {
            Some(Level::Array(start)) => self.items.truncate(start),
            Some(Level::Object(start)) => self.entries.truncate(start),
            None => return,
        }
        if let Some(Level::Object(_)) = self.open.last() {
            self.entries.pop();
        }
    }

    /// The keys of the innermost container, if it is an object, that have a value already.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let start = if let Some(Level::Object(start)) = self.open.last() { *start } else { self.entries.len() };
        self.entries[start..].iter().map(|(key, _)| key.as_str())
    }

    /// A whole value: a scalar, or a tree made elsewhere.
    #[inline]
    pub fn value(&mut self, value: Value) {
        match self.open.last() {
            Some(Level::Array(_)) => self.items.push(value),
            Some(Level::Object(_)) => self.entries.push((std::mem::take(&mut self.key), value)),
            None => self.done = Some(value),
        }
    }

    /// How many containers are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    /// The value, if it is complete.
    #[must_use]
    pub fn finish(self) -> Option<Value> {
        self.done.filter(|_| self.open.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unbalanced_build_gives_nothing() {
        let mut builder = Builder::default();
        builder.begin_array(1);
        builder.begin_object(usize::MAX);
        builder.end(|_| {});
        assert_eq!(builder.depth(), 1);
        assert_eq!(builder.finish(), None);
    }
}
