//! All requirements on labels together.

use std::{fmt, str::FromStr};

use super::{Labels, Operator, ParseError, Requirement, parse};
use crate::field::Path;

/// Requirements on labels, all of which must hold, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    /// Nothing at all can be selected.
    nothing: bool,
    requirements: Vec<Requirement>,
}

impl Selector {
    /// Selects all.
    #[must_use]
    pub const fn everything() -> Self {
        Selector { nothing: false, requirements: Vec::new() }
    }

    /// Selects none.
    #[must_use]
    pub const fn nothing() -> Self {
        Selector { nothing: true, requirements: Vec::new() }
    }

    /// Selects what has exactly these values, which are taken to be valid.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        labels.into_iter().map(|(key, value)| Requirement::equals(key, value)).collect()
    }

    /// Reads a selector that comes with a field; its errors are below `path`.
    ///
    /// # Errors
    /// Says in upstream's words what was found and what was expected, or what is wrong with a key or value.
    pub fn parse(text: &str, path: &Path<'_>) -> Result<Self, ParseError> {
        parse::parse(text, path).map(Selector::from_iter)
    }

    /// Adds a requirement; to nothing nothing can be added.
    #[must_use]
    pub fn and(mut self, requirement: Requirement) -> Self {
        if !self.nothing {
            self.requirements.push(requirement);
            self.requirements.sort_by(|a, b| a.key().cmp(b.key()));
        }
        self
    }

    /// Whether these labels are as required.
    #[must_use]
    pub fn matches<L: Labels + ?Sized>(&self, labels: &L) -> bool {
        !self.nothing && self.requirements.iter().all(|requirement| requirement.matches(labels))
    }

    /// Whether it selects all.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    /// Whether it surely selects none.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    /// The requirements; there are none for everything, and none for nothing.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The one value that the label must have, if there is one.
    #[must_use]
    pub fn requires_exact_match(&self, key: &str) -> Option<&str> {
        let requirement = self.requirements.iter().find(|requirement| requirement.key() == key)?;
        match (requirement.operator(), requirement.values()) {
            (Operator::Equals | Operator::DoubleEquals | Operator::In, [value]) => Some(value),
            _ => None,
        }
    }
}

impl Default for Selector {
    fn default() -> Self {
        Selector::everything()
    }
}

impl FromIterator<Requirement> for Selector {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let mut requirements: Vec<_> = requirements.into_iter().collect();
        requirements.sort_by(|a, b| a.key().cmp(b.key()));
        Selector { nothing: false, requirements }
    }
}

impl FromStr for Selector {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Selector::parse(text, &Path::ROOT)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, requirement) in self.requirements.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{requirement}")?;
        }
        Ok(())
    }
}
