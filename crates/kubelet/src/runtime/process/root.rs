//! A container's view of the files: those of the node under a layer of its own, with its volumes at their places.
//!
//! Runs in the shim, in a mount namespace of its own.

use std::{
    fs::{self, File},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::StatVfsMountFlags,
    mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive},
};

use super::spec::{MountSpec, Spec};

/// What happens to mounts on one side is not seen on the other.
const PRIVATE: MountPropagationFlags = MountPropagationFlags::PRIVATE.union(MountPropagationFlags::REC);

/// Directories of the node's of which a container has others.
const MADE_ANEW: [&str; 5] = ["dev", "proc", "run", "sys", "tmp"];

/// Devices that a container has.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Kinds of file systems whose mounts are seen in containers too.
const REAL: [&str; 11] =
    ["ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "erofs", "squashfs", "9p", "virtiofs", "fuseblk"];

/// Makes the view and moves into it.
pub(super) fn enter(spec: &Spec) -> Result<(), String> {
    let step = |what: &str, result: Result<(), rustix::io::Errno>| result.map_err(|error| format!("{what}: {error}"));
    // Nothing goes to the node; what comes from there is seen only where a volume asks for it.
    let from_node = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    step("mounts of the node", rustix::mount::mount_change("/", from_node))?;

    let root = spec.dir.join("root");
    let make = |path: &Path| fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()));
    for name in ["root", "upper", "work"] {
        make(&spec.dir.join(name))?;
    }
    if spec.namespaces.user {
        directories(spec, &root)?;
    } else {
        step("overlay of the node's files", overlay(spec, Path::new(""), ""))?;
        other_mounts(&root);
    }

    for (name, mode) in [("tmp", "mode=1777"), ("run", "mode=755"), ("dev", "mode=755")] {
        let data = std::ffi::CString::new(mode).map_err(|error| error.to_string())?;
        make(&root.join(name))?;
        step(name, mount("tmpfs", root.join(name), "tmpfs", MountFlags::NOSUID, Some(&*data)))?;
    }
    devices(&root)?;
    let proc_flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    if spec.namespaces.pid {
        step("proc", mount("proc", root.join("proc"), "proc", proc_flags, None))?;
    } else {
        step("proc", mount_bind_recursive("/proc", root.join("proc")))?;
    }
    kernel(&root.join("sys"), spec.network.is_some())?;
    step("private mounts", rustix::mount::mount_change(&root, PRIVATE))?;
    for wanted in &spec.mounts {
        volume(&root, wanted)?;
    }
    if spec.read_only_root {
        step("read-only root", rustix::mount::mount_remount(&root, MountFlags::RDONLY, c""))?;
    }
    std::env::set_current_dir(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    step("pivot_root", rustix::process::pivot_root(".", "."))?;
    step("old root", rustix::mount::unmount(".", UnmountFlags::DETACH))?;
    std::env::set_current_dir("/").map_err(|error| error.to_string())
}

/// One of the node's directories, under a layer of the container's own.
fn overlay(spec: &Spec, name: &Path, extra: &str) -> rustix::io::Result<()> {
    let of = |layer: &str| spec.dir.join(layer).join(name);
    let lower = Path::new("/").join(name);
    let (upper, work) = (of("upper"), of("work"));
    let data = format!("lowerdir={},upperdir={},workdir={}{extra}", lower.display(), upper.display(), work.display());
    let data = std::ffi::CString::new(data).map_err(|_| rustix::io::Errno::INVAL)?;
    mount("overlay", of("root"), "overlay", MountFlags::empty(), Some(&*data))
}

/// The same without root: the kernel lays nothing over a directory that has others mounted in it, as `/` has. So each
/// directory of the node's gets a layer of its own, and those for which there can be none can only be read.
fn directories(spec: &Spec, root: &Path) -> Result<(), String> {
    let of = |error: std::io::Error| format!("the node's files: {error}");
    mount("tmpfs", root, "tmpfs", MountFlags::NOSUID, Some(c"mode=755")).map_err(|error| format!("root: {error}"))?;
    for entry in fs::read_dir("/").map_err(of)?.flatten() {
        let name = PathBuf::from(entry.file_name());
        let (kind, inside) = (entry.file_type().map_err(of)?, root.join(&name));
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path()).map_err(of)?, inside).map_err(of)?;
        } else if kind.is_dir() {
            for layer in ["root", "upper", "work"] {
                fs::create_dir_all(spec.dir.join(layer).join(&name)).map_err(of)?;
            }
            let is_made_anew = MADE_ANEW.iter().any(|made| name == Path::new(made));
            if is_made_anew || overlay(spec, &name, ",userxattr").is_ok() {
                continue;
            }
            // What can't be shown is not there for the container, as with any image.
            if mount_bind_recursive(entry.path(), &inside).is_ok() {
                let _ = read_only(&inside);
            }
        }
    }
    Ok(())
}

