//! Nobody grants what they do not hold: checks before a role or binding is written.
//!
//! Members of `system:masters` pass, as do those who may `escalate` the role or `bind` the role that is referred to.

use std::collections::BTreeSet;

use capstan_api::{GroupResource, Status, Value, go};

use super::{
    GROUP, PolicyRule, Rbac, RbacKind, RoleError, RoleRef,
    covers::{compact, covers},
    policy::{items, quoted, string},
};
use crate::authorization::{Attributes, Authorizer, SYSTEM_MASTERS, aggregate};

/// The metadata that the garbage collector changes. Who has permissions does not depend on it.
const GC_FIELDS: [&str; 4] = ["ownerReferences", "finalizers", "selfLink", "managedFields"];

/// Whether the sender of `request` may write this Role or ClusterRole, in place of `old` if there is one.
///
/// # Errors
/// The refusal to send.
pub fn check_role(
    authorizer: &dyn Authorizer,
    rbac: &Rbac,
    kind: RbacKind,
    request: &Attributes<'_>,
    role: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let escalate = Attributes {
        name: request.name,
        namespace: request.namespace,
        ..Attributes::resource(request.user, "escalate", GROUP, kind.resource())
    };
    if request.user.in_group(SYSTEM_MASTERS)
        || authorizer.authorize(&escalate).is_allowed()
        || old.is_some_and(|old| only_gc_fields_differ(role, old))
    {
        return Ok(());
    }
    let rules = PolicyRule::list_of(role);
    confirm_no_escalation(rbac, request, &rules).map_err(|message| forbidden(kind, role, message))?;
    // An aggregation rule can gather anything, so it needs everything.
    let aggregates = |role: &Value| {
        role.get("aggregationRule").is_some_and(|rule| items(rule, "clusterRoleSelectors").next().is_some())
    };
    if kind == RbacKind::ClusterRole
        && (aggregates(role) || old.is_some_and(aggregates))
        && confirm_no_escalation(rbac, request, &full_authority()).is_err()
    {
        let message = "must have cluster-admin privileges to use the aggregationRule".to_owned();
        return Err(forbidden(kind, role, message));
    }
    Ok(())
}

/// Whether the sender of `request` may write this RoleBinding or ClusterRoleBinding, in place of `old` if there is one.
///
/// # Errors
/// The refusal to send, or that the role is not there.
pub fn check_binding(
    authorizer: &dyn Authorizer,
    rbac: &Rbac,
    kind: RbacKind,
    request: &Attributes<'_>,
    binding: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    if request.user.in_group(SYSTEM_MASTERS) || old.is_some_and(|old| only_gc_fields_differ(binding, old)) {
        return Ok(());
    }
    let role_ref = RoleRef::of(binding);
    if let Some(role @ (RbacKind::Role | RbacKind::ClusterRole)) = RbacKind::from_kind(&role_ref.kind) {
        // Asked in the namespace of the binding, so that somebody may be let bind a ClusterRole in one namespace alone.
        let bind = Attributes {
            name: &role_ref.name,
            namespace: request.namespace,
            ..Attributes::resource(request.user, "bind", &role_ref.api_group, role.resource())
        };
        if authorizer.authorize(&bind).is_allowed() {
            return Ok(());
        }
    }
    let rules = rbac.rules_of(&role_ref, request.namespace).map_err(|error| status(request, error))?;
    confirm_no_escalation(rbac, request, rules).map_err(|message| forbidden(kind, binding, message))
}

/// Says which of these rules the user does not hold in the request's namespace.
fn confirm_no_escalation(rbac: &Rbac, request: &Attributes<'_>, rules: &[PolicyRule]) -> Result<(), String> {
    let (held, errors) = rbac.resolve(request.user, request.namespace);
    let missing = covers(&held, rules);
    if missing.is_empty() {
        return Ok(());
    }
    let missing: BTreeSet<String> = compact(missing).iter().map(PolicyRule::compact_string).collect();
    let (user, groups) = (go::quote(&request.user.name), quoted(&request.user.groups));
    let missing = Vec::from_iter(missing).join("\n");
    let mut message =
        format!("user {user} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{missing}");
    let errors: Vec<String> = errors.into_iter().map(|error| status(request, error).message).collect();
    if let Some(errors) = aggregate(&errors) {
        message.push_str(&format!("; resolution errors: [{errors}]"));
    }
    Err(message)
}

/// Before a write, upstream asks the storage for the role, which takes its words from the request and so names the
/// wrong resource.
fn status(request: &Attributes<'_>, error: RoleError) -> Status {
    match error {
        RoleError::NoClusterRole(name) | RoleError::NoRole(name) => {
            Status::not_found(&GroupResource::new(request.group, request.resource), &name)
        }
        RoleError::UnsupportedKind(_) => Status::unknown(error.to_string()),
    }
}

fn full_authority() -> [PolicyRule; 2] {
    let all = || vec!["*".into()];
    [
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

fn only_gc_fields_differ(new: &Value, old: &Value) -> bool {
    let stripped = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|field, _| !GC_FIELDS.contains(&field));
        }
        object
    };
    stripped(new) == stripped(old)
}

fn forbidden(kind: RbacKind, object: &Value, message: String) -> Status {
    let name = string(object.get("metadata").unwrap_or(&Value::Null), "name");
    Status::forbidden(&GroupResource::new(GROUP, kind.resource()), &name, message)
}
