//! Role-based access control: roles say what may be done, bindings say by whom.
//!
//! [`Rbac`] is a snapshot of all roles and bindings, with an index from subjects to bindings, so that a decision looks
//! at the user's own bindings alone. [`RbacAuthorizer`] holds the current one.

mod aggregation;
mod covers;
mod escalation;
mod evaluate;
#[cfg(test)]
mod golden;
mod index;
mod policy;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{PoisonError, RwLock},
};

pub use aggregation::aggregate_rules;
use capstan_api::{Value, go};
pub use covers::{MAX_SUBRULES, covers};
pub use escalation::{check_binding, check_role};
pub use index::{Grant, Rbac, RbacKind};
pub use policy::{Binding, GROUP, PolicyRule, RoleRef, Subject};

use super::{Attributes, Authorizer, Decision, Rules, UserInfo, aggregate};

/// The role of a binding can't be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleError {
    /// There is no such ClusterRole.
    NoClusterRole(String),
    /// There is no such Role in the binding's namespace.
    NoRole(String),
    /// It is neither a Role nor a ClusterRole.
    UnsupportedKind(String),
}

impl fmt::Display for RoleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoleError::NoClusterRole(name) => write!(f, "clusterrole.{GROUP} {} not found", go::quote(name)),
            RoleError::NoRole(name) => write!(f, "role.{GROUP} {} not found", go::quote(name)),
            RoleError::UnsupportedKind(kind) => write!(f, "unsupported role reference kind: {}", go::quote(kind)),
        }
    }
}

impl std::error::Error for RoleError {}

impl Rbac {
    /// The rules that apply to a user in a namespace, or with an empty one everywhere, and what kept others from being
    /// found.
    #[must_use]
    pub fn resolve(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Vec<RoleError>) {
        let (mut rules, mut errors) = (Vec::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            match self.rules_of(&grant.binding.role_ref, &grant.binding.namespace) {
                Ok(found) => rules.extend_from_slice(found),
                Err(error) => errors.push(error),
            }
        }
        (rules, errors)
    }
}

impl Authorizer for Rbac {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let mut errors = Vec::new();
        for grant in self.grants(attributes.user, attributes.namespace) {
            match self.rules_of(&grant.binding.role_ref, &grant.binding.namespace) {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allow(format!("RBAC: allowed by {grant}"));
                }
                Ok(_) => {}
                Err(error) => errors.push(error.to_string()),
            }
        }
        Decision::NoOpinion(aggregate(&errors).map_or_else(String::new, |error| format!("RBAC: {error}")))
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        let (rules, errors) = self.resolve(user, namespace);
        Rules { rules, incomplete: false, errors: errors.iter().map(RoleError::to_string).collect() }
    }
}

impl fmt::Display for Grant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { namespace, name, role_ref, .. } = self.binding;
        let (kind, name) = match namespace.as_str() {
            "" => ("ClusterRoleBinding", go::quote(name)),
            namespace => ("RoleBinding", go::quote(&format!("{name}/{namespace}"))),
        };
        let (role, subject) = (go::quote(&role_ref.name), self.subject);
        write!(f, "{kind} {name} of {} {role} to {} ", role_ref.kind, subject.kind)?;
        match subject.kind.as_str() {
            "ServiceAccount" => {
                let own = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
                f.write_str(&go::quote(&format!("{}/{own}", subject.name)))
            }
            _ => f.write_str(&go::quote(&subject.name)),
        }
    }
}

/// The current roles and bindings. Readers take a snapshot and are not held up by what changes afterwards; a change
/// made by one call is seen by every decision that begins after it has returned.
#[derive(Debug, Default)]
pub struct RbacAuthorizer {
    current: RwLock<Rbac>,
}

impl RbacAuthorizer {
    /// Decides by these from now on.
    #[must_use]
    pub fn new(rbac: Rbac) -> Self {
        RbacAuthorizer { current: RwLock::new(rbac) }
    }

    /// The roles and bindings as they are now.
    #[must_use]
    pub fn snapshot(&self) -> Rbac {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes in an object that was created or has changed.
    pub fn upsert(&self, kind: RbacKind, object: &Value) {
        self.current.write().unwrap_or_else(PoisonError::into_inner).upsert(kind, object);
    }

    /// Forgets an object.
    pub fn remove(&self, kind: RbacKind, namespace: &str, name: &str) {
        self.current.write().unwrap_or_else(PoisonError::into_inner).remove(kind, namespace, name);
    }
}

impl Authorizer for RbacAuthorizer {
    fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.snapshot().authorize(attributes)
    }

    fn rules_for(&self, user: &UserInfo, namespace: &str) -> Rules {
        self.snapshot().rules_for(user, namespace)
    }
}
