//! What can be said of a value without looking into it: types, strings, numbers, enumerations.

use super::{Checks, failure::Failures, failure::Kind};
use crate::{
    Value,
    field::Segment,
    go, json,
    schema::{Format, NodeRef, Rules, Type},
};

/// One value at one node, and where to complain.
pub(super) struct Scalar<'w, 'a> {
    pub(super) node: NodeRef<'a>,
    pub(super) value: &'a Value,
    pub(super) path: &'w [Segment<'a>],
    pub(super) failures: &'w mut Failures<'a>,
    pub(super) checks: Checks,
}

impl Scalar<'_, '_> {
    fn add(&mut self, describe: impl FnOnce(&str) -> (String, Kind)) {
        self.failures.add(self.path, describe);
    }

    /// A value that fails; the message goes on from `… in body`.
    fn invalid(&mut self, value: Value, message: &str) {
        self.add(|name| (format!("{name} in body {message}"), Kind::Invalid(value)));
    }

    fn wrong_type(&mut self, wanted: &str, found: &str) {
        self.add(|name| {
            (format!("{name} in body must be of type {wanted}: {}", go::quote(found)), Kind::Type(found.to_owned()))
        });
    }

    fn is_int_or_string(&self) -> bool {
        self.checks.int_or_string && self.node.is_int_or_string()
    }

    fn has_type(&self) -> bool {
        self.node.ty() != Type::Any || self.is_int_or_string()
    }

    fn allows(&self, ty: Type) -> bool {
        if self.is_int_or_string() { matches!(ty, Type::Integer | Type::String) } else { self.node.ty() == ty }
    }

