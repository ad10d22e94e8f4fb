//! Walking a tree without recursion.

use std::slice;

use super::{Builder, Value};
use crate::Str;

/// What a walk meets, in the order of the JSON text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// `null`.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A number that is not an integer.
    Float(f64),
    /// A string.
    String(&'a str),
    /// The name of the field whose value comes next.
    Key(&'a str),
    /// A list of so many elements begins.
    BeginArray(usize),
    /// The innermost list ends.
    EndArray,
    /// An object of so many fields begins.
    BeginObject(usize),
    /// The innermost object ends.
    EndObject,
}

/// An iterator over the [`Event`]s of a value.
#[derive(Debug)]
pub struct Walk<'a> {
    open: Vec<Level<'a>>,
    next: Option<&'a Value>,
}

#[derive(Debug)]
enum Level<'a> {
    Array(slice::Iter<'a, Value>),
    Object(slice::Iter<'a, (Str, Value)>),
}

impl<'a> Walk<'a> {
    pub(super) fn new(value: &'a Value) -> Self {
        Walk { open: Vec::new(), next: Some(value) }
    }

    pub(super) fn collect_value(self) -> Value {
        let mut builder = Builder::default();
        for event in self {
            builder.event(event);
        }
        builder.finish().expect("a walk is balanced")
    }

    fn enter(&mut self, value: &'a Value) -> Event<'a> {
        match value {
            Value::Null => Event::Null,
            Value::Bool(b) => Event::Bool(*b),
            Value::Int(n) => Event::Int(*n),
            Value::Float(n) => Event::Float(*n),
            Value::String(s) => Event::String(s),
            Value::Array(items) => {
                self.open.push(Level::Array(items.iter()));
                Event::BeginArray(items.len())
            }
            Value::Object(map) => {
                self.open.push(Level::Object(map.entries().iter()));
                Event::BeginObject(map.len())
            }
        }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        if let Some(value) = self.next.take() {
            return Some(self.enter(value));
        }
        match self.open.last_mut()? {
            Level::Array(items) => match items.next() {
                Some(value) => Some(self.enter(value)),
                None => {
                    self.open.pop();
                    Some(Event::EndArray)
                }
            },
            Level::Object(entries) => match entries.next() {
                Some((key, value)) => {
                    self.next = Some(value);
                    Some(Event::Key(key))
                }
                None => {
                    self.open.pop();
                    Some(Event::EndObject)
                }
            },
        }
    }
}
