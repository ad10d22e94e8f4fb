//! Volumes: what a pod's volumes are made of, and where on the node.

pub mod atomic;
mod payload;

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Component, Path, PathBuf},
};

use capstan_client::{Api, Client};
use capstan_clock::{SharedClock, SharedIds, Timestamp};
use k8s_openapi::api::core::v1::{Container, PersistentVolume, PersistentVolumeClaim, Pod, Volume, VolumeMount};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::{
    downward::Facts,
    env::expand,
    runtime::{Mount, MountImage, Propagation},
};

/// A volume that is at its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// Where on the node.
    pub path: PathBuf,
    /// Whether nobody may write to it.
    pub read_only: bool,
    /// The image whose files it shows, and when that is pulled: the runtime makes such a volume, not the node.
    pub image: Option<(MountImage, Option<String>)>,
}

impl Prepared {
    fn at(path: PathBuf, read_only: bool) -> Self {
        Prepared { path, read_only, image: None }
    }
}

/// Makes the volumes of one pod, and makes them anew when what they show has changed.
#[derive(Debug)]
pub struct Volumes {
    client: Client,
    clock: SharedClock,
    ids: SharedIds,
    dir: PathBuf,
    /// Tokens by volume and path, with the time at which they are to be replaced.
    tokens: BTreeMap<String, (String, Timestamp)>,
}

/// Why there is no volume.
enum Fault {
    /// It can't be made.
    SetUp(String),
    /// It is not known yet what it is.
    Claim(String),
}

impl From<String> for Fault {
    fn from(error: String) -> Self {
        Fault::SetUp(error)
    }
}

