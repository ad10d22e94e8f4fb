//! A pod as the plugins see it: everything that takes reading is read once, when the pod comes into the cache.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use capstan_api::selector::{Operator, Selector};
use k8s_openapi::{
    api::core::v1::{Pod, PodAffinityTerm, PodSpec, Taint, Toleration, TopologySpreadConstraint},
    jiff::Timestamp,
};

use crate::{
    resource::{Resource, pod_requests},
    selectors::{Labels, NO_LABELS, NodeTerms, PreferredNodes, label_selector, requirement},
    world::World,
};

/// The scheduler of pods that name none.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// Pods with the same class get the same answer from every plugin: what the plugins look at is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassKey(u64, u64);

/// A port of the node that a pod wants for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    ip: String,
    protocol: String,
    port: i32,
}

impl HostPort {
    /// Whether two pods cannot both have their port: it is the same on the same address, or on all of them.
    #[must_use]
    pub fn conflicts(&self, other: &HostPort) -> bool {
        let all = |ip: &str| ip == "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || all(&self.ip) || all(&other.ip))
    }
}

/// A rule about pods nearby.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    namespaces: Vec<String>,
    namespace_selector: Selector,
    selector: Selector,
    /// The label of nodes that says what near is.
    pub topology_key: String,
}

impl AffinityTerm {
    fn new(namespace: &str, term: &PodAffinityTerm) -> Result<Self, String> {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        Ok(AffinityTerm {
            namespaces,
            namespace_selector: label_selector(term.namespace_selector.as_ref())?,
            selector: label_selector(term.label_selector.as_ref())?,
            topology_key: term.topology_key.clone(),
        })
    }

    /// Whether it depends on the labels of namespaces.
    #[must_use]
    pub fn selects_namespaces(&self) -> bool {
        !self.namespace_selector.is_nothing()
    }

    /// Whether the rule speaks of a pod.
    #[must_use]
    pub fn matches(&self, pod: &PodInfo, world: &World) -> bool {
        let near = self.namespaces.iter().any(|namespace| namespace == pod.namespace())
            || (!self.namespace_selector.is_nothing()
                && self.namespace_selector.matches(world.namespace_labels(pod.namespace())));
        near && self.selector.matches(pod.labels())
    }
}

/// A rule about how evenly pods are spread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// By how many pods the fullest may exceed the emptiest.
    pub max_skew: i32,
    /// The label of nodes that says what a domain is.
    pub topology_key: String,
    /// Whether nodes that break the rule are refused, rather than ranked lower.
    pub hard: bool,
    /// Which pods count.
    pub selector: Selector,
    /// With fewer domains than this the emptiest counts as empty.
    pub min_domains: i32,
    /// Whether nodes that the pod's node affinity refuses are left out of the count.
    pub honor_affinity: bool,
    /// Whether nodes whose taints the pod does not tolerate are left out of the count.
    pub honor_taints: bool,
}

impl SpreadConstraint {
    /// From a constraint of a pod with these labels.
    ///
    /// # Errors
    /// Says what is wrong with its selector.
    pub fn new(constraint: &TopologySpreadConstraint, labels: &Labels) -> Result<Self, String> {
        let mut selector = label_selector(constraint.label_selector.as_ref())?;
        for key in constraint.match_label_keys.iter().flatten() {
            if let Some(value) = labels.get(key) {
                selector = selector.and(requirement(key, Operator::In, [value.as_str()])?);
            }
        }
        Ok(SpreadConstraint {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.clone(),
            hard: constraint.when_unsatisfiable == "DoNotSchedule",
            selector,
            min_domains: constraint.min_domains.unwrap_or(1),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
        })
    }
}

/// All rules of a pod about nodes and other pods. Most pods have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    node_selector: Option<Selector>,
    required_nodes: Option<NodeTerms>,
    /// Nodes that the pod would rather have.
    pub preferred_nodes: PreferredNodes,
    /// What must be near.
    pub required_affinity: Vec<AffinityTerm>,
    /// What must not be near.
    pub required_anti_affinity: Vec<AffinityTerm>,
    /// What had better be near, by weight.
    pub preferred_affinity: Vec<(i64, AffinityTerm)>,
    /// What had better not be near, by weight.
    pub preferred_anti_affinity: Vec<(i64, AffinityTerm)>,
    /// How evenly pods are to be spread.
    pub spread: Vec<SpreadConstraint>,
    /// What is wrong with the rules.
    pub invalid: Option<String>,
}

