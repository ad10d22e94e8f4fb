//! Building a tree from the parts in their order.

use super::{Array, Event, Map, Value};
use crate::Str;

/// Builds a [`Value`] from [`Event`]s, without recursion.
///
/// Its users make sure that the events are balanced; what does not fit together makes [`finish`](Builder::finish) return nothing.
#[derive(Debug, Default)]
pub struct Builder {
    open: Vec<Level>,
    key: Str,
    done: Option<Value>,
}

#[derive(Debug)]
enum Level {
    Array(Vec<Value>),
    Object(Vec<(Str, Value)>),
}

/// How much room is made at most for a container before its elements have been seen.
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

    /// A list begins.
    pub fn begin_array(&mut self, size: usize) {
        self.stash_key();
        self.open.push(Level::Array(Vec::with_capacity(size.min(MAX_RESERVE))));
    }

    /// An object begins.
    pub fn begin_object(&mut self, size: usize) {
        self.stash_key();
        self.open.push(Level::Object(Vec::with_capacity(size.min(MAX_RESERVE))));
    }

    /// The value that comes next belongs to this key.
    pub fn key(&mut self, key: Str) {
        self.key = key;
    }

    /// The key of a container waits for the container's end as an entry without value.
    fn stash_key(&mut self) {
        if let Some(Level::Object(entries)) = self.open.last_mut() {
            entries.push((std::mem::take(&mut self.key), Value::Null));
        }
    }

    /// The innermost container ends; `duplicate` is told the keys that it had more than once.
    pub fn end(&mut self, duplicate: impl FnMut(&str)) {
        let value = match self.open.pop() {
            Some(Level::Array(items)) => Value::Array(Array::from(items)),
            Some(Level::Object(entries)) => Value::Object(Map::from_entries(entries, duplicate)),
            None => return,
        };
        match self.open.last_mut() {
            Some(Level::Array(items)) => items.push(value),
            Some(Level::Object(entries)) => {
                if let Some((_, slot)) = entries.last_mut() {
                    *slot = value;
                }
            }
            None => self.done = Some(value),
        }
    }

    /// A whole value: a scalar, or a tree made elsewhere.
    pub fn value(&mut self, value: Value) {
        match self.open.last_mut() {
            Some(Level::Array(items)) => items.push(value),
            Some(Level::Object(entries)) => entries.push((std::mem::take(&mut self.key), value)),
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
