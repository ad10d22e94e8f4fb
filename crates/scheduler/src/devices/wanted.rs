//! What claims want, read and checked against what there is.

use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{
        CapacityRequirements, Device, DeviceAttribute, DeviceClass, DeviceConstraint, DeviceRequest, DeviceSelector,
        DeviceToleration, ResourceClaim, ResourceSlice,
    },
};

use super::{
    AllocateError, Amounts, Inventory, MAX_RESULTS, full_name,
    pools::{Pool, State, devices, reaches_device},
    quantity,
    selector::SelectorError,
};

/// A claim.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub(super) claim: &'a ResourceClaim,
    pub(super) name: String,
    pub(super) requests: Vec<Request<'a>>,
    pub(super) constraints: Vec<Constraint<'a>>,
}

/// One request: one of these will do, the first that can be had.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) options: Vec<Wanted<'a>>,
    /// Which of them it got.
    pub(super) chosen: usize,
}

/// Some devices of a class.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// The name of the request.
    pub(super) request: &'a str,
    /// Its own name, if it is one of several alternatives.
    pub(super) alternative: Option<&'a str>,
    pub(super) class: Arc<DeviceClass>,
    pub(super) selectors: &'a [DeviceSelector],
    pub(super) tolerations: &'a [DeviceToleration],
    pub(super) capacity: Amounts,
    pub(super) admin: bool,
    pub(super) count: usize,
    /// All devices that will do, by number, if all are wanted.
    pub(super) all: Option<Vec<usize>>,
    /// Whether a device will do, by number, as far as that is known.
    matches: Vec<Option<bool>>,
}

/// A device that can be reached from the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate<'a> {
    pub(super) device: &'a Device,
    pub(super) slice: &'a ResourceSlice,
    pub(super) pool: usize,
}

/// All devices of usable pools, in the order in which they are tried.
pub(super) fn candidates(pools: &[Pool]) -> Vec<Candidate<'_>> {
    let slices = pools.iter().enumerate().flat_map(|(at, pool)| pool.slices.iter().map(move |slice| (at, slice)));
    slices
        .flat_map(|(pool, slice)| devices(slice).iter().map(move |device| Candidate { device, slice, pool }))
        .collect()
}

/// A rule about all devices of a claim.
#[derive(Debug)]
pub(super) struct Constraint<'a> {
    requests: &'a [String],
    attribute: &'a str,
    distinct: bool,
    seen: Vec<&'a DeviceAttribute>,
}

fn same(a: &DeviceAttribute, b: &DeviceAttribute) -> bool {
    (&a.string, a.int, a.bool, &a.version) == (&b.string, b.int, b.bool, &b.version)
}

impl<'a> Constraint<'a> {
    fn new(constraint: &'a DeviceConstraint) -> Option<Self> {
        let attribute = constraint.match_attribute.as_deref().or(constraint.distinct_attribute.as_deref())?;
        Some(Constraint {
            requests: constraint.requests.as_deref().unwrap_or_default(),
            attribute,
            distinct: constraint.match_attribute.is_none(),
            seen: Vec::new(),
        })
    }

    fn concerns(&self, wanted: &Wanted<'_>) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|name| *name == wanted.request || *name == wanted.full_name())
    }

    /// Takes a device in, if the rule allows it.
    pub(super) fn add(&mut self, wanted: &Wanted<'_>, candidate: Candidate<'a>) -> bool {
        if !self.concerns(wanted) {
            return true;
        }
        let Some(found) = attribute(candidate, self.attribute) else { return false };
        let readable = found.string.is_some() || found.int.is_some() || found.bool.is_some() || found.version.is_some();
        let fits = match self.distinct {
            true => !self.seen.iter().any(|known| same(known, found)),
            false => self.seen.first().is_none_or(|known| same(known, found)),
        };
        if readable && fits {
            self.seen.push(found);
        }
        readable && fits
    }

    /// Lets the device go that came last.
    pub(super) fn remove(&mut self, wanted: &Wanted<'_>) {
        if self.concerns(wanted) {
            self.seen.pop();
        }
    }
}

