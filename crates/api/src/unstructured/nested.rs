//! Reaching into a tree by the names of its fields, with errors that say where it is not what it should be.
//!
//! A field that is not there, or whose parent is `null`, is nothing; a field of another type is an error. Lists are not
//! reached into: a path names fields only.

use std::{collections::BTreeMap, fmt};

use super::print::{text_of, type_of};
use crate::{Array, Map, Str, Value, go};

/// A field that is not what was asked for. It prints word for word as upstream prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedError {
    /// The path of the field: `.spec.schedule`.
    pub path: String,
    /// What is wrong there.
    pub wrong: Wrong,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is of another type.
    Type {
        /// The value as Go prints it.
        value: String,
        /// Its type as Go calls it.
        found: &'static str,
        /// What was asked for.
        expected: &'static str,
    },
    /// An element of the list is not a string.
    Element {
        /// The element as Go prints it.
        value: String,
        /// Its type as Go calls it.
        found: &'static str,
    },
    /// A value of the map is not a string.
    Entry {
        /// The key of the value.
        key: String,
        /// The value as Go prints it.
        value: String,
        /// Its type as Go calls it.
        found: &'static str,
    },
    /// An integer that no 64-bit float is equal to.
    Inexact(i64),
    /// Nothing can be set inside, because it is not a map.
    NotAMap,
    /// There is no path to set anything at.
    NoPath,
}

impl fmt::Display for NestedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.wrong {
            Wrong::Type { value, found, expected } => {
                write!(f, "{path} accessor error: {value} is of the type {found}, expected {expected}")
            }
            Wrong::Element { value, found } => write!(
                f,
                "{path} accessor error: contains non-string key in the slice: {value} is of the type {found}, expected string"
            ),
            Wrong::Entry { key, value, found } => write!(
                f,
                "{path} accessor error: contains non-string value in the map under key {}: {value} is of the type {found}, expected string",
                go::quote(key)
            ),
            Wrong::Inexact(n) => {
                write!(f, "{path} accessor error: int64 value {n} cannot be losslessly converted to float64")
            }
            Wrong::NotAMap => write!(f, "value cannot be set because {path} is not a map[string]interface{{}}"),
            Wrong::NoPath => f.write_str("value cannot be set because no field is named"),
        }
    }
}

impl std::error::Error for NestedError {}

type Result<T> = std::result::Result<T, NestedError>;

fn error(path: &[&str], wrong: Wrong) -> NestedError {
    NestedError { path: format!(".{}", path.join(".")), wrong }
}

fn mistyped(path: &[&str], value: &Value, expected: &'static str) -> NestedError {
    error(path, Wrong::Type { value: text_of(value), found: type_of(value), expected })
}

/// The value at `path`, whatever it is; nothing if it is not there.
///
/// # Errors
/// Something on the way is neither a map nor `null`.
pub fn field<'a>(object: &'a Map, path: &[&str]) -> Result<Option<&'a Value>> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let Some(mut value) = object.get(first) else { return Ok(None) };
    for (at, name) in rest.iter().enumerate() {
        value = match value {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(name) {
                Some(value) => value,
                None => return Ok(None),
            },
            other => return Err(mistyped(&path[..at + 2], other, "map[string]interface{}")),
        };
    }
    Ok(Some(value))
}

/// The value at `path` as `read` sees it.
fn typed<'a, T>(
    object: &'a Map,
    path: &[&str],
    expected: &'static str,
    read: impl FnOnce(&'a Value) -> Option<T>,
) -> Result<Option<T>> {
    let Some(value) = field(object, path)? else { return Ok(None) };
    read(value).map(Some).ok_or_else(|| mistyped(path, value, expected))
}

/// The string at `path`.
///
/// # Errors
/// It is not a string, or something on the way is not a map. `null` is not a string.
pub fn str<'a>(object: &'a Map, path: &[&str]) -> Result<Option<&'a str>> {
    typed(object, path, "string", Value::as_str)
}

/// The boolean at `path`.
///
/// # Errors
/// It is not a boolean, or something on the way is not a map.
pub fn bool(object: &Map, path: &[&str]) -> Result<Option<bool>> {
    typed(object, path, "bool", Value::as_bool)
}

/// The integer at `path`.
///
/// # Errors
/// It is not an integer (`1.0` is not), or something on the way is not a map.
pub fn i64(object: &Map, path: &[&str]) -> Result<Option<i64>> {
    typed(object, path, "int64", Value::as_i64)
}

/// The float at `path`.
///
/// # Errors
/// It is not a float (`1` is not; see [`number_as_f64`]), or something on the way is not a map.
pub fn f64(object: &Map, path: &[&str]) -> Result<Option<f64>> {
    typed(object, path, "float64", |value| if let Value::Float(n) = value { Some(*n) } else { None })
}

