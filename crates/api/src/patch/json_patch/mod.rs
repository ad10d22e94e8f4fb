//! JSON patch (RFC 6902), with the habits of the library that upstream uses.
//!
//! Where it departs from the RFC, and we with it:
//! - `replace` and `copy` of a field that is not there succeed (`copy` then adds `null`), as does a `test` of it for
//!   `null`.
//! - Negative indices count from the end; `+1` and `01` are indices too.
//! - What stands before the first `/` of a path is ignored. Only `replace` and `test` know the path of the whole
//!   document.
//! - A number that is written with a fraction or an exponent never equals an integer.
//!
//! Where we depart from the library: it compares strings as they are written, so that `"<"` does not equal the
//! `"\u003c"` of its own encoder; here values are compared. And where it panics (adding to a `null` that was copied,
//! replacing the whole document by nothing) there is an error.

mod error;
mod pointer;

use std::borrow::Cow;

pub use error::{DecodeError, Error, MemberError, Step};

use self::{
    error::go_type,
    pointer::{find, find_mut, last},
};
use crate::{Str, Value, json, value::Event};

/// How many operations a patch may have.
pub const MAX_OPERATIONS: usize = 10_000;

/// How large all that a patch copies may be together, as JSON: as large as a request.
pub const MAX_COPY_BYTES: usize = 3 * 1024 * 1024;

/// How many elements a patch may move in memory by inserting before and removing them. It is far beyond what 10,000
/// operations on any sensible list need, and keeps 10,000 operations at the front of a list of a million from taking
/// minutes.
pub const MAX_MOVED_ELEMENTS: usize = 1 << 29;

/// A JSON patch, ready to be applied, as often as needed.
#[derive(Clone, Debug)]
pub struct JsonPatch(Vec<Operation>);

#[derive(Clone, Debug)]
struct Operation {
    op: Str,
    path: Pointer,
    from: Pointer,
    value: Value,
}

/// `path` or `from`: the string, or the type of what stands there instead if anything does.
type Pointer = Result<Str, Option<&'static str>>;

impl Operation {
    fn from_value(value: Value) -> Result<Self, DecodeError> {
        let mut map = match value {
            Value::Object(map) => map,
            Value::Null => crate::Map::new(),
            other => return Err(DecodeError::NotAnOperation(go_type(&other))),
        };
        let mut pointer = |field| match map.remove(field) {
            Some(Value::String(path)) => Ok(path),
            None | Some(Value::Null) => Err(None),
            Some(other) => Err(Some(go_type(&other))),
        };
        Ok(Operation {
            op: pointer("op").unwrap_or_else(|_| "unknown".into()),
            path: pointer("path"),
            from: pointer("from"),
            value: map.remove("value").unwrap_or_default(),
        })
    }
}

impl JsonPatch {
    /// A patch from its JSON.
    ///
    /// Unless it was asked to ignore unknown fields, the server decodes the same bytes strictly before, as a list of
    /// objects with the strings `op`, `path` and `from` and any `value`.
    ///
    /// # Errors
    /// Not a list of objects, or too long a list.
    pub fn from_value(value: Value) -> Result<Self, DecodeError> {
        match value {
            Value::Null => Ok(JsonPatch(Vec::new())),
            Value::Array(items) if items.len() > MAX_OPERATIONS => Err(DecodeError::TooManyOperations(items.len())),
            Value::Array(items) => {
                items.into_iter().map(Operation::from_value).collect::<Result<_, _>>().map(JsonPatch)
            }
            other => Err(DecodeError::NotAList(go_type(&other))),
        }
    }

    /// How many operations there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The document after all operations.
    ///
    /// # Errors
    /// The first operation that fails, and why. See [`Error`] for what the server makes of it.
    pub fn apply(&self, document: Value) -> Result<Value, Error> {
        if !matches!(document, Value::Object(_) | Value::Array(_)) {
            return Err(Error::Document(go_type(&document)));
        }
        let mut run = Run { document, copied: 0, moved: 0 };
        for operation in &self.0 {
            run.step(operation)?;
        }
        // Copies into copies may nest deeper than either; nobody could read the outcome again.
        if !self.is_empty() && too_deep(&run.document) {
            return Err(Error::TooDeep);
        }
        Ok(run.document)
    }
}

/// A patch on its way through a document.
struct Run {
    document: Value,
    copied: usize,
    moved: usize,
}

impl Run {
    fn step(&mut self, operation: &Operation) -> Result<(), Error> {
        match operation.op.as_str() {
            "add" => self.add(Step::Add, get(&operation.path, Step::Add)?, operation.value.clone()),
            "remove" => {
                let path = get(&operation.path, Step::Remove)?;
                self.remove(Step::Remove, path).map(drop)
            }
            "replace" => self.replace(get(&operation.path, Step::Replace)?, &operation.value),
            "test" => self.test(get(&operation.path, Step::Test)?, &operation.value),
            "move" => {
                let value = self.remove(Step::MoveFrom, get(&operation.from, Step::MoveFrom)?)?;
                self.add(Step::MoveTo, get(&operation.path, Step::MoveTo)?, value)
            }
            "copy" => self.copy(operation),
            other => Err(Error::UnknownOperation(other.into())),
        }
    }

    fn add(&mut self, step: Step, path: &Str, value: Value) -> Result<(), Error> {
        let (parent, key) = find_mut(&mut self.document, path).ok_or_else(|| Error::MissingPath(step, path.clone()))?;
        let behind = pointer::add(parent, key, value).map_err(|wrong| Error::Member(step, path.clone(), wrong))?;
        self.account(behind)
    }

