//! Devices that pods claim.
//!
//! Pods whose claims have their devices already go where those are. Giving devices to a claim is not done here yet: a
//! pod with a claim that has none waits, and is told so.

use std::sync::Arc;

use k8s_openapi::api::resource::v1::ResourceClaim;

use crate::{
    event::{ActionType as A, ClusterEvent, EventResource as R},
    node_info::NodeInfo,
    plugin::{Cycle, Filter, Plugin, Point},
    selectors::NodeTerms,
    status::Status,
};

/// How many pods may use a claim at a time.
const MAX_RESERVED_FOR: usize = 256;

/// Devices that pods claim.
#[derive(Debug)]
pub struct DynamicResources;

#[derive(Debug)]
struct ClaimFilter {
    allocated: Vec<Option<NodeTerms>>,
}

impl Filter for ClaimFilter {
    fn filter(&self, _cycle: Cycle<'_>, node: &NodeInfo) -> Result<(), Status> {
        let here = |terms: &Option<NodeTerms>| terms.as_ref().is_none_or(|terms| terms.matches_node(&node.node));
        match self.allocated.iter().all(here) {
            true => Ok(()),
            false => Err(Status::unresolvable("resourceclaim not available on the node")),
        }
    }
}

/// The claims of a pod.
fn claims(cycle: Cycle<'_>) -> Result<Vec<Arc<ResourceClaim>>, Status> {
    let pod = &cycle.pod.pod;
    let mut found = Vec::new();
    for claim in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
        let name = match &claim.resource_claim_name {
            Some(name) => name.clone(),
            None => {
                let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
                let status = statuses.unwrap_or_default().iter().find(|status| status.name == claim.name);
                let Some(status) = status else {
                    let (namespace, name) = (cycle.pod.namespace(), cycle.pod.name());
                    return Err(Status::unresolvable(format!(
                        "pod \"{namespace}/{name}\": ResourceClaim not created yet"
                    )));
                };
                // None was needed.
                let Some(name) = &status.resource_claim_name else { continue };
                name.clone()
            }
        };
        let known = cycle.cache.world.resource_claims.get(cycle.pod.namespace(), &name);
        let Some(known) = known else {
            return Err(Status::unresolvable(format!("resourceclaim.resource.k8s.io \"{name}\" not found")));
        };
        if known.metadata.deletion_timestamp.is_some() {
            return Err(Status::unresolvable(format!("resourceclaim \"{name}\" is being deleted")));
        }
        found.push(Arc::clone(known));
    }
    Ok(found)
}

impl Plugin for DynamicResources {
    fn name(&self) -> &'static str {
        "DynamicResources"
    }

    fn points(&self) -> &'static [Point] {
        &[Point::PreFilter, Point::Filter, Point::PostFilter]
    }

    /// Pods with claims are in no class.
    fn by_class(&self) -> bool {
        true
    }

    fn events(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent::new(R::ResourceClaim, A::ADD.or(A::UPDATE)),
                ClusterEvent::new(R::Pod, A::UPDATE_POD_GENERATED_RESOURCE_CLAIM),
                ClusterEvent::new(R::Node, A::ADD.or(A::UPDATE_NODE_LABEL).or(A::UPDATE_NODE_TAINT)),
            ]
        }
    }

    fn pre_filter(&self, cycle: Cycle<'_>) -> Result<Option<Box<dyn Filter>>, Status> {
        let claims = claims(cycle)?;
        if claims.is_empty() {
            return Ok(None);
        }
        let mut allocated = Vec::new();
        for claim in &claims {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let status = claim.status.as_ref();
            let reserved = status.and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
            let mine = reserved.iter().any(|user| *user.uid == *cycle.pod.uid);
            if !mine && reserved.len() >= MAX_RESERVED_FOR {
                return Err(Status::unschedulable(format!("resourceclaim \"{name}\" in use")));
            }
            let Some(allocation) = status.and_then(|status| status.allocation.as_ref()) else {
                return Err(Status::unresolvable(format!("resourceclaim \"{name}\" has no devices allocated yet")));
            };
            allocated.push(allocation.node_selector.as_ref().map(NodeTerms::new));
        }
        Ok(Some(Box::new(ClaimFilter { allocated })))
    }

    fn post_filter(&self, _cycle: Cycle<'_>) -> Option<String> {
        Some("no new claims to deallocate".to_owned())
    }
}
