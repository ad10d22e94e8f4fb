//! A JSON value as a tree: what an object is between its bytes and its bytes.
//!
//! Integers stay integers: `1` is not `1.0`. Objects keep their keys sorted, as Go prints them. Nothing here recurses
//! on the stack, because a hostile document may nest 10,000 deep: copying, comparing and dropping walk with a stack of
//! their own.

mod build;
mod de;
mod map;
mod ser;
mod serde_error;
#[cfg(test)]
mod serde_tests;
mod walk;

use std::{fmt, mem};

pub use build::Builder;
pub use de::from_value;
pub use map::Map;
pub use ser::to_value;
pub(crate) use serde_error::deeper;
pub use serde_error::{MAX_SERDE_DEPTH, SerdeError};
pub use walk::{Event, Walk};

use crate::Str;

/// A JSON value.
#[derive(Default)]
pub enum Value {
    /// `null`.
    #[default]
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number written without fraction and exponent that fits.
    Int(i64),
    /// Any other number; never infinite and never NaN.
    Float(f64),
    /// A string.
    String(Str),
    /// A list.
    Array(Array),
    /// A map with sorted keys.
    Object(Map),
}

/// The elements of a list. It is a `Vec` in all but how it is dropped.
#[derive(Default)]
pub struct Array(Vec<Value>);

impl Array {
    /// The empty list.
    #[must_use]
    pub const fn new() -> Self {
        Array(Vec::new())
    }

    /// The elements, taken out.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<Value> {
        mem::take(&mut self.0)
    }
}

impl From<Vec<Value>> for Array {
    fn from(items: Vec<Value>) -> Self {
        Array(items)
    }
}

impl std::ops::Deref for Array {
    type Target = Vec<Value>;

    fn deref(&self) -> &Vec<Value> {
        &self.0
    }
}

impl std::ops::DerefMut for Array {
    fn deref_mut(&mut self) -> &mut Vec<Value> {
        &mut self.0
    }
}

impl FromIterator<Value> for Array {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Array(items.into_iter().collect())
    }
}

impl IntoIterator for Array {
    type Item = Value;
    type IntoIter = std::vec::IntoIter<Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter()
    }
}

impl<'a> IntoIterator for &'a Array {
    type Item = &'a Value;
    type IntoIter = std::slice::Iter<'a, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        if self.0.iter().any(Value::is_container) {
            dismantle(self.0.iter_mut());
        }
    }
}

/// How deep values are dropped, copied and compared one inside the other; what is deeper, with a stack of its own.
const MAX_NESTED: usize = 64;

/// Empties all containers in a container that is about to be dropped, without going deep on the stack.
fn dismantle<'a>(parts: impl Iterator<Item = &'a mut Value>) {
    let mut deep = Vec::new();
    parts.for_each(|part| empty(part, MAX_NESTED, &mut deep));
    while let Some(mut value) = deep.pop() {
        empty(&mut value, MAX_NESTED, &mut deep);
    }
}

/// Drops what `value` is if it is a container, from the inside out, so that no drop goes deeper than one level. What is
/// more than `levels` inside is left in `deep`.
fn empty(value: &mut Value, levels: usize, deep: &mut Vec<Value>) {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => return deep.push(value.take()),
        Value::Array(items) => items.0.iter_mut().for_each(|part| empty(part, levels - 1, deep)),
        Value::Object(map) => map.iter_mut().for_each(|(_, part)| empty(part, levels - 1, deep)),
        _ => return,
    }
    *value = Value::Null;
}

