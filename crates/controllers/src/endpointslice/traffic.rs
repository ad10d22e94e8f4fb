//! Hints by `trafficDistribution`: each ready endpoint is for its own zone, or node.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForNode, ForZone};

/// How near traffic is to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Near {
    /// In its zone.
    Zone,
    /// On its node.
    Node,
}

impl Near {
    /// What a service asks for, if it is something that is known.
    pub(crate) fn parse(distribution: Option<&str>) -> Option<Self> {
        match distribution {
            Some("PreferClose" | "PreferSameZone") => Some(Near::Zone),
            Some("PreferSameNode") => Some(Near::Node),
            _ => None,
        }
    }

    fn hints(self, endpoint: &Endpoint) -> Option<EndpointHints> {
        let for_zones = endpoint.zone.clone().map(|name| vec![ForZone { name }]);
        let for_nodes = if self == Near::Node { endpoint.node_name.clone() } else { None };
        let for_nodes = for_nodes.map(|name| vec![ForNode { name }]);
        (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
    }

    /// Whether the hints of a slice are not as they should be.
    pub(crate) fn needs_update(self, slice: &EndpointSlice) -> bool {
        let hints = |endpoint: &Endpoint| {
            let hints = endpoint.hints.clone().unwrap_or_default();
            (hints.for_zones.unwrap_or_default(), hints.for_nodes.unwrap_or_default())
        };
        slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint)).any(|endpoint| {
            let wanted = Endpoint { hints: self.hints(endpoint), ..Endpoint::default() };
            hints(endpoint) != hints(&wanted)
        })
    }

    /// Sets the hints of a slice. Endpoints that are not ready keep what they have.
    pub(crate) fn update(self, slice: &mut EndpointSlice) {
        for endpoint in slice.endpoints.iter_mut().flatten().filter(|endpoint| is_ready(endpoint)) {
            endpoint.hints = self.hints(endpoint);
        }
    }
}

/// Whether an endpoint is said to be ready.
pub(crate) fn is_ready(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
}

/// Whether a slice has hints.
pub(crate) fn has_hints(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().flatten().any(|endpoint| endpoint.hints.is_some())
}

/// Takes all hints out of a slice.
pub(crate) fn remove_hints(slice: &mut EndpointSlice) {
    slice.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.hints = None);
}