    fn remove(&mut self, step: Step, path: &Str) -> Result<Value, Error> {
        let (parent, key) = find_mut(&mut self.document, path).ok_or_else(|| Error::MissingPath(step, path.clone()))?;
        let (value, behind) = pointer::remove(parent, key).map_err(|wrong| {
            // For once the library names the last part alone.
            let at = if step == Step::MoveFrom { Str::from(last(path)) } else { path.clone() };
            Error::Member(step, at, wrong)
        })?;
        self.account(behind)?;
        Ok(value)
    }

    fn replace(&mut self, path: &Str, value: &Value) -> Result<(), Error> {
        if path.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                return Err(Error::ReplaceDocument);
            }
            self.document = value.clone();
            return Ok(());
        }
        let (parent, key) =
            find_mut(&mut self.document, path).ok_or_else(|| Error::MissingPath(Step::Replace, path.clone()))?;
        match parent {
            Value::Array(items) => {
                let at = pointer::index(&key, items.len()).map_err(|_| Error::MissingElement(path.clone()))?;
                items[at] = value.clone();
                Ok(())
            }
            parent => {
                let behind = pointer::add(parent, key, value.clone())
                    .map_err(|wrong| Error::Member(Step::Replace, path.clone(), wrong))?;
                self.account(behind)
            }
        }
    }

    fn test(&self, path: &Str, value: &Value) -> Result<(), Error> {
        let found = if path.is_empty() { Some(&self.document) } else { self.value(Step::Test, path)? };
        if found.unwrap_or(&Value::Null) == value { Ok(()) } else { Err(Error::TestFailed(path.clone())) }
    }

    fn copy(&mut self, operation: &Operation) -> Result<(), Error> {
        let from = get(&operation.from, Step::CopyFrom)?;
        let value = self.value(Step::CopyFrom, from)?;
        let path = get(&operation.path, Step::CopyTo)?;
        if find(&self.document, path).is_none() {
            return Err(Error::MissingPath(Step::CopyTo, path.clone()));
        }
        // What is not there costs nothing.
        let copied = self.copied + value.map_or(0, encoded_size);
        if copied > MAX_COPY_BYTES {
            return Err(Error::TooMuchCopied(copied));
        }
        let value = value.cloned().unwrap_or_default();
        self.copied = copied;
        self.add(Step::CopyTo, path, value)
    }

    /// The value at `path`, if its parent can have one.
    fn value(&self, step: Step, path: &Str) -> Result<Option<&Value>, Error> {
        let (parent, key) = find(&self.document, path).ok_or_else(|| Error::MissingPath(step, path.clone()))?;
        match parent {
            Value::Array(items) => match pointer::index(&key, items.len()) {
                Ok(at) => Ok(Some(&items[at])),
                Err(wrong) => Err(Error::Member(step, path.clone(), wrong)),
            },
            parent => Ok(parent.get(&key)),
        }
    }

    fn account(&mut self, moved: usize) -> Result<(), Error> {
        self.moved += moved;
        if self.moved > MAX_MOVED_ELEMENTS { Err(Error::TooManyMoved) } else { Ok(()) }
    }
}

fn get(pointer: &Pointer, step: Step) -> Result<&Str, Error> {
    pointer.as_ref().map_err(|&wrong| Error::Pointer(step, wrong))
}

/// The size that Go's encoder would give it: it writes `<`, `>` and `&` with six characters each.
fn encoded_size(value: &Value) -> usize {
    if value.is_null() {
        return 0;
    }
    let text = json::to_string(value);
    text.len() + 5 * text.bytes().filter(|c| matches!(c, b'<' | b'>' | b'&')).count()
}

fn too_deep(value: &Value) -> bool {
    let mut depth = 0_usize;
    value.walk().any(|event| {
        match event {
            Event::BeginArray(_) | Event::BeginObject(_) => depth += 1,
            Event::EndArray | Event::EndObject => depth -= 1,
            _ => {}
        }
        depth > json::MAX_DEPTH
    })
}

/// A part of a path without its escapes.
fn unescape(part: &str) -> Cow<'_, str> {
    if !part.contains('~') {
        return part.into();
    }
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let (c, length) = match escape.as_bytes().get(1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        out.push(c);
        rest = &escape[length..];
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_make_room_are_counted() {
        let document = || json::parse(br#"{"a":[1,2,3],"b":4}"#).unwrap();
        let check = |left: usize, path: &str, expected: Result<(), Error>| {
            let mut run = Run { document: document(), copied: 0, moved: MAX_MOVED_ELEMENTS - left };
            assert_eq!(run.add(Step::Add, &path.into(), Value::Null), expected, "{path}");
        };
        check(3, "/a/0", Ok(()));
        check(2, "/a/0", Err(Error::TooManyMoved));
        check(0, "/a/-", Ok(()));
        check(1, "/c", Err(Error::TooManyMoved));
        check(0, "/b", Ok(()));
        let mut run = Run { document: document(), copied: 0, moved: MAX_MOVED_ELEMENTS };
        assert_eq!(run.remove(Step::Remove, &"/a/2".into()), Ok(Value::Int(3)));
        assert_eq!(run.remove(Step::Remove, &"/a/0".into()), Err(Error::TooManyMoved));
    }

    #[test]
    fn paths_are_unescaped_once() {
        for (part, expected) in
            [("a", "a"), ("~0", "~"), ("~1", "/"), ("~01", "~1"), ("x~", "x~"), ("~2~1", "~2/"), ("é~0é", "é~é")]
        {
            assert_eq!(unescape(part), expected);
        }
    }

    #[test]
    fn strings_are_equal_however_they_are_written() {
        let patch = json::parse(br#"[{"op":"test","path":"/a","value":"\u003c"}]"#).unwrap();
        let document = json::parse(br#"{"a":"<"}"#).unwrap();
        assert!(JsonPatch::from_value(patch).unwrap().apply(document).is_ok());
    }
}
