//! What belongs to one operating system.

use capstan_api::{
    Map, Value,
    field::{Error, ErrorList, Path},
    validation::is_dns1123_subdomain,
};

use super::containers;
use crate::validation::{
    read::{at, flag, is_set, list, object, text},
    rules::invalid,
};

const MAX_SPEC: usize = 64 * 1024;
const MAX_DOMAIN: usize = 256;
const MAX_USER: usize = 104;

/// The options that only Windows has.
pub(super) fn options(context: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(options) = object(context, "windowsOptions") else { return };
    let path = path.child("windowsOptions");
    if is_set(options, "gmsaCredentialSpecName") {
        let name = text(options, "gmsaCredentialSpecName");
        invalid(errors, &path.child("gmsaCredentialSpecName"), name, is_dns1123_subdomain(name));
    }
    if is_set(options, "gmsaCredentialSpec") {
        let spec = text(options, "gmsaCredentialSpec");
        let mut wrong = |detail: &str| errors.push(Error::invalid(path.child("gmsaCredentialSpec"), spec, detail));
        if spec.is_empty() {
            wrong("gmsaCredentialSpec cannot be an empty string");
        } else if spec.len() > MAX_SPEC {
            wrong("gmsaCredentialSpec size must be under 64 KiB");
        }
    }
    if is_set(options, "runAsUserName") {
        user_name(text(options, "runAsUserName"), &path.child("runAsUserName"), errors);
    }
}

fn is_net_bios(domain: &str) -> bool {
    const NOT: &[u8] = b"\\/:*?\"<>|";
    let is_char = |c: &u8| !NOT.contains(c);
    (1..=15).contains(&domain.len()) && !domain.starts_with('.') && domain.bytes().all(|c| is_char(&c))
}

fn is_domain(domain: &str) -> bool {
    let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'.';
    let end = |c: Option<&u8>| c.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = domain.as_bytes();
    bytes.iter().all(|c| inner(*c)) && end(bytes.first()) && end(bytes.last())
}

fn user_name(name: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let mut wrong = |detail: &str| errors.push(Error::invalid(path, name, format!("runAsUserName{detail}")));
    if name.is_empty() {
        return wrong(" cannot be an empty string");
    }
    if name.chars().any(char::is_control) {
        return wrong(" cannot contain control characters");
    }
    let parts: Vec<_> = name.split('\\').collect();
    let (domain, user) = match parts[..] {
        [user] => (None, user),
        [domain, user] => (Some(domain), user),
        _ => return wrong(" cannot contain more than one backslash"),
    };
    if domain.is_some_and(|domain| domain.len() >= MAX_DOMAIN) {
        wrong("'s Domain length must be under 256 characters");
    }
    if domain.is_some_and(|domain| !is_net_bios(domain) && !is_domain(domain)) {
        wrong("'s Domain doesn't match the NetBios nor the DNS format");
    }
    if user.is_empty() {
        wrong("'s User cannot be empty");
    } else if user.len() > MAX_USER {
        wrong("'s User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|c| c == '.' || c == ' ') {
        wrong("'s User cannot contain only periods or spaces");
    }
    if user.chars().any(|c| "\"/\\:;|=,+*?<>@[]".contains(c)) {
        wrong(r#"'s User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
}

/// Either all containers are processes of the host or none is.
pub(super) fn host_process(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let of = |map: &Map| at(at(map, "securityContext"), "windowsOptions").get("hostProcess").and_then(Value::as_bool);
    let pod = of(spec);
    let (mut all, mut host) = (0, 0);
    containers(spec, path, |container, path| {
        all += 1;
        let own = of(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let path = path.child("securityContext");
            let path = path.child("windowsOptions");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            errors.push(Error::invalid(path.child("hostProcess"), own, detail));
        }
        if own.or(pod) == Some(true) {
            host += 1;
        }
    });
    if host == 0 {
        return;
    }
    if host != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(Error::invalid(path, "", detail));
    }
    if !flag(spec, "hostNetwork") {
        let detail = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(Error::invalid(path.child("hostNetwork"), false, detail));
    }
}

const NOT_LINUX: &str = "windows options cannot be set for a linux pod";
const NOT_WINDOWS: &str = "cannot be set for a windows pod";
/// What of a pod Windows does not have, with whether it is in the security context.
const POD_FIELDS: &[(&str, bool)] = &[
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];
const CONTAINER_FIELDS: &[&str] = &[
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// The operating system and what fits it.
pub(super) fn os(spec: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    let Some(os) = object(spec, "os") else { return };
    let context = at(spec, "securityContext");
    let context_path = path.child("securityContext");
    match text(os, "name") {
        "" => errors.push(Error::required(path.child("os").child("name"), "")),
        "linux" => {
            if is_set(context, "windowsOptions") {
                errors.push(Error::forbidden(context_path.child("windowsOptions"), NOT_LINUX));
            }
            containers(spec, path, |container, path| {
                if is_set(at(container, "securityContext"), "windowsOptions") {
                    let path = path.child("securityContext");
                    errors.push(Error::forbidden(path.child("windowsOptions"), NOT_LINUX));
                }
            });
        }
        "windows" => {
            for (key, inside) in POD_FIELDS {
                let (map, path) = if *inside { (context, &context_path) } else { (spec, path) };
                let set = match *key {
                    "hostPID" | "hostIPC" => flag(map, key),
                    "sysctls" => !list(map, key).is_empty(),
                    key => is_set(map, key),
                };
                if set {
                    errors.push(Error::forbidden(path.child(key), NOT_WINDOWS));
                }
            }
            containers(spec, path, |container, path| {
                let context = at(container, "securityContext");
                let path = path.child("securityContext");
                for key in CONTAINER_FIELDS.iter().filter(|key| is_set(context, key)) {
                    errors.push(Error::forbidden(path.child(key), NOT_WINDOWS));
                }
            });
        }
        name => errors.push(Error::not_supported(path.child("os"), name, &["linux", "windows"])),
    }
}
