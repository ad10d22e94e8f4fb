//! What happens in the cluster, as far as it can help a pod that fits nowhere.

use std::{fmt, sync::Arc};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolumeClaim, Pod},
    resource::v1::{DeviceClass, ResourceClaim},
    storage::v1::{CSINode, StorageClass},
};

use crate::{node_info::taints, pod_info::PodInfo, resource::Resource};

/// What something happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventResource {
    /// A pod, on a node or not.
    Pod,
    /// A node.
    Node,
    /// A claim of a volume.
    PersistentVolumeClaim,
    /// A volume.
    PersistentVolume,
    /// A class of volumes.
    StorageClass,
    /// What a storage driver says of a node.
    CSINode,
    /// A storage driver.
    CSIDriver,
    /// How much storage a driver has left.
    CSIStorageCapacity,
    /// A volume that is attached to a node.
    VolumeAttachment,
    /// A claim of devices.
    ResourceClaim,
    /// What a driver of devices has.
    ResourceSlice,
    /// A class of devices.
    DeviceClass,
    /// Anything.
    WildCard,
}

/// What happened, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActionType(u32);

impl ActionType {
    /// It is new.
    pub const ADD: Self = ActionType(1);
    /// It is gone.
    pub const DELETE: Self = ActionType(1 << 1);
    /// A node has more or less to give.
    pub const UPDATE_NODE_ALLOCATABLE: Self = ActionType(1 << 2);
    /// A node's labels.
    pub const UPDATE_NODE_LABEL: Self = ActionType(1 << 3);
    /// A node's taints, or whether it takes pods.
    pub const UPDATE_NODE_TAINT: Self = ActionType(1 << 4);
    /// A node's conditions.
    pub const UPDATE_NODE_CONDITION: Self = ActionType(1 << 5);
    /// A node's annotations.
    pub const UPDATE_NODE_ANNOTATION: Self = ActionType(1 << 6);
    /// A node's features.
    pub const UPDATE_NODE_DECLARED_FEATURE: Self = ActionType(1 << 7);
    /// A pod's labels.
    pub const UPDATE_POD_LABEL: Self = ActionType(1 << 8);
    /// A pod asks for less.
    pub const UPDATE_POD_SCALE_DOWN: Self = ActionType(1 << 9);
    /// A pod tolerates more.
    pub const UPDATE_POD_TOLERATION: Self = ActionType(1 << 10);
    /// A pod has no gates left.
    pub const UPDATE_POD_SCHEDULING_GATES_ELIMINATED: Self = ActionType(1 << 11);
    /// A pod's claims were made.
    pub const UPDATE_POD_GENERATED_RESOURCE_CLAIM: Self = ActionType(1 << 12);
    /// Anything else about it.
    pub const UPDATE_OTHER: Self = ActionType(1 << 13);
    /// Any change.
    pub const UPDATE: Self = ActionType((1 << 14) - 1 - 3);
    /// Anything at all.
    pub const ALL: Self = ActionType((1 << 14) - 1);

    /// Both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        ActionType(self.0 | other.0)
    }

    /// Whether they have something in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// What happened to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    /// To what.
    pub resource: EventResource,
    /// What.
    pub action: ActionType,
}

impl ClusterEvent {
    /// An event.
    #[must_use]
    pub const fn new(resource: EventResource, action: ActionType) -> Self {
        ClusterEvent { resource, action }
    }

    /// Anything may have happened.
    pub const WILD_CARD: Self = ClusterEvent::new(EventResource::WildCard, ActionType::ALL);

    /// Whether this is one of those that another speaks of.
    #[must_use]
    pub fn matches(self, other: ClusterEvent) -> bool {
        (self.resource == other.resource || other.resource == EventResource::WildCard)
            && self.action.meets(other.action)
    }
}

impl fmt::Display for ClusterEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            ActionType::ADD => "Add",
            ActionType::DELETE => "Delete",
            ActionType::UPDATE_NODE_ALLOCATABLE => "UpdateNodeAllocatable",
            ActionType::UPDATE_NODE_LABEL => "UpdateNodeLabel",
            ActionType::UPDATE_NODE_TAINT => "UpdateNodeTaint",
            ActionType::UPDATE_NODE_CONDITION => "UpdateNodeCondition",
            ActionType::UPDATE_NODE_ANNOTATION => "UpdateNodeAnnotation",
            ActionType::UPDATE_NODE_DECLARED_FEATURE => "UpdateNodeDeclaredFeature",
            ActionType::UPDATE_POD_LABEL => "UpdatePodLabel",
            ActionType::UPDATE_POD_SCALE_DOWN => "UpdatePodScaleDown",
            ActionType::UPDATE_POD_TOLERATION => "UpdatePodToleration",
            ActionType::UPDATE_POD_SCHEDULING_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            ActionType::UPDATE_POD_GENERATED_RESOURCE_CLAIM => "UpdatePodGeneratedResourceClaim",
            ActionType::ALL => "All",
            _ => "Update",
        };
        write!(f, "{:?}{action}", self.resource)
    }
}

