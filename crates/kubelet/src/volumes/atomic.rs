//! Files that change all at once: they lie in a directory of their own, and a link is moved to it.
//!
//! Readers see `name` → `..data/name`, `..data` → `..2026_01_01_…`. A new set of files is written beside the old
//! one, and one rename makes it the present one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Component, Path, PathBuf},
};

use capstan_clock::{Ids, Timestamp};

/// One file: its content and its mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileProjection {
    /// What is in it.
    pub data: Vec<u8>,
    /// Who may read it.
    pub mode: u32,
}

/// The files of a volume by their paths.
pub type Payload = BTreeMap<PathBuf, FileProjection>;

const DATA: &str = "..data";

/// Makes the directory show exactly these files; whether anything changed.
///
/// # Errors
/// A path leads out of the directory, or the file system refuses.
pub fn write(dir: &Path, payload: &Payload, group: Option<u32>, now: Timestamp, ids: &dyn Ids) -> io::Result<bool> {
    for path in payload.keys() {
        let fine = path.components().all(|part| matches!(part, Component::Normal(_)))
            && !path.starts_with("..")
            && !path.to_string_lossy().starts_with("..");
        if !fine || path.as_os_str().is_empty() {
            let text = format!("invalid path {:?}", path.display().to_string());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
    }
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    let old = fs::read_link(dir.join(DATA)).ok();
    if let Some(old) = &old
        && is_same(&dir.join(old), payload)
    {
        return Ok(false);
    }
    let stamp = now.strftime("%Y_%m_%d_%H_%M_%S");
    let new = format!("..{stamp}.{}", ids.suffix(9));
    let fresh = dir.join(&new);
    fs::create_dir(&fresh)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    for (path, file) in payload {
        let at = fresh.join(path);
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&at, &file.data)?;
        // A group that may use the volume may read what its owner may.
        let mode = if group.is_some() { file.mode | ((file.mode & 0o400) >> 3) } else { file.mode };
        fs::set_permissions(&at, fs::Permissions::from_mode(mode))?;
        if group.is_some() {
            std::os::unix::fs::chown(&at, None, group)?;
        }
    }
    let temporary = dir.join("..data_tmp");
    let _ = fs::remove_file(&temporary);
    symlink(&new, &temporary)?;
    fs::rename(&temporary, dir.join(DATA))?;

    let tops: BTreeSet<_> =
        payload.keys().filter_map(|path| path.components().next()).map(PathBuf::from_component).collect();
    for top in &tops {
        if fs::symlink_metadata(dir.join(top)).is_err() {
            symlink(Path::new(DATA).join(top), dir.join(top))?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let name = PathBuf::from(entry?.file_name());
        let hidden = name.to_string_lossy().starts_with("..");
        if !hidden && !tops.contains(&name) {
            let _ = fs::remove_file(dir.join(&name));
        }
    }
    if let Some(old) = old {
        let _ = fs::remove_dir_all(dir.join(old));
    }
    Ok(true)
}

/// A path of one component.
trait FromComponent {
    fn from_component(component: Component<'_>) -> Self;
}

impl FromComponent for PathBuf {
    fn from_component(component: Component<'_>) -> Self {
        PathBuf::from(component.as_os_str())
    }
}

/// Whether a directory holds exactly these files.
fn is_same(dir: &Path, payload: &Payload) -> bool {
    let mut left = vec![dir.to_owned()];
    let mut count = 0;
    while let Some(at) = left.pop() {
        let Ok(entries) = fs::read_dir(&at) else { return false };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
                continue;
            }
            count += 1;
            let known = path.strip_prefix(dir).ok().and_then(|path| payload.get(path));
            if !known.is_some_and(|file| fs::read(&path).is_ok_and(|data| data == file.data)) {
                return false;
            }
        }
    }
    count == payload.len()
}

#[cfg(test)]
mod tests {
    use capstan_clock::SeededIds;

    use super::*;

    #[test]
    fn files_change_all_at_once_and_only_when_they_differ() {
        let dir = crate::testing::temporary("atomic");
        let ids = SeededIds::new(1);
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let file = |text: &str| FileProjection { data: text.into(), mode: 0o640 };
        let payload = |files: &[(&str, &str)]| -> Payload {
            files.iter().map(|(path, text)| (PathBuf::from(path), file(text))).collect()
        };
        let put = |files: &[(&str, &str)]| write(&dir, &payload(files), None, now, &ids).unwrap();
        assert!(put(&[("a", "1"), ("d/b", "2")]));
        let before = fs::read_link(dir.join("..data")).unwrap();
        assert!(before.to_string_lossy().starts_with("..2026_01_02_03_04_05."), "{before:?}");
        assert!(!put(&[("a", "1"), ("d/b", "2")]));
        assert_eq!(fs::read_link(dir.join("..data")).unwrap(), before);
        assert_eq!(fs::read_link(dir.join("d")).unwrap(), Path::new("..data/d"));
        assert!(put(&[("a", "3")]));
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "3");
        assert_eq!(fs::metadata(dir.join("a")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(!dir.join("d").exists() && !dir.join(&before).exists(), "what is old is gone");
        for bad in ["../x", "/x", "..x", "a/../../x"] {
            assert!(write(&dir, &payload(&[(bad, "")]), None, now, &ids).is_err(), "{bad}");
        }
    }
}
