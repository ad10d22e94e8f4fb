//! The fields that objects of a kind can be selected by, and what is said about others.

use std::fmt::Write as _;

/// The fields of all kinds that bring no list of their own.
const COMMON: &[&str] = &["metadata.name", "metadata.namespace"];

/// The selectable fields of a kind.
#[derive(Clone, Copy, Debug)]
pub struct SelectableFields {
    /// Their names; none means `metadata.name` and `metadata.namespace`.
    pub names: &'static [&'static str],
    /// Other names for some of them.
    pub aliases: &'static [(&'static str, &'static str)],
    /// What is said about others.
    pub refusal: Refusal,
}

/// The words that refuse a field.
#[derive(Clone, Copy, Debug)]
pub enum Refusal {
    /// Those for kinds without a list of their own.
    Unknown,
    /// These, and the field.
    Before(&'static str),
    /// The field in quotes, between these.
    Between(&'static str, &'static str),
}

impl SelectableFields {
    /// `metadata.name` and `metadata.namespace`.
    pub const COMMON: SelectableFields = SelectableFields { names: COMMON, aliases: &[], refusal: Refusal::Unknown };

    /// These fields, with the usual words about others.
    #[must_use]
    pub const fn new(names: &'static [&'static str]) -> SelectableFields {
        SelectableFields { names, aliases: &[], refusal: Refusal::Before("field label not supported: ") }
    }

    /// The field that `label` stands for.
    ///
    /// # Errors
    ///
    /// Upstream's words, if objects cannot be selected by it.
    pub fn resolve(&self, label: &str) -> Result<&'static str, String> {
        let alias = self.aliases.iter().find(|(alias, _)| *alias == label).map(|(_, name)| *name);
        if let Some(name) = alias.or_else(|| self.names.iter().find(|name| **name == label).copied()) {
            return Ok(name);
        }
        let mut text = String::new();
        match self.refusal {
            Refusal::Before(words) => text.extend([words, label]),
            Refusal::Between(before, after) => _ = write!(text, "{before}{label:?}{after}"),
            Refusal::Unknown => {
                let known = r#"is not a known field selector: only "metadata.name", "metadata.namespace""#;
                _ = write!(text, "{label:?} {known}");
            }
        }
        Err(text)
    }
}

/// `events.k8s.io` names the fields of events after its own schema, and they are stored under the core group's names.
pub const EVENTS_V1: SelectableFields = SelectableFields {
    names: &["reason", "type", "metadata.namespace", "metadata.name"],
    aliases: &[
        ("regarding.kind", "involvedObject.kind"),
        ("regarding.namespace", "involvedObject.namespace"),
        ("regarding.name", "involvedObject.name"),
        ("regarding.uid", "involvedObject.uid"),
        ("regarding.apiVersion", "involvedObject.apiVersion"),
        ("regarding.resourceVersion", "involvedObject.resourceVersion"),
        ("regarding.fieldPath", "involvedObject.fieldPath"),
        ("reportingController", "reportingComponent"),
    ],
    refusal: Refusal::Before("field label not supported: "),
};
