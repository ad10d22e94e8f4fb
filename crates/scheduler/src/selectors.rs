//! Selectors of pods and of nodes, ready to match with.

use std::collections::BTreeMap;

use capstan_api::{
    Str,
    field::Path,
    selector::{Operator, Requirement, Selector},
};
use k8s_openapi::{
    api::core::v1::{Node, NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};

/// Labels as objects have them.
pub type Labels = BTreeMap<String, String>;

/// No labels.
pub(crate) static NO_LABELS: Labels = BTreeMap::new();

/// A selector of objects by label. None at all selects nothing; an empty one selects all.
///
/// # Errors
/// Says what is wrong with it.
pub fn label_selector(selector: Option<&LabelSelector>) -> Result<Selector, String> {
    let Some(selector) = selector else { return Ok(Selector::nothing()) };
    let pairs = selector.match_labels.iter().flatten();
    let mut requirements = Vec::new();
    for (key, value) in pairs {
        requirements.push(requirement(key, Operator::In, [value.as_str()])?);
    }
    for expression in selector.match_expressions.iter().flatten() {
        let values = expression.values.iter().flatten().map(String::as_str);
        requirements.push(requirement(&expression.key, operator(&expression.operator)?, values)?);
    }
    Ok(requirements.into_iter().collect())
}

fn operator(name: &str) -> Result<Operator, String> {
    Ok(match name {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        other => return Err(format!("\"{other}\" is not a valid label selector operator")),
    })
}

/// One requirement.
pub(crate) fn requirement<'a>(
    key: &str,
    operator: Operator,
    values: impl IntoIterator<Item = &'a str>,
) -> Result<Requirement, String> {
    let values = values.into_iter().map(Str::from).collect();
    Requirement::new(key, operator, values, &Path::ROOT).map_err(capstan_api::field::aggregate)
}

/// One way in which a node can match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Term {
    labels: Selector,
    /// Names that the node must have or must not have.
    names: Vec<(bool, String)>,
}

impl Term {
    /// A term that asks for nothing matches no node; nor does one that cannot be understood.
    fn new(term: &NodeSelectorTerm) -> Option<Self> {
        let expressions = term.match_expressions.iter().flatten();
        let mut requirements = Vec::new();
        for expression in expressions {
            let values = expression.values.iter().flatten().map(String::as_str);
            requirements.push(requirement(&expression.key, operator(&expression.operator).ok()?, values).ok()?);
        }
        let mut names = Vec::new();
        for field in term.match_fields.iter().flatten() {
            let [name] = field.values.as_deref().unwrap_or_default() else { return None };
            let wanted = match field.operator.as_str() {
                "In" => true,
                "NotIn" => false,
                _ => return None,
            };
            if field.key != "metadata.name" {
                return None;
            }
            names.push((wanted, name.clone()));
        }
        if requirements.is_empty() && names.is_empty() {
            return None;
        }
        Some(Term { labels: requirements.into_iter().collect(), names })
    }

    fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.names.iter().all(|(wanted, other)| (other == name) == *wanted) && self.labels.matches(labels)
    }
}

/// Several ways in which a node can match; one is enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeTerms(Vec<Term>);

impl NodeTerms {
    /// From the selector of an object.
    #[must_use]
    pub fn new(selector: &NodeSelector) -> Self {
        NodeTerms(selector.node_selector_terms.iter().filter_map(Term::new).collect())
    }

    /// Whether a node matches.
    #[must_use]
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        self.0.iter().any(|term| term.matches(name, labels))
    }

    /// Whether a node matches.
    #[must_use]
    pub fn matches_node(&self, node: &Node) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.matches(name, node.metadata.labels.as_ref().unwrap_or(&NO_LABELS))
    }
}

/// Terms with weights: the sum of those that match is a node's score.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PreferredNodes(Vec<(i64, Term)>);

impl PreferredNodes {
    /// From the terms of an object.
    #[must_use]
    pub fn new(terms: &[PreferredSchedulingTerm]) -> Self {
        let weighty = terms.iter().filter(|term| term.weight != 0);
        PreferredNodes(weighty.filter_map(|term| Some((term.weight.into(), Term::new(&term.preference)?))).collect())
    }

    /// Whether there are no terms.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A node's score.
    #[must_use]
    pub fn score(&self, name: &str, labels: &Labels) -> i64 {
        self.0.iter().filter(|(_, term)| term.matches(name, labels)).map(|(weight, _)| weight).sum()
    }
}
