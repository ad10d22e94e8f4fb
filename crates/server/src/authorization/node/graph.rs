//! Which objects concern which nodes.
//!
//! Pods say on which node they are and what they refer to; volumes say which claim they are bound to and which secrets
//! they need. An object concerns a node if a pod on it refers to it, or to a claim whose volume it is or is needed by.
//! For each object the nodes of its pods are counted, so that a question costs a lookup however many pods there are.

use std::collections::{HashMap, HashSet};

use capstan_api::Str;

/// The kinds of objects that nodes ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Pod,
    Secret,
    ConfigMap,
    Claim,
    Volume,
    ResourceClaim,
    ServiceAccount,
    Attachment,
    Slice,
}

/// A kind, a namespace and a name.
pub(super) type Key = (Kind, Str, Str);

/// What a volume refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    /// The claim that it is bound to: namespace and name.
    pub(super) claim: (Str, Str),
    /// The secrets that the node needs for it: namespace and name.
    pub(super) secrets: Vec<(Str, Str)>,
}

#[derive(Debug, Default)]
pub(super) struct Graph {
    /// By namespace and name: the node and what the pod refers to.
    pods: HashMap<(Str, Str), (Str, Vec<Key>)>,
    /// By what pods refer to: how many pods of which nodes do.
    nodes: HashMap<Key, HashMap<Str, usize>>,
    volumes: HashMap<Str, Volume>,
    /// By namespace and name of a secret: the volumes that need it.
    volumes_of_secret: HashMap<(Str, Str), HashSet<Str>>,
    /// Attachments and slices, which name their node themselves.
    direct: HashMap<(Kind, Str), Str>,
}

impl Graph {
    /// Sets what a pod refers to; an empty node forgets the pod.
    pub(super) fn set_pod(&mut self, namespace: &str, name: &str, node: &str, references: Vec<Key>) {
        let key = (Str::from(namespace), Str::from(name));
        // Most changes of a pod are of its status alone.
        if self.pods.get(&key).is_some_and(|(own, old)| own == node && *old == references) {
            return;
        }
        if let Some((node, references)) = self.pods.remove(&key) {
            for reference in references {
                self.forget(reference, &node);
            }
        }
        if node.is_empty() {
            return;
        }
        for reference in &references {
            *self.nodes.entry(reference.clone()).or_default().entry(node.into()).or_default() += 1;
        }
        self.pods.insert(key, (node.into(), references));
    }

    fn forget(&mut self, reference: Key, node: &str) {
        let Some(nodes) = self.nodes.get_mut(&reference) else { return };
        if let Some(count) = nodes.get_mut(node) {
            *count -= 1;
            if *count == 0 {
                nodes.remove(node);
            }
        }
        if nodes.is_empty() {
            self.nodes.remove(&reference);
        }
    }

    /// Sets what a volume refers to; `None` forgets it.
    pub(super) fn set_volume(&mut self, name: &str, volume: Option<Volume>) {
        if let Some(old) = self.volumes.remove(name) {
            for secret in old.secrets {
                if let Some(volumes) = self.volumes_of_secret.get_mut(&secret) {
                    volumes.remove(name);
                    if volumes.is_empty() {
                        self.volumes_of_secret.remove(&secret);
                    }
                }
            }
        }
        if let Some(volume) = volume {
            for secret in &volume.secrets {
                self.volumes_of_secret.entry(secret.clone()).or_default().insert(name.into());
            }
            self.volumes.insert(name.into(), volume);
        }
    }

    /// Sets the node that an object names; an empty one forgets the object.
    pub(super) fn set_direct(&mut self, kind: Kind, name: &str, node: &str) {
        let key = (kind, Str::from(name));
        if node.is_empty() {
            self.direct.remove(&key);
        } else {
            self.direct.insert(key, node.into());
        }
    }

    /// Whether an object concerns a node.
    pub(super) fn is_related(&self, kind: Kind, namespace: &str, name: &str, node: &str) -> bool {
        match kind {
            Kind::Pod => self.pods.get(&(namespace.into(), name.into())).is_some_and(|(own, _)| own == node),
            Kind::Attachment | Kind::Slice => self.direct.get(&(kind, name.into())).is_some_and(|own| own == node),
            // Volumes have no namespace, whatever the request says.
            Kind::Volume => namespace.is_empty() && self.volume_is_related(name, node),
            Kind::Secret => {
                let volumes = || self.volumes_of_secret.get(&(namespace.into(), name.into())).into_iter().flatten();
                self.is_referred_to(kind, namespace, name, node)
                    || volumes().any(|volume| self.volume_is_related(volume, node))
            }
            _ => self.is_referred_to(kind, namespace, name, node),
        }
    }

    fn is_referred_to(&self, kind: Kind, namespace: &str, name: &str, node: &str) -> bool {
        self.nodes.get(&(kind, namespace.into(), name.into())).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn volume_is_related(&self, name: &str, node: &str) -> bool {
        self.volumes.get(name).is_some_and(|volume| {
            let (namespace, claim) = &volume.claim;
            self.is_referred_to(Kind::Claim, namespace, claim, node)
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
            && self.nodes.is_empty()
            && self.volumes.is_empty()
            && self.volumes_of_secret.is_empty()
            && self.direct.is_empty()
    }
}
