//! What is wrong with a field, and how it is said.

use std::fmt;

use crate::Value;

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

    /// The value is of the wrong type.
    pub fn type_invalid(field: impl ToString, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Error::new(ErrorType::TypeInvalid, field, Some(value.into()), detail)
    }

    /// The value is none of `supported`, which are shown in the given order.
    pub fn not_supported<S: AsRef<str>>(field: impl ToString, value: impl Into<Value>, supported: &[S]) -> Self {
        let mut detail = String::new();
        if !supported.is_empty() {
            let quoted: Vec<_> = supported.iter().map(|s| crate::go::quote(s.as_ref())).collect();
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
        let unit = if max == 1 { "byte" } else { "bytes" };
        Error::new(ErrorType::TooLong, field, None, format!("may not be more than {max} {unit}"))
    }

    /// There are `actual` elements, more than `max`.
    pub fn too_many(field: impl ToString, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let actual = Value::Int(i64::try_from(actual).unwrap_or(i64::MAX));
        Error::new(ErrorType::TooMany, field, Some(actual), format!("must have at most {max} {unit}"))
    }

    /// There are `actual` elements, fewer than `min`.
    pub fn too_few(field: impl ToString, actual: usize, min: usize) -> Self {
        let unit = if min == 1 { "item" } else { "items" };
        let actual = Value::Int(i64::try_from(actual).unwrap_or(i64::MAX));
        Error::new(ErrorType::TooFew, field, Some(actual), format!("must have at least {min} {unit}"))
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
        if let Some(value) = &self.bad_value {
            text = format!("{text}: {}", crate::go::show(value));
        }
        if !self.detail.is_empty() {
            text = format!("{text}: {}", self.detail);
        }
        text
    }
}
