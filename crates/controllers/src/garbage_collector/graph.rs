//! Who owns whom, as far as it has been seen. Pure: what is to be done about a change is told, not done.
//!
//! Kinds are watched one by one, so a dependent may be seen before its owner. Then a virtual node stands for the owner,
//! with what the dependent says of it, until the owner is seen or found to be absent. Dependents may be wrong about
//! their owner (another namespace, another kind under the same uid); such claims are verified one by one.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use capstan_api::{Str, object::OwnerReference};

use super::absent::AbsentOwners;
use crate::{metadata::ObjectMetadata, shared::Owners};

pub(super) const FOREGROUND: &str = "foregroundDeletion";
pub(super) const ORPHAN: &str = "orphan";

/// Tells an object from all others that ever were.
pub(super) type Uid = Arc<str>;

/// Which object, as somebody says. The order is that in which claims about one uid are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Identity {
    pub(super) kind: Str,
    pub(super) api_version: Str,
    pub(super) namespace: Str,
    pub(super) name: Str,
    pub(super) uid: Uid,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { kind, api_version, namespace, name, uid } = self;
        write!(f, "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]")
    }
}

impl Identity {
    /// What a reference in an object of this namespace says of its owner.
    pub(super) fn of(reference: &OwnerReference, namespace: &str) -> Self {
        Identity {
            kind: reference.kind.as_str().into(),
            api_version: reference.api_version.as_str().into(),
            namespace: namespace.into(),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
        }
    }

    /// Whether a reference speaks of this object, wherever it is.
    fn is_meant_by(&self, reference: &OwnerReference) -> bool {
        self.kind == reference.kind
            && self.api_version == reference.api_version
            && self.name == reference.name
            && *self.uid == *reference.uid
    }
}

/// An object in the graph.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) identity: Identity,
    pub(super) owners: Owners,
    pub(super) dependents: BTreeSet<Uid>,
    /// Whether it is going and waits for its dependents to go first.
    pub(super) is_deleting_dependents: bool,
    pub(super) is_being_deleted: bool,
    /// Whether only dependents have told of it.
    pub(super) is_virtual: bool,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// See whether it is to be deleted.
    AttemptToDelete(Uid),
    /// The same, but not at once: what was said of it was wrong before.
    AttemptToDeleteLater(Uid),
    /// Release its dependents.
    AttemptToOrphan(Uid),
    /// Tell of an object's reference to an owner in another namespace.
    InvalidNamespace(Box<(Identity, Identity)>),
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// In boxes: a map has room for more than it holds.
    nodes: HashMap<Uid, Box<Node>>,
    pub(super) absent: AbsentOwners,
}

fn blocks(reference: &OwnerReference) -> bool {
    reference.block_owner_deletion == Some(true)
}

