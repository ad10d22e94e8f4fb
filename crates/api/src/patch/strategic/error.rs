//! What can be wrong with a strategic merge patch, in upstream's words.

use std::fmt::{self, Write as _};

use super::{DELETE_LIST, DIRECTIVE, MAX_DEPTH, MAX_WORK, SET_ORDER};
use crate::{Map, Str, Value, value::Event};

/// A strategic merge patch that does not apply, or that cannot be made.
///
/// The server answers the first three with 400 BadRequest and this message, [`ListOfLists`](Error::ListOfLists) with a
/// 422 Invalid that says `the server rejected our request due to an error in our request`, and all others with a 500
/// that has this message and no reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A `$deleteFromPrimitiveList` that does not name its list.
    PrimitiveList,
    /// A `$retainKeys` that is not a list, or does not have all fields of the patch.
    RetainKeys,
    /// A `$setElementOrder` that does not name its list.
    SetElementOrder,
    /// A list inside of a list that is to be merged.
    ListOfLists,
    /// An element without merge key: the element, the key.
    NoMergeKey(String, Str),
    /// One type is expected, another found.
    Type(&'static str, &'static str),
    /// A `$patch` that means nothing here: what it says, and the object that has it.
    UnknownDirective(String, String),
    /// An element of a list of objects is not an object.
    NotAnObject(usize),
    /// The elements of two lists are not all of one type.
    ElementTypes(String),
    /// Two lists have no element at all.
    NoElements,
    /// Objects in a list that has no merge key. The word is Go's for the type of the elements.
    NotMergeable(&'static str),
    /// `$patch: merge` in an element.
    MergeList,
    /// The patch's list is not in the order of its `$setElementOrder`: both.
    Order(String, String),
    /// A field that the type does not have: the type, the field.
    UnknownField(Str, Str),
    /// Fields below something that has none by its type.
    NotAStruct(&'static str),
    /// A list where the type has none.
    NotASlice,
    /// The type is a list of lists.
    SliceOfSlice,
    /// An object or a list where only scalars can be compared. Upstream panics.
    Incomparable,
    /// Types that contain themselves, too often. Upstream has no such limit.
    TooDeep,
    /// More than [`MAX_WORK`]. Upstream has no such limit.
    TooMuchWork,
    /// Two patches that are to be one retain different fields.
    RetainKeysDiffer(String, String),
    /// A `$patch` in a document that is not a string.
    DirectiveValue,
    /// A three-way patch would overwrite what others changed: the patch and their changes, as JSON where upstream
    /// prints YAML.
    Conflict(String, String),
}

impl Error {
    pub(super) fn no_merge_key(map: &Map, key: &str) -> Self {
        Error::NoMergeKey(print_map(map), key.into())
    }

    pub(super) fn unknown_directive(directive: &Value, map: &Map) -> Self {
        let mut text = String::new();
        Printer { out: &mut text, verb: Verb::S }.print(directive);
        Error::UnknownDirective(text, print_map(map))
    }

    /// An object is expected.
    pub(super) fn not_a_map(actual: &Value) -> Self {
        Error::Type("map[string]interface {}", go_type(actual))
    }

    /// A list is expected.
    pub(super) fn not_a_list(actual: &Value) -> Self {
        Error::Type("[]interface {}", go_type(actual))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::PrimitiveList => f.write_str("invalid patch format of primitive list"),
            Error::RetainKeys => f.write_str("invalid patch format of retainKeys"),
            Error::SetElementOrder => f.write_str("invalid patch format of setElementOrder list"),
            Error::ListOfLists => f.write_str("lists of lists are not supported"),
            Error::NoMergeKey(map, key) => write!(f, "map: {map} does not contain declared merge key: {key}"),
            Error::Type(expected, actual) => write!(f, "expected a {expected}, but received a {actual}"),
            Error::UnknownDirective(directive, map) => write!(f, "unknown patch type: {directive} in map: {map}"),
            Error::NotAnObject(at) => write!(f, "value for key {at} is not a map"),
            Error::ElementTypes(lists) => write!(f, "list element types are not identical: {lists}"),
            Error::NoElements => f.write_str("no elements in any of the given slices"),
            Error::NotMergeable(kind) => write!(f, "cannot merge lists without merge key for {kind}"),
            Error::MergeList => f.write_str("merging lists cannot yet be specified in the patch"),
            Error::Order(patch, order) => {
                write!(f, "The order in patch list:\n{patch}\n doesn't match {SET_ORDER} list:\n{order}\n")
            }
            Error::UnknownField(ty, field) => {
                let field = crate::go::quote(field);
                write!(f, "unable to find api field in struct {ty} for the json field {field}")
            }
            Error::NotAStruct(kind) => {
                write!(f, "merging an object in json but data type is not struct, instead is: {kind}")
            }
            Error::NotASlice => f.write_str("expected slice or array type, but got: struct"),
            Error::SliceOfSlice => f.write_str("unexpected slice of slice"),
            Error::Incomparable => write!(f, "elements of {SET_ORDER}, {DELETE_LIST} and merge keys must be scalars"),
            Error::TooDeep => write!(f, "the patch merges more than {MAX_DEPTH} objects in each other"),
            Error::TooMuchWork => write!(f, "the patch merges into more than {MAX_WORK} fields and elements"),
            Error::RetainKeysDiffer(one, other) => {
                write!(f, "{one} and {other} are not deep equal: this may happen when calculating the 3-way diff patch")
            }
            Error::DirectiveValue => write!(f, "invalid value for special key: {DIRECTIVE}"),
            Error::Conflict(patch, current) => {
                write!(f, "patch:\n{patch}\nconflicts with changes made from original to current:\n{current}\n")
            }
        }
    }
}

