//! Persistent volumes.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{
        is_dns1123_label, is_dns1123_subdomain, is_valid_label_value, name_is_dns_label, name_is_dns_subdomain,
        validate_label_name,
    },
};

use super::{
    diff::diff,
    pod::disks,
    read::{at, is_set, list, object, objects, quantity, text},
    rules::{IMMUTABLE, invalid, no_backsteps, optional, required},
    shape::{FLAG, Field, NIL, Shape, TEXT, show},
};

const SPEC: Path<'static> = Path::new("spec");
pub(super) const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
pub(super) const NOT_POSITIVE: &str = "must be greater than zero";
const REQUIREMENT: &[Field] = &[("Key", "key", TEXT), ("Operator", "operator", TEXT), ("Values", "values", NIL)];
pub(super) const TERM: &[Field] = &[
    ("MatchExpressions", "matchExpressions", Shape::List(REQUIREMENT)),
    ("MatchFields", "matchFields", Shape::List(REQUIREMENT)),
];
/// The node affinity of a volume as Go prints it.
const AFFINITY: &[Field] =
    &[("Required", "required", Shape::Pointer(&[("NodeSelectorTerms", "nodeSelectorTerms", Shape::List(TERM))]))];
const HOST_PATH_TYPES: &[&str] =
    &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const MAX_DRIVER_NAME: usize = 63;
const NO_NAMESPACE: &str = "if the endpointnamespace is set, it must be a valid namespace name";
const NOT_INLINE: &str = "may not be specified in the context of inline volumes";