/// Whether the deletion of an object begins with this, and it has the finalizer.
fn begins_with(old: Option<&ObjectMetadata>, new: &ObjectMetadata, finalizer: &str) -> bool {
    let goes = |object: &ObjectMetadata| object.is_being_deleted && object.has_finalizer(finalizer);
    goes(new) && !old.is_some_and(goes)
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid).map(|node| &**node)
    }

    /// The dependents of an object.
    pub(super) fn dependents<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> + 'a {
        node.dependents.iter().filter_map(|uid| self.get(uid))
    }

    /// The dependents that keep an object from going.
    pub(super) fn blocking<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> + 'a {
        let uid = &node.identity.uid;
        self.dependents(node)
            .filter(move |dependent| dependent.owners.iter().any(|owner| *owner.uid == **uid && blocks(owner)))
    }

    /// An object was seen: it is new, or has changed.
    pub(super) fn set(
        &mut self,
        identity: &Identity,
        old: Option<&ObjectMetadata>,
        new: &ObjectMetadata,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let uid = Arc::clone(&identity.uid);
        self.observe(&uid, identity, &mut effects);
        let owners = new.owner_references.clone();
        if let Some(node) = self.nodes.get_mut(&uid) {
            let before = std::mem::replace(&mut node.owners, owners.clone());
            node.is_being_deleted |= new.is_being_deleted;
            let is_in = |list: &[OwnerReference], uid: &str| list.iter().any(|own| own.uid == uid);
            let added: Vec<_> = owners.iter().filter(|owner| !is_in(&before, &owner.uid)).cloned().collect();
            for reference in before.iter() {
                let now = owners.iter().find(|owner| owner.uid == reference.uid);
                // An owner that waits need not wait for this one any longer.
                if blocks(reference) && !now.is_some_and(blocks) {
                    effects.extend(self.known(&reference.uid).map(Effect::AttemptToDelete));
                }
                if now.is_none()
                    && let Some(owner) = self.nodes.get_mut(reference.uid.as_str())
                {
                    owner.dependents.remove(&uid);
                }
            }
            self.add_to_owners(&uid, identity, &added, &mut effects);
        } else {
            let node = Node {
                identity: identity.clone(),
                owners: owners.clone(),
                dependents: BTreeSet::new(),
                is_deleting_dependents: new.is_being_deleted && new.has_finalizer(FOREGROUND),
                is_being_deleted: new.is_being_deleted,
                is_virtual: false,
            };
            self.nodes.insert(Arc::clone(&uid), Box::new(node));
            self.add_to_owners(&uid, identity, &owners, &mut effects);
        }
        self.transitions(&uid, old, new, &mut effects);
        effects
    }

    /// What dependents told of an object is replaced by what was seen.
    fn observe(&mut self, uid: &Uid, seen: &Identity, effects: &mut Vec<Effect>) {
        let Some(node) = self.nodes.get(uid).filter(|node| node.is_virtual) else { return };
        if node.identity != *seen {
            let (_, wrong) = self.partition(node, seen);
            for dependent in wrong {
                let Some(dependent) = self.nodes.get(&dependent) else { continue };
                let elsewhere = !seen.namespace.is_empty() && dependent.identity.namespace != seen.namespace;
                effects.extend(elsewhere.then(|| invalid_namespace(dependent, uid)).flatten());
                effects.push(Effect::AttemptToDelete(Arc::clone(&dependent.identity.uid)));
            }
        }
        if let Some(node) = self.nodes.get_mut(uid) {
            node.identity = seen.clone();
            node.is_virtual = false;
        }
    }

    fn add_to_owners(&mut self, uid: &Uid, identity: &Identity, owners: &[OwnerReference], effects: &mut Vec<Effect>) {
        let mut suspicious = false;
        for reference in owners {
            let claimed = Identity::of(reference, &identity.namespace);
            let owner_uid: Uid = reference.uid.as_str().into();
            if let Some(owner) = self.nodes.get_mut(&owner_uid) {
                owner.dependents.insert(Arc::clone(uid));
                if suspicious {
                    continue;
                }
                let owner = &self.nodes[&owner_uid];
                let is_namespaced = !owner.identity.namespace.is_empty();
                let is_elsewhere = owner.identity.namespace != identity.namespace;
                if is_namespaced && is_elsewhere {
                    if !owner.is_virtual {
                        effects.push(Effect::InvalidNamespace(Box::new((identity.clone(), claimed))));
                    }
                    suspicious = true;
                } else {
                    // An owner of the cluster that nobody has seen may in truth be one of a namespace.
                    suspicious = !owner.identity.is_meant_by(reference) || (is_elsewhere && owner.is_virtual);
                }
            } else {
                let owner = Node {
                    identity: claimed,
                    owners: Owners::default(),
                    dependents: BTreeSet::from([Arc::clone(uid)]),
                    is_deleting_dependents: false,
                    is_being_deleted: false,
                    is_virtual: true,
                };
                self.nodes.insert(Arc::clone(&owner_uid), Box::new(owner));
                effects.push(Effect::AttemptToDelete(owner_uid));
            }
        }
        if suspicious {
            effects.push(Effect::AttemptToDelete(Arc::clone(uid)));
        }
    }

    fn transitions(
        &mut self,
        uid: &Uid,
        old: Option<&ObjectMetadata>,
        new: &ObjectMetadata,
        effects: &mut Vec<Effect>,
    ) {
        if begins_with(old, new, ORPHAN) {
            effects.push(Effect::AttemptToOrphan(Arc::clone(uid)));
        } else if begins_with(old, new, FOREGROUND)
            && let Some(node) = self.nodes.get_mut(uid)
        {
            node.is_deleting_dependents = true;
            effects.extend(node.dependents.iter().cloned().map(Effect::AttemptToDelete));
            effects.push(Effect::AttemptToDelete(Arc::clone(uid)));
        }
    }

    fn known(&self, uid: &str) -> Option<Uid> {
        self.nodes.get_key_value(uid).map(|(uid, _)| Arc::clone(uid))
    }

    /// An object went.
    pub(super) fn gone(&mut self, identity: &Identity) -> Vec<Effect> {
        self.remove(identity)
    }

    /// An object that was looked for is not there. This may be news, or what was said of it was wrong.
    pub(super) fn found_absent(&mut self, identity: &Identity) -> Vec<Effect> {
        let Some(node) = self.nodes.get(&identity.uid) else { return Vec::new() };
        let (right, wrong) = self.partition(node, identity);
        if if node.is_virtual { wrong.is_empty() } else { node.identity == *identity } {
            return self.remove(identity);
        }
        // Somebody says otherwise, so it stays; those who meant the absent one are told.
        let mut effects = Vec::new();
        if !right.is_empty() {
            self.absent.add(identity.clone());
            effects.extend(right.into_iter().map(Effect::AttemptToDelete));
        }
        let (is_virtual, is_same) = (node.is_virtual, node.identity == *identity);
        if is_virtual
            && is_same
            && let Some(other) = self.alternative(&wrong, identity)
            && let Some(node) = self.nodes.get_mut(&identity.uid)
        {
            node.identity = other;
            effects.push(Effect::AttemptToDeleteLater(Arc::clone(&identity.uid)));
        }
        effects
    }

    fn remove(&mut self, identity: &Identity) -> Vec<Effect> {
        let Some((uid, node)) = self.nodes.remove_entry(&identity.uid) else { return Vec::new() };
        if !node.dependents.is_empty() {
            self.absent.add(identity.clone());
        }
        let mut effects: Vec<_> = node.dependents.into_iter().map(Effect::AttemptToDelete).collect();
        for owner in node.owners.iter() {
            let Some((owner_uid, owner)) = self.nodes.get_key_value(owner.uid.as_str()) else { continue };
            let (owner_uid, waits) = (Arc::clone(owner_uid), owner.is_deleting_dependents);
            if let Some(owner) = self.nodes.get_mut(&owner_uid) {
                owner.dependents.remove(&uid);
            }
            if waits {
                effects.push(Effect::AttemptToDelete(owner_uid));
            }
        }
        effects
    }

    /// The dependents of a node that mean this owner, and those that say something else of it. One may do both.
    fn partition(&self, node: &Node, owner: &Identity) -> (Vec<Uid>, Vec<Uid>) {
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for uid in &node.dependents {
            let Some(dependent) = self.nodes.get(uid) else { continue };
            if !owner.namespace.is_empty() && owner.namespace != dependent.identity.namespace {
                wrong.push(Arc::clone(uid));
                continue;
            }
            let mut claims = dependent.owners.iter().filter(|reference| *reference.uid == *owner.uid);
            if claims.clone().any(|reference| owner.is_meant_by(reference)) {
                right.push(Arc::clone(uid));
            }
            if claims.any(|reference| !owner.is_meant_by(reference)) {
                wrong.push(Arc::clone(uid));
            }
        }
        (right, wrong)
    }

    /// What else is said of an object that is not what it was thought to be: the next claim in their order.
    fn alternative(&self, dependents: &[Uid], absent: &Identity) -> Option<Identity> {
        let mut claims = BTreeSet::new();
        for dependent in dependents.iter().filter_map(|uid| self.nodes.get(uid)) {
            for reference in dependent.owners.iter().filter(|reference| *reference.uid == *absent.uid) {
                let mut claim = Identity::of(reference, &dependent.identity.namespace);
                if absent.namespace.is_empty() && claim.kind == absent.kind && claim.api_version == absent.api_version {
                    claim.namespace.clear();
                }
                let is_known = absent.is_meant_by(reference)
                    && (absent.namespace.is_empty() || absent.namespace == dependent.identity.namespace);
                if !is_known && claim != *absent {
                    claims.insert(claim);
                }
            }
        }
        claims.iter().find(|claim| *claim > absent).or_else(|| claims.first()).cloned()
    }
}

fn invalid_namespace(dependent: &Node, owner: &str) -> Option<Effect> {
    let reference = dependent.owners.iter().find(|reference| reference.uid == owner)?;
    let owner = Identity::of(reference, &dependent.identity.namespace);
    Some(Effect::InvalidNamespace(Box::new((dependent.identity.clone(), owner))))
}