/// The number at `path`, be it an integer or not.
///
/// # Errors
/// It is not a number, or an integer that no float is equal to, or something on the way is not a map.
pub fn number_as_f64(object: &Map, path: &[&str]) -> Result<Option<f64>> {
    let number = typed(object, path, "float64 or int64", |value| value.as_f64().map(|n| (n, value.as_i64())))?;
    match number {
        // The comparison is made where nothing is rounded: 2^63 itself is beyond every i64.
        Some((float, Some(int))) if float as i128 != i128::from(int) => Err(error(path, Wrong::Inexact(int))),
        number => Ok(number.map(|(float, _)| float)),
    }
}

/// The list at `path`.
///
/// # Errors
/// It is not a list, or something on the way is not a map.
pub fn slice<'a>(object: &'a Map, path: &[&str]) -> Result<Option<&'a Array>> {
    typed(object, path, "[]interface{}", Value::as_array)
}

/// The map at `path`.
///
/// # Errors
/// It is not a map, or something on the way is not.
pub fn map<'a>(object: &'a Map, path: &[&str]) -> Result<Option<&'a Map>> {
    typed(object, path, "map[string]interface{}", Value::as_object)
}

/// The strings of the list at `path`.
///
/// # Errors
/// It is not a list, or not all of its elements are strings, or something on the way is not a map.
pub fn string_slice(object: &Map, path: &[&str]) -> Result<Option<Vec<String>>> {
    let Some(items) = slice(object, path)? else { return Ok(None) };
    let strings = items.iter().map(|item| match item {
        Value::String(text) => Ok(text.to_string()),
        other => Err(error(path, Wrong::Element { value: text_of(other), found: type_of(other) })),
    });
    strings.collect::<Result<_>>().map(Some)
}

/// The strings of the map at `path`.
///
/// # Errors
/// It is not a map, or not all of its values are strings, or something on the way is not a map.
pub fn string_map(object: &Map, path: &[&str]) -> Result<Option<BTreeMap<String, String>>> {
    map(object, path)?.map(|map| strings(map, path, false)).transpose()
}

/// As [`string_map`], but `null` is nothing, and `null` in place of a string the empty string, as when JSON is read
/// into a type.
///
/// # Errors
/// As [`string_map`].
pub fn null_coercing_string_map(object: &Map, path: &[&str]) -> Result<Option<BTreeMap<String, String>>> {
    match field(object, path)? {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => strings(map, path, true).map(Some),
        Some(other) => Err(mistyped(path, other, "map[string]interface{}")),
    }
}

fn strings(map: &Map, path: &[&str], nulls: bool) -> Result<BTreeMap<String, String>> {
    let entries = map.iter().map(|(key, value)| match value {
        Value::String(text) => Ok((key.to_owned(), text.to_string())),
        Value::Null if nulls => Ok((key.to_owned(), String::new())),
        other => {
            let (value, found) = (text_of(other), type_of(other));
            Err(error(path, Wrong::Entry { key: key.to_owned(), value, found }))
        }
    });
    entries.collect()
}

/// Sets the value at `path`; maps that are missing on the way are made.
///
/// # Errors
/// Something on the way is not a map (`null` is none either), or the path is empty. Then nothing has changed.
pub fn set(object: &mut Map, path: &[&str], value: impl Into<Value>) -> Result<()> {
    let Some((last, parents)) = path.split_last() else { return Err(error(path, Wrong::NoPath)) };
    let mut here = object;
    for (at, name) in parents.iter().enumerate() {
        here = match here.get_or_insert_with(name, || Map::new().into()) {
            Value::Object(map) => map,
            _ => return Err(error(&path[..=at], Wrong::NotAMap)),
        };
    }
    here.insert(Str::from(*last), value);
    Ok(())
}