impl Volumes {
    /// The volumes of a pod whose files are in `dir`.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock, ids: SharedIds, dir: PathBuf) -> Self {
        Volumes { client, clock, ids, dir, tokens: BTreeMap::new() }
    }

    /// Every volume of the pod by name, or the first thing that is wrong. May be called again and again: what has not
    /// changed is left alone.
    ///
    /// # Errors
    /// In the words of a `FailedMount` event.
    pub async fn prepare(&mut self, pod: &Pod, facts: &Facts) -> Result<BTreeMap<String, Prepared>, String> {
        let mut all = BTreeMap::new();
        let group = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()?.fs_group);
        let group = group.and_then(|group| u32::try_from(group).ok());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let name = &volume.name;
            let prepared = self.one(pod, volume, group, facts).await;
            let prepared = prepared.map_err(|fault| match fault {
                Fault::SetUp(error) => format!("MountVolume.SetUp failed for volume \"{name}\" : {error}"),
                Fault::Claim(error) => format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{name}], unattached volumes=[], failed to \
                     process volumes=[{name}]: {error}"
                ),
            })?;
            all.insert(name.clone(), prepared);
        }
        Ok(all)
    }

    /// Where a volume of a kind lies.
    fn place(&self, plugin: &str, name: &str) -> PathBuf {
        self.dir.join("volumes").join(format!("kubernetes.io~{plugin}")).join(name)
    }

    async fn one(&mut self, pod: &Pod, volume: &Volume, group: Option<u32>, facts: &Facts) -> Result<Prepared, Fault> {
        let text = |error: io::Error| error.to_string();
        if let Some(empty) = &volume.empty_dir {
            let path = self.place("empty-dir", &volume.name);
            fs::create_dir_all(&path).map_err(text)?;
            if !is_mounted(&path) && empty.medium.as_deref() == Some("Memory") {
                let size = empty.size_limit.as_ref().map(|size| crate::qos::quantity(size).value());
                let data = size.map_or_else(|| "mode=777".to_owned(), |size| format!("mode=777,size={size}"));
                let data = std::ffi::CString::new(data).map_err(|error| error.to_string())?;
                // Where mounting is not allowed it is on disk.
                let _ = rustix::mount::mount("tmpfs", &path, "tmpfs", MountFlags::empty(), Some(&*data));
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).map_err(text)?;
            if group.is_some() {
                std::os::unix::fs::chown(&path, None, group).map_err(text)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o2777)).map_err(text)?;
            }
            return Ok(Prepared::at(path, false));
        }
        if let Some(host) = &volume.host_path {
            let path = PathBuf::from(&host.path);
            host_path(&path, host.type_.as_deref().unwrap_or_default())?;
            return Ok(Prepared::at(path, false));
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            let path = self.claimed(pod, &claim.claim_name).await?;
            return Ok(Prepared::at(path, claim.read_only.unwrap_or(false)));
        }
        if volume.ephemeral.is_some() {
            let claim = format!("{}-{}", pod.metadata.name.as_deref().unwrap_or_default(), volume.name);
            return Ok(Prepared::at(self.claimed(pod, &claim).await?, false));
        }
        if let Some(image) = &volume.image {
            let reference = image.reference.clone().unwrap_or_default();
            let image = (MountImage { image: reference, ..MountImage::default() }, image.pull_policy.clone());
            return Ok(Prepared { read_only: true, image: Some(image), ..Prepared::default() });
        }
        let plugin = if volume.config_map.is_some() {
            "configmap"
        } else if volume.secret.is_some() {
            "secret"
        } else if volume.downward_api.is_some() {
            "downward-api"
        } else if volume.projected.is_some() {
            "projected"
        } else {
            return Err("no volume plugin matched".to_owned().into());
        };
        let payload = self.payload(pod, volume, facts).await?;
        let path = self.place(plugin, &volume.name);
        atomic::write(&path, &payload, group, self.clock.now(), &*self.ids).map_err(text)?;
        Ok(Prepared::at(path, true))
    }

    /// A claim on a volume of this node.
    async fn claimed(&self, pod: &Pod, claim: &str) -> Result<PathBuf, Fault> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let fault = |error: String| Fault::Claim(format!("error processing PVC {namespace}/{claim}: {error}"));
        let claims = Api::<PersistentVolumeClaim>::namespaced(&self.client, namespace);
        let found = claims.get(claim).await;
        let found = found.map_err(|error| fault(format!("failed to fetch PVC from API server: {error}")))?;
        let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
        let name = found.spec.and_then(|spec| spec.volume_name).filter(|_| phase == Some("Bound"));
        let name = name.ok_or_else(|| fault("PVC is not bound".to_owned()))?;
        let volume = Api::<PersistentVolume>::all(&self.client).get(&name).await.map_err(|error| error.to_string())?;
        let spec = volume.spec.unwrap_or_default();
        if let Some(host) = &spec.host_path {
            let path = PathBuf::from(&host.path);
            let kind = host.type_.as_deref().filter(|kind| !kind.is_empty()).unwrap_or("DirectoryOrCreate");
            host_path(&path, kind)?;
            return Ok(path);
        }
        if let Some(local) = &spec.local {
            host_path(Path::new(&local.path), "")?;
            return Ok(PathBuf::from(&local.path));
        }
        Err(format!(
            "persistentvolume \"{name}\" is not on local storage: this node has only hostPath and local volumes"
        )
        .into())
    }

    /// Takes the pod's files away; what is on a file system of its own first.
    ///
    /// # Errors
    /// They can't be removed.
    pub fn tear_down(&self) -> io::Result<()> {
        if let Ok(entries) = fs::read_dir(self.dir.join("volumes/kubernetes.io~empty-dir")) {
            for entry in entries.flatten() {
                let _ = rustix::mount::unmount(entry.path(), UnmountFlags::DETACH);
            }
        }
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether a file system of its own is at a path.
fn is_mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).ok().map(|meta| meta.dev());
    path.parent().is_some_and(|parent| device(path) != device(parent))
}

/// Checks a path of the node against what it is said to be, and makes it if it is to be made.
fn host_path(path: &Path, kind: &str) -> Result<(), String> {
    let shown = path.display();
    let is = |check: fn(&fs::FileType) -> bool| fs::metadata(path).is_ok_and(|meta| check(&meta.file_type()));
    let fail = |what: &str| Err(format!("hostPath type check failed: {shown} is not {what}"));
    match kind {
        "DirectoryOrCreate" => {
            if !path.exists() {
                fs::create_dir_all(path).map_err(|error| error.to_string())?;
            }
            if is(fs::FileType::is_dir) { Ok(()) } else { fail("a directory") }
        }
        "FileOrCreate" => {
            if !path.exists() {
                fs::write(path, "").map_err(|error| error.to_string())?;
            }
            if is(fs::FileType::is_file) { Ok(()) } else { fail("a file") }
        }
        "Directory" if !is(fs::FileType::is_dir) => fail("a directory"),
        "File" if !is(fs::FileType::is_file) => fail("a file"),
        "Socket" if !is(fs::FileType::is_socket) => fail("a socket file"),
        "CharDevice" if !is(fs::FileType::is_char_device) => fail("a character device"),
        "BlockDevice" if !is(fs::FileType::is_block_device) => fail("a block device"),
        "" if !path.exists() => fs::create_dir_all(path).map_err(|error| error.to_string()),
        _ => Ok(()),
    }
}

