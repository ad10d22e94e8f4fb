//! Extended resources that device classes stand for.
//!
//! A pod that asks for one gets it from the node itself where the node has it to give, and elsewhere through a claim
//! that is made for the pod. What is in that claim depends on the node, so each node has its own; the one of the node
//! that is chosen is created before the pod is bound.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::{Container, ContainerExtendedResourceRequest, Pod},
        resource::v1::{DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim, ResourceClaimSpec},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};

use crate::{node_info::NodeInfo, pod_info::PodInfo, resource::is_served_by_devices, status::Status, world::World};

/// The name of claims that are not created yet: not one that a claim can have.
pub(super) const IN_MEMORY: &str = "<extended-resources>";

/// What marks the claims that are made here.
const ANNOTATION: &str = "resource.kubernetes.io/extended-resource-claim";

/// What a pod asks for by names that device classes may stand for.
#[derive(Debug)]
pub(super) struct Extended {
    resources: Vec<(Arc<str>, Option<Arc<DeviceClass>>)>,
    /// The claim that was made for it in an earlier attempt. What was right then need not be now: it has to go first.
    pub(super) left_over: Option<Arc<ResourceClaim>>,
}

/// The claim of a pod for a node, and which of its requests are for which container.
#[derive(Clone, Debug)]
pub(super) struct Special {
    pub(super) claim: Arc<ResourceClaim>,
    pub(super) mappings: Vec<ContainerExtendedResourceRequest>,
}

/// Whether a claim is one that was made here for a pod.
pub(super) fn is_for(claim: &ResourceClaim, pod: &PodInfo) -> bool {
    let marked = claim.metadata.annotations.iter().flatten().any(|(key, value)| key == ANNOTATION && value == "true");
    let owners = claim.metadata.owner_references.iter().flatten();
    let mine =
        |owner: &OwnerReference| owner.controller == Some(true) && owner.name == pod.name() && *owner.uid == *pod.uid;
    marked && owners.into_iter().any(mine)
}

impl Extended {
    /// What a pod asks for, if devices may serve some of it.
    pub(super) fn of(pod: &PodInfo, world: &World) -> Option<Self> {
        if !world.serves(&pod.requests) {
            return None;
        }
        let wanted = pod.requests.scalars.iter().filter(|(name, amount)| *amount != 0 && is_served_by_devices(name));
        let resources = wanted.map(|(name, _)| (Arc::clone(name), world.class_of(name).cloned())).collect();
        let left_over = world.resource_claims.iter().find(|claim| is_for(claim, pod)).cloned();
        Some(Extended { resources, left_over })
    }

    /// The classes that stand for what is asked for.
    pub(super) fn classes(&self) -> impl Iterator<Item = &Arc<DeviceClass>> {
        self.resources.iter().filter_map(|(_, class)| class.as_ref())
    }

    /// What has to be claimed on a node; nothing where the node gives all of it.
    pub(super) fn on(&self, pod: &PodInfo, node: &NodeInfo) -> Result<Option<Special>, Status> {
        if self.left_over.is_some() {
            return Err(Status::unresolvable("cannot schedule extended resource claim"));
        }
        let mut claimed = Vec::new();
        for (name, class) in &self.resources {
            let given = node.allocatable.scalars.iter().find(|(given, _)| given == name).map(|(_, amount)| *amount);
            match (class, given) {
                (Some(class), None | Some(0)) => claimed.push((&**name, class.metadata.name.as_deref().unwrap_or(""))),
                (_, None) => return Err(Status::unresolvable("cannot fit resource")),
                _ => {}
            }
        }
        if claimed.is_empty() {
            return Ok(None);
        }
        claimed.sort_unstable();
        let (requests, mappings) = requests(&pod.pod, &claimed);
        Ok(Some(Special { claim: Arc::new(claim(pod, requests)), mappings }))
    }
}

