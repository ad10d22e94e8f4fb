//! The checks of each level, since which version they hold, and what they say together.

use capstan_api::{Map, Value};

use super::{
    baseline as base,
    policy::{Level, LevelVersion, Version},
    restricted as strict,
};
use crate::validation::read::{at, flag, objects, text};

/// A pod as checks see it: also one that a template describes.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    /// The annotations.
    pub annotations: &'a Map,
    /// The spec.
    pub spec: &'a Map,
}

impl<'a> Pod<'a> {
    /// The pod, or the template of one.
    pub fn new(pod: &'a Map) -> Self {
        Pod { annotations: at(at(pod, "metadata"), "annotations"), spec: at(pod, "spec") }
    }

    /// All containers: those that start first, the pod's own, and the ephemeral ones.
    pub(super) fn containers(self) -> impl Iterator<Item = &'a Map> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(move |list| objects(self.spec, list).map(|(_, container)| container))
    }

    pub(super) fn security(self) -> &'a Map {
        at(self.spec, "securityContext")
    }

    /// The names of the containers that are `bad`.
    pub(super) fn where_container(self, mut bad: impl FnMut(&'a Map) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| bad(container)).map(|container| text(container, "name")).collect()
    }

    fn is_windows(self) -> bool {
        text(at(self.spec, "os"), "name") == "windows"
    }

    /// Whether root in the pod is not root on the host.
    fn has_user_namespace(self) -> bool {
        self.spec.get("hostUsers").and_then(Value::as_bool) == Some(false)
    }
}

/// What a pod does that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// In a few words, the same for all pods.
    pub reason: &'static str,
    /// Which part of the pod.
    pub detail: String,
}

type CheckPod = fn(Pod<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    level: Level,
    /// Since which minor version which form of it holds.
    versions: &'static [(i64, CheckPod)],
    /// The check of a lower level that it takes the place of.
    overrides: &'static str,
}

const fn baseline(id: &'static str, versions: &'static [(i64, CheckPod)]) -> Check {
    Check { id, level: Level::Baseline, versions, overrides: "" }
}

const fn restricted(id: &'static str, overrides: &'static str, versions: &'static [(i64, CheckPod)]) -> Check {
    Check { id, level: Level::Restricted, versions, overrides }
}

fn unless_windows(pod: Pod<'_>, check: CheckPod) -> Option<Violation> {
    if pod.is_windows() { None } else { check(pod) }
}

fn unless_user_namespace(pod: Pod<'_>, check: CheckPod) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { check(pod) }
}

/// All checks, in the order in which they speak.
static CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, base::app_armor_profile)]),
    baseline("capabilities_baseline", &[(0, base::capabilities)]),
    baseline("hostNamespaces", &[(0, base::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, base::host_path_volumes)]),
    baseline("hostPorts", &[(0, base::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, base::host_probes_and_host_lifecycle)]),
    baseline("privileged", &[(0, base::privileged)]),
    baseline("procMount", &[(0, base::proc_mount), (35, |pod| unless_user_namespace(pod, base::proc_mount))]),
    baseline(
        "seLinuxOptions",
        &[(0, |pod| base::se_linux_options(pod, 0)), (31, |pod| base::se_linux_options(pod, 31))],
    ),
    baseline("seccompProfile_baseline", &[(0, base::seccomp_annotations), (19, base::seccomp_profile)]),
    baseline(
        "sysctls",
        &[
            (0, |pod| base::sysctls(pod, 0)),
            (27, |pod| base::sysctls(pod, 27)),
            (29, |pod| base::sysctls(pod, 29)),
            (32, |pod| base::sysctls(pod, 32)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, base::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        "",
        &[(8, strict::allow_privilege_escalation), (25, |pod| unless_windows(pod, strict::allow_privilege_escalation))],
    ),
    restricted(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(22, strict::capabilities), (25, |pod| unless_windows(pod, strict::capabilities))],
    ),
    restricted("procMount_restricted", "procMount", &[(35, base::proc_mount)]),
    restricted("restrictedVolumes", "hostPathVolumes", &[(0, strict::volumes)]),
    restricted(
        "runAsNonRoot",
        "",
        &[(0, strict::run_as_non_root), (35, |pod| unless_user_namespace(pod, strict::run_as_non_root))],
    ),
    restricted(
        "runAsUser",
        "",
        &[(23, strict::run_as_user), (35, |pod| unless_user_namespace(pod, strict::run_as_user))],
    ),
    restricted(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(19, strict::seccomp_profile), (25, |pod| unless_windows(pod, strict::seccomp_profile))],
    ),
];

impl Check {
    /// The form that holds in a version, if it was there by then.
    fn at(&self, version: Version) -> Option<CheckPod> {
        let until = self.versions.iter().rev().find(|(since, _)| Version::Minor(*since) <= version);
        until.map(|(_, check)| *check)
    }
}

/// What a pod does that the level does not allow.
#[must_use]
pub fn evaluate(policy: LevelVersion, pod: Pod<'_>) -> Vec<Violation> {
    let LevelVersion { level, version } = policy;
    let held: Vec<_> = CHECKS
        .iter()
        .filter(|check| check.level <= level)
        .filter_map(|check| Some((check, check.at(version)?)))
        .collect();
    let is_overridden = |id: &str| held.iter().any(|(check, _)| check.overrides == id);
    held.iter().filter(|(check, _)| !is_overridden(check.id)).filter_map(|(_, check)| check(pod)).collect()
}

/// The reasons alone.
pub(super) fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
}

/// The reasons with their details.
pub(super) fn details(violations: &[Violation]) -> String {
    let each =
        violations.iter().map(
            |Violation { reason, detail }| {
                if detail.is_empty() { (*reason).to_owned() } else { format!("{reason} ({detail})") }
            },
        );
    each.collect::<Vec<_>>().join(", ")
}

/// Whether a flag of a part of a security context is set.
pub(super) fn is_true(security: &Map, part: &str, key: &str) -> bool {
    flag(at(security, part), key)
}
