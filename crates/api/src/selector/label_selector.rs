//! Label selectors as objects carry them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Operator, Requirement, Selector};
use crate::{
    Map, Str, Value,
    field::{self, Error, ErrorList, Path},
    go,
    validation::{is_valid_label_value, validate_label_name, validate_labels},
};

/// The `selector` of a Deployment and of many others: labels and expressions, all of which must hold. An empty one
/// selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with the values that they must have.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<Str, Str>,
    /// More general requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// A key, an operator and values. The operator is what was written, valid or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabelSelectorRequirement {
    /// The label.
    pub key: Str,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Str,
    /// The values, none for `Exists` and `DoesNotExist`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Str>,
}

/// The operators by what they are called in objects.
const OPERATORS: [(&str, Operator); 4] = [
    ("In", Operator::In),
    ("NotIn", Operator::NotIn),
    ("Exists", Operator::Exists),
    ("DoesNotExist", Operator::DoesNotExist),
];

impl LabelSelectorRequirement {
    fn known_operator(&self) -> Option<Operator> {
        OPERATORS.iter().find(|(name, _)| *name == self.operator).map(|(_, operator)| *operator)
    }

    fn validate(&self, path: &Path<'_>) -> ErrorList {
        let mut errors = ErrorList::new();
        let values_path = path.child("values");
        match self.known_operator() {
            Some(Operator::In | Operator::NotIn) => {
                if self.values.is_empty() {
                    let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                    errors.push(Error::required(values_path, detail));
                }
            }
            Some(_) => {
                if !self.values.is_empty() {
                    let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    errors.push(Error::forbidden(values_path, detail));
                }
            }
            None => {
                let detail = "not a valid selector operator";
                errors.push(Error::invalid(path.child("operator"), self.operator.as_str(), detail));
            }
        }
        errors.extend(validate_label_name(&self.key, &path.child("key")));
        for (at, value) in self.values.iter().enumerate() {
            let messages = is_valid_label_value(value).into_iter();
            errors.extend(messages.map(|message| Error::invalid(values_path.index(at), value.as_str(), message)));
        }
        errors
    }
}

impl LabelSelector {
    /// Reads one out of an object; what is of the wrong type counts as not there, since decoding has refused it before.
    #[must_use]
    pub fn from_map(map: &Map) -> Self {
        let text = |value: Option<&Value>| Str::from(value.and_then(Value::as_str).unwrap_or(""));
        let labels = map.get("matchLabels").and_then(Value::as_object).into_iter().flat_map(Map::iter);
        let expressions = map.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
        let requirement = |expression: &Value| LabelSelectorRequirement {
            key: text(expression.get("key")),
            operator: text(expression.get("operator")),
            values: expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|value| text(Some(value)))
                .collect(),
        };
        LabelSelector {
            match_labels: labels.map(|(key, value)| (key.into(), text(Some(value)))).collect(),
            match_expressions: expressions.map(requirement).collect(),
        }
    }

    /// What is wrong with it.
    #[must_use]
    pub fn validate(&self, path: &Path<'_>) -> ErrorList {
        let labels = self.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let mut errors = validate_labels(labels, &path.child("matchLabels"));
        let expressions = path.child("matchExpressions");
        for (at, expression) in self.match_expressions.iter().enumerate() {
            errors.extend(expression.validate(&expressions.index(at)));
        }
        errors
    }

    /// The selector to match with.
    ///
    /// # Errors
    /// Says what is wrong with the first requirement that is wrong.
    pub fn to_selector(&self) -> Result<Selector, String> {
        let mut requirements = Vec::with_capacity(self.match_labels.len() + self.match_expressions.len());
        let new = |key: &str, operator, values| Requirement::new(key, operator, values, &Path::ROOT);
        for (key, value) in &self.match_labels {
            requirements.push(new(key, Operator::Equals, vec![value.clone()]).map_err(field::aggregate)?);
        }
        for expression in &self.match_expressions {
            let operator = expression
                .known_operator()
                .ok_or_else(|| format!("{} is not a valid label selector operator", go::quote(&expression.operator)))?;
            requirements.push(new(&expression.key, operator, expression.values.clone()).map_err(field::aggregate)?);
        }
        Ok(requirements.into_iter().collect())
    }

    /// From the text of a selector, as far as objects can express it.
    ///
    /// # Errors
    /// Says what is wrong with the text, or which operator objects do not have.
    pub fn parse(text: &str) -> Result<Self, String> {
        let selector: Selector =
            text.parse().map_err(|error| format!("couldn't parse the selector string \"{text}\": {error}"))?;
        let mut out = LabelSelector::default();
        for requirement in selector.requirements() {
            let operator = requirement.operator();
            if let (Operator::Equals | Operator::DoubleEquals, [value]) = (operator, requirement.values()) {
                out.match_labels.insert(requirement.key().into(), value.clone());
                continue;
            }
            let name = OPERATORS.iter().find(|(_, known)| *known == operator).ok_or_else(|| {
                let why = match operator {
                    Operator::GreaterThan | Operator::LessThan => "isn't supported in label selectors",
                    _ => "is not a valid label selector operator",
                };
                format!("{} {why}", go::quote(operator.as_str()))
            })?;
            out.match_expressions.push(LabelSelectorRequirement {
                key: requirement.key().into(),
                operator: name.0.into(),
                values: requirement.values().to_vec(),
            });
        }
        Ok(out)
    }

    /// As tables show it: `<none>`, `<error>`, or the text of the selector.
    #[must_use]
    pub fn format(&self) -> String {
        match self.to_selector() {
            Err(_) => "<error>".to_owned(),
            Ok(selector) if selector.is_everything() => "<none>".to_owned(),
            Ok(selector) => selector.to_string(),
        }
    }
}

/// A selector that is not there selects nothing.
impl From<Option<&LabelSelector>> for Selector {
    fn from(selector: Option<&LabelSelector>) -> Self {
        selector
            .map_or_else(Selector::nothing, |selector| selector.to_selector().unwrap_or_else(|_| Selector::nothing()))
    }
}