/// The objects of an event, before and after.
#[derive(Clone, Debug)]
pub enum EventObject {
    /// None that hints look at.
    Other,
    /// A pod.
    Pod(Option<Arc<PodInfo>>, Option<Arc<PodInfo>>),
    /// A node.
    Node(Option<Arc<Node>>, Option<Arc<Node>>),
    /// A claim.
    Claim(Option<Arc<PersistentVolumeClaim>>, Option<Arc<PersistentVolumeClaim>>),
    /// A claim of devices.
    ResourceClaim(Option<Arc<ResourceClaim>>, Option<Arc<ResourceClaim>>),
    /// A class of devices.
    DeviceClass(Option<Arc<DeviceClass>>, Option<Arc<DeviceClass>>),
    /// A class.
    StorageClass(Option<Arc<StorageClass>>, Option<Arc<StorageClass>>),
    /// What a storage driver says of a node.
    CSINode(Option<Arc<CSINode>>, Option<Arc<CSINode>>),
}

/// What a change of a node is, one event for each thing that changed.
#[must_use]
pub fn node_changes(old: &Node, new: &Node) -> Vec<ClusterEvent> {
    use ActionType as A;
    let (before, after) = (old.status.as_ref(), new.status.as_ref());
    let unschedulable = |node: &Node| node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
    let conditions = |node: &Node| {
        let all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        all.map(|c| (c.type_.clone(), c.status.clone())).collect::<Vec<_>>()
    };
    let allocatable = before.map(|s| &s.allocatable) != after.map(|s| &s.allocatable);
    let taint = taints(old) != taints(new) || unschedulable(old) != unschedulable(new);
    let features = before.map(|s| &s.declared_features) != after.map(|s| &s.declared_features);
    let changes = [
        (allocatable, A::UPDATE_NODE_ALLOCATABLE),
        (old.metadata.labels != new.metadata.labels, A::UPDATE_NODE_LABEL),
        (taint, A::UPDATE_NODE_TAINT),
        (conditions(old) != conditions(new), A::UPDATE_NODE_CONDITION),
        (old.metadata.annotations != new.metadata.annotations, A::UPDATE_NODE_ANNOTATION),
        (features, A::UPDATE_NODE_DECLARED_FEATURE),
    ];
    let changed = changes.into_iter().filter(|(changed, _)| *changed);
    changed.map(|(_, action)| ClusterEvent::new(EventResource::Node, action)).collect()
}

fn less(old: &Resource, new: &Resource) -> bool {
    old.milli_cpu > new.milli_cpu
        || old.memory > new.memory
        || old.ephemeral_storage > new.ephemeral_storage
        || old.scalars.iter().any(|(name, amount)| *amount > new.scalar(name))
}

/// What a change of a pod is, one event for each thing that changed.
#[must_use]
pub fn pod_changes(old: &PodInfo, new: &PodInfo) -> Vec<ClusterEvent> {
    use ActionType as A;
    let gates = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).map_or(0, Vec::len);
    let claims = |pod: &Pod| pod.status.as_ref().and_then(|status| status.resource_claim_statuses.clone());
    let changes = [
        (old.labels() != new.labels(), A::UPDATE_POD_LABEL),
        (less(&old.requests, &new.requests), A::UPDATE_POD_SCALE_DOWN),
        (gates(&old.pod) > 0 && gates(&new.pod) == 0, A::UPDATE_POD_SCHEDULING_GATES_ELIMINATED),
        (old.tolerations() != new.tolerations(), A::UPDATE_POD_TOLERATION),
        (claims(&old.pod) != claims(&new.pod), A::UPDATE_POD_GENERATED_RESOURCE_CLAIM),
    ];
    let mut events: Vec<_> = changes.into_iter().filter(|(changed, _)| *changed).map(|(_, action)| action).collect();
    if events.is_empty() {
        events.push(A::UPDATE_OTHER);
    }
    events.into_iter().map(|action| ClusterEvent::new(EventResource::Pod, action)).collect()
}