/// Removes the value at `path` and returns it; nothing if it is not there.
pub fn remove(object: &mut Map, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut here = object;
    for name in parents {
        here = here.get_mut(name)?.as_object_mut()?;
    }
    here.remove(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    fn sample() -> Map {
        let text = br#"{"s":"x","i":3,"b":true,"n":null,"f":1.5,"big":9007199254740993,"max":9223372036854775807,
            "m":{"b":1,"a":["p q",null]},"l":["a",1],"strings":["a","b"],"ml":{"k":1},"sm":{"k":"v"},"nm":{"k":null}}"#;
        parse(text).unwrap().as_object().unwrap().clone()
    }

    /// What upstream's accessors answer for the same object: the value, `-` for nothing, or the error.
    #[test]
    fn answers_of_upstream() {
        fn show<T: fmt::Debug>(answer: Result<Option<T>>) -> String {
            match answer {
                Ok(Some(value)) => format!("{value:?}"),
                Ok(None) => "-".to_owned(),
                Err(error) => error.to_string(),
            }
        }
        let o = &sample();
        for (answer, expected) in [
            (show(str(o, &["s"])), r#""x""#),
            (show(str(o, &["none"])), "-"),
            (show(str(o, &["m", "none", "x"])), "-"),
            (show(str(o, &["n", "x"])), "-"),
            (show(str(o, &["i"])), ".i accessor error: 3 is of the type int64, expected string"),
            (show(str(o, &["n"])), ".n accessor error: <nil> is of the type <nil>, expected string"),
            (
                show(str(o, &["m"])),
                ".m accessor error: map[a:[p q <nil>] b:1] is of the type map[string]interface {}, expected string",
            ),
            (
                show(str(o, &["s", "x", "y"])),
                ".s.x accessor error: x is of the type string, expected map[string]interface{}",
            ),
            (
                show(field(o, &["m", "a", "0"])),
                ".m.a.0 accessor error: [p q <nil>] is of the type []interface {}, expected map[string]interface{}",
            ),
            (show(field(o, &["n"])), "null"),
            (show(field(o, &[])), "-"),
            (show(i64(o, &["i"])), "3"),
            (show(i64(o, &["s"])), ".s accessor error: x is of the type string, expected int64"),
            (show(bool(o, &["b"])), "true"),
            (show(bool(o, &["s"])), ".s accessor error: x is of the type string, expected bool"),
            (show(f64(o, &["f"])), "1.5"),
            (show(f64(o, &["i"])), ".i accessor error: 3 is of the type int64, expected float64"),
            (show(number_as_f64(o, &["i"])), "3.0"),
            (show(number_as_f64(o, &["f"])), "1.5"),
            (show(number_as_f64(o, &["s"])), ".s accessor error: x is of the type string, expected float64 or int64"),
            (
                show(number_as_f64(o, &["big"])),
                ".big accessor error: int64 value 9007199254740993 cannot be losslessly converted to float64",
            ),
            (
                show(number_as_f64(o, &["max"])),
                ".max accessor error: int64 value 9223372036854775807 cannot be losslessly converted to float64",
            ),
            (show(string_slice(o, &["strings"])), r#"["a", "b"]"#),
            (
                show(string_slice(o, &["l"])),
                ".l accessor error: contains non-string key in the slice: 1 is of the type int64, expected string",
            ),
            (show(string_slice(o, &["s"])), ".s accessor error: x is of the type string, expected []interface{}"),
            (show(slice(o, &["l"])), r#"["a", 1]"#),
            (show(slice(o, &["s"])), ".s accessor error: x is of the type string, expected []interface{}"),
            (show(string_map(o, &["sm"])), r#"{"k": "v"}"#),
            (
                show(string_map(o, &["ml"])),
                ".ml accessor error: contains non-string value in the map under key \"k\": 1 is of the type int64, expected string",
            ),
            (
                show(string_map(o, &["nm"])),
                ".nm accessor error: contains non-string value in the map under key \"k\": <nil> is of the type <nil>, expected string",
            ),
            (show(null_coercing_string_map(o, &["nm"])), r#"{"k": ""}"#),
            (show(null_coercing_string_map(o, &["n"])), "-"),
            (
                show(null_coercing_string_map(o, &["s"])),
                ".s accessor error: x is of the type string, expected map[string]interface{}",
            ),
            (show(map(o, &["sm"])), r#"{"k": "v"}"#),
            (show(map(o, &["s"])), ".s accessor error: x is of the type string, expected map[string]interface{}"),
            (show(map(o, &["n"])), ".n accessor error: <nil> is of the type <nil>, expected map[string]interface{}"),
        ] {
            assert_eq!(answer, expected);
        }
    }

    #[test]
    fn set_and_remove() {
        let mut object = sample();
        for (path, expected) in [
            (&["s", "x"][..], "value cannot be set because .s is not a map[string]interface{}"),
            (&["n", "x"], "value cannot be set because .n is not a map[string]interface{}"),
            (&["m", "b", "x", "y"], "value cannot be set because .m.b is not a map[string]interface{}"),
            (&[], "value cannot be set because no field is named"),
        ] {
            assert_eq!(set(&mut object, path, 1).unwrap_err().to_string(), expected);
        }
        assert_eq!(object, sample());
        set(&mut object, &["new", "a", "b"], "v").unwrap();
        set(&mut object, &["m", "b"], true).unwrap();
        assert_eq!(str(&object, &["new", "a", "b"]), Ok(Some("v")));
        assert_eq!(bool(&object, &["m", "b"]), Ok(Some(true)));
        assert_eq!(remove(&mut object, &["new", "a", "b"]), Some("v".into()));
        for path in [&["new", "a", "b"][..], &["s", "x"], &["none", "x"], &[]] {
            assert_eq!(remove(&mut object, path), None);
        }
    }
}
