//! Field selectors: which fields of a kind can be selected by, in the names of each version.

use std::fmt;

use super::Scheme;
use crate::{GroupVersionKind, go::quote};

/// A field that cannot be selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldLabelError(String);

impl FieldLabelError {
    /// With these words.
    pub fn new(message: impl Into<String>) -> Self {
        FieldLabelError(message.into())
    }
}

impl fmt::Display for FieldLabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FieldLabelError {}

type Converted = Result<(String, String), FieldLabelError>;

pub(super) type Convert = Box<dyn Fn(&str, &str) -> Converted + Send + Sync>;

/// What holds for kinds that register nothing else: the name and the namespace can be selected by.
///
/// # Errors
/// The label is another.
pub fn default_field_label_conversion(label: &str, value: &str) -> Converted {
    match label {
        "metadata.name" | "metadata.namespace" => Ok((label.to_owned(), value.to_owned())),
        _ => Err(FieldLabelError(format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            quote(label)
        ))),
    }
}

impl Scheme {
    /// Registers which fields of a kind can be selected by: a function from label and value to those of the hub.
    pub fn add_field_label_conversion(
        &mut self,
        gvk: GroupVersionKind,
        convert: impl Fn(&str, &str) -> Converted + Send + Sync + 'static,
    ) {
        self.field_labels.insert(gvk, Box::new(convert));
    }

    /// A label and a value of a field selector for a kind, as they are called in the hub.
    ///
    /// # Errors
    /// The field cannot be selected by.
    pub fn convert_field_label(&self, gvk: &GroupVersionKind, label: &str, value: &str) -> Converted {
        match self.field_labels.get(gvk) {
            Some(convert) => convert(label, value),
            None => default_field_label_conversion(label, value),
        }
    }
}
