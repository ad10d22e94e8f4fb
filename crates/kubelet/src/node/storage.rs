//! Who goes because of what it has on the node's disk: a volume, a container or a pod over its limit.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use capstan_api::Quantity;
use k8s_openapi::api::core::v1::{Pod, Volume};

use crate::qos::{limit, quantity};

/// The resource that limits are of.
const RESOURCE: &str = "ephemeral-storage";

/// What a pod has on the disk, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Its volumes, by name.
    pub(super) volumes: BTreeMap<String, u64>,
    /// Logs and own files of its containers, by name.
    pub(super) containers: BTreeMap<String, u64>,
}

impl Used {
    /// Measures a pod whose files and logs are there; `layers` are the own files of its containers.
    pub(super) fn measure(pod: &Pod, files: &Path, logs: &Path, layers: BTreeMap<String, u64>) -> Self {
        let mut used = Used { containers: layers, ..Used::default() };
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let plugin = match volume {
                Volume { empty_dir: Some(_), .. } => "empty-dir",
                Volume { config_map: Some(_), .. } => "configmap",
                _ => continue,
            };
            let place = files.join("volumes").join(format!("kubernetes.io~{plugin}")).join(&volume.name);
            used.volumes.insert(volume.name.clone(), bytes(&place));
        }
        for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            *used.containers.entry(name).or_default() += bytes(&entry.path());
        }
        used
    }
}

/// Whether anything of the pod on the disk has a limit.
pub(super) fn is_limited(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let sized = |volume: &Volume| volume.empty_dir.as_ref().is_some_and(|empty| empty.size_limit.is_some());
    spec.volumes.iter().flatten().any(sized) || limit(spec, RESOURCE).is_some()
}

/// Why the pod goes, if something of it has grown over its limit.
pub(super) fn exceeded(pod: &Pod, used: &Used) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let over =
        |used: u64, limit: &Quantity| limit.signum() > 0 && i64::try_from(used).unwrap_or(i64::MAX) > limit.value();
    for volume in spec.volumes.iter().flatten() {
        let size = volume.empty_dir.as_ref().and_then(|empty| empty.size_limit.as_ref()).map(quantity);
        let bytes = used.volumes.get(&volume.name).copied().unwrap_or(0);
        if let Some(size) = size.filter(|size| over(bytes, size)) {
            return Some(format!("Usage of EmptyDir volume \"{}\" exceeds the limit \"{size}\". ", volume.name));
        }
    }
    // What is in memory counts as memory.
    let in_memory = |name: &str| {
        let medium = |volume: &Volume| volume.empty_dir.as_ref().and_then(|empty| empty.medium.clone());
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == name);
        volume.and_then(medium).is_some_and(|medium| !medium.is_empty())
    };
    let volumes = used.volumes.iter().filter(|(name, _)| !in_memory(name)).map(|(_, bytes)| bytes);
    let total: u64 = volumes.chain(used.containers.values()).sum();
    if let Some(limit) = limit(spec, RESOURCE).filter(|limit| over(total, limit)) {
        return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "));
    }
    spec.containers.iter().find_map(|container| {
        let limit = quantity(container.resources.as_ref()?.limits.as_ref()?.get(RESOURCE)?);
        let name = &container.name;
        over(used.containers.get(name).copied().unwrap_or(0), &limit)
            .then(|| format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". "))
    })
}

/// What a file or directory takes of the disk; what has two names counts once.
pub(crate) fn bytes(path: &Path) -> u64 {
    let (mut total, mut seen, mut left) = (0, BTreeSet::new(), vec![path.to_owned()]);
    while let Some(path) = left.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        if meta.is_dir() {
            left.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if meta.nlink() > 1 && !seen.insert((meta.dev(), meta.ino())) {
            continue;
        }
        // The kernel counts in these, whatever the file system has for blocks.
        total += meta.blocks() * 512;
    }
    total
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, volumes: &[(&str, u64)], containers: &[(&str, u64)], expected: Option<&str>) {
        let map = |all: &[(&str, u64)]| all.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let used = Used { volumes: map(volumes), containers: map(containers) };
        assert_eq!(exceeded(&pod, &used).as_deref(), expected, "{spec}");
        assert!(is_limited(&pod));
    }

    #[test]
    fn over_a_limit() {
        let spec = json!({"containers": [
            {"name": "a", "resources": {"limits": {"ephemeral-storage": "1Ki"}}},
            {"name": "b", "resources": {"limits": {"ephemeral-storage": "2Ki"}}}],
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Ki"}}, {"name": "w", "emptyDir": {}},
                        {"name": "m", "emptyDir": {"medium": "Memory"}}]});
        let check = |volumes: &[_], containers: &[_], expected| check(spec.clone(), volumes, containers, expected);
        check(&[("v", 1024)], &[("a", 1024), ("b", 1024)], None);
        check(&[("v", 1025)], &[], Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Ki\". "));
        check(&[], &[("a", 1025)], Some("Container a exceeded its local ephemeral storage limit \"1Ki\". "));
        let pod = Some("Pod ephemeral local storage usage exceeds the total limit of containers 3Ki. ");
        check(&[("w", 2048)], &[("b", 1025)], pod);
        check(&[("m", 9999)], &[("b", 1025)], None);
    }

    #[test]
    fn what_is_on_the_disk() {
        let dir = crate::testing::temporary("storage");
        let volume = dir.join("volumes/kubernetes.io~empty-dir/v");
        std::fs::create_dir_all(volume.join("deep")).unwrap();
        std::fs::create_dir_all(dir.join("logs/c")).unwrap();
        std::fs::write(volume.join("deep/file"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(volume.join("deep/file"), volume.join("again")).unwrap();
        std::fs::write(dir.join("logs/c/0.log"), vec![1; 50_000]).unwrap();
        let spec = json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]});
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        let used = Used::measure(&pod, &dir, &dir.join("logs"), [("c".to_owned(), 1000)].into());
        assert!((100_000..200_000).contains(&used.volumes["v"]), "{used:?}");
        assert!((51_000..100_000).contains(&used.containers["c"]), "{used:?}");
    }
}
