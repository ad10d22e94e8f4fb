//! Plugins of one rule each: LimitPodHardAntiAffinityTopology, DenyServiceExternalIPs, AlwaysAdmit and AlwaysDeny. All
//! are off by default.

use capstan_api::{GroupResource, Map, Status, Value};

use super::{
    Plugin, Request,
    common::{PODS, each, forbidden, is_about, is_write, object, old_object},
};
use crate::registry::paths;

const SERVICES: GroupResource = GroupResource::from_static("", "services");
const HOSTNAME: &str = "kubernetes.io/hostname";

/// Pods may keep away from each other by node only.
#[derive(Debug, Default)]
pub struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        if !is_about(request, &PODS) || !is_write(request) {
            return Ok(());
        }
        let pod = object(request);
        let terms = each(pod, "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution");
        match terms.map(|term| paths::text(term, "topologyKey")).find(|key| *key != HOSTNAME) {
            None => Ok(()),
            Some(key) => Err(Status::forbidden(
                &PODS,
                paths::text(pod, "metadata.name"),
                format!(
                    "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOSTNAME} \
                     is allowed"
                ),
            )),
        }
    }
}

/// No service takes on further external addresses.
#[derive(Debug, Default)]
pub struct DenyServiceExternalIPs;

impl Plugin for DenyServiceExternalIPs {
    fn name(&self) -> &'static str {
        "DenyServiceExternalIPs"
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        fn addresses(service: &Map) -> &[Value] {
            paths::items(service, "spec.externalIPs")
        }
        if !is_about(request, &SERVICES) || !is_write(request) {
            return Ok(());
        }
        let old = addresses(old_object(request));
        if addresses(object(request)).iter().all(|address| old.contains(address)) {
            return Ok(());
        }
        Err(forbidden(request, "Use of external IPs is denied by admission control"))
    }
}

/// Says yes to all; it is there because old scripts name it.
#[derive(Debug, Default)]
pub struct AlwaysAdmit;

impl Plugin for AlwaysAdmit {
    fn name(&self) -> &'static str {
        "AlwaysAdmit"
    }
}

/// Says no to all.
#[derive(Debug, Default)]
pub struct AlwaysDeny;

impl Plugin for AlwaysDeny {
    fn name(&self) -> &'static str {
        "AlwaysDeny"
    }

    fn admit(&self, request: &mut Request<'_>) -> Result<(), Status> {
        Err(forbidden(request, "admission control is denying all modifications"))
    }

    fn validate(&self, request: &mut Request<'_>) -> Result<(), Status> {
        self.admit(request)
    }
}