/// What the kernel shows of the machine; a network of its own has devices of its own.
fn kernel(sys: &Path, own_network: bool) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    if own_network && mount("sysfs", sys, "sysfs", flags, None).is_ok() {
        let groups = sys.join("fs/cgroup");
        if mount_bind_recursive("/sys/fs/cgroup", &groups).is_ok() {
            read_only(&groups)?;
        }
    } else if mount_bind_recursive("/sys", sys).is_ok() {
        read_only(sys)?;
    }
    Ok(())
}

/// What is mounted on the node beside its root: an overlay shows only the one file system that it lies on.
fn other_mounts(root: &Path) {
    let Ok(mounts) = fs::read_to_string("/proc/self/mounts") else { return };
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(target), Some(kind)) = (fields.next(), fields.next()) else { continue };
        if target == "/" || !REAL.contains(&kind) || Path::new(target).starts_with(root) {
            continue;
        }
        let inside = root.join(target.trim_start_matches('/'));
        // What can't be shown is not there for the container, as with any image.
        if inside.is_dir() && mount_bind(target, &inside).is_ok() {
            let _ = read_only(&inside);
        }
    }
}

fn devices(root: &Path) -> Result<(), String> {
    let dev = root.join("dev");
    let of = |error: std::io::Error| format!("dev: {error}");
    for name in DEVICES {
        File::create(dev.join(name)).map_err(of)?;
        mount_bind(Path::new("/dev").join(name), dev.join(name)).map_err(|error| format!("/dev/{name}: {error}"))?;
    }
    for name in ["pts", "shm"] {
        fs::create_dir(dev.join(name)).map_err(of)?;
    }
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("devpts", dev.join("pts"), "devpts", flags, Some(c"newinstance,ptmxmode=0666,mode=0620"))
        .map_err(|error| format!("/dev/pts: {error}"))?;
    mount("tmpfs", dev.join("shm"), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=1777"))
        .map_err(|error| format!("/dev/shm: {error}"))?;
    let links = [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ];
    links.into_iter().try_for_each(|(to, name)| std::os::unix::fs::symlink(to, dev.join(name)).map_err(of))
}

/// One volume at its place, which is made if it is not there.
fn volume(root: &Path, wanted: &MountSpec) -> Result<(), String> {
    let MountSpec { source, target, .. } = wanted;
    let of = |error: std::io::Error| format!("mount of {}: {error}", target.display());
    let inside = within(root, target);
    if source.is_dir() {
        fs::create_dir_all(&inside).map_err(of)?;
    } else {
        if let Some(parent) = inside.parent() {
            fs::create_dir_all(parent).map_err(of)?;
        }
        if !inside.exists() {
            File::create(&inside).map_err(of)?;
        }
    }
    let failed = |error: rustix::io::Errno| format!("mount of {}: {error}", target.display());
    mount_bind_recursive(source, &inside).map_err(failed)?;
    if !wanted.follows {
        rustix::mount::mount_change(&inside, PRIVATE).map_err(failed)?;
    }
    if wanted.read_only { read_only(&inside) } else { Ok(()) }
}

fn read_only(path: &Path) -> Result<(), String> {
    // What was forbidden stays so: without root nothing else is allowed.
    let before = rustix::fs::statvfs(path).map_or(StatVfsMountFlags::empty(), |found| found.f_flag);
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let kept = kept.into_iter().filter(|(flag, _)| before.contains(*flag)).map(|(_, flag)| flag);
    let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, MountFlags::union);
    rustix::mount::mount_remount(path, flags, c"").map_err(|error| format!("{}: {error}", path.display()))
}

/// Where a path of the container is on the node, its links followed inside the container: `/var/run` is `/run` there.
fn within(root: &Path, target: &Path) -> PathBuf {
    const MAX_LINKS: usize = 40;
    let mut done = PathBuf::new();
    let mut left: Vec<String> = parts(target);
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        let at = done.join(&part);
        match fs::read_link(root.join(&at)) {
            Ok(link) if links < MAX_LINKS => {
                links += 1;
                if link.is_absolute() {
                    done = PathBuf::new();
                }
                left.extend(parts(&link));
            }
            _ => done = at,
        }
    }
    root.join(done)
}

/// The parts of a path, the last first.
fn parts(path: &Path) -> Vec<String> {
    let part = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_owned()),
        _ => None,
    };
    path.components().rev().filter_map(part).collect()
}
