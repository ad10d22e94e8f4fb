//! What can be wrong with a JSON patch, in the words of upstream's library.

use std::fmt;

use super::{MAX_COPY_BYTES, MAX_MOVED_ELEMENTS, MAX_OPERATIONS};
use crate::{Str, Value, go};

/// A document that is not a JSON patch.
///
/// The server answers the first two with 400 BadRequest and this message, the last with 413 RequestEntityTooLarge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Not a list, but this type of JSON.
    NotAList(&'static str),
    /// An element is not an object, but this type of JSON.
    NotAnOperation(&'static str),
    /// More than [`MAX_OPERATIONS`].
    TooManyOperations(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::NotAList(ty) => {
                write!(f, "json: cannot unmarshal {ty} into Go value of type jsonpatch.Patch")
            }
            DecodeError::NotAnOperation(ty) => {
                write!(f, "json: cannot unmarshal {ty} into Go value of type jsonpatch.Operation")
            }
            DecodeError::TooManyOperations(count) => {
                write!(f, "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// The type in the words of Go's decoder.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        other => other.type_name(),
    }
}

/// What an operation was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the operations by their names")]
pub enum Step {
    Add,
    Remove,
    Replace,
    Test,
    MoveFrom,
    MoveTo,
    CopyFrom,
    CopyTo,
}

/// A patch that does not apply.
///
/// The server answers every one of these with the same 422 Invalid, `the server rejected our request due to an error in
/// our request`; the words here are for logs and for those who use the crate directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The document is neither an object nor a list, but this type of JSON.
    Document(&'static str),
    /// An operation that there is not.
    UnknownOperation(Str),
    /// `path` or `from` is missing or, as given here, of another type than string.
    Pointer(Step, Option<&'static str>),
    /// Nothing can have a member there.
    MissingPath(Step, Str),
    /// The element that is to be replaced is not there.
    MissingElement(Str),
    /// The last part of the path cannot be used.
    Member(Step, Str, MemberError),
    /// A test found something else.
    TestFailed(Str),
    /// The whole document is to be replaced by a scalar.
    ReplaceDocument,
    /// The copies are larger than [`MAX_COPY_BYTES`] together.
    TooMuchCopied(usize),
    /// More than [`MAX_MOVED_ELEMENTS`] had to make room. Upstream has no such limit.
    TooManyMoved,
    /// The outcome nests deeper than a document may.
    TooDeep,
}

/// Why a member of a list or an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberError {
    /// The list is not that long.
    Index(i64),
    /// Not a number; whether a new element was to have it.
    NotAnIndex(Str, bool),
    /// A number beyond all lists; whether a new element was to have it.
    IndexRange(Str, bool),
    /// The object has no such field.
    NoSuchField(Str),
}

impl fmt::Display for MemberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, new, wrong) = match self {
            MemberError::Index(at) => {
                return write!(f, "Unable to access invalid index: {at}: invalid index referenced");
            }
            MemberError::NoSuchField(key) => {
                return write!(f, "Unable to remove nonexistent key: {key}: missing value");
            }
            MemberError::NotAnIndex(key, new) => (key, new, "invalid syntax"),
            MemberError::IndexRange(key, new) => (key, new, "value out of range"),
        };
        if *new {
            write!(f, "value was not a proper array index: '{key}': ")?;
        }
        write!(f, "strconv.Atoi: parsing {}: {wrong}", go::quote(key))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Document(ty) => write!(f, "json: cannot unmarshal {ty} into Go value of type jsonpatch.partialDoc"),
            Error::UnknownOperation(op) => write!(f, "Unexpected kind: {op}"),
            Error::Pointer(step, wrong) => pointer(f, *step, *wrong),
            Error::MissingPath(step, path) => {
                let (op, missing) = match step {
                    Step::Add => {
                        return write!(
                            f,
                            "add operation does not apply: doc is missing path: \"{path}\": missing value"
                        );
                    }
                    Step::Remove => {
                        return write!(
                            f,
                            "remove operation does not apply: doc is missing path: \"{path}\": missing value"
                        );
                    }
                    Step::Replace => ("replace", "doc is missing path"),
                    Step::Test => ("test", "is missing path"),
                    Step::MoveFrom => ("move", "doc is missing from path"),
                    Step::MoveTo => ("move", "doc is missing destination path"),
                    Step::CopyFrom => ("copy", "doc is missing from path"),
                    Step::CopyTo => ("copy", "doc is missing destination path"),
                };
                write!(f, "{op} operation does not apply: {missing}: {path}: missing value")
            }
            Error::MissingElement(path) => {
                write!(f, "replace operation does not apply: doc is missing key: {path}: missing value")
            }
            Error::Member(step, at, wrong) => match step {
                Step::Add => write!(f, "error in add for path: '{at}': {wrong}"),
                Step::Remove | Step::Replace => write!(f, "error in remove for path: '{at}': {wrong}"),
                Step::Test => write!(f, "error in test for path: '{at}': {wrong}"),
                Step::MoveFrom | Step::MoveTo => write!(f, "error in move for path: '{at}': {wrong}"),
                Step::CopyFrom => write!(f, "error in copy for from: '{at}': {wrong}"),
                Step::CopyTo => write!(f, "error while adding value during copy: {wrong}"),
            },
            Error::TestFailed(path) => write!(f, "testing value {path} failed: test failed"),
            // The library wraps an error that is not there.
            Error::ReplaceDocument => f.write_str("replace operation value must be object or array: %!w(<nil>)"),
            Error::TooMuchCopied(size) => write!(
                f,
                "Unable to complete the copy, the accumulated size increase of copy is {size}, \
                 exceeding the limit {MAX_COPY_BYTES}"
            ),
            Error::TooManyMoved => {
                write!(f, "Unable to complete the patch, it moves more than {MAX_MOVED_ELEMENTS} elements")
            }
            Error::TooDeep => f.write_str("exceeded max depth"),
        }
    }
}

fn pointer(f: &mut fmt::Formatter<'_>, step: Step, wrong: Option<&str>) -> fmt::Result {
    let (op, field) = match step {
        Step::Add => return f.write_str("add operation failed to decode path: missing value"),
        Step::Remove => return f.write_str("remove operation failed to decode path: missing value"),
        Step::CopyTo => return f.write_str("copy operation failed to decode path: missing value"),
        Step::Replace => ("replace", "path"),
        Step::Test => ("test", "path"),
        Step::MoveTo => ("move", "path"),
        Step::MoveFrom => ("move", "from"),
        Step::CopyFrom => ("copy", "from"),
    };
    write!(f, "{op} operation failed to decode {field}: ")?;
    match (wrong, field) {
        (Some(ty), _) => write!(f, "json: cannot unmarshal {ty} into Go value of type string"),
        (None, "path") => f.write_str("operation missing path field: missing value"),
        (None, _) => f.write_str("operation, missing from field: missing value"),
    }
}

impl std::error::Error for Error {}
