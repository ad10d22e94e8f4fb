//! Which level of which version holds in a namespace, as its labels say.

use std::fmt;

use capstan_api::{
    Value,
    field::{Error, ErrorList, Path},
    go,
};

/// The value of a label, if there is one.
pub type Labels<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// How strict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Everything is allowed.
    #[default]
    Privileged,
    /// Known ways to more privileges are not allowed.
    Baseline,
    /// Pods follow the current practice of hardening.
    Restricted,
}

impl Level {
    const NAMES: [(&'static str, Level); 3] =
        [("privileged", Level::Privileged), ("baseline", Level::Baseline), ("restricted", Level::Restricted)];

    fn parse(text: &str) -> Result<Self, &'static str> {
        let known = Self::NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, level)| *level).ok_or("must be one of privileged, baseline, restricted")
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, level)| level == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// The release whose rules hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `v1.` and this.
    Minor(i64),
    /// The newest, whatever it is.
    #[default]
    Latest,
}

impl Version {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "latest" {
            return Ok(Version::Latest);
        }
        text.strip_prefix("v1.")
            .filter(|minor| minor.bytes().all(|c| c.is_ascii_digit()) && (*minor == "0" || !minor.starts_with('0')))
            .and_then(|minor| go::atoi(minor).ok())
            .map(Version::Minor)
            .ok_or(r#"must be "latest" or "v1.x""#)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Version::Minor(minor) => write!(f, "v1.{minor}"),
            Version::Latest => f.write_str("latest"),
        }
    }
}

/// A level as one version has it: `restricted:latest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelVersion {
    /// How strict.
    pub level: Level,
    /// Since when.
    pub version: Version,
}

impl LevelVersion {
    /// Whether both allow the same.
    fn equivalent(&self, other: &LevelVersion) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

/// What holds in a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// What is refused.
    pub enforce: LevelVersion,
    /// What is noted in the audit log.
    pub audit: LevelVersion,
    /// What clients are warned of.
    pub warn: LevelVersion,
}

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const ENFORCE_VERSION: &str = "pod-security.kubernetes.io/enforce-version";
const AUDIT: &str = "pod-security.kubernetes.io/audit";
const AUDIT_VERSION: &str = "pod-security.kubernetes.io/audit-version";
const WARN: &str = "pod-security.kubernetes.io/warn";
const WARN_VERSION: &str = "pod-security.kubernetes.io/warn-version";

/// Reads a label; the error is collected.
fn read<T>(
    labels: &Labels<'_>,
    errors: &mut ErrorList,
    label: &str,
    parse: fn(&str) -> Result<T, &'static str>,
) -> Option<Result<T, ()>> {
    let value = labels(label)?;
    Some(parse(&value).map_err(|detail| {
        let metadata = Path::new("metadata");
        let path = metadata.child("labels");
        errors.push(Error::invalid(path.key(label), Value::from(value), detail));
    }))
}

impl Policy {
    /// The policy of a namespace with these labels, and what is wrong with them.
    ///
    /// There always is a policy: an unreadable level is the strictest where it is enforced, none where it is audited or
    /// warned of; an unreadable version is the latest.
    pub fn of(labels: &Labels<'_>, defaults: &Policy) -> (Policy, ErrorList) {
        let (mut policy, mut errors) = (*defaults, ErrorList::new());
        let enforce = read(labels, &mut errors, ENFORCE, Level::parse);
        if let Some(level) = enforce {
            policy.enforce.level = level.unwrap_or(Level::Restricted);
        }
        if let Some(version) = read(labels, &mut errors, ENFORCE_VERSION, Version::parse) {
            policy.enforce.version = version.unwrap_or_default();
        }
        if let Some(level) = read(labels, &mut errors, AUDIT, Level::parse) {
            policy.audit.level = level.unwrap_or_default();
        }
        if let Some(version) = read(labels, &mut errors, AUDIT_VERSION, Version::parse) {
            policy.audit.version = version.unwrap_or_default();
        }
        let warn = read(labels, &mut errors, WARN, Level::parse);
        if let Some(level) = warn {
            policy.warn.level = level.unwrap_or_default();
        }
        let warn_version = read(labels, &mut errors, WARN_VERSION, Version::parse);
        if let Some(version) = warn_version {
            policy.warn.version = version.unwrap_or_default();
        }
        // Who enforces more than is warned of is warned of controllers whose pods will be refused.
        if warn.is_none() && enforce.is_some_and(|level| level.is_ok()) && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if warn_version.is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    /// Whether nothing is refused, noted or warned of.
    #[must_use]
    pub fn fully_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    /// The warning about labels of a namespace that is exempt, if they would mean something elsewhere.
    pub fn exempt_warning(&self, namespace: &str, labels: &Labels<'_>, defaults: &Policy) -> Option<String> {
        let modes = [
            ("enforce", &self.enforce, &defaults.enforce, [ENFORCE, ENFORCE_VERSION]),
            ("audit", &self.audit, &defaults.audit, [AUDIT, AUDIT_VERSION]),
            ("warn", &self.warn, &defaults.warn, [WARN, WARN_VERSION]),
        ];
        if self.fully_privileged() || modes.iter().all(|(_, mode, default, _)| mode.equivalent(default)) {
            return None;
        }
        let ignored = modes.iter().filter(|(_, mode, _, own)| {
            mode.level != Level::Privileged && own.iter().any(|label| labels(label).is_some())
        });
        let ignored: Vec<_> = ignored.map(|(name, mode, ..)| format!("{name}={mode}")).collect();
        Some(format!(
            "namespace {} is exempt from Pod Security, and the policy ({}) will be ignored",
            go::quote(namespace),
            ignored.join(", ")
        ))
    }
}
