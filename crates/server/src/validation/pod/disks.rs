//! Volumes of storage systems that are named in the pod itself.

use capstan_api::{
    Map,
    field::{Error, ErrorList, Path},
    validation::{is_dns1123_label, is_in_range},
};

use crate::validation::{
    read::{flag, int, is_set, list, object, strings, text},
    rules::{invalid, optional, required},
};

const MAX_TENANT: usize = 64;
const MAX_PORTAL: usize = 64;
const LONG_PORTAL: &str = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if \
                           iscsi.initiatorName is specified.";
const HOST_AND_PORT: &str = "must be a host:port pair or multiple pairs separated by commas";

/// What a source demands beyond the fields that it must have.
pub(in crate::validation) fn one(key: &str, source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    match key {
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            if let Some(n) = int(source, "partition").filter(|n| !(0..=255).contains(n)) {
                // Nought is allowed, whatever it says.
                errors.push(Error::invalid(path.child("partition"), n, "must be between 1 and 255, inclusive"));
            }
        }
        "iscsi" => iscsi(source, None, path, errors),
        "flocker" => flocker(source, path, errors),
        "quobyte" => quobyte(source, path, errors),
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => {
            for (option, _) in strings(source, "options") {
                let namespace = option.split_once('/').map_or(option, |(namespace, _)| namespace);
                let normalized = format!(".{}", namespace.to_lowercase());
                if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
                    let detail = "kubernetes.io and k8s.io namespaces are reserved";
                    errors.push(Error::invalid(path.child("options").key(option), option, detail));
                }
            }
        }
        "azureDisk" => azure_disk(source, path, errors),
        "storageos" => {
            required(errors, source, "volumeName", path, is_dns1123_label);
            optional(errors, source, "volumeNamespace", path, is_dns1123_label);
            secret(source, path, errors);
        }
        "cinder" => secret(source, path, errors),
        _ => {}
    }
}

fn secret(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(secret) = object(source, "secretRef") {
        required(errors, secret, "name", &path.child("secretRef"), |_| Vec::new());
    }
}

/// Whether a name is one that iSCSI knows: the text after `iqn.`, `eui.` or `naa.`.
fn is_initiator(name: &str) -> bool {
    let alphanumeric = |text: &str| text.bytes().all(|c| c.is_ascii_alphanumeric());
    let tail = name.get(4..).unwrap_or("");
    match name.get(..3) {
        Some("eui") => tail.len() == 16 && alphanumeric(tail),
        Some("naa") => tail.len() == 32 && alphanumeric(tail),
        Some("iqn") if name.get(3..4) == Some(".") => {
            let digits = |text: Option<&str>| text.is_some_and(|text| text.bytes().all(|c| c.is_ascii_digit()));
            let dated = digits(tail.get(..4)) && tail.get(4..5) == Some("-") && digits(tail.get(5..7));
            let Some((authority, rest)) = tail.get(7..).and_then(|rest| rest.strip_prefix('.')?.split_once(':')) else {
                return false;
            };
            let is_char = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'.';
            let fits = |c: char| !",;*&$|".contains(c) && !c.is_ascii_whitespace();
            dated
                && !authority.is_empty()
                && authority.bytes().all(is_char)
                && !rest.is_empty()
                && rest.chars().all(fits)
        }
        _ => false,
    }
}

/// A disk in a pod, or that of a volume of this name.
pub(in crate::validation) fn iscsi(source: &Map, volume: Option<&str>, path: &Path<'_>, errors: &mut ErrorList) {
    let portal = text(source, "targetPortal");
    if volume.is_some_and(|volume| volume.len() + 1 + portal.len() > MAX_PORTAL) && is_set(source, "initiatorName") {
        errors.push(Error::invalid(path.child("targetportal"), portal, LONG_PORTAL));
    }
    let hint = if volume.is_some() { "" } else { " starting with iqn, eui, or naa" };
    match text(source, "iqn") {
        "" => errors.push(Error::required(path.child("iqn"), "")),
        name => initiator(name, hint, &path.child("iqn"), errors),
    }
    let lun = int(source, "lun").unwrap_or(0);
    invalid(errors, &path.child("lun"), lun, is_in_range(lun, 0, 255));
    let authenticates = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if authenticates && !is_set(source, "secretRef") {
        errors.push(Error::required(path.child("secretRef"), ""));
    }
    if volume.is_some() {
        secret(source, path, errors);
    }
    if is_set(source, "initiatorName") {
        initiator(text(source, "initiatorName"), hint, &path.child("initiatorname"), errors);
    }
}

fn initiator(name: &str, hint: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if !["iqn", "eui", "naa"].iter().any(|prefix| name.starts_with(prefix)) {
        errors.push(Error::invalid(path, name, format!("must be valid format{hint}")));
    } else if !is_initiator(name) {
        errors.push(Error::invalid(path, name, "must be valid format"));
    }
}

fn flocker(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let [name, uuid] = ["datasetName", "datasetUUID"].map(|key| text(source, key));
    if name.is_empty() && uuid.is_empty() {
        errors.push(Error::required(path, "one of datasetName and datasetUUID is required"));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(Error::invalid(path, "resource", detail));
    }
    if name.contains('/') {
        errors.push(Error::invalid(path.child("datasetName"), name, "must not contain '/'"));
    }
}

/// Whether a text is a host and a port: one colon, or more of them in brackets.
fn is_host_and_port(text: &str) -> bool {
    match text.strip_prefix('[') {
        Some(rest) => {
            rest.split_once("]:").is_some_and(|(host, port)| !host.contains('[') && !port.contains([':', '[', ']']))
        }
        None => text.matches(':').count() == 1 && !text.contains(['[', ']']),
    }
}

fn quobyte(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.push(Error::required(path.child("registry"), HOST_AND_PORT));
    } else if text(source, "tenant").len() > MAX_TENANT {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(Error::required(path.child("tenant"), detail));
    } else {
        for _ in registry.split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.push(Error::invalid(path.child("registry"), registry, HOST_AND_PORT));
        }
    }
    required(errors, source, "volume", path, |_| Vec::new());
}

fn fibre_channel(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let names = list(source, "targetWWNs");
    let ids = list(source, "wwids");
    let names_path = path.child("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        errors.push(Error::required(names_path, "must specify either targetWWNs or wwids, but not both"));
    }
    if !names.is_empty() && !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.push(Error::invalid(names_path, names.to_vec(), detail));
    }
    match int(source, "lun") {
        _ if names.is_empty() => {}
        None => errors.push(Error::required(path.child("lun"), "lun is required if targetWWNs is specified")),
        Some(lun) => invalid(errors, &path.child("lun"), lun, is_in_range(lun, 0, 255)),
    }
}

fn azure_disk(source: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for (key, known) in
        [("cachingMode", ["None", "ReadOnly", "ReadWrite"]), ("kind", ["Dedicated", "Managed", "Shared"])]
    {
        if is_set(source, key) && !known.contains(&text(source, key)) {
            errors.push(Error::not_supported(path.child(key), text(source, key), &known));
        }
    }
    let uri = text(source, "diskURI");
    let (prefix, form) = if text(source, "kind") == "Managed" {
        let form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
        ("/subscriptions/", form)
    } else {
        ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
    };
    if is_set(source, "kind") && !uri.starts_with(prefix) {
        errors.push(Error::not_supported(path.child("diskURI"), uri, &[form]));
    }
}
