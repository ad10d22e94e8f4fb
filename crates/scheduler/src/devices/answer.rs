//! What a search has found, as it is written to claims.

use k8s_openapi::{
    api::{
        core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm},
        resource::v1::{
            AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
            OpaqueDeviceConfiguration,
        },
    },
    apimachinery::pkg::api::resource::Quantity as RawQuantity,
};

use super::{
    AllocateError,
    search::{Granted, Search},
    wanted::Claim,
};

/// Stands for a number that a share gets when it is written down.
pub(crate) const UNNAMED_SHARE: &str = "";

impl Search<'_> {
    /// The solution.
    pub(super) fn answer(&self, node: &Node) -> Result<Vec<AllocationResult>, AllocateError> {
        self.claims.iter().zip(&self.results).map(|(claim, granted)| self.of_claim(node, claim, granted)).collect()
    }

    fn of_claim(&self, node: &Node, claim: &Claim<'_>, granted: &[Granted]) -> Result<AllocationResult, AllocateError> {
        let results = granted.iter().map(|granted| self.result(granted)).collect();
        let config = config(claim);
        let devices = DeviceAllocationResult { config: (!config.is_empty()).then_some(config), results: Some(results) };
        Ok(AllocationResult {
            allocation_timestamp: None,
            devices: Some(devices),
            node_selector: self.node_selector(node, claim, granted)?,
        })
    }

    fn result(&self, granted: &Granted) -> DeviceRequestAllocationResult {
        let (wanted, id) = (self.wanted(granted.place), self.id(granted.number));
        let device = self.candidates[granted.number].device;
        let consumed = granted.consumed.as_ref().map(|consumed| {
            consumed.iter().map(|(name, amount)| (name.clone(), RawQuantity(amount.to_string()))).collect()
        });
        DeviceRequestAllocationResult {
            request: wanted.full_name(),
            driver: id.driver.clone(),
            pool: id.pool.clone(),
            device: id.device.clone(),
            admin_access: wanted.admin.then_some(true),
            tolerations: (!wanted.tolerations.is_empty()).then(|| wanted.tolerations.to_vec()),
            share_id: granted.consumed.is_some().then(|| UNNAMED_SHARE.to_owned()),
            consumed_capacity: consumed,
            binding_conditions: device.binding_conditions.clone(),
            binding_failure_conditions: device.binding_failure_conditions.clone(),
        }
    }

    /// The nodes that can reach all devices; none when every node can.
    fn node_selector(
        &self,
        node: &Node,
        claim: &Claim<'_>,
        granted: &[Granted],
    ) -> Result<Option<NodeSelector>, AllocateError> {
        let mut term = NodeSelectorTerm::default();
        for granted in granted {
            let candidate = self.candidates[granted.number];
            let (spec, device) = (&candidate.slice.spec, candidate.device);
            let (name, selector) = match spec.per_device_node_selection {
                Some(true) => (&device.node_name, &device.node_selector),
                _ => (&spec.node_name, &spec.node_selector),
            };
            if name.is_some() || device.binds_to_node == Some(true) {
                let requirement = NodeSelectorRequirement {
                    key: "metadata.name".to_owned(),
                    operator: "In".to_owned(),
                    values: Some(node.metadata.name.iter().cloned().collect()),
                };
                let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), match_expressions: None };
                return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
            }
            match selector.as_ref().map(|selector| &selector.node_selector_terms[..]) {
                None | Some([]) => {}
                Some([more]) => {
                    extend(&mut term.match_fields, more.match_fields.as_deref());
                    extend(&mut term.match_expressions, more.match_expressions.as_deref());
                }
                Some(terms) => {
                    let name = claim.claim.metadata.name.as_deref().unwrap_or_default();
                    return Err(AllocateError::Failed(format!(
                        "create NodeSelector for claim {name}: unsupported ResourceSlice.NodeSelector with {} terms",
                        terms.len()
                    )));
                }
            }
        }
        let some = term.match_fields.is_some() || term.match_expressions.is_some();
        Ok(some.then(|| NodeSelector { node_selector_terms: vec![term] }))
    }
}

fn extend(to: &mut Option<Vec<NodeSelectorRequirement>>, from: Option<&[NodeSelectorRequirement]>) {
    for requirement in from.unwrap_or_default() {
        let known = to.get_or_insert_default();
        if !known.contains(requirement) {
            known.push(requirement.clone());
        }
    }
}

/// How drivers are to set devices up: as classes say, then as the claim says.
fn config(claim: &Claim<'_>) -> Vec<DeviceAllocationConfiguration> {
    let entry = |source: &str, requests: Vec<String>, opaque: &Option<OpaqueDeviceConfiguration>| {
        DeviceAllocationConfiguration {
            source: source.to_owned(),
            requests: (!requests.is_empty()).then_some(requests),
            opaque: opaque.clone(),
        }
    };
    let mut all = Vec::new();
    let mut classes: Vec<(&str, std::ops::Range<usize>)> = Vec::new();
    let chosen = claim.requests.iter().filter_map(|request| request.options.get(request.chosen));
    for wanted in chosen.clone() {
        let name = wanted.class.metadata.name.as_deref().unwrap_or_default();
        if let Some((_, range)) = classes.iter().find(|(known, _)| *known == name) {
            for entry in &mut all[range.clone()] {
                let entry: &mut DeviceAllocationConfiguration = entry;
                entry.requests.get_or_insert_default().push(wanted.full_name());
            }
            continue;
        }
        let start = all.len();
        for config in wanted.class.spec.config.iter().flatten() {
            all.push(entry("FromClass", vec![wanted.full_name()], &config.opaque));
        }
        classes.push((name, start..all.len()));
    }
    let configs = claim.claim.spec.devices.iter().flat_map(|devices| devices.config.iter().flatten());
    for config in configs {
        let requests = config.requests.clone().unwrap_or_default();
        let speaks_of = |name: &str| requests.iter().any(|request| request == name);
        let times = match requests.is_empty() {
            true => 1,
            false => chosen.clone().filter(|w| speaks_of(w.request) || speaks_of(&w.full_name())).count(),
        };
        all.extend((0..times).map(|_| entry("FromClaim", requests.clone(), &config.opaque)));
    }
    all
}
