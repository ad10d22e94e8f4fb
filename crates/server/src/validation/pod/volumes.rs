//! The volumes of a pod.

use std::collections::BTreeMap;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::is_dns1123_label,
};

use crate::validation::{
    read::{int, object, objects, quantity, text},
    rules::{no_backsteps, relative_path, required},
};

/// The volumes that are right, by name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Map>;

/// All sources in the order in which they are looked at; the first that is set is the one that counts.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn validate<'a>(spec: &'a Map, path: &Path<'_>, errors: &mut ErrorList) -> Volumes<'a> {
    let path = path.child("volumes");
    let mut volumes = Volumes::new();
    for (i, volume) in objects(spec, "volumes") {
        let path = path.index(i);
        let before = errors.len();
        source(volume, &path, errors);
        required(errors, volume, "name", &path, is_dns1123_label);
        let name = text(volume, "name");
        if volumes.contains_key(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        if errors.len() == before {
            volumes.insert(name, volume);
        }
    }
    volumes
}

fn source(volume: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let mut set = SOURCES.iter().filter_map(|key| Some((*key, object(volume, key)?)));
    let Some((key, first)) = set.next() else {
        errors.push(Error::required(path, "must specify a volume type"));
        return;
    };
    one(key, first, &path.child(key), errors);
    for (key, _) in set {
        errors.push(Error::forbidden(path.child(key), "may not specify more than 1 volume type"));
    }
}

fn one(key: &str, source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let must = |errors: &mut ErrorList, key: &str| required(errors, source, key, path, |_| Vec::new());
    match key {
        "emptyDir" if source.get("sizeLimit").and_then(quantity).is_some_and(|limit| limit.signum() < 0) => {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.push(Error::forbidden(path.child("sizeLimit"), detail));
        }
        "hostPath" => {
            must(errors, "path");
            let place = text(source, "path");
            let ty = text(source, "type");
            if !place.is_empty() {
                no_backsteps(errors, place, &path.child("path"));
                if !HOST_PATH_TYPES.contains(&ty) {
                    errors.push(Error::not_supported(path.child("type"), ty, HOST_PATH_TYPES));
                }
            }
        }
        "secret" | "configMap" => {
            must(errors, if key == "secret" { "secretName" } else { "name" });
            mode(source, "defaultMode", path, errors);
            items(source, path, errors);
        }
        "persistentVolumeClaim" => must(errors, "claimName"),
        "nfs" => {
            must(errors, "server");
            must(errors, "path");
            let place = text(source, "path");
            if !place.starts_with('/') {
                errors.push(Error::invalid(path.child("path"), place, "must be an absolute path"));
            }
        }
        _ => {}
    }
}

fn mode(map: &Map, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(mode) = int(map, key).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(Error::invalid(path.child(key), mode, FILE_MODE));
    }
}

/// Which keys become which files.
fn items(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("items");
    for (i, item) in objects(source, "items") {
        let path = path.index(i);
        required(errors, item, "key", &path, |_| Vec::new());
        required(errors, item, "path", &path, |_| Vec::new());
        let place = text(item, "path");
        relative_path(errors, place, &path.child("path"));
        if place.starts_with("..") && !place.starts_with("../") {
            errors.push(Error::invalid(path.child("path"), place, "must not start with '..'"));
        }
        mode(item, "mode", &path, errors);
    }
}