/// Whether what is mounted in a volume is read-only with it; `possible` is whether the runtime can do that.
fn recursive_read_only(mount: &VolumeMount, possible: bool) -> Result<bool, String> {
    let name = &mount.name;
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    let asked = format!("volume \"{name}\" requested recursive read-only mode, but it is not");
    if mount.read_only != Some(true) {
        return Err(format!("{asked} read-only"));
    }
    if let Some(other) = mount.mount_propagation.as_deref().filter(|mode| *mode != "None") {
        return Err(format!("{asked} compatible with propagation \"{other}\""));
    }
    match mode {
        "IfPossible" => Ok(possible),
        "Enabled" if possible => Ok(true),
        "Enabled" => Err(format!("{asked} supported by the runtime")),
        other => Err(format!("unknown recursive read-only mode \"{other}\"")),
    }
}

/// The mounts of a container, with sub-paths made and checked; `recursive` is whether the runtime can make all that is
/// mounted in a volume read-only.
///
/// # Errors
/// In the words of a `CreateContainerConfigError`.
pub fn mounts(
    container: &Container,
    volumes: &BTreeMap<String, Prepared>,
    env: &[(String, String)],
    recursive: bool,
) -> Result<Vec<Mount>, String> {
    let mut all = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let Some(volume) = volumes.get(&mount.name) else {
            let text = format!("mount {}: no volume \"{}\" in the pod", mount.mount_path, mount.name);
            return Err(text);
        };
        let lookup = |name: &str| env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let sub = match (&mount.sub_path, &mount.sub_path_expr) {
            (_, Some(expr)) if !expr.is_empty() => expand(expr, lookup),
            (Some(sub), _) => sub.clone(),
            _ => String::new(),
        };
        let mut path = volume.path.clone();
        let image = volume.image.as_ref().map(|(image, _)| MountImage { sub_path: sub.clone(), ..image.clone() });
        if !sub.is_empty() {
            let sub = Path::new(&sub);
            if !sub.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
                return Err(format!(
                    "failed to prepare subPath for volumeMount \"{}\" of container \"{}\"",
                    mount.name, container.name
                ));
            }
        }
        if !sub.is_empty() && image.is_none() {
            path = path.join(sub);
            if !path.exists() && !volume.read_only {
                fs::create_dir_all(&path).map_err(|error| error.to_string())?;
                let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o777));
            }
            // A link must not lead out of the volume.
            let (real, base) = (fs::canonicalize(&path), fs::canonicalize(&volume.path));
            match (real, base) {
                (Ok(real), Ok(base)) if real.starts_with(&base) => path = real,
                _ => {
                    return Err(format!(
                        "failed to prepare subPath for volumeMount \"{}\" of container \"{}\"",
                        mount.name, container.name
                    ));
                }
            }
        }
        let absolute = Path::new("/").join(&mount.mount_path);
        let read_only = volume.read_only || mount.read_only.unwrap_or(false);
        let propagation = match mount.mount_propagation.as_deref() {
            None | Some("None") => Propagation::Private,
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            Some(other) => return Err(format!("invalid MountPropagation mode: \"{other}\"")),
        };
        all.push(Mount {
            container_path: absolute,
            host_path: path,
            read_only,
            image,
            propagation,
            recursive_read_only: recursive_read_only(mount, recursive)?,
            relabel: false,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn read_only_all_the_way_down() {
        let check = |mount: serde_json::Value, possible: bool, expected: Result<bool, &str>| {
            let mut mount = mount;
            mount["name"] = json!("v");
            mount["mountPath"] = json!("/v");
            let found = recursive_read_only(&serde_json::from_value(mount.clone()).unwrap(), possible);
            assert_eq!(
                found.as_ref().map_err(|error| error.rsplit("it is not ").next().unwrap()),
                expected.as_ref().map_err(|e| *e),
                "{mount}"
            );
        };
        let mount = |mode: &str| json!({"readOnly": true, "recursiveReadOnly": mode});
        check(json!({"readOnly": true}), true, Ok(false));
        check(mount("Disabled"), true, Ok(false));
        check(mount("IfPossible"), true, Ok(true));
        check(mount("IfPossible"), false, Ok(false));
        check(mount("Enabled"), true, Ok(true));
        check(mount("Enabled"), false, Err("supported by the runtime"));
        check(json!({"recursiveReadOnly": "Enabled"}), true, Err("read-only"));
        let mut propagated = mount("Enabled");
        propagated["mountPropagation"] = json!("HostToContainer");
        check(propagated, true, Err("compatible with propagation \"HostToContainer\""));
    }
}