    fn type_names(&self) -> &'static str {
        if self.is_int_or_string() {
            return "integer,string";
        }
        match self.node.ty() {
            Type::Any => "",
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    /// The format that counts, as the schema spells it; empty if there is none.
    fn format(&self) -> &str {
        let format = self.node.format();
        let counts = self.checks.formats && !matches!(format, Format::None | Format::Quantity);
        if !counts && !self.checks.all_formats {
            return "";
        }
        let written = self.node.rules().find_map(|rules| rules.format.as_deref());
        match (written, format) {
            (Some(written), Format::IntOrString)
                if !Format::parse(written).is_of_strings() && !self.checks.all_formats =>
            {
                ""
            }
            (Some(written), _) => written,
            (None, Format::IntOrString) => "",
            (None, format) => format.name(),
        }
    }

    /// Checks the type, and returns for how many matches it counts in upstream's choice of the best alternative.
    pub(super) fn check_type(&mut self) -> u64 {
        if !self.value.is_null() && !self.has_type() && self.format().is_empty() {
            return 0;
        }
        let (ty, found, found_format) = match self.value {
            Value::Null => {
                let wrong = self.has_type() && !self.node.is_nullable();
                if wrong {
                    self.wrong_type(self.type_names(), "null");
                }
                return u64::from(!wrong);
            }
            Value::Bool(_) => (Type::Boolean, "boolean", ""),
            Value::Int(_) => (Type::Integer, "integer", "int64"),
            Value::Float(_) => (Type::Number, "number", "float64"),
            Value::String(_) => (Type::String, "string", ""),
            Value::Array(_) => (Type::Array, "array", ""),
            Value::Object(_) => (Type::Object, "object", ""),
        };
        let right = self.allows(ty)
            || match self.value {
                Value::Int(_) => self.allows(Type::Number) || self.node.format() == Format::Quantity,
                Value::Float(n) => {
                    (self.allows(Type::Integer) && is_integer(*n)) || self.node.format() == Format::Quantity
                }
                _ => false,
            };
        if right {
            return 2;
        }
        let sequence = matches!(ty, Type::String | Type::Array);
        let format = self.format().to_owned();
        if !format.is_empty() && !sequence && found_format != format {
            self.wrong_type(&format, found_format);
            return 1;
        }
        // Upstream takes lists for strings where there is a format.
        if !format.is_empty() && sequence && !self.allows(Type::Number) && !self.allows(Type::Integer) {
            return 2;
        }
        self.wrong_type(self.type_names(), found);
        1
    }

    /// Checks what a string or number must be like, and returns for how many matches it counts.
    pub(super) fn check_content(&mut self) -> u64 {
        match self.value {
            Value::String(text) => {
                for rules in self.node.rules() {
                    self.check_string(text, rules);
                }
                let format = Format::parse(self.format());
                if !format.is_of_strings() {
                    return 1;
                }
                if !format.accepts(text) {
                    let wanted = self.format().to_owned();
                    self.wrong_type(&wanted, text);
                }
                2
            }
            Value::Int(_) | Value::Float(_) => {
                self.check_number();
                2
            }
            _ => 0,
        }
    }

    fn check_string(&mut self, text: &str, rules: &Rules) {
        let value = || Value::from(text);
        // A string has at least a fourth as many characters as bytes, and never more.
        let is_longer = |max: u64| text.len() as u64 > max && text.chars().count() as u64 > max;
        let is_shorter = |min: u64| text.len() as u64 / 4 < min && (text.chars().count() as u64) < min;
        if let Some(max) = rules.max_length.filter(|&max| is_longer(max)) {
            self.add(|name| (format!("{name} in body should be at most {max} chars long"), Kind::TooLong(max)));
        } else if let Some(min) = rules.min_length.filter(|&min| is_shorter(min)) {
            self.invalid(value(), &format!("should be at least {min} chars long"));
        } else if let (Some(pattern), Some(written)) = (&rules.pattern, &rules.pattern_text)
            && !pattern.is_match(text)
        {
            self.invalid(value(), &format!("should match '{written}'"));
        }
    }

    fn check_number(&mut self) {
        let value = self.value;
        let number = value.as_f64().unwrap_or_default();
        self.check_range("Checked", value);
        for rules in self.node.rules() {
            if let Some(factor) = rules.multiple_of {
                let native = self.check_range("MultipleOf", &Value::Float(factor));
                self.check_multiple(factor, value.as_i64().filter(|_| native), number);
            }
            // The comparison is among integers where the value is one and the bound fits.
            let mut bound = |(bound, exclusive): (f64, bool), what: &str, words: [&str; 2], beyond: [bool; 2]| {
                let native = self.check_range(what, &Value::Float(bound));
                let (order, shown) = match value {
                    Value::Int(n) if native => (n.partial_cmp(&to_int(bound)), Value::Int(to_int(bound))),
                    _ => (number.partial_cmp(&bound), Value::Float(bound)),
                };
                let wrong = match order {
                    Some(std::cmp::Ordering::Greater) => beyond[1],
                    Some(std::cmp::Ordering::Less) => beyond[0],
                    Some(std::cmp::Ordering::Equal) => exclusive,
                    None => false,
                };
                if wrong {
                    let value = if native { value.clone() } else { Value::Float(number) };
                    let words = if exclusive { words[0] } else { words[1] };
                    self.invalid(value, &format!("should be {words} {}", go::show(&shown)));
                }
            };
            if let Some(minimum) = rules.minimum {
                let words = ["greater than", "greater than or equal to"];
                bound(minimum, "Minimum boundary", words, [true, false]);
            }
            if let Some(maximum) = rules.maximum {
                bound(maximum, "Maximum boundary", ["less than", "less than or equal to"], [false, true]);
            }
        }
    }

    /// Whether a number can be what the node's type says; upstream asks that of bounds too.
    fn check_range(&mut self, what: &str, value: &Value) -> bool {
        let (ty, format) = match self.node.ty() {
            _ if self.is_int_or_string() => return true,
            Type::Integer => ("integer", self.node.format()),
            Type::Number => ("number", self.node.format()),
            _ => return true,
        };
        let fits = match (value, ty) {
            (Value::Int(n), "integer") => format != Format::Int32 || i32::try_from(*n).is_ok(),
            (Value::Float(n), "integer") => {
                let (low, high) = if format == Format::Int32 {
                    (f64::from(i32::MIN), f64::from(i32::MAX) + 1.0)
                } else {
                    (-TWO_TO_63, TWO_TO_63)
                };
                n.fract() == 0.0 && (low..high).contains(n)
            }
            (Value::Float(n), _) => format != Format::Float || (*n as f32).is_finite(),
            _ => true,
        };
        if !fits {
            let kind = match format {
                Format::None => "(default format)".to_owned(),
                format => format!("with format {}", format.name()),
            };
            self.add(|name| (format!("{what} value must be of type {ty} {kind} in {name}"), Kind::Nowhere));
        }
        fits
    }

    fn check_multiple(&mut self, factor: f64, integer: Option<i64>, number: f64) {
        let (positive, multiple, shown, value) = match integer {
            Some(n) => {
                let factor = to_int(factor);
                (factor > 0, factor > 0 && n % factor == 0, Value::Int(factor), Value::Int(n))
            }
            None => {
                let times = if factor < 1.0 { 1.0 / factor * number } else { number / factor };
                (factor > 0.0, is_integer(times), Value::Float(factor), Value::Float(number))
            }
        };
        if !positive {
            let text = go::show(&shown);
            self.add(|name| {
                (format!("factor MultipleOf declared for {name} must be positive: {text}"), Kind::Invalid(shown))
            });
        } else if !multiple {
            self.invalid(value, &format!("should be a multiple of {}", go::show(&shown)));
        }
    }

    /// Checks that the value is one of those there are.
    pub(super) fn check_enumeration(&mut self) {
        for rules in self.node.rules() {
            let all = &rules.enumeration;
            if all.is_empty() || all.iter().any(|one| is_same(self.value, one)) {
                continue;
            }
            let text = |one: &Value| one.as_str().map_or_else(|| json::to_string(one), str::to_owned);
            let supported: Vec<_> = all.iter().map(text).collect();
            let value = self.value.clone();
            self.add(|name| {
                let message = format!("{name} in body should be one of {supported:?}");
                (message, Kind::Unsupported(value, supported))
            });
        }
    }
}

/// Whether a value is the enumerated one. Upstream converts the value to the other's type as Go does: floats lose their
/// fraction, integers are taken for characters. `null` is never the same.
fn is_same(value: &Value, one: &Value) -> bool {
    match (value, one) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Int(n), Value::Float(one)) => *n as f64 == *one,
        (Value::Float(n), Value::Int(one)) => to_int(*n) == *one,
        (Value::Int(n), Value::String(one)) => {
            let letter = u32::try_from(*n).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            let mut letters = one.chars();
            letters.next() == Some(letter) && letters.next().is_none()
        }
        _ => value == one,
    }
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// The integer part; beyond what fits, what the usual processors say.
fn to_int(n: f64) -> i64 {
    if (-TWO_TO_63..TWO_TO_63).contains(&n) { n as i64 } else { i64::MIN }
}

/// Whether a float is an integer that JSON's readers all agree on, or nearly one.
fn is_integer(n: f64) -> bool {
    const MAX: f64 = 9_007_199_254_740_991.0;
    const EPSILON: f64 = 1e-9;
    if !(-MAX..=MAX).contains(&n) {
        return false;
    }
    if n.fract() == 0.0 {
        return true;
    }
    let whole = n.trunc();
    n > 0.0 && whole != 0.0 && (n - whole) / (n + whole) < EPSILON
}
