//! What strict decoding finds: fields that nobody knows and fields that come twice, in upstream's words.

use std::fmt::{self, Write as _};

use crate::go::quote;

/// How many unknown and duplicate fields are reported at most, as upstream.
pub const MAX_STRICT_ERRORS: usize = 100;

/// How many bytes the reported paths take together at most: a hostile document can make each of them megabytes long.
pub const MAX_STRICT_BYTES: usize = 1 << 20;

/// One finding of a strict decoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StrictError {
    /// A field that the type does not have.
    Unknown(String),
    /// A field that came before in the same object.
    Duplicate(String),
    /// A finding of another decoder, in its own words: YAML's about keys that come twice.
    Other(String),
}

impl StrictError {
    /// The path of the field, if the finding is about one.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            StrictError::Unknown(path) | StrictError::Duplicate(path) => Some(path),
            StrictError::Other(_) => None,
        }
    }

    fn text(&self) -> &str {
        match self {
            StrictError::Unknown(text) | StrictError::Duplicate(text) | StrictError::Other(text) => text,
        }
    }
}

impl fmt::Display for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StrictError::Unknown(path) => write!(f, "unknown field {}", quote(path)),
            StrictError::Duplicate(path) => write!(f, "duplicate field {}", quote(path)),
            StrictError::Other(text) => f.write_str(text),
        }
    }
}

/// All that a strict decoder found, in the order of the document, each once.
///
/// It prints as `strict decoding error: unknown field "spec.foo", duplicate field "spec.bar"`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StrictErrors {
    found: Vec<StrictError>,
    bytes: usize,
}

impl StrictErrors {
    /// Adds a finding, unless it is there already or there are too many: see [`MAX_STRICT_ERRORS`] and
    /// [`MAX_STRICT_BYTES`].
    pub fn push(&mut self, error: StrictError) {
        let bytes = self.bytes + error.text().len();
        if self.is_full() || (bytes > MAX_STRICT_BYTES && !self.found.is_empty()) || self.found.contains(&error) {
            return;
        }
        self.bytes = bytes;
        self.found.push(error);
    }

    /// Adds the findings of another decoder behind the own ones.
    pub fn extend(&mut self, others: StrictErrors) {
        others.found.into_iter().for_each(|error| self.push(error));
    }

    /// Whether nothing more is taken, so that there is no need to look.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.found.len() >= MAX_STRICT_ERRORS || self.bytes >= MAX_STRICT_BYTES
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The findings.
    #[must_use]
    pub fn as_slice(&self) -> &[StrictError] {
        &self.found
    }

    /// Nothing found is fine, anything is an error.
    ///
    /// # Errors
    /// Itself, if something was found.
    pub fn into_result(self) -> Result<(), StrictErrors> {
        if self.is_empty() { Ok(()) } else { Err(self) }
    }
}

impl fmt::Display for StrictErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("strict decoding error: ")?;
        for (i, error) in self.found.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StrictErrors {}

/// The way to a field as strict decoders write it: `spec.containers[0].env`.
///
/// It follows a decoder down and up; a decoder that keeps the way itself can also make one when it has something to
/// report. Unlike the paths of validation it knows only fields and positions, and the empty key is a key.
#[derive(Clone, Debug, Default)]
pub struct StrictPath {
    text: String,
    /// Where each step begins.
    steps: Vec<usize>,
}

impl StrictPath {
    /// Goes into the field `key`.
    pub fn key(&mut self, key: &str) {
        let start = self.text.len();
        if !self.steps.is_empty() {
            self.text.push('.');
        }
        self.text.push_str(key);
        self.steps.push(start);
    }

    /// Goes into the element at `index`.
    pub fn index(&mut self, index: usize) {
        self.steps.push(self.text.len());
        write!(self.text, "[{index}]").expect("memory takes all");
    }

    /// Goes back one step; at the root there is nowhere to go.
    pub fn pop(&mut self) {
        if let Some(start) = self.steps.pop() {
            self.text.truncate(start);
        }
    }

    /// The path of the field `key` of what is here.
    #[must_use]
    pub fn field(&self, key: &str) -> String {
        let dot = if self.steps.is_empty() { "" } else { "." };
        format!("{}{dot}{key}", self.text)
    }

    /// The path as text; the root's is empty.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_upstream() {
        let mut errors = StrictErrors::default();
        assert_eq!(errors.clone().into_result(), Ok(()));
        errors.push(StrictError::Unknown("spec.foo".into()));
        errors.push(StrictError::Duplicate("spec.\"bar".into()));
        errors.push(StrictError::Unknown("spec.foo".into()));
        assert_eq!(
            errors.to_string(),
            r#"strict decoding error: unknown field "spec.foo", duplicate field "spec.\"bar""#
        );
        assert!(errors.into_result().is_err());
    }

    #[test]
    fn paths() {
        let mut path = StrictPath::default();
        assert_eq!(path.field("a"), "a");
        path.key("spec");
        path.key("containers");
        path.index(0);
        assert_eq!(path.field("foo"), "spec.containers[0].foo");
        path.pop();
        path.pop();
        assert_eq!(path.field(""), "spec.");
        path.pop();
        path.pop();
        path.key("");
        assert_eq!(path.field("a"), ".a");
        path.pop();
        path.index(7);
        assert_eq!(path.field("a"), "[7].a");
        assert_eq!(path.as_str(), "[7]");
    }

    #[test]
    fn findings_are_bounded() {
        let mut errors = StrictErrors::default();
        (0..1000).for_each(|n| errors.push(StrictError::Unknown(format!("f{n}"))));
        assert_eq!(errors.as_slice().len(), MAX_STRICT_ERRORS);
        assert_eq!(errors.as_slice()[99].path(), Some("f99"));

        let mut errors = StrictErrors::default();
        (0..100).for_each(|n| errors.push(StrictError::Unknown("x".repeat(MAX_STRICT_BYTES / 3) + &n.to_string())));
        assert_eq!(errors.as_slice().len(), 2);
    }
}