/// An attribute under its full name; in the driver's own domain the short name will do.
fn attribute<'a>(candidate: Candidate<'a>, name: &str) -> Option<&'a DeviceAttribute> {
    let all = candidate.device.attributes.as_ref()?;
    all.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        (domain == candidate.slice.spec.driver).then(|| all.get(id))?
    })
}

impl Wanted<'_> {
    /// The name that results are under.
    pub(super) fn full_name(&self) -> String {
        match self.alternative {
            Some(alternative) => format!("{}/{alternative}", self.request),
            None => self.request.to_owned(),
        }
    }

    fn name(&self) -> &str {
        self.alternative.unwrap_or(self.request)
    }

    /// Whether a device will do by its kind: free or not.
    pub(super) fn accepts(
        &mut self,
        inventory: &Inventory,
        node: &Node,
        claim: &str,
        (number, candidate): (usize, Candidate<'_>),
    ) -> Result<bool, AllocateError> {
        if let Some(known) = self.matches[number] {
            return Ok(known);
        }
        let class = self.class.metadata.name.as_deref().unwrap_or_default();
        let of_class = self.class.spec.selectors.as_deref().unwrap_or_default();
        let accepted = selected(inventory, of_class, candidate, || format!("class {class}"))?
            && selected(inventory, self.selectors, candidate, || format!("claim {claim}"))?
            && (candidate.slice.spec.per_device_node_selection != Some(true) || reaches_device(node, candidate.device));
        self.matches[number] = Some(accepted);
        Ok(accepted)
    }
}

