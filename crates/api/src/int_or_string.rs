//! A field that is a number or a string, often a percentage.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Str, Value, go};

/// A number or a string: a port by number or name, a count or a percentage.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A string.
    String(Str),
}

/// What is wrong with a value that should be a count or a percentage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PercentError(String);

impl fmt::Display for PercentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid value for IntOrString: {}", self.0)
    }
}

impl std::error::Error for PercentError {}

impl IntOrString {
    /// What a user typed: a number if it can be read as one.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.parse().map_or_else(|_| IntOrString::String(text.into()), IntOrString::Int)
    }

    /// The number, or the number that the string says; 0 if it says none.
    #[must_use]
    pub fn int_value(&self) -> i64 {
        match self {
            IntOrString::Int(n) => (*n).into(),
            // What is beyond the largest number counts as the largest, as in Go.
            IntOrString::String(text) => go::atoi(text).unwrap_or_else(|error| error.nearest),
        }
    }

    /// The number, or so many percent of `total`.
    ///
    /// # Errors
    /// If it is a string that is not an integer with `%` behind it.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "as in Go")]
    pub fn scaled(&self, total: i64, round_up: bool) -> Result<i64, PercentError> {
        let text = match self {
            IntOrString::Int(n) => return Ok((*n).into()),
            IntOrString::String(text) => text,
        };
        let Some(percent) = text.strip_suffix('%') else {
            return Err(PercentError("invalid type: string is not a percentage".to_owned()));
        };
        let percent =
            go::atoi(percent).map_err(|error| PercentError(format!("invalid value {}: {error}", go::quote(text))))?;
        let scaled = percent as f64 * total as f64 / 100.0;
        Ok(if round_up { scaled.ceil() } else { scaled.floor() } as i64)
    }
}

impl Default for IntOrString {
    fn default() -> Self {
        IntOrString::Int(0)
    }
}

impl From<i32> for IntOrString {
    fn from(n: i32) -> Self {
        IntOrString::Int(n)
    }
}

impl From<&str> for IntOrString {
    fn from(text: &str) -> Self {
        IntOrString::String(text.into())
    }
}

impl From<IntOrString> for Value {
    fn from(value: IntOrString) -> Self {
        match value {
            IntOrString::Int(n) => n.into(),
            IntOrString::String(text) => text.into(),
        }
    }
}

impl TryFrom<&Value> for IntOrString {
    type Error = String;

    /// Reads a value as Go's decoder does: `null` is 0, a number must be an integer of 32 bits.
    fn try_from(value: &Value) -> Result<Self, String> {
        let wrong = |what| format!("json: cannot unmarshal {what} into Go value of type int32");
        match value {
            Value::Null => Ok(IntOrString::Int(0)),
            Value::String(text) => Ok(IntOrString::String(text.clone())),
            Value::Int(n) => i32::try_from(*n).map(IntOrString::Int).map_err(|_| wrong(format!("number {n}"))),
            Value::Float(_) => Err(wrong(format!("number {value}"))),
            Value::Bool(_) => Err(wrong("bool".to_owned())),
            Value::Array(_) => Err(wrong("array".to_owned())),
            Value::Object(_) => Err(wrong("object".to_owned())),
        }
    }
}

impl fmt::Display for IntOrString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IntOrString::Int(n) => write!(f, "{n}"),
            IntOrString::String(text) => f.write_str(text),
        }
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            IntOrString::Int(n) => serializer.serialize_i32(*n),
            IntOrString::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either<'a> {
            Int(i64),
            #[serde(borrow)]
            String(Cow<'a, str>),
            Null(()),
        }
        let value = match Either::deserialize(deserializer)? {
            Either::Int(n) => Value::Int(n),
            Either::String(text) => Value::String(text.into()),
            Either::Null(()) => Value::Null,
        };
        IntOrString::try_from(&value).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::golden;

    #[test]
    fn scaled_as_upstream() {
        golden::check("percent.jsonl", |input| {
            let value = IntOrString::parse(input);
            let scale = |total, up| value.scaled(total, up).map_or_else(|error| error.to_string(), |n| n.to_string());
            format!("{} {} {} {}", value.int_value(), scale(10, true), scale(10, false), scale(7, true))
        });
    }

    #[test]
    fn json() {
        for (text, value) in [("80", IntOrString::Int(80)), ("\"80\"", "80".into()), ("\"25%\"", "25%".into())] {
            assert_eq!(serde_json::from_str::<IntOrString>(text).unwrap(), value);
            assert_eq!(serde_json::to_string(&value).unwrap(), text);
            assert_eq!(IntOrString::try_from(&Value::from(value.clone())), Ok(value));
        }
        assert_eq!(serde_json::from_str::<IntOrString>("null").unwrap(), IntOrString::Int(0));
        for text in ["1.5", "true", "[]", "5000000000"] {
            assert!(serde_json::from_str::<IntOrString>(text).is_err(), "{text}");
        }
        let wrong = IntOrString::try_from(&Value::Int(5_000_000_000)).unwrap_err();
        assert_eq!(wrong, "json: cannot unmarshal number 5000000000 into Go value of type int32");
    }

    proptest! {
        #[test]
        fn never_panics(text: String, digits in "[-+]?[0-9]{0,25}%?", total: i64, up: bool) {
            for text in [text, digits] {
                let value = IntOrString::parse(&text);
                let _ = (value.int_value(), value.scaled(total, up));
            }
        }
    }
}