impl Value {
    /// The kind of value in the words of JSON: `null`, `boolean`, `integer`, `number`, `string`, `array`, `object`.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Float(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    fn is_container(&self) -> bool {
        matches!(self, Value::Array(_) | Value::Object(_))
    }

    /// Whether this is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The boolean, if it is one.
    #[must_use]
    pub fn as_bool(&self) -> Option<bool> {
        if let Value::Bool(b) = self { Some(*b) } else { None }
    }

    /// The integer, if it is one.
    #[must_use]
    pub fn as_i64(&self) -> Option<i64> {
        if let Value::Int(n) = self { Some(*n) } else { None }
    }

    /// The number, be it an integer or not.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Value::Int(n) => Some(*n as f64),
            Value::Float(n) => Some(*n),
            _ => None,
        }
    }

    /// The string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(s) = self { Some(s) } else { None }
    }

    /// The list, if it is one.
    #[must_use]
    pub fn as_array(&self) -> Option<&Array> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    /// The list, if it is one.
    pub fn as_array_mut(&mut self) -> Option<&mut Array> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    /// The map, if it is one.
    #[must_use]
    pub fn as_object(&self) -> Option<&Map> {
        if let Value::Object(map) = self { Some(map) } else { None }
    }

    /// The map, if it is one.
    pub fn as_object_mut(&mut self) -> Option<&mut Map> {
        if let Value::Object(map) = self { Some(map) } else { None }
    }

    /// The value under `key`, if this is a map that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_object()?.get(key)
    }

    /// The value under `key`, if this is a map that has it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_object_mut()?.get_mut(key)
    }

    /// Takes the value and leaves `null` in its place.
    pub fn take(&mut self) -> Value {
        mem::take(self)
    }

    fn copy(&self, levels: usize) -> Value {
        match self {
            Value::Null => Value::Null,
            Value::Bool(b) => Value::Bool(*b),
            Value::Int(n) => Value::Int(*n),
            Value::Float(n) => Value::Float(*n),
            Value::String(s) => Value::String(s.clone()),
            Value::Array(_) | Value::Object(_) if levels == 0 => self.walk().collect_value(),
            Value::Array(items) => Value::Array(items.0.iter().map(|item| item.copy(levels - 1)).collect()),
            Value::Object(map) => Value::Object(map.map_values(|value| value.copy(levels - 1))),
        }
    }

    /// Whether both are the same, where `leaf` says which parts without parts are.
    pub(crate) fn eq_by(&self, other: &Value, leaf: impl Fn(Event<'_>, Event<'_>) -> bool + Copy) -> bool {
        self.eq_within(other, leaf, MAX_NESTED)
    }

    fn eq_within(&self, other: &Value, leaf: impl Fn(Event<'_>, Event<'_>) -> bool + Copy, levels: usize) -> bool {
        match (self, other) {
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Array(a), Value::Array(b)) if levels > 0 => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.eq_within(b, leaf, levels - 1))
            }
            (Value::Object(a), Value::Object(b)) if levels > 0 => {
                a.len() == b.len()
                    && a.iter()
                        .zip(b.iter())
                        .all(|((key, a), (other, b))| key == other && a.eq_within(b, leaf, levels - 1))
            }
            _ => {
                let (mut a, mut b) = (self.walk(), other.walk());
                loop {
                    match (a.next(), b.next()) {
                        (None, None) => return true,
                        (Some(a), Some(b)) if leaf(a, b) => {}
                        _ => return false,
                    }
                }
            }
        }
    }

    /// Walks the tree in order, as a reader of its JSON would meet its parts.
    #[must_use]
    pub fn walk(&self) -> Walk<'_> {
        Walk::new(self)
    }
}

impl Clone for Value {
    fn clone(&self) -> Self {
        self.copy(MAX_NESTED)
    }
}

impl Clone for Array {
    fn clone(&self) -> Self {
        self.0.iter().cloned().collect()
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.eq_by(other, |a, b| a == b)
    }
}

impl PartialEq for Array {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

/// Prints compact JSON.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::json::to_string(self))
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Value::Bool(b)
    }
}

impl From<i64> for Value {
    fn from(n: i64) -> Self {
        Value::Int(n)
    }
}

impl From<i32> for Value {
    fn from(n: i32) -> Self {
        Value::Int(n.into())
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Value::String(s.into())
    }
}

impl From<String> for Value {
    fn from(s: String) -> Self {
        Value::String(s.into())
    }
}

impl From<Str> for Value {
    fn from(s: Str) -> Self {
        Value::String(s)
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Value::Object(map)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Value::Array(items.into())
    }
}

impl From<Array> for Value {
    fn from(items: Array) -> Self {
        Value::Array(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10,000 lists in each other, with a map in the middle.
    fn deep() -> Value {
        (0..10_000).fold(Value::Null, |inner, level| match level {
            5_000 => Map::from_iter([("x".into(), inner)]).into(),
            _ => vec![inner].into(),
        })
    }

    #[test]
    fn deep_trees_are_copied_compared_printed_and_dropped() {
        let value = deep();
        let copy = value.clone();
        assert_eq!(value, copy);
        assert_ne!(value, Value::from(vec![copy]));
        assert_eq!(value.to_string().len(), 2 * 10_000 + "null".len() + "\"x\":".len());
    }

    #[test]
    fn a_value_takes_four_words() {
        assert_eq!(size_of::<Value>(), 32);
    }

    #[test]
    fn integers_are_not_floats() {
        assert_ne!(Value::Int(1), Value::Float(1.0));
    }
}
