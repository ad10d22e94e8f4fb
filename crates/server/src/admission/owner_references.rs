//! OwnerReferencesPermissionEnforcement, off by default: who ties an object to an owner must be allowed to delete the
//! object, and to hold back the owner if that is what it does.

use std::sync::Arc;

use capstan_api::{GroupKind, GroupVersion, Map, Scope, Status, mapper::RESTMapper};

use super::{
    Operation, Plugin, Request,
    common::{PODS, each, flag, forbidden, is_of, is_write, object, same_meaning},
};
use crate::{
    authorization::{Attributes, Authorizer},
    registry::paths,
};

const OWNERS: &str = "metadata.ownerReferences";

/// The plugin.
pub struct OwnerReferencesPermissionEnforcement {
    authorizer: Arc<dyn Authorizer>,
    mapper: Arc<dyn RESTMapper + Send + Sync>,
}

impl OwnerReferencesPermissionEnforcement {
    /// A plugin that asks this authorizer, and this mapper about the kinds of owners.
    #[must_use]
    pub fn new(authorizer: Arc<dyn Authorizer>, mapper: Arc<dyn RESTMapper + Send + Sync>) -> Self {
        OwnerReferencesPermissionEnforcement { authorizer, mapper }
    }

    /// Whether the user may set finalizers on an owner.
    fn check_owner(&self, request: &Request<'_>, owner: &Map) -> Result<(), Status> {
        let (version, kind) = (paths::text(owner, "apiVersion"), paths::text(owner, "kind"));
        let unknown = |error: String| {
            let error = format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} \
                 Kind {kind}: {error}"
            );
            forbidden(request, error)
        };
        let GroupVersion { group, version } = version.parse().map_err(|error| unknown(format!("{error}")))?;
        let mappings = self.mapper.rest_mappings(&GroupKind::new(group, kind), &[&version]);
        for mapping in mappings.map_err(|error| unknown(error.to_string()))? {
            let resource = &mapping.resource;
            let attributes = Attributes {
                version: &resource.version,
                subresource: "finalizers",
                name: paths::text(owner, "name"),
                // The owner of what is in a namespace is in it too.
                namespace: if mapping.scope == Scope::Namespaced { request.namespace } else { "" },
                ..Attributes::resource(request.user, "update", &resource.group, &resource.resource)
            };
            let decision = self.authorizer.authorize(&attributes);
            if !decision.is_allowed() {
                let error = format!(
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers \
                     on: {}, <nil>",
                    decision.reason()
                );
                return Err(forbidden(request, error));
            }
        }
        Ok(())
    }
}

impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        // The status of a pod cannot change owners, but old kubelets send it without.
        let is_exempt = is_of(request, &PODS) && request.subresource == "status";
        if is_exempt || !is_write(request) || !changes_owners(request) {
            return Ok(());
        }
        if request.operation != Operation::Create {
            let attributes = Attributes {
                version: &request.resource.version,
                subresource: request.subresource,
                name: request.name,
                namespace: request.namespace,
                ..Attributes::resource(request.user, "delete", &request.resource.group, &request.resource.resource)
            };
            let decision = self.authorizer.authorize(&attributes);
            if !decision.is_allowed() {
                let error =
                    format!("cannot set an ownerRef on a resource you can't delete: {}, <nil>", decision.reason());
                return Err(forbidden(request, error));
            }
        }
        let blocking: Vec<&Map> = each(object(request), OWNERS).filter(|owner| blocks_anew(request, owner)).collect();
        if blocking.is_empty() {
            return Ok(());
        }
        let anything = Attributes {
            subresource: "finalizers",
            name: "*",
            ..Attributes::resource(request.user, "update", "*", "*")
        };
        if self.authorizer.authorize(&anything).is_allowed() {
            return Ok(());
        }
        blocking.into_iter().try_for_each(|owner| self.check_owner(request, owner))
    }
}

fn changes_owners(request: &Request<'_>) -> bool {
    let new = each(object(request), OWNERS);
    match request.old_object {
        None => new.count() > 0,
        Some(old) => {
            let old = each(old, OWNERS);
            new.clone().count() != old.clone().count() || !new.zip(old).all(|(new, old)| same_meaning(new, old))
        }
    }
}

/// Whether an owner is held back that was not before. Of stored references to one owner the last counts.
fn blocks_anew(request: &Request<'_>, owner: &Map) -> bool {
    let blocks = |owner: &Map| flag(owner, "blockOwnerDeletion") == Some(true);
    let uid = paths::text(owner, "uid");
    let mut before = request.old_object.into_iter().flat_map(|old| each(old, OWNERS));
    let before = before.by_ref().filter(|old| paths::text(old, "uid") == uid).last();
    blocks(owner) && !before.is_some_and(blocks)
}
