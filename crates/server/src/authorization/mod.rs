//! Who may do what: a chain of authorizers, of which the first with an opinion decides.
//!
//! Everything here is pure: a decision is a function of the request's [`Attributes`] and of what the authorizers know
//! at that moment.

mod attributes;
mod forbidden;
pub mod node;
pub mod rbac;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use attributes::{Attributes, Decision, SYSTEM_MASTERS, UserInfo};
pub use forbidden::forbidden;
pub use node::{NodeAuthorizer, NodeKind};
pub use rbac::{PolicyRule, Rbac, RbacAuthorizer};

/// One that decides. Called on every request, so it must neither block nor wait.
pub trait Authorizer: Send + Sync {
    /// Decides.
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision;

    /// What a user may do in a namespace, as far as this one can tell. The default is for those that have no rules to
    /// show.
    fn rules_for(&self, _user: &UserInfo, _namespace: &str) -> Rules {
        Rules::default()
    }
}

/// What a user may do, as a SelfSubjectRulesReview shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rules, in the order in which they were found; one rule may be about resources and about paths.
    pub rules: Vec<PolicyRule>,
    /// Whether the user may do more than the rules say.
    pub incomplete: bool,
    /// What went wrong on the way.
    pub errors: Vec<String>,
}

/// The authorizers in the order in which they are asked. Members of `system:masters` are never asked about.
#[derive(Clone, Default)]
pub struct Chain {
    authorizers: Vec<Arc<dyn Authorizer>>,
}

impl Chain {
    /// A chain of these, behind the superusers' shortcut.
    #[must_use]
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Self {
        Chain { authorizers }
    }
}

impl Authorizer for Chain {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.in_group(SYSTEM_MASTERS) {
            return Decision::Allow(String::new());
        }
        let mut reasons = Vec::new();
        for authorizer in &self.authorizers {
            match authorizer.authorize(attributes) {
                Decision::NoOpinion(reason) if reason.is_empty() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decision => return decision,
            }
        }
        Decision::NoOpinion(reasons.join("\n"))
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        let mut all = Rules::default();
        for authorizer in &self.authorizers {
            let Rules { rules, incomplete, errors } = authorizer.rules_for(user, namespace);
            all.rules.extend(rules);
            all.incomplete |= incomplete;
            // Each authorizer's errors count as one, as they do where upstream wraps them one in the other.
            all.errors.extend(aggregate(&errors));
        }
        all
    }
}

/// Several errors as one text, as Go's API machinery puts them: each once, in brackets if there is more than one.
#[must_use]
pub fn aggregate(errors: &[String]) -> Option<String> {
    let mut seen: Vec<&str> = Vec::new();
    for error in errors {
        if !seen.contains(&error.as_str()) {
            seen.push(error);
        }
    }
    match seen[..] {
        [] => None,
        [one] => Some(one.to_owned()),
        _ => Some(format!("[{}]", seen.join(", "))),
    }
}
