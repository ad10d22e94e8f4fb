//! What has to be attached to a node and what detached from it. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume},
    storage::v1::VolumeAttachment,
};

use crate::pod::Pod;

/// Marks nodes whose volumes are attached from here.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Marks nodes that are gone for good: nothing of theirs is in use.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// A volume that pods of a node want.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) volume: Arc<PersistentVolume>,
    pub(super) pods: Vec<Arc<Pod>>,
}

/// The name of an attachment, as upstream and external attachers make it.
pub(super) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let text = format!("{handle}{driver}{node}");
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    let digits: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{digits}")
}

/// The name of a volume in the status of nodes; none for volumes that no CSI driver has.
pub(super) fn unique_name(volume: &PersistentVolume) -> Option<String> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    Some(format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))
}

/// Whether a volume may be on more than one node.
fn may_be_on_many(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

/// What happens to a volume of a node next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is to be attached.
    Attach { attachment: String, driver: String, volume: String },
    /// It is somewhere else, where it may be alone.
    Elsewhere { volume: String, nodes: Vec<String> },
    /// The driver could not attach it.
    Failed { volume: String, why: String },
    /// It is no longer wanted, but the node still uses it.
    InUse { attachment: String },
    /// It is no longer wanted and may go.
    Detach { attachment: String },
}

/// What is to be done for a node: first its status says what is attached, then the steps are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The names of the volumes that the node is to know as attached, if these are others than it knows.
    pub(super) attached: Option<BTreeSet<String>>,
    /// The volumes among them that it does not know yet.
    pub(super) new: BTreeSet<String>,
    pub(super) steps: Vec<Step>,
}

/// Whether volumes of a node are attached from here.
pub(super) fn is_managed(node: &Node) -> bool {
    node.metadata.annotations.as_ref().is_some_and(|all| all.get(MANAGED).is_some_and(|yes| yes == "true"))
}

/// Whether nothing of a node is in use, whatever its status says.
pub(super) fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == OUT_OF_SERVICE)
}

fn volume_of(attachment: &VolumeAttachment) -> &str {
    attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default()
}

fn name_of(attachment: &VolumeAttachment) -> &str {
    attachment.metadata.name.as_deref().unwrap_or_default()
}