impl Rules {
    fn new(namespace: &str, labels: &Labels, spec: &PodSpec) -> Result<Self, String> {
        let mut rules = Rules::default();
        if let Some(selector) = &spec.node_selector {
            let pairs = selector.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            rules.node_selector = Some(Selector::from_labels(pairs));
        }
        let affinity = spec.affinity.as_ref();
        if let Some(nodes) = affinity.and_then(|affinity| affinity.node_affinity.as_ref()) {
            rules.required_nodes =
                nodes.required_during_scheduling_ignored_during_execution.as_ref().map(NodeTerms::new);
            let preferred = nodes.preferred_during_scheduling_ignored_during_execution.as_deref();
            rules.preferred_nodes = PreferredNodes::new(preferred.unwrap_or_default());
        }
        let term = |term: &PodAffinityTerm| AffinityTerm::new(namespace, term);
        if let Some(pods) = affinity.and_then(|affinity| affinity.pod_affinity.as_ref()) {
            for required in pods.required_during_scheduling_ignored_during_execution.iter().flatten() {
                rules.required_affinity.push(term(required)?);
            }
            for preferred in pods.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
                rules.preferred_affinity.push((preferred.weight.into(), term(&preferred.pod_affinity_term)?));
            }
        }
        if let Some(pods) = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref()) {
            for required in pods.required_during_scheduling_ignored_during_execution.iter().flatten() {
                rules.required_anti_affinity.push(term(required)?);
            }
            for preferred in pods.preferred_during_scheduling_ignored_during_execution.iter().flatten() {
                rules.preferred_anti_affinity.push((preferred.weight.into(), term(&preferred.pod_affinity_term)?));
            }
        }
        for constraint in spec.topology_spread_constraints.iter().flatten() {
            rules.spread.push(SpreadConstraint::new(constraint, labels)?);
        }
        Ok(rules)
    }

    /// Whether nodes are chosen by label or name.
    #[must_use]
    pub fn has_required_nodes(&self) -> bool {
        self.node_selector.is_some() || self.required_nodes.is_some()
    }

    /// Whether a node is one of those that are asked for.
    #[must_use]
    pub fn matches_node(&self, name: &str, labels: &Labels) -> bool {
        self.node_selector.as_ref().is_none_or(|selector| selector.matches(labels))
            && self.required_nodes.as_ref().is_none_or(|terms| terms.matches(name, labels))
    }

    /// Whether there are rules about pods nearby that others must know of.
    #[must_use]
    pub fn has_affinity(&self) -> bool {
        !self.required_affinity.is_empty()
            || !self.required_anti_affinity.is_empty()
            || !self.preferred_affinity.is_empty()
            || !self.preferred_anti_affinity.is_empty()
    }
}

static NO_RULES: std::sync::LazyLock<Rules> = std::sync::LazyLock::new(Rules::default);

/// A pod, and what was read of it.
#[derive(Debug)]
pub struct PodInfo {
    /// The pod itself.
    pub pod: Arc<Pod>,
    /// Which pod it is, even when another takes its name.
    pub uid: Arc<str>,
    /// Its priority; 0 when it has none.
    pub priority: i32,
    /// What it asks for.
    pub requests: Resource,
    /// What it counts for when nodes are ranked.
    pub non_zero: Resource,
    /// The ports of the node that it wants.
    pub host_ports: Box<[HostPort]>,
    rules: Option<Box<Rules>>,
    /// Which pods are treated alike; none when the pod is alone of its kind.
    pub class: Option<ClassKey>,
}

impl PodInfo {
    /// Reads a pod.
    #[must_use]
    pub fn new(pod: Arc<Pod>) -> Self {
        let metadata = &pod.metadata;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = metadata.uid.as_deref().map_or_else(|| format!("{namespace}/{name}").into(), Arc::from);
        let labels = metadata.labels.as_ref().unwrap_or(&NO_LABELS);
        let (requests, non_zero) = pod_requests(&pod);
        let mut info = PodInfo {
            uid,
            priority: pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or_default(),
            requests,
            non_zero,
            host_ports: Box::default(),
            rules: None,
            class: None,
            pod: Arc::clone(&pod),
        };
        let Some(spec) = &pod.spec else { return info };
        let rules = Rules::new(namespace, labels, spec);
        let rules = rules.unwrap_or_else(|invalid| Rules { invalid: Some(invalid), ..Rules::default() });
        if rules != *NO_RULES {
            info.rules = Some(Box::new(rules));
        }
        info.host_ports = host_ports(spec);
        info.class = class(&info, spec);
        info
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its labels.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        self.pod.metadata.labels.as_ref().unwrap_or(&NO_LABELS)
    }

