//! The number of a JSON text, before it is decided what it is.

use crate::Value;

/// A number as it is written; the reader has checked its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<'a>(pub(super) &'a str);

impl<'a> Number<'a> {
    /// As written.
    #[must_use]
    pub fn text(self) -> &'a str {
        self.0
    }

    /// The number, if it is written as an integer (no fraction, no exponent) and fits.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The nearest 64-bit number; nothing when it is beyond the largest.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        self.0.parse().ok().filter(|n: &f64| n.is_finite())
    }

    /// An integer if it is written as one and fits, otherwise a float, as Go decodes what has no type.
    #[must_use]
    pub fn to_value(self) -> Option<Value> {
        self.as_i64().map(Value::Int).or_else(|| self.as_f64().map(Value::Float))
    }
}
