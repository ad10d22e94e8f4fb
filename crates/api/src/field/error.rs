//! What is wrong with a field, and how it is said.

use std::{collections::HashSet, fmt};

use crate::{Value, go};

/// The kinds of field errors, with the reasons that clients match on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// What the field names does not exist.
    NotFound,
    /// The field must have a value.
    Required,
    /// Another element has this value already.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is none of those that are known.
    NotSupported,
    /// The value is well-formed, but may not be set here.
    Forbidden,
    /// The value is too long.
    TooLong,
    /// There are too many elements.
    TooMany,
    /// There are too few elements.
    TooFew,
    /// Something else went wrong.
    Internal,
    /// The value is of the wrong type.
    TypeInvalid,
    /// The value is too short.
    TooShort,
}

impl ErrorType {
    /// What the error is called in the causes of a `Status`.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        self.names().0
    }

    /// Whether the wrong value is part of the text. The others either have none or it would be too long.
    const fn shows_value(self) -> bool {
        use ErrorType::{Forbidden, Internal, Required, TooLong, TooShort};
        !matches!(self, Required | Forbidden | TooLong | TooShort | Internal)
    }

    const fn names(self) -> (&'static str, &'static str) {
        match self {
            ErrorType::NotFound => ("FieldValueNotFound", "Not found"),
            ErrorType::Required => ("FieldValueRequired", "Required value"),
            ErrorType::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            ErrorType::Invalid => ("FieldValueInvalid", "Invalid value"),
            ErrorType::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            ErrorType::Forbidden => ("FieldValueForbidden", "Forbidden"),
            ErrorType::TooLong => ("FieldValueTooLong", "Too long"),
            ErrorType::TooMany => ("FieldValueTooMany", "Too many"),
            ErrorType::TooFew => ("FieldValueTooFew", "Too few"),
            ErrorType::Internal => ("InternalError", "Internal error"),
            ErrorType::TypeInvalid => ("FieldValueTypeInvalid", "Invalid value"),
            ErrorType::TooShort => ("FieldValueTooShort", "Too short"),
        }
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.names().1)
    }
}

/// One field's error. It prints as `field: what is wrong`, word for word as upstream prints it.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What kind of error it is.
    pub ty: ErrorType,
    /// The path of the field.
    pub field: String,
    /// The value that is wrong, if it is shown.
    pub bad_value: Option<Value>,
    /// What is wrong with it.
    pub detail: String,
}

/// All that is wrong with an object.
pub type ErrorList = Vec<Error>;

impl Error {
    fn new(ty: ErrorType, field: impl ToString, bad_value: Option<Value>, detail: impl Into<String>) -> Self {
        Error { ty, field: field.to_string(), bad_value, detail: detail.into() }
    }

    /// The field must have a value; `detail` may say more.
    pub fn required(field: impl ToString, detail: impl Into<String>) -> Self {
        Error::new(ErrorType::Required, field, None, detail)
    }

    /// The value is malformed or out of bounds.
    pub fn invalid(field: impl ToString, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Error::new(ErrorType::Invalid, field, Some(value.into()), detail)
    }

    /// The value is malformed or out of bounds, and `shown` is how it prints.
    ///
    /// For what Go prints from a struct, whose fields are in an order that a [`Map`](crate::Map) does not keep.
    pub fn invalid_shown(field: impl ToString, shown: impl fmt::Display, detail: impl fmt::Display) -> Self {
        Error::new(ErrorType::Invalid, field, None, format!("{shown}: {detail}"))
    }

    /// The value is of the wrong type.
    pub fn type_invalid(field: impl ToString, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Error::new(ErrorType::TypeInvalid, field, Some(value.into()), detail)
    }

    /// The value is none of `supported`, which are shown in the given order.
    pub fn not_supported<S: AsRef<str>>(field: impl ToString, value: impl Into<Value>, supported: &[S]) -> Self {
        let mut detail = String::new();
        if !supported.is_empty() {
            let quoted: Vec<_> = supported.iter().map(|s| go::quote(s.as_ref())).collect();
            detail = format!("supported values: {}", quoted.join(", "));
        }
        Error::new(ErrorType::NotSupported, field, Some(value.into()), detail)
    }

    /// Another element has this value already.
    pub fn duplicate(field: impl ToString, value: impl Into<Value>) -> Self {
        Error::new(ErrorType::Duplicate, field, Some(value.into()), "")
    }

    /// What the field names does not exist.
    pub fn not_found(field: impl ToString, value: impl Into<Value>) -> Self {
        Error::new(ErrorType::NotFound, field, Some(value.into()), "")
    }

    /// The value may not be set here.
    pub fn forbidden(field: impl ToString, detail: impl Into<String>) -> Self {
        Error::new(ErrorType::Forbidden, field, None, detail)
    }

    /// The value is longer than `max` bytes. It is not shown, being long.
    pub fn too_long(field: impl ToString, max: usize) -> Self {
        let detail = format!("may not be more than {}", count(max, "byte"));
        Error::new(ErrorType::TooLong, field, None, detail)
    }

    /// The value is longer than `max` characters. It is not shown, being long.
    pub fn too_long_characters(field: impl ToString, max: usize) -> Self {
        let detail = format!("may not be more than {}", count(max, "character"));
        Error::new(ErrorType::TooLong, field, None, detail)
    }

