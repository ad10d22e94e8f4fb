//! Under whom pods and containers run, and what they may do.

use std::collections::BTreeSet;

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::{is_valid_group_id, is_valid_user_id},
};

use super::windows;
use crate::validation::{
    read::{flag, int, is_set, list, object, objects, text},
    rules::{invalid, relative_path},
    show::{json, show},
};

const MAX_SYSCTL: usize = 253;
const MAX_PROFILE: usize = 4095;
const SYSCTL: &str = r"must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// The security of the whole pod.
pub(super) fn of_pod(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(context) = object(spec, "securityContext") else {
        return share_processes(spec, path, errors);
    };
    let spec_path = path;
    let path = path.child("securityContext");
    if let Some(group) = int(context, "fsGroup") {
        invalid(errors, &path.child("fsGroup"), group, is_valid_group_id(group));
    }
    ids(context, &path, errors);
    let groups = path.child("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        let group = group.as_i64().unwrap_or(0);
        invalid(errors, &groups.index(i), group, is_valid_group_id(group));
    }
    share_processes(spec, spec_path, errors);
    sysctls(context, spec, &path.child("sysctls"), errors);
    word(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], &path, errors);
    seccomp(context, &path, errors);
    windows::options(context, &path, errors);
    app_armor(context, &path, errors);
    word(context, "supplementalGroupsPolicy", &["Merge", "Strict"], &path, errors);
    word(context, "seLinuxChangePolicy", &["Recursive"], &path, errors);
}

/// A word that may be missing, but must be known.
fn word(map: &Map, key: &str, known: &[&str], path: &Path<'_>, errors: &mut ErrorList) {
    if is_set(map, key) && !known.contains(&text(map, key)) {
        errors.push(Error::not_supported(path.child(key), text(map, key), known));
    }
}

fn ids(context: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if let Some(user) = int(context, "runAsUser") {
        invalid(errors, &path.child("runAsUser"), user, is_valid_user_id(user));
    }
    if let Some(group) = int(context, "runAsGroup") {
        invalid(errors, &path.child("runAsGroup"), group, is_valid_group_id(group));
    }
}

/// Told of the security context, where upstream keeps it inside.
fn share_processes(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        let path = path.child("securityContext");
        errors.push(Error::invalid(path.child("shareProcessNamespace"), true, detail));
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_end = |c: Option<&u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        let inner = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"-_".contains(c);
        is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(inner)
    };
    name.len() <= MAX_SYSCTL && name.split(['.', '/']).all(is_part)
}

/// The namespaces of the kernel that a pod can share with its host, and what belongs to them: what begins so, and what
/// is named so.
const NAMESPACES: [(&str, &str, &[&str]); 2] = [
    ("hostNetwork", "net.", &[]),
    (
        "hostIPC",
        "fs.mqueue.",
        &[
            "kernel.msg",
            "kernel.msgmax",
            "kernel.msgmnb",
            "kernel.msgmni",
            "kernel.sem",
            "kernel.shm",
            "kernel.shm_rmid_forced",
            "kernel.shmall",
            "kernel.shmmax",
            "kernel.shmmni",
        ],
    ),
];

fn sysctls(context: &Map, spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let mut names = BTreeSet::new();
    for (i, sysctl) in objects(context, "sysctls") {
        let path = path.index(i);
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.push(Error::required(path.child("name"), ""));
        } else if !is_sysctl(name) {
            errors.push(Error::invalid(path.child("name"), name, SYSCTL));
        } else if names.contains(name) {
            errors.push(Error::duplicate(path.child("name"), name));
        }
        let dotted = name.replace('/', ".");
        let shared = |(host, prefix, names): &&(&str, &str, &[&str])| {
            flag(spec, host) && (dotted.starts_with(prefix) || names.contains(&dotted.as_str()))
        };
        if let Some((host, ..)) = NAMESPACES.iter().find(shared) {
            let detail = format!("may not be specified when '{host}' is true");
            errors.push(Error::invalid(path.child("name"), name, detail));
        }
        names.insert(name);
    }
}

fn seccomp(context: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(profile) = object(context, "seccompProfile") else { return };
    let path = path.child("seccompProfile");
    let ty = text(profile, "type");
    match ty {
        "" => errors.push(Error::required(path.child("type"), "type is required when seccompProfile is set")),
        _ if PROFILES.contains(&ty) => {}
        _ => errors.push(Error::not_supported(path.child("type"), ty, PROFILES)),
    }
    let path = path.child("localhostProfile");
    match (ty == "Localhost", is_set(profile, "localhostProfile")) {
        (true, false) => errors.push(Error::required(path, "must be set when seccomp type is Localhost")),
        (true, true) => relative_path(errors, text(profile, "localhostProfile"), &path),
        (false, true) => {
            let shown = show(profile, &[("Type", "type", "\"\""), ("LocalhostProfile", "localhostProfile", "null")]);
            errors.push(Error::invalid_shown(path, shown, "can only be set when seccomp type is Localhost"));
        }
        (false, false) => {}
    }
}