/// All sources, in the order in which they are looked at, with what they must have.
const SOURCES: &[(&str, &[&str])] = &[
    ("hostPath", &["path"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("nfs", &["server", "path"]),
    ("rbd", &["monitors", "image"]),
    ("quobyte", &[]),
    ("cephfs", &["monitors"]),
    ("iscsi", &["targetPortal"]),
    ("cinder", &["volumeID"]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("local", &["path"]),
    ("storageos", &[]),
    ("csi", &["volumeHandle"]),
];

const SECRET: Shape = Shape::Pointer(&[("Name", "name", TEXT), ("Namespace", "namespace", TEXT)]);
const HOST_PATH: Shape = Shape::Pointer(&[("Path", "path", TEXT), ("Type", "type", NIL)]);
const NFS: Shape =
    Shape::Pointer(&[("Server", "server", TEXT), ("Path", "path", TEXT), ("ReadOnly", "readOnly", FLAG)]);
const LOCAL: Shape = Shape::Pointer(&[("Path", "path", TEXT), ("FSType", "fsType", NIL)]);
const CSI: Shape = Shape::Pointer(&[
    ("Driver", "driver", TEXT),
    ("VolumeHandle", "volumeHandle", TEXT),
    ("ReadOnly", "readOnly", FLAG),
    ("FSType", "fsType", TEXT),
    ("VolumeAttributes", "volumeAttributes", NIL),
    ("ControllerPublishSecretRef", "controllerPublishSecretRef", SECRET),
    ("NodeStageSecretRef", "nodeStageSecretRef", SECRET),
    ("NodePublishSecretRef", "nodePublishSecretRef", SECRET),
    ("ControllerExpandSecretRef", "controllerExpandSecretRef", SECRET),
    ("NodeExpandSecretRef", "nodeExpandSecretRef", SECRET),
]);
/// Sources as Go prints them. Those that are hardly used any more are printed as they are.
const SOURCE: &[Field] = &[
    ("GCEPersistentDisk", "gcePersistentDisk", NIL),
    ("AWSElasticBlockStore", "awsElasticBlockStore", NIL),
    ("HostPath", "hostPath", HOST_PATH),
    ("Glusterfs", "glusterfs", NIL),
    ("NFS", "nfs", NFS),
    ("RBD", "rbd", NIL),
    ("Quobyte", "quobyte", NIL),
    ("ISCSI", "iscsi", NIL),
    ("FlexVolume", "flexVolume", NIL),
    ("Cinder", "cinder", NIL),
    ("CephFS", "cephfs", NIL),
    ("FC", "fc", NIL),
    ("Flocker", "flocker", NIL),
    ("AzureFile", "azureFile", NIL),
    ("VsphereVolume", "vsphereVolume", NIL),
    ("AzureDisk", "azureDisk", NIL),
    ("PhotonPersistentDisk", "photonPersistentDisk", NIL),
    ("PortworxVolume", "portworxVolume", NIL),
    ("ScaleIO", "scaleIO", NIL),
    ("Local", "local", LOCAL),
    ("StorageOS", "storageos", NIL),
    ("CSI", "csi", CSI),
];

pub(super) fn volume(volume: &Map, errors: &mut ErrorList) {
    volume_spec(at(volume, "spec"), Some(text(at(volume, "metadata"), "name")), &SPEC, errors);
}

/// Which ways of access are asked for.
pub(super) fn access_modes(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("accessModes");
    let modes = || list(spec, "accessModes").iter().map(|mode| mode.as_str().unwrap_or(""));
    for mode in modes().filter(|mode| !ACCESS_MODES.contains(mode)) {
        errors.push(Error::not_supported(path, mode, ACCESS_MODES));
    }
    let other = |mode: &str| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode);
    if modes().any(|mode| mode == "ReadWriteOncePod") && modes().any(other) {
        errors.push(Error::forbidden(path, "may not use ReadWriteOncePod with other access modes"));
    }
}

/// The spec of a volume of this name; one that stands in an attachment has none, and may have less.
pub(super) fn volume_spec(spec: &Map, name: Option<&str>, path: &Path<'_>, errors: &mut ErrorList) {
    let inline = name.is_none();
    if inline {
        for key in ["claimRef", "capacity"] {
            if !at(spec, key).is_empty() || (key == "claimRef" && is_set(spec, key)) {
                errors.push(Error::forbidden(path.child(key), NOT_INLINE));
            }
        }
        if !is_set(spec, "csi") {
            errors.push(Error::required(path.child("csi"), "has to be specified in the context of inline volumes"));
        }
    }
    if list(spec, "accessModes").is_empty() {
        errors.push(Error::required(path.child("accessModes"), ""));
    }
    access_modes(spec, path, errors);
    if !inline {
        capacity(spec, path, errors);
    }
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    let policy_path = path.child("persistentVolumeReclaimPolicy");
    match policy {
        "" | "Retain" => {}
        _ if inline => {
            errors.push(Error::forbidden(policy_path, "may only be Retain in the context of inline volumes"));
        }
        "Delete" | "Recycle" => {}
        _ => errors.push(Error::not_supported(policy_path, policy, &["Delete", "Recycle", "Retain"])),
    }
    if let Some(affinity) = object(spec, "nodeAffinity") {
        let path = path.child("nodeAffinity");
        match object(affinity, "required") {
            _ if inline => errors.push(Error::forbidden(path, NOT_INLINE)),
            Some(selector) => node_selector(selector, &path.child("required"), errors),
            None => errors.push(Error::required(path.child("required"), "must specify required node constraints")),
        }
    }
    sources(spec, name, path, errors);
    let place = text(at(spec, "hostPath"), "path");
    if policy == "Recycle" && !place.is_empty() && place.split('/').all(|part| ["", "."].contains(&part)) {
        errors.push(Error::forbidden(policy_path, "may not be 'recycle' for a hostPath mount of '/'"));
    }
    classes(spec, inline, path, errors);
}

fn capacity(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("capacity");
    let capacity = at(spec, "capacity");
    if capacity.is_empty() {
        errors.push(Error::required(path, ""));
    }
    if !capacity.contains_key("storage") || capacity.len() > 1 {
        let shown = spec.get("capacity").cloned().unwrap_or_default();
        errors.push(Error::not_supported(path, shown, &["storage"]));
    }
    for (name, value) in capacity.iter() {
        let Some(amount) = quantity(value) else { continue };
        basic_amount(value, &path.key(name), errors);
        if amount.signum() <= 0 {
            errors.push(Error::invalid(path.key(name), amount.to_string(), NOT_POSITIVE));
        }
    }
}

/// An amount that is not less than nothing when it is rounded.
pub(super) fn basic_amount(value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(amount) = quantity(value).map(|amount| amount.value()).filter(|amount| *amount < 0) {
        errors.push(Error::invalid(path, amount, "must be a valid resource quantity"));
    }
}

fn sources(spec: &Map, name: Option<&str>, path: &Path<'_>, errors: &mut ErrorList) {
    let mut found = false;
    for (key, needs) in SOURCES {
        let Some(source) = object(spec, key) else { continue };
        // Upstream forgot to ask whether there is another one beside this.
        if found && *key != "flexVolume" {
            let called = if *key == "cephfs" { "cephFS" } else { key };
            errors.push(Error::forbidden(path.child(called), "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        let called = if *key == "gcePersistentDisk" { "persistentDisk" } else { key };
        one_source(key, needs, source, name.unwrap_or(""), &path.child(called), errors);
        if *key == "local" && (name.is_none() || !is_set(spec, "nodeAffinity")) {
            let detail = "Local volume requires node affinity";
            errors.push(Error::required(path.child("nodeAffinity"), detail));
        }
    }
    if !found {
        errors.push(Error::required(path, "must specify a volume type"));
    }
}

fn one_source(key: &str, needs: &[&str], source: &Map, volume: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if key == "csi" {
        driver_name(text(source, "driver"), &path.child("driver"), errors);
    }
    for need in needs {
        if text(source, need).is_empty() && list(source, need).is_empty() {
            errors.push(Error::required(path.child(need), ""));
        }
    }
    let place = text(source, "path");
    match key {
        "gcePersistentDisk" | "awsElasticBlockStore" | "flocker" | "quobyte" | "fc" | "flexVolume" | "azureDisk" => {
            disks::one(key, source, path, errors);
        }
        "glusterfs" => {
            let path = path.child("endpointsNamespace");
            match source.get("endpointsNamespace").and_then(Value::as_str) {
                Some("") => errors.push(Error::invalid(path, "", NO_NAMESPACE)),
                Some(name) => invalid(errors, &path, name, name_is_dns_label(name, false)),
                None => {}
            }
        }
        "iscsi" => disks::iscsi(source, Some(volume), path, errors),
        "cinder" | "storageos" => {
            if key == "storageos" {
                required(errors, source, "volumeName", path, is_dns1123_label);
                optional(errors, source, "volumeNamespace", path, is_dns1123_label);
            }
            for need in object(source, "secretRef")
                .into_iter()
                .flat_map(|secret| ["name", "namespace"].into_iter().filter(|need| text(secret, need).is_empty()))
            {
                errors.push(Error::required(path.child("secretRef").child(need), ""));
            }
        }
        "azureFile" if source.get("secretNamespace").and_then(Value::as_str) == Some("") => {
            errors.push(Error::required(path.child("secretNamespace"), ""));
        }
        "hostPath" if !place.is_empty() => {
            no_backsteps(errors, place, &path.child("path"));
            let ty = text(source, "type");
            if !HOST_PATH_TYPES.contains(&ty) {
                errors.push(Error::not_supported(path.child("type"), ty, HOST_PATH_TYPES));
            }
        }
        "local" if !place.is_empty() => no_backsteps(errors, place, &path.child("path")),
        "nfs" if !place.starts_with('/') => {
            errors.push(Error::invalid(path.child("path"), place, "must be an absolute path"));
        }
        "csi" => {
            let names = ["controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"];
            for key in names.map(|name| format!("{name}SecretRef")) {
                let Some(reference) = object(source, &key) else { continue };
                let path = path.child(&key);
                required(errors, reference, "name", &path, is_dns1123_subdomain);
                required(errors, reference, "namespace", &path, is_dns1123_label);
            }
        }
        _ => {}
    }
}

/// The name of a driver, in which letters may be large.
pub(super) fn driver_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if name.is_empty() {
        return errors.push(Error::required(path, ""));
    }
    if name.len() > MAX_DRIVER_NAME {
        errors.push(Error::too_long(path, MAX_DRIVER_NAME));
    }
    invalid(errors, path, name, is_dns1123_subdomain(&name.to_lowercase()));
}

fn classes(spec: &Map, inline: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        let path = path.child("storageClassName");
        if inline {
            errors.push(Error::forbidden(path, NOT_INLINE));
        } else {
            invalid(errors, &path, class, name_is_dns_subdomain(class, false));
        }
    }
    let mode = text(spec, "volumeMode");
    if is_set(spec, "volumeMode") && inline && mode != "Filesystem" {
        let detail = "may not specify volumeMode other than Filesystem in the context of inline volumes";
        errors.push(Error::forbidden(path.child("volumeMode"), detail));
    } else if is_set(spec, "volumeMode") && !VOLUME_MODES.contains(&mode) {
        errors.push(Error::not_supported(path.child("volumeMode"), mode, VOLUME_MODES));
    }
    if is_set(spec, "volumeAttributesClassName") && !inline {
        let class_path = path.child("volumeAttributesClassName");
        match text(spec, "volumeAttributesClassName") {
            "" => errors.push(Error::required(class_path, "an empty string is disallowed")),
            class => invalid(errors, &class_path, class, name_is_dns_subdomain(class, false)),
        }
        if !is_set(spec, "csi") {
            let detail = "has to be specified when using volumeAttributesClassName";
            errors.push(Error::required(path.child("csi"), detail));
        }
    }
}

/// Which nodes are meant.
pub(super) fn node_selector(selector: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.child("nodeSelectorTerms");
    if list(selector, "nodeSelectorTerms").is_empty() {
        errors.push(Error::required(path, "must have at least one node selector term"));
    }
    for (i, term) in objects(selector, "nodeSelectorTerms") {
        let path = path.index(i);
        let expressions = path.child("matchExpressions");
        for (i, one) in objects(term, "matchExpressions") {
            node_requirement(one, &expressions.index(i), errors);
        }
        let fields = path.child("matchFields");
        for (i, one) in objects(term, "matchFields") {
            node_field(one, &fields.index(i), errors);
        }
    }
}

fn node_requirement(one: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let values = list(one, "values");
    let values_path = path.child("values");
    match (text(one, "operator"), values.len()) {
        ("In" | "NotIn", 0) => {
            errors.push(Error::required(values_path, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        ("Exists" | "DoesNotExist", 1..) => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(values_path, detail));
        }
        ("Gt" | "Lt", 0 | 2..) => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(Error::required(values_path, detail));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt", _) => {}
        (operator, _) => {
            errors.push(Error::invalid(path.child("operator"), operator, "not a valid selector operator"));
        }
    }
    errors.extend(validate_label_name(text(one, "key"), &path.child("key")));
    for (i, value) in values.iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        invalid(errors, &values_path.index(i), value, is_valid_label_value(value));
    }
}

fn node_field(one: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let values_path = path.child("values");
    match (text(one, "operator"), list(one, "values").len()) {
        ("In" | "NotIn", 1) => {}
        ("In" | "NotIn", _) => {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(Error::required(values_path, detail));
        }
        (operator, _) => {
            errors.push(Error::invalid(path.child("operator"), operator, "not a valid selector operator"));
        }
    }
    let key = text(one, "key");
    if key != "metadata.name" {
        return errors.push(Error::invalid(path.child("key"), key, "not a valid field selector key"));
    }
    for (i, value) in list(one, "values").iter().enumerate() {
        let value = value.as_str().unwrap_or("");
        invalid(errors, &values_path.index(i), value, name_is_dns_subdomain(value, false));
    }
}

/// A volume stays where it is.
pub(super) fn volume_update(new: &Map, old: &Map, errors: &mut ErrorList) {
    const EXPAND: &str = "controllerExpandSecretRef";
    let mut spec = at(new, "spec").clone();
    let old = at(old, "spec");
    // A secret to expand the volume with may be added.
    if is_set(old, "csi")
        && !is_set(at(old, "csi"), EXPAND)
        && let Some(csi) = spec.get_mut("csi").and_then(Value::as_object_mut)
    {
        csi.remove(EXPAND);
    }
    let (before, after) = (show(old, SOURCE), show(&spec, SOURCE));
    if before != after {
        let diff = diff(&before, &after);
        let detail = format!("spec.persistentvolumesource is immutable after creation\n{diff}");
        errors.push(Error::forbidden(SPEC.child("persistentvolumesource"), detail));
    }
    fixed_mode(&spec, old, errors);
    let affinity = |spec: &Map| spec.get("nodeAffinity").map(|affinity| current_labels(&affinity.to_string()));
    if is_set(old, "nodeAffinity") && affinity(&spec) != affinity(old) {
        let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
        let shown = object(&spec, "nodeAffinity").map_or_else(|| "null".to_owned(), |map| show(map, AFFINITY));
        errors.push(Error::invalid_shown("nodeAffinity", shown, detail));
    }
    if is_set(old, "volumeAttributesClassName") && !is_set(&spec, "volumeAttributesClassName") {
        let detail = "update from non-nil value to nil is forbidden";
        errors.push(Error::forbidden(SPEC.child("volumeAttributesClassName"), detail));
    }
}

/// Where nodes are, in words of today: a volume may change to them.
fn current_labels(affinity: &str) -> String {
    let labels = [
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
    ];
    labels
        .iter()
        .fold(affinity.to_owned(), |text, (beta, now)| text.replace(&format!("\"{beta}\""), &format!("\"{now}\"")))
}

pub(super) fn fixed_mode(spec: &Map, old: &Map, errors: &mut ErrorList) {
    if text(spec, "volumeMode") != text(old, "volumeMode") {
        let mode = spec.get("volumeMode").cloned().unwrap_or_default();
        errors.push(Error::invalid("volumeMode", mode, IMMUTABLE));
    }
}