    /// Its rules.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        self.rules.as_deref().unwrap_or(&NO_RULES)
    }

    /// Whether it has rules about pods nearby.
    #[must_use]
    pub fn has_affinity(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.has_affinity())
    }

    /// The node that it is on; empty when it is on none.
    #[must_use]
    pub fn node_name(&self) -> &str {
        self.pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
    }

    /// The node that was made free for it; empty when none was.
    #[must_use]
    pub fn nominated_node_name(&self) -> &str {
        self.pod.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()).unwrap_or_default()
    }

    /// Who is to find a node for it.
    #[must_use]
    pub fn scheduler_name(&self) -> &str {
        let name = self.pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
        name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SCHEDULER_NAME)
    }

    /// Its tolerations.
    #[must_use]
    pub fn tolerations(&self) -> &[Toleration] {
        self.pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
    }

    /// Whether it is going away.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// When it was started, if it was.
    #[must_use]
    pub fn start_time(&self) -> Option<Timestamp> {
        self.pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0)
    }

    /// The claims of its volumes, by name, and whether the claim is made for the pod.
    pub fn claims(&self) -> impl Iterator<Item = (String, bool)> {
        self.pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()).filter_map(|volume| {
            match (&volume.persistent_volume_claim, &volume.ephemeral) {
                (Some(claim), _) => Some((claim.claim_name.clone(), false)),
                (None, Some(_)) => Some((format!("{}-{}", self.name(), volume.name), true)),
                (None, None) => None,
            }
        })
    }
}

/// Whether a toleration bears a taint.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
    let (effect, key) = (text(&toleration.effect), text(&toleration.key));
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && match toleration.operator.as_deref().unwrap_or_default() {
            "" | "Equal" => text(&toleration.value) == text(&taint.value),
            "Exists" => true,
            _ => false,
        }
}

/// Whether a pod bears a taint.
#[must_use]
pub fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

fn host_ports(spec: &PodSpec) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let wanted = ports.filter_map(|port| {
        let number = port.host_port.filter(|port| *port > 0)?;
        let or = |text: &Option<String>, default: &str| {
            text.as_deref().filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
        };
        Some(HostPort { ip: or(&port.host_ip, "0.0.0.0"), protocol: or(&port.protocol, "TCP"), port: number })
    });
    wanted.collect()
}

/// Everything that plugins look at, in one number. Pods with claims are alone: what they get depends on objects that
/// others do not have. The node's name is left out, so that a pod keeps its class when it is bound.
fn class(info: &PodInfo, spec: &PodSpec) -> Option<ClassKey> {
    let special = |volume: &k8s_openapi::api::core::v1::Volume| {
        volume.persistent_volume_claim.is_some()
            || volume.ephemeral.is_some()
            || volume.csi.is_some()
            || volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.rbd.is_some()
            || volume.iscsi.is_some()
    };
    if spec.resource_claims.is_some() || spec.volumes.iter().flatten().any(special) {
        return None;
    }
    let owners = info.pod.metadata.owner_references.iter().flatten();
    let owner = owners.into_iter().find(|owner| owner.controller == Some(true));
    let mut class = [0; 2];
    for (seed, half) in class.iter_mut().enumerate() {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        info.namespace().hash(&mut hasher);
        info.labels().hash(&mut hasher);
        info.requests.hash(&mut hasher);
        info.non_zero.hash(&mut hasher);
        info.host_ports.hash(&mut hasher);
        info.rules().hash(&mut hasher);
        info.scheduler_name().hash(&mut hasher);
        (spec.host_network, spec.host_users).hash(&mut hasher);
        owner.map(|owner| (&owner.kind, &owner.name, &owner.api_version)).hash(&mut hasher);
        for toleration in info.tolerations() {
            (&toleration.key, &toleration.operator, &toleration.value, &toleration.effect).hash(&mut hasher);
        }
        for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
            let rules = container.restart_policy_rules.iter().flatten();
            (&container.image, rules.map(|rule| &rule.action).collect::<Vec<_>>()).hash(&mut hasher);
        }
        spec.init_containers.as_ref().map(Vec::len).hash(&mut hasher);
        for volume in spec.volumes.iter().flatten() {
            volume.image.as_ref().and_then(|image| image.reference.as_ref()).hash(&mut hasher);
        }
        *half = hasher.finish();
    }
    Some(ClassKey(class[0], class[1]))
}

/// Labels of an object that may have none.
pub(crate) fn labels_of(labels: Option<&BTreeMap<String, String>>) -> &Labels {
    labels.unwrap_or(&NO_LABELS)
}