impl std::error::Error for Error {}

/// The name of the type that holds such a value in Go.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// An object as Go's `%v` prints it.
pub(super) fn print_map(map: &Map) -> String {
    let mut out = String::from("map[");
    for (at, (key, value)) in map.iter().enumerate() {
        let space = if at > 0 { " " } else { "" };
        write!(out, "{space}{key}:").expect("memory takes all");
        Printer { out: &mut out, verb: Verb::V }.print(value);
    }
    out.push(']');
    out
}

/// A list as Go's `%v` prints it.
pub(super) fn print_list(items: &[Value]) -> String {
    let mut out = String::from("[");
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(' ');
        }
        Printer { out: &mut out, verb: Verb::V }.print(item);
    }
    out.push(']');
    out
}

/// A value as Go's `%v` prints it.
pub(super) fn print_value(value: &Value) -> String {
    let mut out = String::new();
    Printer { out: &mut out, verb: Verb::V }.print(value);
    out
}

#[derive(Clone, Copy, PartialEq)]
enum Verb {
    /// `%v`: the value as it is.
    V,
    /// `%s`: a string, and complaints about what is none.
    S,
}

struct Printer<'a> {
    out: &'a mut String,
    verb: Verb,
}

impl Printer<'_> {
    fn print(&mut self, value: &Value) {
        let mut due = false;
        for event in value.walk() {
            let ends = matches!(event, Event::EndArray | Event::EndObject);
            if due && !ends {
                self.out.push(' ');
            }
            due = !matches!(event, Event::Key(_) | Event::BeginArray(_) | Event::BeginObject(_));
            match event {
                Event::Null if self.verb == Verb::S && value.is_null() => self.out.push_str("%!s(<nil>)"),
                Event::Null => self.out.push_str("<nil>"),
                Event::Bool(b) => self.scalar("bool", format_args!("{b}")),
                Event::Int(n) => self.scalar("int64", format_args!("{n}")),
                Event::Float(n) => self.scalar("float64", format_args!("{}", float(n))),
                Event::String(s) => self.out.push_str(s),
                Event::Key(key) => {
                    self.out.push_str(key);
                    self.out.push(':');
                }
                Event::BeginArray(_) => self.out.push('['),
                Event::BeginObject(_) => self.out.push_str("map["),
                Event::EndArray | Event::EndObject => self.out.push(']'),
            }
        }
    }

    fn scalar(&mut self, ty: &str, text: fmt::Arguments<'_>) {
        match self.verb {
            Verb::V => self.out.write_fmt(text),
            Verb::S => write!(self.out, "%!s({ty}={text})"),
        }
        .expect("memory takes all");
    }
}

/// A float as Go's `%v` prints it: with an exponent from a million up and below a ten-thousandth.
fn float(n: f64) -> String {
    let scientific = format!("{n:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn values_print_as_in_go() {
        let value =
            json::parse(br#"{"a":[1,null,"x y",{"b":true}],"c":1.5,"d":2e7,"e":-2.5e-7,"f":123456.5}"#).unwrap();
        let Value::Object(map) = value else { unreachable!() };
        assert_eq!(print_map(&map), "map[a:[1 <nil> x y map[b:true]] c:1.5 d:2e+07 e:-2.5e-07 f:123456.5]");
        let error = Error::unknown_directive(map.get("a").unwrap(), &Map::new());
        assert_eq!(
            error.to_string(),
            "unknown patch type: [%!s(int64=1) <nil> x y map[b:%!s(bool=true)]] in map: map[]"
        );
    }
}