fn app_armor(context: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(profile) = object(context, "appArmorProfile") else { return };
    let path = path.child("appArmorProfile");
    let local = path.child("localhostProfile");
    let needed = "must be set when AppArmor type is Localhost";
    let name = text(profile, "localhostProfile");
    match (text(profile, "type"), is_set(profile, "localhostProfile")) {
        ("Localhost", false) => errors.push(Error::required(local, needed)),
        ("Localhost", true) => {
            if name.trim() != name {
                errors.push(Error::invalid(local, name, "must not be padded with whitespace"));
            } else if name.is_empty() {
                errors.push(Error::required(local, needed));
            }
            if name.len() > MAX_PROFILE {
                errors.push(Error::too_long(local, MAX_PROFILE));
            }
        }
        ("RuntimeDefault" | "Unconfined", true) => {
            errors.push(Error::invalid(local, name, "can only be set when AppArmor type is Localhost"));
        }
        ("RuntimeDefault" | "Unconfined", false) => {}
        ("", _) => {
            errors.push(Error::required(path.child("type"), "type is required when appArmorProfile is set"));
        }
        (ty, _) => errors.push(Error::not_supported(path.child("type"), ty, PROFILES)),
    }
}

/// The security of one container.
pub(super) fn of_container(container: &Map, host_users: bool, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(context) = object(container, "securityContext") else { return };
    let path = path.child("securityContext");
    ids(context, &path, errors);
    if is_set(context, "procMount") {
        let mount = text(context, "procMount");
        word(context, "procMount", &["Default", "Unmasked"], &path, errors);
        if host_users && mount == "Unmasked" {
            let detail = "`hostUsers` must be false to use `Unmasked`";
            errors.push(Error::invalid(path.child("procMount"), mount, detail));
        }
    }
    seccomp(context, &path, errors);
    if context.get("allowPrivilegeEscalation").and_then(Value::as_bool) == Some(false) {
        let mut wrong = |what: &str| {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            errors.push(Error::invalid_shown(path, show_context(context), detail));
        };
        if flag(context, "privileged") {
            wrong("`privileged` to true");
        }
        let added = object(context, "capabilities").map_or(&[][..], |capabilities| list(capabilities, "add"));
        for _ in added.iter().filter(|name| name.as_str() == Some("CAP_SYS_ADMIN")) {
            wrong("`capabilities.Add` CAP_SYS_ADMIN");
        }
    }
    windows::options(context, &path, errors);
    app_armor(context, &path, errors);
}

/// A container's security context as Go prints it.
fn show_context(context: &Map) -> String {
    let nested = |key: &str, fields: &[(&'static str, &'static str, &'static str)]| {
        object(context, key).map_or_else(|| "null".to_owned(), |map| show(map, fields))
    };
    let plain = |key: &str| context.get(key).map_or_else(|| "null".to_owned(), json);
    let profile = [("Type", "type", "\"\""), ("LocalhostProfile", "localhostProfile", "null")];
    let parts = [
        ("Capabilities", nested("capabilities", &[("Add", "add", "null"), ("Drop", "drop", "null")])),
        ("Privileged", plain("privileged")),
        (
            "SELinuxOptions",
            nested(
                "seLinuxOptions",
                &[
                    ("User", "user", "\"\""),
                    ("Role", "role", "\"\""),
                    ("Type", "type", "\"\""),
                    ("Level", "level", "\"\""),
                ],
            ),
        ),
        (
            "WindowsOptions",
            nested(
                "windowsOptions",
                &[
                    ("GMSACredentialSpecName", "gmsaCredentialSpecName", "null"),
                    ("GMSACredentialSpec", "gmsaCredentialSpec", "null"),
                    ("RunAsUserName", "runAsUserName", "null"),
                    ("HostProcess", "hostProcess", "null"),
                ],
            ),
        ),
        ("RunAsUser", plain("runAsUser")),
        ("RunAsGroup", plain("runAsGroup")),
        ("RunAsNonRoot", plain("runAsNonRoot")),
        ("ReadOnlyRootFilesystem", plain("readOnlyRootFilesystem")),
        ("AllowPrivilegeEscalation", plain("allowPrivilegeEscalation")),
        ("ProcMount", plain("procMount")),
        ("SeccompProfile", nested("seccompProfile", &profile)),
        ("AppArmorProfile", nested("appArmorProfile", &profile)),
    ];
    let parts: Vec<_> = parts.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", parts.join(","))
}