/// A claim that is not created yet. Its uid is only for telling it from others.
fn claim(pod: &PodInfo, requests: Vec<DeviceRequest>) -> ResourceClaim {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name().to_owned(),
        uid: pod.uid.to_string(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    ResourceClaim {
        metadata: ObjectMeta {
            namespace: Some(pod.namespace().to_owned()),
            name: Some(IN_MEMORY.to_owned()),
            uid: Some(format!("{IN_MEMORY}/{}", pod.uid)),
            generate_name: Some(format!("{}-extended-resources-", pod.name())),
            owner_references: Some(vec![owner]),
            annotations: Some([(ANNOTATION.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        spec: ResourceClaimSpec { devices: Some(DeviceClaim { requests: Some(requests), ..DeviceClaim::default() }) },
        status: None,
    }
}

type Mapping = ContainerExtendedResourceRequest;

/// The requests for resources of these classes, and which are for which container. Containers that are over before
/// others start use what those will have.
fn requests(pod: &Pod, claimed: &[(&str, &str)]) -> (Vec<DeviceRequest>, Vec<Mapping>) {
    let Some(spec) = &pod.spec else { return Default::default() };
    let init = spec.init_containers.as_deref().unwrap_or_default();
    let containers: Vec<&Container> = init.iter().chain(&spec.containers).collect();
    let is_short = |at: usize| at < init.len() && containers[at].restart_policy.as_deref() != Some("Always");
    let (mut all, mut mappings) = (Vec::new(), Vec::new());
    for (resource, class) in claimed {
        let mut long: Vec<Option<DeviceRequest>> = vec![None; containers.len()];
        for at in (0..containers.len()).filter(|at| !is_short(*at)) {
            let (request, of_container) = of_container(at, containers[at], resource, class, &[]);
            long[at] = request;
            mappings.extend(of_container);
        }
        let (mut largest, mut names, mut of_short): (Option<DeviceRequest>, BTreeSet<String>, Vec<Mapping>) =
            Default::default();
        for at in (0..containers.len()).filter(|at| is_short(*at)) {
            let (request, of_container) = of_container(at, containers[at], resource, class, &long[at..]);
            if let Some(request) = request {
                names.insert(request.name.clone());
                if largest.as_ref().is_none_or(|largest| count(largest) < count(&request)) {
                    largest = Some(request);
                }
            }
            of_short.extend(of_container);
        }
        // They run one after the other: the largest request is enough for all of them.
        if let Some(largest) = &largest {
            for mapping in of_short.iter_mut().filter(|mapping| names.contains(&mapping.request_name)) {
                mapping.request_name.clone_from(&largest.name);
            }
        }
        all.extend(largest.into_iter().chain(long.into_iter().flatten()));
        mappings.extend(of_short);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    (all, mappings)
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().and_then(|exactly| exactly.count).unwrap_or(0)
}

/// What a container has to request beyond what it can use of others, and what it uses.
fn of_container(
    at: usize,
    container: &Container,
    resource: &str,
    class: &str,
    others: &[Option<DeviceRequest>],
) -> (Option<DeviceRequest>, Vec<Mapping>) {
    let mut mappings = Vec::new();
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let wanted = requests.and_then(|requests| requests.get(resource));
    let wanted = wanted.and_then(|wanted| wanted.0.parse::<capstan_api::Quantity>().ok()).map_or(0, |q| q.value());
    let (Some(requests), true) = (requests, wanted != 0) else { return (None, mappings) };
    let mapping = |request: &str| Mapping {
        container_name: container.name.clone(),
        resource_name: resource.to_owned(),
        request_name: request.to_owned(),
    };
    let mut sum = 0;
    for other in others.iter().flatten() {
        sum += count(other);
        mappings.push(mapping(&other.name));
        if sum >= wanted {
            return (None, mappings);
        }
    }
    let position = requests.keys().position(|name| name == resource).unwrap_or(0);
    let name = format!("container-{at}-request-{position}");
    mappings.push(mapping(&name));
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".to_owned()),
        count: Some(wanted - sum),
        ..ExactDeviceRequest::default()
    };
    (Some(DeviceRequest { name, exactly: Some(exactly), first_available: None }), mappings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    /// Containers, one a line: `init`, `sidecar` or `main`, its name, and amounts of resources; which requests are
    /// made, and which container uses which.
    #[track_caller]
    fn check(containers: &[&str], made: &str, used: &str) {
        let (mut init, mut main, mut resources) = (Vec::new(), Vec::new(), BTreeSet::new());
        for line in containers {
            let mut words = line.split_whitespace();
            let (kind, name) = (words.next().unwrap(), words.next().unwrap());
            let amounts: Vec<(&str, &str)> = words.map(|word| word.split_once('=').unwrap()).collect();
            resources.extend(amounts.iter().map(|(name, _)| *name).filter(|name| name.contains('/')));
            let requests: Vec<String> = amounts.iter().map(|(name, amount)| format!("{name}: '{amount}'")).collect();
            let policy = if kind == "sidecar" { ", restartPolicy: Always" } else { "" };
            let yaml = format!("{{name: {name}, resources: {{requests: {{{}}}}}{policy}}}", requests.join(", "));
            if kind == "main" { main.push(yaml) } else { init.push(yaml) }
        }
        let pod = pod(&format!("spec: {{initContainers: [{}], containers: [{}]}}", init.join(", "), main.join(", ")));
        let classes: Vec<(&str, String)> = resources.iter().map(|name| (*name, name.replace('/', "-"))).collect();
        let claimed: Vec<(&str, &str)> = classes.iter().map(|(name, class)| (*name, class.as_str())).collect();
        let (requests, mappings) = requests(&pod, &claimed);
        let requests = requests.iter().map(|request| {
            let class = &request.exactly.as_ref().unwrap().device_class_name;
            format!("{}={}*{class}", request.name, count(request))
        });
        assert_eq!(requests.collect::<Vec<_>>().join(" "), made, "{containers:?}");
        let mappings = mappings.iter().map(|m| format!("{}:{}={}", m.container_name, m.resource_name, m.request_name));
        assert_eq!(mappings.collect::<Vec<_>>().join(" "), used, "{containers:?}");
    }

    #[test]
    fn requests_of_containers() {
        check(&["main a cpu=1"], "", "");
        check(&["main a x/r=0"], "", "");
        check(&["main a x/r=1"], "container-0-request-0=1*x-r", "a:x/r=container-0-request-0");
        // The index of a request is that of the resource among all that the container asks for.
        check(&["main a cpu=1 x/r=2"], "container-0-request-1=2*x-r", "a:x/r=container-0-request-1");
        check(
            &["main a x/r=1 x/s=2"],
            "container-0-request-0=1*x-r container-0-request-1=2*x-s",
            "a:x/r=container-0-request-0 a:x/s=container-0-request-1",
        );
        check(
            &["main a x/r=1", "main b x/s=2"],
            "container-0-request-0=1*x-r container-1-request-0=2*x-s",
            "a:x/r=container-0-request-0 b:x/s=container-1-request-0",
        );
    }

    #[test]
    fn what_is_over_before_shares_with_what_comes_after() {
        check(
            &["init i x/s=2", "main a x/r=1"],
            "container-0-request-0=2*x-s container-1-request-0=1*x-r",
            "a:x/r=container-1-request-0 i:x/s=container-0-request-0",
        );
        // The largest is enough for all that run one after the other.
        check(
            &["init i x/s=1", "init j x/s=2", "main a x/r=1"],
            "container-1-request-0=2*x-s container-2-request-0=1*x-r",
            "a:x/r=container-2-request-0 i:x/s=container-1-request-0 j:x/s=container-1-request-0",
        );
        check(
            &["init i x/r=1", "main a x/r=1"],
            "container-1-request-0=1*x-r",
            "a:x/r=container-1-request-0 i:x/r=container-1-request-0",
        );
        // It uses all of the later ones, and asks for what is missing.
        check(
            &["init i x/r=3", "main a x/r=1", "main b x/r=1"],
            "container-0-request-0=1*x-r container-1-request-0=1*x-r container-2-request-0=1*x-r",
            "a:x/r=container-1-request-0 b:x/r=container-2-request-0 i:x/r=container-1-request-0 \
             i:x/r=container-2-request-0 i:x/r=container-0-request-0",
        );
        // A sidecar that started before is not there to be shared.
        check(
            &["init i x/s=1", "sidecar s x/s=1", "init j x/s=2", "main a x/r=1"],
            "container-1-request-0=1*x-s container-2-request-0=2*x-s container-3-request-0=1*x-r",
            "a:x/r=container-3-request-0 s:x/s=container-1-request-0 i:x/s=container-1-request-0 \
             j:x/s=container-2-request-0",
        );
    }
}