    /// The value is shorter than `min` characters. It is not shown either.
    pub fn too_short(field: impl ToString, min: usize) -> Self {
        Error::new(ErrorType::TooShort, field, None, format!("must be at least {}", count(min, "character")))
    }

    /// There are `actual` elements, more than `max`.
    pub fn too_many(field: impl ToString, actual: usize, max: usize) -> Self {
        let detail = format!("must have at most {}", count(max, "item"));
        Error::new(ErrorType::TooMany, field, Some(int(actual)), detail)
    }

    /// There are `actual` elements, fewer than `min`.
    pub fn too_few(field: impl ToString, actual: usize, min: usize) -> Self {
        let detail = format!("must have at least {}", count(min, "item"));
        Error::new(ErrorType::TooFew, field, Some(int(actual)), detail)
    }

    /// Something else went wrong while looking at the field.
    pub fn internal(field: impl ToString, error: impl fmt::Display) -> Self {
        Error::new(ErrorType::Internal, field, None, error.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The error without its field, as the causes of a `Status` carry it.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = self.ty.to_string();
        if let Some(value) = self.bad_value.as_ref().filter(|_| self.ty.shows_value()) {
            text.push_str(": ");
            text.push_str(&go::show(value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// `1 item`, `2 items`.
fn count(n: usize, unit: &str) -> String {
    format!("{n} {unit}{}", if n == 1 { "" } else { "s" })
}

fn int(n: usize) -> Value {
    Value::Int(i64::try_from(n).unwrap_or(i64::MAX))
}

/// All that is wrong in one line, each message once: nothing, `a`, or `[a, b]`.
pub fn aggregate<E: fmt::Display>(errors: impl IntoIterator<Item = E>) -> String {
    let mut seen = HashSet::new();
    let messages: Vec<_> = errors.into_iter().map(|e| e.to_string()).filter(|e| seen.insert(e.clone())).collect();
    match &messages[..] {
        [] => String::new(),
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Map, json};

    fn check(error: Error, expected: &str) {
        assert_eq!(error.to_string(), expected);
    }

    /// The expected texts are what upstream's constructors print.
    #[test]
    fn rendering() {
        check(Error::required("a.b", ""), "a.b: Required value");
        check(Error::required("a", "why"), "a: Required value: why");
        check(Error::invalid("a", "x\"y\n", "bad"), r#"a: Invalid value: "x\"y\n": bad"#);
        check(Error::invalid("a", "", "bad"), r#"a: Invalid value: "": bad"#);
        check(Error::invalid("a", 5, ""), "a: Invalid value: 5");
        check(Error::invalid("a", Value::Float(1e6), "x"), "a: Invalid value: 1e+06: x");
        check(Error::invalid("a", Value::Float(2.0), "x"), "a: Invalid value: 2: x");
        check(Error::invalid("a", true, "x"), "a: Invalid value: true: x");
        check(Error::invalid("a", Value::Null, "x"), "a: Invalid value: null: x");
        let map = json::parse(br#"{"b":[1,null,2.5,1000000.0],"a":"<&>"}"#).unwrap();
        let shown = r#"{"a":"\u003c\u0026\u003e","b":[1,null,2.5,1000000]}"#;
        check(Error::invalid("a", map, "x"), &format!("a: Invalid value: {shown}: x"));
        check(Error::invalid("a", Map::new(), "x"), "a: Invalid value: {}: x");
        check(Error::invalid_shown("a", r#"{"b":1,"a":2}"#, "x"), r#"a: Invalid value: {"b":1,"a":2}: x"#);
        check(Error::type_invalid("a", "s", "must be integer"), r#"a: Invalid value: "s": must be integer"#);
        check(Error::not_supported("a", "z", &["x", "y"]), r#"a: Unsupported value: "z": supported values: "x", "y""#);
        check(Error::not_supported::<&str>("a", "z", &[]), r#"a: Unsupported value: "z""#);
        check(Error::duplicate("a[1]", "z"), r#"a[1]: Duplicate value: "z""#);
        check(Error::not_found("a", 7), "a: Not found: 7");
        check(Error::forbidden("a", "no"), "a: Forbidden: no");
        check(Error::too_long("a", 1), "a: Too long: may not be more than 1 byte");
        check(Error::too_long("a", 2), "a: Too long: may not be more than 2 bytes");
        check(Error::too_long_characters("a", 2), "a: Too long: may not be more than 2 characters");
        check(Error::too_short("a", 1), "a: Too short: must be at least 1 character");
        check(Error::too_many("a", 3, 1), "a: Too many: 3: must have at most 1 item");
        check(Error::too_few("a", 0, 2), "a: Too few: 0: must have at least 2 items");
        check(Error::internal("a", "boom"), "a: Internal error: boom");
        check(
            Error { bad_value: Some("hidden".into()), ..Error::too_long("a", 2) },
            "a: Too long: may not be more than 2 bytes",
        );
    }

    #[test]
    fn aggregates() {
        assert_eq!(aggregate::<Error>([]), "");
        assert_eq!(aggregate(["a", "a"]), "a");
        assert_eq!(aggregate(["b", "a", "b"]), "[b, a]");
    }
}
