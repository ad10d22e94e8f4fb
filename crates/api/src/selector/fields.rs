//! Field selectors: `metadata.name=a,status.phase!=Running`.

use std::{fmt, str::FromStr};

use super::Labels;
use crate::Str;

/// Fields with the values that they must have, or must not have; all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
    nothing: bool,
}

/// A field and the value that it must, or must not, have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    /// The field.
    pub field: Str,
    /// Whether it must have another value.
    pub negated: bool,
    /// The value; what is not there has an empty one.
    pub value: Str,
}

/// Text that is not a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldError {
    /// A backslash before something that needs none.
    InvalidEscapeSequence(String),
    /// A comma or equals sign in a value, without a backslash.
    UnescapedCharacter(char),
    /// A term without an operator.
    Term {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldError::InvalidEscapeSequence(sequence) => {
                write!(f, "invalid field selector: invalid escape sequence: {sequence}")
            }
            // Upstream prints the number of the character.
            FieldError::UnescapedCharacter(c) => {
                write!(f, "invalid field selector: unescaped character in value: {}", u32::from(*c))
            }
            FieldError::Term { selector, term } => {
                write!(f, "invalid selector: '{selector}'; can't understand '{term}'")
            }
        }
    }
}

impl std::error::Error for FieldError {}

/// Puts a backslash before what has a meaning in selectors.
#[must_use]
pub fn escape_value(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Takes the backslashes away.
///
/// # Errors
/// If something is escaped that needs no escape, or not escaped that needs one.
pub fn unescape_value(value: &str) -> Result<String, FieldError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                other => {
                    let sequence = ['\\'].into_iter().chain(other).collect();
                    return Err(FieldError::InvalidEscapeSequence(sequence));
                }
            },
            ',' | '=' => return Err(FieldError::UnescapedCharacter(c)),
            c => out.push(c),
        }
    }
    Ok(out)
}

/// The terms between commas that are not escaped.
fn split_terms(selector: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in selector.bytes().enumerate() {
        match c {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&selector[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&selector[start..]);
    terms
}

/// Field, operator and value of a term; the first operator counts.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let at = term.find('=')?;
    let before = &term[..at];
    // `a!b=c`: the exclamation mark is part of an operator only right before the equals sign.
    if let Some(field) = before.strip_suffix('!') {
        return Some((field, true, &term[at + 1..]));
    }
    let value = &term[at + 1..];
    Some((before, false, value.strip_prefix('=').unwrap_or(value)))
}

impl FieldSelector {
    /// Selects all.
    #[must_use]
    pub fn everything() -> Self {
        FieldSelector::default()
    }

    /// Selects none.
    #[must_use]
    pub fn nothing() -> Self {
        FieldSelector { requirements: Vec::new(), nothing: true }
    }

    /// Selects what has this value.
    #[must_use]
    pub fn equals(field: &str, value: &str) -> Self {
        FieldSelector::from_iter([FieldRequirement { field: field.into(), negated: false, value: value.into() }])
    }

    /// The requirements, in order.
    #[must_use]
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Whether it selects all.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether these fields are as required.
    #[must_use]
    pub fn matches<F: Labels + ?Sized>(&self, fields: &F) -> bool {
        let holds = |r: &FieldRequirement| (fields.get(&r.field).unwrap_or("") == r.value) != r.negated;
        !self.nothing && self.requirements.iter().all(holds)
    }

    /// The value that the field must have, if there is one.
    #[must_use]
    pub fn requires_exact_match(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| !r.negated && r.field == field).map(|r| r.value.as_str())
    }

    /// Gives each field and value to `change`, which may rename them or refuse. What becomes empty is left out.
    ///
    /// # Errors
    /// What `change` returns.
    pub fn transform<E>(mut self, mut change: impl FnMut(&str, &str) -> Result<(Str, Str), E>) -> Result<Self, E> {
        for requirement in &mut self.requirements {
            (requirement.field, requirement.value) = change(&requirement.field, &requirement.value)?;
        }
        self.requirements.retain(|r| !r.field.is_empty() || !r.value.is_empty());
        Ok(self)
    }
}

impl FromIterator<FieldRequirement> for FieldSelector {
    fn from_iter<I: IntoIterator<Item = FieldRequirement>>(requirements: I) -> Self {
        FieldSelector { requirements: requirements.into_iter().collect(), nothing: false }
    }
}

impl FromStr for FieldSelector {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|term| !term.is_empty()) {
            let (field, negated, value) = split_term(term)
                .ok_or_else(|| FieldError::Term { selector: text.to_owned(), term: term.to_owned() })?;
            let value = unescape_value(value)?;
            if !field.is_empty() || !value.is_empty() {
                requirements.push(FieldRequirement { field: field.into(), negated, value: value.into() });
            }
        }
        Ok(FieldSelector { requirements, nothing: false })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operator = if self.negated { "!=" } else { "=" };
        write!(f, "{}{operator}{}", self.field, escape_value(&self.value))
    }
}
