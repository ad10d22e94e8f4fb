//! Finding and changing what a path points to.

use std::borrow::Cow;

use super::{MemberError, unescape};
use crate::Value;

/// The last part of a path, without its escapes.
pub(super) fn last(path: &str) -> Cow<'_, str> {
    unescape(path.rsplit('/').next().unwrap_or_default())
}

/// The parts of a path but the last, and the last; nothing for the whole document.
fn split(path: &str) -> Option<(impl Iterator<Item = Cow<'_, str>>, Cow<'_, str>)> {
    let (parents, last) = path.rsplit_once('/')?;
    // What stands before the first slash counts for nothing, be it there or not.
    Some((parents.split('/').skip(1).map(unescape), unescape(last)))
}

/// The list or object in which the path's last part is a member, and that part.
pub(super) fn find<'v, 'p>(document: &'v Value, path: &'p str) -> Option<(&'v Value, Cow<'p, str>)> {
    let (parents, last) = split(path)?;
    let mut at = document;
    for part in parents {
        at = match at {
            Value::Array(items) => items.get(index(&part, items.len()).ok()?)?,
            Value::Object(map) => map.get(&part)?,
            _ => return None,
        };
    }
    matches!(at, Value::Array(_) | Value::Object(_)).then_some((at, last))
}

/// As [`find`], to change it.
pub(super) fn find_mut<'v, 'p>(document: &'v mut Value, path: &'p str) -> Option<(&'v mut Value, Cow<'p, str>)> {
    let (parents, last) = split(path)?;
    let mut at = document;
    for part in parents {
        at = match at {
            Value::Array(items) => {
                let index = index(&part, items.len()).ok()?;
                items.get_mut(index)?
            }
            Value::Object(map) => map.get_mut(&part)?,
            _ => return None,
        };
    }
    matches!(at, Value::Array(_) | Value::Object(_)).then_some((at, last))
}

/// The number, read as Go's `strconv.Atoi` reads it.
fn number(key: &str, new: bool) -> Result<i64, MemberError> {
    let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
        return Err(MemberError::NotAnIndex(key.into(), new));
    }
    key.parse().map_err(|_| MemberError::IndexRange(key.into(), new))
}

/// The place among `size`, with negative numbers counted from the end.
fn place(at: i64, size: usize) -> Result<usize, MemberError> {
    let from_start = if at < 0 { at.checked_add_unsigned(size as u64) } else { Some(at) };
    from_start.and_then(|at| usize::try_from(at).ok()).filter(|&place| place < size).ok_or(MemberError::Index(at))
}

/// The index of an element that is there.
pub(super) fn index(key: &str, size: usize) -> Result<usize, MemberError> {
    place(number(key, false)?, size)
}

/// Adds a member to a list or object, and says how many others made room.
pub(super) fn add(parent: &mut Value, key: Cow<'_, str>, value: Value) -> Result<usize, MemberError> {
    match parent {
        Value::Array(items) => {
            let size = items.len();
            let at = if key == "-" { size } else { place(number(&key, true)?, size + 1)? };
            items.insert(at, value);
            Ok(size - at)
        }
        Value::Object(map) => {
            let size = map.len();
            map.insert(key, value);
            // Where in the map it went is not known; the last place is common and cheap, but the first is what matters.
            Ok(if map.len() > size { size } else { 0 })
        }
        _ => Ok(0),
    }
}

/// Takes a member out of a list or object, and says how many others closed the gap.
pub(super) fn remove(parent: &mut Value, key: Cow<'_, str>) -> Result<(Value, usize), MemberError> {
    match parent {
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            Ok((items.remove(at), items.len() - at))
        }
        Value::Object(map) => match map.remove(&key) {
            Some(value) => Ok((value, map.len())),
            None => Err(MemberError::NoSuchField(key.into())),
        },
        _ => Err(MemberError::NoSuchField(key.into())),
    }
}