/// The plan for a node. `wanted` is by the names of volumes, `overdue` has the attachments that were given up waiting
/// for.
pub(super) fn plan(
    node: &Node,
    wanted: &BTreeMap<String, Wanted>,
    attachments: &[Arc<VolumeAttachment>],
    volume: &dyn Fn(&str) -> Option<Arc<PersistentVolume>>,
    overdue: &BTreeSet<String>,
) -> Plan {
    let node_name = node.metadata.name.as_deref().unwrap_or_default();
    let status = node.status.as_ref();
    let in_use = status.and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
    let known = status.and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
    let known: BTreeSet<String> = known.iter().map(|attached| attached.name.clone()).collect();
    let (own, others): (Vec<_>, Vec<_>) =
        attachments.iter().partition(|attachment| attachment.spec.node_name == node_name);
    // What others put into the status is not ours to take out.
    let mut attached: BTreeSet<String> =
        known.iter().filter(|name| !name.starts_with("kubernetes.io/csi/")).cloned().collect();
    let mut steps = Vec::new();
    for attachment in &own {
        let name = volume_of(attachment);
        let unique = volume(name).and_then(|volume| unique_name(&volume));
        let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        if wanted.contains_key(name) {
            let error = attachment.status.as_ref().and_then(|status| status.attach_error.as_ref());
            if is_attached {
                attached.extend(unique);
            } else if let Some(error) = error {
                let why = error.message.clone().unwrap_or_default();
                steps.push(Step::Failed { volume: name.to_owned(), why });
            }
            continue;
        }
        let attachment_name = name_of(attachment).to_owned();
        let used = unique.as_ref().is_some_and(|unique| in_use.contains(unique));
        if used && !overdue.contains(&attachment_name) && !is_out_of_service(node) {
            attached.extend(unique.filter(|_| is_attached));
            steps.push(Step::InUse { attachment: attachment_name });
        } else if attachment.metadata.deletion_timestamp.is_none() {
            steps.push(Step::Detach { attachment: attachment_name });
        }
    }
    for (name, wanted) in wanted {
        let Some(csi) = wanted.volume.spec.as_ref().and_then(|spec| spec.csi.as_ref()) else { continue };
        if own.iter().any(|attachment| volume_of(attachment) == name) {
            continue;
        }
        let elsewhere = others.iter().filter(|attachment| volume_of(attachment) == name);
        let nodes: Vec<_> = elsewhere.map(|attachment| attachment.spec.node_name.clone()).collect();
        if !nodes.is_empty() && !may_be_on_many(&wanted.volume) {
            steps.push(Step::Elsewhere { volume: name.clone(), nodes });
        } else {
            steps.push(Step::Attach {
                attachment: attachment_name(&csi.volume_handle, &csi.driver, node_name),
                driver: csi.driver.clone(),
                volume: name.clone(),
            });
        }
    }
    let new = attached.difference(&known).cloned().collect();
    Plan { attached: (attached != known).then_some(attached), new, steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pv(name: &str, modes: &[&str]) -> Arc<PersistentVolume> {
        let spec = json!({"accessModes": modes, "csi": {"driver": "d", "volumeHandle": format!("h-{name}")}});
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap())
    }

    fn attachment(volume: &str, node: &str, status: Value) -> Arc<VolumeAttachment> {
        Arc::new(
            serde_json::from_value(json!({"metadata": {"name": format!("{volume}-{node}")},
            "spec": {"attacher": "d", "nodeName": node, "source": {"persistentVolumeName": volume}},
            "status": status}))
            .unwrap(),
        )
    }

    fn check(
        status: Value,
        wanted: &[&str],
        attachments: &[Arc<VolumeAttachment>],
        attached: Option<&[&str]>,
        steps: &[Step],
    ) {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).unwrap();
        let of = |name: &str| pv(name, if name == "many" { &["ReadWriteMany"] } else { &["ReadWriteOnce"] });
        let wanted = wanted.iter().map(|name| ((*name).to_owned(), Wanted { volume: of(name), pods: Vec::new() }));
        let found = plan(&node, &wanted.collect(), attachments, &|name| Some(of(name)), &BTreeSet::new());
        let names = attached.map(|all| all.iter().map(|name| format!("kubernetes.io/csi/d^h-{name}")).collect());
        assert_eq!((found.attached, found.steps.as_slice()), (names, steps));
    }

    #[test]
    fn attaching_and_detaching() {
        let attach = |volume: &str| Step::Attach {
            attachment: attachment_name(&format!("h-{volume}"), "d", "n"),
            driver: "d".into(),
            volume: volume.into(),
        };
        check(json!({}), &["a"], &[], None, &[attach("a")]);
        let (no, yes) = (json!({"attached": false}), json!({"attached": true}));
        check(json!({}), &["a"], &[attachment("a", "n", no)], None, &[]);
        check(json!({}), &["a"], &[attachment("a", "n", yes.clone())], Some(&["a"]), &[]);
        let failed = json!({"attached": false, "attachError": {"message": "no room"}});
        let step = Step::Failed { volume: "a".into(), why: "no room".into() };
        check(json!({}), &["a"], &[attachment("a", "n", failed)], None, &[step]);
        // Alone on one node, or not.
        let other = attachment("a", "m", yes.clone());
        check(json!({}), &["a"], &[other], None, &[Step::Elsewhere { volume: "a".into(), nodes: vec!["m".into()] }]);
        check(json!({}), &["many"], &[attachment("many", "m", yes.clone())], None, &[attach("many")]);
        // Detached once the node does not use it; the status says so first.
        let knows = json!([{"name": "kubernetes.io/csi/d^h-a", "devicePath": ""}]);
        let uses = json!({"volumesAttached": knows, "volumesInUse": ["kubernetes.io/csi/d^h-a"]});
        let own = attachment("a", "n", yes);
        check(uses, &[], std::slice::from_ref(&own), None, &[Step::InUse { attachment: "a-n".into() }]);
        let detach = Step::Detach { attachment: "a-n".into() };
        check(json!({"volumesAttached": knows}), &[], &[own], Some(&[]), &[detach]);
    }

    #[test]
    fn names_are_hashes() {
        // printf hdn | sha256sum
        let name = attachment_name("h", "d", "n");
        assert_eq!(name.len(), "csi-".len() + 64);
        assert_eq!(name, attachment_name("hd", "", "n"), "upstream puts nothing between the parts");
    }
}
