//! One requirement on one label.

use std::fmt;

use super::Labels;
use crate::{
    Array, Str, Value,
    field::{Error, ErrorList, Path},
    go,
    validation::{is_qualified_name, is_valid_label_value},
};

/// How a label and the values of a requirement relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key in (a,b)`: the label is there and has one of the values.
    In,
    /// `key notin (a,b)`: the label is not there, or has none of the values.
    NotIn,
    /// `key=a`: the label is there and has the value.
    Equals,
    /// `key==a`: the same.
    DoubleEquals,
    /// `key!=a`: the label is not there, or has another value.
    NotEquals,
    /// `key`: the label is there.
    Exists,
    /// `!key`: the label is not there.
    DoesNotExist,
    /// `key>1`: the label is a larger number.
    GreaterThan,
    /// `key<1`: the label is a smaller number.
    LessThan,
}

impl Operator {
    /// What the operator is called in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Operator::In => "in",
            Operator::NotIn => "notin",
            Operator::Equals => "=",
            Operator::DoubleEquals => "==",
            Operator::NotEquals => "!=",
            Operator::Exists => "exists",
            Operator::DoesNotExist => "!",
            Operator::GreaterThan => "gt",
            Operator::LessThan => "lt",
        }
    }
}

/// A key, an operator and values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Box<str>,
    operator: Operator,
    values: Box<[Str]>,
    /// The value to compare with, of the operators that compare numbers.
    number: i64,
}

impl Requirement {
    /// A requirement, if key and values are valid and there are as many values as the operator takes.
    ///
    /// # Errors
    /// All that is wrong, below `path`.
    pub fn new(key: &str, operator: Operator, values: Vec<Str>, path: &Path<'_>) -> Result<Self, ErrorList> {
        let mut errors: ErrorList = key_error(key, &path.child("key")).into_iter().collect();
        let values_path = path.child("values");
        let wrong_count = match operator {
            Operator::In | Operator::NotIn if values.is_empty() => {
                Some("for 'in', 'notin' operators, values set can't be empty")
            }
            Operator::Equals | Operator::DoubleEquals | Operator::NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            Operator::GreaterThan | Operator::LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(detail) = wrong_count {
            errors.push(Error::invalid(values_path, show(&values), detail));
        }
        let mut number = 0;
        if matches!(operator, Operator::GreaterThan | Operator::LessThan) {
            for (at, value) in values.iter().enumerate() {
                match go::parse_int(value) {
                    Ok(n) => number = n,
                    Err(_) => {
                        let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                        errors.push(Error::invalid(values_path.index(at), value.as_str(), detail));
                    }
                }
            }
        }
        for (at, value) in values.iter().enumerate() {
            let messages = is_valid_label_value(value);
            if !messages.is_empty() {
                let place = values_path.index(at);
                errors.push(Error::invalid(place.key(key), value.as_str(), messages.join("; ")));
            }
        }
        if errors.is_empty() {
            Ok(Requirement { key: key.into(), operator, values: values.into(), number })
        } else {
            Err(errors)
        }
    }

    /// `key=value`, without asking whether both are valid.
    pub(super) fn equals(key: &str, value: &str) -> Self {
        Requirement { key: key.into(), operator: Operator::Equals, values: [value.into()].into(), number: 0 }
    }

    /// The label.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How label and values relate.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values.
    #[must_use]
    pub fn values(&self) -> &[Str] {
        &self.values
    }

    /// Whether these labels are as required.
    #[must_use]
    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        let value = labels.get(&self.key);
        let listed = |value: &str| self.values.iter().any(|v| v == value);
        let compare = |holds: fn(&i64, &i64) -> bool| {
            value.and_then(|v| v.parse().ok()).is_some_and(|n: i64| holds(&n, &self.number))
        };
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(listed),
            Operator::NotIn | Operator::NotEquals => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => compare(i64::gt),
            Operator::LessThan => compare(i64::lt),
        }
    }
}

/// What is wrong with the key of a label.
pub(super) fn key_error(key: &str, path: &Path<'_>) -> Option<Error> {
    let messages = is_qualified_name(key);
    (!messages.is_empty()).then(|| Error::invalid(path, key, messages.join("; ")))
}

/// Values as Go prints them: no values at all are a nil slice.
fn show(values: &[Str]) -> Value {
    if values.is_empty() {
        return Value::Null;
    }
    Value::Array(Array::from_iter(values.iter().cloned().map(Value::String)))
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut values: Vec<_> = self.values.iter().map(Str::as_str).collect();
        values.sort_unstable();
        let (key, values) = (&self.key, values.join(","));
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}
