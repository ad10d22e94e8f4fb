//! The volumes of a pod.

use std::collections::BTreeMap;

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    go,
    validation::{is_dns1123_label, is_dns1123_subdomain, name_is_dns_subdomain},
};

use super::{claim, disks, projected};
use crate::validation::{
    read::{int, list, object, objects, quantity, text},
    rules::{invalid, no_backsteps, one_of, relative_path, required},
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
/// The longest name of a driver.
const MAX_DRIVER: usize = 63;
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

pub(super) fn validate<'a>(spec: &'a Map, pod: Option<&Map>, path: &Path<'_>, errors: &mut ErrorList) -> Volumes<'a> {
    let path = path.child("volumes");
    let mut volumes = Volumes::new();
    // The claims that are made for this pod alone.
    let pod = pod.map_or("", |metadata| text(metadata, "name"));
    let is_ephemeral = |(_, volume): &(usize, &Map)| !pod.is_empty() && object(volume, "ephemeral").is_some();
    let made: Vec<_> = objects(spec, "volumes")
        .filter(is_ephemeral)
        .map(|(_, volume)| format!("{pod}-{}", text(volume, "name")))
        .collect();
    for (i, volume) in objects(spec, "volumes") {
        let path = path.index(i);
        let before = errors.len();
        source(volume, pod, &path, errors);
        required(errors, volume, "name", &path, is_dns1123_label);
        let name = text(volume, "name");
        if volumes.contains_key(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        if errors.len() == before {
            volumes.insert(name, volume);
        }
        let claim = object(volume, "persistentVolumeClaim").map_or("", |claim| text(claim, "claimName"));
        if made.iter().any(|name| name == claim) {
            let detail = "must not reference a PVC that gets created for an ephemeral volume";
            let path = path.child("persistentVolumeClaim");
            errors.push(Error::invalid(path.child("claimName"), claim, detail));
        }
    }
    volumes
}

fn source(volume: &Map, pod: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let mut set = SOURCES.iter().filter_map(|key| Some((*key, object(volume, key)?)));
    let Some((key, first)) = set.next() else {
        errors.push(Error::required(path, "must specify a volume type"));
        return;
    };
    // Its own name in messages, in upstream.
    let called = if key == "gcePersistentDisk" { "persistentDisk" } else { key };
    one(key, first, !pod.is_empty(), &path.child(called), errors);
    let name = text(volume, "name");
    if key == "ephemeral" && !pod.is_empty() && !name.is_empty() {
        let claim = format!("{pod}-{name}");
        for message in name_is_dns_subdomain(&claim, false) {
            let detail = format!("PVC name {}: {message}", go::quote(&claim));
            errors.push(Error::invalid(path.child("name"), name, detail));
        }
    }
    for (key, _) in set {
        // As upstream spells them here.
        let name = match key {
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            key => key,
        };
        errors.push(Error::forbidden(path.child(name), "may not specify more than 1 volume type"));
    }
}

/// The fields that a source must have; of those with more rules, the first ones.
const REQUIRED: &[(&str, &[&str])] = &[
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal"]),
    ("glusterfs", &["endpoints", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

fn one(key: &str, source: &Map, is_pod: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let row = REQUIRED.iter().find(|row| row.0 == key);
    for field in row.map_or(&[][..], |row| row.1) {
        if text(source, field).is_empty() && list(source, field).is_empty() {
            errors.push(Error::required(path.child(field), ""));
        }
    }
    match key {
        "emptyDir" if source.get("sizeLimit").and_then(quantity).is_some_and(|limit| limit.signum() < 0) => {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.push(Error::forbidden(path.child("sizeLimit"), detail));
        }
        "hostPath" => {
            let place = text(source, "path");
            let ty = text(source, "type");
            if !place.is_empty() {
                no_backsteps(errors, place, &path.child("path"));
                if !HOST_PATH_TYPES.contains(&ty) {
                    errors.push(Error::not_supported(path.child("type"), ty, HOST_PATH_TYPES));
                }
            }
        }
        "gitRepo" => relative_path(errors, text(source, "directory"), &path.child("directory")),
        "secret" | "configMap" => {
            mode(source, "defaultMode", path, errors);
            items(source, path, errors);
        }
        "nfs" => {
            let place = text(source, "path");
            if !place.starts_with('/') {
                errors.push(Error::invalid(path.child("path"), place, "must be an absolute path"));
            }
        }
        "downwardAPI" => {
            mode(source, "defaultMode", path, errors);
            for (_, file) in objects(source, "items") {
                projected::downward_file(file, path, errors);
            }
        }
        "projected" => {
            mode(source, "defaultMode", path, errors);
            projected::sources(source, path, errors);
        }
        "csi" => csi(source, path, errors),
        "ephemeral" => match object(source, "volumeClaimTemplate") {
            None => errors.push(Error::required(path.child("volumeClaimTemplate"), "")),
            Some(template) => claim::template(template, &path.child("volumeClaimTemplate"), errors),
        },
        "image" => {
            if is_pod && text(source, "reference").is_empty() {
                errors.push(Error::required(path.child("reference"), ""));
            }
            one_of(errors, source, "pullPolicy", path, &["Always", "IfNotPresent", "Never"]);
        }
        _ => disks::one(key, source, path, errors),
    }
}

fn csi(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let driver = text(source, "driver");
    if driver.is_empty() {
        errors.push(Error::required(path.child("driver"), ""));
    } else {
        if driver.len() > MAX_DRIVER {
            errors.push(Error::too_long(path.child("driver"), MAX_DRIVER));
        }
        invalid(errors, &path.child("driver"), driver, is_dns1123_subdomain(&driver.to_lowercase()));
    }
    if let Some(secret) = object(source, "nodePublishSecretRef") {
        match text(secret, "name") {
            "" => errors.push(Error::required(path.child("nodePublishSecretRef").child("name"), "")),
            // Told of the source, as upstream does.
            name => invalid(errors, &path.child("name"), name, is_dns1123_subdomain(name)),
        }
    }
}

pub(super) fn mode(map: &Map, key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(mode) = int(map, key).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(Error::invalid(path.child(key), mode, FILE_MODE));
    }
}

/// Which key becomes which file.
pub(super) fn item(item: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    required(errors, item, "key", path, |_| Vec::new());
    required(errors, item, "path", path, |_| Vec::new());
    file_path(text(item, "path"), &path.child("path"), errors);
    mode(item, "mode", path, errors);
}

/// Which keys become which files.
fn items(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("items");
    for (i, entry) in objects(source, "items") {
        item(entry, &path.index(i), errors);
    }
}

/// A path inside the volume that does not begin as the system's own files do.
pub(super) fn file_path(place: &str, path: &Path<'_>, errors: &mut ErrorList) {
    relative_path(errors, place, path);
    if place.starts_with("..") && !place.starts_with("../") {
        errors.push(Error::invalid(path, place, "must not start with '..'"));
    }
}