fn selected(
    inventory: &Inventory,
    selectors: &[DeviceSelector],
    candidate: Candidate<'_>,
    whose: impl Fn() -> String,
) -> Result<bool, AllocateError> {
    for (at, selector) in selectors.iter().enumerate() {
        let Some(cel) = &selector.cel else { continue };
        let answer = inventory.programs.matches(&cel.expression, &candidate.slice.spec.driver, candidate.device);
        let answer = answer.map_err(|error| {
            let (what, error) = match error {
                SelectorError::Compile(error) => ("compile", error),
                SelectorError::Run(error) => ("runtime", error),
            };
            AllocateError::Failed(format!("{}: selector #{at}: CEL {what} error: {error}", whose()))
        })?;
        if !answer {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads claims.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub(super) inventory: &'a Inventory,
    pub(super) pools: &'a [Pool],
    pub(super) node: &'a Node,
}

/// What a request and an alternative have in common.
struct Parts<'a> {
    request: &'a str,
    alternative: Option<&'a str>,
    class: &'a str,
    mode: Option<&'a str>,
    count: Option<i64>,
    admin: Option<bool>,
    selectors: Option<&'a [DeviceSelector]>,
    tolerations: Option<&'a [DeviceToleration]>,
    capacity: Option<&'a CapacityRequirements>,
}

impl<'a> Reader<'a> {
    pub(super) fn claims(self, claims: &[&'a ResourceClaim]) -> Result<Vec<Claim<'a>>, AllocateError> {
        let candidates = candidates(self.pools);
        claims.iter().map(|claim| self.claim(claim, &candidates)).collect()
    }

    fn claim(self, claim: &'a ResourceClaim, candidates: &[Candidate<'_>]) -> Result<Claim<'a>, AllocateError> {
        let name = full_name(claim);
        let failed = |message: String| AllocateError::Failed(format!("claim {name}{message}"));
        let devices = claim.spec.devices.as_ref();
        let (mut requests, mut least) = (Vec::new(), 0);
        for request in devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
            let mut options = Vec::new();
            for parts in parts(request) {
                options.push(self.wanted(parts, &name, candidates)?);
            }
            least += options.iter().map(|wanted: &Wanted<'_>| wanted.count).min().unwrap_or(0);
            requests.push(Request { options, chosen: 0 });
        }
        if least > MAX_RESULTS {
            return Err(failed(format!(
                ": number of requested devices {least} exceeds the claim limit of {MAX_RESULTS}"
            )));
        }
        let constraints = devices.iter().flat_map(|devices| devices.constraints.iter().flatten()).enumerate();
        let constraints = constraints.map(|(at, constraint)| {
            let unknown = || failed(format!(", constraint #{at}: empty constraint (unsupported constraint type?)"));
            Constraint::new(constraint).ok_or_else(unknown)
        });
        let constraints = constraints.collect::<Result<_, _>>()?;
        Ok(Claim { claim, name, requests, constraints })
    }

    fn wanted(self, parts: Parts<'a>, claim: &str, candidates: &[Candidate<'_>]) -> Result<Wanted<'a>, AllocateError> {
        let name = parts.alternative.unwrap_or(parts.request);
        let failed = |message: String| AllocateError::Failed(format!("claim {claim}, request {name}{message}"));
        let Some(class) = self.inventory.classes.get(parts.class) else {
            let class = parts.class;
            return Err(failed(format!(
                ": could not retrieve device class {class}: deviceclass.resource.k8s.io \"{class}\" not found"
            )));
        };
        let requested = parts.capacity.iter().flat_map(|capacity| capacity.requests.iter().flatten());
        let mut wanted = Wanted {
            request: parts.request,
            alternative: parts.alternative,
            class: Arc::clone(class),
            selectors: parts.selectors.unwrap_or_default(),
            tolerations: parts.tolerations.unwrap_or_default(),
            capacity: requested.map(|(name, amount)| (name.clone(), quantity(amount))).collect(),
            admin: parts.admin == Some(true),
            count: 0,
            all: None,
            matches: vec![None; candidates.len()],
        };
        match parts.mode.unwrap_or("ExactCount") {
            "ExactCount" => wanted.count = usize::try_from(parts.count.unwrap_or(1)).unwrap_or(usize::MAX),
            "All" => {
                let all = self.all(&mut wanted, claim, candidates)?;
                (wanted.count, wanted.all) = (all.len(), Some(all));
            }
            mode => return Err(failed(format!(": unsupported count mode {mode}"))),
        }
        Ok(wanted)
    }

    /// Who wants all must know what all is.
    fn all(
        self,
        wanted: &mut Wanted<'_>,
        claim: &str,
        candidates: &[Candidate<'_>],
    ) -> Result<Vec<usize>, AllocateError> {
        for pool in self.pools {
            let problem = match pool.state {
                State::Usable => continue,
                State::Incomplete => "being updated",
                State::Invalid => "invalid",
            };
            let (name, pool) = (wanted.name(), pool.id());
            return Err(AllocateError::Failed(format!(
                "claim {claim}, request {name}: asks for all devices, but resource pool {pool} is currently {problem}"
            )));
        }
        let mut all = Vec::new();
        for (number, candidate) in candidates.iter().enumerate() {
            let gives = super::capacity::consumed(candidate.device, &wanted.capacity).is_some();
            if wanted.accepts(self.inventory, self.node, claim, (number, *candidate))? && gives {
                all.push(number);
            }
        }
        Ok(all)
    }
}

fn parts(request: &DeviceRequest) -> Vec<Parts<'_>> {
    if let Some(exactly) = &request.exactly {
        return vec![Parts {
            request: &request.name,
            alternative: None,
            class: &exactly.device_class_name,
            mode: exactly.allocation_mode.as_deref(),
            count: exactly.count,
            admin: exactly.admin_access,
            selectors: exactly.selectors.as_deref(),
            tolerations: exactly.tolerations.as_deref(),
            capacity: exactly.capacity.as_ref(),
        }];
    }
    let alternatives = request.first_available.iter().flatten();
    let alternatives = alternatives.map(|one| Parts {
        request: &request.name,
        alternative: Some(&one.name),
        class: &one.device_class_name,
        mode: one.allocation_mode.as_deref(),
        count: one.count,
        admin: None,
        selectors: one.selectors.as_deref(),
        tolerations: one.tolerations.as_deref(),
        capacity: one.capacity.as_ref(),
    });
    alternatives.collect()
}
